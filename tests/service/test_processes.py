"""Several processes on one address, started as an operator does, killed and stopped while requests run."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.conftest import Operator
from tests.service.serving import PATIENCE, Reply
from tests.service.test_supervisor import QUICK

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parent.parent.parent
BDS = [sys.executable, "-m", "app.cli"]


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


@dataclass
class Served:
    """A running `bds serve`."""

    parent: subprocess.Popen[str]
    port: int
    key: str
    log: list[str] = field(default_factory=list)

    def ask(self, path: str, method: str = "GET", body: bytes | None = None, key: str | None = None) -> Reply:
        """Send one request over a new connection, which any of the processes may accept."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE * 3)
        try:
            headers = {"X-API-Key": key or self.key, "Content-Type": "application/json"}
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()

    def stream(self) -> http.client.HTTPResponse:
        """An answer of which only the head has been read."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE * 3)
        path = "/api/acme/units?format=json&export=true"
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {self.key}\r\n\r\n".encode())
        response = http.client.HTTPResponse(client)
        response.begin()
        return response

    def children(self, name: str) -> list[int]:
        """The pids of the processes with a name: `bds http` or `bds webhooks`."""
        found = []
        for child in psutil.Process(self.parent.pid).children():
            with suppress(OSError, psutil.Error):
                if Path(f"/proc/{child.pid}/comm").read_text().strip() == name:
                    found.append(child.pid)
        return sorted(found)

    def answering(self, tries: int = 60) -> set[str]:
        """The prefixes of request ids, one for each process that answers."""
        found = set()
        for _ in range(tries):
            with suppress(ConnectionError):  # with a process that is ending
                found.add(self.ask("/healthz").headers["X-Request-Id"][:12])
        return found

    def metrics(self) -> dict[str, float]:
        """The values of all metrics by name and labels."""
        lines = (line.rpartition(" ") for line in self.ask("/metrics").body.decode().splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in lines}

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.parent.send_signal(number)
        return self.parent.wait(timeout=60)


@contextmanager
def serve(url: str, key: str, *arguments: str, program: Sequence[str] = BDS, **settings: str) -> Iterator[Served]:
    environment = {**os.environ, "BDS_DATABASE_URL": url, "BDS_LOG_FORMAT": "json", **settings}
    command = [*program, "serve", "--port", "0", *arguments]
    parent = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert parent.stderr is not None
    log: list[str] = []
    port = None
    for line in parent.stderr:
        log.append(line)
        found = re.search(r"serving on http://127.0.0.1:(\d+)", line)
        if found:
            port = int(found[1])
            break
    assert port is not None, "".join(log)
    reader = threading.Thread(target=lambda: log.extend(parent.stderr or ()), daemon=True)
    reader.start()
    try:
        yield Served(parent, port, key, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)  # its session has all its processes
        parent.wait()
        reader.join()


@pytest.fixture
def key(operator: Operator) -> str:
    operator.company("acme")
    return operator.key("acme")


def test_every_process_answers_and_one_delivers(database_url: str, key: str) -> None:
    with serve(database_url, key, "--processes", "2") as served:
        assert len(served.children("bds http")) == 2 and len(served.children("bds webhooks")) == 1
        assert len(served.answering()) == 2
        assert served.stop() == 0
    assert not [line for line in served.log if '"error"' in line]


def test_no_process_delivers_with_no_worker(database_url: str, key: str) -> None:
    with serve(database_url, key, "--processes", "2", "--no-worker") as served:
        assert (len(served.children("bds http")), served.children("bds webhooks")) == (2, [])
        assert served.stop(signal.SIGINT) == 0


def test_a_revoked_key_and_a_new_entity_take_effect_in_every_process_at_once(
    database_url: str, key: str, operator: Operator
) -> None:
    with serve(database_url, key, "--processes", "3") as served:
        assert {served.ask("/c/acme/units").status for _ in range(40)} == {200}
        operator.connection.execute(
            'create table data.things (company_id text collate "C" not null, id bigint generated by default as identity,'
            " name text, updated_at timestamptz not null, primary key (company_id, id))"
        )
        operator.rows("select bds.register('data.things')")
        wait_until(lambda: {served.ask("/c/acme/things").status for _ in range(30)} == {200})
        operator.rows("select bds.revoke_key(id) from bds.api_keys")
        wait_until(lambda: {served.ask("/c/acme/units").status for _ in range(10)} == {401})
        assert {served.ask("/c/acme/units").status for _ in range(9)} <= {401, 429}


def test_a_killed_process_is_replaced_while_the_others_serve(database_url: str, key: str) -> None:
    with serve(database_url, key, "--processes", "2") as served:
        first, second = served.children("bds http")
        statuses: list[int] = []
        resets = 0
        done = threading.Event()

        def ask_on_and_on() -> None:
            nonlocal resets
            while not done.is_set():
                try:
                    statuses.append(served.ask("/c/acme/units").status)
                except (ConnectionError, http.client.HTTPException):
                    resets += 1  # the connection was with the process that died

        askers = [threading.Thread(target=ask_on_and_on) for _ in range(4)]
        for asker in askers:
            asker.start()
        wait_until(lambda: len(statuses) > 20)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(served.children("bds http")) == 2 and first not in served.children("bds http"))
        wait_until(lambda: len(served.answering(20)) == 2)
        done.set()
        for asker in askers:
            asker.join()
        # lost: the requests that the killed process was answering; others wait for its replacement
        assert set(statuses) == {200} and resets <= len(askers)
        assert second in served.children("bds http")
        assert any("http 1" in line and "killed by SIGKILL" in line and "it is replaced in" in line for line in served.log)
        assert served.metrics()["bds_processes"] == 3
        assert served.stop() == 0


def test_sigterm_to_one_process_replaces_it_and_lets_its_work_end(database_url: str, key: str) -> None:
    with serve(database_url, key, "--processes", "2") as served:
        first, _ = served.children("bds http")
        os.kill(first, signal.SIGTERM)
        wait_until(lambda: first not in served.children("bds http") and len(served.children("bds http")) == 2)
        wait_until(lambda: len(served.answering(20)) == 2)
        assert served.stop() == 0
    assert any(f"http 1 (process {first}) ends; it is replaced at once" in line for line in served.log)
    assert not [line for line in served.log if '"error"' in line or '"warning"' in line]


def test_a_process_that_ends_is_replaced_before_its_work_ends(database_url: str, key: str, operator: Operator) -> None:
    many_units(operator)
    with serve(database_url, key, "--processes", "2") as served:
        before = served.children("bds http")
        streams = [served.stream() for _ in range(6)]
        while not all(connected(each) for each in before):  # each process has some of them, and cannot end until they are read
            streams.append(served.stream())
        for each in before:
            os.kill(each, signal.SIGTERM)
        wait_until(lambda: len(served.children("bds http")) == 4)
        wait_until(lambda: len(served.answering(20)) == 2)
        assert set(before) <= set(served.children("bds http"))
        assert [len(json.loads(stream.read())["units"]) for stream in streams] == [30000] * len(streams)
        wait_until(lambda: not set(before) & set(served.children("bds http")))
        assert served.stop() == 0
    assert not [line for line in served.log if '"error"' in line]


@pytest.mark.slow
def test_a_stopped_process_is_killed_and_its_replacement_answers_what_waited(database_url: str, key: str) -> None:
    with serve(database_url, key, "--processes", "2") as served:
        first, second = served.children("bds http")
        os.kill(first, signal.SIGSTOP)
        statuses: list[int] = []  # of new connections, some of which wait to be accepted by the stopped process
        askers = [threading.Thread(target=lambda: statuses.append(served.ask("/c/acme/units").status)) for _ in range(24)]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        assert statuses == [200] * 24
        wait_until(lambda: first not in served.children("bds http") and len(served.children("bds http")) == 2)
        assert second in served.children("bds http")
        wait_until(lambda: len(served.answering(20)) == 2)
        assert served.stop() == 0
    found = [line for line in served.log if f"(process {first})" in line]
    assert "has given no sign of life for 8 s and is killed" in found[0] and "killed by SIGKILL" in found[1] and len(found) == 2


@pytest.mark.slow
def test_a_service_with_a_stopped_process_ends(database_url: str, key: str) -> None:
    program = [sys.executable, "-c", QUICK + "import sys\nfrom app.cli.__main__ import main\nsys.exit(main())"]
    with serve(database_url, key, "--processes", "2", program=program) as served:
        children = served.children("bds http") + served.children("bds webhooks")
        os.kill(children[0], signal.SIGSTOP)
        assert served.stop() == 1
        assert not any(psutil.pid_exists(pid) for pid in children)


def test_sigterm_lets_running_requests_end(database_url: str, key: str, operator: Operator) -> None:
    many_units(operator)
    with serve(database_url, key, "--processes", "2") as served:
        streams = [served.stream() for _ in range(6)]
        served.parent.send_signal(signal.SIGTERM)
        wait_until(lambda: not accepts(served.port))
        assert [len(json.loads(stream.read())["units"]) for stream in streams] == [30000] * 6
        assert served.parent.wait(timeout=60) == 0


def test_processes_end_if_their_parent_is_killed(database_url: str, key: str) -> None:
    with serve(database_url, key, "--processes", "2") as served:
        children = served.children("bds http") + served.children("bds webhooks")
        served.parent.kill()
        wait_until(lambda: not any(psutil.pid_exists(pid) for pid in children))


def test_counts_of_all_processes_are_summed(database_url: str, key: str) -> None:
    with serve(database_url, key, "--processes", "2") as served:
        for _ in range(30):
            served.ask("/c/acme/units")
        served.ask("/api/acme/import", "POST", b'{"units": [{"code": "a", "name": "A"}, {"code": "b", "name": "B"}]}')
        label = 'bds_http_requests_total{area="changes",method="GET",status="200"}'
        wait_until(lambda: served.metrics().get(label) == 30)  # each process counts once a second
        assert all(served.metrics()[label] == 30 for _ in range(10)), "every process shows the sum"
        found = served.metrics()
        assert found['bds_http_request_duration_seconds_count{area="changes",method="GET"}'] == 30
        assert found['bds_imports_total{dry_run="false",state="completed"}'] == 1
        assert found['bds_import_records_total{outcome="created"}'] == 2
        assert (found["bds_processes"], found["bds_database_up"]) == (3, 1)
        first, _ = served.children("bds http")
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(served.answering(20)) == 2)
        assert served.metrics()[label] == 30, "counts of a dead process remain"
        assert served.metrics()["bds_processes"] == 3


def test_processes_that_cannot_start_end_the_service(database_url: str) -> None:
    environment = {**os.environ, "BDS_DATABASE_URL": database_url, "BDS_LISTEN_DATABASE_URL": database_url + "_none"}
    command = [*BDS, "serve", "--processes", "2", "--port", "0"]
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert "could not start: exit code 1" in ended.stderr


def connected(process: int) -> bool:
    """Whether a client is connected to a process."""
    return any(each.status == psutil.CONN_ESTABLISHED for each in psutil.Process(process).net_connections("tcp"))


def many_units(operator: Operator) -> None:
    """So many that an export of them fits into no socket."""
    operator.write(
        "acme",
        "insert into data.units (company_id, code, name) select 'acme', g, repeat('x', 200) from generate_series(1, 30000) g",
    )


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until the condition holds, as long as starting processes may take."""
    deadline = time.monotonic() + PATIENCE * 6
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.05)


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    except ConnectionError:
        return False
    return True
