"""One process's access to the database: a pool for each role, the catalog, notifications.

Reads run as `bds_reader`, which may see the views of one company; imports as `bds_writer`, under row level security; keys and
hooks as `bds_service`.  A session names its company in a statement before the one that reads, never in the same one, where a view
may read the old setting first (app/database/pools.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import LiteralString

import psycopg

from app.config import Config
from app.database import bell, pooler
from app.database.catalog import Catalog
from app.database.connections import RECONNECT, listen, load_catalog, resolve
from app.database.pools import Pool, Session
from app.database.pulse import Pulse, ping
from app.database.replicas import READS, Replicas
from app.database.writers import Writers
from app.tasks import cancel_and_wait, in_daemon

log = logging.getLogger("bds.db")

FOLLOWERS = 3  # connections that read the change log for its followers
CHANNELS: tuple[LiteralString, ...] = ("bds_catalog", "bds_keys")


class Database:
    """One process's access to the database.  `catalog` is replaced as a whole when the registry changes."""

    def __init__(self, config: Config, url: str, catalog: Catalog) -> None:
        self.config = config
        self.url = url  # past a transaction pooler
        self.catalog = catalog
        pooled = config.database_url or url
        self.replicas = Replicas(config)
        self._readers = Pool(config, pooled, "bds_reader", config.pool_size)
        self._services = Pool(config, pooled, "bds_service", 4)
        self._workers = Pool(config, pooled, "bds_worker", 4)  # opened at the first use
        # of the primary: a replica may lack what a notification is about; opened at the first use
        self._followers = Pool(config, pooled, "bds_reader", FOLLOWERS, name="followers")
        self.writers = Writers(url)
        probe = self.replicas.history.sample if self.replicas else ping
        self._pulse = Pulse("the database", pooled, *self._pools(), probe=probe)
        self._callbacks: dict[str, list[Callable[[str], None]]] = defaultdict(list)
        self._listener: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._is_listening = False
        self._reloading = asyncio.Lock()
        self._reloads = 0  # of the catalog, since the process started

    @classmethod
    async def open(cls, config: Config) -> Database:
        """Connect, read the catalog, start to listen.

        Raises psycopg.Error if the database cannot be reached, ValueError if the configuration does not name the pooler in front of
        it.
        """
        url = await in_daemon(resolve, config)
        await pooler.check(config, url)
        self = cls(config, url, await load_catalog(url))
        try:
            await self._pulse.start()
            await self.replicas.start()
            await self._readers.open(wait=True)
            await self._services.open()
            listening = asyncio.Event()
            self._listener = asyncio.create_task(self._listen(listening))
            await listening.wait()
            self._keeper = asyncio.create_task(bell.keep(config.listen_database_url or url))
        except BaseException:
            await self.close()
            raise
        return self

    async def reload(self) -> None:
        """Read the catalog again.

        Reloads are serialised, so that a slow one never replaces the result of a later one.  A caller that waited through a whole
        reload takes its result.
        """
        seen = self._reloads
        async with self._reloading:
            if self._reloads <= seen + 1:
                self.catalog = await load_catalog(self.url)
                self._reloads += 1

    async def close(self) -> None:
        """Close all connections."""
        await cancel_and_wait(*(task for task in (self._listener, self._keeper) if task))
        await self._pulse.stop()
        await self.replicas.stop()
        for pool in self._pools():
            await pool.close()
        await asyncio.to_thread(self.writers.close)

    async def answers(self) -> bool:
        """Whether the database answers; returns within a second.  No replica is needed."""
        return await self._pulse.ask()

    def pools(self) -> dict[str, dict[str, int]]:
        """The statistics of each pool, as psycopg counts them, by name."""
        return {pool.name: pool.stats() for pool in self._pools()}

    def limits(self) -> dict[str, int]:
        """The most connections that each pool may have, by name."""
        return {pool.name: pool.limit for pool in self._pools()}

    def _pools(self) -> tuple[Pool, ...]:
        return self._readers, self._services, self._workers, self._followers

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
        """A connection for accounts, bound to no company."""
        return self._services.use()

    @contextlib.asynccontextmanager
    async def registration(self, company: str) -> AsyncIterator[Session]:
        """A transaction of the service's role that has named `company`, for registering hooks."""
        async with self._services.use() as connection, connection.transaction():
            await connection.execute("select set_config('bds.company', %s, true)", (company,))
            yield connection

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[Session]:
        """A connection of the webhook worker, which serves every company."""
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
        return listen(self.config.listen_database_url or self.url, *channels, on_loss=on_loss)

    def on_notify(self, channel: str, callback: Callable[[str], None]) -> None:
        """Call `callback` in the event loop with each payload on one of CHANNELS, and with '' after each connect."""
        self._callbacks[channel].append(callback)

    @property
    def listening(self) -> bool:
        """Whether notifications arrive; while they do not, nothing may be cached that a notification would invalidate."""
        return self._is_listening

    async def _listen(self, started: asyncio.Event) -> None:
        """Reload the catalog and run callbacks on notifications; after each connect too, for notifications that were missed."""
        while True:
            try:
                async with contextlib.aclosing(self.notifications(*CHANNELS, on_loss=self._stop_listening)) as notifications:
                    async for notify in notifications:
                        self._is_listening = True
                        if notify is None or notify.channel == "bds_catalog":
                            await self.reload()
                        for channel in CHANNELS if notify is None else (notify.channel,):
                            self._call_back(channel, notify.payload if notify else "")
                        started.set()
            except psycopg.Error as error:
                log.warning("the catalog could not be reloaded: %s", type(error).__name__)
            finally:
                self._stop_listening()
            await asyncio.sleep(RECONNECT)

    def _stop_listening(self) -> None:
        self._is_listening = False

    def _call_back(self, channel: str, payload: str) -> None:
        for callback in self._callbacks[channel]:
            callback(payload)
