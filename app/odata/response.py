"""Answers OData requests: runs the statements of a plan, and wraps the rows in the JSON format's envelope.

A row or a small page is one statement.  A larger collection streams from a server-side cursor in one snapshot, so that its rows,
its count and its entity tag agree while others write.  PostgreSQL's JSON is sent as it arrives, without decoding.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace
from urllib.parse import unquote

import psycopg
from aiohttp import web
from psycopg.pq.abc import PGresult

from app.database.database import Database
from app.database.past import Moment, in_order, open_past, read_past, reading_past
from app.database.pool.direct import DirectConnection
from app.database.pool.session import Session, read_row_on
from app.database.servers.reads import require_position
from app.errors import QueryError
from app.logs import count_rows
from app.odata.delta import open_range
from app.odata.plan import Plan, get_plan
from app.odata.request import Kind
from app.query.check.delta import Delta, read_mark
from app.query.check.paging import write_token
from app.query.sql.delta import page_size
from app.query.sql.difference import IN_ORDER
from app.query.sql.parameters import Statement
from app.query.sql.rows import EDM_TYPES
from app.wire.answers import Answer, matches, send
from app.wire.streams import Streams, stream
from app.wire.urls import MAX_URL

FIRST_ROWS = 100  # rows of a stream's first block, after which the first byte is sent
BLOCK_ROWS = 4000  # rows of a later block, at most
BLOCK_BYTES = 256 << 10  # size of a later block, aimed at
DECLARE = b"declare rows no scroll cursor for "
PAGE_OPTIONS = ("$top", "$skip", "$skiptoken", "$deltatoken")
FETCH = b"fetch forward %d from rows"


@dataclass(frozen=True, slots=True)
class Reading:
    """A request that is being answered.

    key: the key in its path, if it may differ from the plan's; connection: the snapshot in which it is read with others, if it is.
    """

    database: Database
    request: web.Request
    plan: Plan
    key: str | None
    streams: Streams
    connection: Session | None = None

    def headers(self, position: bytes | None) -> dict[str, str]:
        """The headers of an answer as of a position.  Raises ServiceError(not_found), as Plan.headers does."""
        return self.plan.headers(self.request.rel_url.raw_path_qs, position)

    @property
    def is_for_any(self) -> bool:
        """Whether If-None-Match is *, which matches whatever exists."""
        return self.request.headers.get("If-None-Match", "").strip() == "*"

    def has(self, headers: dict[str, str]) -> bool:
        """Whether the client has the data of an answer with these headers."""
        return not self.plan.query.volatile and matches(self.request.headers, headers["ETag"])

    async def fetch_row(self, statement: Statement, *, share: bool = False) -> list[bytes | None]:
        """Run a statement that gives one row, on a connection of its own unless the reading has one.

        share: whether a run of the statement may answer several requests.
        """
        if self.connection is not None:
            return await self.fetch_row_on(self.connection, statement)
        moment = self.plan.request.moment
        if moment is None:
            return await self.database.read(
                self.plan.company, statement.text, statement.values_for(self.key), prepare=statement.prepare, share=share
            )
        require_position(moment.version or 0)
        company = self.plan.company
        async with self.database.session(company) as connection:
            values = statement.values_for(self.key)
            return await read_past(connection, company, moment, statement.text, values, is_steady=statement.is_steady)

    async def fetch_row_on(self, connection: Session, statement: Statement) -> list[bytes | None]:
        """Run a statement that gives one row.  Returns its columns as PostgreSQL sent them, without decoding."""
        return await read_row_on(connection, statement.text, statement.values_for(self.key), prepare=statement.prepare)


async def respond(database: Database, request: web.Request, streams: Streams) -> web.StreamResponse:
    """Answer a request of an authorized client.  Raises ServiceError, psycopg.Error, TimeoutError."""
    # one catalog for the whole answer
    plan, key = await get_plan(database.catalog, request, extended=database.config.odata_extended)
    reading = Reading(database, request, plan, key, streams)
    await database.check_generation(plan.company, plan.request.generation)
    if not plan.is_stream:
        return await answer(reading)
    return await unchanged(reading) or await _stream(reading)


async def answer(reading: Reading) -> Answer:
    """The answer to a request for anything but a stream."""
    plan, request = reading.plan, reading.request
    if plan.delta is not None:
        return await _delta(reading)
    if plan.is_document:
        if plan.request.moment and reading.connection is None:
            async with (
                reading.database.session(plan.company) as connection,
                reading_past(connection, plan.company, plan.request.moment),
            ):
                pass
        return await _document(request, plan)
    if (same := await unchanged(reading)) is not None:
        return same
    if plan.kind is Kind.COUNT:
        return await _count(reading)
    if plan.kind in (Kind.PROPERTY, Kind.VALUE):
        return await _property(reading)
    if plan.query.single:
        return await _row(reading)
    return await _page(reading)


async def _document(request: web.Request, plan: Plan) -> Answer:
    headers = plan.document_headers()
    if matches(request.headers, headers["ETag"]):
        return Answer(304, headers)
    return await send(request, plan.document, headers)


async def unchanged(reading: Reading) -> Answer | None:
    """The answer 304 if the client has the current data, otherwise None.

    For one row `*` is not decided here: it matches only if the row exists.
    """
    query = reading.plan.query
    if "If-None-Match" not in reading.request.headers or query.volatile or (query.single and reading.is_for_any):
        return None
    (position,) = await reading.fetch_row(reading.plan.position, share=True)
    headers = reading.headers(position)
    return Answer(304, headers) if reading.has(headers) else None


async def _count(reading: Reading) -> Answer:
    count, position = await reading.fetch_row(reading.plan.statement)
    return await send(reading.request, count or b"", reading.headers(position))


async def _row(reading: Reading) -> Answer:
    plan = reading.plan
    body, _, position = await reading.fetch_row(plan.statement)
    if body is None and plan.query.origin is None:
        raise plan.missing
    headers = reading.headers(position)
    if reading.has(headers) and not (body is None and reading.is_for_any):
        return Answer(304, headers)
    if body is None:
        return Answer(204, headers)
    count_rows(1)
    context = plan.context if body != b"{}" else plan.context.rstrip(b",")
    return await send(reading.request, b"{%b%b" % (context, body[1:]), headers)


async def _property(reading: Reading) -> Answer:
    """Answer with the value of a property: JSON in an envelope, or text for /$value."""
    body, _, position = await reading.fetch_row(reading.plan.statement)
    if body is None:
        raise reading.plan.missing
    headers = reading.headers(position)
    if reading.has(headers):
        return Answer(304, headers)
    id, _, rest = body[1:-1].partition(b",")  # {"id":1,"name":"Hammer"}, or the id alone
    value = (rest or id).partition(b":")[2]
    count_rows(1)
    if value == b"null":
        return Answer(204, headers)
    if reading.plan.kind is Kind.VALUE:
        text = json.loads(value).encode() if value.startswith(b'"') else value
        return await send(reading.request, text, headers)
    return await send(reading.request, _envelope(reading.plan, id.partition(b":")[2].strip(b'"').decode(), value), headers)


def _envelope(plan: Plan, id: str, value: bytes) -> bytes:
    """The JSON object of one property of the row with an id."""
    field = (plan.query.select or ())[-1]
    context = plan.context_of(f"{plan.base}$metadata#{plan.query.entity.name}({id})/{field.name}")
    full = plan.request.format.metadata == "full" and field.type in EDM_TYPES
    type = f'"@odata.type":"#{EDM_TYPES[field.type]}",' if full else ""
    return b'{%b%b"value":%b}' % (context, type.encode(), value)


async def _page(reading: Reading) -> Answer:
    try:
        body, count, position, rows, *keys = await reading.fetch_row(reading.plan.statement)
    except psycopg.DataError:
        if reading.plan.query.after is None:
            raise
        raise QueryError("expected the $skiptoken of an @odata.nextLink", target="$skiptoken") from None  # a value was changed
    count_rows(int(rows or 0))
    end = _end(reading, position) if not keys or keys[0] is None else _link("next", _next_link(reading, keys[0], position))
    return await send(reading.request, b"%b%b%b" % (_head(reading.plan, count), body or b"", end), reading.headers(position))


def _next_link(reading: Reading, keys: bytes, position: bytes | None) -> str:
    """The URL of the next page: the same query after a row with these sort keys, with what remains of $top and $skip."""
    query = reading.plan.query
    assert query.page is not None
    mark = _mark(reading, position)[0] if query.tracks and position is not None else None
    top = [] if query.top is None else [f"$top={query.top - query.page}"]
    return _url(reading, *top, f"$skiptoken={write_token(query.page, keys, mark)}", root=_root(reading, position))


def _root(reading: Reading, position: bytes | None) -> str | None:
    """The company with the id of the version that its name meant for a page as of a position: a name may move; None for others."""
    moment = reading.plan.request.moment
    if moment is None or moment.name is None or position is None:
        return None
    version = position.decode().split(".")[-2]  # see Select.position
    return f"{reading.plan.company}@{version}"


def _url(reading: Reading, *options: str, root: str | None = None) -> str:
    """The URL of the same query with other options in place of those for a page.  root: in place of the company and its version.

    Raises QueryError if it is longer than a URL may be: the sort keys of a page's last row are in it.
    """
    path, _, given = reading.request.rel_url.raw_path_qs.partition("?")
    if root is not None:
        path = "/".join([*path.split("/")[:3], root, *path.split("/")[4:]])
    kept = [pair for pair in given.split("&") if pair and unquote(pair.partition("=")[0]) not in PAGE_OPTIONS]
    target = f"{path}?{'&'.join([*kept, *options])}"
    if len(target) > MAX_URL:
        message = f"the next link would have {len(target):,} bytes, a URL has at most {MAX_URL:,}: order by shorter values"
        raise QueryError(message, target="$orderby" if reading.plan.query.order else None)
    scheme, host = reading.plan.base.split("/")[0], reading.plan.base.split("/")[2]
    return f"{scheme}//{host}{target}"


def _end(reading: Reading, position: bytes | None) -> bytes:
    """The end of a collection's JSON object, with the delta link as of a position if the query tracks changes."""
    if not reading.plan.query.tracks or position is None:
        return b"]}"
    first, last = _mark(reading, position)
    return _link("delta", _url(reading, f"$deltatoken={replace(first, read=last.since).token}"))


