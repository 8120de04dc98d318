"""How fast everything that a company has goes in, in the real data's shape: invoices with their items, and all before them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.documents import ENTITIES, write_everything
from bench.place import COMPANY, Place, load, settle
from bench.table import Result, say, timed

ROUNDS = 3  # of those that change nothing
TARGETS = {"new": 25_000, "unchanged": 60_000}  # invoice items a second
INVOICES = "invoices with items"
PARTS = {"all before invoices": ENTITIES[:-1], INVOICES: ENTITIES[-1:]}


def measure(place: Place, scale: int) -> Iterator[Result]:
    """Rows a second: new, the same again, and with one record of a hundred changed."""
    say(f"whole: writing documents at scale {scale}")
    files = {phase: _write(place.directory, phase, scale) for phase in ("first", "changed")}
    with place.database(COMPANY) as url:
        for phase, documents, rounds in (("new", "first", 1), ("unchanged", "first", ROUNDS), ("1 % changed", "changed", 1)):
            say(f"whole: {phase}")
            for part, path in files[documents].items():
                settle(url, vacuum=phase == "unchanged")
                yield _result(url, part, phase, path, rounds)
    for path in (path for documents in files.values() for path in documents.values()):
        path.unlink()


def _write(directory: Path, phase: str, scale: int) -> dict[str, Path]:
    paths = {part: directory / f"whole_{phase}_{number}.json" for number, part in enumerate(PARTS)}
    for part, path in paths.items():
        write_everything(path, scale, PARTS[part], every=100 if phase == "changed" else 0)
    return paths


def _result(url: str, part: str, phase: str, path: Path, rounds: int) -> Result:
    """Raises RuntimeError unless the rows are new, or unchanged, as they should be."""
    times = []
    for _ in range(rounds):
        took, counts = timed(load, url, path)
        rows = sum(sum(each.values()) for each in counts.values())
        wanted = {"new": "created", "unchanged": "unchanged"}.get(phase)
        if wanted and sum(each[wanted] for each in counts.values()) != rows:
            raise RuntimeError(f"{path.name}: expected all {wanted}, got {counts}")
        times.append(took)
    items = counts["invoiceItems"] if part == INVOICES else {}
    amount = sum(items.values()) or rows
    note = f"{rows:,} rows, {path.stat().st_size / 1e6:.0f} MB"
    if part == INVOICES and phase in TARGETS:
        note += f"; target > {TARGETS[phase]:,}"
    return Result(f"feed, {part}, {phase}", "items/s" if items else "rows/s", amount / median(times), note=note)
