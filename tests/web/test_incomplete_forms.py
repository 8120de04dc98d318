"""Incomplete forms: nothing of their file is written, and the answer names the problem."""

from __future__ import annotations

import http.client
import json
import socket

import pytest

from app.wire import bodies
from tests.service.serving import Reply, Service, wait_until
from tests.web.visitor import Visitor

DOCUMENT = b'{"units": [{"code": "HALF", "name": "half"}]}'
LONG = DOCUMENT + b" " * (3 << 18)  # long enough that the import begins before it has arrived


def form(anna: Visitor, document: bytes = DOCUMENT) -> bytes:
    """A form with a file, up to its closing boundary."""
    fields = f'--b\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n{anna.csrf}\r\n'
    file = '--b\r\nContent-Disposition: form-data; name="file"; filename="u.json"\r\n\r\n'
    return (fields + file).encode() + document


def head(anna: Visitor, *more: str) -> bytes:
    lines = ["POST /imports?company=demo HTTP/1.1", "Host: x", "Content-Type: multipart/form-data; boundary=b", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in anna.headers.items()]
    return "\r\n".join([*lines, *more, "", ""]).encode()


def send(service: Service, anna: Visitor, body: bytes) -> Reply:
    return service.raw(head(anna, f"Content-Length: {len(body)}") + body)


def send_and_close(service: Service, sent: bytes) -> bytes:
    """Send bytes, close the sending side, and return the answer."""
    with service.connect() as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        try:
            return client.recv(1 << 16)
        except ConnectionError:
            return b""


def outcome(service: Service) -> list[tuple[str, int]]:
    """Wait until no import is running; return the state of the latest one and the number of units."""
    wait_until(lambda: not service.operator.rows("select from bds.imports where finished_at is null"))
    latest = "select state, (select count(*) from data.units)::int from bds.imports order by number desc limit 1"
    return service.operator.rows(latest)


CUT = {
    "no boundary": b"",
    "a line end alone": b"\r\n",
    "a piece of the boundary": b"\r\n--",
    "a boundary that another part follows": b"\r\n--b",
    "a boundary that closes by half": b"\r\n--b-",
    "another boundary": b"\r\n--c--\r\n",
    "the beginning of another part": b"\r\n--b\r\n",
}


@pytest.mark.parametrize("end", CUT.values(), ids=CUT)
@pytest.mark.parametrize("size", [0, 300_000])
def test_a_form_without_its_closing_boundary_is_refused_and_nothing_is_written(
    service: Service, anna: Visitor, end: bytes, size: int
) -> None:
    reply = send(service, anna, form(anna, DOCUMENT + b" " * size) + end)
    assert reply.status == 400, reply.body
    assert b"the form is incomplete" in reply.body
    assert outcome(service) == [("failed", 0)]


def test_a_form_that_ends_before_the_file_begins_is_refused(service: Service, anna: Visitor) -> None:
    whole = form(anna)
    file = whole.index(b'--b\r\nContent-Disposition: form-data; name="file"')
    for end in (file - 2, file + 3, whole.index(b'filename="u'), whole.index(DOCUMENT) - 2):
        assert send(service, anna, whole[:end]).status == 400
    assert service.operator.rows("select count(*) from data.units") == [(0,)]


def test_a_part_after_the_file_is_refused(service: Service, anna: Visitor) -> None:
    late = b'\r\n--b\r\nContent-Disposition: form-data; name="dryRun"\r\n\r\ntrue\r\n--b--\r\n'
    reply = send(service, anna, form(anna) + late)
    assert reply.status == 400 and b"last part of the form" in reply.body
    assert outcome(service) == [("failed", 0)]


@pytest.mark.parametrize("end", [b"", b"\r\n--b--\r\n"])
def test_a_body_shorter_than_its_content_length_imports_nothing(service: Service, anna: Visitor, end: bytes) -> None:
    body = form(anna) + end
    answer = send_and_close(service, head(anna, f"Content-Length: {len(body) + 1}") + body)
    assert not answer.startswith(b"HTTP/1.1 3")
    assert outcome(service) == [("failed", 0)]


