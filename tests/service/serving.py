"""The service itself, for tests: a real server on a real socket over a real database, in a thread of its own."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import uvloop

from app.config import Config
from app.database.database import Database
from app.service.server import serving
from tests.conftest import Operator

PATIENCE = 10.0  # seconds after which a test has waited in vain
ANSWER = 60.0  # seconds for an answer, or for what comes by itself: the machine may have other work


@dataclass(frozen=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Service:
    """A running server, with what a client needs to know: its address and an API key for company `demo`."""

    host: str
    port: int
    key: str
    operator: Operator
    stop: Callable[[], object]

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"api:{self.key}".encode()).decode()

    def ask(self, path: str, method: str = "GET", authorization: str | None = "key", **headers: str) -> Reply:
        """Send one request, with the key unless something else (or None) is to be sent."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if authorization is not None:
            named["Authorization"] = self.basic if authorization == "key" else authorization
        connection = http.client.HTTPConnection(self.host, self.port, timeout=ANSWER)
        try:
            connection.request(method, path, headers=named)
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()

    def odata(self, path: str = "", **headers: str) -> Reply:
        return self.ask("/api/odata/demo" + path, **headers)

    def connect(self, receive_buffer: int | None = None, source: str | None = None) -> socket.socket:
        client = socket.socket()
        if source:
            client.bind((source, 0))
        if receive_buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.settimeout(PATIENCE)
        client.connect((self.host, self.port))
        return client

    def raw(self, data: bytes) -> Reply:
        """Send bytes as they are; the answer, which the server must end by closing."""
        with self.connect() as client:
            client.sendall(data)
            response = http.client.HTTPResponse(client)
            response.begin()
            reply = Reply(response.status, response.headers, response.read())
            assert client.recv(1) == b"", "the connection is open"
            return reply

    def request(self, path: str) -> bytes:
        """A GET of an OData path as bytes, for clients that misbehave."""
        return f"GET /api/odata/demo{path} HTTP/1.1\r\nHost: x\r\nAuthorization: {self.basic}\r\n\r\n".encode()


@contextmanager
def running(
    url: str, stall: float = 60.0, *, company: str | None = "demo", operator_url: str | None = None, **settings: Any
) -> Iterator[Service]:
    """A server over the database at `url`, in which a company `demo` is made, unless another server has made it (None).

    operator_url: where the operator connects, if not there.
    """
    addresses: queue.Queue[tuple[str, int] | BaseException] = queue.Queue()
    stops: list[Callable[[], object]] = []

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(stop.set))
        database = await Database.open(Config(database_url=url, **settings))
        try:
            async with serving(database, "127.0.0.1", 0, stall=stall) as address:
                addresses.put(address)
                await stop.wait()
        finally:
            await database.close()

    def run() -> None:
        try:
            uvloop.run(main())
        except BaseException as error:
            addresses.put(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    address = addresses.get(timeout=PATIENCE)
    if isinstance(address, BaseException):
        raise address
    try:
        with psycopg.connect(operator_url or url, autocommit=True) as connection:
            operator = Operator(connection)
            if company:
                operator.company(company)
            yield Service(*address, operator.key("demo"), operator, stops[0])
    finally:
        with suppress(RuntimeError):  # stopped already
            stops[0]()
        thread.join()


def unused_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for something that has no way to say that it happened."""
    waiting, deadline = threading.Event(), time.monotonic() + ANSWER
    while time.monotonic() < deadline:
        if condition():
            return
        waiting.wait(0.02)
    raise AssertionError("waited in vain")
