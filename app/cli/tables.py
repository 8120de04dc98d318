"""Results as text: tables, and the report of an import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from textwrap import fill
from typing import Any

from app.cli import stdio
from app.feed.batches import CODE, under_batches

FIRST_ERRORS = 20  # of an import, that its report shows


def printable(text: str) -> str:
    """Text that is safe on a terminal: control characters are escaped."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def import_report(report: dict[str, Any]) -> str:
    """The report of an import, with its first errors."""
    counts = ("created", "updated", "deleted", "unchanged", "failed")
    lines = [table(("entity", *counts), [(name, *(f"{c[k]:,}" for k in counts)) for name, c in report["entities"].items()])]
    batches = [each for each in report["errors"] if each["code"] == CODE]
    errors = [each for each in report["errors"] if each["code"] != CODE]
    lines += [_wrapped(printable(_error(each))) + "\n" for each in under_batches(errors[:FIRST_ERRORS], batches)]
    if len(errors) > FIRST_ERRORS:
        # the report may not have all errors, and the others may be batches
        least = "at least " if report["errorCount"] > len(report["errors"]) else ""
        lines.append(f"... and {least}{len(errors) - FIRST_ERRORS:,} more error{'s' if len(errors) > FIRST_ERRORS + 1 else ''}\n")
    return "".join([*lines, _wrapped(import_outcome(report)), "\n"])


def _error(error: Mapping[str, Any]) -> str:
    """An error, or a batch that was not written because of errors, in one line."""
    if error["code"] == CODE:
        return str(error["message"])
    record = f" ({error['record']})" if error["record"] else ""
    return f"{error['path']}{record}: {error['code']}: {error['message']}"


def _wrapped(line: str) -> str:
    """A line in as many as the terminal needs, the further ones indented."""
    width = stdio.columns()
    return line if width is None else fill(line, max(width, 20), subsequent_indent="    ", break_on_hyphens=False)


def import_outcome(report: dict[str, Any]) -> str:
    """The state in which an import ended, in one line."""
    return f"{report['state']}{', dry run: nothing was written' if report['dryRun'] else ''}, import {report['importId']}"


def seconds(report: dict[str, Any]) -> str:
    """How long an import took; empty while it runs."""
    if not report["finishedAt"]:
        return ""
    started, finished = (datetime.fromisoformat(report[name]) for name in ("startedAt", "finishedAt"))
    return f"{(finished - started).total_seconds():.1f}"


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows in aligned columns, numeric ones right-aligned; one column under another if the terminal is too narrow for them."""
    cells = [[printable(str(value)) for value in row] for row in rows]
    widths = [max(len(row[n]) for row in [list(header), *cells]) for n in range(len(header))]
    numeric = [bool(cells) and all(row[n].replace(",", "").isdigit() for row in cells) for n in range(len(header))]
    limit = stdio.columns()
    if cells and limit is not None and sum(widths) + 2 * (len(widths) - 1) > limit:
        return _records(header, cells)
    lines = []
    for row in [list(header), *cells]:
        line = "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True))
        lines.append(line.rstrip() + "\n")
    return "".join(lines)


def _records(header: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Each row as a line of its first column, and below it a line for each other column."""
    width = max(map(len, header[1:]), default=0)
    lines = []
    for first, *others in cells:
        lines += [first, *(f"  {name.ljust(width)}  {cell}".rstrip() for name, cell in zip(header[1:], others, strict=True))]
    return "".join(f"{line}\n" for line in lines)
