"""The embedded server: starts after a kill, concurrent starts, unusable paths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from app.database import embedded

pytestmark = pytest.mark.processes


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Not in pytest's own folder: each session of pytest that begins closes that to others, and so to the user of root's server."""
    with TemporaryDirectory(prefix="bds-embedded-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def killed(data_dir: Path) -> str:
    """Start a server, create a table, kill the server so that its pid file remains; returns its connection string."""
    url = embedded.start(data_dir)
    with psycopg.connect(url) as connection:
        connection.execute("create table kept as select 1 as n")
    pid_file = data_dir / "postgres" / "postmaster.pid"
    os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)
    assert pid_file.exists()
    return url


@pytest.mark.parametrize("pid", [None, 1])
def test_a_killed_server_starts_again_with_its_data(tmp_path: Path, pid: int | None) -> None:
    """Another process may have got its pid."""
    url = killed(tmp_path)
    if pid is not None:
        file = tmp_path / "postgres" / "postmaster.pid"
        file.write_text("\n".join([str(pid), *file.read_text().split("\n")[1:]]))
    try:
        assert embedded.start(tmp_path) == url
        with psycopg.connect(url) as connection:
            assert connection.execute("select n from kept").fetchone() == (1,)
    finally:
        assert embedded.stop(tmp_path)


def test_two_concurrent_first_commands_use_one_server(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from app.database import embedded; print(embedded.start(Path(sys.argv[1])))"
    both = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in both]
        assert [process.returncode for process in both] == [0, 0]
        assert outputs[0] == outputs[1] != ""
    finally:
        assert embedded.stop(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's server runs as another user")
def test_under_root_the_folders_above_the_data_stay_unreadable_for_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    try:
        embedded.start(home / "data")
        assert home.stat().st_mode & 0o777 == 0o711
    finally:
        assert embedded.stop(home / "data")


@pytest.mark.parametrize("name", ["a b", "it's", "a$b", "\udcff"])
def test_a_path_that_postgresql_cannot_use_is_refused_at_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="BDS_DATA_DIR: expected a path "):
        embedded.start(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_the_start_after_a_kill_says_what_it_waits_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    killed(tmp_path)
    assert not caplog.messages
    try:
        embedded.start(tmp_path)
        assert caplog.messages == ["the embedded PostgreSQL is starting or recovering from a crash; waiting for it"]
    finally:
        embedded.stop(tmp_path)
