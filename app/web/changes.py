"""The change log for people: filtered, page by page, and one row's history with old and new values side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from aiohttp import web
from psycopg.rows import dict_row

from app.changes.read import CHANGES, ID, list_query, read_changes
from app.database.catalog import Entity
from app.errors import ServiceError
from app.query.literals import INT8
from app.web.actors import named
from app.web.forms import Form
from app.web.site import Visit

PAGE = 50  # changes
VERSIONS = 20  # of a row
OPERATIONS = ("create", "update", "delete")
FIELDS = ("entity", "operation", "row", "changeSet", "filter")
DETAILS = "select c.id, c.actor, c.columns from bds.changes c where c.company_id = %s and c.id = any (%s)"
HISTORY = """
    select h.version, h.operation, h.at, h.actor, h.change_set_id, h.row::text, h.old::text
    from bds.row_history(%s, %s, %s) h
    order by h.version desc
    limit %s offset %s
"""
CURSOR = re.compile(r"[1-9][0-9]{0,17}")


async def show(visit: Visit) -> web.StreamResponse:
    """The log, newest first; or the form again with what is wrong in it."""
    form = Form({name: [visit.query[name]] for name in FIELDS if visit.query.get(name, "").strip()})
    after, before = (cursor_of(visit, name) for name in ("after", "before"))
    changes: list[dict[str, Any]] = []
    more = False
    filter = compose(visit, form)
    if not form.problems:
        changes, more = await page(visit, filter, after, before)
    return visit.render(
        "changes.html",
        form.status,
        form=form,
        filter=filter,
        entities=list(visit.database.catalog.entities),
        operations=OPERATIONS,
        changes=changes,
        # whoever came from an older page can go back there
        older=changes[-1]["id"] if changes and (more if after is None else True) else None,
        newer=changes[0]["id"] if changes and (more if after is not None else before is not None) else None,
        given={name: form[name] for name in FIELDS},
        actors=await named(visit, (each["actor"] for each in changes)),
    )


def compose(visit: Visit, form: Form) -> str:
    """The filter of /c/changes that the form asks for; problems are noted in the form."""
    parts = []
    if form["entity"]:
        parts.append(f"entity = {quoted(form['entity'])}")
    if form["operation"]:
        parts.append(f"operation = {quoted(form['operation'])}")
    if form["row"]:
        row = form["row"].strip()
        if not ID.fullmatch(row) or int(row) not in INT8:
            form.refuse("row", "Expected the id of a row: a whole number")
        parts.append(f"rowId = {row}")
    if form["changeSet"]:
        try:
            parts.append(f"changeSetId = '{UUID(form['changeSet'].strip())}'")
        except ValueError:
            form.refuse("changeSet", "Expected the id of a change set: a UUID")
    if form["filter"]:
        with form.checked("filter"):
            list_query(visit.database.catalog, CHANGES, [("filter", form["filter"])])
        parts.append(f"({form['filter']})")
    return " and ".join(parts)


async def page(visit: Visit, filter: str, after: int | None, before: int | None) -> tuple[list[dict[str, Any]], bool]:
    """A page of changes, newest first, with who made them and of what; and whether there are more in its direction."""
    bound = f"id > {after}" if after is not None else f"id < {before}" if before is not None else ""
    both = " and ".join(part for part in (filter, bound) if part)
    options = [("filter", both), ("sort", "id" if after is not None else "-id"), ("limit", str(PAGE))]
    answer = await read_changes(visit.database, visit.company, options)
    found = json.loads(answer.body or b"{}")
    changes = found["data"] if after is None else found["data"][::-1]
    async with visit.database.session(visit.company) as connection:
        cursor = await connection.execute(DETAILS, (visit.company, [each["id"] for each in changes]))
        details = {id: (actor, columns) for id, actor, columns in await cursor.fetchall()}
    for each in changes:
        each["actor"], each["columns"] = details.get(each["id"], ("", []))
    return changes, found["hasMore"]


def cursor_of(visit: Visit, name: str) -> int | None:
    """The change at which a page begins."""
    text = visit.query.get(name)
    if not text:
        return None
    if not CURSOR.fullmatch(text):
        raise ServiceError("malformed_request", f"{name}: expected the id of a change, got {text!r}", target=name)
    return int(text)


def quoted(text: str) -> str:
    """A text as the filter language writes it."""
    return "'" + text.replace("'", "''") + "'"


# A row's history ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """A field's value before a change and after it; None where there is none.  refers: to a row of which entity."""

    name: str
    before: Any
    after: Any
    refers: str | None


@dataclass(frozen=True, slots=True)
class Version:
    """A row as a change left it, beside what it was."""

    id: int
    operation: str
    at: datetime
    actor: str
    change_set: UUID | None
    lines: tuple[Line, ...]


async def history(visit: Visit) -> web.StreamResponse:
    """What became of a row, newest first."""
    name, row_id = visit.named["entity"], visit.named["row"]
    catalog = visit.database.catalog
    if name not in catalog:
        raise ServiceError("not_found", f"there is no entity {name}")
    if not ID.fullmatch(row_id) or int(row_id) not in INT8:
        raise ServiceError("not_found", f"there is no row {row_id}")
    offset = visit.offset()
    async with visit.database.session(visit.company) as connection, connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(HISTORY, (visit.company, name, int(row_id), VERSIONS + 1, offset))
        rows = await cursor.fetchall()
    if not rows and not offset:
        raise ServiceError("not_found", f"there never was a row {row_id} of {name}, or its changes are no longer kept")
    return visit.render(
        "history.html",
        entity=name,
        row_id=row_id,
        versions=[version(catalog[name], each) for each in rows[:VERSIONS]],
        actors=await named(visit, (each["actor"] for each in rows)),
        more=len(rows) > VERSIONS,
        offset=offset,
        page_size=VERSIONS,
    )


def version(entity: Entity, row: Mapping[str, Any]) -> Version:
    """A line for each field that the change has touched; of a create or delete for each that has a value."""
    old, new = _values(row["old"]), _values(row["row"])
    names = [*(name for name in entity.fields if name in old or name in new), *(name for name in old if name not in entity.fields)]
    if row["operation"] == "update":
        names = [name for name in names if name in old]
    else:
        given = old if row["operation"] == "delete" else new
        names = [name for name in names if given.get(name) is not None and name != "updatedAt"]
    lines = tuple(
        Line(
            name,
            old.get(name) if row["operation"] != "create" else None,
            new.get(name) if row["operation"] != "delete" else None,
            _refers(entity, name),
        )
        for name in names
    )
    return Version(row["version"], row["operation"], row["at"], row["actor"], row["change_set_id"], lines)


def _values(document: str | None) -> dict[str, Any]:
    """Values by their fields; numbers as they are written, for a decimal has more digits than a float."""
    values: dict[str, Any] = json.loads(document or "{}", parse_float=str, parse_int=str)
    return values


def _refers(entity: Entity, name: str) -> str | None:
    field = entity.fields.get(name)
    step = entity.navigations.get(field.reference) if field and field.reference else None
    return step.target if step else None
