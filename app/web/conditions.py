"""The condition of a page of rows, in either language, and the narrower ones to which its values lead."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.database.catalog import Catalog, Entity
from app.errors import QueryError
from app.export.row_formats import shown_decimal
from app.query.check.either import read
from app.query.check.print_odata import Unprintable, filter_text
from app.query.check.tree import Expression, Junction
from app.query.check.where import WhereChecker
from app.query.parse import where as parse_where
from app.types import named
from app.web.columns import Cell

OR = re.compile(r"\bor\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Condition:
    """What was typed, checked.  is_odata: whether it is written in OData's language."""

    entity: Entity
    catalog: Catalog
    text: str
    is_odata: bool

    def narrowed(self, test: str) -> str | None:
        """The condition as text, restricted by a test of /c, in the language in which it is written; None if that lacks it."""
        try:
            more = self._translated(test)
        except Unprintable:
            return None
        text = f"({self.text})" if OR.search(self.text) else self.text
        return f"{text} and {more}" if text else more

    def without(self, test: str) -> str | None:
        """The condition without a test that it has among others joined by `and`; None if it has no such test."""
        parts = f" and {self.text} and "
        before, found, after = parts.partition(f" and {self._translated(test)} and ")
        rest = f"{before} and {after}".removeprefix(" and ").removesuffix(" and ")
        return rest if found and self._is_rest(rest, test) else None

    def _is_rest(self, rest: str, test: str) -> bool:
        """Whether the condition is another one and the test: its text may have the test inside a constant, or below a `not`."""
        try:
            return self._tests(self.text) == self._tests(rest) + self._tests(self._translated(test))
        except (QueryError, Unprintable):
            return False

    def _tests(self, text: str) -> Counter[str]:
        """The operands of the outermost `and`."""
        condition, _ = read_condition(self.catalog, self.catalog, self.entity, text)
        operands = condition.operands if isinstance(condition, Junction) and condition.operator == "and" else [condition]
        return Counter(filter_text(each) for each in operands if each is not None)

    def _translated(self, test: str) -> str:
        return filter_text(checked(self.catalog, self.entity, test)) if self.is_odata else test


def read_condition(now: Catalog, catalog: Catalog, entity: Entity, text: str) -> tuple[Expression | None, bool]:
    """A condition over a catalog, and whether it is OData's.  now: the present one, by which its language is told."""
    found = read(now, now[entity.name], text)
    return (found.condition(catalog, catalog[entity.name]), found.is_odata) if found else (None, False)


def checked(catalog: Catalog, entity: Entity, text: str) -> Expression:
    """A condition of /c.  Raises QueryError."""
    node = parse_where.parse_filter(text)
    assert node is not None
    return WhereChecker(catalog, catalog[entity.name]).condition(node)


def joined(conditions: Sequence[Expression]) -> Expression | None:
    """The condition that all are true; None without any."""
    return Junction(0, "bool", "and", tuple(conditions)) if len(conditions) > 1 else conditions[0] if conditions else None


def equal_to(cell: Cell, value: Any) -> str:
    """The test of /c that a column has a value."""
    return f"{cell.field.name} is null" if value is None else f"{cell.field.name} = {_constant(cell, value)}"


def within(cell: Cell, period: str) -> str:
    """The test of /c that a day or time lies in a month or year, 2026-11 or 2026."""
    begin, month = (f"{period}-01", int(period[5:])) if len(period) > 4 else (f"{period}-01-01", 12)
    end = f"{int(period[:4]) + month // 12:04d}-{month % 12 + 1:02d}-01"
    return f"{cell.field.name} >= '{begin}'" + (f" and {cell.field.name} < '{end}'" if len(end) == 10 else "")


def example(catalog: Catalog, cells: Sequence[Cell]) -> str:
    """A condition that an entity with these columns can have: of a number, else of a text, and of a reference with a code."""
    number = next((f"{cell.name} >= 10" for cell in cells if cell.is_number), None)
    text = next((f"{cell.name} like 'A%'" for cell in cells if cell.field.type == "text"), None)
    codes = ((cell.name, catalog[cell.step.target].identifying_field) for cell in cells if cell.step)
    reference = next((f"{name} = '{code.name}:X'" for name, code in codes if code), None)
    return " and ".join(each for each in (number or text, reference) if each)


def _constant(cell: Cell, value: Any) -> str:
    if cell.step is not None:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if cell.field.type == "bool":
        return str(value)
    if named(cell.field.type).kind == "decimal":
        return shown_decimal(str(value))
    return str(value) if named(cell.field.type).is_number else parse_where.quoted(str(value))
