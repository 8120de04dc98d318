"""Reads under /c: the rows of an entity, one row.  Each is one statement, with the SQL-like filter.

A reader that continues after the last `updatedAt` of a page misses no row: rows with the same timestamp are never split between two
pages.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from app.changes.parameters import by_name, read_limit, split
from app.database.catalog import Catalog, Entity
from app.database.database import Database
from app.database.past import Moment, model_of, read_past, reading_past
from app.database.pool.session import Row, Session
from app.database.servers.reads import require_generation, require_position
from app.errors import QueryError, about
from app.query.check.moments import moment_of
from app.query.check.query import Query
from app.query.check.tree import Column, Comparison, Constant, Expression, Order
from app.query.check.where import WhereChecker
from app.query.parse import where as parse_where
from app.query.sql import statements as sql_statements
from app.query.sql.cache import Cache
from app.query.sql.parameters import Statement
from app.query.sql.rows import NESTED, Style
from app.types import TYPES
from app.types.literals import INT8

DEFAULT_LIMIT = 1_000
MOMENT = ("version", "at", "generation")

_ID = re.compile(r"0|-?[1-9]\d{0,18}", re.ASCII)


class Answer(NamedTuple):
    """The answer to a read.

    body: JSON; None if there is no such row.
    position: the position of the rows that were read; for the change log, the id of the company's last change.
    rows: how many it has.
    generation: of the company; None if it was not read.  first, begun: only for the change log: the first change that is kept, and
    when the generation began.
    """

    body: bytes | None
    position: int | str
    rows: int
    generation: int | None = None
    first: int = 1
    begun: str = ""


async def read_rows(database: Database, company: str, entity: Entity, params: Sequence[tuple[str, str]]) -> Answer:
    """Read `{"data": [rows], "hasMore": bool}` by filter, sort and limit, now or as of `version` or `at`.  Raises QueryError."""
    moment, rest = split_moment(params)
    catalog = model_of(database.catalog) if moment else database.catalog
    query = list_query(catalog, catalog[entity.name], rest, others=(*MOMENT, "since"))
    return listed(await _fetch(database, company, moment, listing(query, company, NESTED)))


def split_moment(params: Sequence[tuple[str, str]]) -> tuple[Moment | None, list[tuple[str, str]]]:
    """The moment that parameters name, and the other parameters.  Raises QueryError."""
    given, rest = split(params, MOMENT)
    moment = moment_of(given)
    require_generation(given.get("generation"))
    return moment, rest


@asynccontextmanager
async def reading(database: Database, company: str, moment: Moment | None) -> AsyncIterator[Session]:
    """A reader's session, for the present or a moment of the past.  Raises ServiceError for a moment to come or no longer kept."""
    if moment is None:
        async with database.session(company) as connection:
            yield connection
        return
    require_position(moment.version or 0)
    async with database.session(company) as connection, reading_past(connection, company, moment):
        yield connection


async def read_row(database: Database, company: str, entity: Entity, id: str, params: Sequence[tuple[str, str]] = ()) -> Answer:
    """Read one row by its id or a lookup, as the path has it; now or as of `version` or `at`.  Raises QueryError."""
    moment, rest = split_moment(params)
    for name, _ in rest:
        raise QueryError(f"expected version, at or generation, got {name}", target=name)
    catalog = model_of(database.catalog) if moment else database.catalog
    statement = _row_statement(catalog, catalog[entity.name], company, id)
    if statement is None:
        if moment is not None:
            async with reading(database, company, moment):  # an error of the moment comes first
                pass
        return Answer(None, 0, 0)
    body, _, read = await _fetch(database, company, moment, statement, id)
    position, generation = _position(read)
    return Answer(body, position, 1, generation)


_statements: Cache[Statement] = Cache(1_000)  # for a row by its id; one serves all ids


