"""Responses: entity tags, gzip, whole bodies, and what streamed ones (app/wire/streams.py) share with them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import re
import socket
import struct
import sys
import termios
import zlib
from collections.abc import AsyncIterator, Mapping
from functools import lru_cache

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import HttpVersion11
from multidict import MultiMapping

SLICE = 64 << 10  # bytes that are written at once
LOOKS = 4  # at what the client has taken, within the stall time
WORTHWHILE = 1 << 10  # bytes from which compression saves more than it costs
GZIP_LEVEL = 1  # the network is rarely slower than level 1 compresses
IN_THREAD = 32 << 10  # bytes from which compression runs in a thread, so as not to delay other requests

SERVER = "bds"  # in place of aiohttp's header Server, which tells versions
# The default headers of responses: data is not a page, so it may neither run scripts nor be shown in a frame.
SECURITY = (
    ("X-Content-Type-Options", "nosniff"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
)

ENTITY_TAG = re.compile(r'(?:W/)?("[^"]*")')


def weak_tag(*parts: object) -> str:
    """Return a weak entity tag: a hash of all that a representation depends on."""
    return f'W/"{hashlib.sha256(repr(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]}"'


def matches(headers: MultiMapping[str], tag: str) -> bool:
    """Whether If-None-Match is * or contains `tag`, by weak comparison."""
    if "If-None-Match" not in headers:
        return False
    wanted = ",".join(headers.getall("If-None-Match"))
    return wanted.strip() in ("*", tag) or tag.removeprefix("W/") in ENTITY_TAG.findall(wanted)


def quality(parameters: str) -> float:
    """Return the q of a media range's or coding's parameters: 1 if there is none, 0 if it is malformed."""
    found = re.search(r"(?:^|;)\s*q\s*=\s*([^;]*)", parameters, re.IGNORECASE)
    if found is None:
        return 1.0
    return float(found[1]) if re.fullmatch(r"\s*(0(\.\d{0,3})?|1(\.0{0,3})?)\s*", found[1]) else 0.0


def accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Whether Accept-Encoding allows gzip."""
    accepted = headers.get("Accept-Encoding")
    return accepted is not None and _allows_gzip(accepted)


@lru_cache(100)
def _allows_gzip(accepted: str) -> bool:
    codings: dict[str, float] = {}
    for coding in accepted.split(","):
        name, _, parameters = coding.partition(";")
        codings[name.strip().lower()] = quality(parameters)
    return codings.get("gzip", codings.get("x-gzip", codings.get("*", 0.0))) > 0


class GzipEncoder:
    """Compresses a body so that each piece can be decoded when it arrives."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 31)

    async def piece(self, data: bytes) -> bytes:
        return await asyncio.to_thread(self._compress, data) if len(data) > IN_THREAD else self._compress(data)

    def end(self) -> bytes:
        return self._deflate.flush()

    def _compress(self, data: bytes) -> bytes:
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)


class Answer(web.StreamResponse):
    """A response with a body that is complete, sent with one write in a fraction of the steps of aiohttp.web.Response."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        super().__init__(status=status, headers=headers)
        self.body = body
        if status not in (204, 304):
            self.headers["Content-Length"] = str(len(body))

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send everything.  Raises ConnectionError if the client has left."""
        self._keep_alive, self._eof_sent = request.keep_alive, True  # aiohttp asks for both afterwards
        headers = self.headers
        headers["Date"], headers["Server"] = rfc822_formatted_time(), SERVER
        if not request.keep_alive:
            headers["Connection"] = "close"
        elif request.version < HttpVersion11:
            headers["Connection"] = "keep-alive"
        lines = [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join([f"HTTP/1.1 {self.status} {self.reason}", *lines, "\r\n"])
        if head.count("\n") != len(lines) + 2:
            raise ValueError("a header has a line break")
        await request.writer.write(head.encode() + (b"" if request.method == "HEAD" else self.body))
        await request.writer.drain()
        return request.writer


async def send(
    request: web.Request, body: bytes, headers: Mapping[str, str], status: int = 200, *, compress: bool = True
) -> Answer:
    """Return a response with a body that is complete, compressed where that helps.  compress: False for a compressed body."""
    if compress and len(body) >= WORTHWHILE and accepts_gzip(request.headers):
        gzip = GzipEncoder()
        body, headers = await gzip.piece(body) + gzip.end(), {**headers, "Content-Encoding": "gzip"}
    return Answer(status, headers, body)


async def write(response: web.StreamResponse, data: bytes, transport: asyncio.Transport | None, stall: float) -> None:
    """Send data.  Raises TimeoutError if the client takes nothing for `stall` seconds."""
    view = memoryview(data)
    for start in range(0, len(view), SLICE):
        async with patience(transport, stall):
            await response.write(view[start : start + SLICE])


@contextlib.asynccontextmanager
async def patience(transport: asyncio.Transport | None, stall: float) -> AsyncIterator[None]:
    """Raise TimeoutError when the client has taken nothing for `stall` seconds of the block, and up to a fourth more."""
    loop = asyncio.get_running_loop()
    pause = stall / LOOKS
    timer: asyncio.TimerHandle
    async with asyncio.timeout(stall + pause) as limit:

        def look(before: int) -> None:
            nonlocal timer
            if (left := unacknowledged(transport)) < before:
                limit.reschedule(loop.time() + stall + pause)
            timer = loop.call_later(pause, look, left)

        timer = loop.call_later(pause, look, 0)
        try:
            yield
        finally:
            timer.cancel()


def unacknowledged(transport: asyncio.Transport | None) -> int:
    """Bytes that were sent and have not reached the client's system.

    The send buffer takes more only after a third of it is free, which are megabytes: minutes for a slow client that reads on.
    """
    if transport is None:
        return 0
    waiting, connection = transport.get_write_buffer_size(), transport.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):  # closed, or a system that does not tell
        waiting += int.from_bytes(fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return waiting


def reset(transport: asyncio.Transport | None) -> None:
    """Reset a connection: unsent data is dropped, and the client cannot take the end for a regular one."""
    if transport is None or transport.is_closing():
        return
    connection = transport.get_extra_info("socket")
    with contextlib.suppress(OSError, AttributeError):  # a socket may be closed already; TLS marks its own end
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
