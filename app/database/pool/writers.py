"""A pool of synchronous sessions that may write, for small imports, which threads run.

A session keeps the temporary tables of the imports that it has run, and the plans of their statements: the next import of the same
entities finds both ready.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from app.database.pool.pools import configure, is_readable, parameters

SIZE = 4  # sessions of a process; imports of one company run one after the other
WAIT = 5.0  # seconds that an import waits for a session
IDLE = 300.0  # seconds after which an unused session is closed


class Writers:
    """Lends sessions that act as bds_writer, in autocommit mode.  Opened by the first use."""

    def __init__(self, url: str) -> None:
        self._pool = ConnectionPool(
            url,
            min_size=0,
            max_size=SIZE,
            max_idle=IDLE,
            timeout=WAIT,
            open=False,
            name="writers",
            kwargs={"autocommit": True, **parameters(url)},
            configure=_configure,
            check=_check,
        )

    @contextlib.contextmanager
    def session(self) -> Iterator[psycopg.Connection[Any]]:
        """A session, for the block.  Raises psycopg.OperationalError if none can be had in time."""
        self._pool.open()
        with self._pool.connection() as connection:
            yield connection

    def close(self) -> None:
        """Close the sessions."""
        self._pool.close()


def _configure(connection: psycopg.Connection[Any]) -> None:
    configure(connection)
    connection.execute("set role bds_writer")


def _check(connection: psycopg.Connection[Any]) -> None:
    if is_readable(connection):
        ConnectionPool.check_connection(connection)