def _link(kind: str, url: str) -> bytes:
    return b'],"@odata.%b":%b}' % (f"{kind}Link".encode(), json.dumps(url).encode())


def _mark(reading: Reading, position: bytes) -> tuple[Delta, Delta]:
    """The states of the first page of a tracked query and of this one."""
    query = reading.plan.query
    last = read_mark(position, query.entity)
    return query.mark or last, last


async def _delta(reading: Reading) -> Answer:
    """Answer with a page of what changed since a delta link was made."""
    delta, company = reading.plan.delta, reading.plan.company
    assert delta is not None
    if reading.connection is not None:
        return await _changes(reading, delta, reading.connection)
    require_position(max(delta.read, delta.until or 0))
    async with reading.database.session(company) as connection, connection.transaction():
        return await _changes(reading, delta, connection)


async def _changes(reading: Reading, delta: Delta, connection: Session) -> Answer:
    plan = reading.plan
    since, until = await open_range(connection, plan.company, plan.query.entity, delta)
    headers = reading.headers(f"{since.version} {until.state}".encode())
    if reading.has(headers):
        return Answer(304, headers)
    await connection.execute(IN_ORDER)

    async def read(after: int, upto: int) -> list[tuple[int, str]]:
        statement = plan.changes(after, upto)
        await connection.raw.execute(statement.text, statement.values, prepare=False)
        return await connection.raw.fetchall()

    size = page_size(plan.query)
    with until.timely():
        rows = await in_order(connection, max(since.version, delta.after or 0), until.version, size + 1, read)
    if len(rows) > size:
        kind, following = "next", delta.next(until.version, rows[size - 1][0], plan.query.page)
    else:
        kind, following = "delta", delta.then(until.version)
    count_rows(min(len(rows), size))
    body = ",".join(text for _, text in rows[:size]).encode()
    end = _link(kind, _url(reading, f"$deltatoken={following.token}"))
    return await send(reading.request, _head(plan, None) + body + end, headers)


