"""`GET /c/{company}/changes/stream`: changes as server-sent events, as they commit."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import psycopg
from aiohttp import web

from app import metrics
from app.changes.hub import Hub
from app.changes.page import Start, condition
from app.changes.parameters import by_name
from app.changes.tail import Events, Tail, encode
from app.database.catalog import Catalog
from app.database.pool.listening import RECONNECT
from app.errors import QueryError, ServiceError
from app.logs import count_rows
from app.types.event_ids import Event, prefix, read_event
from app.wire import answers

COMMENT = 15.0  # seconds between two comments
GOODBYE = 1.0  # seconds for the end of a stream
BUFFER = 128 << 10  # bytes that the kernel keeps for a client
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
LAST = "Last-Event-ID"


class Wish(NamedTuple):
    """The request of a client.

    after: None for changes from now on; target: the option that gives it.  generation: of the company, as the client has sent it.
    """

    filter: str
    after: Event | None
    target: str
    generation: str | None


def read_request(catalog: Catalog, options: Sequence[tuple[str, str]], headers: Mapping[str, str]) -> Wish:
    """Read filter, after and Last-Event-ID.  A browser that reconnects sends Last-Event-ID and the same URL, with its `after`.

    Raises QueryError.
    """
    given = by_name(options, ("filter", "after", "generation"))
    filter = given.get("filter", "").strip()
    condition(catalog, given.get("filter", ""))
    after = _id(given["after"], "after") if "after" in given else None
    generation = given.get("generation")
    if not headers.get(LAST):
        return Wish(filter, after, "after", generation)
    last = _id(headers[LAST], LAST)
    if after is not None and last.generation == after.generation and last.id < after.id:
        raise QueryError(f"{LAST} {last} is before after={after}: expected one of them", target="after")
    return Wish(filter, last, LAST, generation)


def _id(text: str, target: str) -> Event:
    try:
        return read_event(text)
    except ValueError as error:
        raise QueryError(str(error), target=target) from None


async def respond(hub: Hub, request: web.Request, company: str, wish: Wish, stall: float) -> web.StreamResponse:
    """Answer with the stream.  stall: seconds after which a client that takes nothing is cut.

    Raises ServiceError: gone, not_found, busy, aborted.
    """
    start = await hub.start(company, wish.after, wish.target)
    if request.method == "HEAD":
        return web.Response(headers=headers(start))
    return await Stream(hub, request, company, wish, start, stall).send()


def headers(start: Start) -> dict[str, str]:
    """The headers of a stream that begins there."""
    return {**HEADERS, "X-BDS-Generation": str(start.generation)}


class Stream:
    """One client's stream."""

    def __init__(self, hub: Hub, request: web.Request, company: str, wish: Wish, start: Start, stall: float) -> None:
        self.company, self.filter = company, wish.filter
        self.position = start.after
        # the id with which the client would resume; one of an earlier generation is gone when the next one ends
        self._known = wish.after.id if wish.after and wish.after.generation == start.generation else None
        self._start, self._prefix = start, prefix(start.generation).encode()
        self._hub, self._request, self._stall = hub, request, stall
        self._response = web.StreamResponse(headers=headers(start))
        self._ending = asyncio.timeout(None)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the request."""
        return self._request.headers

    def end(self) -> None:
        """End the stream, even while it waits."""
        if not self._ending.expired():
            self._ending.reschedule(0)

    async def send(self) -> web.StreamResponse:
        """Send changes until the client leaves, does not read, or the stream is ended."""
        self._response.force_close()
        try:
            async with self._ending:
                with self._hub.following(self, self._start) as tail, metrics.followers.track_inprogress():
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
                count_rows(events.changes)
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
            if page.generation == self._start.generation and page.through > self.position:
                return encode(page.records, page.through, page.generation)
            self.end()  # the log is shorter than it was
        return Events(self.position, 0)

    def _comment(self) -> bytes:
        """A comment, with the position if the client does not have it: an id without data is not an event."""
        known, self._known = self._known, self.position
        return b":\n\n" if known == self.position else b":\nid: %b%d\n\n" % (self._prefix, self.position)

    async def _write(self, data: bytes) -> None:
        await answers.write(self._response, data, self._request.transport, self._stall)
