"""The pages /diff: what differs between two versions, by entity and row by row, and the names of versions."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from app.changes import versions
from app.changes.difference import read_counts, read_difference
from app.changes.rows import Answer
from app.logs import count_rows
from app.query.check.moments import start
from app.web.actors import display_names
from app.web.addresses import as_of
from app.web.changed_rows import changed_row, rows_within
from app.web.forms import Form
from app.web.page import PageRequest
from app.web.past import version_names
from app.web.reading import find_entity
from app.web.row_names import row_names

PAGE = 50  # rows
NAMES = 50  # of versions on a page
FIELDS = ("since", "until")
UNTIL = {"version": "until", "at": "until"}  # parameters of /c -> field


async def show(page: PageRequest) -> web.StreamResponse:
    return await show_counts(page, _form(page))


async def show_counts(page: PageRequest, form: Form) -> web.StreamResponse:
    """How many rows of each entity differ, and the named versions; or the form with its problems."""
    found = None
    if form["since"]:
        with form.collect_problems(*FIELDS, targets=UNTIL):
            found = _body(await read_counts(page.database, page.company, _ends(form)))
    offset = page.offset()
    named = await versions.listed(page.database, page.company, NAMES, offset)
    return page.render(
        "diff.html",
        form.status,
        form=form,
        found=found,
        versions=named["data"],
        more=named["hasMore"],
        offset=offset,
        page_size=NAMES,
        actors=await display_names(page, (each["actor"] for each in named["data"] if each["actor"])),
        address=_address(f"/c/{page.company}/diff", found, form),
        base=page.base,
    )


async def show_rows(page: PageRequest) -> web.StreamResponse:
    """The rows of an entity that differ, old and new values beside each other; or the form with its problems."""
    entity, form = find_entity(page), _form(page)
    found, rows = None, []
    if not form["since"]:
        form.add_problem("since", "Enter a time, a version or its name")
    else:
        given = [*_ends(form), ("limit", str(PAGE)), *((("after", page.query["after"]),) if page.query.get("after") else ())]
        with form.collect_problems(*FIELDS, targets=UNTIL):
            found = _body(await read_difference(page.database, page.company, entity, given))
            rows = [changed_row(entity, int(each["rowId"]), each) for each in found["data"]]
    return page.render(
        "diffrows.html",
        form.status,
        form=form,
        entity=entity,
        found=found,
        versions=await version_names(page),
        rows=rows,
        names=await row_names(page, rows_within(rows)),
        next=found["data"][-1]["version"] if found and found["hasMore"] else None,
        is_first=not page.query.get("after"),
        address=_address(f"/c/{page.company}/{entity.name}", found, form),
        base=page.base,
    )


async def name(page: PageRequest) -> web.StreamResponse:
    """Name a version, or delete a name; or the page with the form's problems."""
    form = await page.form()
    if form["do"] == "delete":
        await versions.delete(page.database, page.company, form["name"])
        return page.redirect("/diff", flash="version-deleted")
    if form["do"] != "name":
        form.add_problem("", f"do: expected name or delete, got {form['do']!r}")
    elif not form["name"]:
        form.add_problem("name", "Enter a name")
    with form.collect_problems("name", "version", targets={"at": "version"}):
        if not form.problems:
            body = msgspec.json.encode(as_of(form["version"].strip()))
            _, is_new = await versions.put(page.database, page.company, form["name"].strip(), body, page.identity.actor)
            return page.redirect("/diff", flash="version-named" if is_new else "version-moved")
    return await show_counts(page, form)


def _form(page: PageRequest) -> Form:
    return Form({name: [page.query[name].strip()] for name in FIELDS if page.query.get(name, "").strip()})


def _ends(form: Form) -> list[tuple[str, str]]:
    """The two ends as parameters of /c."""
    return [("since", start(form["since"])), *as_of(form["until"]).items()]


def _body(answer: Answer) -> dict[str, Any]:
    """The answer of /c.  Numbers of its rows stay text, because a decimal may have more digits than a float."""
    count_rows(answer.rows)
    body: dict[str, Any] = json.loads(answer.body or b"{}", parse_float=str, parse_int=str)
    return body


def _address(path: str, found: dict[str, Any] | None, form: Form) -> str | None:
    """The address that gives a program the same; None without an answer."""
    return f"{path}?{urlencode(_ends(form), safe=':')}" if found else None
