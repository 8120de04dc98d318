"""For tests: a client of the stream of changes."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.service.serving import ANSWER, Service, wait_until


class Refused(Exception):
    """A request for a stream got another answer."""


@dataclass
class Client:
    """An open stream and what has come of it.

    events: id and record of each event; comments: how many; known: the id with which a browser would resume; generation: that of the
    ids.
    """

    connection: http.client.HTTPConnection
    response: http.client.HTTPResponse
    events: list[tuple[int, Any]] = field(default_factory=list)
    comments: int = 0
    known: int | None = None
    generation: int = 1
    has_ended: bool = False

    @property
    def ids(self) -> list[int]:
        return [id for id, _ in self.events]

    def read(self) -> None:
        """Read to the end."""
        data = ""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError, AttributeError):
            while line := self.response.readline().decode():
                name, _, value = line.rstrip("\n").partition(":")
                value = value.removeprefix(" ")
                if name == "id":
                    generation, _, id = value.rpartition(":")
                    self.known, self.generation = int(id), int(generation or 1)
                elif name == "data":
                    data = value
                elif not name and line != "\n":
                    self.comments += 1
                elif data:
                    assert self.known is not None
                    self.events.append((self.known, json.loads(data)))
                    data = ""
        self.has_ended = True

    def wait(self, events: int) -> None:
        """Wait until so many events have come, and fail if more have."""
        wait_until(lambda: len(self.events) >= events or self.has_ended)
        assert len(self.events) == events, self.ids

    def wait_for_end(self) -> None:
        wait_until(lambda: self.has_ended)


def connect(
    service: Service, company: str = "demo", *, last: int | str | None = None, headers: dict[str, str] | None = None, **options: Any
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """Send a request for a stream; returns when its head has come."""
    connection = http.client.HTTPConnection(service.host, service.port, timeout=ANSWER)
    sent = headers if headers is not None else {"X-API-Key": service.key}
    sent = sent if last is None else {**sent, "Last-Event-ID": str(last)}
    connection.request("GET", f"/c/{company}/changes/stream?{urlencode(options)}", headers=sent)
    return connection, connection.getresponse()


@contextlib.contextmanager
def following(service: Service, company: str = "demo", **options: Any) -> Iterator[Client]:
    """A client that reads in a thread of its own, from when the stream has begun.  Raises Refused."""
    connection, response = connect(service, company, **options)
    if response.status != 200:
        raise Refused(response.read())
    client = Client(connection, response)
    reading = threading.Thread(target=client.read, daemon=True)
    reading.start()
    try:
        wait_until(lambda: client.comments > 0 or client.has_ended)
        yield client
    finally:
        cut(client)
        reading.join()


def cut(client: Client) -> None:
    """Leave at once."""
    with contextlib.suppress(OSError, AttributeError):
        socket.socket.shutdown(client.response.fp.raw._sock, socket.SHUT_RDWR)  # type: ignore[union-attr]
    client.connection.close()
