"""Undos: the buttons "back to here" and "undo", what an undo undoes in words, and the rows that its dry run would change."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from app.changes.rows import read_id
from app.errors import ServiceError
from app.feed import undone, work
from app.feed.selection import LISTS, SWITCHES, VERSIONS, of_members
from app.query.check.moments import NOW, start
from app.web.actors import display_names
from app.web.changed_rows import ChangedRow, changed_row, rows_within
from app.web.page import PageRequest
from app.web.row_names import Row, row_names
from app.web.view import minute

SHOWN = 100  # rows of a dry run, unless all are asked for
PREVIEW = "select i.preview::text from bds.imports i where i.company_id = %s and i.id = %s"
# A row within a transaction may not have its children yet.  Ids of a transaction have no gaps.
END = """
    select coalesce((
        select c.id - 1 from bds.changes c
        where c.company_id = %(company)s and c.id > v.id and c.created_at >= v.created_at and c.transaction_id <> v.transaction_id
        order by c.id
        limit 1
    ), (select p.last_id from bds.positions p where p.company_id = %(company)s order by p.last_id desc limit 1))
    from bds.changes v
    where v.company_id = %(company)s and v.id = %(id)s
"""
LAST = "select coalesce(max(p.last_id), 0) from bds.positions p where p.company_id = %s"
NAMES = "select v.version, min(v.name) from bds.versions v where v.company_id = %s and v.version = any (%s) group by v.version"


async def begin(page: PageRequest) -> web.StreamResponse:
    """Undo what the form selects, or show what that would do: redirects to the report.

    The form has the members of POST /api/{company}/revert; `after` is the end of the transaction of a change, in place of `to`.
    What a dry run selects ends with the last change of now, so that the undo that follows undoes what was shown, and no more.
    """
    form = await page.form()
    is_open = form["from"] and form["to"] == NOW  # a range up to the last version
    given = {name: _read(name, form.all(name)) for name in form.values if name != "csrf" and form[name]}
    if is_open:
        del given["to"]
    if "after" in given:
        given["to"] = await _end_of_transaction(page, given.pop("after"))
    elif given.get("dryRun") is True and "from" in given and "to" not in given:
        given["to"] = await _last_change(page)
    selection = of_members(given)
    _, report = await work.revert(page.database, page.company, page.identity.actor, selection, is_async=True)
    return page.redirect(f"/imports/{report['importId']}")


def _read(name: str, texts: list[str]) -> Any:
    """The value of a member of POST /api/{company}/revert."""
    if name in SWITCHES:
        return {"true": True, "false": False}.get(texts[-1], texts[-1])
    return texts if name in LISTS else start(texts[-1]) if name in VERSIONS else texts[-1]


async def _end_of_transaction(page: PageRequest, id: str) -> int:
    """The last change of the transaction of a change.  Raises ServiceError: malformed_request, not_found."""
    if (change := read_id(id)) is None:
        raise ServiceError("malformed_request", f"after: expected the id of a change, got {id!r}", target="after")
    async with page.database.session(page.company) as connection:
        row = await (await connection.execute(END, {"company": page.company, "id": change})).fetchone()
    if row is None:
        raise ServiceError("not_found", f"there is no change {id}", target="after")
    return int(row[0])


async def _last_change(page: PageRequest) -> int:
    async with page.database.session(page.company) as connection:
        row = await (await connection.execute(LAST, (page.company,))).fetchone()
    return int(row[0]) if row else 0


@dataclass(frozen=True, slots=True)
class Undo:
    """What the report of an undo shows.

    fields: of the form that undoes the same; is_known: whether its change set is a listed import; rows: the first ones that a dry
    run has changed; listed: how many the report has.
    """

    title: str
    fields: dict[str, Any]
    is_known: bool
    rows: list[ChangedRow]
    listed: int
    names: dict[Row, tuple[str, str]]


async def read_undo(page: PageRequest, report: dict[str, Any]) -> Undo:
    """What an undo undoes and, of a dry run, the rows that it would change."""
    records = await _preview(page, report["importId"]) if report["dryRun"] else []
    shown = records if page.query.get("rows") == "all" else records[:SHOWN]
    catalog, rows = page.database.catalog, []
    for each in shown:
        entity, _, id = each["row"].partition("/")
        if entity in catalog:
            rows.append(changed_row(catalog[entity], int(id), each))
    return Undo(
        (await titles(page, [report]))[report["importId"]],
        _fields(report),
        bool(await undone.find_reverted(page.database, page.company, [report])),
        rows,
        len(records),
        await row_names(page, rows_within(rows)),
    )


async def _preview(page: PageRequest, id: str) -> list[dict[str, Any]]:
    async with page.database.session(page.company) as connection:
        row = await (await connection.execute(PREVIEW, (page.company, id))).fetchone()
    # numbers stay text, because a decimal may have more digits than a float
    return json.loads(row[0], parse_float=str, parse_int=str) if row and row[0] else []


def _fields(report: dict[str, Any]) -> dict[str, Any]:
    """The selection of an undo as fields of a form."""
    if report.get("reverts"):
        return {"changeSet": report["reverts"]}
    rows = [f"{entity}/{id}" for entity, ids in report["undoes"].get("rows", {}).items() for id in ids]
    return {**report["undoes"], **({"rows": rows} if rows else {})}


async def titles(page: PageRequest, reports: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What each undo among the reports undoes, in words, by its id."""
    undos = [each for each in reports if "undoes" in each]
    selections = [each["undoes"] for each in undos]
    imports = await undone.find_reverted(page.database, page.company, undos)
    versions = await _version_names(page, (each[end] for each in selections for end in VERSIONS if end in each))
    actors = await display_names(page, (each["actor"] for each in selections if "actor" in each))
    names = await row_names(page, (row for each in selections for row in _rows(each)))
    return {
        each["importId"]: _of_change_set(each["reverts"], imports)
        if each.get("reverts")
        else _in_words(each["undoes"], versions, actors, names)
        for each in undos
    }


def _of_change_set(id: str, imports: dict[str, Any]) -> str:
    if id not in imports:
        return f"Undo of change set {id[:8]}…"
    file, started = imports[id]
    return f"Undo of {file or 'the import'} of {minute(started)}"


def _in_words(
    selection: dict[str, Any], versions: dict[int, str], actors: dict[str, str], names: dict[Row, tuple[str, str]]
) -> str:
    ends = {end: versions.get(selection[end], f"version {selection[end]:,}") for end in VERSIONS if end in selection}
    rows = [f"{row[0]} {names[row][0] if row in names else row[1]}" for row in _rows(selection)]
    within = ", ".join([*selection.get("entities", []), *rows])
    if "from" in ends:
        until = f" up to {ends['to']}" if "to" in ends else ""
        title = f"Undo of the changes after {ends['from']}{until}"
    else:
        title = f"Back to {ends['to']}"
    by = f" by {actors.get(selection['actor'], selection['actor'])}" if "actor" in selection else ""
    return f"{title}{by}{': ' if within else ''}{within}"


def _rows(selection: dict[str, Any]) -> list[Row]:
    return [(entity, int(id)) for entity, ids in selection.get("rows", {}).items() for id in ids]


async def _version_names(page: PageRequest, versions: Iterable[int]) -> dict[int, str]:
    """Named versions in words."""
    wanted = list(set(versions))
    if not wanted:
        return {}
    async with page.database.session(page.company) as connection:
        found = await (await connection.execute(NAMES, (page.company, wanted))).fetchall()
    return {version: f"{name} (version {version:,})" for version, name in found}
