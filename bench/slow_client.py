"""Slow readers of one path, all in a process of their own: each takes 32 KB at most, twice a second.

`python -m bench.slow_client HOST PORT AUTHORIZATION PATH COUNT` prints the status of each answer when its head has arrived, and
reads on until it is ended.
"""

from __future__ import annotations

import asyncio
import socket
import sys

BUFFER = 32 << 10  # bytes that a socket receives ahead
PAUSE = 0.5  # seconds between two reads


async def read(address: tuple[str, int], request: bytes) -> None:
    """Read an answer slowly, until it ends."""
    loop, client = asyncio.get_running_loop(), socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    client.setblocking(False)
    await loop.sock_connect(client, address)
    await loop.sock_sendall(client, request)
    print((await loop.sock_recv(client, BUFFER))[9:12].decode(), flush=True)
    while await loop.sock_recv(client, BUFFER):
        await asyncio.sleep(PAUSE)


async def run(host: str, port: str, authorization: str, path: str, count: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: {authorization}\r\n\r\n".encode()
    await asyncio.gather(*(read((host, int(port)), request) for _ in range(int(count))))


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
