"""Access to paths, the form of errors, request ids and lines of the log, entity tags, and the stop of the service."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import socket
import time

import pytest
from aiohttp import web

from app.service import server
from app.service.server import Connection
from tests.service.serving import ANSWER, Service, running, wait_until

PATHS = [
    # path, credentials, status
    ("/api/odata/demo", "basic", 200),
    ("/api/odata/demo", "bearer", 401),
    ("/api/odata/demo", "header", 401),
    ("/api/odata/demo", "none", 401),
    ("/api/odata/demo", "wrong", 401),
    ("/api/odata/demo/nothing", "none", 401),
    ("/api/odata/other", "none", 401),
    ("/api/odata/other/products", "basic", 403),
    ("/api/odata/none/products", "basic", 403),
    ("/api/odata", "basic", 403),
    ("/api/odata/demo/nothing", "basic", 404),
    ("/api/odatademo", "basic", 404),
    ("/api/%6Fdata/other/products", "basic", 403),
    ("/api/odata/%64emo/units", "basic", 200),
    ("/api/odata/demo%2F..%2Fother/units", "basic", 403),
    ("/api/odata/demo/%0A", "basic", 404),
    ("/api/odata/demo/%ff", "basic", 400),
    ("/c/demo/products", "none", 401),
    ("/c/demo/products", "wrong", 401),
    ("/c/demo/products", "basic", 200),
    ("/c/demo/products", "bearer", 200),
    ("/c/demo/products", "header", 200),
    ("/c/other/products", "bearer", 403),
    ("/c/none/products", "bearer", 403),
    ("/c/other/nothing", "bearer", 403),
    ("/c/demo/nothing", "bearer", 404),
    ("/c/demo/products/0", "bearer", 404),
    ("/c/demo/products/%00", "bearer", 400),
    ("/c/demo/products?filter=%zz", "bearer", 400),
    ("/c/demo/changes", "bearer", 200),
    ("/c/none/changes", "bearer", 403),
    ("/nothing", "none", 404),
    ("/healthz", "none", 200),
    ("/readyz", "none", 200),
]


@pytest.fixture(scope="module", autouse=True)
def _another_company(service: Service) -> None:
    service.operator.company("other")


def credentials(service: Service, kind: str) -> dict[str, str]:
    return {
        "basic": {"authorization": service.basic},
        "bearer": {"authorization": f"Bearer {service.key}"},
        "header": {"X_API_Key": service.key},
        "wrong": {"authorization": f"Bearer {service.key[:-1]}"},
        "none": {},
    }[kind]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(("path", "kind", "status"), PATHS)
def test_access(service: Service, path: str, kind: str, status: int, method: str) -> None:
    reply = service.ask(path, method, **{"authorization": None, **credentials(service, kind)})
    assert reply.status == status
    assert reply.headers["Content-Type"] and reply.headers["X-Request-Id"]
    if path.startswith(("/api/odata/", "/api/%6F")):
        assert reply.headers["OData-Version"] == "4.0"
        assert reply.headers["ETag"]
    if status == 401:
        scheme = "Basic" if path.startswith("/api/odata/") else "Bearer"
        assert reply.headers["WWW-Authenticate"].startswith(f'{scheme} realm="')
    if status >= 400 and method == "GET":
        shape = reply.json["error"] if "OData-Version" in reply.headers else reply.json
        assert shape["code"] in ("unauthorized", "forbidden", "not_found", "malformed_request")
    if method == "HEAD":
        assert reply.body == b""


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "path",
    [
        *("/c/demo/", "/c/demo/products/?limit=1&filter=code%20=%20%27%2F%27", "/c/demo/changes/", "/api/demo/imports/"),
        *("/api/products/?x=1", "/healthz/", "/openapi.json/"),
        *("/data/?company=demo", "/data/products/", "/login/", "/hooks/?company=demo"),
    ],
)
def test_a_slash_at_the_end_is_redirected_away(service: Service, path: str, method: str) -> None:
    reply = service.ask(path, method)
    name, mark, query = path.partition("?")
    assert (reply.status, reply.headers["Location"]) == (308, name[:-1] + mark + query)


@pytest.mark.parametrize("path", ["//", "//example.com/", "/c/", "/c/demo//", "/nothing/", "/auth/login/", "/api/demo/import/"])
def test_a_slash_after_what_cannot_be_read_is_not_found(service: Service, path: str) -> None:
    reply = service.raw(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    assert (reply.status, reply.headers["Location"]) == (404, None)
    assert service.ask("/c/demo/hooks/", "POST").status == 404


def test_a_key_without_the_read_scope_reads_nothing(service: Service) -> None:
    key = service.operator.key("demo", scopes=("import",))
    assert service.ask("/c/demo/products", authorization=f"Bearer {key}").status == 403


def test_a_company_that_the_key_may_not_read_looks_like_a_missing_one(service: Service) -> None:
    existing, missing = service.ask("/api/odata/other/products"), service.ask("/api/odata/none/products")
    assert (existing.status, existing.body) == (missing.status, missing.body)


def test_a_revoked_key_is_refused(service: Service) -> None:
    key = service.operator.key("demo")
    assert service.ask("/c/demo/units", authorization=f"Bearer {key}").status == 200
    service.operator.rows("select bds.revoke_key(id) from bds.api_keys order by created_at desc limit 1")
    wait_until(lambda: service.ask("/c/demo/units", authorization=f"Bearer {key}").status == 401)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("authorization", ["key", None, "Basic wrong"])
def test_methods_that_write_are_refused_with_the_allowed_ones(service: Service, method: str, authorization: str | None) -> None:
    for path in ("/api/odata/demo", "/api/odata/demo/products", "/api/odata/none/products(1)"):
        reply = service.ask(path, method, authorization)
        assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")
        assert reply.headers["OData-Version"] == "4.0"
        assert reply.json["error"]["code"] == "method_not_allowed"
    reply = service.ask("/c/demo/products", method, authorization)
    assert (reply.status, set(reply.headers["Allow"].split(","))) == (405, {"GET", "HEAD"})
    assert reply.headers["Content-Type"] == "application/problem+json"


def test_problems_have_the_members_of_rfc_9457(service: Service) -> None:
    problem = service.ask("/c/demo/nothing").json
    assert problem["type"] == "urn:bds:error:not_found"
    assert (problem["status"], problem["title"], problem["detail"]) == (404, "Not found", "no such entity: nothing")
    assert service.ask("/c/demo/product").json["detail"] == "no such entity: product, did you mean products?"
    message = service.ask("/api/odata/demo/product(1)").json["error"]["message"]
    assert message == "no such entity set: product(1), did you mean products?"
    assert service.ask("/c/demo/" + "x" * 60_000).json["detail"].endswith("x")


def test_the_log_has_a_line_for_each_request_without_the_key(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        reply = service.ask(f"/c/demo/units?key={service.key}", authorization=f"Bearer {service.key}", X_Request_Id="mine")
        wait_until(lambda: any(record.name == "bds.access" for record in caplog.records))
    line = json.loads(next(record.getMessage() for record in caplog.records if record.name == "bds.access"))
    assert reply.headers["X-Request-Id"] == line["id"] == "mine"
    assert (line["method"], line["path"], line["status"]) == ("GET", "/c/demo/units", 400), (
        "the path as it was sent, without the query"
    )
    assert service.key not in caplog.text and service.basic not in caplog.text


def test_etags_work_outside_odata_too(service: Service) -> None:
    service.operator.write("demo", "insert into data.units (company_id, code, name) values ('demo', 'H87', 'piece')")
    first = service.ask("/c/demo/units")
    assert service.ask("/c/demo/units", If_None_Match=first.headers["ETag"]).status == 304
    service.operator.write("demo", "update data.units set name = 'pieces'")
    again = service.ask("/c/demo/units", If_None_Match=first.headers["ETag"])
    assert (again.status, again.headers["ETag"] != first.headers["ETag"]) == (200, True)


def test_a_running_response_is_finished_when_the_service_stops(database_url: str) -> None:
    with running(database_url) as service:
        service.operator.write(
            "demo",
            "insert into data.units (company_id, code, name) select 'demo', g, repeat('x', 200) from generate_series(1, 30000) g",
        )
        with service.connect(receive_buffer=1 << 16) as client:
            client.sendall(service.request("/units"))
            response = http.client.HTTPResponse(client)
            response.begin()
            service.stop()
            wait_until(lambda: not accepts(service))
            assert len(json.loads(response.read())["value"]) == 30000


def test_the_end_of_an_answer_that_waits_in_memory_is_sent_before_the_service_ends(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler has ended; neither the system nor the client takes what it wrote."""
    made = Connection.connection_made

    def with_little_space(connection: Connection, transport: asyncio.BaseTransport) -> None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        made(connection, transport)

    monkeypatch.setattr(Connection, "connection_made", with_little_space)
    monkeypatch.setattr(server, "LAST", 0.05)
    with running(database_url) as service:
        service.operator.write(
            "demo",
            "insert into data.units (company_id, code, name) select 'demo', g, repeat('x', 200) from generate_series(1, 200) g",
        )
        with service.connect(receive_buffer=4096) as client:
            client.sendall(service.request("/units"))
            response = http.client.HTTPResponse(client)
            response.begin()
            service.stop()
            wait_until(lambda: not accepts(service))
            time.sleep(1)  # in which a service that does not wait ends
            assert len(json.loads(response.read())["value"]) == 200


