"""The shape of an export: which values each row holds, under the names of the import document; a reference is a code.

A RecordShape nests, as an import document does: children stand inside their parents.  A LineShape is flat, with one column for each
field: an expanded reference adds columns, an expanded collection gives one line for each of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.errors import QueryError
from app.query.check.query import Query
from app.query.check.tree import Column, Type

NESTED = 1_000  # row numbers of child records begin here, above those of the lambdas in a filter


@dataclass(frozen=True, slots=True)
class ExportField:
    """One value of a record or line.  `lookup` is the kind of a reference's lookup: `code` for code:X.

    own: the foreign key of a reference whose row may have had no code, as in the past; is_spare: an id that is written only where
    the record's identifying field does not name its row.
    """

    name: str
    column: Column
    lookup: str | None = None
    outer: bool = False  # from an outer join: null where there is no row
    own: Column | None = None
    is_spare: bool = False

    @property
    def type(self) -> Type:
        return self.column.type

    @property
    def nullable(self) -> bool:
        return self.outer or self.column.nullable

    @property
    def is_id(self) -> bool:
        return self.lookup is None and self.column.field.name == "id"


@dataclass(frozen=True, slots=True)
class RecordShape:
    """The fields and children of an entity's records.

    name: of one record, `variant` in the collection `variants`; row: the number of the entity's row in expressions.
    """

    name: str
    entity: Entity
    row: int
    fields: tuple[ExportField, ...]
    children: tuple[ChildShape, ...] = ()

    def without_ids(self) -> RecordShape:
        """Return the shape without the ids of records."""
        children = tuple(replace(child, record=child.record.without_ids()) for child in self.children)
        return replace(self, fields=tuple(field for field in self.fields if not field.is_id), children=children)


@dataclass(frozen=True, slots=True)
class ChildShape:
    """A collection inside a record."""

    step: Navigation
    record: RecordShape


@dataclass(frozen=True, slots=True)
class RelatedShape:
    """A collection beside the exported one: the rows that these navigations reach from it."""

    steps: tuple[Navigation, ...]
    record: RecordShape


@dataclass(frozen=True, slots=True)
class LineShape:
    """The columns of flat lines.  `collection` is the expanded one, if any: its rows are the lines, its fields are columns too."""

    fields: tuple[ExportField, ...]
    collection: Navigation | None = None


def record_shape(query: Query) -> RecordShape:
    """Return the shape of import records: with all fields and children, or with those of $select and $expand if either is given."""
    entity, numbers = query.entity, count(NESTED)
    whole = query.select is None and not query.steps
    steps = entity.nested() if whole else [step for step in query.steps if step in entity.nested()]
    children = (_child_shape(query.catalog, step, numbers, (entity.name,)) for step in steps)
    shape = RecordShape(entity.singular, entity, 0, _record_fields(query.catalog, entity, query.select, 0), tuple(children))
    return shape if query.ids else shape.without_ids()


def template_shape(query: Query) -> RecordShape:
    """Return the shape of a template's rows: all selected fields, `category.code` for an expanded reference, and collections."""
    catalog, entity, numbers = query.catalog, query.entity, count(NESTED)
    selected = tuple(entity.fields.values()) if query.select is None else query.select
    fields = list(_export_fields(catalog, entity, selected, 0))
    for step in query.steps:
        if not step.many:
            target = catalog[step.target]
            fields += _export_fields(catalog, target, tuple(target.fields.values()), 0, (step,), f"{step.name}.")
    whole = query.select is None and not query.steps
    steps = tuple(entity.children) if whole else tuple(step for step in query.steps if step.many)
    children = (_child_shape(catalog, step, numbers, (entity.name,)) for step in steps)
    return RecordShape(entity.singular, entity, 0, tuple(fields), tuple(children))


def steps_beside(query: Query) -> list[Navigation]:
    """Return the expanded navigations whose rows stand beside the records, not inside them."""
    return [step for step in query.steps if step not in query.entity.nested()]


