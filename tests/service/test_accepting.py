"""Connections that arrive at once are accepted at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from collections.abc import AsyncGenerator, Iterator

import pytest
import uvloop

from app.export.process import pipe_through
from app.service.sockets import EXHAUSTED, Acceptor, bind
from tests.service.serving import Service

MANY = 100  # connections
PATIENCE = 60.0  # seconds


class Noted(asyncio.Protocol):
    """A connection that notes when it was made, and that it was lost."""

    def __init__(self, made: list[asyncio.BaseTransport]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made.append(transport)


async def until(made: list[asyncio.BaseTransport], count: int) -> int:
    """Wait until so many connections are made; returns the turns of the event loop that this took."""
    turns = 0
    async with asyncio.timeout(PATIENCE):
        while len(made) < count:
            turns += 1
            await asyncio.sleep(0)
    return turns


def test_all_connections_that_wait_are_accepted_in_one_turn_of_the_event_loop() -> None:
    async def main() -> None:
        made: list[asyncio.BaseTransport] = []
        sockets = await bind("127.0.0.1", 0)
        for each in sockets:
            each.listen(MANY)
        with contextlib.ExitStack() as clients:
            for _ in range(MANY):
                clients.enter_context(socket.create_connection(sockets[0].getsockname()))
            acceptor = Acceptor(sockets, lambda: Noted(made))
            try:
                assert await until(made, 1) + await until(made, MANY) < MANY / 10
            finally:
                await acceptor.close()

    uvloop.run(main())


def test_connections_wait_while_the_process_has_no_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "bds.http")

    async def main() -> None:
        made: list[asyncio.BaseTransport] = []
        sockets = await bind("127.0.0.1", 0)
        acceptor = Acceptor(sockets, lambda: Noted(made))
        try:
            with socket.socket() as client:
                with no_descriptors():
                    client.connect(sockets[0].getsockname())
                    async with asyncio.timeout(PATIENCE):
                        while not caplog.messages:
                            await asyncio.sleep(0)
                    assert not made
                await until(made, 1)
        finally:
            await acceptor.close()

    uvloop.run(main())
    assert "connections wait, because none can be accepted: Too many open files" in caplog.messages


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open no file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_child_that_lacks_descriptors_is_told_apart_from_failures() -> None:
    async def nothing() -> AsyncGenerator[bytes, None]:
        yield b""

    async def main() -> None:
        with no_descriptors(), pytest.raises(OSError) as caught:
            await anext(pipe_through("app.export.layout", nothing()))
        assert caught.value.errno in EXHAUSTED, "for which the middleware answers 503"

    uvloop.run(main())


def test_a_closed_acceptor_refuses_connections() -> None:
    async def main() -> None:
        sockets = await bind("127.0.0.1", 0)
        address = sockets[0].getsockname()
        await Acceptor(sockets, asyncio.Protocol).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)

    uvloop.run(main())


def test_a_client_that_leaves_before_it_is_accepted_harms_nobody(service: Service) -> None:
    for _ in range(20):
        with socket.create_connection((service.host, service.port)) as left:
            left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closes with a reset
    assert service.ask("/healthz").status == 200
