"""A company's turn: which sessions wait, what a session may set, the cost of many statements in one transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import Operator

pytestmark = pytest.mark.slow

UPDATE = "update data.units set name = name || '!' where company_id = 'acme' and code = %s"


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


@pytest.fixture
def acme(operator: Operator) -> Iterator[Operator]:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A'), ('b', 'B')")
    yield operator
    assert_gapless(operator)


def assert_gapless(operator: Operator) -> None:
    """Ids are 1, 2, 3, ...; those of the clock and of the positions are the log's last ones; stamps follow them."""
    for company, last_id in operator.rows("select company_id, last_id from bds.clocks"):
        ids = [row[0] for row in operator.rows("select id from bds.changes where company_id = %s order by id", (company,))]
        assert ids == list(range(1, last_id + 1))
        assert operator.rows(
            "select entity, last_id from bds.positions where company_id = %s order by 1", (company,)
        ) == operator.rows("select entity, max(id) from bds.changes where company_id = %s group by 1 order by 1", (company,))


def in_background(connection: psycopg.Connection, *statements: str) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for statement in statements:
                connection.execute(statement.encode())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def wait_for(operator: Operator, query: str) -> None:
    while operator.rows(query) == [(0,)]:
        pass


WAITING = "select count(*) from pg_locks where not granted"


def test_the_clock_is_found_where_it_was_left_however_many_statements_there_are(acme: Operator) -> None:
    """Through its index each statement would walk over the versions of all statements before it."""
    scans = "select coalesce(idx_scan, 0) from pg_stat_xact_user_tables where relname = 'clocks'"
    with acme.connection.transaction():
        [(before,)] = acme.rows(scans)  # of earlier transactions, not reported yet
        acme.connection.execute("select bds.set_context('acme')")
        for _ in range(200):
            acme.connection.execute(UPDATE, ("a",))
        [(found,)] = acme.rows(scans)
    assert found - before < 5
    assert acme.rows("select count(*) from bds.changes where operation = 'update'") == [(200,)]


def test_ids_and_positions_are_right_after_savepoints_in_several_companies(acme: Operator) -> None:
    acme.company("beta")
    with acme.connection.transaction():
        for number in range(12):
            with acme.connection.transaction(force_rollback=number % 3 == 1):
                for company in ("acme", "beta"):
                    acme.connection.execute(
                        "insert into data.units (company_id, code, name) values (%s, %s, 'x')", (company, f"n{number}")
                    )
                    acme.connection.execute("update data.units set name = name || '.' where company_id = %s", (company,))
    assert acme.rows("select company_id, count(*) from data.units group by 1 order by 1") == [("acme", 10), ("beta", 8)]


def test_a_turn_that_an_undone_savepoint_had_is_free_for_those_who_waited_for_it(acme: Operator, connect) -> None:
    """PostgreSQL lets them wait for the whole transaction, though nothing is locked any more."""
    holder, waiters = connect(), [connect(), connect()]
    holder.execute("begin")
    holder.execute("savepoint a"), holder.execute("savepoint b")
    holder.execute("select bds.set_context('acme')")
    holder.execute(UPDATE, ("a",))
    told = threading.Semaphore(0)
    for each in waiters:
        each.add_notice_handler(lambda _: told.release())
    statements = ("set lock_timeout = '30s'", "select bds.set_context('acme')", UPDATE.replace("%s", "'b'"))
    started = [in_background(each, *statements) for each in waiters]
    for _ in waiters:
        assert told.acquire(timeout=60)  # each waits without an end now
    holder.execute("release b")
    holder.execute("rollback to a")
    for thread, errors in started:
        thread.join()
        assert not errors
    holder.execute("select bds.set_context('acme')")
    holder.execute(UPDATE, ("b",))
    holder.execute("commit")
    assert acme.rows("select code, name from data.units order by 1") == [("a", "A"), ("b", "B!!!")]


def test_a_session_waits_for_a_second_turn_as_long_as_for_its_first(acme: Operator, connect) -> None:
    acme.company("beta")
    holder, both, told = connect(), connect(), threading.Event()
    holder.execute("begin; select bds.set_context('acme'), bds.lock_company('acme')")
    both.add_notice_handler(lambda _: told.set())
    thread, errors = in_background(both, "begin", "select bds.lock_company('beta')", "select bds.lock_company('acme')", "commit")
    assert told.wait(60)  # after a second, without lock_timeout
    holder.execute("commit")
    thread.join()
    assert not errors


def test_a_snapshot_from_before_the_last_change_is_refused(acme: Operator, connect) -> None:
    with connect() as late, pytest.raises(psycopg.errors.SerializationFailure), late.transaction():
        late.execute("set transaction isolation level repeatable read")
        late.execute("select bds.set_context('acme')")
        acme.write("acme", UPDATE, ("a",))
        late.execute(UPDATE, ("b",))
    assert acme.rows("select count(*) from bds.changes where operation = 'update'") == [(1,)]


# Sessions that have named no company ------------------------------------------------------------------------------------------------


def test_whoever_has_a_row_locked_gives_up_its_wait_so_that_the_turns_holder_is_never_a_deadlocks_victim(
    acme: Operator, connect
) -> None:
    acme.company("beta")
    holder, dba = connect(), connect()
    with holder.transaction():
        holder.execute("select bds.set_context('acme')")
        holder.execute(UPDATE, ("b",))
        thread, errors = in_background(dba, UPDATE.replace("%s", "'a'"))
        wait_for(acme, WAITING)  # the row is locked, the turn is not to be had
        holder.execute(UPDATE, ("a",))
        thread.join()
    [error] = errors
    assert isinstance(error, psycopg.Error)
    assert error.sqlstate == "55P03"
    assert "bds.set_context('acme', actor)" in (error.diag.message_hint or "")
    assert acme.rows("select code, name from data.units order by 1") == [("a", "A!"), ("b", "B!")]
    assert dba.execute("show lock_timeout").fetchone() == ("0",)