async def _stream(reading: Reading) -> web.StreamResponse:
    """Stream a collection; send it whole if it fits into the first block."""
    plan = reading.plan
    async with contextlib.AsyncExitStack() as held:
        await held.enter_async_context(reading.streams.slot())
        connection = await held.enter_async_context(open_snapshot(reading.database, plan.company, plan.request.moment))
        headers, start, blocks = await open_rows(reading, connection)
        if blocks is not None:
            return await stream(reading.request, blocks, headers, reading.streams, held)
    return web.Response(headers=headers) if start is None else await send(reading.request, start, headers)


@contextlib.asynccontextmanager
async def open_snapshot(database: Database, company: str, moment: Moment | None) -> AsyncIterator[Session]:
    """A connection with one snapshot for all of its statements, as of a moment unless it is None.  Raises ServiceError."""
    if moment is not None:
        require_position(moment.version or 0)
    async with database.snapshot(company) as connection:
        if moment is None:
            yield connection
            return
        past = await open_past(connection, company, moment)
        with past.timely():
            yield connection


async def open_rows(
    reading: Reading, connection: Session
) -> tuple[dict[str, str], bytes | None, AsyncGenerator[bytes, None] | None]:
    """Read the first rows of a collection.

    Returns its headers; its whole body if that fits into the first block, None for HEAD; else its body in blocks.
    """
    plan = reading.plan
    *counted, position = await reading.fetch_row_on(connection, plan.heading)
    count = counted[0] if counted else None
    headers = reading.headers(position)
    if reading.request.method == "HEAD":
        return headers, None, None
    await connection.raw.execute(
        DECLARE + plan.statement.text, plan.statement.values_for(reading.key), prepare=None if plan.statement.prepare else False
    )
    # a row with a collection inside can be long
    size = 1 if any(expansion.step.many for _, expansion in plan.query.expansions) else FIRST_ROWS
    await connection.raw.execute(FETCH % size, prepare=False)
    result = connection.raw.pgresult
    assert result is not None
    first = _rows(result)
    count_rows(len(first))
    start = _head(plan, count) + b",".join(first)
    end = _end(reading, position)
    if len(first) < size:
        return headers, start + end, None
    # from here on the client sets the pace, so that the query may take longer
    await connection.execute("set local statement_timeout = 0")
    return headers, b"", _blocks(connection, start, size, end)


