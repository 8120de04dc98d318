"""Connections outside the pools: for commands and imports; the address of the database in use; the catalog as it is now."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.pq import PGconn, Ping
from psycopg.rows import tuple_row

from app.config import Config
from app.database import embedded, migrate
from app.database.caller import COMMAND
from app.database.catalog import MODEL, Catalog
from app.database.pool.listening import RECONNECT
from app.database.pool.pools import IDLE_TIMEOUT, SETTINGS, configure, parameters
from app.database.servers.directory import HOME, PLACES
from app.errors import ServiceError

log = logging.getLogger("bds.db")

URL: LiteralString = "select p.url from bds.directory d join bds.places p on p.name = d.place where d.company_id = %s"
ENTRY: LiteralString = """
    select p.url, d.phase is not distinct from 'departing'
    from bds.directory d join bds.places p on p.name = d.place where d.company_id = %s
"""
CLOCK: LiteralString = "select from bds.clocks where company_id = %s"  # also of a company that is departing, which is read here
DEPARTURE = 10.0  # seconds that a write waits for a company that is between two places
DIRECTORY_POLL = 0.05  # seconds between two looks at the directory meanwhile
STARTING = "the database is starting or recovering from a crash; waiting for it"


def resolve(config: Config) -> str:
    """The connection string of the database in use, past a transaction pooler, so that a session keeps its settings.

    Without BDS_DATABASE_URL the embedded server is started and migrated.  Raises ValueError if a setting is missing.
    """
    if config.pooler == "transaction":
        if not (config.database_url and config.listen_database_url):
            raise ValueError("BDS_POOLER=transaction: expected BDS_DATABASE_URL, and BDS_LISTEN_DATABASE_URL past the pooler")
        return config.listen_database_url
    if config.database_url:
        return config.database_url
    url = embedded.start(config.data_dir)
    if not migrate.is_current(url):
        try:
            migrate.migrate(url)
        except migrate.BrokenEntities as error:  # the others work
            log.warning("%s", error)
    return url


def urls_of_places(config: Config) -> dict[str, str]:
    """The connection strings of all places by name, home first."""
    home = resolve(config)
    with connect(home) as connection:
        return {HOME: home} | dict(connection.execute(PLACES).fetchall())


def resolve_company(config: Config, company: str) -> str:
    """The connection string of the place where a company lives; that of home if there is no such company."""
    return url_of_company(resolve(config), company)


def url_of_company(home: str, company: str) -> str:
    """The same from the directory of a home that has been resolved."""
    with connect(home) as connection:
        return one_value(connection, URL, company) or home


def resolve_again(config: Config, company: str, former: str, error: psycopg.Error) -> str:
    """The connection string of a company's place after `former` has refused it with `error`, as a place does that it has left.

    Waits up to DEPARTURE seconds for a company that is between two places.  Raises ServiceError(busy) after them; the error, if the
    company has not moved.
    """
    if error.sqlstate != "BD002":
        raise error
    home, deadline, has_waited = resolve(config), time.monotonic() + DEPARTURE, False
    with connect(home) as connection:
        while True:
            url, is_departing = connection.execute(ENTRY, (company,)).fetchone() or (None, False)
            if not is_departing:
                break
            if time.monotonic() > deadline:
                raise still_moving()
            has_waited = True
            time.sleep(DIRECTORY_POLL)
    if (url or home) == former and not has_waited:
        raise error
    return url or home


def still_moving() -> ServiceError:
    message = "the company is being moved to another place; if it stays so: bds company move --resume, or bds node rebalance"
    return ServiceError("moving", message, headers={"Retry-After": "5"})


def connect(url: str, role: LiteralString | None = None) -> psycopg.Connection[Any]:
    """Open a synchronous connection in autocommit mode that acts as `role`, for commands and imports.

    Waits for a server that starts or recovers from a crash.
    """
    start = Start(url)
    while True:
        try:
            connection = psycopg.connect(url, autocommit=True, **parameters(url))
            break
        except psycopg.OperationalError:
            if not start.goes_on():
                raise
            time.sleep(RECONNECT)
    configure(connection)
    connection.execute(sql.SQL("select " + IDLE_TIMEOUT).format(False))
    if user := COMMAND.get():
        connection.execute("select set_config('bds.actor', %s, false)", (user,))
    if role:
        connection.execute(f"set role {role}")
    return connection


def one_row(connection: psycopg.Connection[Any], statement: LiteralString, *values: Any, **named: Any) -> tuple[Any, ...]:
    """The row of a statement that gives one."""
    row = connection.execute(statement, named or values or None).fetchone()
    assert row is not None
    return tuple(row)


def one_value(connection: psycopg.Connection[Any], statement: LiteralString, *values: Any, **named: Any) -> Any:
    """The first column of the first row; None if there is none."""
    row = connection.execute(statement, named or values or None).fetchone()
    return row[0] if row else None


class Start:
    """The start of a server that refuses connections meanwhile, as it does while it ends or recovers from a crash.

    libpq tells that by SQLSTATE; psycopg has only the message, which depends on the server's language.
    """

    def __init__(self, url: str) -> None:
        self._url = url.encode()
        self._is_waited_for = False
        self._is_ready = False

    def goes_on(self) -> bool:
        """Whether a connection that was just refused is to be tried again: a server may also become ready after it has refused."""
        was_ready, ping = self._is_ready, PGconn.ping(self._url)
        self._is_ready = ping == Ping.OK
        if ping == Ping.REJECT and not self._is_waited_for:
            log.warning(STARTING)
            self._is_waited_for = True
        return ping == Ping.REJECT or (self._is_ready and not was_ready)


def read_catalog(connection: psycopg.Connection[Any]) -> Catalog:
    """Read the catalog from the registry."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(MODEL).fetchone()
        assert row is not None
        return Catalog.from_rows(*row)


@contextlib.asynccontextmanager
async def snapshot(url: str, company: str) -> AsyncIterator[tuple[psycopg.AsyncConnection[Any], Catalog]]:
    """Yield (a reader's connection bound to `company`, in a transaction with one snapshot; the catalog), for commands.

    Raises psycopg.Error (BD002) for a company whose rows are not there.
    """
    catalog = await load_catalog(url)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, **parameters(url)) as connection:
        await connection.execute("begin isolation level repeatable read, read only")
        if await (await connection.execute(CLOCK, (company,))).fetchone() is None:
            await connection.execute("select bds.set_context(%s)", (company,))  # raises, and tells why
        for name, value in {"role": "bds_reader", **SETTINGS, "bds.company": company}.items():
            await connection.execute("select set_config(%s, %s, true)", (name, value))
        yield connection, catalog


async def load_catalog(url: str) -> Catalog:
    """Read the catalog; unlike read_catalog it can be cancelled while the database does not answer."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, **parameters(url)) as connection:
        row = await (await connection.execute(MODEL)).fetchone()
        assert row is not None
        return await asyncio.to_thread(Catalog.from_rows, *row)
