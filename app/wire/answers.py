"""HTTP that every room shares: decoding URLs, conditional requests, content codings, and bodies that stream.

A body streams with backpressure: nothing is fetched while the client has not taken what was sent.  Whatever goes wrong after the
first byte resets the connection, so that no half answer looks whole, not even to a client that reads until the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import socket
import struct
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import lru_cache

from aiohttp import web

SLICE = 64 << 10  # bytes that a client must take within the stall time
WORTHWHILE = 1 << 10  # bytes below which compressing costs more than it saves
GZIP_LEVEL = 1  # the network is rarely slower than level 1 compresses
PROCESS_PATIENCE = 120.0  # seconds
IN_THREAD = 32 << 10  # bytes from which compressing would keep other requests waiting

# sent with every answer that says nothing else: data is no page, runs nothing and is shown in no frame
SECURITY = (
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
)

ENTITY_TAG = re.compile(r'(?:W/)?("[^"]*")')


def weak_tag(*parts: object) -> str:
    """A weak entity tag of whatever a representation depends on."""
    return f'W/"{hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]}"'


def matches(headers: Mapping[str, str], tag: str) -> bool:
    """Whether If-None-Match names `tag`, compared weakly, or anything at all."""
    wanted = headers.get("If-None-Match", "").strip()
    return wanted == "*" or tag.removeprefix("W/") in ENTITY_TAG.findall(wanted)


def quality(parameters: str) -> float:
    """The q of a media range's or a coding's parameters: 1 without one, 0 if it cannot be read."""
    found = re.search(r"(?:^|;)\s*q\s*=\s*([^;]*)", parameters, re.IGNORECASE)
    if found is None:
        return 1.0
    return float(found[1]) if re.fullmatch(r"\s*(0(\.\d{0,3})?|1(\.0{0,3})?)\s*", found[1]) else 0.0


def accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Whether Accept-Encoding admits gzip."""
    accepted = headers.get("Accept-Encoding")
    return accepted is not None and _admits_gzip(accepted)


@lru_cache(100)
def _admits_gzip(accepted: str) -> bool:
    codings: dict[str, float] = {}
    for coding in accepted.split(","):
        name, _, parameters = coding.partition(";")
        codings[name.strip().lower()] = quality(parameters)
    return codings.get("gzip", codings.get("x-gzip", codings.get("*", 0.0))) > 0


class Streams:
    """The places for answers that stream, each holding a connection for as long as its client likes.

    They are fewer than the connections, so that slow readers of whole collections never keep small answers waiting.  What also
    needs a process of its own has a place among as many as there are processors.
    """

    def __init__(self, connections: int, patience: float, stall: float) -> None:
        self.stall = stall  # seconds after which a client that takes nothing is cut off
        self._patience = patience
        self._places = asyncio.Semaphore(max(1, connections * 3 // 4))
        self._processes = asyncio.Semaphore(os.cpu_count() or 1)

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Hold a place.  Raises TimeoutError if none becomes free in `patience` seconds."""
        async with _held(self._places, self._patience):
            yield

    @contextlib.asynccontextmanager
    async def process(self) -> AsyncIterator[None]:
        """Hold a place for a process.  Raises TimeoutError if none becomes free while two of them may run to their end."""
        async with _held(self._processes, PROCESS_PATIENCE):
            yield


@contextlib.asynccontextmanager
async def _held(places: asyncio.Semaphore, patience: float) -> AsyncIterator[None]:
    async with asyncio.timeout(patience):
        await places.acquire()
    try:
        yield
    finally:
        places.release()


class Gzip:
    """gzip that gives a decodable piece for each piece, so that the first bytes leave at once."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 31)

    async def piece(self, data: bytes) -> bytes:
        return await asyncio.to_thread(self._press, data) if len(data) > IN_THREAD else self._press(data)

    def end(self) -> bytes:
        return self._deflate.flush()

    def _press(self, data: bytes) -> bytes:
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


async def send(
    request: web.Request, body: bytes, headers: Mapping[str, str], status: int = 200, *, compress: bool = True
) -> web.Response:
    """An answer that is whole already, compressed where that helps."""
    response = web.Response(status=status, headers=headers)
    if compress and len(body) >= WORTHWHILE and accepts_gzip(request.headers):
        gzip = Gzip()
        body = await gzip.piece(body) + gzip.end()
        response.headers["Content-Encoding"] = "gzip"
    response.body = body
    return response


async def stream(
    request: web.Request, blocks: AsyncGenerator[bytes, None], headers: Mapping[str, str], stall: float, *, compress: bool = True
) -> web.StreamResponse:
    """Send blocks as they come.

    stall: seconds after which a client that takes nothing is cut off; compress: unless they are compressed by themselves.  Raises
    what `blocks` raises, after cutting the connection.
    """
    response = web.StreamResponse(headers=headers)
    gzip = Gzip() if compress and accepts_gzip(request.headers) else None
    if gzip:
        response.headers["Content-Encoding"] = "gzip"
    try:
        async with contextlib.aclosing(blocks):
            await response.prepare(request)
            async for block in blocks:
                await _write(response, await gzip.piece(block) if gzip else block, stall)
        await _write(response, gzip.end() if gzip else b"", stall)
        async with asyncio.timeout(stall):
            await response.write_eof()
    except BaseException:
        cut(request.transport)
        raise
    return response


async def _write(response: web.StreamResponse, data: bytes, stall: float) -> None:
    view = memoryview(data)
    for start in range(0, len(view), SLICE):
        async with asyncio.timeout(stall):
            await response.write(view[start : start + SLICE])


def cut(transport: asyncio.Transport | None) -> None:
    """Reset a connection: what was not sent is dropped, and the client cannot take the end for a regular one."""
    if transport is None or transport.is_closing():
        return
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):  # a closed socket needs no reset, TLS has its own end
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
