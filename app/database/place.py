"""A place: one PostgreSQL server with the companies that live there, and every connection of this process to it.

A place owns its connections.  `start` opens them and `stop` closes them, and nobody else opens one for a company: a caller asks
`Database.place(company)` for the place, uses it for one request or one step of its work, and then asks again, for a company may
move.  A new kind of connection is made in `__init__`, opened and closed here, and given to the pulse if it has to be restored after
an outage.

Reads run as `bds_reader`, which may see the views of one company; imports as `bds_writer`, under row level security; keys and
hooks as `bds_service`.  A session names its company in a statement before the one that reads, never in the same one, where a view
may read the old setting first (app/database/pools.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import LiteralString

import psycopg

from app.config import Config
from app.database import bell
from app.database.connections import listen
from app.database.pools import Pool
from app.database.pulse import Pulse, ping
from app.database.replicas import READS, Replicas
from app.database.session import Row, Session, Value
from app.database.writers import Writers
from app.tasks import cancel_and_wait

HOME = "home"  # the place of BDS_DATABASE_URL, which also has accounts
FOLLOWERS = 3  # connections that read the change log for its followers
WORKERS = 4  # connections of the webhook worker


class Place:
    """One server.

    url: past a transaction pooler.  pooled: through it, where there is one.  listen_url: where LISTEN works.
    """

    def __init__(self, config: Config, name: str, url: str, *, pooled: str, listen_url: str, replicas: Replicas) -> None:
        self.name, self.url, self.replicas = name, url, replicas
        self._listen_url = listen_url
        self._readers = Pool(config, pooled, "bds_reader", config.pool_size)
        self._services = Pool(config, pooled, "bds_service", 4)
        self._workers = Pool(config, pooled, "bds_worker", WORKERS)  # opened at the first use
        # of the primary: a replica may lack what a notification is about; opened at the first use
        self._followers = Pool(config, pooled, "bds_reader", FOLLOWERS, name="followers")
        self.writers = Writers(url)
        probe = replicas.history.sample if replicas else ping
        self._pulse = Pulse("the database", pooled, *self.pools(), probe=probe)
        self._keeper: asyncio.Task[None] | None = None

    @classmethod
    def home(cls, config: Config, url: str) -> Place:
        """The place of BDS_DATABASE_URL, the only one that may have a pooler and replicas.  url: past the pooler."""
        listen_url = config.listen_database_url or url
        return cls(config, HOME, url, pooled=config.database_url or url, listen_url=listen_url, replicas=Replicas(config))

    async def start(self) -> None:
        """Connect.  Raises psycopg.Error if the server cannot be reached."""
        await self._pulse.start()
        await self.replicas.start()
        await self._readers.open(wait=True)
        await self._services.open()
        self._keeper = asyncio.create_task(bell.keep(self._listen_url))

    async def stop(self) -> None:
        """Close all connections."""
        if self._keeper:
            await cancel_and_wait(self._keeper)
        await self._pulse.stop()
        await self.replicas.stop()
        for pool in self.pools():
            await pool.close()
        await asyncio.to_thread(self.writers.close)

    async def answers(self) -> bool:
        """Whether the server answers; returns within a second.  No replica is needed."""
        return await self._pulse.ask()

    def pools(self) -> tuple[Pool, ...]:
        return self._readers, self._services, self._workers, self._followers

    def read(self, company: str, statement: bytes, values: Sequence[Value], **how: bool) -> Awaitable[Row]:
        """Run a statement that gives one row, on behalf of `company`; on a replica where the request allows it.

        how: see Pool.read.
        """
        reads = READS.get()
        if reads is None or reads.only_primary:
            return self._readers.read(company, statement, values, **how)
        return self.replicas.read_row(company, reads, self._readers, statement, values, **how)

    def session(self, company: str) -> AbstractAsyncContextManager[Session]:
        """A reader's connection for a few statements, bound to `company`; to a replica where the request allows it."""
        reads = READS.get()
        if reads is None or reads.only_primary:
            return self._readers.session(company)
        return self.replicas.read(company, reads, Pool.session, self._readers)

    def snapshot(self, company: str) -> AbstractAsyncContextManager[Session]:
        """The same in a transaction with one snapshot for all of its statements."""
        reads = READS.get()
        if reads is None or reads.only_primary:
            return self._readers.snapshot(company)
        return self.replicas.read(company, reads, Pool.snapshot, self._readers)

    def service(self) -> AbstractAsyncContextManager[Session]:
        """A connection of the service's role, bound to no company."""
        return self._services.use()

    @contextlib.asynccontextmanager
    async def registration(self, company: str) -> AsyncIterator[Session]:
        """A transaction of the service's role that has named `company`, for its hooks and mappers."""
        async with self._services.use() as connection, connection.transaction():
            await connection.execute("select set_config('bds.company', %s, true)", (company,))
            yield connection

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[Session]:
        """A connection of the webhook worker, which serves every company of the place."""
        await self._workers.open()
        async with self._workers.use() as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def follower(self, company: str) -> AsyncIterator[Session]:
        """A reader's connection to the primary, bound to `company`, for followers of the change log."""
        await self._followers.open()
        async with self._followers.session(company) as connection:
            yield connection

    def notifications(
        self, *channels: LiteralString, on_loss: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[psycopg.Notify | None, None]:
        """Yield notifications on channels, forever; None after each connect.  on_loss: called whenever the connection is lost."""
        return listen(self._listen_url, *channels, on_loss=on_loss)