def _row_statement(catalog: Catalog, entity: Entity, company: str, text: str) -> Statement | None:
    """The statement for a row by its id, for any id, or for a row by a lookup; None if no row can match.  Raises QueryError."""

    def make() -> Statement:
        key = row_key(catalog, entity, text)
        constant = key.right if isinstance(key, Comparison) and isinstance(key.right, Constant) and is_id else None
        return sql_statements.page(Query(catalog, entity, filter=key, single=True, nested=True, key=constant), company, NESTED)

    is_id = read_id(text) is not None
    if is_id:
        return _statements.get((catalog.version, entity.name, company), make)
    return make() if row_key(catalog, entity, text) is not None else None


def read_id(text: str) -> int | None:
    """The id that a text is; None if it is none."""
    return int(text) if _ID.fullmatch(text) and int(text) in INT8 else None


def named_id(text: str) -> int | None:
    """The id by which a text names a row, `12` or `id:12`; None if it is another lookup, or no id."""
    kind, colon, value = text.partition(":")
    return read_id(value) if colon and kind.strip().lower() == "id" else read_id(text)


def row_key(catalog: Catalog, entity: Entity, text: str) -> Expression | None:
    """The condition for the row with an id or a lookup, given as text; None if no row can match.

    Raises QueryError for a lookup by a field that is not unique.
    """
    kind, colon, value = text.partition(":")
    if not colon:
        kind, value = "id", text
    if kind == "id" and read_id(value) is None:
        return None
    checker = WhereChecker(catalog, entity)
    keys = {each.name.lower(): each for each in (entity.fields["id"], *entity.alternate_keys)}
    field = keys.get(kind.strip().lower())
    if field is None:
        raise QueryError(f"{kind!r} is not a lookup of {entity.name}: expected one of {', '.join(f.name for f in keys.values())}")
    try:
        return checker.compare(0, "eq", Column(0, field.type, (), field), Constant(0, *TYPES[field.type].literal(value)))
    except ValueError:
        return None


def list_query(
    catalog: Catalog,
    entity: Entity,
    params: Sequence[tuple[str, str]],
    checks: type[WhereChecker] = WhereChecker,
    others: Sequence[str] = (),
) -> Query:
    """Check filter, sort and limit.  Raises QueryError, also for any other parameter, which names `others`, too."""
    given = by_name(params, ("filter", "sort", "limit"), others)
    checker = checks(catalog, entity)
    limit = read_limit(given.get("limit"), DEFAULT_LIMIT)
    with about("filter"):
        filter = _filter(checker, given.get("filter", ""))
    with about("sort"):
        order = checker.order(parse_where.parse_sort(given["sort"])) if "sort" in given else ()
    return Query(catalog, entity, filter=filter, order=order, top=limit, nested=True)


def _filter(checker: WhereChecker, text: str) -> Expression | None:
    node = parse_where.parse_filter(text)
    return checker.condition(node) if node else None


def _by_time(order: tuple[Order, ...]) -> bool:
    """Whether a reader can continue after the last row's updatedAt: the rows are sorted by it first, ascending."""
    if not order or order[0].descending:
        return False
    key = order[0].key
    return isinstance(key, Column) and key.field.name == "updatedAt"


def listing(query: Query, company: str, style: Style) -> Statement:
    """The statement for a list."""
    return sql_statements.listing(query, company, style, ties=_by_time(query.order))


def listed(row: Row) -> Answer:
    """The answer from the row that the statement for a list gives."""
    body, more, read, rows = row
    position, generation = _position(read)
    data = b'{"data":[%b],"hasMore":%b}' % (body or b"", b"true" if more == b"t" else b"false")
    return Answer(data, position, int(rows or 0), generation)


def _position(column: bytes | None) -> tuple[int | str, int | None]:
    """The position of data: a text that begins with the company's generation, for the change log a number; and that generation."""
    text = (column or b"0").decode()
    return (int(text), None) if text.isdigit() else (text, int(text.partition(".")[0]))


async def _fetch(database: Database, company: str, moment: Moment | None, statement: Statement, key: str | None = None) -> Row:
    """The one row of a statement over the present, or over a moment of the past.  key: as of Statement.values_for."""
    values = statement.values_for(key)
    if moment is None:
        return await database.read(company, statement.text, values)
    require_position(moment.version or 0)
    async with database.session(company) as connection:
        return await read_past(connection, company, moment, statement.text, values, is_steady=statement.is_steady)
