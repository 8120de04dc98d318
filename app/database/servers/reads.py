"""Where a request reads, and what happens if that fails: the only module that decides it.

A request reads from one server: its first read chooses a replica that answers and is not too far behind, else the primary.  A
client reads a company from the same replica, so that a later read does not see earlier data.

What fails on a replica is read again on the primary, with the whole request: the replica is lost or was promoted, which breaks its
connections and refuses those that wait (`Pool.note_state`); it lacks a position, a column or a right; recovery has cancelled the
statement.  A request is not repeated if its answer has begun; nor if it took too long or found no free connection, to spare the
primary.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

import psycopg
from psycopg_pool import PoolTimeout

from app.config import Config
from app.database.generations import Demand, check
from app.database.pool.pools import REPEATABLE, Pool, parameters
from app.database.pool.pulse import NotUsable
from app.database.pool.session import Row, Session, Value, read_row_on
from app.database.servers.replicas import History, Replica
from app.errors import ServiceError
from app.logs import forget_rows

log = logging.getLogger("bds.db")

POSITION = b"select coalesce(max(p.last_id), 0) from bds.positions p where p.company_id = $1"
NOT_REPEATED = (psycopg.errors.QueryCanceled, PoolTimeout)

Enter = Callable[[Pool, str], AbstractAsyncContextManager[Session]]
T = TypeVar("T")


@dataclass(slots=True)
class Reads:
    """How one request reads.

    client: its address.  demands: what it says of the log, which its first read checks; are_met: whether that has.  required, seen:
    the change id that its reads must include, and one that they do.  replica: the source of its reads, None for the primary.
    is_chosen: whether the source is.
    """

    client: str = ""
    demands: list[Demand] = field(default_factory=list)
    are_met: bool = False
    required: int = 0
    seen: int = 0
    replica: Replica | None = None
    is_chosen: bool = False

    @property
    def is_free(self) -> bool:
        """Whether its source has all that it demands."""
        return (self.are_met or not self.demands) and (self.replica is None or self.seen >= self.required)


READS: ContextVar[Reads | None] = ContextVar("reads", default=None)  # unset: everything is read from the primary


async def reading(run: Callable[[], Awaitable[T]], reads: Reads, has_begun: Callable[[], object]) -> T:
    """Run the work of a request, which may read from a replica; if that fails, again on the primary.

    has_begun: whether a part of the answer is sent.
    """
    tokens = READS.set(reads), REPEATABLE.set(lambda: not has_begun())
    try:
        forget_rows()
        return await run()
    except psycopg.Error as error:
        if reads.replica is None or has_begun() or isinstance(error, NOT_REPEATED):
            raise
        log.info("a read failed on the replica %s and runs again on the primary: %s", reads.replica.name, type(error).__name__)
        reads.replica, reads.are_met = None, False
        forget_rows()
        return await run()
    finally:
        READS.reset(tokens[0])
        REPEATABLE.reset(tokens[1])


def require_position(position: int) -> None:
    """Require that reads of the current request include all changes up to a position."""
    if reads := READS.get():
        reads.required = max(reads.required, position)


def require_generation(text: str | None) -> None:
    """Require that the company of the current request still has a generation; None: nothing is required.

    Its first read then raises ServiceError as app.database.generations.check does.
    """
    if text is not None:
        reads = READS.get()
        assert reads is not None, "only requests name a generation"
        reads.demands.append(Demand(text))


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

    def states(self) -> dict[str, tuple[bool, float]]:
        """Whether each replica is up, and its lag in seconds, by name."""
        return {each.name: (each.pulse.is_up, each.lag if each.pulse.is_up else math.inf) for each in self.replicas}

    def read(self, company: str, text: bytes, values: Sequence[Value], **how: bool) -> Awaitable[Row]:
        """Run a statement that gives one row, on behalf of a company.  how: see Pool.read."""
        reads = READS.get()
        if reads is None:
            return self.primary.read(company, text, values, **how)
        pool = self._choose(reads, company)
        if reads.is_free:
            return pool.read(company, text, values, **how)
        return self._read_checked(reads, company, text, values, prepare=how.get("prepare", True))

    async def _read_checked(self, reads: Reads, company: str, text: bytes, values: Sequence[Value], *, prepare: bool) -> Row:
        async with self._session(reads, company, Pool.session) as connection:
            return await read_row_on(connection, text, values, prepare=prepare)

    def session(self, company: str, enter: Enter = Pool.session) -> AbstractAsyncContextManager[Session]:
        """A connection for a few statements, bound to a company.  enter: Pool.snapshot for a transaction with one snapshot."""
        reads = READS.get()
        return enter(self.primary, company) if reads is None else self._session(reads, company, enter)

    @contextlib.asynccontextmanager
    async def _session(self, reads: Reads, company: str, enter: Enter) -> AsyncIterator[Session]:
        async with enter(self._choose(reads, company), company) as connection:
            if reads.demands and not reads.are_met:
                await _meet(reads, connection, company)
            if reads.replica and reads.seen < reads.required:
                reads.seen = int((await read_row_on(connection, POSITION, (company,)))[0] or 0)
                if reads.seen < reads.required:  # another replica may lack it, too; the primary has it
                    raise NotUsable(f"the replica lacks change {reads.required}")
            yield connection

    def _choose(self, reads: Reads, company: str) -> Pool:
        """The source of a request's reads, which its first read chooses."""
        if not reads.is_chosen:
            usable = (each for each in self.replicas if each.is_usable)
            reads.replica = min(usable, key=lambda each: _weight(each.name, company, reads.client), default=None)
            reads.is_chosen = True
        return reads.replica.pool if reads.replica else self.primary


async def _meet(reads: Reads, connection: Session, company: str) -> None:
    """Check what a request demands of the log.  Raises ServiceError; NotUsable where the primary may have what a replica lacks."""
    for demand in reads.demands:
        try:
            reads.seen = await check(connection, company, demand)
        except ServiceError as error:
            if reads.replica:
                raise NotUsable(error.message) from None
            raise
    reads.are_met = True


def _weight(*words: str) -> bytes:
    """Orders the replicas, for one client in one company the same at all times."""
    return hashlib.blake2b(" ".join(words).encode()).digest()


async def choose_url(config: Config, primary: str) -> str:
    """The connection string of the first replica that may serve a command now, otherwise of the primary."""
    history = History()
    for url in config.read_database_urls:
        replica = Replica(config, url, history)
        try:
            for source, measure in ((primary, history.sample), (url, replica.measure)):
                async with await psycopg.AsyncConnection.connect(source, autocommit=True, **parameters(source)) as connection:
                    await measure(connection)
        except psycopg.OperationalError as error:
            log.warning("a replica cannot be used: %s", type(error).__name__)
        if replica.lag <= config.read_max_lag:
            return url
    return primary
