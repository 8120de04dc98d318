"""Pages of the change log for followers: records in the order of their ids, and how far a page reaches.

A page is one statement, so its records and the company's last change come from one snapshot: a follower that continues after
`through` gets each change exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString, NamedTuple

from psycopg.sql import SQL, Composed

from app.changes.log import CHANGES, ID_COLUMN, between, find_months, log_query, require_change_kept
from app.database.catalog import Catalog
from app.database.generations import Demand, check
from app.database.pool.session import Session
from app.errors import ServiceError
from app.query.check.query import Query
from app.query.check.tree import Comparison, Constant, Expression, Junction, Order
from app.query.sql import statements as sql_statements
from app.query.sql.parameters import COMPANY, Statement
from app.query.sql.rows import RECORDS
from app.query.sql.select import Select
from app.types.event_ids import Event
from app.types.literals import INT8

PAGE = 500  # records
SPAN = 100_000  # records that one page with a filter searches; a filter that matches few would read the whole log at once

POSITION: LiteralString = """
    select p.last_id, bds.first_change(p.company_id), p.generation from bds.company_positions p where p.company_id = %s
"""


class Record(NamedTuple):
    """A change.  text: its JSON, in one line; matches: whether it satisfies each of the statement's conditions."""

    id: int
    text: bytes
    matches: Sequence[bool]


class Page(NamedTuple):
    """Records in the order of their ids.

    through: the last id that the page covers; last, generation: of the company, the last change too.
    """

    records: list[Record]
    through: int
    last: int
    generation: int


class Start(NamedTuple):
    """Where a follower begins.  after: the change before its first one; last, generation: of the company."""

    after: int
    last: int
    generation: int


class Elsewhere(ServiceError):
    """This database has no log of the company: it was deleted, or it lives at another place."""


def condition(catalog: Catalog, filter: str) -> Expression | None:
    """The condition of a filter of /changes; None if it is empty.  Raises QueryError."""
    return log_query(catalog, [("filter", filter)]).filter


async def read_start(connection: Session, company: str, after: Event | None, target: str) -> Start:
    """The change after which a follower begins, `after` or the last one.

    Raises ServiceError: gone if the log no longer has the next change, or `after` itself; Elsewhere.
    """
    row = await (await connection.execute(POSITION, (company,))).fetchone()
    if row is None:
        raise Elsewhere("not_found", f"no such company: {company!r}")
    last, first, generation = row
    if after is None:
        return Start(last, last, generation)
    last = await check(connection, company, Demand(event=after, target=target))
    require_change_kept(after.id + 1, first, target)
    return Start(after.id, last, generation)


async def read_page(connection: Session, catalog: Catalog, company: str, after: int, filter: Expression | None = None) -> Page:
    """Read the changes after an id that satisfy a condition.  Raises ServiceError(gone) if some of them are no longer kept."""
    upper = after + (SPAN if filter else PAGE)
    since, until, first = await find_months(connection, company, after + 1, upper)
    below = Comparison(0, "bool", "le", ID_COLUMN, Constant(0, "int8", str(upper)), False)
    query = _query(catalog, after, (below, filter) if filter else (below,), ())
    page = await fetch(connection, _statement(between(query, since, until), company), after)
    row = await (
        await connection.execute(POSITION, (company,))
    ).fetchone()  # a month may have gone meanwhile, or come back after it
    require_change_kept(after + 1, max(first, row[1] if row else 1), "after")
    through = page.records[-1].id if len(page.records) == PAGE else max(after, min(upper, page.last))
    return page._replace(through=through)


async def tail_statement(
    connection: Session, catalog: Catalog, company: str, after: int, conditions: Sequence[Expression]
) -> Statement:
    """A statement for `fetch`, to be used again with later ids: the next changes, and which conditions each satisfies."""
    since, _, _ = await find_months(connection, company, after + 1, after)
    return _statement(between(_query(catalog, after, (), conditions), since, None), company)


async def fetch(connection: Session, statement: Statement, after: int) -> Page:
    """The page of a statement, after an id."""
    cursor = await connection.raw.execute(statement.text, statement.values_for(str(after)))
    rows: list[tuple[int, int, int | None, str, list[bool]]] = await cursor.fetchall()
    records = [Record(id, text.encode(), matches) for *_, id, text, matches in rows if id is not None]
    return Page(records, records[-1].id if records else after, *rows[0][:2])


def _query(catalog: Catalog, after: int, filters: Sequence[Expression], conditions: Sequence[Expression]) -> Query:
    """The changes after an id, which is the key of the query.  The conditions follow the id in the order."""
    key = Constant(0, "int8", str(min(after, INT8[-1])))
    parts = (Comparison(0, "bool", "gt", ID_COLUMN, key, False), *filters)
    filter = Junction(0, "bool", "and", parts) if filters else parts[0]
    order = tuple(Order(each, False) for each in (ID_COLUMN, *conditions))
    return Query(catalog, CHANGES, filter=filter, order=order, top=PAGE, key=key)


def _statement(query: Query, company: str) -> Statement:
    return sql_statements.statement(query, company, RECORDS, "followed", _compile)


def _compile(select: Select) -> Composed:
    """Rows of (last, generation, id, row, matches); one without id if there is no change."""
    id, *conditions = (select.expressions.compile(order.key, loose=True) for order in select.query.order)
    matches = SQL(", ").join(SQL("({}) is true").format(each) for each in conditions)
    records = SQL("select {id} as id, {row} as row, array[{matches}]::bool[] as matches {source} order by {id} limit {top}").format(
        id=id, row=select.json(), matches=matches, source=select.source(select.query.order), top=select.top
    )
    return SQL(
        "select p.last, p.generation, r.id, r.row, r.matches"
        " from (select coalesce(max(c.last_id), 0), coalesce(max(c.generation), 0) from bds.company_positions as c"
        " where c.company_id = {}) as p (last, generation) left join ({}) as r on true order by r.id"
    ).format(COMPANY, records)
