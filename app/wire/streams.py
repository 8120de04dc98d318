"""Streamed responses: how many there are at once, and how each reaches its client.

A stream reads from the database while it sends, and has backpressure: the next block is made when the client has taken the one
before.  A client that keeps the database waiting is slow.  What it does not take is spooled to a file (app/wire/spool.py), as fast
as the database gives it, so that the connection to the database is given back however slowly the client reads.  One stream at a
time is spooled, and it rests after each block while others are answered.

If the spool has no space, the stream waits for its client and holds its connection.  When such streams hold all slots, further
ones are refused at once.  An error after the first byte resets the connection, so that an incomplete response never looks complete.

Private parts of aiohttp in use: StreamResponse._payload_writer and the option `drain` of its `write`;
tests/service/test_private_names.py fails if they change.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from aiohttp import web

from app import metrics
from app.errors import ServiceError
from app.wire.answers import SLICE, GzipEncoder, accepts_gzip, patience, reset, write
from app.wire.spool import PAGE, Spool

PROCESS_SLOT_TIMEOUT = 120.0  # seconds to wait for a process slot: as long as two templates may run
# A client is slow if it has kept the database waiting for these seconds and half of the time besides, or for a second at once.
GRACE, LONGEST = 0.25, 1.0
# While others are answered, a stream that is spooled rests so many times as long as its last block took, and no longer than that.
PACE, LONGEST_REST = 3.0, 0.25  # seconds


class Streams:
    """Slots for streamed responses, each of which holds a database connection until the database has given everything.

    There are fewer slots than connections, so that streams never delay small responses.  Responses that need a child process also
    take one of the process slots, of which there are as many as processors.

    connections: size of the pool; timeout: seconds to wait for a slot; stall: seconds without progress after which a client is cut;
    spool: bytes that are spooled at most.
    """

    def __init__(self, connections: int, timeout: float, stall: float, spool: int) -> None:
        self.stall = stall
        self.spool = Spool(spool)
        self._timeout = timeout
        self._free = max(1, connections * 3 // 4)
        self._given = 0  # slots given back so far
        self._queue: deque[asyncio.Future[None]] = deque()
        self._processes = asyncio.Semaphore(os.cpu_count() or 1)
        self._spooling: Body | None = None
        self._turns: set[asyncio.Event] = set()

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold a slot.

        Raises ServiceError(busy) at once if streams that wait for space in the spool hold all slots, TimeoutError if none is given
        back within `timeout`.
        """
        await self._take()
        try:
            yield
        finally:
            self._give()

    @contextlib.asynccontextmanager
    async def process_slot(self) -> AsyncIterator[None]:
        """Hold a process slot.  Raises TimeoutError if none becomes free within PROCESS_SLOT_TIMEOUT."""
        async with asyncio.timeout(PROCESS_SLOT_TIMEOUT):
            await self._processes.acquire()
        try:
            yield
        finally:
            self._processes.release()

    def takes_turn(self, body: Body) -> bool:
        """Let a body spool if no other one does: slow readers have time, and the processors are for others, too."""
        if self._spooling is None:
            self._spooling = body
        return self._spooling is body

    def give_turn(self, body: Body) -> None:
        """Let another body spool."""
        if self._spooling is body:
            self._spooling = None
            for event in self._turns:
                event.set()

    async def wait_for_turn(self, event: asyncio.Event) -> None:
        """Wait for an event, which is also set when the turn to spool is given back."""
        self._turns.add(event)
        try:
            await event.wait()
        finally:
            self._turns.discard(event)

    async def wait_for_space(self, event: asyncio.Event) -> None:
        """Wait for an event, which is also set when the spool has space; meanwhile refuse whoever needs a slot and finds none."""
        while self._queue:
            if not (turn := self._queue.popleft()).done():
                turn.set_exception(_refusal())
        await self.spool.wait(event)

    async def _take(self) -> None:
        if self._free:
            self._free -= 1
            return
        if self.spool.is_full:
            raise _refusal()
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            while not turn.done():
                given = self._given
                await asyncio.wait({turn}, timeout=self._timeout)
                if not turn.done() and given == self._given:  # a queue that moves is waited for
                    raise TimeoutError
            turn.result()
        except BaseException:
            if not turn.cancel() and turn.exception() is None:
                self._give()
            raise

    def _give(self) -> None:
        self._given += 1
        while self._queue:
            if not (turn := self._queue.popleft()).done():
                turn.set_result(None)
                return
        self._free += 1


STREAMS = web.AppKey("streams", Streams)


def _refusal() -> ServiceError:
    message = "too many clients read their answers slowly; try again later"
    return ServiceError("busy", message, headers={"Retry-After": "5"})


async def stream(
    request: web.Request,
    blocks: AsyncGenerator[bytes, None],
    headers: Mapping[str, str],
    streams: Streams,
    held: contextlib.AsyncExitStack | None = None,
    *,
    compress: bool = True,
) -> web.StreamResponse:
    """Send blocks as they are made.

    held: what `blocks` need, given back after the last one, even if the client has not taken everything; compress: False for blocks
    that are compressed.  Raises what `blocks` raises, after the connection was reset.
    """
    response = web.StreamResponse(headers=headers)
    gzip = GzipEncoder() if compress and accepts_gzip(request.headers) else None
    if gzip:
        response.headers["Content-Encoding"] = "gzip"
    body = Body(request.transport, response, streams)
    try:
        async with contextlib.aclosing(blocks):
            await response.prepare(request)
            async for block in blocks:
                await body.put(await gzip.piece(block) if gzip else block)
        if gzip:
            await body.put(gzip.end())
        streams.give_turn(body)
        if held:
            await held.aclose()
        await body.end()
    except BaseException:
        reset(request.transport)
        raise
    finally:
        await body.close()
    return response


