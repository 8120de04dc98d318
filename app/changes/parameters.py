"""The parameters of a request under /c by name: each is known, and given once."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import QueryError
from app.wire.urls import MAX_LIMIT


def by_name(params: Sequence[tuple[str, str]], names: Sequence[str], others: Sequence[str] = ()) -> dict[str, str]:
    """Return the values by name.  names: at least two.  Raises QueryError for another name, or one that is given twice.

    others: what the route takes, too, and which has been taken from the parameters.
    """
    given: dict[str, str] = {}
    for name, value in params:
        if name not in names:
            *known, last = *names, *others
            raise QueryError(f"expected {', '.join(known)} or {last}, got {name}", target=name)
        if name in given:
            raise QueryError(f"{name} is given twice", target=name)
        given[name] = value
    return given


def split(params: Sequence[tuple[str, str]], names: Sequence[str]) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the values of these names, and the other parameters.  Raises QueryError for a name that is given twice."""
    named = [pair for pair in params if pair[0] in names]
    return by_name(named, names), [pair for pair in params if pair not in named]


def read_limit(text: str | None, default: int) -> int:
    """How many items of a list are asked for.  Raises QueryError."""
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= MAX_LIMIT):
        expected = f"expected a whole number from 1 to {MAX_LIMIT:,}, got {text!r}"
        raise QueryError(f"limit: {expected}", target="limit", position=1)
    return int(text)
