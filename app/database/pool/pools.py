"""Connection pools; each connection acts as one role.

A pooled session keeps its role and its settings, and remembers the company that it has named, which saves a round trip.  Behind a
transaction pooler a session keeps nothing: every use is a transaction that first sets the role, the settings and the company, in
one round trip.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import types
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextvars import ContextVar
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.types.string import TextLoader
from psycopg_pool import AsyncConnectionPool, PoolClosed

from app.config import Config
from app.database.pool import pooler
from app.database.pool.lending import StandingConnections
from app.database.pool.session import Row, Session, Value, read_json_exactly, read_row_on

MOMENTARY = ("pool_min", "pool_max", "pool_size", "pool_available", "requests_waiting")  # of psycopg's statistics: no counts
WAIT, WAIT_DOWN = 30.0, 5.0  # seconds that a request waits for a connection; the second while the database is down
GIVE_UP = 1.0  # seconds after which a pool stops reconnecting, until `restore`
# connections to a database that vanished are given up in seconds, not in hours
TIMEOUTS = {
    "connect_timeout": pooler.CONNECT_TIMEOUT,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
# ends a transaction that was forgotten, unless the database or the login has a limit of its own
IDLE_TIMEOUT: LiteralString = """
    set_config(
        'idle_in_transaction_session_timeout',
        coalesce(nullif(current_setting('idle_in_transaction_session_timeout'), '0'), '5min'), {}
    )
