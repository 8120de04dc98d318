"""The pages /data: the rows of an entity, and one row with its references, children and links to the rows that refer to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import psycopg
from aiohttp import web

from app.changes.rows import ID, list_query, reading
from app.database.catalog import Catalog, Entity, Field, Navigation
from app.database.past import Moment, model_of
from app.database.pool.session import Session
from app.errors import QueryError, ServiceError, UnknownEntity, about
from app.export.row_formats import shown_decimal
from app.query.check import moments
from app.query.check.paging import paged, write_token
from app.query.check.query import Expansion, Query
from app.query.check.tree import Column, Comparison, Constant, Expression, Junction
from app.query.check.where import WhereChecker
from app.query.parse import where as parse_where
from app.query.sql import statements as sql_statements
from app.query.sql.rows import Style
from app.types import named
from app.types.literals import INT8
from app.web import addresses
from app.web.actors import display_names
from app.web.forms import Form
from app.web.history import find_newest, last_name, unknown_row
from app.web.page import PageRequest

FIELDS = ("q", "filter", "sort", "asof")  # of the form
PAGE = 50  # rows
COUNT_TIMEOUT = 1_000  # milliseconds
CHILDREN = 200  # child rows of each kind that the page of a row shows
WIDE = 8  # columns that are shown unless the user chooses others
EXACT = Style(numbers_as_strings=True, ids_as_strings=True, plain=True)  # JSON numbers would lose digits of decimals
COUNT = "select c.entity, c.rows, c.is_estimate from bds_service.count_rows(%s) c"
DAMAGED = "The address of this page is damaged, or belongs to another condition or order: these are the first rows"
OR = re.compile(r"\bor\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of the table.  step: the reference that it shows, by code and name."""

    name: str
    field: Field
    step: Navigation | None

    @property
    def is_number(self) -> bool:
        return self.step is None and self.field.name != "id" and named(self.field.type).is_number


async def index(page: PageRequest) -> web.StreamResponse:
    """All entities with their numbers of rows."""
    catalog = page.database.catalog
    rows = await count_rows(page)
    return page.render("data.html", rows=[(catalog[name], count, estimate) for name, count, estimate in rows if name in catalog])


async def count_rows(page: PageRequest) -> list[tuple[str, int, bool]]:
    """The number of rows of each entity, and whether it is an estimate."""
    async with page.database.session(page.company) as connection:
        return await (await connection.execute(COUNT, (page.company,))).fetchall()


async def show(page: PageRequest) -> web.StreamResponse:
    """A page of rows; or the form with its problems."""
    entity = find_entity(page)
    form = Form({name: [text] for name, text in fields_of(page).items()})
    cells = list(columns(page.database.catalog, entity))
    form.values["columns"] = page.request.query.getall("columns", [])
    for name in {*form.all("columns")} - {cell.name for cell in cells}:
        form.add_problem("columns", f"{entity.name} has no column {name}")
    chosen = [cell for cell in cells if form.has("columns", cell.name)] or usual(entity, cells)
    query, rows, token, total = await _read(page, entity, form)
    kept = {name: form[name] for name in FIELDS}
    return page.render(
        "rows.html",
        form.status,
        form=form,
        entity=entity,
        cells=cells,
        chosen=chosen,
        rows=rows,
        total=total,
        next=token,
        is_first=query is None or query.after is None,
        kept=kept,
        columns=form.all("columns"),
        link=lambda **changed: addresses.link(page, entity, {**kept, **changed}, form.all("columns")),
        narrowed=lambda cell, value: narrowed(form["filter"], cell, value),
        sorted_by=lambda cell: next((key for key in (cell.name, "-" + cell.name) if key == form["sort"]), ""),
        name_of=name_of,
        entities=list(page.database.catalog.entities),
        words=[(cell.name, *word(page.database.catalog, cell)) for cell in cells],
        addresses=addresses.of(page, entity, form, query),
        base=f"{page.request.scheme}://{page.request.host}",
    )


async def _read(page: PageRequest, entity: Entity, form: Form) -> tuple[Query | None, list[dict[str, Any]], str | None, int | None]:
    """The query that the form asks for, a page of its rows, where the next page begins, and the number of rows if it is shown.

    Collects the form's problems: without a query if it is wrong, without rows if it cannot be run.
    """
    moment, query = read_moment(form), None
    with form.collect_problems("filter", "sort", "q"):
        query = read_query(catalog_of(page, moment), entity, form)
    if query is None or form.problems:
        return query, [], None, None
    query = begin_at(query, page.query.get("from"), form)
    with form.collect_problems("asof"):
        async with reading(page.database, page.company, moment) as connection:
            rows, _, token = await read_page(connection, query, page.company)
        total = await count(page, query) if token and query.after is None and moment is None else None
        return query, rows, token, total
    return query, [], None, None


