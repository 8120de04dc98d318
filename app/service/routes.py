"""The routes outside the web pages, with a handler of a few lines each."""

from __future__ import annotations

from functools import wraps
from urllib.parse import quote

import msgspec
import psycopg
from aiohttp import web

from app.auth.gate import Gate, Identity
from app.auth.login import Login, identify
from app.changes import history, stream
from app.changes.difference import read_counts, read_difference
from app.changes.hub import Hub
from app.changes.log import read_changes
from app.changes.rows import Answer, read_row, read_rows, split_moment
from app.database import replicas
from app.database.catalog import Entity
from app.errors import ServiceError
from app.export import response as exports
from app.feed import receive
from app.mapper import store as mappers
from app.metrics import Sampler
from app.odata import batch
from app.odata.request import check_method, is_batch
from app.odata.response import respond
from app.service.metrics_endpoint import require_metrics_access, show_metrics
from app.service.middleware import DATABASE, TARGET, Handler
from app.service.openapi import describe
from app.webhooks import registration
from app.wire import answers, bodies, urls
from app.wire.streams import STREAMS
from app.wire.target import ODATA

GATE = web.AppKey("gate", Gate)
LOGIN = web.AppKey("login", Login)
HUB = web.AppKey("hub", Hub)
SAMPLER = web.AppKey("sampler", Sampler)
JSON = {"Content-Type": "application/json"}
SECRET = {"Cache-Control": "no-store"}
RELOADS = 3  # of the catalog, for one request


def with_current_catalog(handler: Handler) -> Handler:
    """Wrap a handler: if the database no longer fits the catalog, reload the catalog and run the handler again."""

    @wraps(handler)
    async def handle(request: web.Request) -> web.StreamResponse:
        for _ in range(RELOADS):
            try:
                return await handler(request)
            except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.DeadlockDetected):
                if request.writer.output_size or replicas.was_read():
                    raise
                await request.app[DATABASE].reload()
        return await handler(request)

    return handle


# Routes ---------------------------------------------------------------------------------------------------------------------------


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
    body = await history.read_history(request.app[DATABASE], company, entity, request.match_info["id"], moment, *page)
    return await answers.send(request, body, JSON)


async def change_log(request: web.Request) -> web.StreamResponse:
    company, options = await require_read(request), urls.decode_query(request.rel_url.raw_path_qs)
    return await send_data(request, await read_changes(request.app[DATABASE], company, options))


async def change_stream(request: web.Request) -> web.StreamResponse:
    company, options = await require_read(request), urls.decode_query(request.rel_url.raw_path_qs)
    start = stream.read_request(request.app[DATABASE].catalog, options, request.headers)
    return await stream.respond(request.app[HUB], request, company, start, request.app[STREAMS].stall)


