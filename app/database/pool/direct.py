"""A connection that is used with libpq itself, one statement at a time; the event loop watches its socket meanwhile.

psycopg opens it, and watches a socket anew for each piece that arrives, with six system calls; its cursors cost more than that.  So
small reads (app/database/pool/standing.py) and the blocks of large collections (app/odata/response.py) are taken here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import count

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from app.database.pool.session import Row, Session, Value

log = logging.getLogger("bds.db")

CANCEL_TIMEOUT = 5.0  # seconds that a backend has to cancel a query; then its connection is closed

_numbers = count(1)


class DirectConnection:
    """A psycopg connection that psycopg does not use until `detach`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._pq = session.pgconn
        self._socket = self._pq.socket
        self._loop = asyncio.get_running_loop()
        self._received: PGresult | None = None  # the result of the running statement
        self._waiter: asyncio.Future[PGresult] | None = None  # for that result; None while no statement runs
        self._answered = 0.0  # when the server last answered, on the monotonic clock
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._loop.add_reader(self._socket, self._on_readable)

    @property
    def is_running(self) -> bool:
        """Whether a statement still runs, because the task that waited for it was cancelled."""
        return self._waiter is not None

    async def run(self, text: bytes, parameters: Sequence[bytes] = ()) -> PGresult:
        """Run a statement.  Raises psycopg.Error."""
        return await self.result(self.start(text, parameters))

    def start(self, text: bytes, parameters: Sequence[bytes] = ()) -> asyncio.Future[PGresult]:
        """Send a statement; its result is taken by `result`.  Raises psycopg.OperationalError."""
        self._pq.send_query_params(text, parameters)
        return self._sent()

    async def run_prepared(self, text: bytes, values: Iterable[Value], known: OrderedDict[bytes, bytes], most: int) -> Row:
        """Run a statement that gives one row; from its second use on, prepared.

        known: the statements that were run last, at most `most`, with the names of those that are prepared.  Raises psycopg.Error.
        """
        parameters = [encoded(value) for value in values]
        name = known.get(text) or await self._prepare(text, known, most)
        if not name:
            return row_of(await self.run(text, parameters))
        known.move_to_end(text)
        try:
            self._pq.send_query_prepared(name, parameters)
            return row_of(await self.result(self._sent()))
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.InvalidSqlStatementName):
            # the type of a column of the result has changed; or psycopg has dropped all statements, as it does after a rollback
            await self._forget(text, known)
            return row_of(await self.run(text, parameters))

    async def _prepare(self, text: bytes, known: OrderedDict[bytes, bytes], most: int) -> bytes:
        """Prepare a statement at its second use.  Returns its name, which is empty at the first use."""
        if text in known:
            name = b"bds_%d" % next(_numbers)
            self._pq.send_prepare(name, text)
            await self.result(self._sent())
            known[text] = name
            return name
        if len(known) >= most:
            await self._forget(next(iter(known)), known)
        known[text] = b""
        return b""

    async def _forget(self, text: bytes, known: OrderedDict[bytes, bytes]) -> None:
        if name := known.pop(text):
            with contextlib.suppress(psycopg.errors.InvalidSqlStatementName):
                await self.run(b"deallocate " + name)

    async def result(self, started: asyncio.Future[PGresult]) -> PGresult:
        """The result of a statement that was sent.  Raises psycopg.Error."""
        result = await started
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise psycopg.errors.error_from_result(result)
        return result

    def _sent(self) -> asyncio.Future[PGresult]:
        """For the result of the statement that was just sent."""
        self._received = None
        waiter: asyncio.Future[PGresult] = self._loop.create_future()
        self._waiter = waiter
        if self._pq.flush():
            self._loop.add_writer(self._socket, self._on_writable)
        return waiter

    def _on_writable(self) -> None:
        """Send the rest of a long statement."""
        with contextlib.suppress(psycopg.OperationalError):  # `_on_readable` meets the error, too
            if self._pq.flush():
                return
        self._loop.remove_writer(self._socket)

    def _on_readable(self) -> None:
        """Take what the server has sent."""
        if self._waiter is None:
            self._on_unasked()
            return
        try:
            self._take()
            while self._is_hung_up:
                self._take()
        except psycopg.OperationalError as error:
            self.close()
            self._settle(error)

    def _take(self) -> None:
        """Take a piece.  Raises psycopg.OperationalError at the end of the connection."""
        self._pq.consume_input()
        while not self._pq.is_busy():
            result = self._pq.get_result()
            if result is None:
                self._settle()
                return
            self._received = result

    @property
    def _is_hung_up(self) -> bool:
        """Whether the server has closed the connection.

        If it did so before it had read everything, uvloop calls a reader once and never again: all that is left is taken then.
        """
        return any(events & (select.POLLERR | select.POLLHUP) for _, events in self._poll.poll(0))

    def _on_unasked(self) -> None:
        """The server has ended the connection, which the next statement will find, or tells of a changed setting."""
        try:
            self._pq.consume_input()
            while self._is_hung_up:
                self._pq.consume_input()
        except psycopg.OperationalError:
            self.detach()

    def _settle(self, error: psycopg.OperationalError | None = None) -> None:
        """End the wait for the result; with an error if the server has sent none."""
        self._answered = time.monotonic()
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():  # cancelled
            return
        if self._received is not None:
            waiter.set_result(self._received)
        else:
            waiter.set_exception(error or psycopg.OperationalError("the server sent no result"))
            waiter.exception()  # seen, even if no caller takes it any more

    async def cancel(self) -> None:
        """Have the backend cancel a running statement, and wait until it is ready; close the connection otherwise."""
        if self._waiter is None:  # it has ended meanwhile
            return
        ended: asyncio.Future[PGresult] = self._loop.create_future()
        self._waiter = ended
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                await self.session.cancel_safe(timeout=CANCEL_TIMEOUT)
                await ended
        except (psycopg.Error, OSError, TimeoutError) as error:
            log.warning("a query could not be cancelled: %s", type(error).__name__)
            self.close()
        except asyncio.CancelledError:
            self.close()
            raise

    def close(self) -> None:
        self.detach()
        self._pq.finish()

    def detach(self) -> None:
        """Stop watching the socket: psycopg may use the connection."""
        if self._socket >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket = -1


async def read_prepared(session: Session, text: bytes, values: Iterable[Value], known: OrderedDict[bytes, bytes], most: int) -> Row:
    """Run a statement as DirectConnection.run_prepared does, on a connection that is in use for more.  Raises psycopg.Error."""
    direct = DirectConnection(session)
    try:
        return await direct.run_prepared(text, values, known, most)
    finally:
        try:
            await direct.cancel()
        finally:
            direct.detach()


def row_of(result: PGresult) -> Row:
    """The columns of the one row of a result."""
    return [result.get_value(0, column) for column in range(result.nfields)]


def encoded(value: Value) -> bytes:
    """A value as PostgreSQL reads it: text, or an array of text.  Raises psycopg.DataError."""
    if not isinstance(value, str):
        escaped = (each.replace("\\", "\\\\").replace('"', '\\"') for each in value)
        value = "{" + ",".join(f'"{each}"' for each in escaped) + "}"
    if "\0" in value:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return value.encode()
