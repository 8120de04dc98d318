"""Answers a request for an export: reads in one snapshot, writes in the format, sends while it writes.

A short export is sent whole, with its length.  A longer one is sent in chunks; a failure then cuts the connection without the last
chunk, so that an incomplete export never looks complete.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from urllib.parse import quote

from aiohttp import web

from app.auth.gate import Identity
from app.database.database import Database
from app.database.generations import last_event
from app.database.servers.reads import require_position
from app.errors import ServiceError, UnknownEntity
from app.export import to_pdf, to_xml
from app.export.custom import ExportTemplate
from app.export.output import Output, find_output, write
from app.export.read import Reader, open_reader
from app.export.request import ExportRequest, check_export, read_parameters, read_request, read_whole
from app.formats import PDF, SCHEMA
from app.wire.answers import send
from app.wire.streams import Streams, stream
from app.wire.urls import decode_query

WHOLE = 64 << 10  # bytes up to which an export is sent whole
SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"


async def respond(
    database: Database, request: web.Request, streams: Streams, identity: Identity, company: str | None, entity: str | None
) -> web.StreamResponse:
    """Answer an authenticated request for an entity, None for the difference of all.

    company: from the path, or None if a parameter may name it.
    """
    options = decode_query(request.rel_url.raw_path_qs)
    given = dict(options)
    company = choose_company(identity, company, given.get("companyId"))
    catalog = database.catalog  # one model for the whole request
    if entity is not None and entity not in catalog:
        raise UnknownEntity(entity, catalog.entities)
    given = read_parameters(options)
    check_export(given)
    export = read_request(catalog, catalog[entity], company, given) if entity else read_whole(catalog, company, given)
    async with database.session(company) as connection:
        output, (_, generation) = await find_output(connection, export), await last_event(connection, company)
    about = headers(export, output, generation)
    if export.format is SCHEMA:
        return await send(request, to_xml.schema(export), about)
    if request.method == "HEAD":
        async with _reading(database, streams, export) as (export, reader):
            if export.format is PDF:
                await to_pdf.check_count(export, reader)
        return web.Response(headers=about)
    async with AsyncExitStack() as held:
        if export.format is PDF:
            return await _answer(request, about, output, _pdf(database, streams, export), streams, held)
        if isinstance(output.mapper, ExportTemplate):
            await held.enter_async_context(streams.process_slot())
        export, reader = await held.enter_async_context(_reading(database, streams, export))
        export = replace(export, schema=schema_url(f"{request.scheme}://{request.host}{request.path}", given))
        return await _answer(request, about, output, write(export, reader, output), streams, held)


@asynccontextmanager
async def _reading(database: Database, streams: Streams, export: ExportRequest) -> AsyncIterator[tuple[ExportRequest, Reader]]:
    """Hold a slot and a snapshot, of now, of a past state or of two, and give the export as its reader reads it."""
    require_position(max((each.version or 0 for each in (export.since, export.moment) if each), default=0))
    async with streams.slot(), database.snapshot(export.company) as connection:
        yield await open_reader(connection, export, database.config.statement_timeout)


async def _pdf(database: Database, streams: Streams, export: ExportRequest) -> AsyncGenerator[bytes, None]:
    """Yield a PDF.  The connection is given back before the layout, the process slot before the client takes the pages."""
    async with streams.process_slot():
        async with _reading(database, streams, export) as (export, reader):
            table = await to_pdf.read_table(export, reader)
        blocks = [block async for block in to_pdf.lay_out(table)]
    for block in blocks:
        yield block


async def _answer(
    request: web.Request,
    about: dict[str, str],
    output: Output,
    blocks: AsyncGenerator[bytes, None],
    streams: Streams,
    held: AsyncExitStack,
) -> web.StreamResponse:
    """Send the blocks: whole if they are short, else as a stream.

    about: headers.  held: what they need until the last one is made.
    """
    compress = not output.is_binary
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

        return await stream(request, whole(), about, streams, held, compress=compress)


def choose_company(identity: Identity, in_path: str | None, in_query: str | None) -> str:
    """Return the company to export, which the sender may read.  Raises malformed_request or forbidden."""
    if in_query == "":
        raise ServiceError("malformed_request", "expected a company, got ''", target="companyId")
    if in_path and in_query and in_path != in_query:
        message = f"expected {in_path}, the company of the path, got {in_query!r}"
        raise ServiceError("malformed_request", message, target="companyId")
    company = in_path or in_query
    if company is None:
        if len(identity.companies) != 1 or "read" not in identity.scopes:
            identity.require("read", next(iter(identity.companies), ""))
            message = "this key has access to several companies: add companyId=<company>"
            raise ServiceError("malformed_request", message, target="companyId")
        (company,) = identity.companies
    identity.require("read", company)
    return company


def schema_url(url: str, given: dict[str, str]) -> str:
    """Return the URL of the schema of an XML export: the same query in the format xsd."""
    kept = [name for name in ("companyId", "ids", "since", "version", "at", "$select", "$expand") if name in given]
    return f"{url}?format={SCHEMA.name}&export=true" + "".join(f"&{quote(name, safe='$')}={quote(given[name])}" for name in kept)


def headers(export: ExportRequest, output: Output, generation: int) -> dict[str, str]:
    """Return the headers of the response: a file to be saved, in which nothing may run if a browser shows it."""
    return {
        "Content-Type": output.media_type,
        "Content-Disposition": content_disposition(f"{export.name}.{output.extension}"),
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": SANDBOX,
        "Cache-Control": "private, no-store",
        "Vary": "Accept-Encoding",
        "X-BDS-Generation": str(generation),
    }


def content_disposition(name: str) -> str:
    """Return the header for a file name as in RFC 6266: repeated in UTF-8 unless it is plain ASCII."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else "_" for c in name)
    return f'attachment; filename="{plain}"' + (f"; filename*=UTF-8''{quote(name, safe='')}" if plain != name else "")
