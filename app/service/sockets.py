"""The address that the service listens on: checked to be free, or an error that names it; and the connections that arrive there."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

log = logging.getLogger("bds.http")

BACKLOG = 1024  # connections that wait to be accepted
RETRY = 1.0  # seconds after which connections are accepted again when the process or the machine has no descriptors left
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def resolve_address(host: str, port: int) -> tuple[int, tuple[Any, ...]]:
    """Return (family, socket address) of a free address; port 0 takes any free port.  Raises OSError if it is in use."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            return family, (address[0], probe.getsockname()[1], *address[2:])
    except OSError as error:
        raise listen_error(host, port, error) from None


def listen_error(host: str, port: int, error: OSError) -> OSError:
    """The same error with a message that names the address."""
    reason = error.strerror if isinstance(error, socket.gaierror) or error.errno is None else os.strerror(error.errno)
    return OSError(error.errno, reason, f"cannot listen on {f'[{host}]' if ':' in host else host}:{port}")


async def bind(host: str, port: int) -> list[socket.socket]:
    """Sockets that are bound to the addresses of a host.  Raises OSError."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    try:
        return [each.dup() for each in server.sockets]
    finally:
        server.close()


class Acceptor:
    """Listens on sockets, and accepts all connections that wait there.

    uvloop's own server accepts one connection in a turn of its event loop, in which it also reads a request from each connection
    that it has already: the last of a thousand clients that arrive together would wait for thousands of answers to others.
    """

    def __init__(self, sockets: Sequence[socket.socket], make: Callable[[], asyncio.Protocol]) -> None:
        self._loop = asyncio.get_running_loop()
        self._sockets, self._make = sockets, make
        self._opening: set[asyncio.Task[Any]] = set()
        self._retry: asyncio.TimerHandle | None = None
        for each in sockets:
            each.setblocking(False)
            each.listen(BACKLOG)
        self._watch()

    async def close(self) -> None:
        """Accept those that wait, which the system would cut, and no more."""
        if self._retry is not None:
            self._retry.cancel()
        for each in self._sockets:
            self._loop.remove_reader(each)
            self._accept(each)
            self._loop.remove_reader(each)  # no descriptors are left
            each.close()
        if self._retry is not None:
            self._retry.cancel()
        await asyncio.gather(*self._opening)

    def _watch(self) -> None:
        for each in self._sockets:
            self._loop.add_reader(each, self._accept, each)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(BACKLOG):
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in EXHAUSTED:
                    raise
                log.error("connections wait, because none can be accepted: %s", os.strerror(error.errno))
                for each in self._sockets:
                    self._loop.remove_reader(each)
                self._retry = self._loop.call_later(RETRY, self._watch)
                return
            connection.setblocking(False)
            opening = asyncio.create_task(self._open(connection))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    async def _open(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, connection)
        except OSError:  # the client has left
            connection.close()