async def index(request: web.Request) -> web.StreamResponse:
    company = await require_read(request)
    urls.refuse_options(request.rel_url.raw_path_qs)
    id, catalog = quote(company), request.app[DATABASE].catalog
    found = {
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
    body = msgspec.json.encode(found)
    return await answers.send(request, body, {**JSON, "ETag": answers.weak_tag(body)})


async def description(request: web.Request) -> web.StreamResponse:
    await identity_of(request)
    urls.refuse_options(request.rel_url.raw_path_qs)
    body = describe(request.app[DATABASE].catalog)
    return await answers.send(request, body, {**JSON, "ETag": answers.weak_tag(body)})


async def list_hooks(request: web.Request) -> web.StreamResponse:
    company, page = await require_hooks(request, lists=True), urls.read_page(urls.decode_query(request.rel_url.raw_path_qs))
    return web.json_response(await registration.hooks(request.app[DATABASE], company, page))


async def create_hook(request: web.Request) -> web.StreamResponse:
    company = await require_hooks(request)
    hook = await registration.create(request.app[DATABASE], company, await bodies.small_body(request))
    return web.json_response(hook, status=201, headers={"Location": f"/c/{company}/hooks/{hook['id']}", **SECRET})


async def show_hook(request: web.Request) -> web.StreamResponse:
    company = await require_hooks(request)
    return web.json_response(await registration.show(request.app[DATABASE], company, request.match_info["id"]))


async def update_hook(request: web.Request) -> web.StreamResponse:
    company, body = await require_hooks(request), await bodies.small_body(request)
    return web.json_response(await registration.update(request.app[DATABASE], company, request.match_info["id"], body))


async def delete_hook(request: web.Request) -> web.StreamResponse:
    await registration.delete(request.app[DATABASE], await require_hooks(request), request.match_info["id"])
    return web.Response(status=204)


async def test_hook(request: web.Request) -> web.StreamResponse:
    company = await require_hooks(request)
    return web.json_response(await registration.test(request.app[DATABASE], company, request.match_info["id"]), status=202)


async def rotate_hook(request: web.Request) -> web.StreamResponse:
    company = await require_hooks(request, lists=True)
    revoke = urls.read_flag(urls.decode_query(request.rel_url.raw_path_qs), "revoke")
    secret = await registration.rotate(request.app[DATABASE], company, request.match_info["id"], revoke=revoke)
    return web.json_response(secret, headers=SECRET)


async def deliveries(request: web.Request) -> web.StreamResponse:
    company, page = await require_hooks(request, lists=True), urls.read_page(urls.decode_query(request.rel_url.raw_path_qs))
    return web.json_response(await registration.deliveries(request.app[DATABASE], company, request.match_info["id"], page))


async def delivery(request: web.Request) -> web.StreamResponse:
    company, named = await require_hooks(request), request.match_info
    return web.json_response(await registration.delivery(request.app[DATABASE], company, named["id"], named["delivery"]))


async def retry_delivery(request: web.Request) -> web.StreamResponse:
    company, named = await require_hooks(request), request.match_info
    return web.json_response(await registration.retry(request.app[DATABASE], company, named["id"], named["delivery"]), status=202)


async def import_document(request: web.Request) -> web.StreamResponse:
    company, actor = await require_import(request)
    status, report = await receive.import_request(request.app[DATABASE], request, company, actor)
    headers = {"Location": f"/api/{company}/imports/{report['importId']}"}
    return web.Response(status=status, body=receive.dump(report), content_type="application/json", headers=headers)


async def imports(request: web.Request) -> web.StreamResponse:
    (company, _), options = await require_import(request), urls.decode_query(request.rel_url.raw_path_qs)
    return await answers.send(request, receive.dump(await receive.imports(request.app[DATABASE], company, options)), JSON)


async def import_report(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request)
    return await answers.send(
        request, receive.dump(await receive.show(request.app[DATABASE], company, request.match_info["id"])), JSON
    )


async def cancel_import(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request)
    await receive.cancel(request.app[DATABASE], company, request.match_info["id"])
    return web.Response(status=204)


async def revert_import(request: web.Request) -> web.StreamResponse:
    company, actor = await require_import(request)
    status, report = await receive.revert_request(request.app[DATABASE], request, company, actor, request.match_info["id"])
    headers = {"Location": f"/api/{company}/imports/{report['importId']}"}
    return web.Response(status=status, body=receive.dump(report), content_type="application/json", headers=headers)


async def import_errors(request: web.Request) -> web.StreamResponse:
    (company, _), options = await require_import(request), urls.decode_query(request.rel_url.raw_path_qs)
    page = await receive.errors(request.app[DATABASE], company, request.match_info["id"], options)
    return await answers.send(request, receive.dump(page), JSON)


async def mapper_list(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request)
    limit, offset = urls.read_page(urls.decode_query(request.rel_url.raw_path_qs))
    return await answers.send(request, receive.dump(await mappers.listed(request.app[DATABASE], company, limit, offset)), JSON)


async def mapper_text(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request)
    stored = await mappers.show(request.app[DATABASE], company, request.match_info["name"])
    return await answers.send(
        request, stored.text.encode(), {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
    )


async def put_mapper(request: web.Request) -> web.StreamResponse:
    (company, actor), name = await require_import(request), request.match_info["name"]
    if request.content_type != "text/plain":
        raise ServiceError("unsupported_media_type", f"expected text/plain, got {request.content_type}")
    async with bodies.body_deadline():
        text = await request.read()
    created = await mappers.put(request.app[DATABASE], company, name, text, actor)
    return web.Response(status=201, headers={"Location": request.rel_url.raw_path}) if created else web.Response(status=204)


async def delete_mapper(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request)
    await mappers.delete(request.app[DATABASE], company, request.match_info["name"])
    return web.Response(status=204)


async def preview_mapper(request: web.Request) -> web.StreamResponse:
    company, _ = await require_import(request)
    document = await receive.preview(request.app[DATABASE], request, company, request.match_info["name"])
    return await answers.send(request, document, JSON)


@with_current_catalog
async def export(request: web.Request) -> web.StreamResponse:
    identity, names = await identity_of(request), request.match_info
    app, company = request.app, names.get("company")
    return await exports.respond(app[DATABASE], request, app[STREAMS], identity, company, names["entity"])


async def login(request: web.Request) -> web.StreamResponse:
    return await request.app[LOGIN].login(request, await bodies.small_body(request))


async def logout(request: web.Request) -> web.StreamResponse:
    return await request.app[LOGIN].logout(await identity_of(request), request)


async def password(request: web.Request) -> web.StreamResponse:
    return await request.app[LOGIN].change_password(await identity_of(request), request, await bodies.small_body(request))


async def live(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"status": "ok"})


async def ready(request: web.Request) -> web.StreamResponse:
    if not await request.app[DATABASE].home.answers():
        raise ServiceError("busy", "the database does not answer", headers={"Retry-After": "1"})
    return web.json_response({"status": "ok"})


async def metrics_page(request: web.Request) -> web.StreamResponse:
    require_metrics_access(request)
    return await show_metrics(request.app[DATABASE], request.app[SAMPLER], request)


# method, path, handler; GET includes HEAD
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("*", ODATA + "/{path:(?s:.*)}", odata),
    ("*", ODATA, odata),
    ("GET", "/c/{company}", index),
    ("GET", "/c/{company}/changes", change_log),
    ("GET", "/c/{company}/changes/stream", change_stream),
    ("GET", "/c/{company}/hooks", list_hooks),
    ("POST", "/c/{company}/hooks", create_hook),
    ("GET", "/c/{company}/hooks/{id}", show_hook),
    ("PATCH", "/c/{company}/hooks/{id}", update_hook),
    ("DELETE", "/c/{company}/hooks/{id}", delete_hook),
    ("POST", "/c/{company}/hooks/{id}/test", test_hook),
    ("POST", "/c/{company}/hooks/{id}/secret", rotate_hook),
    ("GET", "/c/{company}/hooks/{id}/deliveries", deliveries),
    ("GET", "/c/{company}/hooks/{id}/deliveries/{delivery}", delivery),
    ("POST", "/c/{company}/hooks/{id}/deliveries/{delivery}/retry", retry_delivery),
    ("GET", "/c/{company}/diff", difference),
    ("GET", "/c/{company}/{entity}", rows),
    ("GET", "/c/{company}/{entity}/{id}", row),
    ("GET", "/c/{company}/{entity}/{id}/history", row_history),
    ("POST", "/api/{company}/import", import_document),
    ("GET", "/api/{company}/imports", imports),
    ("GET", "/api/{company}/imports/{id}", import_report),
    ("DELETE", "/api/{company}/imports/{id}", cancel_import),
    ("GET", "/api/{company}/imports/{id}/errors", import_errors),
    ("POST", "/api/{company}/imports/{id}/revert", revert_import),
    ("GET", "/api/{company}/mappers", mapper_list),
    ("GET", "/api/{company}/mappers/{name}", mapper_text),
    ("PUT", "/api/{company}/mappers/{name}", put_mapper),
    ("DELETE", "/api/{company}/mappers/{name}", delete_mapper),
    ("POST", "/api/{company}/mappers/{name}/preview", preview_mapper),
    ("POST", "/auth/login", login),
    ("POST", "/auth/logout", logout),
    ("POST", "/auth/password", password),
    ("GET", "/openapi.json", description),
    ("GET", "/healthz", live),
    ("GET", "/readyz", ready),
    ("GET", "/metrics", metrics_page),
    # last, because their last segment may be any word
    ("GET", "/api/{company}/{entity:(?!(?:import|imports|mappers)$)[^{}/]+}", export),
    ("GET", "/api/{entity}", export),
)


