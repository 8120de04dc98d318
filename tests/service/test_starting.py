"""A service that is told to end while it starts, before a database that accepts connections and does not answer."""

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
SAYS = "stopped while waiting for the database to answer"


@dataclass
class Hanging:
    """A way to the database on which some connections are served, and whatever comes after them is taken and not answered."""

    url: str
    path: str  # of the database's own socket
    serves: int  # connections
    taken: int = 0
    _open: list[socket.socket] = field(default_factory=list)

    def run(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                self._open.append(client)
                if self.taken < self.serves:
                    server = socket.socket(socket.AF_UNIX)
                    server.connect(self.path)
                    self._open.append(server)
                    for one, other in ((client, server), (server, client)):
                        threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()
                self.taken += 1

    def close(self) -> None:
        for each in self._open:
            each.close()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 16):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


@contextmanager
def hanging(database_url: str, serves: int) -> Iterator[Hanging]:
    where = conninfo_to_dict(database_url)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = make_conninfo(
            database_url, host="127.0.0.1", port=listening.getsockname()[1], sslmode="disable", gssencmode="disable"
        )
        way = Hanging(url, f"{where['host']}/.s.PGSQL.{where.get('port', 5432)}", serves)
        threading.Thread(target=way.run, args=(listening,), daemon=True).start()
        try:
            yield way
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            way.close()


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
    """What a service says that is told to end, and ends: not by what it waits for, of which it would say something else."""
    service.send_signal(number)
    said = service.communicate(timeout=PATIENCE * 6)[1]
    assert service.returncode == 0, said
    assert "Traceback" not in said and "was never retrieved" not in said
    return said


COMMANDS = [("serve", "--port", "0"), ("serve", "--port", "0", "--processes", "2"), ("worker",)]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_once_where_nobody_answers(database_url: str, arguments: tuple[str, ...], number: int) -> None:
    with hanging(database_url, 0) as way, starting(way.url, *arguments) as service:
        wait_until(lambda: way.taken == 1)
        assert stop(service, number) == f"bds: {SAYS}\n"


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("serves", range(1, 6))
def test_it_ends_at_once_where_an_answer_fails_to_come_later(database_url: str, arguments: tuple[str, ...], serves: int) -> None:
    with hanging(database_url, serves) as way, starting(way.url, *arguments) as service:
        wait_until(lambda: way.taken > serves)
        said = stop(service, signal.SIGTERM)
        assert SAYS in said


def test_it_ends_at_once_where_the_server_stands_still_behind_a_connection(database_url: str) -> None:
    held = make_conninfo(database_url, application_name="holds")
    with psycopg.connect(held) as holder:
        holder.execute("lock table bds.entities in access exclusive mode")  # the model cannot be read
        with starting(database_url, "serve", "--port", "0") as service:
            waits = "select from pg_locks where not granted"
            with psycopg.connect(database_url, autocommit=True) as operator:
                wait_until(lambda: operator.execute(waits).fetchone() is not None)
                (stuck,) = operator.execute("select pid from pg_locks where not granted").fetchone() or (0,)
                os.kill(stuck, signal.SIGSTOP)
                try:
                    assert SAYS in stop(service, signal.SIGTERM)
                finally:
                    os.kill(stuck, signal.SIGCONT)
