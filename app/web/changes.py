"""The change log by change sets or change by change, with filters; and the history of a row, old and new values side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from aiohttp import web
from psycopg.rows import dict_row

from app.changes.read import CHANGES, ID, list_query, read_changes
from app.database.catalog import Entity
from app.errors import ServiceError
from app.export.row_formats import shown_decimal
from app.query import parse_where
from app.query.literals import INT8
from app.web.actors import display_names
from app.web.change_sets import read_groups
from app.web.forms import Form
from app.web.page import PageRequest
from app.web.row_names import row_names, rows_named

PAGE = 50  # changes
VERSIONS = 20  # on a page of a row's history
OPERATIONS = ("create", "update", "delete")
FIELDS = ("entity", "operation", "row", "changeSet", "filter")
DETAILS = """
    select c.id, c.actor, c.columns
    from bds.changes c
    where c.company_id = %s and c.id = any (%s) and c.created_at between %s and %s
"""
HISTORY = """
    select h.version, h.operation, h.at, h.actor, h.change_set_id, h.row::text, h.old::text
    from bds.row_history(%s, %s, %s) h
    order by h.version desc
    limit %s offset %s
"""
CURSOR = re.compile(r"[1-9][0-9]{0,17}")


async def show(page: PageRequest) -> web.StreamResponse:
    """The log, newest first, by change sets; with a filter or on demand change by change; or the form with its problems."""
    form = Form({name: [page.query[name]] for name in FIELDS if page.query.get(name, "").strip()})
    if page.query.get("view") != "single" and not form.values:
        return await show_sets(page, form)
    after, before = (read_cursor(page, name) for name in ("after", "before"))
    changes: list[dict[str, Any]] = []
    more, position = False, 0
    filter = await build_filter(page, form)
    if not form.problems:
        changes, more, position = await read_page(page, filter, after, before)
    is_newest = after is None and before is None and not form.problems
    return page.render(
        "changes.html",
        form.status,
        form=form,
        filter=filter,
        entities=list(page.database.catalog.entities),
        operations=OPERATIONS,
        groups=None,
        changes=changes,
        names=await row_names(page, ((each["entity"], each["rowId"]) for each in changes)),
        # a page that was reached by "Newer" has an older one, and the reverse
        older=changes[-1]["id"] if changes and (more if after is None else True) else None,
        newer=changes[0]["id"] if changes and (more if after is not None else before is not None) else None,
        filters={name: form[name] for name in FIELDS},
        stream=f"/c/{page.company}/changes/stream?{urlencode({'filter': filter})}" if is_newest else None,
        position=position,
        actors=await display_names(page, (each["actor"] for each in changes)),
    )


async def show_sets(page: PageRequest, form: Form) -> web.StreamResponse:
    """The log by change sets."""
    before = read_cursor(page, "before")
    groups, older, position = await read_groups(page, before)
    return page.render(
        "changes.html",
        form=form,
        filter="",
        entities=list(page.database.catalog.entities),
        operations=OPERATIONS,
        groups=groups,
        changes=[],
        names=await row_names(page, (group.row for group in groups if group.size == 1)),
        older=older,
        newer=None,
        is_newest=before is None,
        filters=dict.fromkeys(FIELDS, ""),
        stream=f"/c/{page.company}/changes/stream?filter=" if before is None else None,
        position=position,
        actors=await display_names(page, (group.actor for group in groups)),
    )


async def build_filter(page: PageRequest, form: Form) -> str:
    """Return the form's fields as a filter of /c/{company}/changes; adds problems to the form."""
    parts = []
    if form["entity"]:
        if form["entity"] not in page.database.catalog:
            form.add_problem("entity", f"No such entity: {form['entity']}")
        parts.append(f"entity = {parse_where.quoted(form['entity'])}")
    if form["operation"]:
        if form["operation"] not in OPERATIONS:
            form.add_problem("operation", f"No such operation: {form['operation']}")
        parts.append(f"operation = {parse_where.quoted(form['operation'])}")
    if form["row"]:
        parts.append(await row_condition(page, form))
    if form["changeSet"]:
        try:
            parts.append(f"changeSetId = '{UUID(form['changeSet'].strip())}'")
        except ValueError:
            form.add_problem("changeSet", "Enter the id of a change set: a UUID")
    if form["filter"]:
        with form.collect_problems("filter"):
            list_query(page.database.catalog, CHANGES, [("filter", form["filter"])])
        parts.append(f"({form['filter']})")
    return " and ".join(parts)


async def row_condition(page: PageRequest, form: Form) -> str:
    """The condition that a change is of the row with an id or a code; adds a problem to the form if there is no such row."""
    text, entity = form["row"].strip(), form["entity"] if form["entity"] in page.database.catalog else None
    meant = [f"(entity = {parse_where.quoted(name)} and rowId = {id})" for name, id in await rows_named(page, text, entity)]
    if ID.fullmatch(text) and int(text) in INT8:
        meant.append(f"rowId = {text}")
    if not meant:
        form.add_problem("row", f"No row of {entity or page.company} has the code {text}; a deleted row is found by its id")
    return f"({' or '.join(meant)})"


