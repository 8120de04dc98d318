"""Lists of names in messages."""

from __future__ import annotations

from collections.abc import Iterable

LISTED = 20  # names


def listed(names: Iterable[str]) -> str:
    """The first LISTED names, separated by commas."""
    names = list(names)
    return ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