def test_a_client_that_takes_its_connection_as_open_when_the_service_stops_is_answered_and_told(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LAST", ANSWER)
    with running(database_url) as service:
        clients = [http.client.HTTPConnection(service.host, service.port, timeout=ANSWER) for _ in range(2)]
        for client, path in zip(clients, ("/c/demo/units", "/api/odata/demo/units"), strict=True):
            client.request("GET", path, headers={"Authorization": service.basic})
            response = client.getresponse()
            assert (response.status, response.headers["Connection"]) == (200, None) and response.read()
        service.stop()
        wait_until(lambda: not accepts(service))
        for client, path in zip(clients, ("/c/demo/units", "/api/odata/demo/units"), strict=True):
            client.request("GET", path, headers={"Authorization": service.basic})
            response = client.getresponse()
            assert (response.status, response.headers["Connection"]) == (200, "close") and response.read()
            client.close()


def accepts(service: Service) -> bool:
    try:
        service.connect().close()
    except ConnectionError:
        return False
    return True


def test_a_connection_that_is_closed_before_it_starts_ends() -> None:
    """As with a connection that is accepted just before the service stops."""

    class ClosedAtOnce(Connection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.close()

    async def refuse(_request: web.BaseRequest) -> web.StreamResponse:
        raise AssertionError("no request was sent")

    async def run() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        connection = ClosedAtOnce(web.Server(refuse), web.Application(), loop=loop)
        await loop.connect_accepted_socket(lambda: connection, ours)
        async with asyncio.timeout(20):
            await connection.shutdown(60)
            await connection.lost.wait()
        theirs.close()

    asyncio.run(run())
