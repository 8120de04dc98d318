"""How fast a feed goes in: new rows, the same rows again, and the same with some rows changed.

Each round has a fresh database, in which the same tables see new, unchanged and changed documents one after the other, and another
for the floor that writes the new ones into the real tables.  Reading and decoding the document is part of ours; the floors' rows come
typed and split.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import floor
from bench.documents import Document, write_basis, write_invoices, write_products
from bench.place import COMPANY, Place, load, settle
from bench.table import Result, rate, say, timed

ROUNDS = 3

Times = dict[tuple[str, str, str], list[float]]  # document, phase, who -> seconds of each round


@dataclass(frozen=True, slots=True)
class Feed:
    """A kind of document: as it is first, and how it changes, phase by phase."""

    name: str
    first: Document
    changed: dict[str, Document]


def measure(place: Place, rows: int, items: int) -> Iterator[Result]:
    """Rows a second, for products and for invoices."""
    say(f"feed: writing documents of {rows:,} products and {items:,} items")
    basis, feeds = write_basis(place.directory), _feeds(place.directory, rows, items)
    times: Times = defaultdict(list)
    for number in range(ROUNDS):
        with place.database(COMPANY) as url, place.database(COMPANY) as plain:
            for each in (url, plain):
                load(each, basis)
                floor.prepare(each)
            say(f"feed: round {number + 1} of {ROUNDS}")
            _round(url, plain, feeds, times)
    for feed in feeds:
        for phase in ("new", "unchanged", *feed.changed):
            yield from _results(feed, phase, times)


def _feeds(directory: Path, rows: int, items: int) -> list[Feed]:
    invoices = {every: write_invoices(directory, items, rows, every=every) for every in (0, 100, 5)}
    return [
        Feed("products", write_products(directory, rows), {"1 % changed": write_products(directory, rows, every=100)}),
        Feed("invoices", invoices[0], {"1 % changed": invoices[100], "20 % changed": invoices[5]}),
    ]


def _round(url: str, plain: str, feeds: list[Feed], times: Times) -> None:
    """plain is the database of the floor that writes into the real tables."""
    for feed in feeds:
        rows = feed.first.total
        times[feed.name, "new", "ours"].append(_import(url, feed.first, "created", rows))
        times[feed.name, "new", "bare"].append(_floor(url, floor.insert, feed.first, "floor", rows))
        times[feed.name, "new", "real"].append(_floor(plain, floor.insert, feed.first, "data", rows))
    settle(url, vacuum=True)
    for feed in feeds:
        before = feed.first
        for phase, document in {"unchanged": feed.first, **feed.changed}.items():
            changes = _changes(before, document)
            times[feed.name, phase, "ours"].append(_import(url, document, "updated", changes))
            times[feed.name, phase, "bare"].append(_floor(url, floor.merge, document, "floor", changes))
            before = document


def _import(url: str, document: Document, counted: str, expected: int) -> float:
    """Seconds of an import.  Raises RuntimeError unless it has done to so many rows what it should have."""
    settle(url)
    took, counts = timed(load, url, document.path)
    if sum(each[counted] for each in counts.values()) != expected:
        raise RuntimeError(f"{document.path.name}: expected {expected:,} {counted}, got {counts}")
    return took


def _floor(url: str, write: floor.Write, document: Document, schema: str, expected: int) -> float:
    """Seconds of a floor.  Raises RuntimeError unless it has written so many rows."""
    settle(url)
    took, written = timed(write, url, document, schema)
    if written != expected:
        raise RuntimeError(f"{document.path.name}: the floor has written {written:,} rows instead of {expected:,}")
    return took


def _changes(before: Document, after: Document) -> int:
    """How many rows differ between two documents."""
    changes = 0
    for table, path in before.copies.items():
        with path.open() as olds, after.copies[table].open() as news:
            changes += sum(old != new for old, new in zip(olds, news, strict=True))
    return changes


def _results(feed: Feed, phase: str, times: Times) -> Iterator[Result]:
    rows, size = feed.first.total, feed.first.path.stat().st_size / 1e6
    ours = times[feed.name, phase, "ours"]
    note = f"{rows:,} rows, {size:.0f} MB; floor: COPY + {'INSERT' if phase == 'new' else 'MERGE'}, no triggers, no foreign keys"
    yield rate(f"feed, {feed.name}, {phase}", "rows/s", rows, ours, times[feed.name, phase, "bare"], note)
    if phase == "new":
        note = "floor: the same into the real tables, with change log and foreign keys"
        yield rate(f"feed, {feed.name}, {phase} (real tables)", "rows/s", rows, ours, times[feed.name, phase, "real"], note)
