"""The connections that a pool has lent for small reads: which read gets which, and when they go back.

They go back when the pool has none for another use, when the server has ended them, or when their lease has ended, so that the pool
can replace old ones.  Reads that find none idle wait in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

import psycopg
from psycopg_pool import PoolTimeout

from app.database.pool.session import Row, Session, Value
from app.database.pool.standing import StandingConnection
from app.tasks import cancel_and_wait

LATE_CHECK = 1.0  # seconds between two looks at how long reads have waited

Shared = tuple[str, bytes, tuple[Value, ...]]  # company, statement, values


class Lender(Protocol):
    """The pool that lends connections.  patience: seconds that a read waits for one; is_short: whether a use of the pool waits."""

    limit: int

    @property
    def patience(self) -> float: ...

    @property
    def is_short(self) -> bool: ...

    async def lend(self) -> Session: ...

    async def put(self, connection: Session) -> None: ...


class StandingConnections:
    """The connections that a pool has lent for small reads, as many as are in use at once."""

    def __init__(self, pool: Lender) -> None:
        self._pool = pool
        self._all: set[StandingConnection] = set()
        self._idle: list[StandingConnection] = []  # the last one was used last
        self._waiting: deque[tuple[asyncio.Future[StandingConnection], float]] = deque()  # each with the loop's time when it began
        self._looking: asyncio.TimerHandle | None = None  # the next look at how long they have waited
        self._borrowing: asyncio.Task[None] | None = None
        self._shared: dict[Shared, list[asyncio.Future[Row]]] = {}  # what waits for the next run of a statement
        self._tasks: set[asyncio.Task[None]] = set()
        self._counts = dict.fromkeys(("requests_num", "requests_queued", "requests_wait_ms", "requests_errors"), 0)

    def stats(self) -> dict[str, int]:
        """Statistics under the names that psycopg's pool has for them."""
        return self._counts | {"pool_available": len(self._idle), "requests_waiting": len(self._waiting)}

    async def read(self, company: str, text: bytes, values: Iterable[Value], *, prepare: bool = True) -> Row:
        """Run a statement that gives one row, on behalf of a company.

        prepare: False for a statement that is planned for each execution.  Raises psycopg.Error, PoolTimeout.
        """
        self._counts["requests_num"] += 1
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

    def hang_up(self) -> None:
        """Break all connections, so that the reads that run there fail at once."""
        for connection in list(self._all):
            connection.session.hang_up()
            self.expire(connection)

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
        self._refuse(error)
        if self._looking is not None:
            self._looking.cancel()
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
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[StandingConnection] = loop.create_future()
        started = loop.time()
        self._waiting.append((waiter, started))
        self._counts["requests_queued"] += 1
        self._borrow_for_waiting()
        if self._looking is None:  # one timer for all: one for each read would be a tenth of its work
            self._refuse_late()
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:  # it came at the same moment
                self._put(waiter.result())
            raise
        finally:
            self._counts["requests_wait_ms"] += round((loop.time() - started) * 1e3)

    def _refuse_late(self) -> None:
        """Refuse the reads that have waited as long as they may; look again while others wait."""
        loop, patience = asyncio.get_running_loop(), self._pool.patience
        while self._is_wanted() and loop.time() - self._waiting[0][1] >= patience:
            self._counts["requests_errors"] += 1
            self._waiting.popleft()[0].set_exception(PoolTimeout("no connection became free in time"))
        self._looking = loop.call_later(min(LATE_CHECK, patience), self._refuse_late) if self._waiting else None

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
                connection = StandingConnection(session, on_unasked=self.dismiss, on_expiry=self.expire)
                self._all.add(connection)
                self._put(connection)
        except psycopg.Error as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        """Refuse all reads that wait."""
        while self._is_wanted():
            self._waiting.popleft()[0].set_exception(error)

    def _is_wanted(self) -> bool:
        """Whether a read waits.  Forgets those that no longer do."""
        while self._waiting and self._waiting[0][0].done():
            self._waiting.popleft()
        return bool(self._waiting)

    def _put(self, connection: StandingConnection) -> None:
        """A connection is free: the pool gets it if it is due or needed there, else the read that waits longest."""
        if connection.is_due or self._pool.is_short:
            self._return(connection)
        elif self._is_wanted():
            self._waiting.popleft()[0].set_result(connection)
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
