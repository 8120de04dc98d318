"""The connection of an import: shared by what it does at once, closed while its client is slow."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

IDLE = 0.25  # seconds that the connection stays open after a use


class IdleConnection:
    """Keeps a connection open for IDLE seconds after each use; a later use opens a new one.

    Threads use it one at a time.  A use that ends with an exception closes it.
    """

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._lock = threading.Lock()  # held during a use
        self._idle: psycopg.Connection[Any] | None = None
        self._uses = 0

    @contextlib.contextmanager
    def use(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection, for the block.  Raises psycopg.Error if it cannot be opened."""
        with self._lock:
            connection, self._idle = self._idle or self._connect(), None
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            self._idle = connection
            self._uses += 1
            timer = threading.Timer(IDLE, self._close_after, (self._uses,))
            timer.daemon = True
            timer.start()

    def close(self) -> None:
        """Close the connection now; a later use opens a new one."""
        self._close_after(self._uses)

    def _close_after(self, uses: int) -> None:
        """Close the connection if so many uses were its last."""
        with self._lock:
            if self._idle is not None and self._uses == uses:
                self._idle.close()
                self._idle = None
