"""One process's access to the database: the places of companies, the catalog, notifications.

What belongs to a company goes through `Database.place(company)`; accounts and the catalog are at home (app/database/place.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, LiteralString

import psycopg

from app.config import Config
from app.database import pooler
from app.database.catalog import Catalog
from app.database.connections import RECONNECT, load_catalog, resolve
from app.database.place import HOME, Place
from app.database.session import Row, Session, Value
from app.tasks import cancel_and_wait, in_daemon

log = logging.getLogger("bds.db")

CHANNELS: tuple[LiteralString, ...] = ("bds_catalog", "bds_keys")


class Database:
    """One process's access to the database.  `catalog` is replaced as a whole when the registry changes."""

    def __init__(self, config: Config, url: str, catalog: Catalog) -> None:
        self.config = config
        self.catalog = catalog
        self.home = Place.home(config, url)
        self._places = {HOME: self.home}
        self._callbacks: dict[str, list[Callable[[str], None]]] = defaultdict(list)
        self._listener: asyncio.Task[None] | None = None
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
            await self.home.start()
            listening = asyncio.Event()
            self._listener = asyncio.create_task(self._listen(listening))
            await listening.wait()
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
                self.catalog = await load_catalog(self.home.url)
                self._reloads += 1

    async def close(self) -> None:
        """Close all connections."""
        if self._listener:
            await cancel_and_wait(self._listener)
        for place in self.places():
            await place.stop()

    def place(self, company: str) -> Place:
        """The place of a company, for one request or one step of work; home for a company that no place has."""
        return self.home

    def places(self) -> list[Place]:
        """All places, home first."""
        return list(self._places.values())

    async def at_each_place(self, work: Callable[[Place], Coroutine[Any, Any, None]]) -> None:
        """Do work that ends by cancellation alone at each place, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for place in self.places():
                group.create_task(work(place))

    def pools(self) -> dict[str, dict[str, int]]:
        """The statistics of each pool, as psycopg counts them, by name."""
        return {pool.name: pool.stats() for place in self.places() for pool in place.pools()}

    def limits(self) -> dict[str, int]:
        """The most connections that each pool may have, by name."""
        return {pool.name: pool.limit for place in self.places() for pool in place.pools()}

    def read(self, company: str, statement: bytes, values: Sequence[Value], **how: bool) -> Awaitable[Row]:
        """Run a statement that gives one row, on behalf of `company`; on a replica where the request allows it.

        how: see Pool.read.
        """
        return self.place(company).read(company, statement, values, **how)

    def session(self, company: str) -> AbstractAsyncContextManager[Session]:
        """A reader's connection for a few statements, bound to `company`; to a replica where the request allows it."""
        return self.place(company).session(company)

    def snapshot(self, company: str) -> AbstractAsyncContextManager[Session]:
        """The same in a transaction with one snapshot for all of its statements."""
        return self.place(company).snapshot(company)

    def service(self) -> AbstractAsyncContextManager[Session]:
        """A connection for accounts, bound to no company."""
        return self.home.service()

    def registration(self, company: str) -> AbstractAsyncContextManager[Session]:
        """A transaction of the service's role that has named `company`, for its hooks and mappers."""
        return self.place(company).registration(company)

    def follower(self, company: str) -> AbstractAsyncContextManager[Session]:
        """A reader's connection to the primary, bound to `company`, for followers of the change log."""
        return self.place(company).follower(company)

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
                async with contextlib.aclosing(self.home.notifications(*CHANNELS, on_loss=self._stop_listening)) as notifications:
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
