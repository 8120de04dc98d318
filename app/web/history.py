"""The history of a row: its versions, newest first, with old and new values side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from app.changes.history import read_versions
from app.changes.rows import read_id
from app.database.catalog import Entity
from app.errors import ServiceError, UnknownEntity
from app.logs import count_rows
from app.web.actors import display_names
from app.web.changed_rows import FieldChange, compared, references
from app.web.page import PageRequest
from app.web.row_names import row_names

PAGE = 20  # versions


@dataclass(frozen=True, slots=True)
class Version:
    """A change of a row with its fields."""

    id: int
    operation: str
    at: str
    actor: str
    change_set: str | None
    fields: tuple[FieldChange, ...]


async def show(page: PageRequest) -> web.StreamResponse:
    """The versions of a row, newest first."""
    name, row_id = page.path_variables["entity"], page.path_variables["row"]
    catalog = page.database.catalog
    if name not in catalog:
        raise UnknownEntity(name, catalog.entities)
    if (id := read_id(row_id)) is None:
        raise ServiceError("not_found", f"no such row: {row_id}")
    entity, row, offset = catalog[name], (name, id), page.offset()
    versions, more = await find_versions(page, entity, row[1], PAGE, offset)
    if not versions and not offset:
        raise unknown_row(entity, row[1])
    names = await row_names(page, [row, *references(field for version in versions for field in version.fields)])
    newest = versions[0] if versions and not offset else await find_newest(page, entity, row[1])
    return page.render(
        "history.html",
        entity=name,
        row_id=row[1],
        versions=versions,
        names=names if row in names else {**names, row: last_name(entity, versions, row[1])},
        exists=newest.operation != "delete" if newest else row in names,
        newest=newest.id if newest else None,
        actors=await display_names(page, (each.actor for each in versions)),
        more=more,
        offset=offset,
        page_size=PAGE,
    )


def unknown_row(entity: Entity, id: int) -> ServiceError:
    return ServiceError("not_found", f"{entity.name} has no row {id}, and the log has no changes of it")


async def find_newest(page: PageRequest, entity: Entity, id: int) -> Version | None:
    """The newest version of a row; None if the log has no changes of it."""
    versions, _ = await find_versions(page, entity, id, 1, 0)
    return versions[0] if versions else None


async def find_versions(page: PageRequest, entity: Entity, id: int, limit: int, offset: int) -> tuple[list[Version], bool]:
    """Versions of a row, newest first, and whether there are more."""
    async with page.database.session(page.company) as connection:
        found, more = await read_versions(connection, page.company, entity, id, limit, offset)
    count_rows(len(found))
    # numbers stay text, because a decimal may have more digits than a float
    return [_version(entity, json.loads(each, parse_float=str, parse_int=str)) for each in found], more


def last_name(entity: Entity, versions: Iterable[Version], id: int) -> tuple[str, str]:
    """Code and name of a row that no longer exists, from its newest version that has them; without one, the id."""
    code = entity.identifying_field.name if entity.identifying_field else "id"
    for version in versions:
        values = {field.name: field.before or field.after for field in version.fields}
        if values.get(code):
            return str(values[code]), str(values.get("name") or "")
    return str(id), ""


def _version(entity: Entity, document: Mapping[str, Any]) -> Version:
    fields = compared(entity, document)
    return Version(
        int(document["version"]), document["operation"], document["at"], document["actor"], document["changeSetId"], fields
    )
