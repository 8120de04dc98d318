"""SIGTERM and SIGINT to a service that is starting while its database accepts connections but does not answer."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.service.serving import PATIENCE, wait_until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parent.parent.parent
BDS = [sys.executable, "-m", "app.cli"]
MESSAGE = "stopped while waiting for the database to answer"


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


@dataclass
class Hanging:
    """A proxy to the database that passes the first connections on; it accepts later ones but does not answer."""

    url: str
    path: str  # of the database's own socket
    served: int  # number of connections that are passed on
    accepted: int = 0
    _open: list[socket.socket] = field(default_factory=list)

    def run(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                self._open.append(client)
                if self.accepted < self.served:
                    server = socket.socket(socket.AF_UNIX)
                    server.connect(self.path)
                    self._open.append(server)
                    for one, other in ((client, server), (server, client)):
                        threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()
                self.accepted += 1

    def close(self) -> None:
        for each in self._open:
            each.close()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


@contextmanager
def hanging(database_url: str, served: int) -> Iterator[Hanging]:
    where = conninfo_to_dict(database_url)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = make_conninfo(
            database_url, host="127.0.0.1", port=listening.getsockname()[1], sslmode="disable", gssencmode="disable"
        )
        proxy = Hanging(url, f"{where['host']}/.s.PGSQL.{where.get('port', 5432)}", served)
        threading.Thread(target=proxy.run, args=(listening,), daemon=True).start()
        try:
            yield proxy
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            proxy.close()


@contextmanager
def starting(url: str, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "BDS_DATABASE_URL": url, **settings}
    service = subprocess.Popen(
        [*BDS, *arguments], env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield service
    finally:
        with suppress(ProcessLookupError):
            os.killpg(service.pid, signal.SIGKILL)
        service.communicate()


def stop(service: subprocess.Popen[str], number: int) -> str:
    """Send a signal and wait for the end; returns what the service wrote to standard error."""
    service.send_signal(number)
    output = service.communicate(timeout=PATIENCE * 6)[1]
    assert service.returncode == 0, output
    assert "Traceback" not in output and "was never retrieved" not in output
    return output


COMMANDS = [("serve", "--port", "0"), ("serve", "--port", "0", "--processes", "2"), ("worker",)]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_if_the_database_does_not_answer(database_url: str, arguments: tuple[str, ...], number: int) -> None:
    with hanging(database_url, 0) as proxy, starting(proxy.url, *arguments) as service:
        wait_until(lambda: proxy.accepted == 1)
        assert stop(service, number) == f"bds: {MESSAGE}\n"


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("served", range(1, 6))
def test_it_ends_at_once_if_a_later_connection_is_not_answered(database_url: str, arguments: tuple[str, ...], served: int) -> None:
    with hanging(database_url, served) as proxy, starting(proxy.url, *arguments) as service:
        wait_until(lambda: proxy.accepted > served)
        output = stop(service, signal.SIGTERM)
        assert MESSAGE in output


def test_it_ends_at_once_if_the_server_process_of_a_connection_hangs(database_url: str) -> None:
    held = make_conninfo(database_url, application_name="holds")
    with psycopg.connect(held) as holder:
        holder.execute("lock table bds.entities in access exclusive mode")  # the catalog cannot be read
        with starting(database_url, "serve", "--port", "0") as service:
            waits = "select from pg_locks where not granted"
            with psycopg.connect(database_url, autocommit=True) as operator:
                wait_until(lambda: operator.execute(waits).fetchone() is not None)
                (stuck,) = operator.execute("select pid from pg_locks where not granted").fetchone() or (0,)
                os.kill(stuck, signal.SIGSTOP)
                try:
                    assert MESSAGE in stop(service, signal.SIGTERM)
                finally:
                    os.kill(stuck, signal.SIGCONT)
