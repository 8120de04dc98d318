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
from app.database import pooler
from app.database.catalog import Catalog
from app.database.connections import load_catalog, resolve
from app.database.pools import Pool, Session, parameters
from app.database.pulse import Pulse
from app.tasks import end, in_daemon

log = logging.getLogger("bds.db")

RECONNECT = 0.5  # seconds between attempts of the listener
CHANNELS: tuple[LiteralString, ...] = ("bds_catalog", "bds_keys")


class Database:
    """One process's way to the database.  `catalog` is swapped whole when the registry changes."""

    def __init__(self, config: Config, url: str, catalog: Catalog) -> None:
        self.config = config
        self.url = url  # past a transaction pooler
        self.catalog = catalog
        pooled = config.database_url or url
        reading = config.read_database_url or pooled
        self._readers = Pool(config, reading, "bds_reader", config.pool_size)
        self._services = Pool(config, pooled, "bds_service", 4)
        self._workers = Pool(config, pooled, "bds_worker", 4)  # opened by the first who asks for one
        if reading == pooled:
            self._pulses = [Pulse("the database", pooled, self._services, self._workers, self._readers)]
        else:
            self._pulses = [
                Pulse("the database", pooled, self._services, self._workers),
                Pulse("the replica for reads", reading, self._readers),
            ]
        self._callbacks: dict[str, list[Callable[[str], None]]] = defaultdict(list)
        self._listener: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._readings = 0  # of the model, since the process began

    @classmethod
    async def open(cls, config: Config) -> Database:
        """Connect, read the catalog, begin to listen.

        Raises psycopg.Error if the database cannot be reached, ValueError if a pooler stands before it of which the configuration
        does not tell.
        """
        url = await in_daemon(resolve, config)
        await pooler.check(config, url)
        self = cls(config, url, await load_catalog(url))
        try:
            for pulse in self._pulses:
                await pulse.start()
            await self._readers.open(wait=True)
            await self._services.open()
            listening = asyncio.Event()
            self._listener = asyncio.create_task(self._listen(listening))
            await listening.wait()
        except BaseException:
            await self.close()
            raise
        return self

    async def renew(self) -> None:
        """Read the model again: it was changed, or it did not fit the database, for word of a change may not have come yet.

        One reading after the other, or an earlier one that takes longer would replace what a later one found.  Whoever waited
        while another reading was begun and made takes that.
        """
        asked = self._readings
        async with self._reading:
            if self._readings <= asked + 1:
                self.catalog = await load_catalog(self.url)
                self._readings += 1

    async def close(self) -> None:
        """Give every connection back."""
        if self._listener:
            await end(self._listener)
        for pulse in self._pulses:
            await pulse.stop()
        for pool in (self._readers, self._services, self._workers):
            await pool.close()

    async def answers(self) -> bool:
        """Whether every database that the service needs answers now; known within a second."""
        return all(await asyncio.gather(*(pulse.ask() for pulse in self._pulses)))

    def pools(self) -> dict[str, dict[str, int]]:
        """What psycopg counts of each pool, by the role that it acts as."""
        return {pool.role: pool.stats() for pool in (self._readers, self._services, self._workers)}

    def limits(self) -> dict[str, int]:
        """How many connections each may have."""
        return {pool.role: pool.limit for pool in (self._readers, self._services, self._workers)}

    def session(self, company: str) -> AbstractAsyncContextManager[Session]:
        """A reader's connection for a few statements, bound to `company`."""
        return self._readers.session(company)

    def snapshot(self, company: str) -> AbstractAsyncContextManager[Session]:
        """The same in a transaction with one snapshot for all of its statements."""
        return self._readers.snapshot(company)

    def service(self) -> AbstractAsyncContextManager[Session]:
        """A connection for accounts, bound to no company."""
        return self._services.use()

    @contextlib.asynccontextmanager
    async def registration(self, company: str) -> AsyncIterator[Session]:
        """A transaction that registers hooks of `company`: it has named the company, and ends with the block."""
        async with self._services.use() as connection, connection.transaction():
            await connection.execute("select set_config('bds.company', %s, true)", (company,))
            yield connection

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[Session]:
        """A connection of the webhook worker, which serves every company."""
        await self._workers.open()
        async with self._workers.use() as connection:
            yield connection

    async def notifications(self, *channels: LiteralString) -> AsyncGenerator[psycopg.Notify | None, None]:
        """Notifications on channels, for ever; None whenever the connection has been made anew, for some may have been missed."""
        url = self.config.listen_database_url or self.url
        lost = False
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    url, autocommit=True, **parameters(url, "bds listen")
                ) as connection:
                    for channel in channels:
                        await connection.execute(f"listen {channel}")
                    lost = False
                    yield None
                    async for notify in connection.notifies():
                        yield notify
            except psycopg.Error as error:
                if not lost:
                    log.warning("the listening connection was lost: %s", type(error).__name__)
                lost = True
            await asyncio.sleep(RECONNECT)

    def on_notify(self, channel: str, callback: Callable[[str], None]) -> None:
        """Call back, in the event loop, with the payload of each notification on one of CHANNELS; with '' after a reconnect."""
        self._callbacks[channel].append(callback)

    @property
    def listening(self) -> bool:
        """Whether notifications arrive: while they do not, nothing that they would end may be kept."""
        return self._hears

    _hears = False
    _lost = False

    async def _listen(self, listening: asyncio.Event) -> None:
        while True:
            try:
                url = self.config.listen_database_url or self.url
                async with await psycopg.AsyncConnection.connect(
                    url, autocommit=True, **parameters(url, "bds listen")
                ) as connection:
                    for channel in CHANNELS:
                        await connection.execute(f"listen {channel}")
                    self._lost, self._hears = False, True
                    # whatever was said while nobody listened
                    await self.renew()
                    for channel in CHANNELS:
                        self._call_back(channel, "")
                    listening.set()
                    async for notify in connection.notifies():
                        if notify.channel == "bds_catalog":
                            await self.renew()
                        self._call_back(notify.channel, notify.payload)
            except psycopg.Error as error:
                if not self._lost:
                    log.warning("the listening connection was lost: %s", type(error).__name__)
                self._lost = True
            finally:
                self._hears = False
            await asyncio.sleep(RECONNECT)

    def _call_back(self, channel: str, payload: str) -> None:
        for callback in self._callbacks[channel]:
            callback(payload)
