"""Where a request reads, and what happens if that fails: the only module that decides it.

A request reads from one server: its first read chooses a replica that answers and is not too far behind, else the primary.  A
client reads a company from the same replica, so that a later read does not see earlier data.

Whatever fails on a replica is an exception, and `on_a_replica` runs the request again on the primary:
    the replica is lost         its connections break, and those that wait are refused (app/database/replicas.py)
    it was promoted             so are those of a server that is not a standby any more
    it lacks something          a position, a column, a right
    recovery has cancelled it   a conflict with what the primary has done

A request is not repeated if its answer has begun; nor if it took too long or found no free connection, to spare the primary.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg_pool import PoolTimeout

from app.config import Config
from app.database.pools import REPEATABLE, Pool, parameters
from app.database.replicas import REPLAYED, History, Replica
from app.database.session import Row, Session, Value, read_row_on

log = logging.getLogger("bds.db")

POSITION = b"select coalesce(max(p.last_id), 0) from bds.positions p where p.company_id = $1"
NOT_REPEATED = (psycopg.errors.QueryCanceled, PoolTimeout)

Enter = Callable[[Pool, str], AbstractAsyncContextManager[Session]]
T = TypeVar("T")


class Behind(psycopg.OperationalError):
    """The replica lacks changes that the request has to see."""


@dataclass(slots=True)
class Reads:
    """How one request reads.

    client: its address.  required, seen: the change id that its reads must include, and one that they do.  replica: the source of
    its reads, None for the primary.  is_chosen: whether the source is.
    """

    client: str
    required: int = 0
    seen: int = 0
    replica: Replica | None = None
    is_chosen: bool = False


READS: ContextVar[Reads | None] = ContextVar("reads", default=None)  # unset: everything is read from the primary


async def on_a_replica(run: Callable[[], Awaitable[T]], client: str, position: int, has_begun: Callable[[], object]) -> T:
    """Run the work of a request, which may read from a replica; if that fails, again on the primary.

    position: the change id that its reads must include.  has_begun: whether a part of the answer is sent.
    """
    reads = Reads(client, position)
    tokens = READS.set(reads), REPEATABLE.set(lambda: not has_begun())
    try:
        return await run()
    except psycopg.Error as error:
        if reads.replica is None or has_begun() or isinstance(error, NOT_REPEATED):
            raise
        log.info("a read failed on the replica %s and runs again on the primary: %s", reads.replica.name, type(error).__name__)
        reads.replica = None
        return await run()
    finally:
        READS.reset(tokens[0])
        REPEATABLE.reset(tokens[1])


def require_position(position: int) -> None:
    """Require that reads of the current request include all changes up to a position."""
    if reads := READS.get():
        reads.required = max(reads.required, position)


def is_on_a_replica() -> bool:
    """Whether the current request reads from a replica."""
    reads = READS.get()
    return reads is not None and reads.replica is not None


class Readers:
    """The servers from which one place's companies are read: the primary, and the replicas of BDS_READ_DATABASE_URL."""

    def __init__(self, config: Config, primary: Pool) -> None:
        self.primary = primary
        self.history = History()
        self.replicas = [Replica(config, url, self.history) for url in config.read_database_urls]
        self._max_lag = config.read_max_lag

    async def start(self) -> None:
        """Connect to the replicas that answer, and watch all of them.  A replica that does not answer is not an error."""
        for replica in self.replicas:
            await replica.start()

    async def stop(self) -> None:
        for replica in self.replicas:
            await replica.stop()

    def states(self) -> dict[str, tuple[bool, float]]:
        """Whether each replica is up, and its lag in seconds, by name."""
        return {replica.name: (replica.is_up, replica.lag) for replica in self.replicas}

    def read(self, company: str, text: bytes, values: Sequence[Value], **how: bool) -> Awaitable[Row]:
        """Run a statement that gives one row, on behalf of a company.  how: see Pool.read."""
        reads = self._reads(company)
        if reads is None or reads.replica is None:
            return self.primary.read(company, text, values, **how)
        return self._read(reads, reads.replica, company, text, values, **how)

    async def _read(self, reads: Reads, replica: Replica, company: str, text: bytes, values: Sequence[Value], **how: bool) -> Row:
        if reads.seen < reads.required:
            _note(reads, await replica.pool.read(company, POSITION, (company,)))
        return await replica.pool.read(company, text, values, **how)

    def session(self, company: str, enter: Enter = Pool.session) -> AbstractAsyncContextManager[Session]:
        """A connection for a few statements, bound to a company.  enter: Pool.snapshot for a transaction with one snapshot."""
        reads = self._reads(company)
        if reads is None or reads.replica is None:
            return enter(self.primary, company)
        return self._session(reads, enter(reads.replica.pool, company), company)

    @contextlib.asynccontextmanager
    async def _session(self, reads: Reads, entered: AbstractAsyncContextManager[Session], company: str) -> AsyncIterator[Session]:
        async with entered as connection:
            if reads.seen < reads.required:
                _note(reads, await read_row_on(connection, POSITION, (company,)))
            yield connection

    def _reads(self, company: str) -> Reads | None:
        """How the current request reads; chooses the source with the first read."""
        reads = READS.get()
        if reads is not None and not reads.is_chosen:
            reads.replica, reads.is_chosen = self._choose(company, reads.client), True
        return reads

    def _choose(self, company: str, client: str) -> Replica | None:
        """The replica that serves all reads of the client in the company while it can."""
        usable = [replica for replica in self.replicas if replica.is_up and replica.lag <= self._max_lag]
        weights = {replica: hashlib.blake2b(f"{replica.name} {company} {client}".encode()).digest() for replica in usable}
        return min(usable, key=weights.__getitem__, default=None)


def _note(reads: Reads, row: Row) -> None:
    """Note the position that a replica has.  Raises Behind if it lacks the required one; another replica may lack it, too."""
    reads.seen = int(row[0] or 0)
    if reads.seen < reads.required:
        raise Behind(f"the replica lacks change {reads.required}")


async def choose_url(config: Config, primary: str) -> str:
    """The connection string of the first replica that may serve a command now, otherwise of the primary."""
    history = History()
    for url in config.read_database_urls:
        try:
            async with await _connect(primary) as connection:
                await history.sample(connection)
            async with await _connect(url) as connection:
                row = await (await connection.execute(REPLAYED)).fetchone()
        except psycopg.OperationalError as error:
            log.warning("a replica cannot be used: %s", type(error).__name__)
            continue
        if row is not None and history.lag(*row) <= config.read_max_lag:
            return url
    return primary


async def _connect(url: str) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(url, autocommit=True, **parameters(url))
