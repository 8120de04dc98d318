"""Streams: one snapshot, constant memory, and clients and servers that leave in the middle.

Most tests have no spool, so that a stream waits for its client; with one: tests/service/test_slow_readers.py.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psutil
import psycopg
import pytest

from app.config import Config
from app.database.database import Database
from tests.service.serving import Reply, Service, running, wait_until

pytestmark = pytest.mark.slow

ROWS = 40_000
STALL = 0.5
TIMEOUT = 1


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, stall=STALL, statement_timeout=TIMEOUT, pool_size=2, spool_max=0) as service:
        fill(service)
        yield service


def fill(service: Service) -> None:
    service.operator.write(
        "demo",
        "insert into data.units (company_id, code, name) select 'demo', g, repeat('x', 200) from generate_series(1, %s) g",
        (ROWS,),
    )


def readers(service: Service, condition: str) -> int:
    """The number of the service's connections in a state; maintenance, which waits for locks as well, is none of them."""
    query = (
        "select count(*) from pg_stat_activity where application_name = 'bds' and datname = current_database()"
        f" and query not like '%%bds.maintain(%%' and ({condition})"
    )
    return int(service.operator.rows(query)[0][0])


def begin(service: Service) -> socket.socket:
    """A client that has begun to read and then stopped."""
    client = service.connect(receive_buffer=4096)
    client.sendall(service.request("/units"))
    assert client.recv(1024).startswith(b"HTTP/1.1 200 OK\r\n")
    return client


def ends_whole(client: socket.socket) -> bool:
    """Whether the rest of the answer ends properly."""
    last = b""
    try:
        while piece := client.recv(1 << 20):
            last = (last + piece)[-7:]
            if last == b"\r\n0\r\n\r\n":
                return True
    except ConnectionResetError:
        pass
    return False


def test_every_row_is_sent_once_in_constant_memory(service: Service) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    connection = http.client.HTTPConnection(service.host, service.port)
    connection.request("GET", "/api/odata/demo/units", headers={"Authorization": service.basic})
    response, rows, size = connection.getresponse(), 0, 0
    with closing(connection):
        while piece := response.read(1 << 16):
            rows += piece.count(b'"x')
            size += len(piece)
    assert response.headers["Transfer-Encoding"] == "chunked"
    assert size > ROWS * 250
    assert process.memory_info().rss - before < 16 << 20


def test_an_answer_is_of_one_snapshot(service: Service) -> None:
    with service.connect(receive_buffer=4096) as client:
        client.sendall(service.request("/units?$count=true"))
        response = http.client.HTTPResponse(client)
        response.begin()
        service.operator.write("demo", "update data.units set name = 'changed' where code = %s", (str(ROWS),))
        answer = json.load(response)
    assert answer["@odata.count"] == len(answer["value"]) == ROWS
    assert {row["name"] for row in answer["value"]} == {"x" * 200}


def test_a_client_that_stops_reading_is_disconnected(service: Service) -> None:
    with begin(service) as client:
        wait_until(lambda: readers(service, "state = 'idle in transaction'") == 1)
        wait_until(lambda: readers(service, "state <> 'idle'") == 0)
        assert not ends_whole(client)


def test_a_client_that_leaves_frees_its_connection(service: Service) -> None:
    for _ in range(4):  # twice the pool
        begin(service).close()
    wait_until(lambda: readers(service, "state <> 'idle'") == 0)
    assert service.odata("/units?$top=1").status == 200


def test_an_error_after_the_first_byte_resets_the_connection(service: Service) -> None:
    with begin(service) as client:
        end_readers(service)
        assert not ends_whole(client)
    with begin_1_0(service) as client, pytest.raises(ConnectionResetError):
        end_readers(service)
        while client.recv(1 << 20):
            pass


def end_readers(service: Service) -> None:
    """Terminate the database connections of streams that wait for their clients."""
    query = "select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction'"
    wait_until(lambda: bool(service.operator.rows(query)))