async def require_read(request: web.Request) -> str:
    """The company of the path, which the sender may read.  Raises malformed_request, unauthorized or forbidden."""
    identity = await identity_of(request)
    identity.require("read", request.match_info["company"])
    return request.match_info["company"]


async def require_hooks(request: web.Request, *, lists: bool = False) -> str:
    """The company of the path, whose hooks the sender may manage.  Raises as require_read; refuses a query unless `lists`."""
    identity = await identity_of(request)
    identity.require("hooks", request.match_info["company"])
    if not lists:
        urls.refuse_options(request.rel_url.raw_path_qs)
    return request.match_info["company"]


async def require_import(request: web.Request) -> tuple[str, str]:
    """(company, actor) of a request that may import into the company of the path.  Raises as require_read."""
    identity = await identity_of(request)
    identity.require("import", request.match_info["company"])
    return request.match_info["company"], identity.actor


async def identity_of(request: web.Request) -> Identity:
    """The sender of a request with a well-formed path.  Raises malformed_request or unauthorized."""
    urls.decode_path(request.rel_url.raw_path)  # the router is lenient
    return await identify(request.app[GATE], request)


def entity_of(request: web.Request) -> Entity:
    """The entity of the path.  Raises not_found."""
    catalog, name = request.app[DATABASE].catalog, request.match_info["entity"]
    if name not in catalog:
        raise ServiceError("not_found", f"no such entity: {name}")
    return catalog[name]


async def send_data(request: web.Request, answer: Answer) -> web.StreamResponse:
    """An answer of /c: JSON with an entity tag made from the data's position, or 304."""
    if answer.body is None:
        raise ServiceError("not_found", "no such row")
    state = (answer.position, answer.first, answer.begun)
    tag = answers.weak_tag(request.app[DATABASE].catalog.version, request.rel_url.raw_path_qs, *state)
    headers = {"Content-Type": "application/json", "ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if answers.matches(request.headers, tag):
        return answers.Answer(304, headers)
    return await answers.send(request, answer.body, headers)
