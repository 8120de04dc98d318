"""`bds follow`: prints a company's changes as they commit, from the database, without a server."""

from __future__ import annotations

import asyncio
import contextlib
import signal

import psycopg

from app.changes.page import condition, read_page, read_start
from app.cli import stdio
from app.cli.remote import tell_generation
from app.config import Config
from app.database import connections
from app.database.catalog import Catalog
from app.database.pool.listening import RECONNECT, listen
from app.database.pool.pools import SETTINGS, parameters
from app.database.pool.session import Session
from app.errors import ServiceError, hint
from app.tasks import cancel_and_wait, in_daemon, interruptible
from app.types.event_ids import Event

UNNOTIFIED_POLL = 10.0  # seconds after which it looks for changes without a notification
WATCH = 1.0  # seconds between two checks that standard output has a reader


def run(url: str, config: Config, company: str, entity: str | None, after: Event | None) -> None:
    """Print records until a signal, or until the reader of standard output has left.

    Raises ServiceError if there is no such company, entity or change, and psycopg.Error if the database cannot be reached.
    """
    with interruptible(signal.SIGINT), contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(Follower(url, connections.resolve(config), config.listen_database_url, company).follow(entity, after))


class _MovedError(Exception):
    """The company lives at another place now."""


class Follower:
    """Follows one company, from the last change that was printed or skipped, to another place, too."""

    def __init__(self, url: str, home: str, home_listening: str | None, company: str) -> None:
        """home_listening: where to listen at home, unless as for reads."""
        self._url, self._home, self._home_listening, self._company = url, home, home_listening, company
        self._position: int | None = None
        self._generation = 1
        self._filter: str = ""
        self._woken = asyncio.Event()

    async def follow(self, entity: str | None, after: Event | None) -> None:
        """Follow until cancelled.  Waits for a database that does not answer, except at the start."""
        await self._begin(entity, after)
        while True:
            tasks = [asyncio.create_task(each) for each in (self._listen(), self._print(), _until_closed())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
                return
            except _MovedError:
                pass
            finally:
                await cancel_and_wait(*tasks)

    async def _begin(self, entity: str | None, after: Event | None) -> None:
        catalog = await connections.load_catalog(self._url)
        if entity is not None and entity not in catalog:
            raise ServiceError("not_found", f"no such entity: {entity}{hint(entity, catalog.entities)}")
        self._filter = f"entity = '{entity}'" if entity else ""
        with connections.connect(self._url) as operator:
            if operator.execute("select 1 from bds.companies where id = %s", (self._company,)).fetchone() is None:
                raise ServiceError("not_found", f"no such company: {self._company!r}")
        async with await self._connect() as connection:
            self._position, _, self._generation = await read_start(connection, self._company, after, "--after")
        tell_generation(self._generation)

    async def _connect(self) -> Session:
        connection = await Session.connect(self._url, autocommit=True, **parameters(self._url, "bds follow"))
        for name, value in {"role": "bds_reader", **SETTINGS, "bds.company": self._company}.items():
            await connection.execute("select set_config(%s, %s, false)", (name, value))
        return connection

    async def _listen(self) -> None:
        url = self._home_listening if self._url == self._home else None
        async for notify in listen(url or self._url, "bds_changes"):
            if notify is None or notify.payload == self._company:
                self._woken.set()

    async def _print(self) -> None:
        is_away = False
        while True:
            try:
                catalog = await connections.load_catalog(self._url)
                async with await self._connect() as connection:
                    is_away = False
                    while True:
                        self._woken.clear()
                        await self._print_new(connection, catalog)
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(UNNOTIFIED_POLL):
                                await self._woken.wait()
            except psycopg.Error:
                if not is_away:
                    stdio.message("bds: the database does not answer; waiting for it")
                is_away = True
                await self._look_elsewhere()
                await asyncio.sleep(RECONNECT)

    async def _print_new(self, connection: Session, catalog: Catalog) -> None:
        """Print new changes.  Raises ServiceError if the log does not continue at the position, BrokenPipeError."""
        assert self._position is not None
        filter = condition(catalog, self._filter)
        while True:
            page = await read_page(connection, catalog, self._company, self._position, filter)
            if page.last < self._position or page.generation != self._generation:
                await self._look_elsewhere()
                seen = Event(self._position, self._generation)
                raise ServiceError("gone", f"the log of {self._company} does not go on after {seen}: it was deleted or restored")
            if page.records:
                stdio.write("".join(f"{record.text.decode()}\n" for record in page.records))
            self._position = page.through
            if page.through >= page.last:
                return

    async def _look_elsewhere(self) -> None:
        """Raises _MovedError if the company lives at another place."""
        with contextlib.suppress(psycopg.Error):
            url = await in_daemon(lambda: connections.url_of_company(self._home, self._company))
            if url != self._url:
                self._url = url
                raise _MovedError


async def _until_closed() -> None:
    """Return when standard output has no reader, even if nothing is written to it."""
    while stdio.is_read():
        await asyncio.sleep(WATCH)