def begin_at(query: Query, token: str | None, form: Form) -> Query:
    """The query in pages, from the token of a page on; from the first one, with a problem, if it is not of this query."""
    with form.collect_problems():
        try:
            return paged(query, PAGE, token or None)
        except QueryError:
            raise ServiceError("malformed_request", DAMAGED) from None
    return paged(query, PAGE, None)


def fields_of(page: PageRequest) -> dict[str, str]:
    """The fields of the form that are not empty; `version` and `at`, as /c has them, are other names of `asof`."""
    given = {name: page.query.get(name, "").strip() for name in (*FIELDS, "version", "at")}
    given["asof"] = given["asof"] or given.pop("version") or given["at"]
    return {name: given[name] for name in FIELDS if given[name]}


def read_moment(form: Form) -> Moment | None:
    """The moment of the field `asof`; None for the present, or with a problem."""
    with form.collect_problems("asof", targets={"@": "asof"}):
        return replace(moments.read_moment(moments.absolute(form["asof"])), target="asof") if form["asof"] else None
    return None


async def row(page: PageRequest) -> web.StreamResponse:
    """One row; without it, what has become of it.  A problem with the moment is shown with the row of the present."""
    entity, id = find_entity(page), page.path_variables["row"]
    if not ID.fullmatch(id) or int(id) not in INT8:
        raise ServiceError("not_found", f"{entity.name} has no row {id}")
    form = Form({name: [text] for name, text in fields_of(page).items() if name == "asof"})
    moment, found = read_moment(form), None
    with form.collect_problems("asof"):
        found = await read_row(page, entity, id, moment)
    if form.problems:
        moment, found = None, await read_row(page, entity, id, None)
    if found is None:
        return await missing_row(page, entity, int(id), form, moment)
    asof = form["asof"] if moment else None
    past, given = (f"@{moments.absolute(asof)}", "?" + urlencode(addresses.as_of(asof))) if asof else ("", "")
    return page.render(
        "row.html",
        form.status,
        form=form,
        entity=entity,
        row=found.row,
        cells=found.cells,
        children=found.children,
        inverse=[(step, f"{step.field} = {id}") for step in entity.navigations.values() if step.many and not step.child],
        name_of=name_of,
        base=f"{page.request.scheme}://{page.request.host}",
        asof=asof,
        addresses=[
            ("OData", f"/api/odata/{page.company}{past}/{entity.name}({id})"),
            ("/c", f"/c/{page.company}/{entity.name}/{id}{given}"),
        ],
    )


@dataclass(frozen=True, slots=True)
class FoundRow:
    """A row with its columns; children: step, entity, columns, the first rows and the number of all."""

    row: dict[str, Any]
    cells: list[Cell]
    children: list[tuple[Navigation, Entity, list[Cell], list[dict[str, Any]], int | None]]


async def read_row(page: PageRequest, entity: Entity, id: str, moment: Moment | None) -> FoundRow | None:
    """A row with its children; None if there is no such row."""
    catalog = catalog_of(page, moment)
    query = with_references(replace(Query(catalog, catalog[entity.name]), filter=equals(entity.fields["id"], id), top=1))
    children = []
    async with reading(page.database, page.company, moment) as connection:
        found, _, _ = await read_page(connection, paged(query, 1, None), page.company)
        for step in entity.children if found else ():
            child = catalog[step.target]
            inside = with_references(replace(Query(catalog, child), filter=equals(child.fields[step.field], id), top=CHILDREN))
            listed, total, _ = await read_page(connection, replace(paged(inside, CHILDREN, None), count=True), page.company)
            child = page.database.catalog[step.target]
            shown = [cell for cell in columns(catalog, child) if cell.step is None or cell.step.name != step.partner]
            children.append((step, child, usual(child, shown), listed, total))
    return FoundRow(found[0], list(columns(catalog, entity)), children) if found else None


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
        actors=await display_names(page, [last.actor]),
    )


def word(catalog: Catalog, cell: Cell) -> tuple[str, str]:
    """The kind of a column, for the completion of conditions; and how a lookup of a reference begins."""
    if cell.step is None:
        type = named(cell.field.type)
        return "number" if type.is_number else type.kind, ""
    code = catalog[cell.step.target].identifying_field
    return "reference", f"'{code.name}:" if code else ""


def find_entity(page: PageRequest) -> Entity:
    """The entity of the path.  Raises not_found."""
    name, catalog = page.path_variables["entity"], page.database.catalog
    if name not in catalog:
        raise UnknownEntity(name)
    return catalog[name]


