"""Small reads on standing connections, and of the past: whose rows they see, what they prepare, and every way in which they fail."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import uvloop
from psycopg_pool import PoolClosed, PoolTimeout

from app.config import Config
from app.database import connections, past
from app.database.pool import direct, pools, session, standing
from app.database.pool.pools import Pool
from app.database.pool.session import STEADY, Row
from app.errors import ServiceError
from app.query.check.options import parse_query
from app.query.sql import statements
from tests.conftest import Operator
from tests.service.serving import wait_until

PID = b"select pg_backend_pid()::text"
SLEEP = b"select pg_backend_pid()::text, pg_sleep(60)::text"
COMPANIES = ("acme", "beta", "corner", "delta", "echo")


@pytest.fixture(scope="module")
def template(of_products: str) -> str:
    return of_products


@asynccontextmanager
async def opened(url: str, size: int = 1, **settings: Any) -> AsyncIterator[Pool]:
    pool = Pool(Config(database_url=url, **settings), url, "bds_reader", size)
    await pool.open(wait=True)
    try:
        yield pool
    finally:
        await pool.close()


def with_pool(url: str, work: Callable[[Pool], Awaitable[None]], size: int = 1, **settings: Any) -> None:
    """Run work with a pool, in the event loop of the service."""

    async def run() -> None:
        async with opened(url, size, **settings) as pool:
            await work(pool)

    uvloop.run(run())


async def pid_of(pool: Pool) -> int:
    return int((await pool.read("acme", PID, ()))[0] or 0)


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition)


def running_queries(operator: Operator) -> list[tuple[int]]:
    return operator.rows(
        "select pid from pg_stat_activity where datname = current_database() and state = 'active' and strpos(query, 'pg_sleep') > 0"
        " and pid <> pg_backend_pid()"
    )


def end_backend(operator: Operator, pid: int) -> None:
    """End a backend, and wait until it is gone."""
    operator.rows("select pg_terminate_backend(%s::int)", (pid,))
    wait_until(lambda: not operator.rows("select from pg_stat_activity where pid = %s", (pid,)))


# Companies ------------------------------------------------------------------------------------------------------------------------


def test_concurrent_reads_see_only_their_company_even_if_some_are_cancelled(operator: Operator, database_url: str) -> None:
    for company in COMPANIES:
        operator.company(company)
        operator.write(company, "insert into data.products (code, name) values ('A', %s)", (company,))
    statement = b"select current_setting('bds.company'), string_agg(name, ',') from api.products where $1::text <> ''"
    seen: list[tuple[str, Row]] = []

    async def work(pool: Pool) -> None:
        chance = random.Random(7)

        async def ask() -> None:
            for _ in range(150):
                company = chance.choice(COMPANIES)
                asking = asyncio.create_task(pool.read(company, statement, ("x",)))
                if chance.random() < 0.3:
                    for _ in range(chance.randrange(6)):
                        await asyncio.sleep(0)
                    asking.cancel()
                (row,) = await asyncio.gather(asking, return_exceptions=True)
                if not isinstance(row, asyncio.CancelledError):
                    assert isinstance(row, list), row
                    seen.append((company, row))

        await asyncio.gather(*(ask() for _ in range(8)))

    with_pool(database_url, work, size=3)
    assert len(seen) > 600
    assert [each for each in seen if each[1] != [each[0].encode()] * 2] == []


def test_a_company_whose_naming_failed_is_named_again(operator: Operator, database_url: str) -> None:
    async def work(pool: Pool) -> None:
        statement = b"select current_setting('bds.company')"
        assert await pool.read("acme", statement, ()) == [b"acme"]
        with pytest.raises(psycopg.DataError):
            await pool.read("be\0ta", statement, ())
        assert await pool.read("acme", statement, ()) == [b"acme"]

    with_pool(database_url, work)


def test_standing_connections_read_with_the_rights_and_settings_of_the_pool(operator: Operator, database_url: str) -> None:
    async def work(pool: Pool) -> None:
        row = await pool.read("acme", b"select current_user, current_setting('timezone'), current_setting('statement_timeout')", ())
        assert row == [b"bds_reader", b"UTC", b"7s"]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await pool.read("acme", b"select count(*) from data.products", ())
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await pool.read("acme", b"create temporary table t ()", ())

    with_pool(database_url, work, statement_timeout=7)


# Statements -----------------------------------------------------------------------------------------------------------------------

PREPARED = b"select count(*)::text from pg_prepared_statements where name like 'bds%'"


def test_a_statement_is_prepared_at_its_second_use_and_some_are_kept(database_url: str) -> None:
    async def work(pool: Pool) -> None:
        counts = [await pool.read("acme", PREPARED, ()) for _ in range(4)]
        assert counts == [[b"0"], [b"1"], [b"1"], [b"1"]]
        for number in range(session.PREPARED * 2):
            for _ in range(2):
                assert await pool.read("acme", b"select $1 || '%d'" % number, ("a",)) == [b"a%d" % number]
        ((count),) = await pool.read("acme", PREPARED, (), prepare=False)
        assert int(count or 0) == session.PREPARED

    with_pool(database_url, work)


def test_nothing_is_prepared_if_the_configuration_or_the_caller_says_so(database_url: str) -> None:
    async def work(pool: Pool) -> None:
        assert [await pool.read("acme", PREPARED, (), prepare=False) for _ in range(3)] == [[b"0"]] * 3

    async def none(pool: Pool) -> None:
        assert [await pool.read("acme", PREPARED, ()) for _ in range(3)] == [[b"0"]] * 3

    with_pool(database_url, work)
    with_pool(database_url, none, prepared_statements="false")


def test_a_prepared_statement_whose_result_has_another_type_is_planned_anew(operator: Operator, database_url: str) -> None:
    operator.connection.execute("create table public.shape (a int); grant select on public.shape to bds_reader")
    operator.connection.execute("insert into public.shape values (1)")

    async def work(pool: Pool) -> None:
        statement = b"select a from public.shape"
        assert [await pool.read("acme", statement, ()) for _ in range(3)] == [[b"1"]] * 3
        operator.connection.execute("alter table public.shape alter a type text using 'one'")
        assert [await pool.read("acme", statement, ()) for _ in range(3)] == [[b"one"]] * 3

    with_pool(database_url, work)


def test_statements_that_psycopg_has_dropped_after_a_rollback_are_prepared_again(database_url: str) -> None:
    async def work(pool: Pool) -> None:
        pid = await pid_of(pool)
        assert await pid_of(pool) == pid
        async with pool.snapshot("acme") as connection:
            await connection.execute("savepoint part")
            await connection.execute("select", prepare=True)
            await connection.execute("rollback to savepoint part")
            await connection.execute("select")
        assert [await pid_of(pool) for _ in range(3)] == [pid] * 3

    with_pool(database_url, work)


def test_values_arrive_as_they_are(database_url: str) -> None:
    long = "ä" * 3_000_000  # more than the socket takes at once

    async def work(pool: Pool) -> None:
        parts = ['a"b', "a\\b", "a,b", "{}", "NULL", "", "ä"]
        assert await pool.read("acme", b"select array_to_string($1::text[], '|')", (parts,)) == ["|".join(parts).encode()]
        assert await pool.read("acme", b"select $1::text, null, $2::int8 + 1", (long, "41")) == [long.encode(), None, b"42"]

    with_pool(database_url, work)


@pytest.mark.parametrize(
    ("statement", "values", "error"),
    [
        (b"select 1/$1::int", ("0",), psycopg.errors.DivisionByZero),
        (b"select a from nowhere where $1 = ''", ("",), psycopg.errors.UndefinedTable),
        (b"select $1::int", ("a",), psycopg.errors.InvalidTextRepresentation),
        (b"select $1", ("a\0b",), psycopg.DataError),
    ],
)
def test_after_an_error_the_connection_serves_on(
    database_url: str, statement: bytes, values: tuple[str], error: type[Exception]
) -> None:
    async def work(pool: Pool) -> None:
        pid = await pid_of(pool)
        for _ in range(3):
            with pytest.raises(error):
                await pool.read("acme", statement, values)
        assert await pid_of(pool) == pid

    with_pool(database_url, work)


# Cancellation and lost connections ------------------------------------------------------------------------------------------------


def test_the_query_of_a_cancelled_read_is_cancelled_and_its_connection_serves_again(operator: Operator, database_url: str) -> None:
    async def work(pool: Pool) -> None:
        pid = await pid_of(pool)
        reading = asyncio.create_task(pool.read("acme", SLEEP, ()))
        await until(lambda: running_queries(operator) == [(pid,)])
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await pid_of(pool) == pid
        assert running_queries(operator) == []

    with_pool(database_url, work)


def test_a_backend_that_does_not_cancel_is_given_up(operator: Operator, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "CANCEL_TIMEOUT", 0.2)

    async def work(pool: Pool) -> None:
        pid = await pid_of(pool)
        reading = asyncio.create_task(pool.read("acme", SLEEP, ()))
        await until(lambda: running_queries(operator) == [(pid,)])
        os.kill(pid, signal.SIGSTOP)
        try:
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert await pid_of(pool) != pid
        finally:
            os.kill(pid, signal.SIGCONT)

    with_pool(database_url, work)


def test_a_query_that_takes_too_long_is_ended_and_its_connection_serves_again(database_url: str) -> None:
    async def work(pool: Pool) -> None:
        pid = await pid_of(pool)
        with pytest.raises(psycopg.errors.QueryCanceled):
            await pool.read("acme", SLEEP, ())
        assert await pid_of(pool) == pid

    with_pool(database_url, work, statement_timeout=1)


@pytest.mark.parametrize("is_noticed", [False, True])
def test_a_backend_that_has_ended_while_idle_is_replaced_before_a_read(
    operator: Operator, database_url: str, is_noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "FRESH", 0.0)  # the backend ends sooner after its last answer than any client asks again

    async def work(pool: Pool) -> None:
        for _ in range(5):
            pid = await pid_of(pool)
            end_backend(operator, pid)  # the event loop does not run meanwhile
            if is_noticed:
                while pool._standing._idle:
                    await asyncio.sleep(0.01)
            assert await pid_of(pool) != pid

    with_pool(database_url, work)


def test_a_read_whose_backend_ends_fails_and_the_next_one_does_not(operator: Operator, database_url: str) -> None:
    async def work(pool: Pool) -> None:
        pid = await pid_of(pool)
        reading = asyncio.create_task(pool.read("acme", SLEEP, ()))
        await until(lambda: running_queries(operator) == [(pid,)])
        end_backend(operator, pid)
        with pytest.raises(psycopg.OperationalError):
            await reading
        assert await pid_of(pool) != pid

    with_pool(database_url, work)


def test_a_read_whose_connection_breaks_fails_and_the_next_one_does_not(operator: Operator, database_url: str) -> None:
    async def work(pool: Pool) -> None:
        await pid_of(pool)
        connection = next(iter(pool._standing._all))
        reading = asyncio.create_task(pool.read("acme", SLEEP, ()))
        await until(lambda: running_queries(operator) != [])
        with socket.socket(fileno=os.dup(connection.session.pgconn.socket)) as broken:
            broken.shutdown(socket.SHUT_RDWR)
        with pytest.raises(psycopg.OperationalError):
            await reading
        assert await pid_of(pool) > 0

    with_pool(database_url, work)


# The pool -------------------------------------------------------------------------------------------------------------------------


def test_reads_and_transactions_share_the_connections_of_the_pool(operator: Operator, database_url: str) -> None:
    async def work(pool: Pool) -> None:
        async def read() -> None:
            for _ in range(20):
                await pid_of(pool)

        async def transact() -> None:
            for _ in range(20):
                async with pool.snapshot("acme") as connection:
                    await connection.execute("select")
                    await asyncio.sleep(0)

        await asyncio.gather(*(each() for each in (read, transact) * 6))
        sessions = operator.rows(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        assert sessions[0][0] <= 2

    with_pool(database_url, work, size=2)


def test_a_read_waits_for_a_connection_and_not_forever(
    operator: Operator, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(pool: Pool) -> None:
        async with pool.session("acme"):
            waiting = asyncio.create_task(pid_of(pool))
            while not pool.stats()["requests_waiting"]:
                await asyncio.sleep(0)
        assert await waiting > 0
        before = pool.stats()
        monkeypatch.setattr(pools, "WAIT", 0.2)
        async with pool.session("acme"):
            with pytest.raises(PoolTimeout):
                await pid_of(pool)
        assert await pid_of(pool) > 0
        after = pool.stats()
        assert after["requests_errors"] > before["requests_errors"]
        assert after["requests_wait_ms"] > before["requests_wait_ms"] + 100

    with_pool(database_url, work)


def test_reads_that_wait_get_connections_in_turn_even_if_some_give_up(database_url: str) -> None:
    async def work(pool: Pool) -> None:
        chance = random.Random(11)
        reads = [asyncio.create_task(pid_of(pool)) for _ in range(300)]
        for _ in range(100):
            chance.choice(reads).cancel()
            await asyncio.sleep(0)
        results = await asyncio.gather(*reads, return_exceptions=True)
        assert all(isinstance(each, int | asyncio.CancelledError) for each in results)
        assert await pid_of(pool) > 0

        def is_idle() -> bool:
            stats = pool.stats()
            return (stats["requests_waiting"], stats["pool_available"]) == (0, stats["pool_size"])

        await until(is_idle)  # the last cancelled query may still be ending

    with_pool(database_url, work, size=2)


def test_connections_go_back_after_their_lease(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "LEASE", 0.05)

    async def work(pool: Pool) -> None:
        pid = await pid_of(pool)
        while pool._standing._idle:
            await asyncio.sleep(0.01)
        assert await pid_of(pool) == pid, "from the pool, which has kept it"

    with_pool(database_url, work)


def test_a_pool_that_closes_refuses_the_reads_that_wait(database_url: str) -> None:
    async def work(pool: Pool) -> None:
        async with pool.session("acme"):
            waiting = asyncio.create_task(pid_of(pool))
            while not pool.stats()["requests_waiting"]:
                await asyncio.sleep(0)
            await pool.close()
            with pytest.raises(PoolClosed):
                await waiting
        with pytest.raises(PoolClosed):
            await pid_of(pool)

    with_pool(database_url, work)


# Shared runs ----------------------------------------------------------------------------------------------------------------------


def test_a_shared_run_answers_only_requests_that_came_before_it(operator: Operator, database_url: str) -> None:
    """Each request that comes after a commit must see it, though most requests share a run with others."""
    operator.connection.execute("create table public.clock (tick int); grant select on public.clock to bds_reader")
    operator.connection.execute("insert into public.clock values (0)")
    statement = b"select tick::text from public.clock"
    runs = 0

    async def work(pool: Pool) -> None:
        nonlocal runs
        run = pool._standing.read

        async def counted(*arguments: Any, **named: Any) -> Row:
            nonlocal runs
            runs += 1
            return await run(*arguments, **named)

        pool._standing.read = counted  # type: ignore[method-assign]
        ticks = 0

        async def ask() -> None:
            for _ in range(100):
                before = ticks
                ((tick,),) = [await pool.read("acme", statement, (), share=True)]
                assert int(tick or 0) >= before

        async def write() -> None:
            nonlocal ticks
            async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as writer:
                for number in range(1, 100):
                    await writer.execute("update public.clock set tick = %s", (number,))
                    ticks = number

        await asyncio.gather(write(), *(ask() for _ in range(16)))

    with_pool(database_url, work, size=4)
    assert runs < 800, "of 1,600 requests"


def test_an_error_of_a_shared_run_reaches_all_and_one_that_leaves_stops_nobody(database_url: str) -> None:
    async def work(pool: Pool) -> None:
        failing = [asyncio.create_task(pool.read("acme", b"select 1/0", (), share=True)) for _ in range(5)]
        results = await asyncio.gather(*failing, return_exceptions=True)
        assert [type(each) for each in results] == [psycopg.errors.DivisionByZero] * 5
        reads = [asyncio.create_task(pool.read("acme", PID, (), share=True)) for _ in range(5)]
        await asyncio.sleep(0)
        reads[0].cancel()
        results = await asyncio.gather(*reads, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert len({str(each) for each in results[1:]}) == 1
        assert pool._standing._shared == {}

    with_pool(database_url, work)


def test_a_read_of_the_past_by_id_is_planned_once_for_all_versions_and_leaves_no_setting(
    database_url: str, operator: Operator
) -> None:
    operator.company("acme")
    for statement in (
        "insert into data.products (code, name) values ('a', 'one')",
        *("update data.products set name = name || '.'",) * 3,
    ):
        operator.write("acme", statement)
    plans = "select count(*)::int, sum(generic_plans)::int, sum(custom_plans)::int from pg_prepared_statements where statement ~ 'past[.\"]'"
    settings = "select current_setting('plan_cache_mode'), current_setting('enable_seqscan'), current_setting('enable_bitmapscan')"
    with connections.connect(database_url, "bds_reader") as connection:
        catalog = past.model_of(connections.read_catalog(connection))

    async def work(pool: Pool) -> None:
        async with pool.session("acme") as session:

            async def read(version: int, *options: tuple[str, str], key: str | None = None) -> Any:
                query = parse_query(catalog, catalog["products"], options, key=key)
                text = statements.page(query, "acme")
                assert text.is_steady
                row = await past.read_past(
                    session, "acme", past.Moment(version=version), text.text, text.values, is_steady=text.is_steady
                )
                return json.loads(b"[%b]" % (row[0] or b""))

            for key in ("1", "code='a'"):
                assert [(await read(version, key=key))[0]["name"] for version in (4, 1, 3, 2)] == ["one...", "one", "one..", "one."]
            assert await (await session.execute(plans)).fetchone() == (2, 6, 0)
            for top in [n for n in range(1, STEADY + 3) for _ in range(2)]:
                assert [row["name"] for row in await read(2, ("$top", str(top)))] == ["one."]
            assert await (await session.execute(plans)).fetchone() == (STEADY - 2, STEADY - 2, 0)
            with pytest.raises(ServiceError):
                await read(5, key="1")
            assert await (await session.execute(settings)).fetchone() == ("auto", "on", "on")

    with_pool(database_url, work)
