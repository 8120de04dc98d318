"""Routes, three lines each, and what every request passes through: a request id, errors in their room's shape, a line in the log.

Under /api/odata an error is an OData error, of a page a page, elsewhere problem+json (RFC 9457).  Of a failure that is not ours
nothing is told but the request id under which the log has it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count

import psycopg
from aiohttp import web

from app import wire
from app.auth import Gate, Identity
from app.auth.login import Login, identify
from app.auth.proxies import seen_through
from app.catalog import Entity
from app.changes import hooks
from app.changes import read as changes
from app.db import Database
from app.errors import ERRORS, SQLSTATES, ServiceError
from app.export import response as exports
from app.feed import receive
from app.mapper import store as mappers
from app.odata.request import METHODS
from app.odata.response import respond
from app.web import Site, routes

log = logging.getLogger("bds.http")
access = logging.getLogger("bds.access")

DATABASE = web.AppKey("database", Database)
GATE = web.AppKey("gate", Gate)
LOGIN = web.AppKey("login", Login)
STREAMS = web.AppKey("streams", wire.Streams)
SITE = web.AppKey("site", Site)
REQUEST_ID = web.RequestKey("request_id", str)
IS_SECURE = web.RequestKey("is_secure", bool)  # whether its client spoke HTTPS, with us or with a trusted proxy
ODATA = "/api/odata"
JSON = {"Content-Type": "application/json"}
GIVEN_ID = re.compile(r"[\x21-\x7e]{1,100}")
PROCESS = secrets.token_hex(6)  # with which the ids that we give begin
_numbers = count(1)
quoted = json.encoder.encode_basestring_ascii
GONE = 499  # in the log: the client left before it had its answer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def create_app(database: Database, stall: float = 60.0) -> web.Application:
    """The service as an application.  stall: seconds after which a client that takes nothing of its answer is cut off."""
    app = web.Application(middlewares=[around])
    app[DATABASE], app[GATE] = database, Gate(database)
    app[LOGIN] = Login(database, app[GATE])
    app[STREAMS] = wire.Streams(database.config.pool_size, database.config.statement_timeout, stall)
    app.on_response_prepare.append(finish)
    app.cleanup_ctx.append(housekeeping)
    app[SITE] = Site(database, app[GATE], app[LOGIN])
    for method, path, handler in (*routes(app[SITE]), *ROUTES):
        app.router.add_route(method, path, handler, expect_handler=expect)
        if method == "GET":
            app.router.add_route("HEAD", path, handler, expect_handler=expect)
    return app


# Routes ---------------------------------------------------------------------------------------------------------------------------


async def odata(request: web.Request) -> web.StreamResponse:
    identity = await identify(request.app[GATE], request, basic_only=True)
    identity.require("read", company_of(request))
    return await respond(request.app[DATABASE], request, request.app[STREAMS])


async def rows(request: web.Request) -> web.StreamResponse:
    company, entity = await readable(request), entity_of(request)
    options = wire.decode_query(request.rel_url.raw_path_qs)
    return await data(request, await changes.read_rows(request.app[DATABASE], company, entity, options))


async def row(request: web.Request) -> web.StreamResponse:
    company, entity = await readable(request), entity_of(request)
    return await data(request, await changes.read_row(request.app[DATABASE], company, entity, request.match_info["id"]))


async def change_log(request: web.Request) -> web.StreamResponse:
    company, options = await readable(request), wire.decode_query(request.rel_url.raw_path_qs)
    return await data(request, await changes.read_changes(request.app[DATABASE], company, options))


async def list_hooks(request: web.Request) -> web.StreamResponse:
    company, page = await hookable(request), wire.page(wire.decode_query(request.rel_url.raw_path_qs))
    return web.json_response(await hooks.listing(request.app[DATABASE], company, page))


async def create_hook(request: web.Request) -> web.StreamResponse:
    company = await hookable(request)
    hook = await hooks.create(request.app[DATABASE], company, await wire.small_body(request))
    return web.json_response(hook, status=201, headers={"Location": f"/c/{company}/hooks/{hook['id']}"})


async def show_hook(request: web.Request) -> web.StreamResponse:
    company = await hookable(request)
    return web.json_response(await hooks.show(request.app[DATABASE], company, request.match_info["id"]))


async def update_hook(request: web.Request) -> web.StreamResponse:
    company, body = await hookable(request), await wire.small_body(request)
    return web.json_response(await hooks.update(request.app[DATABASE], company, request.match_info["id"], body))


async def delete_hook(request: web.Request) -> web.StreamResponse:
    await hooks.delete(request.app[DATABASE], await hookable(request), request.match_info["id"])
    return web.Response(status=204)


async def test_hook(request: web.Request) -> web.StreamResponse:
    company = await hookable(request)
    return web.json_response(await hooks.test(request.app[DATABASE], company, request.match_info["id"]), status=202)


async def deliveries(request: web.Request) -> web.StreamResponse:
    company, page = await hookable(request), wire.page(wire.decode_query(request.rel_url.raw_path_qs))
    return web.json_response(await hooks.deliveries(request.app[DATABASE], company, request.match_info["id"], page))


async def retry_delivery(request: web.Request) -> web.StreamResponse:
    company, named = await hookable(request), request.match_info
    return web.json_response(await hooks.retry(request.app[DATABASE], company, named["id"], named["delivery"]), status=202)


async def import_document(request: web.Request) -> web.StreamResponse:
    company, actor = await importable(request)
    status, report = await receive.receive(request.app[DATABASE], request, company, actor)
    headers = {"Location": f"/api/{company}/imports/{report['importId']}"}
    return web.Response(status=status, body=receive.dump(report), content_type="application/json", headers=headers)


async def imports(request: web.Request) -> web.StreamResponse:
    (company, _), options = await importable(request), wire.decode_query(request.rel_url.raw_path_qs)
    return await wire.send(request, receive.dump(await receive.imports(request.app[DATABASE], company, options)), JSON)


async def import_report(request: web.Request) -> web.StreamResponse:
    company, _ = await importable(request)
    return await wire.send(
        request, receive.dump(await receive.show(request.app[DATABASE], company, request.match_info["id"])), JSON
    )


async def cancel_import(request: web.Request) -> web.StreamResponse:
    company, _ = await importable(request)
    await receive.cancel(request.app[DATABASE], company, request.match_info["id"])
    return web.Response(status=204)


async def import_errors(request: web.Request) -> web.StreamResponse:
    (company, _), options = await importable(request), wire.decode_query(request.rel_url.raw_path_qs)
    page = await receive.errors(request.app[DATABASE], company, request.match_info["id"], options)
    return await wire.send(request, receive.dump(page), JSON)


async def mapper_list(request: web.Request) -> web.StreamResponse:
    company, _ = await importable(request)
    limit, offset = receive.page_of(wire.decode_query(request.rel_url.raw_path_qs))
    return await wire.send(request, receive.dump(await mappers.listed(request.app[DATABASE], company, limit, offset)), JSON)


async def mapper_text(request: web.Request) -> web.StreamResponse:
    company, _ = await importable(request)
    stored = await mappers.show(request.app[DATABASE], company, request.match_info["name"])
    return await wire.send(
        request, stored.text.encode(), {"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff"}
    )


async def put_mapper(request: web.Request) -> web.StreamResponse:
    (company, actor), name = await importable(request), request.match_info["name"]
    if request.content_type != "text/plain":
        raise ServiceError("unsupported_media_type", f"expected text/plain, got {request.content_type}")
    created = await mappers.put(request.app[DATABASE], company, name, await request.read(), actor)
    return web.Response(status=201, headers={"Location": request.rel_url.raw_path}) if created else web.Response(status=204)


async def delete_mapper(request: web.Request) -> web.StreamResponse:
    company, _ = await importable(request)
    await mappers.delete(request.app[DATABASE], company, request.match_info["name"])
    return web.Response(status=204)


async def preview_mapper(request: web.Request) -> web.StreamResponse:
    company, _ = await importable(request)
    document = await receive.preview(request.app[DATABASE], request, company, request.match_info["name"])
    return await wire.send(request, document, JSON)


async def export(request: web.Request) -> web.StreamResponse:
    identity, names = await known(request), request.match_info
    app, company = request.app, names.get("company")
    return await exports.respond(app[DATABASE], request, app[STREAMS], identity, company, names["entity"])


async def login(request: web.Request) -> web.StreamResponse:
    return await request.app[LOGIN].login(request, await wire.small_body(request))


async def logout(request: web.Request) -> web.StreamResponse:
    return await request.app[LOGIN].logout(await known(request), request)


async def password(request: web.Request) -> web.StreamResponse:
    return await request.app[LOGIN].change_password(await known(request), request, await wire.small_body(request))


async def alive(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"status": "ok"})


async def ready(request: web.Request) -> web.StreamResponse:
    async with asyncio.timeout(5), request.app[DATABASE].service() as connection:
        await connection.execute("select")
    return web.json_response({"status": "ok"})


# method, path, handler; GET includes HEAD
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("*", ODATA, odata),
    ("*", ODATA + "/{path:(?s:.*)}", odata),
    ("GET", "/c/{company}/changes", change_log),
    ("GET", "/c/{company}/hooks", list_hooks),
    ("POST", "/c/{company}/hooks", create_hook),
    ("GET", "/c/{company}/hooks/{id}", show_hook),
    ("PATCH", "/c/{company}/hooks/{id}", update_hook),
    ("DELETE", "/c/{company}/hooks/{id}", delete_hook),
    ("POST", "/c/{company}/hooks/{id}/test", test_hook),
    ("GET", "/c/{company}/hooks/{id}/deliveries", deliveries),
    ("POST", "/c/{company}/hooks/{id}/deliveries/{delivery}/retry", retry_delivery),
    ("GET", "/c/{company}/{entity}", rows),
    ("GET", "/c/{company}/{entity}/{id}", row),
    ("POST", "/api/{company}/import", import_document),
    ("GET", "/api/{company}/imports", imports),
    ("GET", "/api/{company}/imports/{id}", import_report),
    ("DELETE", "/api/{company}/imports/{id}", cancel_import),
    ("GET", "/api/{company}/imports/{id}/errors", import_errors),
    ("GET", "/api/{company}/mappers", mapper_list),
    ("GET", "/api/{company}/mappers/{name}", mapper_text),
    ("PUT", "/api/{company}/mappers/{name}", put_mapper),
    ("DELETE", "/api/{company}/mappers/{name}", delete_mapper),
    ("POST", "/api/{company}/mappers/{name}/preview", preview_mapper),
    ("POST", "/auth/login", login),
    ("POST", "/auth/logout", logout),
    ("POST", "/auth/password", password),
    ("GET", "/healthz", alive),
    ("GET", "/readyz", ready),
    # last, for what they end in may be any word
    ("GET", "/api/{company}/{entity:(?!(?:import|imports|mappers)$)[^{}/]+}", export),
    ("GET", "/api/{entity}", export),
)


def company_of(request: web.Request) -> str:
    """The company that a path under /api/odata names; '' if none."""
    return (wire.decode_path(request.rel_url.raw_path)[2:3] or [""])[0]


async def readable(request: web.Request) -> str:
    """The company of a path that names one, which the sender may read.  Raises malformed_request, unauthorized or forbidden."""
    wire.decode_path(request.rel_url.raw_path)  # the router is lenient
    identity = await identify(request.app[GATE], request)
    identity.require("read", request.match_info["company"])
    return request.match_info["company"]


async def hookable(request: web.Request) -> str:
    """The company of a path whose hooks the sender may manage.  Raises as `readable`."""
    wire.decode_path(request.rel_url.raw_path)
    identity = await identify(request.app[GATE], request)
    identity.require("hooks", request.match_info["company"])
    return request.match_info["company"]


async def importable(request: web.Request) -> tuple[str, str]:
    """The company of a path into which the sender may import, and who that is.  Raises as `readable`."""
    wire.decode_path(request.rel_url.raw_path)
    identity = await identify(request.app[GATE], request)
    identity.require("import", request.match_info["company"])
    return request.match_info["company"], identity.actor


async def known(request: web.Request) -> Identity:
    """Who sends a request, the path of which is well formed.  Raises malformed_request or unauthorized."""
    wire.decode_path(request.rel_url.raw_path)
    return await identify(request.app[GATE], request)


def entity_of(request: web.Request) -> Entity:
    """The entity that the path names.  Raises not_found."""
    catalog, name = request.app[DATABASE].catalog, request.match_info["entity"]
    if name not in catalog:
        raise ServiceError("not_found", f"there is no entity {name}")
    return catalog[name]


async def data(request: web.Request, answer: changes.Answer) -> web.StreamResponse:
    """An answer of /c: JSON with a tag made of the data's position, or 304."""
    if answer.body is None:
        raise ServiceError("not_found", "there is no such row")
    tag = wire.weak_tag(request.app[DATABASE].catalog.version, request.rel_url.raw_path_qs, answer.position, answer.first)
    headers = {"Content-Type": "application/json", "ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
    if wire.matches(request.headers, tag):
        return web.Response(status=304, headers=headers)
    return await wire.send(request, answer.body, headers)


# What every request passes through ------------------------------------------------------------------------------------------------


async def housekeeping(app: web.Application) -> AsyncIterator[None]:
    """What goes on beside the requests."""
    tasks = [asyncio.create_task(receive.reap(app[DATABASE])), asyncio.create_task(app[GATE].throttle.keep_forgetting())]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@web.middleware
async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Name the request, answer what is raised, write the log's line."""
    given = request.headers.get("X-Request-Id", "")
    request[REQUEST_ID] = given if GIVEN_ID.fullmatch(given) else f"{PROCESS}{next(_numbers):x}"
    seen = seen_through(request, request.app[DATABASE].config.trusted_proxies)
    request[IS_SECURE] = seen[IS_SECURE] = seen.secure
    request = seen
    started, status, size = time.perf_counter(), GONE, 0
    try:
        if request.method == "CONNECT":
            raise wrong_method(request.app, request.raw_path)
        response = await handler(request)
        status, size = response.status, response.content_length or 0
        return response
    except Exception as error:
        failure = understand(error, request[REQUEST_ID])
        if request.writer.output_size:
            raise ConnectionResetError("the answer had begun") from error
        status = failure.status
        return request.app[SITE].failure(request, failure) or error_response(failure, target_of(request))
    finally:
        took = (time.perf_counter() - started) * 1000
        access.info(
            '{"id": %s, "remote": "%s", "method": "%s", "path": %s, "status": %d, "bytes": %d, "ms": %.1f}',
            *(quoted(request[REQUEST_ID]), request.remote, request.method, quoted(target_of(request, raw=True))),
            *(status, request.writer.output_size or size, took),
        )


async def finish(request: web.Request, response: web.StreamResponse) -> None:
    """The headers that every answer carries."""
    headers = response.headers
    headers["X-Request-Id"] = request[REQUEST_ID]
    for name, value in wire.SECURITY:
        headers.setdefault(name, value)
    if request[IS_SECURE]:
        headers.setdefault("Strict-Transport-Security", "max-age=31536000")
    if is_odata(target_of(request)):
        headers["OData-Version"] = "4.0"


async def expect(request: web.Request) -> None:
    """Let a client that waits for it send its body; an expectation that we do not know is none (RFC 9110, 10.1.1)."""
    if request.headers["Expect"].lower() == "100-continue" and request.version >= (1, 1):
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def target_of(request: web.Request, *, raw: bool = False) -> str:
    """The path of a request; CONNECT's is read as an authority, which we are not asked for."""
    if request.method == "CONNECT":
        return request.raw_path
    return request.rel_url.raw_path if raw else request.path


def wrong_method(app: web.Application, path: str) -> ServiceError:
    """The error of a method that no route has: not_found where the path has none at all, else with those that are allowed."""
    if is_odata(path):
        allowed = list(METHODS)
    else:
        allowed = sorted({route.method for route in app.router.routes() if route.resource and leads_to(route.resource, path)})
    if not allowed:
        return ServiceError("not_found", ERRORS["not_found"][1])
    return ServiceError("method_not_allowed", ERRORS["method_not_allowed"][1], headers={"Allow": ", ".join(allowed)})


def leads_to(resource: web.AbstractResource, path: str) -> bool:
    """Whether a path is one of the resource's."""
    info = resource.get_info()
    return path == info.get("path") or ("pattern" in info and info["pattern"].fullmatch(path) is not None)


def is_odata(path: str) -> bool:
    return path == ODATA or path.startswith(ODATA + "/")


def understand(error: Exception, request_id: str) -> ServiceError:
    """What a client is told of an exception."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, web.HTTPException):
        code = next((code for code, (status, _) in ERRORS.items() if status == error.status), "malformed_request")
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
        return ServiceError(code, ERRORS[code][1], headers=allow)
    if isinstance(error, psycopg.Error) and error.sqlstate in SQLSTATES:
        return ServiceError(SQLSTATES[error.sqlstate], error.diag.message_primary or "")
    if isinstance(error, TimeoutError) or (isinstance(error, psycopg.OperationalError) and not _is_ours(error)):
        # cancelled by a timeout, no connection, none free
        log.warning("request %s: %s", request_id, type(error).__name__)
        return ServiceError("busy", "the database did not answer in time; try again later", headers={"Retry-After": "5"})
    if isinstance(error, ConnectionError):
        return ServiceError("internal", "the client left")
    log.error("request %s failed", request_id, exc_info=error)
    return ServiceError("internal", f"the service failed; its log has request {request_id}")


def _is_ours(error: psycopg.Error) -> bool:
    """Whether trying again later would not help: a limit of PostgreSQL's, no space, a wrong configuration."""
    return (error.sqlstate or "")[:2] in ("53", "54", "58", "F0")


def error_response(error: ServiceError, path: str) -> web.Response:
    """An error in the shape of the room that `path` leads to; its entity tag is its body's hash."""
    if is_odata(path):
        content: dict[str, object] = {"error": {"code": error.code, "message": error.message}}
        if error.target:
            content = {"error": {"code": error.code, "message": error.message, "target": error.target}}
        headers = {"Content-Type": "application/json;odata.metadata=minimal", "OData-Version": "4.0"}
    else:
        about = {"target": error.target} if error.target else {}
        content = {"type": f"urn:bds:error:{error.code}", "title": error.title, "status": error.status, "detail": error.message}
        content |= {"code": error.code, **about, **error.more}
        headers = {"Content-Type": "application/problem+json"}
    body = json.dumps(content, ensure_ascii=False, default=str).encode("utf-8", "replace")
    return web.Response(
        status=error.status, body=body, headers={**headers, **dict(wire.SECURITY), "ETag": wire.weak_tag(body), **error.headers}
    )
