"""Pools of connections, each of which acts as one role.

A pooled session keeps its role and its settings, and remembers the company that it has named, which saves a round trip.  Behind a
transaction pooler nothing is remembered: every use of a connection is a transaction that sets for itself, first of all and in one
round trip, what must hold in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import types
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool

from app.config import Config
from app.database import pooler

WAIT, WAIT_AWAY = 30.0, 5.0  # seconds that a request waits for a connection; while the database is away
GIVE_UP = 1.0  # seconds after which a pool leaves a database that is away alone, until it is revived
# a database that is lost without a word, and its connections, are given up in seconds and not in hours
PATIENCE = {
    "connect_timeout": pooler.REACHED,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
BEGIN: LiteralString = "begin"
READ: LiteralString = "begin read only"
SNAPSHOT: LiteralString = "begin isolation level repeatable read, read only"


def parameters(url: str, name: str = "bds") -> dict[str, Any]:
    """What a connection is opened with beside what its string says."""
    given = conninfo_to_dict(url)
    return {key: value for key, value in {"application_name": name, **PATIENCE}.items() if key not in given}


class Session(psycopg.AsyncConnection[Any]):
    """A pooled connection that knows which company it has named."""

    company: str | None = None
    _raw: psycopg.AsyncRawCursor[Any] | None = None

    @property
    def raw(self) -> psycopg.AsyncRawCursor[Any]:
        """A cursor for statements with $1, $2 ..., the same each time: making one takes a tenth of a small read."""
        if self._raw is None:
            self._raw = psycopg.AsyncRawCursor(self)
        return self._raw


async def check_if_told(connection: psycopg.AsyncConnection[Any]) -> None:
    """Raises psycopg.OperationalError if the server has ended an idle connection: it has been sent something, and asked nothing."""
    told = select.poll()
    told.register(connection.fileno(), select.POLLIN)
    if told.poll(0):
        await AsyncConnectionPool.check_connection(connection)


class Pool:
    """Connections in autocommit mode that act as `role`; behind a transaction pooler each use is a transaction.

    is_away: whether the database was away when it was asked last; then nobody waits long.
    """

    def __init__(self, config: Config, url: str, role: LiteralString, size: int) -> None:
        self.role = role
        self.limit = size
        self.remembers = config.pooler != "transaction"  # whether what a session has set is still set when it is used again
        self.is_away = False
        self._config = config
        self._settings = {"role": role, "timezone": "UTC", "jit": "off"}
        if role == "bds_reader":
            self._settings["statement_timeout"] = f"{config.statement_timeout}s"
        self._pool = AsyncConnectionPool(
            url,
            connection_class=Session,
            min_size=1,
            max_size=size,
            open=False,
            name=role,
            reconnect_timeout=GIVE_UP,
            configure=self._configure,
            kwargs={"autocommit": True, "prepare_threshold": 2 if config.prepares else None, **parameters(url)},
            check=AsyncConnectionPool.check_connection if role == "bds_service" else check_if_told,
        )

    async def _configure(self, connection: Session) -> None:
        if self._config.pooler == "none" and not pooler.is_direct(connection, await pooler.process_of(connection)):
            raise psycopg.OperationalError(pooler.not_direct("the connection string"))
        if self.remembers:
            settings = dict(self._settings)
            if self.role == "bds_reader":
                settings["default_transaction_read_only"] = "on"
            for name, value in settings.items():
                await connection.execute("select set_config(%s, %s, false)", (name, value), prepare=False)

    async def open(self, *, wait: bool = False) -> None:
        """Begin.  wait: until there is a connection; raises PoolTimeout."""
        await self._pool.open(wait=wait, timeout=WAIT)

    async def close(self) -> None:
        await self._pool.close()

    async def revive(self) -> None:
        """Throw away what a database has left behind that was away, and serve whoever has waited for it."""
        if not self._pool.closed:
            await self._pool.drain()
            await self._pool.putconn(await self._pool.getconn(WAIT_AWAY))  # a pool that has given up begins again when asked

    def stats(self) -> dict[str, int]:
        """What psycopg counts; nothing while the pool is not open."""
        return {} if self._pool.closed else self._pool.get_stats()

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncIterator[Session]:
        """A connection.  Raises PoolTimeout if none becomes free."""
        connection = await self._get()
        try:
            yield connection
        finally:
            await self._put(connection)

    async def _get(self) -> Session:
        return await self._pool.getconn(WAIT_AWAY if self.is_away else WAIT)

    async def _put(self, connection: Session) -> None:
        """Give a connection back, even if whoever had it is cancelled meanwhile.

        A handler is when its client leaves with the last byte; the connection were lost, and the request that it is just handed to.
        """
        await _to_the_end(self._pool.putconn(connection))

    @contextlib.asynccontextmanager
    async def transaction(self, begin: LiteralString = BEGIN, **settings: str) -> AsyncIterator[Session]:
        """A transaction behind a pooler, with everything that must be set in it."""
        calls = (sql.SQL("set_config({}, {}, true)").format(*each) for each in (self._settings | settings).items())
        async with self.take() as connection:
            # without parameters, so that both go together: role and company are set before whatever comes next is read
            await connection.execute(sql.SQL("{}; select {}").format(sql.SQL(begin), sql.SQL(", ").join(calls)), prepare=False)
            try:
                yield connection
            except BaseException:
                if connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR):
                    await connection.execute("rollback", prepare=False)
                raise
            await connection.execute("commit", prepare=False)

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[Session]:
        """A connection for a few statements, bound to no company."""
        async with self.take() if self.remembers else self.transaction() as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def session(self, company: str) -> AsyncIterator[Session]:
        """A connection for a few statements, bound to `company`."""
        if not self.remembers:
            async with self.transaction(READ, **{"bds.company": company}) as connection:
                yield connection
            return
        connection = await self._get()  # and not by take(): each block round another takes its time
        try:
            if connection.company != company:
                connection.company = None  # until the server has said yes
                await connection.execute("select set_config('bds.company', %s, false)", (company,))
                connection.company = company
            yield connection
        finally:
            await self._put(connection)

    @contextlib.asynccontextmanager
    async def snapshot(self, company: str) -> AsyncIterator[Session]:
        """The same in a transaction with one snapshot for all of its statements."""
        if not self.remembers:
            async with self.transaction(SNAPSHOT, **{"bds.company": company}) as connection:
                yield connection
            return
        async with self.session(company) as connection:
            await connection.execute(SNAPSHOT)
            try:
                yield connection
            finally:
                if not connection.closed:
                    await connection.execute("commit")  # on a rollback psycopg forgets all that the connection has prepared


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await work that goes on even if whoever awaits it is cancelled.

    Mostly it has nothing to wait for, and is done at once; a task for it would cost a thirtieth of a small read.
    """
    try:
        waits_for = work.send(None)
    except StopIteration:
        return
    await asyncio.shield(_resume(work, waits_for))


@types.coroutine
def _resume(work: Coroutine[Any, Any, None], waits_for: Any) -> Generator[Any, Any, None]:
    """The rest of work that has begun, and waits for a future."""
    yield waits_for
    yield from work
