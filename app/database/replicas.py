"""Read replicas: chooses the replica, or the primary, from which a request reads.

A replica is behind the primary.  It serves reads while it answers and lags by at most BDS_READ_MAX_LAG; otherwise the primary does.
A client reads a company from one replica, so that a later read does not see earlier data.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolClosed, PoolTimeout

from app.config import Config
from app.database.pools import Pool, parameters
from app.database.pulse import Pulse
from app.database.session import Row, Session, Value

log = logging.getLogger("bds.db")

HISTORY = 3_600  # samples of the primary's position, one a second; beyond the oldest one the replica's own clock gives the lag

WRITTEN: LiteralString = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8"
# null unless the server is a standby; the age in seconds of the last transaction that it has replayed
REPLAYED: LiteralString = """
    select pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::int8,
        coalesce(extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()), 'infinity')::float8
    where pg_is_in_recovery()
"""
READ_POSITION = b"select coalesce(max(p.last_id), 0) from bds.positions p where p.company_id = $1"
POSITION: LiteralString = "select coalesce(max(p.last_id), 0) from bds.positions p where p.company_id = %s"

Enter = Callable[[Pool, str], AbstractAsyncContextManager[Session]]


@dataclass(slots=True)
class Reads:
    """How one request reads.

    client: its address.  position: the change id that its reads must include.  replica: the source of its last read, None for the
    primary.  only_primary: whether it reads from the primary even if a replica is usable.
    """

    client: str
    position: int = 0
    replica: Replica | None = None
    only_primary: bool = False


READS: ContextVar[Reads | None] = ContextVar("reads", default=None)  # unset: everything is read from the primary


def replicated() -> Reads | None:
    """How the current request reads, if it may read from a replica."""
    reads = READS.get()
    return None if reads is None or reads.only_primary else reads


def require_position(position: int) -> None:
    """Require that reads of the current request include all changes up to a position."""
    if reads := READS.get():
        reads.position = max(reads.position, position)


def was_read() -> bool:
    """Whether the last read of the current request was from a replica."""
    reads = READS.get()
    return reads is not None and reads.replica is not None


class NotAReplica(psycopg.OperationalError):
    """The server is not in recovery: it was promoted, or the setting names another server."""


class History:
    """Positions in the primary's write-ahead log with the times at which they were seen, from which a replica's lag follows."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=HISTORY)

    async def sample(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Store the primary's current position."""
        row = await (await connection.execute(WRITTEN, prepare=False)).fetchone()
        assert row is not None
        self._samples.append((time.monotonic(), row[0]))

    def lag(self, replayed: int, age: float) -> float:
        """Seconds since the primary wrote past `replayed`; 0 if no sample is past it.

        age: seconds since the replica's last transaction, returned if `replayed` is before the oldest sample.
        """
        if not self._samples or replayed < self._samples[0][1]:
            return age
        later = next((at for at, written in self._samples if written > replayed), None)
        return 0.0 if later is None else time.monotonic() - later


class Replica:
    """One replica.  lag: seconds, infinite until it is known.  is_up: whether it answered the last check, as a standby."""

    def __init__(self, config: Config, url: str, history: History) -> None:
        place = conninfo_to_dict(url)
        self.name = ":".join(str(place[key]) for key in ("host", "port") if place.get(key)) or "local"
        self.pool = Pool(config, url, "bds_reader", config.pool_size, is_required=False)
        self.pulse = Pulse(f"the replica {self.name}", url, self.pool, probe=self._measure)
        self.lag = math.inf
        self._history = history

    @property
    def is_up(self) -> bool:
        return self.pulse.is_up

    async def _measure(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Measure the lag.  Raises NotAReplica, psycopg.Error."""
        try:
            row = await (await connection.execute(REPLAYED, prepare=False)).fetchone()
            if row is None:
                raise NotAReplica("the server is not in recovery")
            self.lag = self._history.lag(*row)
        except psycopg.Error:
            self.lag = math.inf
            raise


class Replicas:
    """The replicas of BDS_READ_DATABASE_URL."""

    def __init__(self, config: Config) -> None:
        self.history = History()
        self._all = [Replica(config, url, self.history) for url in config.read_database_urls]
        self._max_lag = config.read_max_lag

    def __bool__(self) -> bool:
        return bool(self._all)

    async def start(self) -> None:
        """Connect to the replicas that answer, and watch all of them.  A replica that does not answer is not an error."""
        for replica in self._all:
            await replica.pulse.start(required=False)
            if replica.is_up:
                await replica.pool.open()

    async def stop(self) -> None:
        for replica in self._all:
            await replica.pulse.stop()
            await replica.pool.close()

    def states(self) -> dict[str, tuple[bool, float]]:
        """Whether each is up, and its lag in seconds, by name."""
        return {replica.name: (replica.is_up, replica.lag) for replica in self._all}

    def usable(self, company: str, client: str) -> list[Replica]:
        """The replicas that may serve, in an order that is the same for all reads of the client in the company."""
        usable = [replica for replica in self._all if replica.is_up and replica.lag <= self._max_lag]
        return sorted(usable, key=lambda replica: hashlib.blake2b(f"{replica.name} {company} {client}".encode()).digest())

    async def read_row(self, company: str, reads: Reads, primary: Pool, text: bytes, values: Sequence[Value], **how: bool) -> Row:
        """Run a statement that gives one row on the first usable replica, if it includes the required position.

        Raises PoolTimeout if all connections of the replica stay in use, and what the statement raises.
        """
        for replica in self.usable(company, reads.client):
            reads.replica = replica
            try:
                if reads.position:
                    (position,) = await replica.pool.read(company, READ_POSITION, (company,))
                    if int(position or 0) < reads.position:
                        break  # another replica may lack it, too; the primary has it
                return await replica.pool.read(company, text, values, **how)
            except PoolClosed:
                log.warning("the replica %s gave no session: it is down", replica.name)
        reads.replica = None
        return await primary.read(company, text, values, **how)

    @contextlib.asynccontextmanager
    async def read(self, company: str, reads: Reads, enter: Enter, primary: Pool) -> AsyncIterator[Session]:
        """A session of the first usable replica, if it includes the required position; otherwise one of the primary.

        enter: Pool.session or Pool.snapshot.  Raises PoolTimeout if all connections of the replica stay in use.
        """
        async with AsyncExitStack() as stack:
            yield await self._enter(stack, company, reads, enter, primary)

    async def _enter(self, stack: AsyncExitStack, company: str, reads: Reads, enter: Enter, primary: Pool) -> Session:
        for replica in self.usable(company, reads.client):
            async with AsyncExitStack() as attempt:
                try:
                    connection = await attempt.enter_async_context(enter(replica.pool, company))
                    has_position = not reads.position or await _position(connection, company) >= reads.position
                except PoolTimeout:
                    raise
                except psycopg.Error as error:
                    log.warning("the replica %s gave no session: %s", replica.name, type(error).__name__)
                    continue
                if not has_position:
                    break  # another replica may lack it, too; the primary has it
                reads.replica = replica
                stack.push_async_exit(attempt.pop_all())
                return connection
        reads.replica = None
        return await stack.enter_async_context(enter(primary, company))


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


async def _position(connection: Session, company: str) -> int:
    """The id of the company's last change that the connection sees."""
    row = await (await connection.execute(POSITION, (company,))).fetchone()
    assert row is not None
    return int(row[0])
