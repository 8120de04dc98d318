"""The log and /metrics name what was asked for, never a value: not one of the path, the query, a header or the body."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from app.config import Config
from app.database.database import Database
from app.logs import JsonFormatter, LogHandler
from app.service.application import create_app
from tests.auth.client import EMAIL, ask, basic, make_user, sign_in
from tests.service.serving import Service, running, wait_until

VALUE = "Zq7Kx"
SEEN = VALUE[1:]  # whether its first letter is percent-encoded or not
NUMBER = "9070507"
FORMS = (f"email:{VALUE}@example.com", f"code:%5a{SEEN}", VALUE, f"'{VALUE}'", f'"{VALUE}"', f"%22{VALUE}%27")
KEYS = (f"'{VALUE}'", f"code='{VALUE}'", f'"{VALUE}"', f"%27{VALUE}%27", f"code%3D%22%5a{SEEN}%22", VALUE, NUMBER, f"'a'')'{VALUE}")
PARAMETER = re.compile(r"\{\w+\}")


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, odata_extended=True) as service:
        yield service


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """All that the service logs, as it writes it."""
    text, everything = io.StringIO(), logging.getLogger()
    handler, before = LogHandler(text), everything.level
    monkeypatch.setattr(LogHandler, "active", handler)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(lambda record: record.name != "asyncio")
    everything.addHandler(handler)
    everything.setLevel(logging.DEBUG)
    yield text
    everything.setLevel(before)
    everything.removeHandler(handler)


def lines(written: io.StringIO) -> dict[str, dict[str, Any]]:
    """The lines of requests, by their ids."""
    found = [json.loads(line) for line in written.getvalue().splitlines()]
    return {each["id"]: each for each in found if each["logger"] == "bds.access"}


def logged_paths(service: Service, written: io.StringIO, *asked: tuple[str, str], **headers: str) -> list[str]:
    """Send requests of (method, path), and return the paths in their lines."""
    for number, (method, path) in enumerate(asked):
        ask(service, path, method, {"Authorization": service.basic, "X-Request-Id": f"p{number}", **headers})
    wait_until(lambda: f"p{len(asked) - 1}" in lines(written))
    return [lines(written)[f"p{number}"]["path"] for number in range(len(asked))]


def routes_of(url: str) -> list[tuple[str, str]]:
    """Method and path of every route."""

    async def read() -> list[tuple[str, str]]:
        database = await Database.open(Config(database_url=url))
        try:
            routes = create_app(database).router.routes()
            return sorted({(each.method, each.resource.canonical) for each in routes if each.resource})
        finally:
            await database.close()

    return asyncio.run(read())


def filled(path: str) -> Iterator[str]:
    """A route's path with values in its parameters: in all, in all but the company, in all but the company and the entity."""
    for value in FORMS:
        for known in ({}, {"{companyId}": "demo"}, {"{companyId}": "demo", "{entity}": "products"}):
            yield PARAMETER.sub(lambda name, known=known, value=value: known.get(name[0], value), path)  # type: ignore[misc]


def test_no_route_logs_a_value(module_database_url: str, service: Service, written: io.StringIO) -> None:
    make_user(service)
    browser = {**sign_in(service).browser, "Accept": "text/html"}
    sent = {
        "X-Note": VALUE,
        "If-None-Match": f'"{VALUE}"',
        "Content-Type": "application/json",
        "User-Agent": VALUE,
        "Referer": VALUE,
    }
    routes = sorted(routes_of(module_database_url), key=lambda route: "logout" in route[1])  # which ends the session last
    asked = 0
    for method, path in routes:
        key = {"Authorization": service.basic} if path.startswith(("/c/", "/api/")) else browser
        for shown in dict.fromkeys(filled(path)):
            for credentials in (key, {}):
                asked += 1
                headers = {**sent, **credentials, "X-Request-Id": f"r{asked}"}
                body = f'{{"units": [{{"code": "{VALUE}"}}]}}' if method in ("POST", "PUT", "PATCH", "*") else None
                real = "GET" if method == "*" else method
                ask(service, f"{shown}?filter=code%20eq%20'{VALUE}'&{VALUE}={VALUE}", real, headers, body)
    wait_until(lambda: f"r{asked}" in lines(written))
    assert len(lines(written)) > asked > 1000
    assert {200, 400, 401, 403, 404} <= {each["status"] for each in lines(written).values()}
    assert not [line for line in written.getvalue().splitlines() if SEEN in line]
    assert SEEN not in ask(service, "/metrics").body.decode()
    assert SEEN not in str(service.operator.rows("select to_jsonb(a)::text from bds.audit a"))
    assert any(EMAIL in str(each["actor"]) for each in lines(written).values())


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_the_path_of_a_read_names_the_company_and_the_entity(service: Service, written: io.StringIO, method: str) -> None:
    paths = {
        "/c/demo": "/c/demo",
        "/c/d%65mo/products": "/c/demo/products",
        "/c/demo/nothing": "/c/demo/{entity}",
        "/c/no.such/products": "/c/{companyId}/products",
        "/c/demo/products/17": "/c/demo/products/{id}",
        "/c/demo/products/code:C001/history": "/c/demo/products/{id}/history",
        "/c/demo/hooks/17/deliveries/x": "/c/demo/hooks/17/deliveries/{deliveryId}",
        "/api/demo/imports/17": "/api/demo/imports/17",
        "/api/demo/mappers/17": "/api/demo/mappers/{name}",
        "/api/products": "/api/products",
        "/data/products/17": "/data/products/{row}",
        "/changes/products/17": "/changes/products/{row}",
        "/c/demo/products/17/other/x": "/c/{...}",
        f"/{VALUE}": "/{...}",
        f"//c/demo/products/{VALUE}": "/{...}",
    }
    assert logged_paths(service, written, *((method, path) for path in paths)) == [*paths.values()]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
