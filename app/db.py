"""The only room that opens connections: pools, company-scoped sessions, LISTEN.

Reads run as `bds_reader`, which may see the views of one company; imports as `bds_writer`, under row level security; keys and
hooks as `bds_service`.  A session names its company in a statement before the one that reads, never in the same one, where a view
may read the old setting first; a connection remembers what it has named, which saves the round trip.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from app import embedded, migrate
from app.catalog import MODEL, Catalog
from app.config import Config
from app.errors import ServiceError

log = logging.getLogger("bds.db")

RECONNECT = 1.0  # seconds between attempts of the listener
CHANNELS: tuple[LiteralString, ...] = ("bds_catalog", "bds_keys")


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


def resolve(config: Config) -> str:
    """The connection string of the database in use; without one in the configuration, of the embedded one, started and migrated."""
    if config.database_url:
        return config.database_url
    url = embedded.start(config.data_dir)
    if not migrate.is_current(url):
        migrate.migrate(url)
    return url


def connect(url: str, role: LiteralString | None = None) -> psycopg.Connection[Any]:
    """A synchronous connection in autocommit mode, for commands and imports, acting as `role`."""
    connection = psycopg.connect(url, autocommit=True, application_name="bds")
    connection.execute("set timezone = 'UTC'")
    if role:
        connection.execute(f"set role {role}")
    return connection


def read_catalog(connection: psycopg.Connection[Any]) -> Catalog:
    """The model, as the registry has it now."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(MODEL).fetchone()
        assert row is not None
        return Catalog.from_rows(*row)


@contextlib.asynccontextmanager
async def snapshot(url: str, company: str) -> AsyncIterator[tuple[psycopg.AsyncConnection[Any], Catalog]]:
    """A reader's connection of its own, for commands: bound to `company`, in a transaction with one snapshot; and the model.

    Raises ServiceError if there is no such company.
    """
    with connect(url) as operator:
        if operator.execute("select from bds.companies where id = %s", (company,)).fetchone() is None:
            raise ServiceError("not_found", f"there is no company {company!r}")
    catalog = await asyncio.to_thread(_load_catalog, url)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, application_name="bds") as connection:
        for name, value in {"role": "bds_reader", "timezone": "UTC", "jit": "off", "bds.company": company}.items():
            await connection.execute("select set_config(%s, %s, false)", (name, value))
        await connection.execute("begin isolation level repeatable read, read only")
        yield connection, catalog


