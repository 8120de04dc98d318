"""Connections outside the pools: for commands and imports; the address of the database in use; the catalog as it is now."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, LiteralString

import psycopg
from psycopg.rows import tuple_row

from app.config import Config
from app.database import embedded, migrate
from app.database.catalog import MODEL, Catalog
from app.database.pools import parameters
from app.errors import ServiceError


def resolve(config: Config) -> str:
    """The connection string of the database in use, past a transaction pooler: what is done there may rely on its session.

    Without one in the configuration, of the embedded one, started and migrated.  Raises ValueError if a setting is missing.
    """
    if config.pooler == "transaction":
        if not (config.database_url and config.listen_database_url):
            raise ValueError("BDS_POOLER=transaction: expected BDS_DATABASE_URL, and BDS_LISTEN_DATABASE_URL past the pooler")
        return config.listen_database_url
    if config.database_url:
        return config.database_url
    url = embedded.start(config.data_dir)
    if not migrate.is_current(url):
        migrate.migrate(url)
    return url


def connect(url: str, role: LiteralString | None = None) -> psycopg.Connection[Any]:
    """A synchronous connection in autocommit mode, for commands and imports, acting as `role`."""
    connection = psycopg.connect(url, autocommit=True, **parameters(url))
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
    catalog = await load_catalog(url)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, **parameters(url)) as connection:
        await connection.execute("begin isolation level repeatable read, read only")
        for name, value in {"role": "bds_reader", "timezone": "UTC", "jit": "off", "bds.company": company}.items():
            await connection.execute("select set_config(%s, %s, true)", (name, value))
        yield connection, catalog


async def load_catalog(url: str) -> Catalog:
    """The model, read so that whoever waits for it may be told to end, even if the database does not answer."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, **parameters(url)) as connection:
        row = await (await connection.execute(MODEL)).fetchone()
        assert row is not None
        return await asyncio.to_thread(Catalog.from_rows, *row)
