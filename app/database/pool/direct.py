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
from collections.abc import Iterable, Mapping, Sequence

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from app.database.pool.session import Row, Session, Statements, Value

log = logging.getLogger("bds.db")

CANCEL_TIMEOUT = 5.0  # seconds that a backend has to cancel a query; then its connection is closed

# The type of a column of the result has changed; or psycopg has dropped all statements, as it does after a rollback.
OUTDATED = (psycopg.errors.FeatureNotSupported, psycopg.errors.InvalidSqlStatementName)

Call = tuple[bytes, Sequence[Value | None]]  # a statement and its values


class DirectConnection:
    """A psycopg connection that psycopg does not use until `detach`."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._pq = session.pgconn
        self._socket = self._pq.socket
        self._loop = asyncio.get_running_loop()
        self._received: list[PGresult] = []  # the results, so far, of the statements that run
        self._waiter: asyncio.Future[list[PGresult]] | None = None  # for these results; None while nothing runs
        self._is_pipeline = False
        self._answered = 0.0  # when the server last answered, on the monotonic clock
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._loop.add_reader(self._socket, self._on_readable)

    @property
    def is_running(self) -> bool:
        """Whether a statement still runs, because the task that waited for it was cancelled."""
        return self._waiter is not None

    async def run(self, text: bytes, parameters: Sequence[bytes | None] = ()) -> PGresult:
        """Run a statement.  Raises psycopg.Error."""
        return await self.result(self.start(text, parameters))

    def start(self, text: bytes, parameters: Sequence[bytes | None] = ()) -> asyncio.Future[list[PGresult]]:
        """Send a statement; its result is taken by `result`.  Raises psycopg.OperationalError."""
        self._pq.send_query_params(text, parameters)
        return self._sent()

    async def run_prepared(self, text: bytes, values: Iterable[Value], known: Statements) -> Row:
        """Run a statement that gives one row, prepared where `known` says so.  Raises psycopg.Error."""
        parameters = [encoded(value) for value in values]
        name, is_new = known.name_of(text)
        if not name:
            known.note(text)
            await self._drop_surplus(known)
            return row_of(await self.run(text, parameters))
        if is_new:
            self._pq.send_prepare(name, text)
            await self.result(self._sent())
        known.note(text, name)
        try:
            self._pq.send_query_prepared(name, parameters)
            return row_of(await self.result(self._sent()))
        except OUTDATED:
            await self._forget(text, known)
            return row_of(await self.run(text, parameters))

    async def run_together(self, calls: Sequence[Call], known: Statements) -> list[PGresult]:
        """Run statements in one round trip and one transaction, prepared where `known` says so.

        Returns their results, of which one may be an error: then those that follow it did not run.  Raises psycopg.Error if the
        connection ends.
        """
        found = {text: known.name_of(text) for text, _ in calls}
        names = {text: name for text, (name, _) in found.items() if name}
        new = {text: name for text, (name, is_new) in found.items() if is_new}
        results = await self._run_together(calls, names, new)
        failed = next((error_of(result) for result in results if result.status == ExecStatus.FATAL_ERROR), None)
        if failed is not None:
            for name in new.values():
                await self._deallocate(name)
            names = {text: name for text, name in names.items() if text not in new}
        if isinstance(failed, OUTDATED) and (names or new):
            for text in names:
                await self._forget(text, known)
            names = {}
            results = await self._run_together(calls, {}, {})
        for text, _ in calls:
            known.note(text, names.get(text, b""))
        await self._drop_surplus(known)
        return results

    async def _run_together(
        self, calls: Sequence[Call], names: Mapping[bytes, bytes], new: Mapping[bytes, bytes]
    ) -> list[PGresult]:
        """names: of the statements that are prepared; new: of those among them that are prepared here."""
        sent = [(text, [encoded(value) for value in values]) for text, values in calls]
        self._is_pipeline = True
        self._pq.enter_pipeline_mode()
        for text, parameters in sent:
            if text in new:
                self._pq.send_prepare(new[text], text)
            if text in names:
                self._pq.send_query_prepared(names[text], parameters)
            else:
                self._pq.send_query_params(text, parameters)
        self._pq.pipeline_sync()
        received = await self._sent()
        if received[-1].status != ExecStatus.PIPELINE_SYNC:
            raise psycopg.OperationalError("the server ended the connection")
        results = iter(received)
        answers = []
        for text, _ in calls:
            prepared = next(results) if text in new else None
            result = next(results)
            answers.append(prepared if prepared is not None and prepared.status == ExecStatus.FATAL_ERROR else result)
        return answers

    async def _forget(self, text: bytes, known: Statements) -> None:
        if name := known.forget(text):
            await self._deallocate(name)

    async def _drop_surplus(self, known: Statements) -> None:
        for name in known.drop_surplus():
            await self._deallocate(name)

    async def _deallocate(self, name: bytes) -> None:
        with contextlib.suppress(psycopg.errors.InvalidSqlStatementName):
            await self.run(b"deallocate " + name)

    async def result(self, started: asyncio.Future[list[PGresult]]) -> PGresult:
        """The result of a statement that was sent.  Raises psycopg.Error."""
        return checked((await started)[-1])

    def _sent(self) -> asyncio.Future[list[PGresult]]:
        """A future for the results of the statements that were just sent."""
        self._received = []
        waiter: asyncio.Future[list[PGresult]] = self._loop.create_future()
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
            if result is not None:
                self._received.append(result)
            if self._is_pipeline and result is not None and result.status == ExecStatus.PIPELINE_SYNC:
                self._is_pipeline = False
                self._pq.exit_pipeline_mode()
                self._settle()
                return
            if result is None and not self._is_pipeline:
                self._settle()
                return

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
        if self._received:
            waiter.set_result(self._received)
        else:
            waiter.set_exception(error or psycopg.OperationalError("the server sent no result"))
            waiter.exception()  # seen, even if no caller takes it any more

    async def cancel(self) -> None:
        """Have the backend cancel a running statement, and wait until it is ready; close the connection otherwise."""
        if self._waiter is None:  # it has ended meanwhile
            return
        ended: asyncio.Future[list[PGresult]] = self._loop.create_future()
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


async def run_together(session: Session, calls: Sequence[Call], known: Statements) -> list[PGresult]:
    """As DirectConnection.run_together, on a connection that is in use for more."""
    direct = DirectConnection(session)
    try:
        return await direct.run_together(calls, known)
    finally:
        try:
            await direct.cancel()
        finally:
            direct.detach()


def checked(result: PGresult) -> PGresult:
    """The result.  Raises psycopg.Error if it is one of a failed statement."""
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise error_of(result)
    return result


def error_of(result: PGresult) -> psycopg.Error:
    return psycopg.errors.error_from_result(result)


def row_of(result: PGresult) -> Row:
    """The columns of the one row of a result."""
    return [result.get_value(0, column) for column in range(result.nfields)]


def encoded(value: Value | None) -> bytes | None:
    """A value as PostgreSQL reads it: text, or an array of text.  Raises psycopg.DataError."""
    if value is None:
        return None
    if not isinstance(value, str):
        escaped = (each.replace("\\", "\\\\").replace('"', '\\"') for each in value)
        value = "{" + ",".join(f'"{each}"' for each in escaped) + "}"
    if "\0" in value:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return value.encode()
