"""The aiohttp application: its routes and middleware, what they share, and its background tasks.

A private part of aiohttp in use: Request._match_info; tests/service/test_private_names.py fails if it changes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web

from app import metrics
from app.auth.gate import Gate
from app.auth.login import Login
from app.changes.hub import Hub
from app.database.database import Database
from app.metrics import Sampler
from app.service.data_routes import odata
from app.service.maintenance import run_maintenance
from app.service.metrics_endpoint import run_sampling
from app.service.middleware import DATABASE, FAILURE_PAGE, add_headers, handle_expect, wrap_request
from app.service.routes import ROUTES
from app.service.senders import GATE, HUB, LOGIN, SAMPLER
from app.tasks import cancel_and_wait
from app.web import Site, routes
from app.wire.streams import STREAMS, Streams
from app.wire.target import ODATA

PLAIN_PART = re.compile(r"\{(\w+)\}")  # of a path; by itself aiohttp lets it be any text without braces
Dispatcher = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def create_app(database: Database, stall: float = 60.0, *, maintenance: bool = True) -> web.Application:
    """The service as an application.

    stall: seconds after which a client that stops reading its response is disconnected; maintenance: run it in this process.
    """
    app = web.Application(middlewares=[wrap_request])
    app[DATABASE], app[GATE] = database, Gate(database)
    app[LOGIN] = Login(database, app[GATE])
    app[HUB] = Hub(database, app[GATE])
    app.on_shutdown.append(end_streams)
    app.cleanup_ctx.append(following)
    config = database.config
    app[STREAMS] = Streams(config.pool_size, config.statement_timeout, stall, config.spool_max)
    app[SAMPLER] = Sampler()
    app.cleanup_ctx.append(sampling)
    app.on_response_prepare.append(add_headers)
    if maintenance:
        app.cleanup_ctx.append(maintaining)
    site = Site(database, app[GATE], app[LOGIN])
    app[FAILURE_PAGE] = site.failure
    for method, path, handler in (*routes(site), *ROUTES):
        path = PLAIN_PART.sub(r"{\1:[^/]+}", path)
        app.router.add_route(method, path, handler, expect_handler=handle_expect)
        if method == "GET":
            app.router.add_route("HEAD", path, handler, expect_handler=handle_expect)
    return app


def with_short_way(app: web.Application, handle: Dispatcher) -> Dispatcher:
    """Wrap aiohttp's handler of all requests: those for OData reach their own without its resolver and its chain of middleware.

    Both take longer than the database does for a row by key.  One object stands for the match of every such request.
    """
    route = next(each for each in app.router.routes() if each.handler is odata)
    match = web.UrlMappingMatchInfo({}, route)
    match.add_app(app)
    match.freeze()

    async def dispatch(request: web.BaseRequest) -> web.StreamResponse:
        assert isinstance(request, web.Request)
        if not request.rel_url.raw_path.startswith(ODATA + "/") or "Expect" in request.headers:
            return await handle(request)
        request._match_info = match
        return await wrap_request(request, odata)

    return dispatch


async def end_streams(app: web.Application) -> None:
    """End streams of changes at once when the service stops; other requests may end by themselves."""
    app[HUB].end()


async def following(app: web.Application) -> AsyncIterator[None]:
    """End the tasks of followers when the service stops."""
    yield
    await app[HUB].close()


async def sampling(app: web.Application) -> AsyncIterator[None]:
    """Sample the metrics that only this process can measure."""
    task = asyncio.create_task(run_sampling(app[DATABASE], app[SAMPLER]))
    yield
    await cancel_and_wait(task)
    metrics.http.settle()


async def maintaining(app: web.Application) -> AsyncIterator[None]:
    """Run maintenance of the database."""
    task = asyncio.create_task(run_maintenance(app[DATABASE]))
    yield
    await cancel_and_wait(task)
