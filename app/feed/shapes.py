"""Generated functions that write records of one shape (the same members in the same order) as lines of COPY data.

Most records hold only texts, numbers, booleans and nulls for columns.  A function generated for their shape writes them in two
thirds of the time; it contains column numbers, never text of a document.  For records {"code", "price", "active"} of a table with
the columns ordinal, parent, position, @id, @operation, @where, @lookups, code, name, price, active it is

    def write(ordinal, parent, position, values):
     v7, v9, v10,  = values
     if type(v7) is not str: v7 = str(v7) if type(v7) is int else other(v7)
     if type(v9) is not str: v9 = str(v9) if type(v9) is int else other(v9)
     if type(v10) is not str: v10 = 'true' if v10 is True else 'false' if v10 is False else ...
     return join((ordinal, parent, position, absent, absent, absent, absent, v7, absent, v9, v10))

where other() returns NULL for null and raises Unwritable for anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

REMEMBERED = 1000  # shapes of a table; a document may have any number

K = TypeVar("K")
V = TypeVar("V")


class Mark(str):
    """A text with a meaning, distinguished by identity from the same text in a document."""


# COPY's text format, with delimiters that are rare in text; a backslash escapes them and itself.
DELIMITER = "\x02"
ABSENT: str = Mark("\x03")
NULL: str = Mark("\x01")  # the document's null, as the staging tables have it

_VALUE = re.compile(rf"((?:[^\\{DELIMITER}]|\\.)*){DELIMITER}", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

Write = Callable[[str, str, str, Iterable[Any]], str]  # ordinal, parent, position in its array, values -> line


class Unwritable(Exception):
    """A value is not text, a number, a boolean or null: the record must be written member by member."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a record's members, and the function that writes such records."""

    members: list[tuple[int, str]]  # slot, name
    write: Write  # raises Unwritable


def shape_of(members: list[tuple[int, str]], width: int, booleans: frozenset[int], identity: int) -> Shape:
    """The shape of records with these members.

    members: (column, name), negative for members that are not columns; width: columns of the table; booleans: columns that take
    true and false; identity: the column of the id.
    """
    slots = [slot for slot, _ in members]
    if any(slot < 0 for slot in slots) or len(set(slots)) < len(slots):
        return Shape(members, refuse)
    unpacked = "".join(f"v{slot}, " for slot in slots) or "()"
    lines = [f"def write(ordinal, parent, position, values):\n {unpacked} = values\n"]
    for slot in slots:
        text = _TEXT.format(slot)
        if slot == identity:
            text = f"absent if v{slot} is None else {text}"  # an id that is null names nothing
        elif slot in booleans:
            text = f"'true' if v{slot} is True else 'false' if v{slot} is False else {text}"
        lines.append(f" if type(v{slot}) is not str: v{slot} = {text}\n")
    columns = ["ordinal", "parent", "position", *(f"v{slot}" if slot in slots else "absent" for slot in range(3, width))]
    lines.append(f" return join(({', '.join(columns)}))\n")  # a third faster than an f-string
    names: dict[str, Any] = {"join": DELIMITER.join, "absent": ABSENT, "other": _other}
    exec("".join(lines), names)
    return Shape(members, names["write"])


_TEXT = "str(v{0}) if type(v{0}) is int else other(v{0})"


def read_lines(columns: tuple[str, ...], data: bytes) -> list[dict[str, str]]:
    """The rows of COPY data, without absent values."""
    rows = []
    for line in data.decode().split("\n")[:-1]:
        if "\\" in line:
            values = _VALUE.findall(line + DELIMITER)
            row = {name: _ESCAPED.sub(_unescape, value) for name, value in zip(columns, values, strict=True) if value != ABSENT}
        else:
            row = {name: value for name, value in zip(columns, line.split(DELIMITER), strict=True) if value != ABSENT}
        rows.append(row)
    return rows


def _unescape(match: re.Match[str]) -> str:
    return {"n": "\n", "r": "\r"}.get(match[1], match[1])


def remember(cache: dict[K, V | None], key: K, value: V) -> V:
    """Keep and return a value, for at most REMEMBERED keys."""
    if len(cache) >= REMEMBERED:
        cache.clear()
    cache[key] = value
    return value


def _other(value: Any) -> str:
    if value is None:
        return NULL
    raise Unwritable


def refuse(_ordinal: str, _parent: str, _position: str, _values: Iterable[Any]) -> NoReturn:
    """The function of a shape whose records are written member by member."""
    raise Unwritable
