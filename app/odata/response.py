"""Answers OData requests: whether anything changed, then rows as PostgreSQL made them, inside the envelope of the JSON format.

A row or a small page is one statement.  Everything else streams from a server-side cursor in a snapshot, so that its rows, its
count and its entity tag belong together whatever is written meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from aiohttp import web
from psycopg.sql import SQL

from app.catalog import Catalog
from app.db import Database
from app.errors import ServiceError
from app.language import sql
from app.language.query import COLLECTION, COUNT, REFERENCES, ROW, VALUE, Query, parse_query
from app.language.row import EDM_TYPES, Style
from app.odata.metadata import csdl, service_document
from app.odata.request import Kind, Request, read_request
from app.wire import Streams, matches, send, stream, weak_tag

LONG = 8 << 10  # characters of a URL from which it is parsed beside the event loop
PAGE = 200  # rows up to which a page is one statement
FIRST = 100  # rows before the first byte leaves
BLOCK_ROWS = 4000  # of the blocks that follow, at most
BLOCK_BYTES = 512 << 10  # aimed at
TAKES = {
    Kind.COLLECTION: COLLECTION,
    Kind.COUNT: COUNT,
    Kind.ROW: ROW,
    Kind.PROPERTY: VALUE,
    Kind.VALUE: VALUE,
    Kind.REFERENCE: VALUE,
    Kind.REFERENCES: REFERENCES,
}
TEXTS = {Kind.COUNT: "text/plain", Kind.VALUE: "text/plain;charset=utf-8"}  # in JSON everything else
REFERENCE_CONTEXTS = {Kind.REFERENCE: "$ref", Kind.REFERENCES: "Collection($ref)"}
SEARCH_WARNING = '299 - "$search has no effect"'
DECLARE = SQL("declare rows no scroll cursor for ")
FETCH = SQL("fetch forward {} from rows")
HOST = re.compile(r"[A-Za-z0-9.\-_:\[\]]{1,255}")


@dataclass(frozen=True, slots=True)
class Reading:
    """A query under way, and what its answer needs to know of the request."""

    database: Database
    request: web.Request
    asked: Request
    query: Query
    base: str  # the service root's URL
    model: str  # the catalog's version
    streams: Streams

    @property
    def company(self) -> str:
        return self.asked.company

    @property
    def kind(self) -> Kind:
        return self.asked.resource.kind

    @property
    def style(self) -> Style:
        metadata = self.asked.format.metadata
        if self.kind in REFERENCE_CONTEXTS:  # relative to the context URL, if there is one
            return Style(base=None if metadata == "minimal" else self.base, references=True)
        return Style(numbers_as_strings=self.asked.format.ieee754, base=self.base if metadata == "full" else None)

    @property
    def context(self) -> str:
        """The first member of the JSON object; empty where control information is not wanted."""
        if self.kind in REFERENCE_CONTEXTS:
            return self.context_of(f"{self.base}$metadata#{REFERENCE_CONTEXTS[self.kind]}")
        return self.context_of(context_url(self.base, self.query))

    def context_of(self, url: str) -> str:
        return "" if self.asked.format.metadata == "none" else f'"@odata.context":{json.dumps(url)},'

    @property
    def missing(self) -> ServiceError:
        entity = self.asked.resource.entity
        return ServiceError("not_found", f"{entity.name if entity else 'this'} has no row with this key")

    def headers(self, position: int | None) -> dict[str, str]:
        """Of an answer whose rows are as of a position of the change log.  Raises not_found if there is none: no row to begin."""
        if position is None:
            raise self.missing
        state = time.time_ns() if self.query.volatile else position
        content_type = TEXTS.get(self.kind, self.asked.format.content_type)
        headers = _headers(content_type, weak_tag(self.model, self.asked.path, self.asked.format, state))
        return headers | ({"Warning": SEARCH_WARNING} if self.query.search else {})


async def respond(database: Database, request: web.Request, streams: Streams) -> web.StreamResponse:
    """Answer a request whose sender may read the company.  Raises ServiceError, psycopg.Error, TimeoutError."""
    catalog = database.catalog  # one model from the first byte to the last
    asked = read_request(catalog, request.method, request.rel_url.raw_path_qs, request.headers)
    base = f"{request.scheme}://{_host(request)}/api/odata/{asked.company}/"
    if asked.resource.entity is None:
        return await _document(request, asked, catalog, base)
    parse = partial(parse_query, key=asked.resource.key, member=asked.resource.member, takes=TAKES[asked.resource.kind])
    arguments = catalog, asked.resource.entity, asked.options
    # a long filter takes a quarter of a second, for which others shall not wait
    query = parse(*arguments) if len(asked.path) < LONG else await asyncio.to_thread(parse, *arguments)
    reading = Reading(database, request, asked, query, base, catalog.version, streams)
    if "If-None-Match" in request.headers and not query.volatile and (headers := await _unchanged(reading)):
        return web.Response(status=304, headers=headers)
    if reading.kind is Kind.COUNT:
        return await _count(reading)
    if reading.kind in (Kind.PROPERTY, Kind.VALUE):
        return await _property(reading)
    if query.single:
        return await _row(reading)
    if _is_small(query):
        return await _page(reading)
    return await _collection(reading)


def _is_small(query: Query) -> bool:
    """Whether the answer is a few rows, with nothing inside that may be as long as a collection."""
    if query.groups is not None and not query.groups.keys:
        return True
    return query.top is not None and query.top <= PAGE and all(step.child or not step.many for step in query.expand)


def context_url(base: str, query: Query) -> str:
    """The context URL of a query's rows, as the JSON format demands."""
    if query.groups is not None:
        return f"{base}$metadata#{query.entity.name}({query.groups})"
    members = [*(each.name for each in query.select or ()), *(f"{each.name}()" for each in query.expand)]
    inside = f"({','.join(members)})" if members else ""
    return f"{base}$metadata#{query.entity.name}{inside}" + ("/$entity" if query.single else "")


