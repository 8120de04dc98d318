"""Followers of streams of changes, all in one process: `python -m bench.followers HOST PORT KEY STREAMS COMPANY...`.

Prints `ready` when every stream has begun, and a line `COMPANY ID NANOSECONDS` for each event, of the clock that all processes
share, when standard input ends.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from typing import cast

import uvloop

EVENT = re.compile(rb"id: (\d+)\ndata")


class Follower(asyncio.Protocol):
    """One stream.  events: what came, and when."""

    def __init__(self, request: bytes) -> None:
        self.has_begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.events: list[tuple[int, bytes]] = []
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        self.events.append((time.perf_counter_ns(), data))
        if not self.has_begun.done() and b"\n:" in data:
            self.has_begun.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.has_begun.done():
            self.has_begun.set_exception(error or ConnectionError("the stream has ended"))


async def run(host: str, port: str, key: str, streams: str, *companies: str) -> None:
    """Follow until standard input ends."""
    loop = asyncio.get_running_loop()
    followers: list[tuple[str, Follower]] = []
    for number in range(int(streams)):
        company = companies[number % len(companies)]
        request = f"GET /c/{company}/changes/stream HTTP/1.1\r\nHost: bench\r\nX-API-Key: {key}\r\n\r\n".encode()
        _, follower = await loop.create_connection(lambda request=request: Follower(request), host, int(port))  # type: ignore[misc]
        followers.append((company, follower))
    await asyncio.gather(*(each.has_begun for _, each in followers))
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for company, follower in followers:
        for came, data in follower.events:
            for id in EVENT.findall(data):  # no event is larger than a packet of the loopback
                print(company, int(id), came)


if __name__ == "__main__":
    uvloop.run(run(*sys.argv[1:]))
