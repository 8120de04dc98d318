"""Answers OData requests: whether anything changed, then rows as PostgreSQL made them, inside the envelope of the JSON format.

A row or a small page is one statement.  Everything else streams from a server-side cursor in a snapshot, so that its rows, its
count and its entity tag belong together whatever is written meanwhile.  What PostgreSQL wrote is sent as the bytes that came.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import psycopg
from aiohttp import web
from psycopg.sql import SQL

from app.database.database import Database
from app.database.pools import Session
from app.odata.plan import Plan, find_plan
from app.odata.request import Kind
from app.query.query import Query
from app.query.sql_rows import EDM_TYPES
from app.query.sql_select import Ready
from app.wire.answers import Streams, matches, send, stream

PAGE = 200  # rows up to which a page is one statement
FIRST = 100  # rows before the first byte leaves
BLOCK_ROWS = 4000  # of the blocks that follow, at most
BLOCK_BYTES = 256 << 10  # aimed at
DECLARE = b"declare rows no scroll cursor for "
FETCH = SQL("fetch forward {} from rows")


@dataclass(frozen=True, slots=True)
class Reading:
    """A query under way."""

    database: Database
    request: web.Request
    plan: Plan
    key: str | None  # instead of the one with which the plan was made
    streams: Streams

    def headers(self, position: bytes | None) -> dict[str, str]:
        """Of an answer as of a position of the change log.  Raises not_found if there is none."""
        return self.plan.headers(self.request.rel_url.raw_path_qs, position)

    async def small(self, statement: Ready) -> list[bytes | None]:
        """The one row of a statement."""
        async with self.database.session(self.plan.company) as connection:
            return await self.one(connection, statement)

    async def one(self, connection: Session, statement: Ready) -> list[bytes | None]:
        """The one row of a statement, as it came over the wire: decoding it would only cost."""
        await connection.raw.execute(statement.text, statement.arguments(self.key))
        result = connection.raw.pgresult
        assert result is not None
        return [result.get_value(0, column) for column in range(result.nfields)]


async def respond(database: Database, request: web.Request, streams: Streams) -> web.StreamResponse:
    """Answer a request whose sender may read the company.  Raises ServiceError, psycopg.Error, TimeoutError."""
    plan, key = await find_plan(database.catalog, request)  # one model from the first byte to the last
    if plan.is_document:
        return await _document(request, plan)
    reading = Reading(database, request, plan, key, streams)
    if "If-None-Match" in request.headers and not plan.query.volatile and (headers := await _unchanged(reading)):
        return web.Response(status=304, headers=headers)
    if plan.kind is Kind.COUNT:
        return await _count(reading)
    if plan.kind in (Kind.PROPERTY, Kind.VALUE):
        return await _property(reading)
    if plan.query.single:
        return await _row(reading)
    if _is_small(plan.query):
        return await _page(reading)
    return await _collection(reading)


def _is_small(query: Query) -> bool:
    """Whether the answer is a few rows, with nothing inside that may be as long as a collection."""
    if query.groups is not None and not query.groups.keys:
        return True
    return query.top is not None and query.top <= PAGE and all(step.child or not step.many for step in query.expand)


async def _document(request: web.Request, plan: Plan) -> web.StreamResponse:
    headers = plan.document_headers()
    if matches(request.headers, headers["ETag"]):
        return web.Response(status=304, headers=headers)
    return await send(request, plan.document, headers)


async def _unchanged(reading: Reading) -> dict[str, str] | None:
    """The headers of a 304 if the client has the data as they are now.  Whether a row exists at all, `*` must ask the row."""
    if reading.plan.query.single and reading.request.headers["If-None-Match"].strip() == "*":
        return None
    (position,) = await reading.small(reading.plan.position)
    headers = reading.headers(position)
    return headers if matches(reading.request.headers, headers["ETag"]) else None


async def _count(reading: Reading) -> web.StreamResponse:
    count, position = await reading.small(reading.plan.count)
    return await send(reading.request, count or b"", reading.headers(position))


async def _row(reading: Reading) -> web.StreamResponse:
    plan, request = reading.plan, reading.request
    body, _, position = await reading.small(plan.page)
    if body is None and plan.query.origin is None:
        raise plan.missing
    headers = reading.headers(position)
    if "If-None-Match" in request.headers and not plan.query.volatile and matches(request.headers, headers["ETag"]):
        return web.Response(status=304, headers=headers)
    if body is None:
        return web.Response(status=204, headers=headers)
    return await send(request, b"{%b%b" % (plan.context, body[1:]), headers)


async def _property(reading: Reading) -> web.StreamResponse:
    """The value of a property: as JSON inside an envelope, or as text."""
    body, _, position = await reading.small(reading.plan.page)
    if body is None:
        raise reading.plan.missing
    headers = reading.headers(position)
    if matches(reading.request.headers, headers["ETag"]):
        return web.Response(status=304, headers=headers)
    id, _, rest = body[1:-1].partition(b",")  # {"id":1,"name":"Hammer"}, or the id alone
    value = (rest or id).partition(b":")[2]
    if value == b"null":
        return web.Response(status=204, headers=headers)
    if reading.plan.kind is Kind.VALUE:
        text = json.loads(value).encode() if value.startswith(b'"') else value
        return await send(reading.request, text, headers)
    return await send(reading.request, _envelope(reading.plan, id.partition(b":")[2].strip(b'"').decode(), value), headers)


def _envelope(plan: Plan, id: str, value: bytes) -> bytes:
    """The JSON object of one property of the row with an id."""
    field = (plan.query.select or ())[-1]
    context = plan.context_of(f"{plan.base}$metadata#{plan.query.entity.name}({id})/{field.name}")
    full = plan.asked.format.metadata == "full" and field.type in EDM_TYPES
    type = f'"@odata.type":"#{EDM_TYPES[field.type]}",' if full else ""
    return b'{%b%b"value":%b}' % (context, type.encode(), value)


async def _page(reading: Reading) -> web.StreamResponse:
    body, count, position = await reading.small(reading.plan.page)
    return await send(reading.request, b"%b%b]}" % (_head(reading.plan, count), body or b""), reading.headers(position))


async def _collection(reading: Reading) -> web.StreamResponse:
    """Stream; what fits into the first block is sent whole."""
    plan = reading.plan
    async with reading.streams.slot(), reading.database.snapshot(plan.company) as connection:
        count = None
        if plan.query.count:
            count, position = await reading.one(connection, plan.count)
        else:
            (position,) = await reading.one(connection, plan.position)
        headers = reading.headers(position)
        if reading.request.method == "HEAD":
            return web.Response(headers=headers)
        await connection.raw.execute(DECLARE + plan.rows.text, plan.rows.arguments(reading.key))
        size = 1 if any(step.many for step in plan.query.expand) else FIRST  # a row with others inside may be as long as many
        first = await _fetch(connection, size)
        start = _head(plan, count) + b",".join(first)
        if len(first) == size:
            # the client has begun to get its answer: from now on it sets the pace
            await connection.execute("set local statement_timeout = 0")
            return await stream(reading.request, _blocks(connection, start, size), headers, reading.streams.stall)
    return await send(reading.request, start + b"]}", headers)


def _head(plan: Plan, count: bytes | None) -> bytes:
    written = b'"%b"' if plan.asked.format.ieee754 else b"%b"  # it is an Int64 too
    total = b"" if count is None else b'"@odata.count":%b,' % (written % count)
    return b'{%b%b"value":[' % (plan.context, total)


async def _blocks(connection: psycopg.AsyncConnection[Any], start: bytes, size: int) -> AsyncGenerator[bytes, None]:
    """The envelope's start with the first rows, `size` of them, the rest of the rows, the envelope's end."""
    coming = asyncio.create_task(_fetch(connection, size))
    try:
        yield start
        while rows := await coming:
            block = b"," + b",".join(rows)
            size = max(1, min(BLOCK_ROWS, size * 4, BLOCK_BYTES * len(rows) // len(block)))
            coming = asyncio.create_task(_fetch(connection, size))
            await asyncio.sleep(0)  # the database makes the next block while the client takes this one
            yield block
        yield b"]}"
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


async def _fetch(connection: psycopg.AsyncConnection[Any], size: int) -> list[bytes]:
    """The next rows' JSON."""
    cursor = await connection.execute(FETCH.format(size), prepare=False)
    result = cursor.pgresult
    assert result is not None
    return [result.get_value(row, 0) or b"" for row in range(result.ntuples)]
