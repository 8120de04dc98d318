"""Hostile files sent to a running service: each gets a clear answer, memory stays within bounds, and other imports go on."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from app.errors import ERRORS
from tests.auth.client import make_user
from tests.conftest import Operator
from tests.mapper.hostile import Hostile, book, row, sheet, text
from tests.mapper.hostile_files import FILES, IMPORT_MAX, UPLOADS, XLSX
from tests.service.serving import ANSWER, Reply, Service, wait_until
from tests.service.test_processes import serve
from tests.web.visitor import Visitor, visitor

pytestmark = [pytest.mark.slow, pytest.mark.processes]

GROWTH = 300 << 20  # bytes that the service and its children may need more than at the start
PAGE = os.sysconf("SC_PAGE_SIZE")
SAMPLE = 0.05  # seconds between two looks at the memory
PAUSE = 2.0  # seconds between two of the other imports
MAPPERS = {
    "lines": "type csv units = 'row' { code = 'code' name = 'name' }",
    "book": "type excel units = 'row' { code = 'code' name = 'name' }",
    "tree": "type json units = '$.units' { code = 'code' name = 'name' }",
}
GOOD = book(sheet("".join(row(text("n"), f"G{n}") for n in range(50))))


@dataclass
class Watched:
    """A running service, the growth of its memory, and the imports that go on meanwhile."""

    service: Service
    pid: int
    start: int = 0  # bytes
    peak: int = 0
    peak_at: str = ""
    current: str = ""
    others: list[tuple[int, float]] = field(default_factory=list)  # status, seconds
    stopped: threading.Event = field(default_factory=threading.Event)

    def memory(self) -> int:
        """The resident memory of the service and its children.  A child that does not run its program yet has the service's memory."""
        own, size = command(self.pid), resident(self.pid)
        for pid in descendants(self.pid):
            with suppress(OSError):  # it has ended
                size += resident(pid) if command(pid) != own else 0
        return size

    def look(self) -> None:
        while not self.stopped.wait(SAMPLE):
            now = self.memory()
            if now > self.peak:
                self.peak, self.peak_at = now, self.current

    def go_on(self) -> None:
        """Import a good workbook, again and again."""
        while not self.stopped.wait(PAUSE):
            began = time.monotonic()
            reply = send(self.service, "/api/other/import?entity=units", GOOD, {"Content-Type": XLSX})
            self.others.append((reply.status, time.monotonic() - began))


# From /proc itself: psutil goes through all processes of the machine to find children, and did so for most of this file's CPU seconds.


def resident(pid: int) -> int:
    """Bytes.  Raises OSError if the process has ended."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


def command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            found += map(int, (task / "children").read_text().split())
    return found + [below for child in found for below in descendants(child)]


def send(service: Service, path: str, body: bytes, headers: dict[str, str], method: str = "POST") -> Reply:
    """Send a body, of which the service may refuse the rest."""
    connection = http.client.HTTPConnection(service.host, service.port, timeout=ANSWER)
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, path, body, {"X-API-Key": service.key, **headers})
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def watched(module_database_url: str) -> Iterator[Watched]:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        operator = Operator(connection)
        for name in ("demo", "other"):
            operator.company(name)
        key = operator.key("demo", "other")
        with serve(module_database_url, key, "--no-worker", BDS_IMPORT_MAX=str(IMPORT_MAX)) as served:
            service = Service("127.0.0.1", served.port, key, operator, lambda: None)
            make_user(service, "anna@example.com", "demo")
            for name, mapper in MAPPERS.items():
                assert (
                    send(service, f"/api/demo/mappers/{name}", mapper.encode(), {"Content-Type": "text/plain"}, "PUT").status == 201
                )
            made = Watched(service, served.parent.pid)
            made.start = made.memory()
            threads = [threading.Thread(target=work) for work in (made.look, made.go_on)]
            for thread in threads:
                thread.start()
            yield made
            made.stopped.set()
            for thread in threads:
                thread.join()


@pytest.fixture(scope="module")
def anna(watched: Watched) -> Visitor:
    return visitor(watched.service)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_hostile_file_gets_a_clear_answer(watched: Watched, file: Hostile) -> None:
    watched.current = file.name
    headers = {"Content-Type": file.type} | ({"Content-Encoding": file.coding} if file.coding else {})
    reply = send(watched.service, f"/api/demo/{file.path}", file.make(), headers, file.method)
    found = reply.json
    outcome = found.get("code") or found.get("state") or "previewed"
    if file.expected == "invalid_value":
        assert [outcome, reply.status, *({each["code"] for each in found["errors"]} - {"batch_failed"})] == [
            "failed",
            422,
            "invalid_value",
        ]
    else:
        assert outcome == file.expected, reply.body[:2000]
        assert reply.status == {"completed": 200, "failed": 422, "previewed": 200}.get(outcome, ERRORS.get(outcome, (0,))[0])
    assert len(reply.body) < 1 << 20


@pytest.mark.parametrize(("name", "choice", "expected", "make"), UPLOADS, ids=[f"{name} {choice}" for name, choice, *_ in UPLOADS])
def test_a_hostile_upload_on_the_page_gets_a_report(
    watched: Watched, anna: Visitor, name: str, choice: str, expected: str, make: object
) -> None:
    watched.current = f"upload of {name}"
    assert callable(make)
    answer = anna.upload("/imports?company=demo", {"mapper": choice}, name, make())
    assert answer.location is not None, answer.text
    path = "/api/demo/imports/" + answer.location.partition("?")[0].rpartition("/")[2]
    wait_until(lambda: watched.service.ask(path).json["finishedAt"] is not None)
    report = watched.service.ask(path).json
    assert report["state"] == "failed" and expected in {each["code"] for each in report["errors"]}, json.dumps(report)


def test_memory_stays_within_bounds_and_other_imports_go_on(watched: Watched) -> None:
    growth = watched.peak - watched.start
    print(f"\nstart {watched.start >> 20} MB, growth at most {growth >> 20} MB ({watched.peak_at}); "
          f"{len(watched.others)} other imports, the slowest {max(seconds for _, seconds in watched.others):.1f} s")  # fmt: skip
    assert growth < GROWTH, watched.peak_at
    assert {status for status, _ in watched.others} == {200}
    wait_until(lambda: len(descendants(watched.pid)) <= 1)  # that of the import that goes on
