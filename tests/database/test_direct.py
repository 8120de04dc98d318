"""A connection that is used with libpq itself for a while, as streams use theirs, and by psycopg afterwards."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import ANY

import psycopg
import pytest
import uvloop
from psycopg.pq import ExecStatus

from app.database.pool import direct as direct_connections
from app.database.pool.direct import DirectConnection, error_of, row_of
from app.database.pool.session import Session, Statements
from tests.conftest import Operator
from tests.service.serving import wait_until

PATIENCE = 60.0  # seconds


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


def with_session(url: str, work: Callable[[Session, list[dict[str, Any]]], Awaitable[None]]) -> None:
    """Run work with a connection, in the event loop of the service; it gets the errors that the loop has met, too."""

    async def run() -> None:
        failures: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        session = await Session.connect(url, autocommit=True)
        try:
            async with asyncio.timeout(PATIENCE):
                await work(session, failures)
        finally:
            await session.close()

    uvloop.run(run())


async def one(session: Session) -> Any:
    return await (await session.execute("select 1")).fetchone()


async def end_backend(operator: Operator, pid: int) -> None:
    operator.rows("select pg_terminate_backend(%s::int)", (pid,))
    gone = "select from pg_stat_activity where pid = %s"
    await asyncio.to_thread(wait_until, lambda: not operator.rows(gone, (pid,)))


def test_a_statement_runs_while_the_one_before_is_used_and_psycopg_goes_on_afterwards(database_url: str) -> None:
    async def work(session: Session, _: object) -> None:
        await session.execute("begin")
        await session.execute("declare rows no scroll cursor for select g from generate_series(1, 7) g")
        direct = DirectConnection(session)
        coming, seen = direct.start(b"fetch forward 3 from rows"), []
        while (result := await direct.result(coming)).ntuples:
            coming = direct.start(b"fetch forward 3 from rows")
            seen.append([result.get_value(row, 0) for row in range(result.ntuples)])
        assert seen == [[b"1", b"2", b"3"], [b"4", b"5", b"6"], [b"7"]]
        direct.detach()
        assert await one(session) == (1,)
        await session.execute("commit")

    with_session(database_url, work)


def test_a_statement_that_is_cancelled_leaves_the_connection_to_psycopg(
    operator: Operator, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_connections, "CANCEL_TIMEOUT", PATIENCE)

    async def work(session: Session, _: object) -> None:
        direct = DirectConnection(session)
        running = asyncio.create_task(direct.run(b"select pg_sleep(600)"))
        sleeps = "select from pg_stat_activity where pid = %s and state = 'active' and wait_event = 'PgSleep'"
        await asyncio.to_thread(wait_until, lambda: bool(operator.rows(sleeps, (session.info.backend_pid,))))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert direct.is_running
        await direct.cancel()
        assert not direct.is_running
        direct.detach()
        assert await one(session) == (1,)

    with_session(database_url, work)


def test_a_cancel_that_is_cancelled_closes_the_connection(database_url: str) -> None:
    async def work(session: Session, _: object) -> None:
        direct = DirectConnection(session)
        direct.start(b"select pg_sleep(600)")
        cancelling = asyncio.create_task(direct.cancel())
        await asyncio.sleep(0)
        cancelling.cancel()
        await asyncio.gather(cancelling, return_exceptions=True)
        assert session.closed

    with_session(database_url, work)


def test_what_the_server_tells_unasked_disturbs_no_later_statement(operator: Operator, database_url: str) -> None:
    async def work(session: Session, failures: list[dict[str, Any]]) -> None:
        await session.execute("listen changed")
        direct = DirectConnection(session)
        operator.rows("select pg_notify('changed', '')")
        while session.pgconn.notifies() is None:
            await asyncio.sleep(0)
        assert (await direct.run(b"select 1")).get_value(0, 0) == b"1"
        direct.detach()
        assert await one(session) == (1,) and not failures

    with_session(database_url, work)


def test_a_backend_that_ends_is_an_error_of_the_next_statement(operator: Operator, database_url: str) -> None:
    async def work(session: Session, failures: list[dict[str, Any]]) -> None:
        direct = DirectConnection(session)
        await end_backend(operator, session.info.backend_pid)
        with pytest.raises(psycopg.OperationalError):
            await direct.run(b"select 1")
        direct.detach()
        assert not failures

    with_session(database_url, work)


def test_a_backend_that_ends_with_something_unread_is_noticed(operator: Operator, database_url: str) -> None:
    async def work(session: Session, failures: list[dict[str, Any]]) -> None:
        direct, pid = DirectConnection(session), session.info.backend_pid
        coming = direct.start(b"select pg_sleep(600)")
        # the event loop stands meanwhile, so it meets the last words and the end of the connection together
        wait_until(lambda: bool(operator.rows("select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'", (pid,))))
        os.write(session.pgconn.socket, b"S\0\0\0\4")  # a Sync, which the backend does not read any more
        operator.rows("select pg_terminate_backend(%s::int, 60000)", (pid,))
        with pytest.raises(psycopg.errors.AdminShutdown):
            await direct.result(coming)
        direct.detach()
        assert not failures

    with_session(database_url, work)


def test_an_error_that_nobody_takes_any_more_is_not_logged(operator: Operator, database_url: str) -> None:
    async def work(session: Session, failures: list[dict[str, Any]]) -> None:
        direct = DirectConnection(session)
        coming = direct.start(b"select pg_sleep(600)")
        await end_backend(operator, session.info.backend_pid)
        while not coming.done():
            await asyncio.sleep(0)
        del coming
        await asyncio.sleep(0)
        assert not failures

    with_session(database_url, work)


def test_statements_of_one_round_trip_tell_their_own_errors_and_are_prepared_anew(operator: Operator, database_url: str) -> None:
    known = Statements(3)
    operator.connection.execute("create table t (n int)")
    operator.connection.execute("insert into t values (1)")

    async def work(session: Session, failures: list[dict[str, Any]]) -> None:
        async def run(*texts: bytes) -> list[Any]:
            found = await direct_connections.run_together(session, [(text, ()) for text in texts], known)
            assert await one(session) == (1,)  # psycopg goes on
            return [row_of(each)[0] if each.status == ExecStatus.TUPLES_OK else error_of(each).sqlstate for each in found]

        for _ in range(3):  # plain, prepared, again
            assert await run(b"select n from t", b"select 2", b"select txid_current()") == [b"1", b"2", ANY]
        assert len(known.prepared()) == 3
        operator.connection.execute("alter table t alter n type text")
        for _ in range(3):
            assert await run(b"select n from t", b"select 2") == [b"1", b"2"]
        assert await run(b"select 1/0", b"select 2") == ["22012", None]
        for _ in range(2):  # an error of its own, which no other plan mends
            assert await run(b"select 2", b"select unknown", b"select 3") == [b"2", "42703", None]
            assert await run(b"select nothing()", b"select 3") == ["42883", None]
            assert await run(b"set constraints t immediate", b"select 3") == ["42704", None]
        with_rows = b"select 1 from (select n from t for update) x group by n for update"  # always 0A000
        for _ in range(3):
            assert (await run(b"select 2", with_rows)) == [b"2", "0A000"]
        names = "select count(*) from pg_prepared_statements where name ~ '^bds_'"
        assert await (await session.execute(names)).fetchone() == (len(known.prepared()),)
        running = asyncio.create_task(direct_connections.run_together(session, [(b"select pg_sleep(600)", ())], known))
        sleeps = "select from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
        await asyncio.to_thread(wait_until, lambda: bool(operator.rows(sleeps, (session.info.backend_pid,))))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await run(b"select 2", b"select 4") == [b"2", b"4"]
        ending = [(b"select 2", ()), (b"select pg_terminate_backend(pg_backend_pid())", ()), (b"select 3", ())]
        with pytest.raises(psycopg.OperationalError):
            await direct_connections.run_together(session, ending, known)
        assert failures == []

    with_session(database_url, work)
