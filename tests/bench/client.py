"""A client that asks for one small answer after the other on each of its connections, in a process of its own.

`python -m tests.bench.client HOST PORT KEY COMPANY rows|unchanged FIRST_ID LAST_ID CONNECTIONS SECONDS` prints requests a second.
"""

from __future__ import annotations

import asyncio
import base64
import random
import re
import sys
from typing import cast

import uvloop

LENGTH = re.compile(rb"\r\nContent-Length: (\d+)\r\n", re.IGNORECASE)
ETAG = re.compile(rb"\r\nETag: ([^\r]+)\r\n", re.IGNORECASE)


class Client(asyncio.Protocol):
    """One connection.  Asks for random rows, or again and again for one of which it knows the entity tag."""

    def __init__(self, head: str, tail: str, ids: range, unchanged: bool) -> None:
        self.answers = 0
        self.failure: str | None = None
        self._head, self._tail, self._ids, self._unchanged = head, tail, ids, unchanged
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
        if len(self._buffer) < end + 4 + (int(length[1]) if length and status != b"304" else 0):
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
            self.answers += 1
        self._buffer = b""
        self._ask()

    def _ask(self) -> None:
        if self._again:
            self._transport.write(self._again)
            return
        self._asked = f"{self._head}{random.choice(self._ids)}{self._tail}".encode()
        self._transport.write(self._asked + b"\r\n")


async def run(
    host: str, port: str, key: str, company: str, mode: str, first: str, last: str, connections: str, duration: str
) -> float:
    """Requests a second.  Raises RuntimeError if an answer was not the expected one."""
    credentials = base64.b64encode(f"api:{key}".encode()).decode()
    head, tail = f"GET /api/odata/{company}/products(", f") HTTP/1.1\r\nHost: bench\r\nAuthorization: Basic {credentials}\r\n"
    ids = range(int(first), int(last) + 1)
    loop = asyncio.get_running_loop()
    clients = [
        (await loop.create_connection(lambda: Client(head, tail, ids, mode == "unchanged"), host, int(port)))[1]
        for _ in range(int(connections))
    ]
    await asyncio.sleep(1)  # the service opens its connections and prepares its statements
    before, started = sum(each.answers for each in clients), loop.time()
    await asyncio.sleep(float(duration))
    answers, took = sum(each.answers for each in clients) - before, loop.time() - started
    for each in clients:
        if each.failure:
            raise RuntimeError(each.failure)
    return answers / took


if __name__ == "__main__":
    print(uvloop.run(run(*sys.argv[1:])))