def related_shapes(query: Query) -> tuple[RelatedShape, ...]:
    """Return the shapes of the expanded collections that are not children: one for each entity."""
    steps: dict[str, list[Navigation]] = {}
    for step in steps_beside(query):
        steps.setdefault(step.target, []).append(step)
    shapes = (_related_shape(query.catalog, query.catalog[name], tuple(each)) for name, each in steps.items())
    return tuple(shape if query.ids else replace(shape, record=shape.record.without_ids()) for shape in shapes)


def line_shape(query: Query) -> LineShape:
    """Return the columns of the query's lines.  Raises QueryError if two collections are expanded: their rows would multiply."""
    catalog, entity = query.catalog, query.entity
    selected = tuple(entity.fields.values()) if query.select is None else query.select
    fields = list(_export_fields(catalog, entity, selected, 0))
    collection: Navigation | None = None
    for step in query.steps:
        target = catalog[step.target]
        if not step.many:
            fields += _export_fields(catalog, target, tuple(target.fields.values()), 0, (step,), f"{step.name}.")
            continue
        if collection is not None:
            message = f"expected at most one expanded collection in a flat format, got {collection.name} and {step.name}"
            raise QueryError(message, target="$expand")
        collection = step
        columns = _export_fields(catalog, target, _fields_except(target, step.field), NESTED, (), f"{step.name}.")
        fields += (replace(column, outer=True) for column in columns)
    return LineShape(tuple(field for field in fields if query.ids or not field.is_id), collection)


def _child_shape(catalog: Catalog, step: Navigation, numbers: Iterator[int], above: tuple[str, ...]) -> ChildShape:
    """Return a child collection with its own children."""
    entity, row = catalog[step.target], next(numbers)
    children = tuple(_child_shape(catalog, each, numbers, (*above, step.target)) for each in entity.nested(above))
    fields = _record_fields(catalog, entity, None, row, parent=step.field)
    return ChildShape(step, RecordShape(step.singular, entity, row, fields, children))


def _related_shape(catalog: Catalog, entity: Entity, steps: tuple[Navigation, ...]) -> RelatedShape:
    fields = _record_fields(catalog, entity, None, NESTED)
    return RelatedShape(steps, RecordShape(entity.singular, entity, NESTED, fields))


def _record_fields(
    catalog: Catalog, entity: Entity, select: Sequence[Field] | None, row: int, parent: str | None = None
) -> tuple[ExportField, ...]:
    """Return the fields of a record, the identifying one first: a unique field with a spare id, or the id if there is none."""
    fields, id = list(_fields_except(entity, "id", "updatedAt", parent) if select is None else select), entity.fields["id"]
    key = next((field for field in fields if field.identifies), id)
    first, *others = _export_fields(catalog, entity, [key, *(field for field in fields if field is not key)], row)
    spare = () if id in (key, *fields) else (ExportField("id", Column(0, id.type, (), id, row), is_spare=True),)
    return (first, *spare, *others)


def _fields_except(entity: Entity, *names: str | None) -> tuple[Field, ...]:
    return tuple(field for field in entity.fields.values() if field.name not in names)


def _export_fields(
    catalog: Catalog, entity: Entity, fields: Sequence[Field], row: int, path: tuple[Navigation, ...] = (), prefix: str = ""
) -> Iterator[ExportField]:
    """Yield the fields of the row at the end of `path`.  A reference gets its navigation's name and identifying field."""
    for field in fields:
        step = entity.navigations.get(field.reference) if field.reference else None
        if step is None:
            yield ExportField(prefix + field.name, Column(0, field.type, path, field, row))
            continue
        key = catalog[step.target].identifying_field
        if key is None:
            yield ExportField(prefix + step.name, Column(0, field.type, path, field, row), "id")
        else:
            own = None if key.required else Column(0, field.type, path, field, row)
            yield ExportField(prefix + step.name, Column(0, key.type, (*path, step), key, row), key.name, own=own)