class Database:
    """One process's way to the database.  `catalog` is swapped whole when the registry changes."""

    def __init__(self, config: Config, url: str, catalog: Catalog) -> None:
        self.config = config
        self.url = url
        self.catalog = catalog
        self._readers = self._pool(config.read_database_url or url, "bds_reader", config.pool_size)
        self._services = self._pool(url, "bds_service", 4)
        self._workers = self._pool(url, "bds_worker", 4)  # opened by the first who asks for one
        self._callbacks: dict[str, list[Callable[[str], None]]] = defaultdict(list)
        self._listener: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, config: Config) -> Database:
        """Connect, read the catalog, begin to listen.  Raises psycopg.Error if the database cannot be reached."""
        url = await asyncio.to_thread(resolve, config)
        self = cls(config, url, await asyncio.to_thread(_load_catalog, url))
        await self._readers.open(wait=True, timeout=30)
        await self._services.open()
        listening = asyncio.Event()
        self._listener = asyncio.create_task(self._listen(listening))
        await listening.wait()
        return self

    async def renew(self) -> None:
        """Read the model again, which did not fit the database: word of a change may not have come yet."""
        self.catalog = await asyncio.to_thread(_load_catalog, self.url)

    async def close(self) -> None:
        """Give every connection back."""
        if self._listener:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        await self._readers.close()
        await self._services.close()
        await self._workers.close()

    def _pool(self, url: str, role: LiteralString, size: int) -> AsyncConnectionPool[Session]:
        async def configure(connection: Session) -> None:
            settings = {"role": role, "timezone": "UTC", "jit": "off"}
            if role == "bds_reader":
                settings |= {"default_transaction_read_only": "on", "statement_timeout": f"{self.config.statement_timeout}s"}
            for name, value in settings.items():
                await connection.execute("select set_config(%s, %s, false)", (name, value), prepare=False)

        return AsyncConnectionPool(
            url,
            connection_class=Session,
            min_size=1,
            max_size=size,
            open=False,
            reconnect_timeout=5.0 if role == "bds_worker" else 300.0,  # whoever waits for the database asks again soon
            configure=configure,
            kwargs={"autocommit": True, "application_name": "bds", "prepare_threshold": 2},
            check=AsyncConnectionPool.check_connection if role == "bds_service" else None,
        )

    @contextlib.asynccontextmanager
    async def session(self, company: str) -> AsyncIterator[Session]:
        """A reader's connection in autocommit mode, bound to `company`."""
        connection = await self._readers.getconn()
        try:
            if connection.company != company:
                connection.company = None  # until the server has said yes
                await connection.execute("select set_config('bds.company', %s, false)", (company,))
                connection.company = company
            yield connection
        finally:
            await self._readers.putconn(connection)

    @contextlib.asynccontextmanager
    async def snapshot(self, company: str) -> AsyncIterator[Session]:
        """The same inside a transaction with one snapshot for all of its statements."""
        async with self.session(company) as connection:
            await connection.execute("begin isolation level repeatable read, read only")
            try:
                yield connection
            finally:
                if not connection.closed:
                    await connection.execute("commit")  # on a rollback psycopg forgets all that the connection has prepared

    @contextlib.asynccontextmanager
    async def service(self) -> AsyncIterator[Session]:
        """A connection for accounts, bound to no company."""
        async with self._services.connection() as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def registration(self, company: str) -> AsyncIterator[Session]:
        """A transaction that registers hooks of `company`: it has named the company, and ends with the block."""
        async with self._services.connection() as connection, connection.transaction():
            await connection.execute("select set_config('bds.company', %s, true)", (company,))
            yield connection

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[Session]:
        """A connection of the webhook worker, which serves every company."""
        await self._workers.open()
        async with self._workers.connection() as connection:
            yield connection

    async def forget_broken(self) -> None:
        """Throw the worker's connections away that a restarted server has cut."""
        with contextlib.suppress(psycopg.Error):
            await self._workers.check()

    async def notifications(self, *channels: LiteralString) -> AsyncGenerator[psycopg.Notify | None, None]:
        """Notifications on channels, for ever; None whenever the connection has been made anew, for some may have been missed."""
        while True:
            try:
                url = self.config.listen_database_url or self.url
                async with await psycopg.AsyncConnection.connect(url, autocommit=True, application_name="bds listen") as connection:
                    for channel in channels:
                        await connection.execute(f"listen {channel}")
                    yield None
                    async for notify in connection.notifies():
                        yield notify
            except psycopg.Error as error:
                log.warning("the listening connection was lost: %s", type(error).__name__)
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
                async with await psycopg.AsyncConnection.connect(url, autocommit=True, application_name="bds listen") as connection:
                    for channel in CHANNELS:
                        await connection.execute(f"listen {channel}")
                    if self._lost:
                        await self._readers.check()  # what a restarted server has cut is thrown away before a request finds it
                    self._lost, self._hears = False, True
                    # whatever was said while nobody listened
                    self.catalog = await asyncio.to_thread(_load_catalog, self.url)
                    for channel in CHANNELS:
                        self._call_back(channel, "")
                    listening.set()
                    async for notify in connection.notifies():
                        if notify.channel == "bds_catalog":
                            self.catalog = await asyncio.to_thread(_load_catalog, self.url)
                        self._call_back(notify.channel, notify.payload)
            except psycopg.Error as error:
                log.warning("the listening connection was lost: %s", type(error).__name__)
                self._lost = True
            finally:
                self._hears = False
            await asyncio.sleep(RECONNECT)

    def _call_back(self, channel: str, payload: str) -> None:
        for callback in self._callbacks[channel]:
            callback(payload)


def _load_catalog(url: str) -> Catalog:
    with connect(url) as connection:
        return read_catalog(connection)