async def read_page(
    page: PageRequest, filter: str, after: int | None, before: int | None
) -> tuple[list[dict[str, Any]], bool, int]:
    """Return a page of changes, newest first, with actors and columns; whether there are more in its direction; the last change."""
    bound = f"id > {after}" if after is not None else f"id < {before}" if before is not None else ""
    both = " and ".join(part for part in (filter, bound) if part)
    options = [("filter", both), ("sort", "id" if after is not None else "-id"), ("limit", str(PAGE))]
    answer = await read_changes(page.database, page.company, options)
    result = json.loads(answer.body or b"{}")
    changes = result["data"] if after is None else result["data"][::-1]
    if not changes:
        return changes, result["hasMore"], int(answer.position)
    times = sorted(each["createdAt"] for each in changes)
    async with page.database.session(page.company) as connection:
        cursor = await connection.execute(DETAILS, (page.company, [each["id"] for each in changes], times[0], times[-1]))
        details = {id: (actor, columns) for id, actor, columns in await cursor.fetchall()}
    for each in changes:
        each["rowId"] = int(each["rowId"])
        each["actor"], each["columns"] = details.get(each["id"], ("", []))
    return changes, result["hasMore"], int(answer.position)


def read_cursor(page: PageRequest, name: str) -> int | None:
    """Return the id of the change that a page begins after or before."""
    text = page.query.get(name)
    if not text:
        return None
    if not CURSOR.fullmatch(text):
        raise ServiceError("malformed_request", f"{name}: expected the id of a change, got {text!r}", target=name)
    return int(text)


# A row's history ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field's value before and after a change."""

    name: str
    before: Any
    after: Any
    refers_to: str | None  # entity of the row that the value refers to


@dataclass(frozen=True, slots=True)
class Version:
    """A change of a row with its fields."""

    id: int
    operation: str
    at: datetime
    actor: str
    change_set: UUID | None
    fields: tuple[FieldChange, ...]


async def history(page: PageRequest) -> web.StreamResponse:
    """The versions of a row, newest first."""
    name, row_id = page.path_variables["entity"], page.path_variables["row"]
    catalog = page.database.catalog
    if name not in catalog:
        raise ServiceError("not_found", f"no such entity: {name}")
    if not ID.fullmatch(row_id) or int(row_id) not in INT8:
        raise ServiceError("not_found", f"no such row: {row_id}")
    offset = page.offset()
    found = await read_versions(page, name, int(row_id), VERSIONS + 1, offset)
    if not found and not offset:
        raise ServiceError("not_found", f"{name} has no row {row_id}, and the log has no changes of it")
    versions, row = found[:VERSIONS], (name, int(row_id))
    names = await row_names(page, [row, *references(versions)])
    newest = found[0] if found and not offset else next(iter(await read_versions(page, name, int(row_id), 1, 0)), None)
    return page.render(
        "history.html",
        entity=name,
        row_id=row[1],
        versions=versions,
        names=names if row in names else {**names, row: last_name(catalog[name], versions, row[1])},
        exists=newest.operation != "delete" if newest else row in names,
        actors=await display_names(page, (each.actor for each in found)),
        more=len(found) > VERSIONS,
        offset=offset,
        page_size=VERSIONS,
    )


async def read_versions(page: PageRequest, entity: str, id: int, limit: int, offset: int) -> list[Version]:
    """Versions of a row, newest first; none if the log has no changes of it."""
    async with page.database.session(page.company) as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(HISTORY, (page.company, entity, id, limit, offset))
        return [read_version(page.database.catalog[entity], each) for each in await cursor.fetchall()]


def references(versions: Iterable[Version]) -> Iterator[tuple[str, int]]:
    """The rows that values of the versions refer to."""
    for field in (field for version in versions for field in version.fields if field.refers_to):
        assert field.refers_to is not None
        yield from ((field.refers_to, int(value)) for value in (field.before, field.after) if value is not None)


def last_name(entity: Entity, versions: Iterable[Version], id: int) -> tuple[str, str]:
    """Code and name of a row that no longer exists, as its newest version that has them says; without one, the id."""
    code = entity.identifying_field.name if entity.identifying_field else "id"
    for version in versions:
        values = {field.name: field.before or field.after for field in version.fields}
        if values.get(code):
            return str(values[code]), str(values.get("name") or "")
    return str(id), ""


def read_version(entity: Entity, row: Mapping[str, Any]) -> Version:
    """Return the fields that an update changed; for a create or delete, all fields with a value."""
    old, new = _values(row["old"]), _values(row["row"])
    names = [*(name for name in entity.fields if name in old or name in new), *(name for name in old if name not in entity.fields)]
    if row["operation"] == "update":
        names = [name for name in names if name in old]
    else:
        values = old if row["operation"] == "delete" else new
        names = [name for name in names if values.get(name) is not None and name != "updatedAt"]
    fields = tuple(
        FieldChange(
            name,
            _shown(entity, name, old.get(name)) if row["operation"] != "create" else None,
            _shown(entity, name, new.get(name)) if row["operation"] != "delete" else None,
            _referenced_entity(entity, name),
        )
        for name in names
    )
    return Version(row["version"], row["operation"], row["at"], row["actor"], row["change_set_id"], fields)


def _values(document: str | None) -> dict[str, Any]:
    """Return the values by field; numbers stay text, because a decimal may have more digits than a float."""
    values: dict[str, Any] = json.loads(document or "{}", parse_float=str, parse_int=str)
    return values


def _shown(entity: Entity, name: str, value: Any) -> Any:
    field = entity.fields.get(name)
    return shown_decimal(value) if field and field.type == "numeric" and isinstance(value, str) else value


def _referenced_entity(entity: Entity, name: str) -> str | None:
    field = entity.fields.get(name)
    step = entity.navigations.get(field.reference) if field and field.reference else None
    return step.target if step else None
