"""Whether a pooler stands before the database, and whether the configuration says so.

A transaction pooler gives every transaction another server process, with whatever the one before has set there: the role, the
company.  So nothing that must hold for longer than a transaction may be kept in a session behind one, and the service must know.
What it is told is checked: a pooler invents the process number that a client is given when it connects.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from app.config import Config

ROUNDS = 3
PATIENCE = 5.0  # seconds, for a pooler that has no second connection to give
REACHED = 10  # seconds in which a database answers who connects, unless its connection string says otherwise


class PoolerError(ValueError):
    """The configuration and what stands before the database do not fit together."""


def is_direct(connection: psycopg.AsyncConnection[Any], process: int) -> bool:
    """Whether the process that was named when connecting is the one that answers."""
    return connection.info.backend_pid == process


async def _connect(url: str, **settings: Any) -> psycopg.AsyncConnection[Any]:
    if "connect_timeout" not in conninfo_to_dict(url):
        settings["connect_timeout"] = REACHED
    return await psycopg.AsyncConnection.connect(url, autocommit=True, **settings)


async def process_of(connection: psycopg.AsyncConnection[Any]) -> int:
    """The server process that answers."""
    row = await (await connection.execute("select pg_backend_pid()", prepare=False)).fetchone()
    assert row is not None
    return int(row[0])


async def check(config: Config, url: str) -> None:
    """Raises PoolerError unless the pooler that the configuration names stands before its databases."""
    pooled = [("BDS_DATABASE_URL", config.database_url or url)]
    if config.read_database_url:
        pooled.append(("BDS_READ_DATABASE_URL", config.read_database_url))
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


async def _require_direct(name: str, url: str) -> None:
    async with await _connect(url, prepare_threshold=None) as connection:
        if not is_direct(connection, await process_of(connection)):
            raise PoolerError(not_direct(name))


def not_direct(name: str) -> str:
    return (
        f"{name} leads to a pooler: expected BDS_POOLER=transaction, and BDS_LISTEN_DATABASE_URL past the pooler;"
        " or BDS_POOLER=session if it keeps a connection for each client"
    )


async def shares_processes(url: str) -> bool:
    """Whether one connection's transactions may meet several server processes, or several connections one."""
    async with await _connect(url, prepare_threshold=None) as one:
        if is_direct(one, await process_of(one)):
            return False
        try:
            async with asyncio.timeout(PATIENCE), await _connect(url, prepare_threshold=None) as other:
                for _ in range(ROUNDS):
                    mine = await process_of(one)
                    async with other.transaction():
                        if mine == await process_of(other) or mine != await process_of(one):
                            return True
        except TimeoutError:  # there is one connection for all: whoever has it, has it
            return True
    return False


async def keeps_prepared(url: str) -> bool:
    """Whether a statement that was prepared is found again by another server process."""
    async with await _connect(url) as one, await _connect(url) as other:
        try:
            for _ in range(ROUNDS):
                await one.execute("select pg_backend_pid()", prepare=True)
                async with asyncio.timeout(PATIENCE), other.transaction():
                    await process_of(other)
                    await one.execute("select pg_backend_pid()", prepare=True)
        except (psycopg.Error, TimeoutError) as error:
            return isinstance(error, TimeoutError)
    return True
