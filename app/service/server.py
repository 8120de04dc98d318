"""The listening process: refusals by the HTTP parser in the form of other errors, and a stop that lets running requests finish.

The HTTP parser refuses unreadable requests before a route is known; here those refusals get the form of their area (OData or
problem+json), and the client gets time to read them.

Private parts of aiohttp in use: RequestHandler._messages, _current_request, _force_close and _handle_request, BaseRequest._cache,
and _ErrInfo; tests/service/test_private_names.py fails if they change.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, cast

import psycopg
import uvloop
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong
from aiohttp.web_protocol import _ErrInfo

from app import metrics
from app.config import Config
from app.database import connections
from app.database.database import Database
from app.database.pool.listening import RECONNECT
from app.errors import ServiceError
from app.feed.background import stop_imports
from app.metrics import Sampler
from app.query.parse.parser import compile_all
from app.service.application import create_app, with_short_way
from app.service.lifeline import Lifeline
from app.service.maintenance import run_maintenance
from app.service.memory import share_heaps
from app.service.metrics_endpoint import run_sampling
from app.service.middleware import error_response, wrong_method
from app.service.sockets import Acceptor, bind, listen_error, resolve_address
from app.tasks import UNANSWERED, Stopped, cancel_and_wait, in_daemon
from app.webhooks.worker import working
from app.wire.target import read_target
from app.wire.urls import MAX_URL

log = logging.getLogger("bds.http")

MAX_HEADER = 16 << 10  # bytes, of one header line
IDLE = 75.0  # seconds that a connection may be idle; longer than reverse proxies keep theirs
LINGER = 2.0  # seconds that a refused client has to read the answer
LAST = 1.0  # seconds in which a client may still send over a connection that it takes as open when the service stops
LOOK = 0.02  # seconds between two looks whether there is such a connection
GRACE = 30.0  # seconds that running requests and imports have when the service stops
# containers that a process has made and not freed since the last collection; at 700, Python's own value, the requests of a thousand
# connections make it collect so often that it answers a tenth less
COLLECT_AFTER = 10_000
REPORT = 2.0  # the last of those seconds, in which running imports are stopped and their clients get the report
# method, path; as much of it as there is, so that a refusal has the form of its area
REQUEST_LINE = re.compile(rb"(?:\r?\n)*([^ \r\n]+) +(?:https?://[^/\s?#]*)?(/[^\s?#]*)", re.IGNORECASE)
METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Refusal(web.Response):
    """An answer to an unreadable request: closing with unread bytes would reset the connection before the answer arrives."""

    connection: Connection

    async def write_eof(self, data: bytes = b"") -> None:
        await super().write_eof(data)
        transport = self.connection.transport
        if transport is not None and transport.can_write_eof():
            transport.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await self.connection.lost.wait()


class Connection(web.RequestHandler):
    """One client's connection."""

    def __init__(self, manager: web.Server, app: web.Application, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._app = app
        self.lost = asyncio.Event()
        self._is_ending = False
        self._request: web.BaseRequest | None = None  # from its head to the end of the answer
        # of the current request, as far as it is known before parsing; and whether its method is one by its form
        self._path, self._has_method = "", False
        self._has_started = False

    async def start(self) -> None:
        self._has_started = True
        await super().start()

    @property
    def is_idle(self) -> bool:
        """Whether its client has the answers to all that it has sent, and may send more."""
        return self._request is None and not self._messages and not self._force_close

    def end(self) -> None:
        """Tell the client with the next answer that the connection ends; until then it stays open."""
        self._is_ending = True
        if self._request is not None:
            _make_last(self._request)

    async def _handle_request(self, request: web.BaseRequest, *rest: Any) -> tuple[web.StreamResponse, bool]:
        self._request = request
        if self._is_ending:
            _make_last(request)
        try:
            return await super()._handle_request(request, *rest)
        finally:
            self._request = None

    def close(self) -> None:
        super().close()
        if not self._has_started and not self._messages:
            self._force_close = True  # else it would wait for a first request until the end of the stop

    def data_received(self, data: bytes) -> None:
        line = REQUEST_LINE.match(data)
        if line:
            self._path, self._has_method = line[2].decode("latin-1"), METHOD.fullmatch(line[1]) is not None
        super().data_received(data)
        if self._messages and isinstance(self._messages[-1][0], _ErrInfo):
            self._break_body()

    def _break_body(self) -> None:
        """End a body in which the parser failed, so that its reader does not wait; the rest of the connection is ignored."""
        if len(self._messages) > 1:
            body = self._messages[-2][1]
        elif self._current_request is not None:
            body = self._current_request.content
        else:
            return
        if not body.is_eof():
            self._messages.pop()
            body.set_exception(ServiceError("malformed_request", "invalid chunked encoding"))
            body.feed_eof()
            self.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self.lost.set()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """The answer to an unreadable request; raises ConnectionResetError if another answer has begun."""
        if request.writer.output_size:
            raise ConnectionResetError("the response had begun")
        if status == 500:
            log.error("a request failed", exc_info=exc)
        is_odata = read_target(self._path).is_odata
        refusal = self._refusal_error(exc if status != 500 else None)
        answer = error_response(refusal, is_odata=is_odata)
        log.info("a request of %s was refused before it was read: %s", request.remote, refusal.code)
        metrics.requests.labels("none", "other", str(status)).inc()
        metrics.sent.labels("none").inc(answer.content_length or 0)
        response = Refusal(status=answer.status, body=answer.body, headers=answer.headers)
        response.connection = self
        response.force_close()
        self.close()  # no further requests
        return response

    def _refusal_error(self, error: BaseException | None) -> ServiceError:
        """The error for a request that the parser refused."""
        match error:
            case None:
                return ServiceError("internal", "the service failed")
            case BadHttpMethod() if self._has_method:
                return wrong_method(self._app, self._path)
            case LineTooLong() if error.args[1] == MAX_URL:
                return ServiceError("uri_too_long", f"expected a URL of at most {MAX_URL:,} bytes")
            case LineTooLong():
                return ServiceError("malformed_request", f"expected header lines of at most {MAX_HEADER:,} bytes")
        return ServiceError("malformed_request", "expected an HTTP request")


def _make_last(request: web.BaseRequest) -> None:
    """Let the answer say `Connection: close`, if it has not begun."""
    request._cache["keep_alive"] = False


async def end_connections(connections: Callable[[], Iterable[Any]]) -> None:
    """Answer what clients send over connections that they take as open, and tell them that these end.

    A client that is told opens another one, to another process or machine; one whose connection is cut does not know whether its
    request was carried out.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LAST):
            while True:
                open_ones = [each for each in connections() if isinstance(each, Connection)]
                for each in open_ones:
                    each.end()
                if not any(each.is_idle for each in open_ones):
                    break
                await asyncio.sleep(LOOK)


async def end_serving(acceptor: Acceptor, manager: web.Server, runner: web.AppRunner) -> None:
    """Accept no more; return when running requests and imports have ended and their answers are sent, or after GRACE."""
    loop = asyncio.get_running_loop()
    end = loop.time() + GRACE
    await acceptor.close()
    await end_connections(lambda: manager.connections)
    ending = [each for each in manager.connections if isinstance(each, Connection)]
    await asyncio.gather(runner.cleanup(), stop_imports(end - REPORT - loop.time()))
    with contextlib.suppress(TimeoutError):  # what clients have not taken of their answers ends with the event loop
        async with asyncio.timeout_at(end):
            await asyncio.gather(*(each.lost.wait() for each in ending))


@contextlib.asynccontextmanager
async def serving(
    database: Database,
    host: str,
    port: int,
    *,
    stall: float = 60.0,
    listener: socket.socket | None = None,
    maintenance: bool = True,
) -> AsyncIterator[tuple[str, int]]:
    """Serve until the block ends, then accept no more and let running requests finish.  Yields the address (host, port).

    A handler is cancelled when its client leaves, which frees what it holds; work that must continue needs a task of its own.
    listener: a socket that is bound to the address; maintenance: run maintenance, which one process does for all.
    """
    app = create_app(database, stall, maintenance=maintenance)
    runner = web.AppRunner(app, shutdown_timeout=GRACE, handler_cancellation=True)
    await runner.setup()
    loop, manager = asyncio.get_running_loop(), cast(web.Server, runner.server)
    manager.request_handler = with_short_way(app, manager.request_handler)
    settings = {
        "loop": loop,
        "max_line_size": MAX_URL,
        "max_field_size": MAX_HEADER,
        "keepalive_timeout": IDLE,
        "auto_decompress": False,  # handlers decompress, within their bounds
        "access_log": None,
    }
    try:
        sockets = [listener] if listener else await bind(host, port)
        acceptor = Acceptor(sockets, lambda: Connection(manager, app, **settings))
    except OSError as error:
        await runner.cleanup()  # background tasks run already
        raise listen_error(host, port, error) from None
    try:
        yield sockets[0].getsockname()[:2]
    finally:
        await end_serving(acceptor, manager, runner)


async def run(
    config: Config,
    host: str,
    port: int,
    announce: Callable[[str, int], None],
    *,
    worker: bool = True,
    lifeline: Lifeline | None = None,
    **settings: Any,
) -> None:
    """Serve until SIGTERM or SIGINT, and deliver webhooks if `worker`.  Calls `announce` when requests are accepted."""
    stop = stop_event(lifeline)
    if not settings.get("listener"):
        resolve_address(host, port)  # fail before anything starts
    database = await open_database(config, stop)
    try:
        async with contextlib.AsyncExitStack() as stack:
            if worker:
                await stack.enter_async_context(working(database))
            address = await stack.enter_async_context(serving(database, host, port, **settings))
            announce(*address)
            gc.collect()
            gc.freeze()  # the objects made so far live as long as the process; later collections skip them
            gc.set_threshold(COLLECT_AFTER)
            compiling = asyncio.create_task(in_daemon(compile_all))
            await stop.wait()
            await cancel_and_wait(compiling)
    finally:
        await database.close()


async def run_worker(
    config: Config, announce: Callable[[], None], *, lifeline: Lifeline | None = None, maintenance: bool = True
) -> None:
    """Deliver webhooks until SIGTERM or SIGINT, and run maintenance if `maintenance`.  Calls `announce` when the worker runs."""
    stop = stop_event(lifeline)
    database = await open_database(config, stop)
    try:
        async with working(database):
            tasks = [asyncio.create_task(run_sampling(database, Sampler()))]
            if maintenance:
                tasks.append(asyncio.create_task(run_maintenance(database)))
            announce()
            await stop.wait()
            await cancel_and_wait(*tasks)
    finally:
        await database.close()


async def open_database(config: Config, stop: asyncio.Event) -> Database:
    """Open the database.  Raises Stopped if `stop` is set while it does not answer."""
    opening, stopped = asyncio.create_task(_open_started(config)), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({opening, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if opening.done():
            return opening.result()
        raise Stopped(UNANSWERED)
    finally:
        await cancel_and_wait(opening, stopped)


async def _open_started(config: Config) -> Database:
    """Open the database; wait while it starts or recovers from a crash."""
    url = config.listen_database_url if config.pooler == "transaction" else config.database_url
    start = connections.Start(url) if url else None
    while True:
        try:
            return await Database.open(config)
        except psycopg.OperationalError:
            if start is None or not start.goes_on():
                raise
        await asyncio.sleep(RECONNECT)


def stop_event(lifeline: Lifeline | None) -> asyncio.Event:
    """An event that SIGTERM, SIGINT and the end of the parent process set; keeps the lifeline to the parent."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        if lifeline:
            lifeline.ending()

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, end)
    if lifeline:
        lifeline.keep(on_parent_end=end)
    return stop


def serve(config: Config, host: str, port: int, announce: Callable[[str, int], None], **settings: Any) -> None:
    """`run` in a new event loop.  Port 0 takes any free port.  Raises OSError, psycopg.Error."""
    share_heaps()
    uvloop.run(run(config, host, port, announce, **settings))
