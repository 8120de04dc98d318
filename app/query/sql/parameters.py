"""Parameters of composed SQL: they stand in it by name, and get their numbers $1, $2 ... when the text is finished.

$1 is the company in every statement.  The others are numbered in the order in which the text first uses them, so that a statement
has no parameter that it does not use, for which PostgreSQL could not determine a type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg.abc import AdaptContext
from psycopg.sql import SQL, Composable, Composed, Literal

Name = str | int  # a number is the index of a constant in Query.constants
Value = str | list[str]


class Parameter(Composable):
    """A parameter with a cast to its type, `$3::int8`.  Every value is sent as text."""

    def __init__(self, name: Name, type: str) -> None:
        super().__init__((name, type))
        self.name = name
        self.type = type

    def as_bytes(self, context: AdaptContext | None = None) -> bytes:
        raise TypeError(f"the parameter {self.name} has no number yet: use render")


COMPANY = Parameter("company", "text")
ABSENT = SQL("bds_service.refuse_absent({})").format(COMPANY)  # an error, in place of a value that each company has where it lives
BASE = Parameter("base", "text")  # the URL of OData's service root


def page_parameter(name: str, path: tuple[str, ...]) -> Parameter:
    """The `top` or `skip` of the expansion to which a path of navigations leads; without a path, of the query itself."""
    return Parameter(" ".join((name, *path)), "int8")


TOP, SKIP = page_parameter("top", ()), page_parameter("skip", ())
PAGE, LIMIT = Parameter("page", "int8"), Parameter("limit", "int8")  # rows of a page, rows to read for it


def alias(number: int) -> Parameter:
    """The alias of an aggregate of $apply."""
    return Parameter(f"alias {number}", "text")


@dataclass(frozen=True, slots=True)
class Rendered:
    """The text of a statement.

    text: with $1, $2 ...; names: of these parameters, in their order.
    pieces: the text without its parameters; between two pieces stands the parameter whose number (from 1) `numbers` has there.
    """

    text: bytes
    names: tuple[Name, ...]
    pieces: tuple[str, ...]
    numbers: tuple[int, ...]


def render(composed: Composable) -> Rendered:
    """Number the parameters of composed SQL."""
    names: dict[Name, int] = {COMPANY.name: 1}
    numbers: list[int] = []
    pieces: list[list[str]] = [[]]

    def visit(part: Composable) -> None:
        if type(part) is Composed:  # by type, because isinstance is slow for subclasses of an ABC
            for each in part:
                visit(each)
        elif type(part) is Parameter:
            numbers.append(names.setdefault(part.name, len(names) + 1))
            pieces.append([f"::{part.type}"])
        else:
            pieces[-1].append(part.as_string())

    visit(composed)
    joined = tuple(map("".join, pieces))
    text = _join(joined, [f"${number}" for number in numbers])
    return Rendered(text.encode(), tuple(names), joined, tuple(numbers))


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL and its values, for a raw cursor: `await raw_cursor.execute(statement.text, statement.values)`.

    keys: the indexes in `values` of the key of the query's path.
    prepare: False for a past state, whose plan depends on the version: it is made for each execution.
    is_steady: of a past state, that it finds rows by their ids or a unique value, so that its plan is the same for all versions.
    """

    rendered: Rendered
    values: tuple[Value, ...]
    keys: tuple[int, ...] = ()
    prepare: bool = True
    is_steady: bool = False

    @property
    def text(self) -> bytes:
        return self.rendered.text

    def values_for(self, key: str | None) -> Sequence[Value]:
        """The values, with another key unless it is None."""
        if key is None or not self.keys:
            return self.values
        values = list(self.values)
        for index in self.keys:
            values[index] = key
        return values

    def literal(self, connection: psycopg.AsyncConnection | psycopg.Connection) -> bytes:
        """The text with the values as literals, for COPY, which takes no parameters."""
        literals = [Literal(value).as_string(connection) for value in self.values]
        return _join(self.rendered.pieces, [literals[number - 1] for number in self.rendered.numbers]).encode()


def _join(pieces: Sequence[str], parameters: Sequence[str]) -> str:
    """The pieces with a parameter after each but the last."""
    return "".join(text for pair in zip(pieces, (*parameters, ""), strict=True) for text in pair)