@pytest.mark.parametrize("expect", [{}, {"Expect": "nothing"}])
def test_the_path_of_an_odata_request_has_its_names_alone(
    service: Service, written: io.StringIO, method: str, expect: dict[str, str]
) -> None:
    root = "/api/odata/demo"
    paths = {
        "/api/odata": "/api/odata",
        f"/api/odata/products('{VALUE}')": "/api/odata/{companyId}",
        root: root,
        f"{root}/": f"{root}/",
        f"{root}/$metadata": f"{root}/$metadata",
        f"{root}@2026-01-01/products": f"{root}@{{version}}/products",
        f"{root}/products/$count": f"{root}/products/$count",
        f"{root}/products/{VALUE}": f"{root}/products/{{...}}",
        f"{root}/{VALUE}/{VALUE}": f"{root}/{{...}}",
        f"{root}/{VALUE}('x')": f"{root}/{{...}}",
        **{f"{root}/products({key})": f"{root}/products({{key}})" for key in KEYS},
        **{f"{root}/products({key})/name/$value": f"{root}/products({{key}})/name/$value" for key in KEYS},
        f"{root}/products(1)/category/{VALUE}": f"{root}/products({{key}})/category/{{...}}",
        f"{root}/categories(1)/products({NUMBER})": f"{root}/categories({{key}})/products({{key}})",
        f"{root}/products(%27{VALUE}": f"{root}/products({{key}})",
        f"{root}/products(%27a%2Fb%27)": f"{root}/products({{key}})",
        f"{root}/products('a/{VALUE}')": f"{root}/products({{key}})/{{...}}",
    }
    assert logged_paths(service, written, *((method, path) for path in paths), **expect) == [*paths.values()]
    assert SEEN not in written.getvalue() and NUMBER not in written.getvalue()


def test_parts_of_a_batch_are_not_logged(service: Service, written: io.StringIO) -> None:
    urls = [f"products({key})" for key in KEYS] + [f"{VALUE}/x", f"units?$filter={VALUE}"]
    parts = [{"id": f"{VALUE}{n}", "method": "GET", "url": url} for n, url in enumerate(urls)]
    headers = {"Authorization": service.basic, "X-Request-Id": "batch", "Prefer": "continue-on-error"}
    answer = ask(service, "/api/odata/demo/$batch", "POST", headers, {"requests": parts})
    assert len(answer.json["responses"]) == len(urls)
    wait_until(lambda: "batch" in lines(written))
    assert lines(written)["batch"]["path"] == "/api/odata/demo/$batch" and SEEN not in written.getvalue()


def test_a_request_that_fails_leaves_no_value_in_the_log(service: Service, written: io.StringIO) -> None:
    wrong = basic(VALUE, VALUE) | {"X-Request-Id": "wrong"}
    service.raw(f"BREW /c/demo/units/code:{VALUE} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    service.raw(f"CONNECT {VALUE}.example:443 HTTP/1.1\r\nHost: x\r\nX-Request-Id: connect\r\nConnection: close\r\n\r\n".encode())
    assert ask(service, f"/c/demo/units/code:{VALUE}", headers=wrong).status == 401
    service.operator.connection.execute('alter view api."units" rename to gone')
    try:
        paths = (f"/api/odata/demo/units(code='{VALUE}')", f"/c/demo/units/code:{VALUE}")
        for path in paths:
            assert service.ask(path, X_Request_Id="broken").status == 503
            wait_until(lambda: "broken" in lines(written))
    finally:
        service.operator.connection.execute('alter view api.gone rename to "units"')
    assert '"trace": ' in written.getvalue() and SEEN not in written.getvalue()
    assert lines(written)["connect"]["path"] == "/{...}"


def test_a_request_that_cannot_be_read_leaves_a_line_without_its_path(service: Service, written: io.StringIO) -> None:
    for request, code in ((f"MAKE /c/{VALUE} HTTP/1.1", "method_not_allowed"), (f"GET /{VALUE} HTTP/x", "malformed_request")):
        with socket.create_connection((service.host, service.port)) as connection:
            connection.sendall(f"{request}\r\nHost: localhost\r\n\r\n".encode())
            answer = connection.recv(1 << 16)
        assert code.encode() in answer
        wait_until(lambda code=code: f"a request of 127.0.0.1 was refused before it was read: {code}" in written.getvalue())  # type: ignore[misc]
    assert not [line for line in written.getvalue().splitlines() if SEEN in line]
