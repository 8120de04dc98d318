"""Small reads by clients that pipeline, send what no read needs, or leave in the middle."""

from __future__ import annotations

import http.client
import io
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.service.serving import PATIENCE, Reply, Service, wait_until

MANY = 1_000  # requests at once on one connection


class Received(io.BytesIO):
    """Answers that were received, in a form that http.client reads; several of them follow one another."""

    def makefile(self, _mode: str) -> Received:
        return self

    def close(self) -> None:
        """http.client closes what it reads at the end of an answer; the next one begins there."""


def replies(received: bytes, methods: list[str]) -> list[Reply]:
    """The answers to requests of these methods.  Raises if more was received."""
    file, found = Received(received), []
    for method in methods:
        response = http.client.HTTPResponse(file, method=method)  # type: ignore[arg-type]
        response.begin()
        found.append(Reply(response.status, response.headers, response.read()))
    assert file.read() == b""
    return found


@contextmanager
def sending(client: socket.socket, data: bytes) -> Iterator[None]:
    """Send in a thread of its own: a server that waits for its answers to be taken takes no more requests."""
    thread = threading.Thread(target=client.sendall, args=(data,))
    thread.start()
    yield
    thread.join()


def ask_all(service: Service, requests: list[tuple[str, str, str]]) -> list[Reply]:
    """Send requests (method, path, further header lines) at once on one connection; returns the answers."""
    lines = [f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {service.basic}\r\n{more}" for method, path, more in requests]
    lines[-1] += "Connection: close\r\n"
    with service.connect() as client:
        client.settimeout(PATIENCE * 6)
        received = b""
        with sending(client, "".join(f"{each}\r\n" for each in lines).encode()):
            while piece := client.recv(1 << 20):
                received += piece
    return replies(received, [method for method, _, _ in requests])


@pytest.fixture(scope="module")
def ids(service: Service) -> list[int]:
    """The ids of some units."""
    service.operator.write(
        "demo", "insert into data.units (code, name) select 'H' || n, 'Unit ' || n from generate_series(1, 20) n"
    )
    return [each["id"] for each in service.odata("/units?$select=id").json["value"]]


def test_a_thousand_pipelined_requests_are_answered_in_their_order(service: Service, ids: list[int]) -> None:
    path = "/api/odata/demo/units({})"
    tag = service.ask(path.format(ids[0])).headers["ETag"]
    kinds = [
        ("GET", path, "", 200),
        ("GET", path.format(ids[0]), f"If-None-Match: {tag}\r\n", 304),
        ("HEAD", path, "", 200),
        ("GET", path.format(0), "", 404),
        ("GET", "/api/odata/demo/units/$count", "Accept-Encoding: gzip\r\n", 200),
        ("GET", "/api/odata/demo/units?$top=20", "Accept-Encoding: gzip\r\n", 200),
        ("GET", "/c/demo/nothing", "", 404),
    ]
    asked = [(kinds[n % len(kinds)], ids[n % len(ids)]) for n in range(MANY)]
    answers = ask_all(service, [(method, path.format(id), more) for (method, path, more, _), id in asked])
    assert [reply.status for reply in answers] == [status for (_, _, _, status), _ in asked]
    for ((method, path, _, status), id), reply in zip(asked, answers, strict=True):
        if (method, status) == ("GET", 200) and "{}" in path:
            assert reply.json["id"] == id
        assert bool(reply.body) == (method == "GET" and status != 304)


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_client_that_leaves_its_pipelined_requests_holds_nothing(service: Service, ids: list[int], is_reset: bool) -> None:
    with service.connect(receive_buffer=4096) as client:
        client.sendall(service.request(f"/units({ids[0]})") * 200)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(lambda: b"\nbds_http_requests_in_progress 1.0\n" in service.ask("/metrics").body)  # the one that asks
    assert service.odata(f"/units({ids[0]})").json["id"] == ids[0]


BODIES = [
    "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "Content-Length: 5\r\n\r\nhello",
    "Content-Length: 0\r\n\r\n",
]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_body_of_a_read_is_ignored(service: Service, ids: list[int], method: str, body: str) -> None:
    path = f"/api/odata/demo/units({ids[0]})"
    first, second = ask_all(service, [(method, path, body.removesuffix("\r\n")), ("GET", path, "")])
    assert (first.status, second.status) == (200, 200) and first.headers["ETag"] == second.headers["ETag"]
    assert second.json["id"] == ids[0] and first.body == (second.body if method == "GET" else b"")


# the lines of If-None-Match, {} stands for the tag; and whether it matches
CONDITIONS = [
    (["{}"], True),
    (["{strong}"], True),
    (['"x", {}'], True),
    (["{},"], True),
    ([" , ,{} , "], True),
    (["*"], True),
    (['"x"', "{}"], True),
    (['"' + "x" * 10_000 + '", {}'], True),
    (['"x"'], False),
    ([""], False),
    (["{strong}x"], True),  # as lenient as other servers
    (["x{bare}"], False),
    (['W/"*"'], False),
    (["*, *"], False),
    (['"' * 10_001], False),
]


@pytest.mark.parametrize(("lines", "expected"), CONDITIONS)
@pytest.mark.parametrize("path", ["/units({id})", "/units?$top=20", "/units/$count"])
def test_conditions(service: Service, ids: list[int], path: str, lines: list[str], expected: bool) -> None:
    path = "/api/odata/demo" + path.format(id=ids[0])
    (first,) = ask_all(service, [("GET", path, "")])
    tag = first.headers["ETag"]
    names = {"{}": tag, "{strong}": tag.removeprefix("W/"), "{bare}": tag.removeprefix("W/").strip('"')}
    more = ""
    for line in lines:
        for name, value in names.items():
            line = line.replace(name, value)
        more += f"If-None-Match: {line}\r\n"
    kinds = [("GET", path, more), ("HEAD", path, more), ("GET", path, f"{more}Accept-Encoding: gzip\r\n")]
    for reply in ask_all(service, kinds):
        assert (reply.status, reply.headers["ETag"]) == (304 if expected else 200, tag)
        if expected:
            assert reply.body == b"" and not {"Content-Length", "Content-Encoding"} & set(reply.headers)
