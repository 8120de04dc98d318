"""A client that asks for small answers one after the other on each of its connections, in a process of its own.

`python -m bench.client HOST PORT AUTHORIZATION PATH MODE FIRST LAST CONNECTIONS SECONDS` prints requests a second, and the time in
milliseconds within which 99 of 100 are answered.  In the path, {} gives way to random numbers from FIRST to LAST; in the mode `unchanged` each connection asks again and again for one answer
of which it knows the entity tag.
"""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
from typing import cast

import uvloop

LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n", re.IGNORECASE)
ETAG = re.compile(rb"\r\nETag: ([^\r]+)\r\n", re.IGNORECASE)


class Client(asyncio.Protocol):
    """One connection.  Asks for random rows, or again and again for one of which it knows the entity tag."""

    def __init__(self, request: str, ids: range, unchanged: bool) -> None:
        self.times: list[float] = []  # seconds that each answer took
        self.failure: str | None = None
        self._request, self._ids, self._unchanged = request, ids, unchanged
        self._again: bytes | None = None
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        status, length = self._buffer[9:12], LENGTH.search(self._buffer, 0, end + 2)
        if status == b"304":
            whole = True
        elif length:
            whole = len(self._buffer) >= end + 4 + int(length[1])
        else:
            whole = self._buffer.endswith(b"\r\n0\r\n\r\n")  # of an answer in chunks
        if not whole:
            return
        if status != (b"304" if self._again else b"200"):
            self.failure = self._buffer.decode()
            self._transport.close()
            return
        if self._unchanged and not self._again:
            tag = ETAG.search(self._buffer)
            assert tag is not None
            self._again = self._asked + b"If-None-Match: " + tag[1] + b"\r\n\r\n"
        else:
            self.times.append(time.perf_counter() - self._started)
        self._buffer = b""
        self._ask()

    def _ask(self) -> None:
        self._started = time.perf_counter()
        if self._again:
            self._transport.write(self._again)
            return
        self._asked = self._request.replace("{}", str(random.choice(self._ids))).encode()
        self._transport.write(self._asked + b"\r\n")


async def run(
    host: str, port: str, authorization: str, path: str, mode: str, first: str, last: str, connections: str, duration: str
) -> tuple[float, float]:
    """Requests a second, and the milliseconds of the 99th percentile.  Raises RuntimeError if an answer was not the expected one."""
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: {authorization}\r\n"
    ids = range(int(first), int(last) + 1)
    loop = asyncio.get_running_loop()
    clients = [
        (await loop.create_connection(lambda: Client(request, ids, mode == "unchanged"), host, int(port)))[1]
        for _ in range(int(connections))
    ]
    await asyncio.sleep(1)  # the service opens its connections and prepares its statements
    for each in clients:
        each.times.clear()
    started = loop.time()
    await asyncio.sleep(float(duration))
    took, times = loop.time() - started, sorted(time for each in clients for time in each.times)
    for each in clients:
        if each.failure:
            raise RuntimeError(each.failure)
    return len(times) / took, times[len(times) * 99 // 100] * 1e3


if __name__ == "__main__":
    print(*uvloop.run(run(*sys.argv[1:])))
