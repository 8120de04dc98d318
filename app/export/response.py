"""Answers a request for an export: reads in one snapshot, writes in the format, sends as it comes.

What is short is sent whole, with its length.  All else is sent in pieces, and whatever fails then cuts the connection without the
last piece, so that no half export looks whole.
"""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from aiohttp import web
from psycopg import AsyncConnection

from app.auth import Identity
from app.database.database import Database
from app.errors import ServiceError
from app.export import custom, to_csv, to_excel, to_html, to_json, to_pdf, to_xml
from app.export.custom import Reversed, Template
from app.export.read import Reader
from app.export.request import SCHEMA, Asked, check_export, read_parameters, read_request
from app.export.shape import plan_lines
from app.wire.answers import Streams, send, stream
from app.wire.urls import decode_query

# Of a format: the media type, the file's extension.
TYPES = {
    "json": ("application/json", "json"),
    "xml": ("application/xml", "xml"),
    "csv": ("text/csv; charset=utf-8; header=present", "csv"),
    "excel": ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
    "pdf": ("application/pdf", "pdf"),
    "html": ("text/html; charset=utf-8", "html"),
    SCHEMA: ("application/xml", "xsd"),
}
COMPRESSED = ("excel", "pdf")  # by themselves
WHOLE = 64 << 10  # bytes up to which an answer is sent with its length
SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True, slots=True)
class Format:
    """What an export is written as."""

    media_type: str
    extension: str
    mapper: Template | Reversed | None = None


async def respond(
    database: Database, request: web.Request, streams: Streams, identity: Identity, company: str | None, entity: str
) -> web.StreamResponse:
    """Answer a request of somebody known for an entity of a company, which may be named by a parameter instead."""
    given = dict(wide := decode_query(request.rel_url.raw_path_qs))
    company = choose_company(identity, company, given.get("companyId"))
    catalog = database.catalog  # one model from the first byte to the last
    if entity not in catalog:
        raise ServiceError("not_found", f"there is no entity {entity}")
    given = read_parameters(wide)
    check_export(given)
    asked = read_request(catalog, catalog[entity], company, given)
    async with database.session(company) as named:
        format = await find_format(named, asked)
    if asked.format == SCHEMA:
        return await send(request, to_xml.schema(asked), headers(asked, format))
    if request.method == "HEAD":
        if asked.format == "pdf":
            async with _reading(database, streams, asked) as reader:
                await to_pdf.check(asked, reader, plan_lines(asked.query))
        return web.Response(headers=headers(asked, format))
    if asked.format == "pdf":
        return await _answer(request, asked, format, _pages(database, streams, asked), streams.stall)
    url = schema_url(f"{request.scheme}://{request.host}{request.path}", given)
    async with AsyncExitStack() as held:
        if isinstance(format.mapper, Template):
            await held.enter_async_context(streams.process_slot())
        reader = await held.enter_async_context(_reading(database, streams, asked))
        return await _answer(request, asked, format, write(asked, reader, format, url), streams.stall)


@asynccontextmanager
async def _reading(database: Database, streams: Streams, asked: Asked) -> AsyncIterator[Reader]:
    """What reads the rows, all as of one moment."""
    async with streams.slot(), database.snapshot(asked.company) as connection:
        await connection.execute("set local statement_timeout = 0")  # the reader has its own, to the first rows
        yield Reader(connection, database.config.statement_timeout)


async def _pages(database: Database, streams: Streams, asked: Asked) -> AsyncGenerator[bytes, None]:
    """A PDF: laid out when the connection has been given back, sent when its process has ended."""
    async with streams.process_slot():
        async with _reading(database, streams, asked) as reader:
            rows = await to_pdf.read(asked, reader, datetime.now(UTC))
        made = [block async for block in to_pdf.lay_out(rows)]
    for block in made:
        yield block


