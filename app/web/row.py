"""The page of one row: its fields, children and links to the rows that refer to it, now and as it was; or what became of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from app.changes.rows import named_id, reading, row_key
from app.database.catalog import Entity, Field, Navigation
from app.database.past import Moment
from app.errors import ServiceError
from app.query.check.paging import paged
from app.query.check.query import Query
from app.query.check.tree import Column, Comparison, Constant, Expression
from app.web import addresses
from app.web.actors import display_names
from app.web.columns import Cell, columns, leading, name_of, places, usual
from app.web.forms import Form
from app.web.history import find_newest, last_name, unknown_row
from app.web.page import PageRequest
from app.web.past import Past, catalog_of, read_asof, read_moment, read_state, state_of, version_names
from app.web.reading import find_entity, read_page, with_references

CHILDREN = 200  # child rows of each kind


@dataclass(frozen=True, slots=True)
class Children:
    """The first rows of a child collection.  total: the number of all."""

    step: Navigation
    entity: Entity
    cells: list[Cell]
    rows: list[dict[str, Any]]
    total: int

    @property
    def leading(self) -> Cell:
        return leading(self.entity, self.cells)

    @property
    def places(self) -> dict[str, int]:
        return places(self.cells, self.rows)


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row with its columns and children.  past: the state of which it is, None for the present."""

    row: dict[str, Any]
    cells: list[Cell]
    children: list[Children]
    past: Past | None


async def show(page: PageRequest) -> web.StreamResponse:
    """One row, by its id or a lookup, or what has become of it.  A problem with the moment is shown with the present row."""
    entity, text = find_entity(page), page.path_variables["row"]
    _check_key(page, entity, text)
    form = Form({"asof": [asked]} if (asked := read_asof(page)) else {})
    moment, found = read_moment(page, form), None
    with form.collect_problems("asof"):
        found = await read_row(page, entity, text, moment, form["asof"])
    if form.problems:
        moment, found = None, await read_row(page, entity, text, None, "")
    if found is None:
        if (id := named_id(text)) is None:
            raise no_such_row(entity, text, form, asked if moment else "")
        return await missing_row(page, entity, id, form, moment)
    id, asof = found.row["id"], form["asof"] if moment else None
    given = "?" + urlencode(addresses.as_of(asof)) if asof else ""
    return page.render(
        "row.html",
        form.status,
        form=form,
        entity=entity,
        found=found,
        inverse=[(step, f"{step.field} = {id}") for step in entity.navigations.values() if step.many and not step.child],
        name_of=name_of,
        asof=asof,
        versions=await version_names(page),
        addresses=[
            ("OData", f"{addresses.odata_path(page, entity, asof or '')}({id})"),
            ("/c", f"/c/{page.company}/{entity.name}/{id}{given}"),
        ],
    )


def no_such_row(entity: Entity, text: str, form: Form, asof: str) -> ServiceError:
    """The error for a lookup of no row, as of a moment if one is given; what is wrong with the moment comes first."""
    message = f"{entity.name} has no row {text}"
    if form.code is not None:
        return ServiceError(form.code, f"{form.problem('asof') or form.problem('')}; now {message}")
    return ServiceError("not_found", f"{message} as of {asof}" if asof else message)


def _check_key(page: PageRequest, entity: Entity, text: str) -> None:
    """Raises not_found for a text that is neither an id nor a lookup of the entity."""
    if row_key(page.database.catalog, entity, text) is None:
        raise ServiceError("not_found", f"{entity.name} has no row {text}")


async def read_row(page: PageRequest, entity: Entity, text: str, moment: Moment | None, asof: str) -> FoundRow | None:
    """A row with its children; None if there is no such row."""
    catalog = catalog_of(page, moment)
    key = row_key(catalog, catalog[entity.name], text)
    query = with_references(replace(Query(catalog, catalog[entity.name]), filter=key, top=1))
    async with reading(page.database, page.company, moment) as connection:
        rows, _, _ = await read_page(connection, paged(query, 1, None), page.company)
        if not rows:
            return None
        children = []
        for step in entity.children:
            child = catalog[step.target]
            owned = equals(child.fields[step.field], rows[0]["id"])
            inside = with_references(replace(Query(catalog, child), filter=owned, top=CHILDREN))
            listed, total, _ = await read_page(connection, replace(paged(inside, CHILDREN, None), count=True), page.company)
            child = page.database.catalog[step.target]
            shown = [cell for cell in columns(catalog, child) if cell.step is None or cell.step.name != step.partner]
            children.append(Children(step, child, usual(child, shown), listed, total or 0))
        past = await read_state(connection, asof) if moment else None
    return FoundRow(rows[0], list(columns(catalog, entity)), children, past)


def equals(field: Field, id: str) -> Expression:
    return Comparison(0, "bool", "eq", Column(0, field.type, (), field), Constant(0, "int8", id), False)


async def missing_row(page: PageRequest, entity: Entity, id: int, form: Form, moment: Moment | None) -> web.Response:
    """What has become of a row that is not there, now or at the moment.  Raises not_found if there never was one."""
    last = await find_newest(page, entity, id)
    if last is None:
        raise unknown_row(entity, id)
    return page.render(
        "missing.html",
        404,
        form=form,
        entity=entity,
        row_id=id,
        name=last_name(entity, [last], id),
        last=last,
        asof=form["asof"] if moment else None,
        past=await state_of(page, moment, form["asof"]) if moment else None,
        versions=await version_names(page),
        actors=await display_names(page, [last.actor]),
    )