@pytest.mark.parametrize("end", [b"", b"\r\n--b--\r\n"])
@pytest.mark.parametrize("last", [b"", b"0", b"zz\r\n"])
def test_a_chunked_body_without_its_last_chunk_imports_nothing(service: Service, anna: Visitor, end: bytes, last: bytes) -> None:
    body = form(anna) + end
    chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n"
    answer = send_and_close(service, head(anna, "Transfer-Encoding: chunked") + chunk + last)
    assert not answer.startswith(b"HTTP/1.1 3")
    assert outcome(service) == [("failed", 0)]


@pytest.mark.parametrize("framing", ["Content-Length: {more}", "Transfer-Encoding: chunked"])
def test_a_complete_document_in_an_incomplete_body_imports_nothing(service: Service, anna: Visitor, framing: str) -> None:
    body = DOCUMENT if "Length" in framing else f"{len(DOCUMENT):x}\r\n".encode() + DOCUMENT + b"\r\n"
    lines = ["POST /api/demo/import HTTP/1.1", "Host: x", f"X-API-Key: {service.key}", "Content-Type: application/json"]
    send_and_close(service, "\r\n".join([*lines, framing.format(more=len(body) + 1), "", ""]).encode() + body)
    assert outcome(service) == [("failed", 0)]


def test_malformed_chunks_are_refused_at_once(service: Service, anna: Visitor) -> None:
    lines = ["POST /api/demo/import HTTP/1.1", "Host: x", f"X-API-Key: {service.key}", "Content-Type: application/json"]
    document = "\r\n".join([*lines, "Transfer-Encoding: chunked", "", ""]).encode()
    for start, body in ((document, DOCUMENT), (head(anna, "Transfer-Encoding: chunked"), form(anna, LONG))):
        with service.connect() as client:
            client.sendall(start + f"{len(body):x}\r\n".encode() + body + b"\r\n")
            wait_until(lambda: bool(service.operator.rows("select from bds.imports where finished_at is null")))
            client.sendall(b"zz\r\n")
            response = http.client.HTTPResponse(client)
            response.begin()
            assert response.status == 400 and b"chunk" in response.read()
            assert client.recv(1) == b"", "and nothing else"
        assert outcome(service) == [("failed", 0)]


def test_a_complete_form_is_imported_with_and_without_a_line_end_after_it(service: Service, anna: Visitor) -> None:
    for end in (b"\r\n--b--", b"\r\n--b--\r\n", b"\r\n--b--\r\nwhat comes after it\r\n"):
        reply = send(service, anna, form(anna) + end)
        assert reply.status == 303, reply.body
        assert outcome(service) == [("completed", 1)]
    with service.connect() as client:
        body = form(anna) + b"\r\n--b--\r\n"
        client.sendall(head(anna, "Transfer-Encoding: chunked"))
        for at in range(0, len(body), 7):
            piece = body[at : at + 7]
            client.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        client.sendall(b"0\r\n\r\n")
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.status == 303
    assert json.loads(service.ask("/api/demo/units?format=json&export=true").body)["units"][0]["code"] == "HALF"


def test_a_field_that_does_not_arrive_in_time_is_408(service: Service, anna: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_TIMEOUT", 0.2)
    whole = form(anna)
    for end in (3, whole.index(b"\r\n\r\n") + 5):  # in a boundary, in a field
        with service.connect() as client:
            client.sendall(head(anna, f"Content-Length: {len(whole)}") + whole[:end])
            assert client.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_an_overlong_charset_field_is_refused(service: Service, anna: Visitor) -> None:
    first = b'--b\r\nContent-Disposition: form-data; name="_charset_"\r\n\r\n' + b"a" * 40 + b"\r\n"
    assert send(service, anna, first + form(anna) + b"\r\n--b--\r\n").status == 400
