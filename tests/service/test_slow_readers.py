"""Slow readers of whole collections hold no connections: what they do not take waits in a file, up to a bound."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import http.client
import io
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from app import metrics
from app.wire import answers, streams
from tests.conftest import Operator
from tests.odata.test_streams import ends_whole, readers
from tests.service.serving import Service, running, wait_until
from tests.service.test_processes import Served, serve

pytestmark = [pytest.mark.processes, pytest.mark.slow]

ODATA, CSV = "/api/odata/demo/units", "/api/demo/units?export=true&format=csv"
FEW = 2 << 20  # bytes: less than an answer, when the sockets' buffers are full
MUCH = 1 << 30

# A client in a process of its own that begins to read, says so, and reads no further.
CLIENT = """
import socket, sys, time
client = socket.socket()
client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
client.connect(("127.0.0.1", int(sys.argv[1])))
client.sendall(f"GET {sys.argv[2]} HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: {sys.argv[3]}\\r\\n\\r\\n".encode())
assert client.recv(100).startswith(b"HTTP/1.1 200 OK")
print("reads", flush=True)
time.sleep(3600)
"""


def sample(name: str) -> float:
    return metrics.PROCESS.get_sample_value(name) or 0.0


def begin(service: Service, path: str = ODATA, *headers: str, version: str = "1.1") -> socket.socket:
    """A client that has begun to read and then stopped."""
    client = service.connect(receive_buffer=4096)
    lines = (f"GET {path} HTTP/{version}", "Host: x", f"Authorization: {service.basic}", *headers, "\r\n")
    client.sendall("\r\n".join(lines).encode())
    assert client.recv(10, socket.MSG_PEEK).startswith(f"HTTP/{version}"[:8].encode())
    return client


@dataclass
class Received:
    """The bytes of an answer in place of its connection."""

    content: bytes

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self.content)


def read(client: socket.socket | Received) -> str:
    """The hash of a whole answer.  Raises http.client.IncompleteRead, ConnectionResetError."""
    response = http.client.HTTPResponse(client)  # type: ignore[arg-type]
    response.begin()
    assert response.status == 200
    digest = hashlib.sha256()
    while piece := response.read(1 << 16):
        digest.update(piece)
    return digest.hexdigest()


def hash_of(service: Service, path: str = ODATA, **headers: str) -> str:
    return hashlib.sha256(service.ask(path, Host="x", **headers).body).hexdigest()


@pytest.fixture(scope="module")
def url(module_database_url: str) -> str:
    """A database whose company demo has many units."""
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        fill(Operator(connection))
    return module_database_url


def fill(operator: Operator) -> None:
    operator.company("demo")
    rows = "insert into data.units (company_id, code, name) select 'demo', g, repeat('x', 200) from generate_series(1, 40000) g"
    operator.write("demo", rows)


@contextlib.contextmanager
def spooling(url: str, size: int, **settings: Any) -> Iterator[Service]:
    """A service with so large a spool, of which nothing may be left in the end, and one slot for streams."""
    with running(url, **{"pool_size": 2, "spool_max": size, "company": None, **settings}) as service:
        yield service
        wait_until(lambda: (sample("bds_spooled_bytes"), sample("bds_spooled_readers")) == (0, 0))


@pytest.fixture(scope="module")
def service(url: str) -> Iterator[Service]:
    with spooling(url, MUCH) as service:
        yield service


def test_slow_readers_hold_no_connection_and_get_every_byte_in_order(service: Service) -> None:
    requests = [(ODATA, ()), (CSV, ()), (ODATA, ("Accept-Encoding: gzip",)), (CSV, ()), (ODATA, ())]
    with ExitStack() as stack:
        clients = [stack.enter_context(begin(service, path, *headers)) for path, headers in requests]
        wait_until(lambda: readers(service, "state <> 'idle'") == 0)
        assert sample("bds_spooled_readers") == 4  # the compressed answer fits the sockets' buffers
        assert sample("bds_spooled_bytes") > 4 * (4 << 20)
        expected = [hash_of(service, path, **({"Accept_Encoding": "gzip"} if headers else {})) for path, headers in requests]
        assert [read(client) for client in clients] == expected


def test_a_slow_reader_over_http_1_0_gets_every_byte(service: Service) -> None:
    with begin(service, version="1.0") as client:
        wait_until(lambda: sample("bds_spooled_bytes") > 0 and readers(service, "state <> 'idle'") == 0)
        assert read(client) == hash_of(service)


def test_a_slow_reader_that_leaves_is_no_failure(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    with begin(service):
        wait_until(lambda: sample("bds_spooled_bytes") > 0 and readers(service, "state <> 'idle'") == 0)
    wait_until(lambda: sample("bds_spooled_readers") == 0)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_a_client_that_keeps_up_never_touches_the_file(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "GRACE", 60.0)  # however busy the machine is
    monkeypatch.setattr(streams, "LONGEST", 60.0)
    monkeypatch.setattr("app.wire.spool.Spool.take", lambda *_: pytest.fail("a page was taken"))
    assert len(service.ask(ODATA).body) > 10_000_000
    assert len(service.ask(CSV).body) > 8_000_000


def test_many_more_slow_readers_than_slots_are_all_served(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "GRACE", 0.01)
    expected = hash_of(service)
    with ExitStack() as stack:
        clients = [stack.enter_context(service.connect(receive_buffer=4096)) for _ in range(30)]
        for client in clients:
            client.sendall(service.request("/units"))
        wait_until(lambda: sample("bds_spooled_readers") == 30 and readers(service, "state <> 'idle'") == 0)
        assert service.odata("/units?$top=1").status == 200
        assert {read(client) for client in clients} == {expected}


def test_a_stream_that_is_spooled_rests_while_others_are_answered_and_only_then(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests = list[float]()

    class Pace(float):
        def __mul__(self, took: float) -> float:
            rests.append(took)
            return 0.0

    monkeypatch.setattr(streams, "PACE", Pace())
    with begin(service):
        wait_until(lambda: sample("bds_spooled_bytes") > 4 << 20 and readers(service, "state <> 'idle'") == 0)
        assert rests == []
    wait_until(lambda: sample("bds_spooled_readers") == 0)

    def is_rested() -> bool:
        with begin(service):
            while sample("bds_spooled_bytes") == 0 or readers(service, "state <> 'idle'"):
                assert service.odata("/units?$top=1").status == 200
        return bool(rests)

    wait_until(is_rested)
    assert max(rests) < 1 << 10


def test_beyond_the_bound_streams_are_refused_at_once_and_small_answers_are_not(url: str) -> None:
    with spooling(url, FEW, statement_timeout=3600) as service, ExitStack() as stack:
        slow = stack.enter_context(begin(service))
        queued = stack.enter_context(service.connect())
        queued.sendall(service.request("/units"))  # waits for a slot, at the latest until the bound is reached
        answer = http.client.HTTPResponse(queued)
        answer.begin()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
        for path, member in ((ODATA, "error"), (CSV, "code")):
            reply = service.ask(path)
            assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
            assert "busy" in str(reply.json[member])
        assert sample("bds_spooled_bytes") == FEW
        assert service.odata("/units?$top=1").status == 200
        assert read(slow) == hash_of(service)  # through memory, as its client reads
        wait_until(lambda: service.odata("/units").status == 200)


def test_slow_readers_that_share_too_little_space_all_get_every_byte(url: str) -> None:
    with spooling(url, FEW, pool_size=8) as service, ExitStack() as stack:
        clients = [stack.enter_context(begin(service)) for _ in range(6)]  # as many as there are slots
        wait_until(lambda: sample("bds_spooled_readers") == 6 and sample("bds_spooled_bytes") == FEW)
        wait_until(lambda: service.odata("/units").status == 503)
        with ThreadPoolExecutor(6) as pool:
            hashes = list(pool.map(read, clients))
        assert hashes == [hash_of(service)] * 6


@pytest.mark.parametrize("size", [0, FEW])
def test_an_error_while_a_client_waits_at_the_bound_resets_the_connection(url: str, size: int) -> None:
    with spooling(url, size) as service, begin(service) as client:
        query = "select pg_terminate_backend(pid) from pg_stat_activity where state = 'idle in transaction'"
        wait_until(lambda: sample("bds_spooled_bytes") == size and bool(service.operator.rows(query)))
        assert not ends_whole(client)


def test_a_client_that_stops_reading_is_cut_and_its_space_returned(url: str) -> None:
    with spooling(url, MUCH, stall=1.0) as service, begin(service) as client:
        wait_until(lambda: sample("bds_spooled_bytes") > 0)
        wait_until(lambda: sample("bds_spooled_bytes") == 0)
        assert not ends_whole(client)


def test_a_client_that_reads_a_little_is_not_cut(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The send buffer takes nothing meanwhile: far less than a third of it is read."""
    look, looks, content, enough = answers.unacknowledged, list[int](), bytearray(), 4 * answers.LOOKS

    with spooling(url, MUCH, stall=0.4) as service, begin(service) as client:

        def read_a_little(transport: asyncio.Transport | None) -> int:
            left = look(transport)
            while 0 < len(looks) < enough and left >= looks[-1]:
                content.extend(client.recv(1024))
                left = look(transport)
            looks.append(left)
            return left

        monkeypatch.setattr(answers, "unacknowledged", read_a_little)
        wait_until(lambda: len(looks) >= enough)  # four times as long as a client may read nothing
        monkeypatch.undo()
        assert len(content) < 1 << 20
        while not content.endswith(b"\r\n0\r\n\r\n"):
            content.extend(client.recv(1 << 20))
        assert read(Received(content)) == hash_of(service)


