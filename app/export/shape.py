"""What an export holds of each row, in the names of the import document: a reference is the code that it points to.

Records nest, as in an import document: children inside their parents.  Lines are flat: one column a field, what was expanded in
further columns, and for a collection that was expanded one line for each of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.errors import QueryError
from app.query.query import Query
from app.query.tree import Column, Type

NESTED = 1_000  # the numbers of the rows inside others begin here: lambdas of a filter have those before


@dataclass(frozen=True, slots=True)
class Member:
    """One value of a row.  `lookup` is the kind of a reference's lookup: code of code:X."""

    name: str
    column: Column
    lookup: str | None = None
    outer: bool = False  # of a row that may be missing

    @property
    def type(self) -> Type:
        return self.column.type

    @property
    def nullable(self) -> bool:
        return self.outer or self.column.nullable


@dataclass(frozen=True, slots=True)
class Record:
    """What is written of the rows of an entity; `row` is their number in expressions."""

    entity: Entity
    row: int
    members: tuple[Member, ...]
    children: tuple[Child, ...] = ()


@dataclass(frozen=True, slots=True)
class Child:
    """A collection inside a record."""

    step: Navigation
    record: Record


@dataclass(frozen=True, slots=True)
class Related:
    """A collection beside the exported one: rows to which these navigations lead from it."""

    steps: tuple[Navigation, ...]
    record: Record


@dataclass(frozen=True, slots=True)
class Lines:
    """Flat rows.  `inner` is the collection that has a line for each of its rows, `members` are the columns of both."""

    members: tuple[Member, ...]
    inner: Navigation | None = None


def identifying(entity: Entity) -> Field | None:
    """The field by which others refer to a row: unique and never null; None if that is the id alone."""
    return next((field for field in entity.fields.values() if field.unique and field.required), None)


def plan_record(query: Query) -> Record:
    """Records of the query's rows.  Without $select and $expand they are whole: every child is inside."""
    entity, numbers = query.entity, count(NESTED)
    whole = query.select is None and not query.expand
    steps = tuple(entity.children) if whole else tuple(step for step in query.expand if step.child)
    children = (_child(query.catalog, step, numbers, (entity.name,)) for step in steps)
    return Record(entity, 0, _identified(query.catalog, entity, query.select, 0), tuple(children))


def plan_values(query: Query) -> Record:
    """Records with every field, whatever was expanded inside: a row's fields by the names category.code, or an array of rows."""
    catalog, entity, numbers = query.catalog, query.entity, count(NESTED)
    fields = tuple(entity.fields.values()) if query.select is None else query.select
    members = list(_members(catalog, entity, fields, 0))
    for step in query.expand:
        if not step.many:
            target = catalog[step.target]
            members += _members(catalog, target, tuple(target.fields.values()), 0, (step,), f"{step.name}.")
    whole = query.select is None and not query.expand
    steps = tuple(entity.children) if whole else tuple(step for step in query.expand if step.many)
    return Record(entity, 0, tuple(members), tuple(_child(catalog, step, numbers, (entity.name,)) for step in steps))


def plan_related(query: Query) -> tuple[Related, ...]:
    """The collections of the rows, not children, that were expanded: one for each entity."""
    steps: dict[str, list[Navigation]] = {}
    for step in query.expand:
        if not step.child:
            steps.setdefault(step.target, []).append(step)
    return tuple(
        Related(tuple(each), Record(query.catalog[name], NESTED, _identified(query.catalog, query.catalog[name], None, NESTED)))
        for name, each in steps.items()
    )


def plan_lines(query: Query) -> Lines:
    """Lines of the query's rows.  Raises QueryError if two collections are expanded: their rows would be multiplied."""
    catalog, entity = query.catalog, query.entity
    fields = tuple(entity.fields.values()) if query.select is None else query.select
    members = list(_members(catalog, entity, fields, 0))
    inner: Navigation | None = None
    for step in query.expand:
        target = catalog[step.target]
        if not step.many:
            members += _members(catalog, target, tuple(target.fields.values()), 0, (step,), f"{step.name}.")
            continue
        if inner is not None:
            message = f"{inner.name} and {step.name}: a flat format takes one collection, whose rows are its lines"
            raise QueryError(message, target="$expand")
        inner = step
        columns = _members(catalog, target, _without(target, step.field), NESTED, (), f"{step.name}.")
        members += (replace(column, outer=True) for column in columns)
    return Lines(tuple(members), inner)


def _child(catalog: Catalog, step: Navigation, numbers: Iterator[int], above: tuple[str, ...]) -> Child:
    """A child collection and those inside it, but for an entity that is inside itself."""
    entity, row = catalog[step.target], next(numbers)
    inside = (each for each in entity.children if each.target not in above) if step.target not in above else ()
    children = tuple(_child(catalog, each, numbers, (*above, step.target)) for each in inside)
    return Child(step, Record(entity, row, _identified(catalog, entity, None, row, step.field), children))


def _identified(
    catalog: Catalog, entity: Entity, select: Sequence[Field] | None, row: int, parent: str | None = None
) -> tuple[Member, ...]:
    """The members of a record, that which tells it from others first; a record without a unique field carries its id."""
    fields = list(_without(entity, "id", "updatedAt", parent) if select is None else select)
    key = next((field for field in fields if field.unique and field.required), entity.fields["id"])
    return tuple(_members(catalog, entity, [key, *(field for field in fields if field is not key)], row))


def _without(entity: Entity, *names: str | None) -> tuple[Field, ...]:
    return tuple(field for field in entity.fields.values() if field.name not in names)


def _members(
    catalog: Catalog, entity: Entity, fields: Sequence[Field], row: int, way: tuple[Navigation, ...] = (), prefix: str = ""
) -> Iterator[Member]:
    for field in fields:
        step = entity.navigations.get(field.reference) if field.reference else None
        if step is None:
            yield Member(prefix + field.name, Column(0, field.type, way, field, row))
            continue
        key = identifying(catalog[step.target])
        if key is None:
            yield Member(prefix + step.name, Column(0, field.type, way, field, row), "id")
        else:
            yield Member(prefix + step.name, Column(0, key.type, (*way, step), key, row), key.name)
