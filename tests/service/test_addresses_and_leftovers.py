"""The start of a service with a taken or wrong address, and with metrics directories that killed services left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.service.test_processes import BDS, ROOT, key, serve, wait_until

pytestmark = pytest.mark.processes

__all__ = ["key"]  # a fixture


@pytest.mark.parametrize("options", [(), ("--processes", "2")])
def test_a_taken_address_is_refused_in_one_line(database_url: str, key: str, options: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = start(database_url, *options, "--port", str(port))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == f"bds: cannot listen on 127.0.0.1:{port}: address already in use\n"


def test_an_address_with_another_running_service_is_refused(database_url: str, key: str) -> None:
    for options in ((), ("--processes", "2")):
        with serve(database_url, key, *options) as served:
            for other in ((), ("--processes", "2")):
                ended = start(database_url, *other, "--port", str(served.port))
                assert (
                    ended.returncode == 1 and ended.stderr.endswith(": address already in use\n") and ended.stderr.count("\n") == 1
                )


@pytest.mark.parametrize("options", [(), ("--processes", "2")])
def test_an_address_of_another_machine_is_refused_in_one_line(database_url: str, options: tuple[str, ...]) -> None:
    ended = start(database_url, *options, "--host", "192.0.2.1", "--port", "8080")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "bds: cannot listen on 192.0.2.1:8080: cannot assign requested address\n"


def start(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a service that fails to start."""
    environment = {**os.environ, "BDS_DATABASE_URL": url}
    return subprocess.run([*BDS, "serve", *options], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)


def directories(temporary: Path) -> set[str]:
    return {path.name for path in temporary.glob("bds-metrics-*")}


def test_the_metrics_directory_of_a_killed_service_is_removed_by_the_next_one(database_url: str, key: str, tmp_path: Path) -> None:
    with serve(database_url, key, "--processes", "2", TMPDIR=str(tmp_path)) as killed:
        (left,) = directories(tmp_path)
        children = killed.children("bds http") + killed.children("bds webhooks")
        killed.parent.kill()
        wait_until(lambda: not any(psutil.pid_exists(child) for child in children))
    assert directories(tmp_path) == {left}
    with serve(database_url, key, "--processes", "2", TMPDIR=str(tmp_path)) as served:
        (mine,) = directories(tmp_path)
        assert mine != left
        with serve(database_url, key, "--processes", "2", TMPDIR=str(tmp_path)) as beside:
            assert len(directories(tmp_path)) == 2 and mine in directories(tmp_path)
            assert served.metrics()["bds_processes"] == 3
            assert beside.stop() == 0
        assert directories(tmp_path) == {mine}
        assert served.stop() == 0
    assert not directories(tmp_path)


def test_a_metrics_directory_in_use_by_children_of_a_killed_parent_remains(database_url: str, key: str, tmp_path: Path) -> None:
    with serve(database_url, key, "--processes", "2", TMPDIR=str(tmp_path)) as killed:
        (used,) = directories(tmp_path)
        child = killed.children("bds http")[0]
        os.kill(child, signal.SIGSTOP)  # it cannot end
        killed.parent.kill()
        killed.parent.wait()
        with serve(database_url, key, "--processes", "2", TMPDIR=str(tmp_path)) as served:
            assert used in directories(tmp_path)
            assert served.stop() == 0
        assert directories(tmp_path) == {used}
