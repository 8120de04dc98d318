"""One process's access to the database: the places of companies, the catalog, notifications.

What belongs to a company goes through `Database.place(company)`; accounts and the catalog are at home.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, LiteralString

import psycopg

from app.config import Config
from app.database import schema
from app.database.catalog import Catalog
from app.database.connections import DEPARTURE, DIRECTORY_POLL, load_catalog, resolve, still_moving
from app.database.pool import pooler
from app.database.pool.listening import RECONNECT
from app.database.pool.pools import Pool, parameters
from app.database.pool.session import Row, Session, Value
from app.database.servers.directory import HOME, REFRESH, Directory, Entry
from app.database.servers.place import Place
from app.database.servers.reads import require_generation
from app.errors import ServiceError
from app.tasks import cancel_and_wait, in_daemon

log = logging.getLogger("bds.db")

CHANNELS: tuple[LiteralString, ...] = ("bds_catalog", "bds_keys", "bds_places")
MIGRATED: LiteralString = "select max(applied_at) > clock_timestamp() - interval '1 minute' from public.bds_migrations"
REQUIRE_HERE: LiteralString = """
    select coalesce(max(p.company_id), bds_service.refuse_absent(%s)) from bds.company_positions p where p.company_id = %s
"""
NAMES: LiteralString = "select coalesce(array_agg(name), '{}') from bds.entities"
ASKED_EVERY = 0.1  # seconds between two questions whether entities were registered
START = 2.0  # seconds to wait for places when the process starts


class Database:
    """One process's access to the database.  `catalog` is replaced as a whole when the registry changes."""

    def __init__(self, config: Config, url: str, catalog: Catalog) -> None:
        self.config = config
        self.catalog = catalog
        self.home = Place(config, HOME, url)
        self._places = {HOME: self.home}
        self._directory = Directory()
        self._placing = asyncio.Lock()
        self._stopping: set[asyncio.Task[None]] = set()
        self._places_changed = asyncio.Event()
        self._callbacks: dict[str, list[Callable[[str], None]]] = defaultdict(list)
        self._listener: asyncio.Task[None] | None = None
        self._refresher: asyncio.Task[None] | None = None
        self._is_listening = False
        self._reloading = asyncio.Lock()
        self._reloads = 0  # of the catalog, since the process started
        self._question: asyncio.Task[list[str]] | None = None  # for the names of entities
        self._schema_mark: str | None = None  # of the home's state, when its schema was compared
        self._has_newer_schema = False
        self._asked = 0.0  # the last one, by the monotonic clock

    @classmethod
    async def open(cls, config: Config) -> Database:
        """Connect, read the catalog, start to listen.

        Raises psycopg.Error if the database cannot be reached, ValueError if the configuration does not name the pooler in front of
        it, MigrationError if the schema is older than this program.
        """
        url = await in_daemon(resolve, config)
        await pooler.check(config, url)
        schema.require(await schema.load(url, parameters(url)))
        self = cls(config, url, await load_catalog(url))
        try:
            await self.home.start()
            if self.home.state and self.home.state[0] != HOME:
                raise ValueError(f"BDS_DATABASE_URL names the place {self.home.state[0]}: expected the database that is home")
            if starting := await self._read_directory():
                await asyncio.wait(starting, timeout=START)
            self._refresher = asyncio.create_task(self._refresh())
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

    async def learn(self, name: str) -> bool:
        """Read the catalog again if an entity that it lacks is registered; whether it is.

        A registration that has just been committed is told by a notification, which may still be under way.
        """
        if self._question is None:
            self._question = asyncio.create_task(self._ask_for_entities())
        names = await asyncio.shield(self._question)
        if name in names and name not in self.catalog:
            await self.reload()
        return name in self.catalog

    async def _ask_for_entities(self) -> list[str]:
        await asyncio.sleep(self._asked + ASKED_EVERY - time.monotonic())
        self._asked, self._question = time.monotonic(), None  # who comes from now on asks anew
        async with self.home.service() as connection:
            row = await (await connection.execute(NAMES)).fetchone()
        assert row is not None
        names: list[str] = row[0]
        return names

    async def close(self) -> None:
        """Close all connections."""
        await cancel_and_wait(*(task for task in (self._listener, self._refresher) if task))
        for place in self.places():
            await place.stop()
        await asyncio.gather(*self._stopping, return_exceptions=True)

    def place(self, company: str) -> Place:
        """The place of a company, for one request or one step of work; home for a company that no place has.

        Raises ServiceError(busy) if the place cannot serve.
        """
        name = self._directory.find(company).place
        if name == HOME:
            return self.home
        place = self._places.get(name)
        problem = place.problem(self.home) if place else "is not known yet"
        if place is None or problem:
            message = f"the company is at the place {name}, which {problem}"
            raise ServiceError("place_unavailable", message, headers={"Retry-After": "5"})
        return place

    def places(self) -> list[Place]:
        """All places, home first."""
        return list(self._places.values())

    def urls(self) -> dict[str, str]:
        """The connection strings of all places by name, home first."""
        return {place.name: place.url for place in self.places()}

    async def wait_for_departure(self, company: str) -> None:
        """Wait while a company is about to leave its place, where an import that begins would keep it.

        Waits DEPARTURE seconds at most.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DEPARTURE):
                while self._directory.find(company).is_departing:
                    await asyncio.sleep(DIRECTORY_POLL)

    async def moved(self, company: str, former: Place, error: psycopg.Error) -> Place:
        """The place of a company that `former` has refused with `error`, as one does that the company has left.

        Waits up to DEPARTURE seconds for a company that is between two places.  Raises ServiceError(busy) after them; the error, if
        the company has not moved.
        """
        if error.sqlstate != "BD002":
            raise error
        has_waited = False
        try:
            async with asyncio.timeout(DEPARTURE):
                while (await self.find_again(company)).is_departing:
                    has_waited = True
                    await asyncio.sleep(DIRECTORY_POLL)
        except TimeoutError:
            raise still_moving() from None
        place = self.place(company)
        if place is former and not has_waited:
            raise error
        return place

    async def find_again(self, company: str) -> Entry:
        """Read where a company lives from home, which this process may not have heard yet.  Raises psycopg.Error."""
        async with self.home.service() as connection:
            return await self._directory.read_one(connection, company)

    async def _read_directory(self, *, whole: bool = True) -> list[asyncio.Task[None]]:
        """Read the directory; start to open places that are new and to close those that are gone; returns the former tasks."""
        async with self._placing:
            async with self.home.service() as connection:
                await self._directory.read(connection, whole=whole)
            urls = self._directory.urls
            gone = [place for place in self.places() if not place.is_home and urls.get(place.name) != place.url]
            for place in gone:
                del self._places[place.name]
                stopping = asyncio.create_task(place.stop())
                self._stopping.add(stopping)
                stopping.add_done_callback(self._stopping.discard)
            new = {name: Place(self.config, name, urls[name]) for name in urls.keys() - self._places.keys()}
            self._places |= new
            if gone or new:
                self._places_changed.set()
                self._places_changed = asyncio.Event()
            return [place.start_soon() for place in new.values()]

    async def _read_place(self, company: str) -> None:
        """Read a company's entry, or everything if there is no company."""
        if company:
            await self.find_again(company)
        else:
            await self._read_directory()

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH)
            try:
                await self._read_directory(whole=False)
            except psycopg.Error as error:
                log.warning("the directory could not be read: %s", type(error).__name__)
            except Exception:
                log.exception("reading the directory failed and continues")

    async def at_each_place(self, work: Callable[[Place], Coroutine[Any, Any, None]]) -> None:
        """Do work that ends by cancellation alone at each place, those that are added later too, until cancelled."""
        tasks: dict[Place, asyncio.Task[None]] = {}
        try:
            while True:
                changed, places = self._places_changed, self.places()
                for place in places:
                    if place not in tasks:
                        tasks[place] = asyncio.create_task(work(place))
                for place in tasks.keys() - set(places):
                    tasks.pop(place).cancel()
                await changed.wait()
        finally:
            for task in tasks.values():
                task.cancel()  # once: a worker then ends its tasks and releases its leases
            await asyncio.gather(*tasks.values(), return_exceptions=True)

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
        return self.place(company).readers.read(company, statement, values, **how)

    def session(self, company: str) -> AbstractAsyncContextManager[Session]:
        """A reader's connection for a few statements, bound to `company`; to a replica where the request allows it.

        Raises psycopg.Error BD002 if the company does not live there.
        """
        return self._here(company, self.place(company).readers.session(company))

    @contextlib.asynccontextmanager
    async def _here(self, company: str, entered: AbstractAsyncContextManager[Session]) -> AsyncIterator[Session]:
        async with entered as connection:
            if len(self._places) > 1:  # it may have moved while this process was stopped or waited for the connection
                await connection.execute(REQUIRE_HERE, (company, company))
            yield connection

    async def meet(self, company: str) -> None:
        """Check what the current request demands of the log, where its work does not begin with a reader's connection.

        Raises ServiceError as app.database.generations.check does.
        """
        async with self.session(company):
            pass

    async def check_generation(self, company: str, generation: str | None) -> None:
        """Check the generation that the current request names, if it does; raises ServiceError as `meet` does."""
        if generation is not None:
            require_generation(generation)
            await self.meet(company)

    def snapshot(self, company: str) -> AbstractAsyncContextManager[Session]:
        """The same as `session` in a transaction with one snapshot for all of its statements."""
        return self._here(company, self.place(company).readers.session(company, Pool.snapshot))

    def service(self) -> AbstractAsyncContextManager[Session]:
        """A connection for accounts, bound to no company."""
        return self.home.service()

    @contextlib.asynccontextmanager
    async def registration(self, company: str) -> AsyncIterator[Session]:
        """A transaction of the service's role that has named `company`, for its hooks and mappers."""
        async with contextlib.AsyncExitStack() as stack:
            place = self.place(company)
            try:
                connection = await stack.enter_async_context(place.registration(company))
            except psycopg.Error as error:
                place = await self.moved(company, place, error)
                connection = await stack.enter_async_context(place.registration(company))
            yield connection

    def follower(self, company: str) -> AbstractAsyncContextManager[Session]:
        """A reader's connection to the primary, bound to `company`, for followers of the change log."""
        return self.place(company).follower(company)

    async def has_newer_schema(self) -> bool:
        """Whether `bds migrate` of a newer program has changed the schema; asked anew when what was applied has changed."""
        mark = self.home.state and self.home.state[1]
        if mark != self._schema_mark:
            async with self.service() as connection:
                applied = dict(await (await connection.execute(schema.APPLIED)).fetchall())
            self._schema_mark, self._has_newer_schema = mark, schema.compare(applied) == "newer"
        return self._has_newer_schema

    async def was_migrated(self) -> bool:
        """Whether `bds migrate` changed something lately at any place that answers."""
        for place in self.places():
            with contextlib.suppress(psycopg.Error):
                async with place.service() as connection:
                    if (await (await connection.execute(MIGRATED)).fetchone()) == (True,):
                        return True
        return False

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
                            self.home.note_change()
                            await self.reload()
                        if notify is None or notify.channel == "bds_places":
                            await self._read_place(notify.payload if notify else "")
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