def begin_1_0(service: Service) -> socket.socket:
    client = service.connect(receive_buffer=4096)
    client.sendall(service.request("/units").replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert client.recv(1024).startswith(b"HTTP/1.0 200 OK\r\n")
    return client


@pytest.fixture
def locked(service: Service) -> Iterator[None]:
    """Hold a lock under which units cannot be read."""
    with service.operator.connection.transaction():
        service.operator.connection.execute("lock table data.units in access exclusive mode")
        yield


@pytest.mark.parametrize("path", ["/units", "/units?$top=1", "/units(1)", "/units/$count"])
def test_a_late_first_row_is_a_503(service: Service, locked: None, path: str) -> None:
    reply = service.odata(path)
    assert (reply.status, reply.json["error"]["code"]) == (503, "busy")
    assert int(reply.headers["Retry-After"]) > 0


@pytest.mark.parametrize("path", ["/units", "/units?$top=200", "/units(1)", "/units/$count", "/../../../c/demo/units/1"])
def test_a_client_that_leaves_before_the_first_row_frees_its_connection(database_url: str, path: str) -> None:
    with running(database_url, pool_size=1) as service, psycopg.connect(database_url) as other:
        fill(service)
        other.execute("lock table data.units in access exclusive mode")
        target = service.request(path).replace(b"/api/odata/demo/../../..", b"")
        with service.connect() as client:
            client.sendall(target)
            wait_until(lambda: readers(service, "wait_event_type = 'Lock'") == 1)
        wait_until(lambda: readers(service, "wait_event_type = 'Lock' or state = 'idle in transaction'") == 0)
        other.rollback()
        assert [service.odata(path).status for path in ("/units(1)", "/units", "/units/$count")] == [200] * 3


def test_a_small_read_whose_backend_is_ended_is_a_503_and_the_next_one_is_answered(database_url: str) -> None:
    with running(database_url, pool_size=1) as service, psycopg.connect(database_url) as other:
        fill(service)
        other.execute("lock table data.units in access exclusive mode")
        with service.connect() as client:
            client.sendall(service.request("/units(1)"))
            wait_until(lambda: readers(service, "wait_event_type = 'Lock'") == 1)
            service.operator.rows(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'bds' and wait_event_type = 'Lock'"
                " and datname = current_database()"
            )
            assert client.recv(1024).startswith(b"HTTP/1.1 503 ")
        other.rollback()
        assert service.odata("/units(1)").status == 200


def test_what_is_longer_than_a_page_is_streamed(service: Service) -> None:
    sizes = {top: service.odata(f"/units?$top={top}").headers.get("Transfer-Encoding") for top in (200, 201)}
    assert sizes == {200: None, 201: "chunked"}


def test_slow_readers_leave_connections_for_small_answers(database_url: str) -> None:
    with running(database_url, statement_timeout=TIMEOUT, pool_size=2, spool_max=0) as service:
        fill(service)
        with begin(service):
            assert service.odata("/units").json["error"]["code"] == "busy"
            assert service.odata("/units?$top=1").status == 200
        wait_until(lambda: service.odata("/units").status == 200)


def test_more_readers_than_connections_wait(service: Service) -> None:
    def read(_: int) -> Reply:
        return service.odata("/units?$top=10&$skip=100")

    with ThreadPoolExecutor(8) as pool:
        assert {reply.status for reply in pool.map(read, range(40))} == {200}


def test_prepared_statements_survive_a_stream(database_url: str) -> None:
    prepared = "select count(*) from pg_prepared_statements"

    async def count() -> tuple[int, int]:
        database = await Database.open(Config(database_url=database_url, pool_size=1))
        try:
            async with database.session("demo") as connection:
                for _ in range(5):
                    await connection.raw.execute(b"select $1::text", ["x"])
                before = await (await connection.execute(prepared, prepare=False)).fetchone()
            async with database.snapshot("demo") as connection:
                await connection.execute("select")
            async with database.session("demo") as connection:
                return before, await (await connection.execute(prepared, prepare=False)).fetchone()
        finally:
            await database.close()

    before, after = asyncio.run(count())
    assert before[0] > 0
    assert after >= before