async def _answer(
    request: web.Request, asked: Asked, format: Format, blocks: AsyncGenerator[bytes, None], stall: float
) -> web.StreamResponse:
    """Send the blocks; whole, if they are short."""
    compress, about = asked.format not in COMPRESSED, headers(asked, format)
    async with aclosing(blocks):
        first, ended = b"", False
        while len(first) < WHOLE and not ended:
            block = await anext(blocks, None)
            first, ended = first + (block or b""), block is None
        if ended:
            return await send(request, first, about, compress=compress)

        async def whole() -> AsyncGenerator[bytes, None]:
            yield first
            async for block in blocks:
                yield block

        return await stream(request, whole(), about, stall, compress=compress)


def choose_company(identity: Identity, in_path: str | None, in_query: str | None) -> str:
    """The company that is meant, which the sender may read.  Raises malformed_request or forbidden."""
    if in_path and in_query and in_path != in_query:
        raise ServiceError("malformed_request", "expected the company of the path", target="companyId")
    company = in_path or in_query
    if company is None:
        if len(identity.companies) != 1 or "read" not in identity.scopes:
            identity.require("read", next(iter(identity.companies), ""))
            raise ServiceError("malformed_request", "this key opens several companies: expected companyId=", target="companyId")
        (company,) = identity.companies
    identity.require("read", company)
    return company


async def find_format(connection: AsyncConnection[Any], asked: Asked) -> Format:
    """What to write, by the mapper if one is named."""
    if asked.mapper is None:
        return Format(*TYPES[asked.format])
    mapper = await custom.find_mapper(connection, asked, asked.mapper)
    if isinstance(mapper, Reversed):
        if asked.format not in ("custom", mapper.extension):
            message = f"{asked.mapper} writes {mapper.extension}: expected format={mapper.extension}"
            raise ServiceError("malformed_request", message, target="format")
        return Format(mapper.media_type, mapper.extension, mapper)
    if asked.format != "custom":
        raise ServiceError("malformed_request", f"{asked.mapper} is a template: expected format=custom", target="format")
    extension = (mimetypes.guess_extension(mapper.media_type, strict=False) or ".txt").removeprefix(".")
    return Format(_with_charset(mapper.media_type), extension, mapper)


def _with_charset(media_type: str) -> str:
    return f"{media_type}; charset=utf-8" if media_type.startswith("text/") else media_type


def write(asked: Asked, reader: Reader, format: Format, schema: str, now: datetime | None = None) -> AsyncGenerator[bytes, None]:
    """The export in its format, in blocks."""
    now = now or datetime.now(UTC)
    if isinstance(format.mapper, Template):
        return custom.render(asked, reader, format.mapper, now)
    if isinstance(format.mapper, Reversed):
        return custom.reverse(asked, reader, format.mapper)
    match asked.format:
        case "json":
            return to_json.write(asked, reader)
        case "xml":
            return to_xml.write(asked, reader, schema)
        case "csv":
            return to_csv.write(asked, reader)
        case "excel":
            return to_excel.write(asked, reader, now)
        case "pdf":
            return to_pdf.write(asked, reader, now)
        case "html":
            return to_html.write(asked, reader, now)
    raise ValueError(f"nothing writes {asked.format}")


def schema_url(url: str, given: dict[str, str]) -> str:
    """Where the schema of an XML export is: the same query, asked for in another format."""
    wanted: Sequence[str] = ("companyId", "$select", "$expand")
    kept = "".join(f"&{quote(name, safe='$')}={quote(given[name])}" for name in wanted if name in given)
    return f"{url}?format={SCHEMA}&export=true{kept}"


def headers(asked: Asked, format: Format) -> dict[str, str]:
    """Of the answer: it is a file to be saved, and nothing in it may run where it is shown."""
    return {
        "Content-Type": format.media_type,
        "Content-Disposition": disposition(file_name(asked, format)),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": SANDBOX,
        "Cache-Control": "private, no-store",
        "Vary": "Accept-Encoding",
    }


def file_name(asked: Asked, format: Format) -> str:
    """What the file is called: products.csv."""
    return f"{asked.entity.name}.{format.extension}"


def disposition(name: str) -> str:
    """A Content-Disposition as in RFC 6266; the name again in UTF-8 where it is not plain."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in name)
    return f'attachment; filename="{plain}"' + (f"; filename*=UTF-8''{quote(name, safe='')}" if plain != name else "")
