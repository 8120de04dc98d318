"""Reading rows for pages: the query of a form, with referenced rows by code and name, a page at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from app.changes.rows import list_query
from app.database.catalog import Entity
from app.database.past import Moment
from app.database.pool.session import Session
from app.errors import QueryError, ServiceError, UnknownEntity, about
from app.logs import count_rows
from app.query.check.paging import paged, write_token
from app.query.check.query import Expansion, Query
from app.query.sql import statements as sql_statements
from app.web import addresses
from app.web.columns import EXACT, naming
from app.web.conditions import checked, joined, read_condition
from app.web.forms import Form
from app.web.page import PageRequest
from app.web.past import catalog_of, reading_for

PAGE = 50  # rows
COUNT_TIMEOUT = 1_000  # milliseconds
DAMAGED = "The address of this page is damaged, or belongs to another condition or order: these are the first rows"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a form asks for.  is_odata: whether its condition is written in OData's language."""

    query: Query
    is_odata: bool


def find_entity(page: PageRequest) -> Entity:
    """The entity of the path.  Raises not_found."""
    name, catalog = page.path_variables["entity"], page.database.catalog
    if name not in catalog:
        raise UnknownEntity(name, catalog.entities)
    return catalog[name]


def read_query(page: PageRequest, moment: Moment | None, entity: Entity, form: Form) -> Asked:
    """The query of the form: its condition, search text and order.  Raises QueryError."""
    catalog = catalog_of(page, moment)
    given = [("sort", form["sort"])] if form["sort"] else []
    query = list_query(catalog, catalog[entity.name], given)
    with about("filter"):
        condition, is_odata = read_condition(page.database.catalog, catalog, entity, form["filter"])
    found = addresses.search(entity, form["q"])
    both = [condition] if condition else []
    both += [checked(catalog, entity, found)] if found else []
    return Asked(with_references(replace(query, filter=joined(both), top=None, nested=False)), is_odata)


def begin_at(query: Query, token: str | None, form: Form) -> Query:
    """The query in pages, from the token of a page on; from the first one, with a problem, if it is not of this query."""
    with form.collect_problems():
        try:
            return paged(query, PAGE, token or None)
        except QueryError:
            raise ServiceError("malformed_request", DAMAGED) from None
    return paged(query, PAGE, None)


def with_references(query: Query) -> Query:
    """The query with referenced rows expanded: id, code, name."""
    catalog = query.catalog
    steps = [step for step in query.entity.navigations.values() if not step.many]
    return replace(
        query,
        expand=tuple(Expansion(step, Query(catalog, catalog[step.target], select=naming(catalog[step.target]))) for step in steps),
    )


async def read_page(connection: Session, query: Query, company: str) -> tuple[list[dict[str, Any]], int | None, str | None]:
    """The rows of a page, how many there are if the query counts them, and the token of the next page."""
    statement = sql_statements.paged(query, company, EXACT)
    found = await (await connection.raw.execute(statement.text, statement.values)).fetchone()
    assert found is not None
    body, count, _, rows, keys = found
    count_rows(rows)
    assert query.page is not None
    return json.loads(f"[{body or ''}]"), count, write_token(query.page, keys.encode()) if keys else None


async def count(page: PageRequest, query: Query) -> int | None:
    """The number of rows that match; None if counting takes longer than COUNT_TIMEOUT."""
    statement = sql_statements.count(query, page.company)
    try:
        async with reading_for(page, None, COUNT_TIMEOUT) as connection:
            found = await (await connection.raw.execute(statement.text, statement.values)).fetchone()
    except psycopg.errors.QueryCanceled:
        return None
    assert found is not None
    return int(found[0])
