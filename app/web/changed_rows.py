"""Rows that differ, for pages that show old and new values beside each other: histories, differences, previews of undos."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.database.catalog import Entity
from app.export.row_formats import shown_decimal
from app.types import named
from app.web.row_names import Row


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field's value before and after a change."""

    name: str
    before: Any
    after: Any
    refers_to: str | None  # entity of the row that the value refers to


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row before and after."""

    row: Row
    operation: str
    fields: tuple[FieldChange, ...]


def changed_row(entity: Entity, id: int, record: Mapping[str, Any]) -> ChangedRow:
    """The row of a record with `operation`, `old` and `new`."""
    return ChangedRow((entity.name, id), record["operation"], compared(entity, record))


def compared(entity: Entity, record: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    """The fields that an update changed; of a create or delete, all that have a value.  Numbers of the record are texts."""
    old, new = record["old"] or {}, record["new"] or {}
    fields = [_field_change(entity, name, old.get(name), new.get(name)) for name in (new or old)]
    if record["operation"] != "update":
        fields = [each for each in fields if each.name != "updatedAt" and (each.before, each.after) != (None, None)]
    return tuple(fields)


def references(fields: Iterable[FieldChange]) -> Iterator[Row]:
    """The rows that values of the fields refer to."""
    for field in fields:
        if field.refers_to is not None:
            yield from ((field.refers_to, int(value)) for value in (field.before, field.after) if value is not None)


def rows_within(rows: Iterable[ChangedRow]) -> Iterator[Row]:
    """The rows themselves and those to which their values refer."""
    for each in rows:
        yield each.row
        yield from references(each.fields)


def _field_change(entity: Entity, name: str, before: Any, after: Any) -> FieldChange:
    field = entity.fields.get(name)
    if field and named(field.type).kind == "decimal":
        before, after = (shown_decimal(value) if isinstance(value, str) else value for value in (before, after))
    step = entity.navigations.get(field.reference) if field and field.reference else None
    return FieldChange(name, before, after, step.target if step else None)