class Body:
    """The body of a response on its way to the client: directly while the client keeps up, otherwise by way of the spool."""

    def __init__(self, transport: asyncio.Transport | None, response: web.StreamResponse, streams: Streams) -> None:
        self._transport, self._response, self._streams, self._spool = transport, response, streams, streams.spool
        self._clock = asyncio.get_running_loop().time
        self._started, self._waited = self._clock(), 0.0
        self._sender: asyncio.Task[None] | None = None  # while something waits to be sent
        # what waits: pages, then what is in memory
        self._pages: deque[int] = deque()
        self._rest, self._taken = b"", 0  # bytes, of which so many do not wait any more
        self._storing = asyncio.Lock()  # held while bytes in memory become pages
        self._changed = asyncio.Event()  # less waits, or the spool has space
        self._is_slow = False
        self._resumed, self._answered = 0.0, 0  # when the last block was stored, and how many requests were answered until then

    async def put(self, data: bytes) -> None:
        """Take the next piece; return when there is room for the one after.

        Raises TimeoutError if the client takes nothing for a stall, ConnectionError if it has left, OSError if the spool fails.
        """
        if self._has_sent() and not (data := await self._send_at_once(data)):
            return
        self._rest, self._taken = self._rest[self._taken :] + data, 0
        if self._has_sent():
            self._sender = asyncio.create_task(self._send_waiting())
            self._sender.add_done_callback(lambda _: self._changed.set())
        if not self._pages:
            await self._give_time()
        while not self._has_sent() and len(self._rest) - self._taken >= PAGE:
            self._note_slow(True)
            self._changed.clear()
            if not self._streams.takes_turn(self):
                await self._streams.wait_for_turn(self._changed)
            elif await self._store():
                await self._rest_for_others()
            else:
                self._streams.give_turn(self)
                await self._streams.wait_for_space(self._changed)

    async def end(self) -> None:
        """Return when everything is sent.  Raises what `put` raises."""
        while not self._has_sent():
            assert self._sender is not None
            await asyncio.wait({self._sender})
        async with patience(self._transport, self._streams.stall):
            await self._response.write_eof()

    async def close(self) -> None:
        """Give up what is not sent."""
        self._spool.give(self._pages)
        self._pages.clear()
        self._rest = b""
        self._note_slow(False)
        if self._sender is not None:
            self._sender.cancel()
            await asyncio.gather(self._sender, return_exceptions=True)

    def _has_sent(self) -> bool:
        """Whether nothing waits.  Raises the error with which sending has ended."""
        if self._sender is not None and self._sender.done():
            sender, self._sender = self._sender, None
            self._note_slow(False)
            sender.result()
        return self._sender is None

    def _note_slow(self, is_slow: bool) -> None:
        if is_slow == self._is_slow:
            return
        self._is_slow = is_slow
        metrics.spooled_readers.inc(1 if is_slow else -1)
        if not is_slow:
            self._streams.give_turn(self)
        if self._transport is not None and not self._transport.is_closing():  # a slow client has no buffer before the socket's
            self._transport.set_write_buffer_limits(*((0,) if is_slow else ()))

    async def _send_at_once(self, data: bytes) -> bytes:
        """Send what the socket takes without waiting; return the rest."""
        sent, transport = 0, self._transport
        while sent < len(data) and transport is not None and not transport.get_write_buffer_size():
            piece = data[sent : sent + SLICE]  # a copy: the socket may take it late, and should not keep the whole block
            await self._response._payload_writer.write(piece, drain=False)  # type: ignore[call-arg, union-attr]
            sent += len(piece)
        return data[sent:]

    async def _give_time(self) -> None:
        """Wait until everything is sent, or the client turns out to be slow."""
        assert self._sender is not None
        asked = self._clock()
        patience = min(2 * (GRACE - self._waited) + asked - self._started, LONGEST)
        await asyncio.wait({self._sender}, timeout=max(0.0, patience))
        self._waited += self._clock() - asked

    async def _rest_for_others(self) -> None:
        """Leave the processors to others for a while, if others were answered while this stream made a block."""
        if self._resumed and self._answered != metrics.http.answered:
            await asyncio.sleep(min(PACE * (self._clock() - self._resumed), LONGEST_REST))
        self._resumed, self._answered = self._clock(), metrics.http.answered

    async def _store(self) -> bool:
        """Store as many whole pages of the bytes in memory as there is space for; returns whether there was any."""
        async with self._storing:
            pages = self._spool.take((len(self._rest) - self._taken) // PAGE)
            if not pages:
                return False
            data = self._rest[self._taken : self._taken + len(pages) * PAGE]
            try:
                await self._spool.write(pages, data)
            except BaseException as error:
                self._spool.give(pages)
                if isinstance(error, OSError):
                    return False
                raise
            self._rest, self._taken = self._rest[self._taken + len(data) :], 0
            self._pages.extend(pages)
        return True

    async def _send_waiting(self) -> None:
        """Send what waits until nothing does."""
        while True:
            if self._pages:
                page = self._pages.popleft()
                try:
                    data = await self._spool.read(page)
                finally:
                    self._spool.give([page])
            else:
                async with self._storing:
                    if self._pages:
                        continue
                    data = self._rest[self._taken : self._taken + SLICE]
                    self._taken += len(data)
                if not data:
                    return
                self._changed.set()
            await write(self._response, data, self._transport, self._streams.stall)
