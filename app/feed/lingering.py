"""The connection of an import, which is there while there is something to do, and not while a client is waited for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

LINGER = 0.25  # seconds after the last use


class Lingering:
    """A connection that is kept for a moment after each use, for the next one; what comes later is given a new one.

    `connect` makes one.  Threads use it one after the other.  After an exception it is not used again.
    """

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._turn = threading.Lock()
        self._kept: psycopg.Connection[Any] | None = None
        self._uses = 0

    @contextlib.contextmanager
    def use(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection.  Raises psycopg.Error if none can be had."""
        with self._turn:
            connection, self._kept = self._kept or self._connect(), None
            try:
                yield connection
            except BaseException:
                connection.close()
                raise
            self._kept = connection
            self._uses += 1
            end = threading.Timer(LINGER, self._give_back, (self._uses,))
            end.daemon = True
            end.start()

    def close(self) -> None:
        """Give it back now."""
        self._give_back(self._uses)

    def _give_back(self, uses: int) -> None:
        with self._turn:
            if self._kept is not None and self._uses == uses:
                self._kept.close()
                self._kept = None
