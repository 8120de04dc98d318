"""The signs of life of an import, and the cancel that it notices with them.

Maintenance fails an import that has shown no sign of life for 20 seconds (bds.reap_imports).  A cancel is a mark on the row of the
import (bds.import_cancel), set by any process; the process that runs the import finds it with its next sign of life.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

HEARTBEAT = 2.0  # seconds between signs of life, and until a cancel is noticed
CANCEL_TIMEOUT = 30.0  # seconds that PostgreSQL has to take the request to cancel a statement


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an import is."""

    bytes: int  # received
    records: int  # read
    done: int = 0  # records
    waiting_for: str | None = None
    phase: str | None = None  # of bds.import_run


class Heartbeat:
    """Shows how far an import is, in a thread with connections of its own; cancels its statement if the import is cancelled."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], company: str, progress: Callable[[], Progress]) -> None:
        self.is_cancelled = False  # as of the last look
        self._connect = connect
        self._company = company
        self._progress = progress
        self._import_id: UUID | None = None
        self._running: psycopg.Connection[Any] | None = None  # runs a statement that may have to be cancelled
        self._stopped = threading.Event()

    def start(self, import_id: UUID) -> None:
        """Show signs of life from now on."""
        self._import_id = import_id
        threading.Thread(target=self._beat, name=f"import {import_id}", daemon=True).start()

    def stop(self) -> None:
        """Show no more signs of life."""
        self._stopped.set()

    def look(self) -> bool:
        """Ask the database whether the import was cancelled.  Raises psycopg.Error."""
        with self._connect() as connection:
            return self._look(connection)

    @contextlib.contextmanager
    def watch(self, connection: psycopg.Connection[Any]) -> Iterator[None]:
        """Within the block a cancel of the import cancels the connection's statement."""
        self._running = connection
        try:
            yield
        finally:
            self._running = None

    def cancel_statement(self, timeout: float = CANCEL_TIMEOUT) -> None:
        """Cancel the statement of the watched connection, if there is one.  Raises psycopg.Error."""
        running = self._running
        if running is not None:
            running.cancel_safe(timeout=timeout)

    def _beat(self) -> None:
        while not self._stopped.wait(HEARTBEAT):
            with contextlib.suppress(psycopg.Error), self._connect() as connection:  # the next sign of life may get through
                show_progress(connection, self._company, self._import_id, self._progress())
                if self._look(connection):
                    self.cancel_statement()

    def _look(self, connection: psycopg.Connection[Any]) -> bool:
        query = "select is_cancelled from bds.imports where company_id = %s and id = %s"
        row = connection.execute(query, (self._company, self._import_id)).fetchone()
        self.is_cancelled = row is not None and row[0]  # its company may have moved away with it
        return self.is_cancelled


def show_progress(connection: psycopg.Connection[Any], company: str, import_id: UUID | None, progress: Progress) -> None:
    """Show how far an import is.  A sign of life."""
    connection.execute(
        "select bds.import_progress(%s, %s, %s, %s, %s, %s, %s)",
        (company, import_id, progress.bytes, progress.records, progress.done, progress.waiting_for, progress.phase),
    )
