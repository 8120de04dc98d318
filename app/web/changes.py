"""The change log by change sets or change by change, with filters."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from aiohttp import web

from app.changes.log import log_query, read_changes
from app.changes.log_filter import OPERATIONS
from app.changes.rows import read_id
from app.errors import ServiceError
from app.logs import count_rows
from app.query.parse import where as parse_where
from app.types.event_ids import Event
from app.web.actors import display_names
from app.web.change_sets import read_sets
from app.web.forms import Form
from app.web.page import PageRequest
from app.web.row_names import row_names, rows_named

PAGE = 50  # changes
FIELDS = ("entity", "operation", "row", "changeSet", "filter")
DETAILS = """
    select c.id, c.actor, c.columns
    from bds.changes c
    where c.company_id = %s and c.id = any (%s) and c.created_at between %s and %s
"""
CURSOR = re.compile(r"[1-9][0-9]{0,17}")


async def show(page: PageRequest) -> web.StreamResponse:
    """The log, newest first, by change sets; with a filter or on demand change by change; or the form with its problems."""
    form = Form({name: [page.query[name]] for name in FIELDS if page.query.get(name, "").strip()})
    if page.query.get("view") != "single" and not form.values:
        return await show_sets(page, form)
    after, before = (read_cursor(page, name) for name in ("after", "before"))
    changes: list[dict[str, Any]] = []
    more, position = False, Event(0)
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
        sets=None,
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
    found = await read_sets(page, before)
    return page.render(
        "changes.html",
        form=form,
        filter="",
        entities=list(page.database.catalog.entities),
        operations=OPERATIONS,
        sets=found.sets,
        changes=[],
        names=await row_names(page, (each["row"] for each in found.sets if each["row"])),
        older=found.sets[-1]["lastId"] if found.older else None,
        newer=None,
        is_newest=before is None,
        filters=dict.fromkeys(FIELDS, ""),
        stream=f"/c/{page.company}/changes/stream?filter=" if before is None else None,
        position=found.newest,
        actors=await display_names(page, (each["actor"] for each in found.sets)),
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
            log_query(page.database.catalog, [("filter", form["filter"])])
        parts.append(f"({form['filter']})")
    return " and ".join(parts)


async def row_condition(page: PageRequest, form: Form) -> str:
    """The condition that a change is of the row with an id or a code; adds a problem to the form if there is no such row."""
    text, entity = form["row"].strip(), form["entity"] if form["entity"] in page.database.catalog else None
    meant = [f"(entity = {parse_where.quoted(name)} and rowId = {id})" for name, id in await rows_named(page, text, entity)]
    if read_id(text) is not None:
        meant.append(f"rowId = {text}")
    if not meant:
        form.add_problem("row", f"No row of {entity or page.company} has the code {text}; a deleted row is found by its id")
    return f"({' or '.join(meant)})"


async def read_page(
    page: PageRequest, filter: str, after: int | None, before: int | None
) -> tuple[list[dict[str, Any]], bool, Event]:
    """Return a page of changes, newest first, with actors and columns; whether there are more in its direction; the last change."""
    bound = f"id > {after}" if after is not None else f"id < {before}" if before is not None else ""
    both = " and ".join(part for part in (filter, bound) if part)
    options = [("filter", both), ("sort", "id" if after is not None else "-id"), ("limit", str(PAGE))]
    answer = await read_changes(page.database, page.company, options)
    count_rows(answer.rows)
    result, last = json.loads(answer.body or b"{}"), Event(int(answer.position), answer.generation or 1)
    changes = result["data"] if after is None else result["data"][::-1]
    if not changes:
        return changes, result["hasMore"], last
    times = sorted(each["createdAt"] for each in changes)
    async with page.database.session(page.company) as connection:
        cursor = await connection.execute(DETAILS, (page.company, [each["id"] for each in changes], times[0], times[-1]))
        details = {id: (actor, columns) for id, actor, columns in await cursor.fetchall()}
    for each in changes:
        each["rowId"] = int(each["rowId"])
        each["actor"], each["columns"] = details.get(each["id"], ("", []))
    return changes, result["hasMore"], last


def read_cursor(page: PageRequest, name: str) -> int | None:
    """Return the id of the change that a page begins after or before."""
    text = page.query.get(name)
    if not text:
        return None
    if not CURSOR.fullmatch(text):
        raise ServiceError("malformed_request", f"{name}: expected the id of a change, got {text!r}", target=name)
    return int(text)