def _host(request: web.Request) -> str:
    """The host that the client calls us by: it goes into context URLs, so it must be one."""
    if not HOST.fullmatch(request.host):
        raise ServiceError("malformed_request", "expected a host name", target="Host")
    return request.host


def _headers(content_type: str, tag: str) -> dict[str, str]:
    return {"Content-Type": content_type, "ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept, Accept-Encoding"}


async def _document(request: web.Request, asked: Request, catalog: Catalog, base: str) -> web.StreamResponse:
    if asked.resource.kind is Kind.METADATA:
        body, content_type = csdl(catalog), "application/xml"
    else:
        body = service_document(catalog, None if asked.format.metadata == "none" else f"{base}$metadata")
        content_type = asked.format.content_type
    headers = _headers(content_type, weak_tag(body, content_type))
    if matches(request.headers, headers["ETag"]):
        return web.Response(status=304, headers=headers)
    return await send(request, body, headers)


async def _unchanged(reading: Reading) -> dict[str, str] | None:
    """The headers of a 304 if the client has the data as they are now.  Whether a row exists at all, `*` must ask the row."""
    if reading.query.single and reading.request.headers["If-None-Match"].strip() == "*":
        return None
    async with reading.database.session(reading.company) as connection:
        (position,) = await _one(connection, sql.position(reading.query, reading.company))
    headers = reading.headers(position)
    return headers if matches(reading.request.headers, headers["ETag"]) else None


async def _count(reading: Reading) -> web.StreamResponse:
    async with reading.database.session(reading.company) as connection:
        count, position = await _one(connection, sql.count(reading.query, reading.company))
    return await send(reading.request, str(count).encode(), reading.headers(position))


