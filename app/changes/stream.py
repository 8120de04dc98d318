"""`GET /c/{company}/changes/stream`: changes as server-sent events, as they commit."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import psycopg
from aiohttp import web

from app import metrics
from app.changes.hub import Hub
from app.changes.page import condition
from app.changes.parameters import by_name
from app.changes.tail import Events, Tail, encode
from app.database.catalog import Catalog
from app.database.pool.listening import RECONNECT
from app.errors import QueryError, ServiceError
from app.wire import answers

COMMENT = 15.0  # seconds between two comments
GOODBYE = 1.0  # seconds for the end of a stream
BUFFER = 128 << 10  # bytes that the kernel keeps for a client
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
ID = re.compile(r"[0-9]{1,100}", re.ASCII)
LAST = "Last-Event-ID"


class Start(NamedTuple):
    """The request of a client.  after: None for changes from now on; target: the option that gives it."""

    filter: str
    after: int | None
    target: str


def read_request(catalog: Catalog, options: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> Start:
    """Read filter, after and Last-Event-ID.  A browser that reconnects sends Last-Event-ID and the same URL, with its `after`.

    Raises QueryError.
    """
    given = by_name(options, ("filter", "after"))
    filter = given.get("filter", "").strip()
    condition(catalog, given.get("filter", ""))
    after = _id(given["after"], "after") if "after" in given else None
    if not headers.get(LAST):
        return Start(filter, after, "after")
    last = _id(headers[LAST], LAST)
    if after is not None and last < after:
        raise QueryError(f"{LAST} {last} is before after={after}: expected one of them", target="after")
    return Start(filter, last, LAST)


def _id(text: str, target: str) -> int:
    if not ID.fullmatch(text):
        raise QueryError(f"expected the id of a change, got {text!r}", target=target)
    return int(text)


async def respond(hub: Hub, request: web.Request, company: str, start: Start, stall: float) -> web.StreamResponse:
    """Answer with the stream.  stall: seconds after which a client that takes nothing is cut.

    Raises ServiceError: gone, not_found, busy, aborted.
    """
    position, last = await hub.start(company, start.after, start.target)
    if request.method == "HEAD":
        return web.Response(headers=HEADERS)
    return await Stream(hub, request, company, start, position, stall).send(last)


class Stream:
    """One client's stream."""

    def __init__(self, hub: Hub, request: web.Request, company: str, start: Start, position: int, stall: float) -> None:
        self.company, self.filter = company, start.filter
        self.position = position
        self._known = start.after  # the id with which the client would resume
        self._hub, self._request, self._stall = hub, request, stall
        self._response = web.StreamResponse(headers=HEADERS)
        self._ending = asyncio.timeout(None)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request."""
        return self._request.headers

    def end(self) -> None:
        """End the stream, even while it waits."""
        if not self._ending.expired():
            self._ending.reschedule(0)

    async def send(self, last: int) -> web.StreamResponse:
        """Send changes until the client leaves, does not read, or the stream is ended.  last: change of the company."""
        self._response.force_close()
        try:
            async with self._ending:
                with self._hub.following(self, last) as tail, metrics.followers.track_inprogress():
                    await self._response.prepare(self._request)
                    self._bound_buffers()
                    await self._follow(tail)
        except TimeoutError:
            if not self._ending.expired():
                metrics.followers_cut.inc()
                answers.reset(self._request.transport)
                return self._response
        try:
            async with asyncio.timeout(GOODBYE):
                await self._response.write_eof()
        except TimeoutError:
            answers.reset(self._request.transport)
        return self._response

    def _bound_buffers(self) -> None:
        """Bound the kernel's send buffer; let the kernel cut a client that acknowledges nothing, even before the buffer is full."""
        transport = self._request.transport
        connection = transport.get_extra_info("socket") if transport else None
        if connection is not None and connection.family != socket.AF_UNIX:
            with contextlib.suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(self._stall * 2000))

    async def _follow(self, tail: Tail) -> None:
        clock = asyncio.get_running_loop().time
        next_comment = clock()
        while True:
            if clock() >= next_comment:
                next_comment += COMMENT
                await self._write(self._comment())
            events = tail.events(self.position, self.filter)
            if events is None:
                events = await self._catch_up()
            elif events.through == self.position:
                await tail.wait(self.position, next_comment)
                continue
            if events.changes:
                await self._write(events.data)
                self._known = events.sent
                metrics.followed_changes.inc(events.changes)
            self.position = events.through

    async def _catch_up(self) -> Events:
        """The next events from the log.  If a change is lost, the stream ends; the client gets the error when it resumes."""
        try:
            page = await self._hub.read(self)
        except ServiceError:
            self.end()
        except (psycopg.Error, OSError):
            await asyncio.sleep(RECONNECT)
        else:
            if page.through > self.position:
                return encode(page.records, page.through)
            self.end()  # the log is shorter than it was
        return Events(self.position, 0)

    def _comment(self) -> bytes:
        """A comment, with the position if the client does not have it: an id without data is not an event."""
        known, self._known = self._known, self.position
        return b":\n\n" if known == self.position else b":\nid: %d\n\n" % self.position

    async def _write(self, data: bytes) -> None:
        await answers.write(self._response, data, self._request.transport, self._stall)
