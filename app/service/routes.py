"""The routes outside the web pages, with a handler of a few lines each; those of the areas have files of their own."""

from __future__ import annotations

from aiohttp import web

from app.database.schema import NEWER
from app.errors import ServiceError
from app.service import data_routes, feed_routes, hook_routes
from app.service.metrics_endpoint import require_metrics_access, show_metrics
from app.service.middleware import DATABASE, Handler
from app.service.senders import (
    LOGIN,
    SAMPLER,
    identity_of,
)
from app.wire import bodies, urls


async def login(request: web.Request) -> web.StreamResponse:
    urls.refuse_options(request.rel_url.raw_path_qs)
    return await request.app[LOGIN].login(request, await bodies.small_body(request))


async def logout(request: web.Request) -> web.StreamResponse:
    identity = await identity_of(request)
    urls.refuse_options(request.rel_url.raw_path_qs)
    await bodies.refuse_body(request)
    return await request.app[LOGIN].logout(identity, request)


async def password(request: web.Request) -> web.StreamResponse:
    identity = await identity_of(request)
    urls.refuse_options(request.rel_url.raw_path_qs)
    return await request.app[LOGIN].change_password(identity, request, await bodies.small_body(request))


async def live(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"status": "ok"})


async def ready(request: web.Request) -> web.StreamResponse:
    if not await request.app[DATABASE].home.answers():
        raise ServiceError("busy", "the database does not answer", headers={"Retry-After": "1"})
    if await request.app[DATABASE].has_newer_schema():
        raise ServiceError("busy", f"{NEWER} than this process: replace it by one of that version", headers={"Retry-After": "60"})
    return web.json_response({"status": "ok"})


async def metrics_page(request: web.Request) -> web.StreamResponse:
    require_metrics_access(request)
    return await show_metrics(request.app[DATABASE], request.app[SAMPLER], request)


# method, path, handler; GET includes HEAD
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    *hook_routes.ROUTES,
    *feed_routes.ROUTES,
    ("POST", "/auth/login", login),
    ("POST", "/auth/logout", logout),
    ("POST", "/auth/password", password),
    ("GET", "/healthz", live),
    ("GET", "/readyz", ready),
    ("GET", "/metrics", metrics_page),
    # last, because the last segment of some may be any word
    *data_routes.ROUTES,
)