async def _row(reading: Reading) -> web.StreamResponse:
    async with reading.database.session(reading.company) as connection:
        body, _, position = await _one(connection, sql.page(reading.query, reading.company, reading.style))
    if body is None and reading.query.origin is None:
        raise reading.missing
    headers = reading.headers(position)
    if not reading.query.volatile and matches(reading.request.headers, headers["ETag"]):
        return web.Response(status=304, headers=headers)
    if body is None:
        return web.Response(status=204, headers=headers)
    return await send(reading.request, ("{" + reading.context + body[1:]).encode(), headers)


async def _property(reading: Reading) -> web.StreamResponse:
    """The value of a property: as JSON inside an envelope, or as text."""
    style = Style(numbers_as_strings=reading.asked.format.ieee754)
    async with reading.database.session(reading.company) as connection:
        body, _, position = await _one(connection, sql.page(reading.query, reading.company, style))
    if body is None:
        raise reading.missing
    headers = reading.headers(position)
    if matches(reading.request.headers, headers["ETag"]):
        return web.Response(status=304, headers=headers)
    id, _, rest = body[1:-1].partition(",")  # {"id":1,"name":"Hammer"}, or the id alone
    value = (rest or id).partition(":")[2]
    if value == "null":
        return web.Response(status=204, headers=headers)
    if reading.kind is Kind.VALUE:
        text = json.loads(value) if value.startswith('"') else value
        return await send(reading.request, text.encode(), headers)
    return await send(reading.request, _envelope(reading, id.partition(":")[2].strip('"'), value).encode(), headers)


def _envelope(reading: Reading, id: str, value: str) -> str:
    """The JSON object of one property of the row with an id."""
    field = (reading.query.select or ())[-1]
    url = f"{reading.base}$metadata#{reading.query.entity.name}({id})/{field.name}"
    full = reading.asked.format.metadata == "full" and field.type in EDM_TYPES
    type = f'"@odata.type":"#{EDM_TYPES[field.type]}",' if full else ""
    return f'{{{reading.context_of(url)}{type}"value":{value}}}'


async def _page(reading: Reading) -> web.StreamResponse:
    async with reading.database.session(reading.company) as connection:
        body, count, position = await _one(connection, sql.page(reading.query, reading.company, reading.style))
    return await send(reading.request, _head(reading, count) + (body or "").encode() + b"]}", reading.headers(position))


async def _collection(reading: Reading) -> web.StreamResponse:
    """Stream; what fits into the first block is sent whole."""
    async with reading.streams.place(), reading.database.snapshot(reading.company) as connection:
        count = None
        if reading.query.count:
            count, position = await _one(connection, sql.count(reading.query, reading.company))
        else:
            (position,) = await _one(connection, sql.position(reading.query, reading.company))
        headers = reading.headers(position)
        if reading.request.method == "HEAD":
            return web.Response(headers=headers)
        statement = sql.rows(reading.query, reading.company, reading.style)
        await connection.execute(DECLARE + statement.text, statement.parameters)
        size = 1 if any(step.many for step in reading.query.expand) else FIRST  # a row with others inside may be as long as many
        first = await _fetch(connection, size)
        start = _head(reading, count) + b",".join(first)
        if len(first) == size:
            # the client has begun to get its answer: from now on it sets the pace
            await connection.execute("set local statement_timeout = 0")
            return await stream(reading.request, _blocks(connection, start, size), headers, reading.streams.stall)
    return await send(reading.request, start + b"]}", headers)


def _head(reading: Reading, count: int | None) -> bytes:
    total = "" if count is None else f'"@odata.count":{count},'
    return f'{{{reading.context}{total}"value":['.encode()


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
    """The next rows' JSON as it came over the wire: decoding it would only cost."""
    cursor = await connection.execute(FETCH.format(size), prepare=False)
    result = cursor.pgresult
    assert result is not None
    return [result.get_value(row, 0) or b"" for row in range(result.ntuples)]


async def _one(connection: psycopg.AsyncConnection[Any], statement: sql.Statement) -> tuple[Any, ...]:
    row = await (await connection.execute(statement.text, statement.parameters)).fetchone()
    assert row is not None  # these statements give one row whatever the data
    return tuple(row)
