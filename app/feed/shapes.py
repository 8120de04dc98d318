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

Write = Callable[[int, str, int, Iterable[Any]], str]  # ordinal, parent, position, values -> line


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
    columns = ["{ordinal}", "{parent}", "{position}"] + [ABSENT] * (width - 3)
    unpacked = "".join(f"v{slot}, " for slot in slots) or "()"
    lines = [f"def write(ordinal, parent, position, values):\n {unpacked} = values\n"]
    for slot in slots:
        columns[slot] = f"{{v{slot}}}"
        text = "identity_text" if slot == identity else "boolean_text" if slot in booleans else "text"
        lines.append(f" if type(v{slot}) is not str: v{slot} = {text}(v{slot})\n")
    lines.append(f" return f{DELIMITER.join(columns)!r}\n")
    names: dict[str, Any] = {"text": _text, "boolean_text": _boolean_text, "identity_text": _identity_text}
    exec("".join(lines), names)
    return Shape(members, names["write"])


def remember(cache: dict[K, V], key: K, value: V) -> V:
    """Keep what was worked out, for a bounded number of keys."""
    if len(cache) >= REMEMBERED:
        cache.clear()
    cache[key] = value
    return value


def _text(value: Any) -> str:
    if type(value) is int:
        return str(value)
    if value is None:
        return NULL
    raise Unwritable


def _boolean_text(value: Any) -> str:
    return "true" if value is True else "false" if value is False else _text(value)


def _identity_text(value: Any) -> str:
    if value is None:
        return ABSENT  # an id that is null names nothing
    return _text(value)


def _refuse(_ordinal: int, _parent: str, _position: int, _values: Iterable[Any]) -> NoReturn:
    raise Unwritable
