"""For tests: the real server on a real socket and a real database, in a thread of its own."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import queue
import random
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
from tests.service.placed import PLACED, beside

PATIENCE = 10.0  # seconds after which a test fails for waiting too long
ANSWER = 120.0  # seconds for a response or an event on a busy machine


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
    """A running server: its address, and an API key for the company `demo`."""

    host: str
    port: int
    key: str
    operator: Operator
    stop: Callable[[], object]

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"api:{self.key}".encode()).decode()

    def ask(self, path: str, method: str = "GET", authorization: str | None = "key", **headers: str) -> Reply:
        """Send one request.  authorization: the header's value, None to send no header; default: the key."""
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
        """Send bytes as they are; returns the response, after which the server must close the connection."""
        with self.connect() as client:
            client.sendall(data)
            response = http.client.HTTPResponse(client)
            response.begin()
            reply = Reply(response.status, response.headers, response.read())
            assert client.recv(1) == b"", "the connection is open"
            return reply

    def request(self, path: str) -> bytes:
        """A GET of an OData path as bytes, for tests that send it themselves."""
        return f"GET /api/odata/demo{path} HTTP/1.1\r\nHost: x\r\nAuthorization: {self.basic}\r\n\r\n".encode()


@contextmanager
def running(
    url: str, stall: float = 60.0, *, company: str | None = "demo", operator_url: str | None = None, **settings: Any
) -> Iterator[Service]:
    """A server for the database at `url`.

    company: created first, None if it exists; operator_url: where the operator connects, default `url`; settings: of Config.
    With BDS_TEST_PLACED=1 the database is a place of another one, which is home.
    """
    addresses: queue.Queue[tuple[str, int] | BaseException] = queue.Queue()
    stops: list[Callable[[], object]] = []

    placed = beside(url) if PLACED else None
    home_url = placed.home_url if placed else url

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        stops.append(lambda: loop.call_soon_threadsafe(stop.set))
        database = await Database.open(Config(database_url=home_url, **settings))
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
            operator = placed.operator(connection) if placed else Operator(connection)
            if company:
                operator.company(company)
            yield Service(*address, operator.key("demo"), operator, stops[0])
    finally:
        with suppress(RuntimeError):  # already stopped
            stops[0]()
        thread.join()
        if placed:
            placed.drop()


def unused_port() -> int:
    """A free port of this machine, which no client of another test gets until a server listens there."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_768)  # below those that Linux gives to clients
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until the condition holds."""
    waiting, deadline = threading.Event(), time.monotonic() + ANSWER
    while time.monotonic() < deadline:
        if condition():
            return
        waiting.wait(0.02)
    raise AssertionError("the condition did not become true in time")
