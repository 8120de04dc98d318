"""A standing connection: runs small reads, statements that give one row.

A read by key takes libpq 30 us; psycopg's cursor and pool would add 110.  So a small read is two steps here: send the statement
(`StandingConnection.read`), and take its result when the event loop finds the socket readable (direct.py).  Everything else is
psycopg's: it opens the connections and pools them; lending.py borrows them from a pool.

What happens when
    the client leaves     the backend is told to cancel its query; when it is ready, the connection serves again
    a statement fails     the read raises what psycopg would raise; the connection serves again
    the backend ends      the read raises OperationalError; an idle connection is replaced before it is used
    the database is down  reads wait for a connection as long as for any of the pool, then raise PoolTimeout
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from psycopg.pq import TransactionStatus

from app.database.pool.direct import DirectConnection, encoded, row_of
from app.database.pool.session import Row, Session, Value

LEASE = 600.0  # seconds after which a connection goes back to its pool
FRESH = 0.005  # seconds after an answer for which a connection is not asked whether it still lives
NAME_COMPANY = b"select set_config('bds.company', $1, false)"

OnConnection = Callable[["StandingConnection"], None]


class StandingConnection(DirectConnection):
    """A borrowed connection, which runs one read at a time.  has_expired: whether the pool gets it back after its read."""

    def __init__(self, session: Session, on_unasked: OnConnection, on_expiry: OnConnection) -> None:
        super().__init__(session)
        self.has_expired = False
        self._dismiss = on_unasked  # called when the server sends something while no statement runs
        self._lease = self._loop.call_later(LEASE, on_expiry, self)

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
            await self.run(NAME_COMPANY, [encoded(company)])
            session.company = company
        if not prepare:
            return row_of(await self.run(text, [encoded(value) for value in values]))
        return await self.run_prepared(text, values, session.statements)

    def _on_unasked(self) -> None:
        self._dismiss(self)

    def detach(self) -> None:
        self._lease.cancel()
        super().detach()
