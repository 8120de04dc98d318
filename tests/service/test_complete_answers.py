"""Answers whose body is complete: one write, with the head that each version of HTTP and each method needs."""

from __future__ import annotations

import asyncio
import socket
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiohttp import web

from app.wire.answers import Answer
from tests.service.serving import Service

# the request's line, a header, and whether the connection stays open
CONNECTIONS = [
    ("GET {} HTTP/1.1", "", None, True),
    ("GET {} HTTP/1.1", "Connection: close\r\n", "close", False),
    ("GET {} HTTP/1.0", "", "close", False),
    ("GET {} HTTP/1.0", "Connection: keep-alive\r\n", "keep-alive", True),
]


@pytest.mark.parametrize(("line", "header", "expected", "stays_open"), CONNECTIONS)
def test_an_answer_tells_whether_the_connection_stays_open(
    service: Service, line: str, header: str, expected: str | None, stays_open: bool
) -> None:
    path = "/api/odata/demo/units?$top=1"
    request = f"{line.format(path)}\r\nHost: test\r\nAuthorization: {service.basic}\r\n{header}\r\n".encode()
    with service.connect() as client:
        client.sendall(request)
        head, body = _read_answer(client)
        assert head["connection"] == expected and int(head["content-length"] or 0) == len(body) > 0
        if stays_open:
            client.sendall(request)
            assert _read_answer(client)[1] == body
        else:
            assert client.recv(1) == b""


def test_the_next_answer_begins_where_one_without_a_body_ends(service: Service) -> None:
    path, key = "/api/odata/demo/units?$top=1", f"Host: test\r\nAuthorization: {service.basic}\r\n"
    with service.connect() as client:
        client.sendall(f"HEAD {path} HTTP/1.1\r\n{key}\r\n".encode())
        head, _ = _read_answer(client, has_body=False)
        length = int(head["content-length"] or 0)
        assert head["status"] == "200"
        client.sendall(f"GET {path} HTTP/1.1\r\n{key}If-None-Match: {head['etag']}\r\n\r\n".encode())
        head, _ = _read_answer(client, has_body=False)
        assert (head["status"], head["content-length"], head["transfer-encoding"]) == ("304", None, None)
        client.sendall(f"GET {path} HTTP/1.1\r\n{key}\r\n".encode())
        assert len(_read_answer(client)[1]) == length > 0


def test_an_answer_is_one_write() -> None:
    request = _request()
    asyncio.run(_prepare(Answer(200, {"Content-Type": "text/plain"}, b"hello"), request))
    (written,) = (call.args[0] for call in request.writer.write.await_args_list)
    assert written.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n") and written.endswith(b"\r\n\r\nhello")
    request.writer.drain.assert_awaited_once()  # so that a client that does not read is not written to for ever


@pytest.mark.parametrize("value", ["a\r\nX-Other: b", "a\nX-Other: b"])
def test_a_header_cannot_add_another_header(value: str) -> None:
    request = _request()
    with pytest.raises(ValueError, match="line break"):
        asyncio.run(_prepare(Answer(200, {"X-Some": value}), request))
    request.writer.write.assert_not_awaited()


def _request() -> Any:
    return Mock(keep_alive=True, version=(1, 1), method="GET", writer=Mock(write=AsyncMock(), drain=AsyncMock()))


async def _prepare(answer: Answer, request: web.Request) -> None:
    await answer.prepare(request)


def _read_answer(client: socket.socket, *, has_body: bool = True) -> tuple[dict[str, str | None], bytes]:
    """The headers of the next answer, and its body."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += client.recv(1)  # nothing of what follows the head
    first, *lines = received.decode().split("\r\n")[:-2]
    head: dict[str, str | None] = dict.fromkeys(("connection", "content-length", "transfer-encoding", "etag"))
    head |= {"status": first.split()[1]} | {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = b""
    while has_body and len(body) < int(head["content-length"] or 0):
        body += client.recv(4096)
    return head, body
