"""A full disk, of PostgreSQL or of the service: nothing half, a status that says when to try again, and imports that end."""

from __future__ import annotations

import http.client
import json
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.database import embedded
from tests.conftest import Janitor, Operator, not_divided
from tests.service.serving import ANSWER, Reply, Service, running, wait_until

pytestmark = [pytest.mark.slow, not_divided("a shard has a tablespace of its own")]

EXCEL = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
LARGE = {"units": [{"code": f"L{number}", "name": "x" * 400} for number in range(6_000)]}
SMALL = {"units": [{"code": "S", "name": secrets.token_hex(2_000_000)}]}
ITS_OWN = (
    "bds.imports",
    "bds.import_errors",
    "bds.mappers",
    "bds.hooks",
    "bds.wrong_credentials",
)  # what the service itself stores


@pytest.fixture(scope="module")
def small_disk() -> Iterator[Path]:
    """A folder on a disk of two megabytes."""
    directory = Path(tempfile.mkdtemp(prefix="bds-disk-"))
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "none", directory], capture_output=True, check=False
    )
    try:
        if not mounted or mounted.returncode:
            pytest.skip("a file system cannot be mounted here")
        yield directory
        Janitor.drop_ended()  # databases with tables on it
    finally:
        subprocess.run(["umount", "--lazy", directory], capture_output=True, check=False)
        directory.rmdir()


@dataclass(frozen=True)
class Disk:
    """A tablespace on a small disk, and the operator of the database that uses it."""

    operator: Operator
    name: str

    def hold(self, *tables: str) -> None:
        """Let the disk have tables, which are emptied: then the next row of each needs a block."""
        for table in tables:
            self._run(f"delete from {table}")
            self._run(f"vacuum full {table}")
            self._run(f"alter table {table} set tablespace {self.name}")

    def fill(self) -> None:
        """Fill the disk to its last block."""
        self._run(f"create unlogged table if not exists public.filler (text text) tablespace {self.name}")
        self._run("alter table public.filler alter text set storage plain")
        for size in (7_000, 3_000, 1):
            try:
                while True:
                    self._run(f"insert into public.filler select repeat('x', {size}) from generate_series(1, 10)")
            except psycopg.errors.DiskFull:
                pass

    def empty(self) -> None:
        self._run("drop table if exists public.filler")
        self._run("alter table data.units set tablespace pg_default")
        self._run("vacuum data.units")  # what an import wrote, and did not commit, takes space until then
        self._run("alter table data.units set tablespace small")

    def _run(self, statement: str) -> None:
        self.operator.connection.execute(statement.encode())


@pytest.fixture(scope="module")
def disk(server: str, small_disk: Path, module_database_url: str) -> Iterator[Disk]:
    shutil.chown(small_disk, embedded._system_user())
    with psycopg.connect(server, autocommit=True) as connection, psycopg.connect(module_database_url, autocommit=True) as own:
        connection.execute(f"create tablespace small location '{small_disk}'".encode())
        connection.execute("grant create on tablespace small to public")  # without it temp_tablespaces has no effect
        disk = Disk(Operator(own), "small")
        disk.operator.connection.execute("alter table data.units alter name set storage external, set tablespace small")
        yield disk


@pytest.fixture(scope="module")
def service(disk: Disk, module_database_url: str, server: str) -> Iterator[Service]:
    with running(module_database_url, webhook_allow_private=True) as service:
        service.operator.write(
            "demo", "insert into data.products (code, name) select g, repeat(md5(g::text), 20) from generate_series(1, 5000) g"
        )
        yield service
    disk.empty()
    with psycopg.connect(server, autocommit=True) as connection:
        database = disk.operator.connection.info.dbname
        connection.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", (database,))
        connection.execute(f"alter database {database} set tablespace pg_default".encode())


@pytest.fixture(autouse=True)
def _emptied(disk: Disk) -> Iterator[None]:
    yield
    disk.empty()


def send(service: Service, method: str, path: str, body: Any = None, type: str = "application/json") -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection(service.host, service.port, timeout=ANSWER)
    try:
        connection.request(method, path, data, {"Authorization": f"Bearer {service.key}", "Content-Type": type})
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


def state(reply: Reply) -> tuple[int, str | None, str]:
    return reply.status, reply.headers["Retry-After"], reply.json["code"]


def report(service: Service, import_id: str) -> tuple[str, list[str]]:
    found = service.ask(f"/api/demo/imports/{import_id}", authorization=f"Bearer {service.key}").json
    return found["state"], [each["code"] for each in found["errors"]]


def imports(service: Service) -> list[str]:
    listed = service.ask("/api/demo/imports", authorization=f"Bearer {service.key}").json["data"]
    return [each["importId"] for each in listed]


def units(service: Service) -> int:
    return int(service.operator.rows("select count(*) from data.units")[0][0])


FULL = (507, "60", "disk_full")
BUSY = (503, "60", "busy")


