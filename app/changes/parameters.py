"""The parameters of a request under /c by name: each is known, and given once."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import QueryError


def by_name(params: Sequence[tuple[str, str]], names: Sequence[str]) -> dict[str, str]:
    """Return the values by name.  names: at least two.  Raises QueryError for another name, or one that is given twice."""
    given: dict[str, str] = {}
    for name, value in params:
        if name not in names:
            raise QueryError(f"expected {', '.join(names[:-1])} or {names[-1]}, got {name}", target=name)
        if name in given:
            raise QueryError(f"{name} is given twice", target=name)
        given[name] = value
    return given
