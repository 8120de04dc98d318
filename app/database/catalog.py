"""Entities as the database describes them.

The registry in the database (`bds.entities`, `bds.fields`, `bds.navigations`) is the only description of the model.  This module
reads it into frozen values that are replaced as a whole when the registry changes, so that a request sees one consistent model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from app import types


@dataclass(frozen=True, slots=True)
class Field:
    """One scalar field of an entity: a column of its view."""

    name: str  # in every API and in the view, camelCase
    column: str  # in the table, snake_case
    type: types.Name
    precision: int | None  # digits of a numeric, else None
    scale: int | None
    max_length: int | None  # characters of a bounded text, else None
    required: bool  # never null
    has_default: bool
    generated: bool  # computed by the database, never written
    unique: bool  # within the company, hence a lookup kind
    reference: str | None  # the navigation whose foreign key this is: "category" for categoryId
    description: str | None
    stored: str | None = None  # the type of its column, of bds_impl.types
    allowed: tuple[str, ...] | None = None  # the values of an enum
    identifies: bool | None = None  # whether it names rows: unique, never null, at least now, and not a reference
    ordinal: int = 0  # of its column in the table

    def __post_init__(self) -> None:
        if self.identifies is None:
            # the value of a reference is an id, which another company does not have
            object.__setattr__(self, "identifies", self.unique and self.required and self.reference is None)
        if self.allowed is not None:
            object.__setattr__(self, "allowed", tuple(self.allowed))

    @classmethod
    def computed(cls, name: str, type: types.Name, *, required: bool = True, reference: str | None = None) -> Field:
        """A column of a result as a field, though no registered table has it."""
        return cls(
            name=name,
            column=name,
            type=type,
            precision=None,
            scale=None,
            max_length=None,
            required=required,
            has_default=False,
            generated=True,
            unique=False,
            reference=reference,
            description=None,
        )


@dataclass(frozen=True, slots=True)
class Navigation:
    """A relation from a row to other rows: `products.category` (one) or `categories.products` (many)."""

    name: str
    many: bool
    target: str  # name of the entity it leads to
    field: str  # the foreign key's API name: on this entity if one, on the target if many
    partner: str  # the same relation seen from the other side
    child: bool  # many only: the rows belong to this one (`invoices.items`)
    required: bool  # one only: the reference is never null

    @property
    def singular(self) -> str:
        """The name of one record of a collection: variants -> variant, as SQL's singular_of does."""
        if self.name.endswith("ies"):
            return self.name[:-3] + "y"
        return self.name[:-1] if self.name.endswith("s") and not self.name.endswith("ss") else self.name


@dataclass(frozen=True, slots=True)
class Entity:
    """One entity set: `select ... from api."<name>"`, whose columns are the fields' API names and `company_id`."""

    name: str
    singular: str  # name of its type: "product"
    table: str  # schema-qualified and quoted where needed, for people
    parent: str | None  # of a child entity: its parent's name
    parent_navigation: str | None  # and the navigation to it: "invoice" of invoiceItems
    collection: str | None  # and its name inside the parent: "items"
    fields: Mapping[str, Field]
    navigations: Mapping[str, Navigation]
    description: str | None

    def __repr__(self) -> str:
        return f"<Entity {self.name}>"

    @property
    def children(self) -> Iterable[Navigation]:
        """The child collections, nested inside a row in /c, import and export."""
        return (n for n in self.navigations.values() if n.child)

    def nested(self, above: Sequence[str] = ()) -> list[Navigation]:
        """The child collections inside a record within records of the entities `above`, whose rows are records of their own."""
        return [step for step in self.children if step.target not in (*above, self.name)]

    @property
    def alternate_keys(self) -> Iterable[Field]:
        """Fields other than the id that identify a row of one company."""
        return (f for f in self.fields.values() if f.unique)

    @property
    def identifying_field(self) -> Field | None:
        """The field by which other records refer to a row: the first that identifies, None if only the id does."""
        return next((f for f in self.fields.values() if f.identifies), None)


@dataclass(frozen=True, slots=True)
class Catalog:
    """All entities, in the order of registration."""

    entities: Mapping[str, Entity]
    version: str  # a hash of the content
    is_past: bool = False  # of past states: rows are read as of the version that the session has named

    def __contains__(self, name: str) -> bool:
        return name in self.entities

    def __getitem__(self, name: str) -> Entity:
        return self.entities[name]

    def collections_of(self, entity: str) -> frozenset[str]:
        """The names of the child collections in records of an entity, at any depth."""
        found, names = {entity}, set[str]()
        inside = [entity]
        while inside:
            for step in self[inside.pop()].children:
                names.add(step.name)
                if step.target not in found:
                    found.add(step.target)
                    inside.append(step.target)
        return frozenset(names)

    @classmethod
    def from_rows(
        cls, entities: Sequence[dict[str, Any]], fields: Sequence[dict[str, Any]], navigations: Sequence[dict[str, Any]]
    ) -> Catalog:
        """Make a catalog from the row of MODEL."""
        version = hashlib.sha256(repr((entities, fields, navigations)).encode()).hexdigest()[:16]
        return cls(
            {
                row["name"]: Entity(
                    **row,
                    parent=_parent(row, navigations),
                    fields={f["name"]: Field(**_without_entity(f)) for f in fields if f["entity"] == row["name"]},
                    navigations={n["name"]: Navigation(**_without_entity(n)) for n in navigations if n["entity"] == row["name"]},
                )
                for row in entities
            },
            version,
        )


def _parent(entity: dict[str, Any], navigations: Sequence[dict[str, Any]]) -> str | None:
    up = (entity["name"], entity["parent_navigation"])
    return next((n["target"] for n in navigations if (n["entity"], n["name"]) == up), None)


def _without_entity(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "entity"}


ENTITIES: LiteralString = """
    select name, singular, table_name::text as "table", parent_navigation, collection,
        obj_description(table_name, 'pg_class') as description
    from bds.entities order by ordinal
"""
FIELDS: LiteralString = """
    select f.entity, f.name, f.column_name as "column", f.type, f.precision, f.scale, f.max_length, f.required, f.has_default,
        f.generated, f.is_unique as "unique", f.reference, f.stored, f.allowed, f.ordinal,
        col_description(e.table_name, f.ordinal) as description
    from bds.fields f join bds.entities e on e.name = f.entity
    order by f.entity, f.ordinal
"""
NAVIGATIONS: LiteralString = """
    select entity, name, many, target, field, partner, child, required from bds.navigations order by entity, ordinal
"""
# One statement, hence one snapshot: a concurrent change is read as a whole or not at all.
MODEL: LiteralString = f"""
    select
        (select coalesce(json_agg(e), '[]') from ({ENTITIES}) as e),
        (select coalesce(json_agg(f), '[]') from ({FIELDS}) as f),
        (select coalesce(json_agg(n), '[]') from ({NAVIGATIONS}) as n)
"""
