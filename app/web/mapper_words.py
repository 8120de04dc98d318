"""The words of the mapper language that the editor lists, completes and inserts: entities with their fields, settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from app.database.catalog import Catalog, Entity, Field
from app.types import named

# name, value, meaning
SETTINGS = (
    ("@atomic", "true", "all or nothing"),
    ("@mode", "merge", "how children of a record are treated"),
    ("@language", "de", "how numbers and dates are written"),
    ("@skip", "2", "CSV: lines before the header"),
    ("@encoding", "windows-1252", "CSV: the encoding of the file"),
    ("@delimiter", ";", "CSV: between columns"),
    ("@quote", "'", "CSV: around a value"),
    ("@header", "false", "CSV, Excel: columns are numbered"),
    ("@sheet", "Sheet1", "Excel: the worksheet"),
    ("@namespace[p]", "urn:example", "XML: the namespace of a prefix"),
)


@dataclass(frozen=True, slots=True)
class Word:
    """A field or a child block.  written: how it begins in a mapper; child: the entity of a child block."""

    name: str
    written: str
    about: str
    child: str | None = None


def entities(catalog: Catalog) -> dict[str, list[Word]]:
    """The words of each entity; references are written with the lookup that is used most."""
    return {entity.name: list(_words(catalog, entity)) for entity in catalog.entities.values()}


def _words(catalog: Catalog, entity: Entity) -> Iterator[Word]:
    own = entity.identifying_field
    yield Word("id", f"id[{own.name}]" if own else "id", "names the row to change")
    for field in entity.fields.values():
        if field.name in ("id", "updatedAt") or field.generated:
            continue
        step = entity.navigations.get(field.reference or "")
        if step is None:
            yield Word(field.name, field.name, ", ".join(_about(field)))
        elif step.name != entity.parent_navigation:
            code = catalog[step.target].identifying_field
            yield Word(step.name, f"{step.name}[{code.name}]" if code else step.name, f"a row of {step.target}")
    for step in entity.children:
        yield Word(step.name, step.name, "block of children", step.target)


def _about(field: Field) -> Iterator[str]:
    yield named(field.type).label
    if field.required and not field.has_default:
        yield "required"
    if field.unique:
        yield "unique"