def _head(plan: Plan, count: bytes | None) -> bytes:
    """The start of a collection's JSON object."""
    written = b'"%b"' if plan.request.format.ieee754 else b"%b"  # the count is an Int64 too
    total = b"" if count is None else b'"@odata.count":%b,' % (written % count)
    return b'{%b%b"value":[' % (plan.context, total)


async def _blocks(connection: Session, start: bytes, size: int, end: bytes) -> AsyncGenerator[bytes, None]:
    """Yield `start` (the envelope's start and the first `size` rows), then the other rows in blocks, then the envelope's `end`.

    The next block is read while one is sent.
    """
    direct = DirectConnection(connection)
    try:
        coming = direct.start(FETCH % size)
        yield start
        while rows := _rows(await direct.result(coming)):
            block = b",".join([b"", *rows])
            size = max(1, min(BLOCK_ROWS, size * 4, BLOCK_BYTES * len(rows) // len(block)))
            coming = direct.start(FETCH % size)
            count_rows(len(rows))
            yield block
        yield end
    finally:
        try:
            await direct.cancel()
        finally:
            direct.detach()


def _rows(result: PGresult) -> list[bytes]:
    """The JSON of the rows of a block."""
    return [result.get_value(row, 0) or b"" for row in range(result.ntuples)]
