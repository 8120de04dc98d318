"""A receiver of webhooks as fast as Python can be: answers 204 and counts changes, in a process of its own (`python -m bench.receiver`).

A line on standard output for the port, then one whenever changes have arrived: how many in all, and when the last.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time

import uvloop

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
CHANGE = b'"rowId"'

changes = 0
last = 0.0


class Receiver(asyncio.Protocol):
    """One connection; requests come one after the other.  A path that begins with /hang is never answered."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        global changes, last
        self.data += data
        head, end, body = self.data.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not end or not length or len(body) < int(length[1]):
            return
        self.data = b""
        if head.startswith(b"POST /hang"):
            return
        changes += body.count(CHANGE)
        last = time.time()
        self.transport.write(ANSWER)  # type: ignore[attr-defined]


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    said = 0
    while True:
        await asyncio.sleep(0.02)
        if changes != said:
            said = changes
            print(said, f"{last:.4f}", flush=True)


if __name__ == "__main__":
    try:
        uvloop.run(main())
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(0)
