"""The routes that read: OData, rows, the change log, exports."""

from __future__ import annotations

from urllib.parse import quote

import msgspec
from aiohttp import web

from app.auth.login import identify
from app.changes import audit, history, stream
from app.changes.change_sets import list_change_sets
from app.changes.difference import read_counts, read_difference
from app.changes.log import read_changes
from app.changes.rows import read_row, read_rows, split_moment
from app.export import response as exports
from app.logs import count_rows
from app.odata import batch
from app.odata.request import check_method, is_batch
from app.odata.response import respond
from app.service.middleware import DATABASE, GENERATION, TARGET, Handler
from app.service.openapi import describe
from app.service.senders import (
    GATE,
    HUB,
    JSON,
    entity_of,
    identity_of,
    require_read,
    send_data,
    with_current_catalog,
)
from app.types.event_ids import Event
from app.wire import answers, urls
from app.wire.streams import STREAMS
from app.wire.target import ODATA

STATE = """
    select coalesce(max(p.last_id), 0), coalesce(max(p.generation), 1), (
        select json_build_object(
            'version', h.version, 'hash', encode(h.hash, 'hex'), 'sealedAt', bds_service.api_time(h.sealed_at)
        )
        from bds.log_head(%(company)s) h where h.version is not null
    )
    from bds.company_positions p where p.company_id = %(company)s
"""


@with_current_catalog
async def odata(request: web.Request) -> web.StreamResponse:
    path, extended = request.rel_url.raw_path, request.app[DATABASE].config.odata_extended
    # before the credentials, as everywhere: a method that the parser does not know is refused before there are headers
    check_method(request.method, path, extended=extended)
    identity = await identify(request.app[GATE], request, basic_only=True)
    company = request[TARGET].company
    identity.require("read", company)
    if extended and is_batch(path):
        return await batch.respond(request.app[DATABASE], request, request.app[STREAMS], company)
    return await respond(request.app[DATABASE], request, request.app[STREAMS])


@with_current_catalog
async def rows(request: web.Request) -> web.StreamResponse:
    company, entity = await require_read(request), entity_of(request)
    options = urls.decode_query(request.rel_url.raw_path_qs)
    read = read_difference if any(name == "since" for name, _ in options) else read_rows
    return await send_data(request, await read(request.app[DATABASE], company, entity, options))


@with_current_catalog
async def difference(request: web.Request) -> web.StreamResponse:
    company, options = await require_read(request), urls.decode_query(request.rel_url.raw_path_qs)
    return await send_data(request, await read_counts(request.app[DATABASE], company, options))


@with_current_catalog
async def row(request: web.Request) -> web.StreamResponse:
    company, entity = await require_read(request), entity_of(request)
    options = urls.decode_query(request.rel_url.raw_path_qs)
    return await send_data(request, await read_row(request.app[DATABASE], company, entity, request.match_info["id"], options))


@with_current_catalog
async def row_history(request: web.Request) -> web.StreamResponse:
    company, entity = await require_read(request), entity_of(request)
    moment, rest = split_moment(urls.decode_query(request.rel_url.raw_path_qs))
    page = urls.read_page(rest)
    body, versions = await history.read_history(request.app[DATABASE], company, entity, request.match_info["id"], moment, *page)
    count_rows(versions)
    return await answers.send(request, body, JSON)


async def change_log(request: web.Request) -> web.StreamResponse:
    company, options = await require_read(request), urls.decode_query(request.rel_url.raw_path_qs)
    return await send_data(request, await read_changes(request.app[DATABASE], company, options))


async def change_sets(request: web.Request) -> web.StreamResponse:
    company, options = await require_read(request), urls.decode_query(request.rel_url.raw_path_qs)
    return await send_data(request, await list_change_sets(request.app[DATABASE], company, options))


async def audit_of_administration(request: web.Request) -> web.StreamResponse:
    identity, company = await identity_of(request), request[TARGET].company
    identity.require_administrator()
    options = urls.decode_query(request.rel_url.raw_path_qs)
    return await send_data(request, await audit.list_audit(request.app[DATABASE], identity, company, options))


async def change_stream(request: web.Request) -> web.StreamResponse:
    company, options = await require_read(request), urls.decode_query(request.rel_url.raw_path_qs)
    wish = stream.read_request(request.app[DATABASE].catalog, options, request.headers)
    await request.app[DATABASE].check_generation(company, wish.generation)
    return await stream.respond(request.app[HUB], request, company, wish, request.app[STREAMS].stall)


async def index(request: web.Request) -> web.StreamResponse:
    company = await require_read(request)
    urls.refuse_options(request.rel_url.raw_path_qs)
    id, catalog = quote(company), request.app[DATABASE].catalog
    async with request.app[DATABASE].session(company) as connection:
        [(version, generation, head)] = await (await connection.execute(STATE, {"company": company})).fetchall()
    found = {
        "version": version,
        "generation": generation,
        "position": str(Event(version, generation)),
        "head": head,
        "entities": [{"name": name, "url": f"/c/{id}/{name}"} for name in catalog.entities],
        "links": {
            "odata": f"{ODATA}/{id}",
            "changes": f"/c/{id}/changes",
            "hooks": f"/c/{id}/hooks",
            "import": f"/api/{id}/import",
            "imports": f"/api/{id}/imports",
            "mappers": f"/api/{id}/mappers",
            "openapi": "/openapi.json",
            "docs": "/docs",
        },
    }
    return await _send_tagged(request, msgspec.json.encode(found), {GENERATION: str(generation)})


async def description(request: web.Request) -> web.StreamResponse:
    await identity_of(request)
    urls.refuse_options(request.rel_url.raw_path_qs)
    return await _send_tagged(request, describe(request.app[DATABASE].catalog), {})


async def _send_tagged(request: web.Request, body: bytes, more: dict[str, str]) -> web.StreamResponse:
    """An answer of JSON whose entity tag is its body's hash, or 304."""
    headers = {**JSON, "ETag": answers.weak_tag(body), "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding", **more}
    if answers.matches(request.headers, headers["ETag"]):
        return answers.Answer(304, headers)
    return await answers.send(request, body, headers)


@with_current_catalog
async def export(request: web.Request) -> web.StreamResponse:
    identity, names = await identity_of(request), request.match_info
    app, company = request.app, names.get("companyId")
    return await exports.respond(app[DATABASE], request, app[STREAMS], identity, company, names["entity"])


@with_current_catalog
async def export_difference(request: web.Request) -> web.StreamResponse:
    identity, app = await identity_of(request), request.app
    return await exports.respond(app[DATABASE], request, app[STREAMS], identity, request.match_info["companyId"], None)


# method, path, handler; GET includes HEAD
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("*", ODATA + "/{path:(?s:.*)}", odata),
    ("*", ODATA, odata),
    ("GET", "/c/{companyId}", index),
    ("GET", "/c/{companyId}/changes", change_log),
    ("GET", "/c/{companyId}/changes/stream", change_stream),
    ("GET", "/c/{companyId}/changesets", change_sets),
    ("GET", "/c/{companyId}/audit", audit_of_administration),
    ("GET", "/c/{companyId}/diff", difference),
    ("GET", "/c/{companyId}/{entity}", rows),
    ("GET", "/c/{companyId}/{entity}/{id}", row),
    ("GET", "/c/{companyId}/{entity}/{id}/history", row_history),
    ("GET", "/openapi.json", description),
    ("GET", "/api/{companyId}/diff", export_difference),
    ("GET", "/api/{companyId}/{entity:(?!(?:import|imports|mappers|revert|versions)$)[^{}/]+}", export),
    ("GET", "/api/{entity}", export),
)
