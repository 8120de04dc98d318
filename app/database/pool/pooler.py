"""Checks that the configuration names the pooler in front of the database.

Behind a transaction pooler each transaction may run in another server process, with the role and the company that an earlier
transaction has set there.  So a session may keep nothing beyond a transaction, and the service must know of the pooler.  The check:
a pooler invents the process number that a client gets when it connects, so it differs from pg_backend_pid().
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from app.config import Config

ROUNDS = 3
SECOND_CONNECTION_TIMEOUT = 5.0  # seconds to wait for a pooler that has no second connection
CONNECT_TIMEOUT = 10  # seconds, unless the connection string sets one


class PoolerError(ValueError):
    """The configuration does not fit the pooler in front of the database."""


def is_direct(connection: psycopg.AsyncConnection[Any], process: int) -> bool:
    """Whether `process`, which answered, is the one announced when connecting."""
    return connection.info.backend_pid == process


async def _connect(url: str, **settings: Any) -> psycopg.AsyncConnection[Any]:
    if "connect_timeout" not in conninfo_to_dict(url):
        settings["connect_timeout"] = CONNECT_TIMEOUT
    return await psycopg.AsyncConnection.connect(url, autocommit=True, **settings)


async def server_process(connection: psycopg.AsyncConnection[Any]) -> int:
    """The pid of the server process that answers."""
    row = await (await connection.execute("select pg_backend_pid()", prepare=False)).fetchone()
    assert row is not None
    return int(row[0])


async def check(config: Config, url: str) -> None:
    """Raise PoolerError unless the configuration names the pooler in front of each of its databases."""
    pooled = [("BDS_DATABASE_URL", config.database_url or url)]
    pooled += [("BDS_READ_DATABASE_URL", url) for url in config.read_database_urls if await _answers(url)]
    for name, each in pooled:
        if config.pooler == "none":
            await _require_direct(name, each)
        elif config.pooler == "session" and await shares_processes(each):
            raise PoolerError(
                f"{name} leads to a pooler that gives each transaction another connection: expected BDS_POOLER=transaction,"
                " and BDS_LISTEN_DATABASE_URL past the pooler"
            )
        elif config.pooler == "transaction" and config.prepares and not await keeps_prepared(each):
            raise PoolerError(f"{name} leads to a pooler that loses prepared statements: expected BDS_PREPARED_STATEMENTS=false")
    if config.listen_database_url and await shares_processes(config.listen_database_url):
        raise PoolerError(
            "BDS_LISTEN_DATABASE_URL leads to a transaction pooler, where LISTEN does not work: expected the database itself"
        )


async def _answers(url: str) -> bool:
    """Whether a replica answers; one that is away is checked when the service connects to it."""
    try:
        await (await _connect(url)).close()
    except psycopg.OperationalError:
        return False
    return True


async def _require_direct(name: str, url: str) -> None:
    async with await _connect(url, prepare_threshold=None) as connection:
        if not is_direct(connection, await server_process(connection)):
            raise PoolerError(unnamed_pooler(name))


def unnamed_pooler(name: str) -> str:
    """The error for a pooler that BDS_POOLER does not name."""
    return (
        f"{name} leads to a pooler: expected BDS_POOLER=transaction, and BDS_LISTEN_DATABASE_URL past the pooler;"
        " or BDS_POOLER=session if it keeps a connection for each client"
    )


async def shares_processes(url: str) -> bool:
    """Whether connections share server processes from one transaction to the next."""
    async with await _connect(url, prepare_threshold=None) as one:
        if is_direct(one, await server_process(one)):
            return False
        try:
            async with asyncio.timeout(SECOND_CONNECTION_TIMEOUT), await _connect(url, prepare_threshold=None) as other:
                for _ in range(ROUNDS):
                    mine = await server_process(one)
                    async with other.transaction():
                        if mine == await server_process(other) or mine != await server_process(one):
                            return True
        except TimeoutError:  # the pooler has one server connection, which the first client holds
            return True
    return False


async def keeps_prepared(url: str) -> bool:
    """Whether a prepared statement still works when another server process runs it."""
    async with await _connect(url) as one, await _connect(url) as other:
        try:
            for _ in range(ROUNDS):
                await one.execute("select pg_backend_pid()", prepare=True)
                async with asyncio.timeout(SECOND_CONNECTION_TIMEOUT), other.transaction():
                    await server_process(other)
                    await one.execute("select pg_backend_pid()", prepare=True)
        except (psycopg.Error, TimeoutError) as error:
            return isinstance(error, TimeoutError)
    return True