@pytest.mark.parametrize("document", [LARGE, SMALL], ids=["large", "small"])
def test_an_import_that_finds_no_space_fails_as_a_whole(service: Service, disk: Disk, document: dict[str, Any]) -> None:
    reply = send(service, "POST", "/api/demo/import", document)
    assert state(reply) == FULL
    assert report(service, reply.json["importId"]) == ("failed", ["disk_full"])
    assert units(service) == 0


def test_an_import_ends_when_there_is_space_to_say_so(service: Service, disk: Disk) -> None:
    disk.hold(*ITS_OWN)
    body = json.dumps(LARGE).encode()
    with service.connect() as client:
        head = f"POST /api/demo/import HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.key}\r\nContent-Type: application/json\r\n"
        client.settimeout(ANSWER)
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body[:1000])
        query = "select id::text from bds.imports where finished_at is null"
        wait_until(lambda: service.operator.rows(query) != [])
        [(import_id,)] = service.operator.rows(query)
        disk.fill()
        client.sendall(body[1000:])
        response = http.client.HTTPResponse(client)
        response.begin()
        reply = Reply(response.status, response.headers, response.read())
    assert (*state(reply), reply.json["importId"]) == (*FULL, import_id)
    assert service.operator.rows(query) == [(import_id,)], "there is no space for its end"
    disk.empty()
    wait_until(lambda: report(service, import_id) == ("failed", ["disk_full"]))
    assert units(service) == 0


def test_an_import_that_was_taken_for_dead_meanwhile_tells_the_reason(operator: Operator) -> None:
    operator.company("acme")
    [(import_id,)] = operator.rows("select bds.import_begin('acme')")
    for code, message in (("disk_full", "full"), ("aborted", "later")):
        operator.rows("select bds.reap_imports('-1 s')")
        operator.rows("select bds.import_fail('acme', %s, 'failed', %s, %s)", (import_id, code, message))
        assert operator.rows(
            "select state, e.code, e.message from bds.imports i join bds.import_errors e on e.import_id = i.id"
        ) == [("failed", "disk_full", "full")]


WRITES = [
    (
        "PUT",
        "/api/demo/mappers/m",
        b"type csv\nunits = 'row' {\n  code = 'a'\n  name = 'b'\n}\n#" + secrets.token_hex(30_000).encode(),
        "text/plain",
        FULL,
    ),
    ("POST", "/api/demo/import", {"units": [{"code": "A", "name": "x" * 9_000}]}, "application/json", FULL),
    (
        "POST",
        "/c/demo/hooks",
        {"entity": "products", "url": "http://127.0.0.1/" + "x" * 1_000, "action": "webhook"},
        "application/json",
        BUSY,
    ),
    ("POST", "/auth/login", {"email": "a@example.com", "password": "guess"}, "application/json", BUSY),
]


@pytest.mark.parametrize(("method", "path", "body", "type", "expected"), WRITES, ids=[each[1] for each in WRITES])
def test_what_cannot_be_stored_says_when_to_try_again(
    service: Service, disk: Disk, method: str, path: str, body: Any, type: str, expected: tuple[int, str, str]
) -> None:
    disk.hold(*ITS_OWN)
    before = imports(service)
    disk.fill()
    assert state(send(service, method, path, body, type)) == expected
    disk.empty()
    again = send(service, method, path, body, type)
    assert again.status in (200, 201, 204, 401, 400), again.body
    if path.endswith("/import"):  # the first one is listed once that can be stored
        wait_until(lambda: len(imports(service)) == len(before) + 2)


@pytest.mark.parametrize("setting", ["temp_tablespaces = small", "temp_file_limit = '100kB'"])
def test_a_temporary_file_of_postgresql_that_cannot_be_written(
    service: Service, disk: Disk, module_database_url: str, setting: str
) -> None:
    disk.fill()
    database = disk.operator.connection.info.dbname
    disk.operator.connection.execute(f"alter database {database} set {setting}".encode())
    disk.operator.connection.execute(f"alter database {database} set work_mem = '64kB'".encode())
    try:
        with running(module_database_url, company=None) as short:
            read = short.odata("/products?$orderby=name%20desc,code")
            assert (read.status, read.headers["Retry-After"], read.json["error"]["code"]) == BUSY
            exported = short.ask("/api/demo/products?format=csv&export=true&$orderby=name", authorization=f"Bearer {short.key}")
            assert state(exported) == BUSY
    finally:
        for each in (setting.partition(" ")[0], "work_mem"):
            disk.operator.connection.execute(f"alter database {database} reset {each}".encode())


def test_a_temporary_file_of_the_service_that_cannot_be_written(
    service: Service, small_disk: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(small_disk))
    before = imports(service)
    disk.fill()
    reply = send(service, "POST", "/api/demo/import?entity=units", b"PK\x03\x04" + bytes(range(256)) * 80_000, EXCEL)
    assert state(reply) == FULL
    disk.empty()
    # the import had not begun, and could not be listed either
    wait_until(lambda: [report(service, each) for each in imports(service) if each not in before] == [("failed", ["disk_full"])])