def columns(catalog: Catalog, entity: Entity) -> Iterator[Cell]:
    """All columns, with references in place of the fields that hold their ids."""
    for field in entity.fields.values():
        step = entity.navigations.get(field.reference) if field.reference else None
        yield Cell(step.name if step else field.name, field, step)


def usual(entity: Entity, cells: Sequence[Cell]) -> list[Cell]:
    """The columns shown by default: the identifying field first, WIDE at most."""
    named = entity.identifying_field
    rest = [cell for cell in cells if cell.field.name not in ("id", "updatedAt") and cell.field is not named]
    first = [cell for cell in cells if cell.field is (named or entity.fields["id"])]
    return (first + rest)[:WIDE]


def catalog_of(page: PageRequest, moment: Moment | None) -> Catalog:
    """The catalog of the present, or of the past, in which hardly a field is required."""
    return model_of(page.database.catalog) if moment else page.database.catalog


def read_query(catalog: Catalog, entity: Entity, form: Form) -> Query:
    """The query of the form: its condition, search text and order.  Raises QueryError."""
    given = [("sort", addresses.sort_by_field(entity, form["sort"]))] if form["sort"] else []
    query = list_query(catalog, catalog[entity.name], given)
    conditions: list[Expression] = []
    with about("filter"):
        for text in (form["filter"], addresses.search(entity, form["q"])):
            node = parse_where.parse_filter(text) if text else None
            if node is not None:
                conditions.append(WhereChecker(catalog, catalog[entity.name]).condition(node))
    both = Junction(0, "bool", "and", tuple(conditions)) if len(conditions) > 1 else conditions[0] if conditions else None
    return with_references(replace(query, filter=both, top=None, nested=False))


def with_references(query: Query) -> Query:
    """The query with referenced rows expanded: id, code, name."""
    catalog = query.catalog
    steps = [step for step in query.entity.navigations.values() if not step.many]
    return replace(
        query,
        expand=tuple(Expansion(step, Query(catalog, catalog[step.target], select=naming(catalog[step.target]))) for step in steps),
    )


def naming(entity: Entity) -> tuple[Field, ...]:
    """The fields by which pages show a row: id, identifying field, name."""
    # the second one: in the past no unique field is required
    named = entity.identifying_field or next(iter(entity.alternate_keys), None)
    wanted = (entity.fields["id"], named, entity.fields.get("name"))
    return tuple({field.name: field for field in wanted if field}.values())


def name_of(entity: Entity, row: dict[str, Any]) -> tuple[str, str]:
    """(code, name) of a row: its id where it has no code; "" without a name."""
    field = entity.identifying_field
    return str(row[field.name] if field else row["id"]), str(row.get("name") or "")


def equals(field: Field, id: str) -> Expression:
    return Comparison(0, "bool", "eq", Column(0, field.type, (), field), Constant(0, "int8", id), False)


async def read_page(connection: Session, query: Query, company: str) -> tuple[list[dict[str, Any]], int | None, str | None]:
    """The rows of a page, how many there are if the query counts them, and the token of the next page."""
    statement = sql_statements.paged(query, company, EXACT)
    found = await (await connection.raw.execute(statement.text, statement.values)).fetchone()
    assert found is not None
    body, count, _, keys = found
    assert query.page is not None
    return json.loads(f"[{body or ''}]"), count, write_token(query.page, keys.encode()) if keys else None


async def count(page: PageRequest, query: Query) -> int | None:
    """The number of rows that match; None if counting takes longer than COUNT_TIMEOUT."""
    statement = sql_statements.count(query, page.company)
    try:
        async with page.database.snapshot(page.company) as connection:
            await connection.execute(f"set local statement_timeout = {COUNT_TIMEOUT}".encode())
            found = await (await connection.raw.execute(statement.text, statement.values)).fetchone()
    except psycopg.errors.QueryCanceled:
        return None
    assert found is not None
    return int(found[0])


def narrowed(filter: str, cell: Cell, value: Any) -> str:
    """The condition, restricted to rows whose column has the value."""
    more = f"{cell.field.name} is null" if value is None else f"{cell.field.name} = {_constant(cell, value)}"
    return f"({filter}) and {more}" if OR.search(filter) else f"{filter} and {more}" if filter else more


def _constant(cell: Cell, value: Any) -> str:
    if cell.step is not None:
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if named(cell.field.type).kind == "decimal":
        return shown_decimal(str(value))
    return str(value) if named(cell.field.type).is_number else parse_where.quoted(str(value))
