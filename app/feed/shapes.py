"""How records of one shape (the same members in the same order) become lines, worked out once a shape.

Most records of a feed hold nothing but texts, numbers, truth values and nulls for columns.  For them a function is written, as
dataclasses write theirs; it holds numbers of columns, never a text of the document, and takes a third less time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

REMEMBERED = 1000  # shapes of a table: a document may have any number of them

K = TypeVar("K")
V = TypeVar("V")


class Mark(str):
    """A text with a meaning: told by identity from the same text in a document."""


# COPY's text format with delimiters that text seldom holds; a backslash escapes them, and itself.
DELIMITER = "\x02"
ABSENT: str = Mark("\x03")
NULL: str = Mark("\x01")  # the document's null, as the staging tables know it

Write = Callable[[str, str, str, Iterable[Any]], str]  # ordinal, parent, place in its array, values -> line


class Unwritable(Exception):
    """A value that is no single value, or has a meaning of its own: the record is to be taken member by member."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Where the members of a record go."""

    members: list[tuple[int, str]]  # slot, name
    write: Write  # raises Unwritable


def shape_of(members: list[tuple[int, str]], width: int, booleans: frozenset[int], identity: int) -> Shape:
    """The shape of records with these members, of a table with so many columns; a negative slot is no column."""
    slots = [slot for slot, _ in members]
    if any(slot < 0 for slot in slots) or len(set(slots)) < len(slots):
        return Shape(members, _refuse)
    unpacked = "".join(f"v{slot}, " for slot in slots) or "()"
    lines = [f"def write(ordinal, parent, place, values):\n {unpacked} = values\n"]
    for slot in slots:
        text = _TEXT.format(slot)
        if slot == identity:
            text = f"absent if v{slot} is None else {text}"  # an id that is null names nothing
        elif slot in booleans:
            text = f"'true' if v{slot} is True else 'false' if v{slot} is False else {text}"
        lines.append(f" if type(v{slot}) is not str: v{slot} = {text}\n")
    columns = ["ordinal", "parent", "place", *(f"v{slot}" if slot in slots else "absent" for slot in range(3, width))]
    lines.append(f" return join(({', '.join(columns)}))\n")  # a third faster than an f-string
    names: dict[str, Any] = {"join": DELIMITER.join, "absent": ABSENT, "other": _other}
    exec("".join(lines), names)
    return Shape(members, names["write"])


_TEXT = "str(v{0}) if type(v{0}) is int else other(v{0})"


def remember(cache: dict[K, V], key: K, value: V) -> V:
    """Keep what was worked out, for a bounded number of keys."""
    if len(cache) >= REMEMBERED:
        cache.clear()
    cache[key] = value
    return value


def _other(value: Any) -> str:
    if value is None:
        return NULL
    raise Unwritable


def _refuse(_ordinal: str, _parent: str, _place: str, _values: Iterable[Any]) -> NoReturn:
    raise Unwritable
