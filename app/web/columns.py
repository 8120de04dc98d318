"""Columns of tables of rows: which there are, what they are called, how their values are aligned; and how a page names a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.query.sql.rows import Style
from app.types import named
from app.web.view import amount

WIDE = 8  # columns that are shown unless the user chooses others
EXACT = Style(numbers_as_strings=True, ids_as_strings=True, plain=True)  # JSON numbers would lose digits of decimals


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of the table.  step: the reference that it shows, by code and name."""

    name: str
    field: Field
    step: Navigation | None

    @property
    def is_number(self) -> bool:
        return self.step is None and self.field.name != "id" and named(self.field.type).is_number

    @property
    def kind(self) -> str:
        """What it holds, in words."""
        if self.step is not None:
            return self.step.target
        return "a choice" if self.field.allowed else named(self.field.type).label

    @property
    def is_choice(self) -> bool:
        """Whether it has few values: an enum, true or false, or a text that has a default and names no row."""
        field = self.field
        is_word = field.type == "text" and field.has_default and not field.unique and self.step is None
        return field.allowed is not None or field.type == "bool" or is_word

    @property
    def is_day(self) -> bool:
        return self.field.type in ("date", "timestamptz") and self.name != "updatedAt"

    @property
    def is_grouped(self) -> bool:
        """Whether rows can be counted by it."""
        is_text = self.field.type in ("text", "date") and not self.field.unique
        return self.step is not None or self.is_choice or is_text


def columns(catalog: Catalog, entity: Entity) -> Iterator[Cell]:
    """All columns, with references in place of the fields that hold their ids."""
    for field in entity.fields.values():
        step = entity.navigations.get(field.reference) if field.reference else None
        yield Cell(step.name if step else field.name, field, step)


def usual(entity: Entity, cells: Sequence[Cell]) -> list[Cell]:
    """The columns shown by default, WIDE at most: what names a row first, the row that it belongs to, or at the end the id."""
    code, owner = entity.identifying_field, entity.parent_navigation
    rest = [cell for cell in cells if cell.field.name not in ("id", "updatedAt") and cell.field is not code]
    rest.sort(key=lambda cell: cell.name != owner)
    if code is None:
        return [*rest[: WIDE - 1], *(cell for cell in cells if cell.field.name == "id")]
    return ([cell for cell in cells if cell.field is code] + rest)[:WIDE]


def leading(entity: Entity, chosen: Sequence[Cell]) -> Cell:
    """The column that leads to the row's page: the one that names the row, or else its id, or the first one."""
    code = entity.identifying_field or entity.fields["id"]
    return next((cell for cell in chosen if cell.field is code), chosen[0])


def places(cells: Iterable[Cell], rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The digits behind the point that each column of numbers has at most, by which its numbers stand below one another."""
    return {cell.name: most_places(row[cell.name] for row in rows) for cell in cells if cell.is_number}


def most_places(numbers: Iterable[Any]) -> int:
    """The digits behind the point that numbers have at most; None is none."""
    return max((len(amount(str(each)).partition(".")[2]) for each in numbers if each is not None), default=0)


def word(catalog: Catalog, cell: Cell) -> tuple[str, str]:
    """The kind of a column, for the completion of conditions; and how a lookup of a reference begins."""
    if cell.step is None:
        type = named(cell.field.type)
        return "number" if type.is_number else type.kind, ""
    code = catalog[cell.step.target].identifying_field
    return "reference", f"'{code.name}:" if code else ""


def naming(entity: Entity) -> tuple[Field, ...]:
    """The fields by which pages show a row: id, identifying field, name."""
    # the second one: in the past no unique field is required
    named = entity.identifying_field or next(iter(entity.alternate_keys), None)
    wanted = (entity.fields["id"], named, entity.fields.get("name"))
    return tuple({field.name: field for field in wanted if field}.values())


def in_words(cell: Cell, value: Any) -> str:
    """A value by which rows are counted, in words where it has no letters of its own."""
    if value is None:
        return "none"
    if cell.field.type == "bool":
        return "yes" if value in (True, "true") else "no"
    return str(value) or "empty text"


def name_of(entity: Entity, row: Mapping[str, Any]) -> tuple[str, str]:
    """(code, name) of a row: its id where it has no code; "" without a name."""
    field = entity.identifying_field
    return str(row[field.name] if field else row["id"]), str(row.get("name") or "")
