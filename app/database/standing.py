"""A standing connection: runs small reads, statements that give one row, with libpq itself.

A read by key takes libpq 30 us; psycopg's cursor and pool would add 110.  So a small read is two steps here: send the statement
(`StandingConnection.read`), and take its result when the event loop finds the socket readable (`StandingConnection._on_readable`).
Everything else is psycopg's: it opens the connections and pools them; app/database/lending.py borrows them from a pool.

What happens when
    the client leaves     the backend is told to cancel its query; when it is ready, the connection serves again
    a statement fails     the read raises what psycopg would raise; the connection serves again
    the backend ends      the read raises OperationalError; an idle connection is replaced before it is used
    the database is down  reads wait for a connection as long as for any of the pool, then raise PoolTimeout
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult

from app.database.session import Row, Session, Value

log = logging.getLogger("bds.db")

LEASE = 600.0  # seconds after which a connection goes back to its pool
FRESH = 0.005  # seconds after an answer for which a connection is not asked whether it still lives
CANCEL_TIMEOUT = 5.0  # seconds that a backend has to cancel a query; then its connection is closed
PREPARED = 100  # statements that a session remembers, as many as psycopg
NAME_COMPANY = b"select set_config('bds.company', $1, false)"

OnConnection = Callable[["StandingConnection"], None]

_numbers = count(1)


class StandingConnection:
    """A borrowed connection, which runs one read at a time.  has_expired: whether the pool gets it back after its read."""

    def __init__(self, session: Session, on_unasked: OnConnection, on_expiry: OnConnection) -> None:
        self.session = session
        self.has_expired = False
        self._on_unasked = on_unasked  # called when the server sends something while no statement runs
        self._pq = session.pgconn
        self._socket = self._pq.socket
        self._loop = asyncio.get_running_loop()
        self._received: PGresult | None = None  # the result of the running statement
        self._waiter: asyncio.Future[PGresult] | None = None  # for that result; None while no statement runs
        self._answered = 0.0  # when the server last answered, on the monotonic clock
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._loop.add_reader(self._socket, self._on_readable)
        self._lease = self._loop.call_later(LEASE, on_expiry, self)

    @property
    def is_running(self) -> bool:
        """Whether a statement still runs, because its read was cancelled."""
        return self._waiter is not None

    @property
    def is_due(self) -> bool:
        """Whether the pool should have it back: it has expired or is broken."""
        return self.has_expired or self._pq.transaction_status != TransactionStatus.IDLE

    @property
    def is_silent(self) -> bool:
        """Whether the server has sent nothing unasked, as it does when it ends an idle connection.

        The event loop notices that, too, but maybe after a request that came with it.
        """
        return time.monotonic() - self._answered < FRESH or not self._poll.poll(0)

    async def read(self, company: str, text: bytes, values: Iterable[Value], *, prepare: bool) -> Row:
        """Run a statement that gives one row, on behalf of a company.  Raises psycopg.Error."""
        session = self.session
        if session.company != company:
            session.company = None  # until the server has confirmed
            # a statement of its own: a view in the same one could read the old setting first
            await self._run(NAME_COMPANY, [_parameter(company)])
            session.company = company
        parameters = [_parameter(value) for value in values]
        name = (session.statements.get(text) or await self._prepare(text)) if prepare else b""
        if not name:
            return _columns(await self._run(text, parameters))
        session.statements.move_to_end(text)
        try:
            self._pq.send_query_prepared(name, parameters)
            return _columns(await self._result())
        except (psycopg.errors.FeatureNotSupported, psycopg.errors.InvalidSqlStatementName):
            # the type of a column of the result has changed; or psycopg has dropped all statements, as it does after a rollback
            await self._forget(text)
            return _columns(await self._run(text, parameters))

    async def _prepare(self, text: bytes) -> bytes:
        """Prepare a statement at its second use.  Returns its name, which is empty at the first use."""
        known = self.session.statements
        if text in known:
            name = b"bds_%d" % next(_numbers)
            self._pq.send_prepare(name, text)
            await self._result()
            known[text] = name
            return name
        if len(known) >= PREPARED:
            await self._forget(next(iter(known)))
        known[text] = b""
        return b""

    async def _forget(self, text: bytes) -> None:
        if name := self.session.statements.pop(text):
            with contextlib.suppress(psycopg.errors.InvalidSqlStatementName):
                await self._run(b"deallocate " + name, [])

    async def _run(self, text: bytes, parameters: Sequence[bytes]) -> PGresult:
        self._pq.send_query_params(text, parameters)
        return await self._result()

    async def _result(self) -> PGresult:
        """The result of the statement that was just sent."""
        self._received = None
        waiter: asyncio.Future[PGresult] = self._loop.create_future()
        self._waiter = waiter
        if self._pq.flush():
            self._loop.add_writer(self._socket, self._on_writable)
        result = await waiter
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise psycopg.errors.error_from_result(result)
        return result

    def _on_writable(self) -> None:
        """Send the rest of a long statement."""
        with contextlib.suppress(psycopg.OperationalError):  # `_on_readable` meets the error, too
            if self._pq.flush():
                return
        self._loop.remove_writer(self._socket)

    def _on_readable(self) -> None:
        """Take what the server has sent."""
        if self._waiter is None:
            self._on_unasked(self)  # the server has ended it, or tells of a changed setting
            return
        try:
            self._pq.consume_input()
            while not self._pq.is_busy():
                result = self._pq.get_result()
                if result is None:
                    self._settle(psycopg.OperationalError("the server sent no result"))
                    return
                self._received = result
        except psycopg.OperationalError as error:
            self.close()
            self._settle(error)

    def _settle(self, error: psycopg.OperationalError) -> None:
        """End the wait for the result; with an error if the server has sent none."""
        self._answered = time.monotonic()
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():  # cancelled
            return
        if self._received is not None:
            waiter.set_result(self._received)
        else:
            waiter.set_exception(error)

    async def cancel(self) -> None:
        """Have the backend cancel the statement of a cancelled read, and wait until it is ready; close the connection otherwise."""
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

    def close(self) -> None:
        self.detach()
        self._pq.finish()

    def detach(self) -> None:
        """Stop watching the socket."""
        self._lease.cancel()
        if self._socket >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket = -1


def _columns(result: PGresult) -> Row:
    return [result.get_value(0, column) for column in range(result.nfields)]


def _parameter(value: Value) -> bytes:
    """A value as PostgreSQL reads it: text, or an array of text.  Raises psycopg.DataError."""
    if not isinstance(value, str):
        escaped = (each.replace("\\", "\\\\").replace('"', '\\"') for each in value)
        value = "{" + ",".join(f'"{each}"' for each in escaped) + "}"
    if "\0" in value:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return value.encode()