"""
# of every session: how values are written, whatever the database or the login has set; and no statement is compiled
SETTINGS = {
    **{"datestyle": "ISO, MDY", "timezone": "UTC", "intervalstyle": "iso_8601", "bytea_output": "hex", "extra_float_digits": "1"},
    "row_security": "on",  # off: every read of a table with policies fails
    "jit": "off",
    "standard_conforming_strings": "on",  # as SQL bodies of functions are written
}
# of the current task: whether what it reads can be read elsewhere if the server is lost
REPEATABLE: ContextVar[Callable[[], bool]] = ContextVar("repeatable", default=lambda: False)
CLOSE_TIMEOUT = 0.1  # seconds for the tasks of a pool whose server is lost, before the uses that wait are refused
BEGIN: LiteralString = "begin"
READ_ONLY: LiteralString = "begin read only"
SNAPSHOT: LiteralString = "begin isolation level repeatable read, read only"


def parameters(url: str, name: str = "bds") -> dict[str, Any]:
    """Connection parameters that `url` does not set itself, and the encoding, whatever it, the database or the login has set."""
    given = conninfo_to_dict(url)
    unset = {key: value for key, value in {"application_name": name, **TIMEOUTS}.items() if key not in given}
    return {"client_encoding": "UTF8", **unset}


def configure(connection: psycopg.Connection[Any]) -> None:
    """Make the settings of a synchronous session."""
    read_json_exactly(connection)
    for type in ("interval", "time"):  # the texts of SETTINGS: psycopg reads no P1D, and Python has no 24:00
        connection.adapters.register_loader(type, TextLoader)
    calls = [sql.SQL("set_config({}, {}, false)").format(*each) for each in SETTINGS.items()]
    connection.execute(sql.SQL("select ") + sql.SQL(", ").join(calls))


def is_readable(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server may have ended an idle connection: only then has it sent something unasked."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


async def check_if_readable(connection: psycopg.AsyncConnection[Any]) -> None:
    """Raise psycopg.OperationalError if the server has ended an idle connection."""
    if is_readable(connection):
        await AsyncConnectionPool.check_connection(connection)


class Pool:
    """Connections in autocommit mode that act as `role`; behind a transaction pooler each use is a transaction.

    name: in metrics.  is_down: whether the database did not answer the last time; requests then wait WAIT_DOWN only.
    is_required: false for a database that another one stands in for: while it is down, uses get PoolClosed at once, those that wait
    already, too; small reads that run there and uses that are REPEATABLE lose their connections.
    """

    def __init__(
        self, config: Config, url: str, role: LiteralString, size: int, *, name: str | None = None, is_required: bool = True
    ) -> None:
        self.role = role
        self.name = name or role
        self.limit = size
        self.keeps_sessions = config.pooler != "transaction"  # whether a session keeps its settings between two uses
        self.is_down = False
        self._config, self._url, self._is_required = config, url, is_required
        self._settings = {"role": role, **SETTINGS}
        if role == "bds_reader":
            self._settings["statement_timeout"] = f"{config.statement_timeout}s"
        self._pool = self._closed_pool()
        self._former: Counter[str] = Counter()  # the counts of pools that were closed when the database did not answer
        self._standing = StandingConnections(self)
        self._seeking = 0  # uses that wait for a connection
        self._in_use: dict[Session, Callable[[], bool]] = {}  # each with whether its use can be repeated elsewhere
        self._closing: set[asyncio.Task[None]] = set()

    def _closed_pool(self) -> AsyncConnectionPool[Session]:
        return AsyncConnectionPool(
            self._url,
            connection_class=Session,
            min_size=1,
            max_size=self.limit,
            open=False,
            name=self.name,
            reconnect_timeout=GIVE_UP,
            configure=self._configure,
            kwargs={"autocommit": True, "prepare_threshold": 2 if self._config.prepares else None, **parameters(self._url)},
            check=AsyncConnectionPool.check_connection if self.role == "bds_service" else check_if_readable,
        )

    async def _configure(self, connection: Session) -> None:
        if self._config.pooler == "none" and not pooler.is_direct(connection, await pooler.server_process(connection)):
            raise psycopg.OperationalError(pooler.unnamed_pooler("the connection string"))
        if self.keeps_sessions:
            settings = dict(self._settings)
            if self.role == "bds_reader":
                settings["default_transaction_read_only"] = "on"
            for name, value in settings.items():
                await connection.execute("select set_config(%s, %s, false)", (name, value), prepare=False)
            await connection.execute(sql.SQL("select " + IDLE_TIMEOUT).format(False), prepare=False)

    async def open(self, *, wait: bool = False) -> None:
        """Open the pool; with `wait`, wait for a connection.  Raises PoolTimeout."""
        await self._pool.open(wait=wait, timeout=WAIT)

    async def close(self) -> None:
        await self._standing.close(PoolClosed(f"the pool {self.name} is closed"))
        await self._pool.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    def note_state(self, *, is_up: bool) -> None:
        """Note whether the database answers."""
        self.is_down = not is_up
        if not (is_up or self._is_required or self._pool.closed):
            for connection, is_repeatable in self._in_use.items():
                if is_repeatable():
                    connection.hang_up()
            self._standing.hang_up()
            self._former.update({name: n for name, n in self._pool.get_stats().items() if name not in MOMENTARY})
            closing, self._pool = asyncio.create_task(self._pool.close(CLOSE_TIMEOUT)), self._closed_pool()
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def restore(self) -> None:
        """After an outage: drop all pooled connections, then serve the requests that wait."""
        if not self._is_required:
            await self._pool.open()
        elif not self._pool.closed:
            await self._pool.drain()
            self._standing.give_all_back()
            await self._pool.putconn(await self._pool.getconn(WAIT_DOWN))  # a request makes a pool that gave up reconnect

    def stats(self) -> Counter[str]:
        """Statistics as psycopg counts them, with those of small reads and of pools that this one has had before."""
        stats = Counter({} if self._pool.closed else self._pool.get_stats())
        stats.update(self._standing.stats())
        stats.update(self._former)
        return stats

    @property
    def patience(self) -> float:
        """Seconds that a request waits for a connection."""
        return WAIT_DOWN if self.is_down else WAIT

    @property
    def is_short(self) -> bool:
        """Whether a use waits for a connection that the pool does not have."""
        return self._seeking > 0

    async def lend(self) -> Session:
        """A connection, until `put`.  Raises PoolTimeout if none becomes free, PoolClosed."""
        pool = self._pool
        connection = await pool.getconn(self.patience)
        connection.home = pool
        return connection

    async def put(self, connection: Session) -> None:
        """Return a connection to the pool from which it came."""
        await connection.home.putconn(connection)

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncIterator[Session]:
        """A connection.  Raises PoolTimeout if none becomes free."""
        connection = await self._get()
        try:
            yield connection
        finally:
            await self._put(connection)

    async def _get(self) -> Session:
        """A connection, if need be one that stands idle for small reads."""
        stats = self._pool.get_stats()
        if not stats["pool_available"] and stats["pool_size"] >= self.limit:
            self._standing.give_back()
        self._seeking += 1
        try:
            connection = await self.lend()
        finally:
            self._seeking -= 1
        self._in_use[connection] = REPEATABLE.get()
        return connection

    async def _put(self, connection: Session) -> None:
        """Return a connection, even if the current task is cancelled meanwhile.

        A handler is cancelled when its client leaves with the last byte; the connection would be lost, and with it the waiting
        request that is about to get it.
        """
        del self._in_use[connection]
        await _uncancelled(self.put(connection))

    async def read(self, company: str, text: bytes, values: Sequence[Value], *, prepare: bool = True, share: bool = False) -> Row:
        """Run a statement that gives one row, on behalf of a company.  Raises psycopg.Error.

        prepare: False for a statement that is planned for each execution; share: whether a run may answer several requests.
        """
        if self.keeps_sessions:
            if share and self._config.prepares:
                return await self._standing.share(company, text, values)
            return await self._standing.read(company, text, values, prepare=prepare and self._config.prepares)
        async with self.session(company) as connection:
            return await read_row_on(connection, text, values, prepare=prepare)

    @contextlib.asynccontextmanager
    async def transaction(self, begin: LiteralString = BEGIN, **settings: str) -> AsyncIterator[Session]:
        """A transaction behind a transaction pooler, with role and settings set in it."""
        calls = [sql.SQL("set_config({}, {}, true)").format(*each) for each in (self._settings | settings).items()]
        calls.append(sql.SQL(IDLE_TIMEOUT).format(True))
        async with self.take() as connection:
            # without parameters, so that both statements go in one round trip, before the first read
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
        async with self.take() if self.keeps_sessions else self.transaction() as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def session(self, company: str) -> AsyncIterator[Session]:
        """A connection for a few statements, bound to `company`."""
        if not self.keeps_sessions:
            async with self.transaction(READ_ONLY, **{"bds.company": company}) as connection:
                yield connection
            return
        connection = await self._get()  # not by take(): each nested context manager costs time
        try:
            if connection.company != company:
                connection.company = None  # until the server has confirmed
                await connection.execute("select set_config('bds.company', %s, false)", (company,))
                connection.company = company
            yield connection
        finally:
            await self._put(connection)

    @contextlib.asynccontextmanager
    async def snapshot(self, company: str) -> AsyncIterator[Session]:
        """The same in a transaction with one snapshot for all of its statements."""
        if not self.keeps_sessions:
            async with self.transaction(SNAPSHOT, **{"bds.company": company}) as connection:
                yield connection
            return
        async with self.session(company) as connection:
            await connection.execute(SNAPSHOT)
            try:
                yield connection
            finally:
                if not connection.closed:
                    await connection.execute("commit")  # after a rollback psycopg forgets the prepared statements of the connection


async def _uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Await a coroutine that runs to its end even if the awaiting task is cancelled.

    That is asyncio.shield around a task, but without a task where none is needed: returning a connection rarely waits for anything.
    So the first step runs directly, and only a coroutine that then waits for a future continues in a shielded task.  This costs
    0.6 us where the task would cost 5 us, in reads of some 150 us.
    """
    try:
        future = work.send(None)
    except StopIteration:
        return
    await asyncio.shield(_resume(work, future))


@types.coroutine
def _resume(work: Coroutine[Any, Any, None], future: Any) -> Generator[Any, Any, None]:
    """The rest of a coroutine whose first step waits for `future`."""
    yield future
    yield from work
