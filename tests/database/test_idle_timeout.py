"""A session of the service that forgets a transaction is ended, so that it does not keep a company's turn or hold vacuum back."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from app.config import Config
from app.database import connections
from app.database.database import Database
from app.database.pool.pools import Pool
from tests.conftest import Operator

SHOW = "show idle_in_transaction_session_timeout"


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


@pytest.mark.parametrize(("own", "expected"), [(None, "5min"), ("7min", "7min")])
def test_the_service_sets_a_limit_unless_there_is_one(
    operator: Operator, database_url: str, own: str | None, expected: str
) -> None:
    operator.company("acme")
    if own:
        [(name,)] = operator.rows("select current_database()")
        operator.connection.execute(f"alter database {name} set idle_in_transaction_session_timeout = '{own}'".encode())

    async def limits() -> list[str]:
        found = []
        database = await Database.open(Config(database_url=database_url))
        try:
            for session in (
                database.session("acme"),
                database.snapshot("acme"),
                database.service(),
                database.place("acme").worker(),
            ):
                async with session as connection:
                    found.append((await (await connection.execute(SHOW)).fetchone() or ("",))[0])
        finally:
            await database.close()
        pooled = Pool(
            Config(database_url=database_url, listen_database_url=database_url, pooler="transaction"), database_url, "bds_worker", 1
        )
        await pooled.open()
        async with pooled.use() as connection:
            found.append((await (await connection.execute(SHOW)).fetchone() or ("",))[0])
        await pooled.close()
        return found

    assert asyncio.run(limits()) == [expected] * 5
    with connections.connect(database_url, "bds_writer") as writer:
        assert writer.execute(SHOW).fetchone() == (expected,)


def test_a_limit_that_is_over_ends_the_session_and_its_turn(operator: Operator, database_url: str) -> None:
    operator.company("acme")
    with connections.connect(database_url, "bds_writer") as forgotten:
        forgotten.execute("set idle_in_transaction_session_timeout = '10ms'")
        forgotten.execute("begin")
        forgotten.execute("select bds.set_context('acme'), bds.lock_company('acme')")
        while operator.rows("select company_id from bds.turns"):
            pass
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            forgotten.execute("select 1")
