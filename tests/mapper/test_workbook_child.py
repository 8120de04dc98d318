"""The child that reads a workbook ends with its import, with the service and with its parent, and holds up no other import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from app.child import Child, ChildEnded
from app.database import connections
from app.database.catalog import Catalog
from app.errors import ServiceError
from app.formats import EXCEL
from app.mapper.document import SourceConverter
from app.mapper.exported import exported_mapper
from tests.conftest import Operator
from tests.feed.conftest import Feed
from tests.mapper import test_hostile
from tests.mapper.hostile import HEADER, Deflated, around, book, repeated, row, sheet
from tests.mapper.hostile_files import XLSX
from tests.mapper.test_http import put, send
from tests.service.serving import Service, running, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.processes]

ROOT = Path(__file__).resolve().parents[2]


def endless() -> bytes:
    """A workbook of some megabytes whose one worksheet takes minutes to read, and has no row for all that time."""
    return book(around(lambda before, after: repeated(before, "<a/>", 1 << 30, after)))


@pytest.fixture(scope="module")
def slow() -> bytes:
    return endless()


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        put(service, "book", "type excel units = 'row' { code = 'code' name = 'name' }")
        yield service


def read_catalog(url: str) -> Catalog:
    with connections.connect(url) as connection:
        return connections.read_catalog(connection)


def children(pid: int | None = None) -> list[psutil.Process]:
    """The children of a process that read workbooks."""
    found = []
    for each in psutil.Process(pid).children(recursive=True):
        try:
            if "app.mapper.workbook" in each.cmdline():
                found.append(each)
        except psutil.NoSuchProcess:
            continue
    return found


def test_a_cancelled_import_ends_its_child_and_others_go_on_meanwhile(service: Service, slow: bytes) -> None:
    def upload() -> None:
        replies.append(test_hostile.send(service, "/api/demo/import?entity=units", slow, {"Content-Type": XLSX}).status)

    replies: list[int] = []
    threads = [threading.Thread(target=upload) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(children()) == 3)
    for number in range(3):
        good = book(sheet(row(code=f"G{number}")))
        assert send(service, "POST", "/api/demo/import?entity=units", good, Content_Type=XLSX).status == 200
    wait_until(lambda: len(receiving(service)) == 3)
    for id in receiving(service):
        assert send(service, "DELETE", f"/api/demo/imports/{id}").status == 204
        assert send(service, "GET", f"/api/demo/imports/{id}").json["state"] == "cancelled"
    for thread in threads:
        thread.join()
    assert (replies, children()) == ([409] * 3, [])


def receiving(service: Service) -> list[str]:
    return [
        str(id) for (id,) in service.operator.rows("select id from bds.imports where finished_at is null and state = 'receiving'")
    ]


def test_a_preview_ends_its_child_when_its_client_leaves(service: Service, slow: bytes) -> None:
    head = f"POST /api/demo/mappers/book/preview HTTP/1.1\r\nHost: x\r\nX-API-Key: {service.key}\r\nContent-Type: {XLSX}\r\n"
    with service.connect() as client:
        client.sendall(f"{head}Content-Length: {len(slow)}\r\n\r\n".encode() + slow)
        wait_until(lambda: len(children()) == 1)
    wait_until(lambda: not children())


def test_an_import_that_is_stopped_ends_its_child(module_database_url: str, service: Service, slow: bytes) -> None:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        feed = Feed(module_database_url, read_catalog(module_database_url), "demo", Operator(connection))
        importing = feed.begin(converter=SourceConverter(exported_mapper(feed.catalog, "units", EXCEL)))
        importing.receive(slow)
        errors: list[BaseException] = []

        def receive() -> None:
            try:
                importing.received()
            except ServiceError as error:
                errors.append(error)

        thread = threading.Thread(target=receive)
        thread.start()
        wait_until(lambda: len(children()) == 1)
        importing.stop()
        thread.join()
        assert [error.code for error in errors if isinstance(error, ServiceError)] == ["aborted"] and not children()
        importing.fail(errors[0])


def test_a_child_dies_with_a_parent_that_is_killed(module_database_url: str, service: Service, slow: bytes, tmp_path: Path) -> None:
    path = tmp_path / "slow.xlsx"
    path.write_bytes(slow)
    command = [sys.executable, "-m", "app.cli", "import", str(path), "--company", "demo", "--entity", "units"]
    environment = os.environ | {"BDS_DATABASE_URL": module_database_url}
    parent = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: len(children(parent.pid)) == 1)
        [child] = children(parent.pid)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_child_that_is_killed_is_an_error_of_its_file(tmp_path: Path, slow: bytes) -> None:
    with (tmp_path / "slow.xlsx").open("w+b") as file:
        file.write(slow)
        child = Child("app.mapper.workbook", file, '{"sheet": null, "goes_on": false, "limit": 1000000000}')
        with pytest.raises(ChildEnded):
            for _ in child.blocks():
                child.kill()
        child.close()


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    rows = "".join(row(code=f"{number:05}") for number in range(1000))
    plain = f'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>{HEADER}'
    made = {}
    for name, times in (("few", 1), ("many", 100)):
        with (tmp_path / name).open("w+b") as file:
            file.write(book(Deflated(plain.encode(), rows.encode(), times, b"</sheetData></worksheet>")))
            child = Child("app.mapper.workbook", file, '{"sheet": null, "goes_on": false, "limit": 1000000000}')
            process, size, peak = psutil.Process(child._process.pid), 0, 0
            for data in child.blocks():
                size += len(data)
                peak = max(peak, process.memory_info().rss)
            child.close()
            made[name] = size, peak
    assert made["many"][0] > 50 * made["few"][0] and made["many"][1] - made["few"][1] < 10 << 20
