"""Results as text: tables, and the report of an import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def visible(text: str) -> str:
    """Text that is safe on a terminal: control characters are escaped."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def report(found: dict[str, Any]) -> str:
    """The report of an import, with its first 20 errors."""
    counts = ("created", "updated", "deleted", "unchanged", "failed")
    lines = [table(("entity", *counts), [(name, *(f"{c[k]:,}" for k in counts)) for name, c in found["entities"].items()])]
    for error in found["errors"][:20]:
        record = f" ({error['record']})" if error["record"] else ""
        lines.append(visible(f"{error['path']}{record}: {error['code']}: {error['message']}") + "\n")
    if found["errorCount"] > 20:
        lines.append(f"... and {found['errorCount'] - 20:,} more errors\n")
    return "".join([*lines, ended(found), "\n"])


def ended(found: dict[str, Any]) -> str:
    """The end of an import in one line."""
    return f"{found['state']}{', dry run: nothing was written' if found['dryRun'] else ''}, import {found['importId']}"


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows in aligned columns; numeric columns are right-aligned."""
    cells = [[visible(str(value)) for value in row] for row in rows]
    widths = [max(len(row[n]) for row in [list(header), *cells]) for n in range(len(header))]
    numeric = [bool(cells) and all(row[n].replace(",", "").isdigit() for row in cells) for n in range(len(header))]
    lines = []
    for row in [list(header), *cells]:
        line = "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True))
        lines.append(line.rstrip() + "\n")
    return "".join(lines)
