"""Commands and services wait for a PostgreSQL that recovers from a crash, and say so."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from app.database import connections, embedded
from tests import servers

pytestmark = [pytest.mark.processes, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
BDS = [sys.executable, "-m", "app.cli"]
WAITING = "the database is starting or recovering from a crash; waiting for it"


@pytest.fixture
def recovering(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The connection string of a server that is in recovery, and the file with which recovery ends."""
    tmp_path.chmod(0o755)
    cluster, end = tmp_path / "postgres", tmp_path / "end"
    url = servers.start(tmp_path)
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"alter system set restore_command = 'while ! test -f {end}; do sleep 0.1; done; false'".encode())
        embedded.stop(tmp_path)
        (cluster / "recovery.signal").touch()
        shutil.chown(cluster / "recovery.signal", (cluster / "PG_VERSION").owner())
        words = ["-W", "-o", '-h ""', "-o", f"-k {cluster}", "-l", str(cluster / "log"), "start"]
        embedded._wheel().pg_ctl(words, pgdata=cluster, user=embedded._system_user())
        yield url, end
    finally:
        end.touch()
        embedded.stop(tmp_path)


def run(url: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "BDS_DATABASE_URL": url}
    return subprocess.Popen(
        [*BDS, *arguments], env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def lines_until(process: subprocess.Popen[str], pattern: str) -> list[str]:
    assert process.stderr is not None
    found = []
    for line in process.stderr:
        found.append(line)
        if re.search(pattern, line):
            return found
    raise AssertionError(f"it ended after {found}")


def test_commands_and_services_wait_for_recovery(recovering: tuple[str, Path]) -> None:
    url, end = recovering
    waiting = [run(url, "company", "list"), run(url, "serve", "--port", "0"), run(url, "serve", "--port", "0", "--processes", "2")]
    try:
        for process in waiting:
            assert len(lines_until(process, WAITING)) == 1
        end.touch()
        command, *services = waiting
        assert command.wait(timeout=60) == 0
        for service in services:
            lines_until(service, "serving on http")
            service.terminate()
            assert service.wait(timeout=60) == 0
    finally:
        for process in waiting:
            process.kill()
            process.communicate()


def test_a_service_that_waits_for_recovery_ends_at_once(recovering: tuple[str, Path]) -> None:
    url, _ = recovering
    for arguments in ((), ("--processes", "2")):
        service = run(url, "serve", "--port", "0", *arguments)
        lines_until(service, WAITING)
        service.send_signal(signal.SIGTERM)
        out, err = service.communicate(timeout=60)
        assert (service.returncode, out) == (0, "") and "stopped while waiting" in err


def test_a_server_that_became_ready_after_it_refused_is_asked_again(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the refused connection and the question whether the server starts, recovery has ended."""
    outcomes = [psycopg.OperationalError("starting"), None]
    url = make_conninfo(server, application_name="again")

    def connect(*words: Any, **named: Any) -> Any:
        if words[:1] == (url,) and (error := outcomes.pop(0)):  # others are of threads of other tests
            raise error
        return real(*words, **named)

    real = psycopg.connect
    monkeypatch.setattr(psycopg, "connect", connect)
    connections.connect(url).close()
    assert outcomes == []
    outcomes += [psycopg.OperationalError("no such database")] * 3
    with pytest.raises(psycopg.OperationalError):
        connections.connect(url)
    assert len(outcomes) == 1
