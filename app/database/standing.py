"""Small reads: statements that give one row, run with libpq itself on connections that stay open for them.

A read by key takes libpq 30 us; psycopg's cursor and pool would add 110.  So a small read is two steps here: send the statement
(`StandingConnection.read`), and take its result when the event loop finds the socket readable (`StandingConnection._on_readable`).
Everything else is psycopg's: it opens the connections and pools them.  `StandingConnections` borrows them from a pool, and gives
them back when the pool needs them or LEASE seconds have passed, so that the pool can replace old ones.

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
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from itertools import count
from typing import Any, Protocol

import psycopg
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg_pool import PoolTimeout

from app.database.session import Row, Session, Value
from app.tasks import cancel_and_wait

log = logging.getLogger("bds.db")

FRESH = 0.005  # seconds after an answer for which a connection is not asked whether it still lives
LEASE = 600.0  # seconds after which a connection goes back to its pool
CANCEL_TIMEOUT = 5.0  # seconds that a backend has to cancel a query; then its connection is closed
PREPARED = 100  # statements that a session remembers, as many as psycopg
NAME_COMPANY = b"select set_config('bds.company', $1, false)"

Shared = tuple[str, bytes, tuple[Value, ...]]  # company, statement, values

_numbers = count(1)


class Lender(Protocol):
    """The pool that lends connections.  patience: seconds that a read waits for one; is_short: whether a use of the pool waits."""

    limit: int

    @property
    def patience(self) -> float: ...

    @property
    def is_short(self) -> bool: ...

    async def lend(self) -> Session: ...

    async def put(self, connection: Session) -> None: ...


class StandingConnection:
    """A borrowed connection, which runs one read at a time.  has_expired: whether the pool gets it back after its read."""

    def __init__(self, session: Session, owner: StandingConnections) -> None:
        self.session = session
        self.has_expired = False
        self._owner = owner
        self._pq = session.pgconn
        self._socket = self._pq.socket
        self._loop = asyncio.get_running_loop()
        self._received: PGresult | None = None  # the result of the running statement
        self._waiter: asyncio.Future[PGresult] | None = None  # for that result; None while no statement runs
        self._answered = 0.0  # when the server last answered, on the monotonic clock
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._loop.add_reader(self._socket, self._on_readable)
        self._lease = self._loop.call_later(LEASE, owner.expire, self)

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
            self._owner.dismiss(self)  # the server has ended it, or tells of a changed setting
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


class StandingConnections:
    """The connections that a pool has lent for small reads, as many as are in use at once."""

    def __init__(self, pool: Lender) -> None:
        self._pool = pool
        self._all: set[StandingConnection] = set()
        self._idle: list[StandingConnection] = []  # the last one was used last
        self._waiting: deque[asyncio.Future[StandingConnection]] = deque()
        self._borrowing: asyncio.Task[None] | None = None
        self._shared: dict[Shared, list[asyncio.Future[Row]]] = {}  # what waits for the next run of a statement
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def idle(self) -> int:
        """How many connections run nothing."""
        return len(self._idle)

    @property
    def waiting(self) -> int:
        """How many reads wait for a connection."""
        return len(self._waiting)

    async def read(self, company: str, text: bytes, values: Iterable[Value], *, prepare: bool = True) -> Row:
        """Run a statement that gives one row, on behalf of a company.

        prepare: False for a statement that is planned for each execution.  Raises psycopg.Error, PoolTimeout.
        """
        connection = self._take(company) or await self._wait()
        try:
            return await connection.read(company, text, values, prepare=prepare)
        finally:
            if connection.is_running:
                self._start(self._cancel(connection))
            else:
                self._put(connection)

    async def share(self, company: str, text: bytes, values: Iterable[Value]) -> Row:
        """As `read`, for a statement that many requests run at once: a run that starts after they have come answers all of them."""
        key: Shared = (company, text, tuple(values))
        waiter: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        if (waiting := self._shared.get(key)) is not None:
            waiting.append(waiter)
        else:
            self._shared[key] = [waiter]
            self._start(self._run_shared(key))
        return await waiter

    async def _run_shared(self, key: Shared) -> None:
        while waiting := [each for each in self._shared[key] if not each.done()]:
            self._shared[key] = []  # those that come from now on wait for the next run
            try:
                row = await self.read(*key)
            except Exception as error:
                for each in waiting:
                    if not each.done():
                        each.set_exception(error)
            else:
                for each in waiting:
                    if not each.done():
                        each.set_result(row)
        del self._shared[key]

    def give_back(self) -> None:
        """Give an idle connection back to the pool, which needs one."""
        if self._idle:
            self.dismiss(self._idle[0])

    def give_all_back(self) -> None:
        """Give all connections back to the pool, those in use after their reads."""
        for connection in list(self._all):
            self.expire(connection)

    def expire(self, connection: StandingConnection) -> None:
        """Give a connection back to the pool, after its read if one runs."""
        connection.has_expired = True
        self.dismiss(connection)

    def dismiss(self, connection: StandingConnection) -> None:
        """Give a connection back to the pool if it is idle; the pool replaces it if the server has ended it."""
        if connection in self._idle:
            self._idle.remove(connection)
            self._return(connection)

    async def close(self, error: Exception) -> None:
        """Give all connections back, and refuse the reads that wait."""
        if self._borrowing is not None:
            await cancel_and_wait(self._borrowing)
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(error)
        self.give_all_back()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _take(self, company: str) -> StandingConnection | None:
        """An idle connection, one that has named the company if there is one."""
        while self._idle:
            for position in range(len(self._idle) - 1, -1, -1):
                if self._idle[position].session.company == company:
                    break
            else:
                position = 0
            connection = self._idle.pop(position)
            if connection.is_silent:
                return connection
            self._return(connection)
        return None

    async def _wait(self) -> StandingConnection:
        """The next connection that becomes free.  Raises PoolTimeout, or what the pool raises while it is closed."""
        waiter: asyncio.Future[StandingConnection] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._borrow_for_waiting()
        try:
            async with asyncio.timeout(self._pool.patience):
                return await waiter
        except (TimeoutError, asyncio.CancelledError) as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:  # it came at the same moment
                self._put(waiter.result())
            if isinstance(error, TimeoutError):
                raise PoolTimeout("no connection became free in time") from None
            raise

    def _borrow_for_waiting(self) -> None:
        """See that connections are borrowed while reads wait."""
        if self._is_wanted() and len(self._all) < self._pool.limit and (self._borrowing is None or self._borrowing.done()):
            self._borrowing = asyncio.create_task(self._borrow())

    async def _borrow(self) -> None:
        try:
            while self._is_wanted() and len(self._all) < self._pool.limit:
                try:
                    session = await self._pool.lend()
                except PoolTimeout:
                    continue
                connection = StandingConnection(session, self)
                self._all.add(connection)
                self._put(connection)
        except psycopg.Error as error:
            while self._waiting:
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_exception(error)

    def _is_wanted(self) -> bool:
        """Whether a read waits.  Forgets those that no longer do."""
        while self._waiting and self._waiting[0].done():
            self._waiting.popleft()
        return bool(self._waiting)

    def _put(self, connection: StandingConnection) -> None:
        """A connection is free: the pool gets it if it is due or needed there, else the read that waits longest."""
        if connection.is_due or self._pool.is_short:
            self._return(connection)
        elif self._is_wanted():
            self._waiting.popleft().set_result(connection)
        else:
            self._idle.append(connection)

    def _return(self, connection: StandingConnection) -> None:
        """Give a connection back to the pool."""
        connection.detach()
        self._all.discard(connection)
        self._start(self._pool.put(connection.session))
        self._borrow_for_waiting()

    async def _cancel(self, connection: StandingConnection) -> None:
        await connection.cancel()
        self._put(connection)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in a task, which goes on when the client leaves."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


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