def test_a_short_wait_for_the_turn_is_waited_out(acme: Operator, connect) -> None:
    acme.company("beta")
    acme.connection.execute("alter system set deadlock_timeout = '60s'")
    acme.connection.execute("select pg_reload_conf()")
    try:
        wait_for(acme, "select count(*) from pg_settings where name = 'deadlock_timeout' and setting = '60000'")
        holder, dba = connect(), connect()
        with holder.transaction():
            holder.execute("select bds.set_context('acme')")
            holder.execute(UPDATE, ("b",))
            thread, errors = in_background(dba, "begin", UPDATE.replace("%s", "'a'"), "delete from data.units", "commit")
            wait_for(acme, WAITING)
        thread.join()
        assert not errors
        assert acme.rows("select count(*) from data.units") == [(0,)]
    finally:
        acme.connection.execute("alter system reset deadlock_timeout")
        acme.connection.execute("select pg_reload_conf()")


def test_the_only_company_need_not_be_named(acme: Operator, connect) -> None:
    """Its turn is taken before any row: no deadlock, and no limit to the wait."""
    holder, dba = connect(), connect()
    with holder.transaction():
        holder.execute("select bds.set_context('acme')")
        holder.execute(UPDATE, ("b",))
        thread, errors = in_background(dba, "update data.units set name = 'mine'")
        wait_for(acme, WAITING)
        holder.execute(UPDATE, ("a",))
    thread.join()
    assert not errors
    assert acme.rows("select distinct name from data.units") == [("mine",)]


# What anybody can set ---------------------------------------------------------------------------------------------------------------


def test_a_turn_that_a_session_claims_to_have_is_not_its(acme: Operator, connect) -> None:
    holder, forger = connect(), connect("bds_writer", "acme")
    forger.execute("select set_config('bds.turns', ',acme@,', false)")
    with holder.transaction():
        holder.execute("select bds.set_context('acme')")
        holder.execute("select bds.lock_company('acme')")
        thread, errors = in_background(forger, "insert into data.units (code, name) values ('f', 'F')")
        wait_for(acme, WAITING)  # its row is written, its change has no id
        holder.execute(UPDATE, ("a",))
    thread.join()
    assert [type(error) for error in errors] == [psycopg.errors.SerializationFailure]
    assert acme.rows("select count(*) from data.units") == [(2,)]


def test_the_clock_cannot_be_pushed_into_the_future_nor_back(acme: Operator, connect) -> None:
    forger = connect("bds_writer", "acme")
    for floor in ("2100-01-01 00:00:00+00", "2999-12-31"):
        forger.execute("select set_config('bds.turns', %s, false)", (f",acme@{floor},",))
        for statement in ("insert into data.units (code, name) values ('f', 'F')", UPDATE.replace("%s", "'a'")):
            with pytest.raises(psycopg.errors.SerializationFailure, match="out of turn"):
                forger.execute(statement.encode())
        forger.execute("select set_config('bds.turns', '', false)")
    for moment in ("now() + interval '1 year'", "'2001-01-01'", "'infinity'", "null"):
        forger.execute(f"insert into data.units (code, name, updated_at) values ($${moment}$$, 'F', {moment})".encode())
    assert acme.rows("select count(*) from data.units where updated_at between now() - interval '1 hour' and now()") == [(6,)]
    assert acme.rows("select last_updated_at < now() from bds.clocks") == [(True,)]


def test_a_forged_turn_writes_nothing_where_the_company_has_departed(acme: Operator, connect) -> None:
    forger = connect("bds_writer", "acme")
    [(place,)] = acme.rows("select clock_at::text from bds.residents where company_id = 'acme'")
    acme.connection.execute("set role bds_owner; select bds_operation.depart('acme'); reset role")
    for setting in ("bds.turns", "bds.clock"):
        forger.execute("select set_config(%s, %s, false)", (setting, {"bds.turns": ",acme@,", "bds.clock": place}[setting]))
        with pytest.raises(psycopg.errors.CheckViolation, match="departed_companies_take_no_writes"):
            forger.execute("insert into data.units (code, name) values ('f', 'F')")
    assert acme.rows("select from data.units where code = 'f'") == []
    acme.connection.execute("set role bds_owner; select bds_operation.stay('acme'); reset role")
    acme.write("acme", "insert into data.units (code, name) values ('f', 'F')")


@pytest.mark.parametrize("place", ["(0,1)", "(0,9999)", "(4294967294,1)", ""])
def test_a_forged_place_of_the_clock_leads_nowhere(acme: Operator, connect, place: str) -> None:
    acme.company("beta")
    acme.write("beta", "insert into data.units (code, name) values ('b', 'B')")
    forger = connect("bds_writer", "acme")
    with forger.transaction():
        forger.execute(UPDATE, ("a",))
        forger.execute("select set_config('bds.clock', %s, true)", (place,))
        forger.execute(UPDATE, ("b",))
    assert acme.rows("select company_id, last_id from bds.clocks order by 1") == [("acme", 4), ("beta", 1)]


def test_nobody_logs_an_update_that_changes_nothing(acme: Operator, connect) -> None:
    forger = connect("bds_writer", "acme")
    forger.execute("select set_config('bds.touching', 'hack', false)")
    forger.execute("update data.units set name = name")
    forger.execute(UPDATE, ("a",))
    assert acme.rows("select columns from bds.changes where operation = 'update'") == [(["name"],)]
