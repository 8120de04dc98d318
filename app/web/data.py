"""The pages /data: all entities with a search over them, and the rows of one, by condition, in groups, now and as they were."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from app.changes.rows import reading
from app.database.catalog import Entity
from app.database.past import Moment
from app.query.check.query import Query
from app.web import addresses, groups
from app.web.columns import Cell, columns, leading, name_of, places, usual, word
from app.web.conditions import Condition, equal_to, example
from app.web.facets import COUNTED, Facets, count_facets
from app.web.forms import Form
from app.web.groups import Groups
from app.web.page import PageRequest
from app.web.past import Past, read_asof, read_moment, state_of, version_names
from app.web.reading import begin_at, count, find_entity, read_page, read_query
from app.web.search import search

FIELDS = ("q", "filter", "sort", "asof", "group", "sum")  # of the form
COUNT = "select c.entity, c.rows, c.is_estimate from bds_service.count_rows(%s) c"


async def index(page: PageRequest) -> web.StreamResponse:
    """All entities with their numbers of rows; or the rows of all whose codes or names match a text."""
    catalog, text = page.database.catalog, page.query.get("q", "").strip()
    if text:
        return page.render("found.html", text=text, found=await search(page, text))
    rows = await count_rows(page)
    return page.render("data.html", rows=[(catalog[name], count, estimate) for name, count, estimate in rows if name in catalog])


async def count_rows(page: PageRequest) -> list[tuple[str, int, bool]]:
    """The number of rows of each entity, and whether it is an estimate."""
    async with page.database.session(page.company) as connection:
        return await (await connection.execute(COUNT, (page.company,))).fetchall()


@dataclass(slots=True)
class Found:
    """What a form asks for, as far as it has no problems.

    rows, token: a page of rows and where the next one begins; total: the number of all, if it is known; groups: in place of rows.
    """

    query: Query | None = None
    is_odata: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    token: str | None = None
    total: int | None = None
    past: Past | None = None
    facets: Facets | None = None
    groups: Groups | None = None


async def show(page: PageRequest) -> web.StreamResponse:
    """A page of rows, or of groups of them; or the form with its problems."""
    entity, form = find_entity(page), _form(page)
    cells = list(columns(page.database.catalog, entity))
    for name in {*form.all("columns")} - {cell.name for cell in cells}:
        form.add_problem("columns", f"{entity.name} has no column {name}")
    chosen = [cell for cell in cells if form.has("columns", cell.name)] or usual(entity, cells)
    found = await _find(page, entity, form, cells)
    kept = {name: form[name] for name in FIELDS}
    condition = Condition(entity, page.database.catalog, form["filter"], found.is_odata)
    return page.render(
        "rows.html",
        form.status,
        form=form,
        entity=entity,
        cells=cells,
        chosen=chosen,
        leading=leading(entity, chosen),
        places=places(chosen, found.rows),
        found=found,
        counted=COUNTED,
        is_first=found.query is None or found.query.after is None,
        kept=kept | {"columns": form.all("columns")},
        link=lambda **changed: addresses.link(page, entity, {**kept, **changed}, form.all("columns")),
        condition=condition,
        example=example(page.database.catalog, cells),
        test_of=equal_to,
        sorted_by=lambda cell: next((key for key in (cell.name, "-" + cell.name) if key == form["sort"]), ""),
        groupable=groups.groupable(cells),
        summable=groups.summable(cells),
        versions=await version_names(page),
        name_of=name_of,
        entities=list(page.database.catalog.entities),
        words=[(cell.name, *word(page.database.catalog, cell)) for cell in cells],
        addresses=addresses.of(page, entity, form, found.query, found.groups, is_odata=found.is_odata),
    )


def _form(page: PageRequest) -> Form:
    given = {name: page.query.get(name, "").strip() for name in FIELDS} | {"asof": read_asof(page)}
    form = Form({name: [text] for name, text in given.items() if text})
    form.values["columns"] = page.request.query.getall("columns", [])
    return form


async def _find(page: PageRequest, entity: Entity, form: Form, cells: list[Cell]) -> Found:
    """Collects the form's problems: without a query if it is wrong, without rows if it cannot be run."""
    moment, found = read_moment(page, form), Found()
    by, summed = groups.choose(form, cells)
    with form.collect_problems("filter", "sort", "q"):
        asked = read_query(page, moment, entity, form)
        found.query, found.is_odata = asked.query, asked.is_odata
    if found.query is None or form.problems:
        return found
    with form.collect_problems("asof"):
        if by:
            found.groups = await groups.read_groups(page, found.query, moment, by, summed, form)
        else:
            await _read_rows(page, moment, found, form)
        if moment:
            found.past = await state_of(page, moment, form["asof"])
        found.facets = await count_facets(page, found.query, moment, cells)
    return found


async def _read_rows(page: PageRequest, moment: Moment | None, found: Found, form: Form) -> None:
    assert found.query is not None
    found.query = begin_at(found.query, page.query.get("from"), form)
    async with reading(page.database, page.company, moment) as connection:
        found.rows, _, found.token = await read_page(connection, found.query, page.company)
    if found.token and found.query.after is None and moment is None:
        found.total = await count(page, found.query)