# A process of its own -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(database_url: str, operator: Operator, tmp_path: Path) -> Iterator[Served]:
    fill(operator)
    with serve(database_url, operator.key("demo"), TMPDIR=str(tmp_path)) as served:
        yield served


def basic(served: Served) -> str:
    return "Basic " + base64.b64encode(f"api:{served.key}".encode()).decode()


def whole(served: Served) -> str:
    """The hash of the answer, read at once."""
    with socket.create_connection(("127.0.0.1", served.port)) as client:
        client.sendall(f"GET {ODATA} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(served)}\r\n\r\n".encode())
        return read(client)


@contextlib.contextmanager
def slow_clients(served: Served, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that have begun to read and stopped; killed at the end."""
    command = [sys.executable, "-c", CLIENT, str(served.port), ODATA, basic(served)]
    clients = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        for client in clients:
            assert client.stdout is not None and client.stdout.readline() == "reads\n"
        wait_until(lambda: served.metrics()["bds_spooled_readers"] == count)
        yield clients
    finally:
        for client in clients:
            client.kill()
            client.communicate()


def spool_files(served: Served, directory: Path) -> list[os.stat_result]:
    """The nameless files of the server in its temporary directory."""
    found = []
    for link in Path(f"/proc/{served.parent.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(link.readlink()).startswith(f"{directory}/"):
                found.append(link.stat())
    return found


def test_killed_clients_give_their_space_back(served: Served, tmp_path: Path) -> None:
    for _ in range(2):
        with slow_clients(served, 3):
            wait_until(lambda: served.metrics()["bds_spooled_bytes"] > 3 * (4 << 20))
            (file,) = spool_files(served, tmp_path)
            assert (stat.S_IMODE(file.st_mode), file.st_nlink) == (0o600, 0)
            assert file.st_size > 3 * (4 << 20)
        wait_until(lambda: served.metrics()["bds_spooled_readers"] == 0)
        wait_until(lambda: [file.st_size for file in spool_files(served, tmp_path)] == [0])
        assert served.metrics()["bds_spooled_bytes"] == 0


def test_a_killed_server_leaves_no_file(served: Served, tmp_path: Path) -> None:
    with slow_clients(served, 2):
        wait_until(lambda: bool(spool_files(served, tmp_path)))
        os.kill(served.parent.pid, signal.SIGKILL)
        served.parent.wait()
        assert not list(tmp_path.iterdir())


def test_on_a_full_disk_a_stream_waits_for_its_client(served: Served, tmp_path: Path) -> None:
    psutil.Process(served.parent.pid).rlimit(psutil.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    with slow_clients(served, 1):
        wait_until(lambda: any("the spool cannot be written" in line for line in served.log))
        assert spool_files(served, tmp_path)[0].st_size <= 1 << 20
        assert served.metrics()["bds_spooled_bytes"] <= 1 << 20
        # another one is slow for a while, then reads everything
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", served.port))
            client.sendall(f"GET {ODATA} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic(served)}\r\n\r\n".encode())
            wait_until(lambda: served.metrics()["bds_spooled_readers"] == 2)
            assert read(client) == whole(served)


def test_processes_share_the_bound(database_url: str, operator: Operator) -> None:
    operator.company("demo")
    key = operator.key("demo")
    with serve(database_url, key, "--processes", "2", "--no-worker", BDS_SPOOL_MAX=str(MUCH)) as served:
        wait_until(lambda: served.metrics().get("bds_spool_limit_bytes") == MUCH)
