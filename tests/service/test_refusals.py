"""Requests that the server refuses before any route is known get responses like every other error."""

from __future__ import annotations

import json
import re

import psycopg
import pytest
from aiohttp import web

from app.auth.gate import Gate
from app.errors import ERRORS, RETRY_AFTER, ServiceError
from app.wire import bodies
from tests.service.serving import Service

LONG = 70_000
REFUSED = [
    # request, status, code
    (b"nonsense\r\n\r\n", 400, "malformed_request"),
    (b"GET {path} HTTP/9\r\nHost: x\r\n\r\n", 400, "malformed_request"),
    (b"G\x00T {path} HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed_request"),
    (b"G{T http://x{path} HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed_request"),
    (b"\xc3\xa9 {path} HTTP/1.1\r\nHost: x\r\n\r\n", 400, "malformed_request"),
    (b"GET {path} HTTP/1.1\r\n\r\n", 400, "malformed_request"),
    (b"GET {path} HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, "malformed_request"),
    (b"GET {path} HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400, "malformed_request"),
    (b"GET {path} HTTP/1.1\r\nHost: x\r\nX: \x00\r\n\r\n", 400, "malformed_request"),
    (b"GET {path} HTTP/1.1\r\nHost: x\r\nX: " + b"a" * LONG + b"\r\n\r\n", 400, "malformed_request"),
    (b"GET {path} HTTP/1.1\r\nHost: x\r\n" + b"X: a\r\n" * 1000 + b"\r\n", 400, "malformed_request"),
    (b"GET {path}?" + b"a" * LONG + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "uri_too_long"),
    (b"GET {path}?" + b"a" * (50 * LONG) + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "uri_too_long"),
]


@pytest.mark.parametrize(("sent", "status", "code"), REFUSED)
def test_refusals_under_odata_are_odata_errors(service: Service, sent: bytes, status: int, code: str) -> None:
    reply = service.raw(sent.replace(b"{path}", b"/api/odata/demo/products"))
    assert reply.status == status
    assert reply.headers["Server"] == "bds"
    if b"{path}" in sent:
        assert reply.headers["OData-Version"] == "4.0"
        assert reply.headers["Content-Type"].startswith("application/json")
        assert reply.headers["ETag"].startswith('W/"')
        assert reply.json["error"]["code"] == code


@pytest.mark.parametrize(("sent", "status", "code"), REFUSED)
def test_refusals_elsewhere_are_problems(service: Service, sent: bytes, status: int, code: str) -> None:
    reply = service.raw(sent.replace(b"{path}", b"/c/demo/products"))
    assert reply.status == status
    assert reply.headers["Content-Type"] == "application/problem+json"
    assert (reply.json["status"], reply.json["code"]) == (status, code)


METHODS = ["OPTIONS", "TRACE", "CONNECT", "PROPFIND", "FOO", "BREW", "get", "GETT", "X-Y", "Post", "!"]
ALLOWED = [
    # path, allowed methods
    ("/api/odata", "GET, HEAD"),
    ("/api/odata/demo/products(1)?$top=1", "GET, HEAD"),
    ("/c/demo/products", "GET, HEAD"),
    ("/api/demo/import", "POST"),
    ("/nothing/at/all", None),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("path", "allowed"), ALLOWED)
@pytest.mark.parametrize("has_key", [True, False], ids=["with a key", "without credentials"])
def test_other_methods_are_refused_with_the_allowed_ones_whoever_asks(
    service: Service, method: str, path: str, allowed: str | None, has_key: bool
) -> None:
    key = f"Authorization: {service.basic}\r\n" if has_key else ""
    reply = service.raw(f"{method} {path} HTTP/1.1\r\nHost: x\r\n{key}Connection: close\r\n\r\n".encode())
    found = reply.headers["Allow"] and ", ".join(sorted(re.split(r"[, ]+", reply.headers["Allow"])))
    assert (reply.status, found) == ((405, allowed) if allowed else (404, None))
    assert reply.headers["Server"] == "bds"
    if path.startswith("/api/odata"):
        assert reply.headers["OData-Version"] == "4.0"
        assert reply.headers["ETag"]
        assert reply.json["error"]["code"] == "method_not_allowed"
    else:
        assert reply.json["status"] == reply.status


def test_a_url_of_64_kib_is_served(service: Service) -> None:
    path = "/api/odata/demo/products?x="
    assert service.ask(path + "a" * ((64 << 10) - len(path))).status == 200


def test_a_refused_client_receives_the_whole_response(service: Service) -> None:
    with service.connect() as client:
        client.sendall(b"nonsense\r\n\r\n")
        received = b""
        while piece := client.recv(65536):
            received += piece
    assert json.loads(received.partition(b"\r\n\r\n")[2])["status"] == 400


@pytest.mark.parametrize("version", ["HTTP/1.0", "HTTP/1.1"])
def test_an_unknown_expectation_is_ignored(service: Service, version: str) -> None:
    request = f"GET /api/odata/demo/units {version}\r\nHost: x\r\nAuthorization: {service.basic}\r\nConnection: close\r\n"
    reply = service.raw((request + "Expect: miracles\r\n\r\n").encode())
    assert (reply.status, reply.headers["OData-Version"]) == (200, "4.0")


def test_a_client_that_waits_for_100_continue_gets_it(service: Service) -> None:
    with service.connect() as client:
        client.sendall(
            f"POST /api/odata/demo/units HTTP/1.1\r\nHost: x\r\nAuthorization: {service.basic}\r\n"
            "Content-Length: 2\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n".encode()
        )
        received = client.recv(4096)
        client.sendall(b"{}")
        while piece := client.recv(4096):
            received += piece
    assert received.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 405 ")


@pytest.mark.parametrize(("path", "type"), [("/auth/login", "application/json"), ("/login", "application/x-www-form-urlencoded")])
def test_a_small_body_that_does_not_arrive_is_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch, path: str, type: str
) -> None:
    monkeypatch.setattr(bodies, "BODY_TIMEOUT", 0.2)
    with service.connect() as client:
        client.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {type}\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert client.recv(4096).startswith(b"HTTP/1.1 408 ")


LATER = [code for code, (status, _) in ERRORS.items() if status in RETRY_AFTER]
FAILING: list[Exception] = [
    *(ServiceError(code, "later") for code in LATER),
    web.HTTPServiceUnavailable(),
    web.HTTPTooManyRequests(),
    TimeoutError(),
    psycopg.errors.RaiseException("raised by the database's own functions"),
]


@pytest.mark.parametrize("error", FAILING, ids=lambda error: getattr(error, "code", type(error).__name__))
def test_every_429_and_503_says_when_to_try_again(service: Service, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async def identify(*_: object, **__: object) -> None:
        raise error

    if isinstance(error, psycopg.Error):
        error.sqlstate = "BD003"
    monkeypatch.setattr(Gate, "identify", identify)
    for path in ("/c/demo/units", "/api/odata/demo/units", "/data?company=demo", "/api/demo/imports"):
        reply = service.ask(path, Accept="*/*")
        assert reply.status in RETRY_AFTER, (path, reply)
        assert reply.headers["Retry-After"] == RETRY_AFTER[reply.status]


def test_a_better_time_to_try_again_is_kept(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def identify(*_: object, **__: object) -> None:
        raise ServiceError("moving", "later", headers={"Retry-After": "17"})

    monkeypatch.setattr(Gate, "identify", identify)
    assert service.ask("/c/demo/units").headers["Retry-After"] == "17"
