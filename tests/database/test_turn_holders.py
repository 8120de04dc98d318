"""Who holds a company's turn, who waits for it, and who can take it: bds.turns, the notice and the error of a wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg
import pytest

from tests.conftest import Operator
from tests.database.test_turn import in_background, wait_for
from tests.servers import own_server

pytestmark = pytest.mark.slow

Connect = Callable[..., "psycopg.Connection"]
WRITE = "insert into data.units (code, name) values (gen_random_uuid()::text, 'A')"
# what makes a transaction one that writes, or that keeps others from writing
WRITES = (
    (WRITE,),
    ("select bds.lock_company('acme')",),
    ("savepoint a", WRITE, "release a"),
    ("savepoint a", WRITE, "rollback to a", WRITE),
    (WRITE, "savepoint a", WRITE, "rollback to a"),
    ("savepoint a", "select bds.lock_company('acme')", "rollback to a", WRITE),
    ("select set_config('bds.turns', ',acme@,', true)", WRITE),
    ("select set_config('bds.turns', ',other@,', true)", "savepoint a", WRITE, "rollback to a", WRITE),
    ("select bds.lock_company('acme')", "select pg_advisory_unlock_all()", WRITE),
    ("""select bds.import_document('acme', '{"units": [{"code": "a", "name": "A"}]}')""",),
)
INSERT = "insert into data.units (code, name) values (%s, 'unit')"
TURNS = "select company_id, pid, actor, db_user, application_name, runs, statement, waiters from bds.turns"
QUEUE = "select coalesce(sum(cardinality(waiters)), 0)::int from bds.turns"


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


@pytest.fixture
def acme(operator: Operator) -> Operator:
    operator.company("acme"), operator.company("beta")
    return operator


def begin(connection: psycopg.Connection, company: str = "acme", actor: str | None = "anna") -> int:
    """Begin a transaction that holds the company's turn; returns its pid."""
    connection.execute("begin")
    connection.execute("select bds.set_context(%s, %s)", (company, actor))
    connection.execute("select bds.lock_company(%s)", (company,))
    return connection.info.backend_pid


def test_a_turn_shows_its_holder_and_those_who_wait(acme: Operator, connect: Connect) -> None:
    holder, others = connect(), [connect(), connect()]
    holder.execute("set application_name = 'the slow one'")
    pid = begin(holder)
    holder.execute(INSERT, ("a",))
    threads = [
        in_background(each, "begin", "select bds.set_context('acme')", INSERT.replace("%s", f"'{n}'"), "commit")[0]
        for n, each in enumerate(others)
    ]
    while acme.rows(QUEUE) != [(2,)]:
        pass
    [row] = acme.rows(TURNS)
    assert row[:6] == ("acme", pid, "anna", "postgres", "the slow one", "session")
    assert row[6].startswith("insert into data.units")
    assert sorted(row[7]) == sorted(each.info.backend_pid for each in others)
    assert acme.rows("select since = xact_start from bds.turns join pg_stat_activity using (pid)") == [(True,)]
    holder.execute("commit")
    for thread in threads:
        thread.join()
    assert acme.rows(TURNS) == []
    assert holder.execute("show application_name").fetchone() == ("the slow one",)


def test_a_holder_without_an_actor_is_shown_by_its_login(acme: Operator, connect: Connect) -> None:
    one, two = connect(), connect()
    begin(one, "acme", None), begin(two, "beta", "ben [x] y")
    assert acme.rows("select company_id, actor from bds.turns order by 1") == [("acme", "postgres"), ("beta", "ben [x] y")]


@pytest.mark.parametrize("statements", [
    ("savepoint a", INSERT.replace("%s", "'s'")),
    ("savepoint a", INSERT.replace("%s", "'s'"), "rollback to a"),
    (INSERT.replace("%s", "'s'"), "savepoint a", INSERT.replace("%s", "'t'"), "release a", INSERT.replace("%s", "'u'")),
])  # fmt: skip
def test_a_holder_is_found_whatever_its_savepoints_have_done(acme: Operator, connect: Connect, statements: tuple[str, ...]) -> None:
    """The lock of a transaction and that of its savepoint are a multixact."""
    holder, other = connect(), connect()
    pid = begin(holder)
    for statement in statements:
        holder.execute(statement.encode())
    assert acme.rows("select company_id, pid from bds.turns") == [("acme", pid)]
    other.execute("set lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
        begin(other)
    assert str(caught.value.diag.message_detail).startswith(f"The turn is held by pid {pid}, anna, since ")


@pytest.mark.parametrize("statements", [
    ("savepoint a", INSERT.replace("%s", "'s'"), "release a"),
    ("savepoint a", "savepoint b", "select bds.lock_company('acme')", "release b", "release a"),
    ("savepoint a", "select bds.lock_company('acme')", "rollback to a", INSERT.replace("%s", "'s'")),
    ("do $$ begin insert into data.units (code, name) values ('s', 'unit'); exception when division_by_zero then null; end $$",),
])  # fmt: skip
def test_a_holder_is_found_though_a_savepoint_that_has_ended_took_its_turn(
    acme: Operator, connect: Connect, statements: tuple[str, ...]
) -> None:
    """PostgreSQL releases the lock of a savepoint's id with the savepoint."""
    holder, waiter, other = connect(), connect(), connect()
    holder.execute("begin; select bds.set_context('acme', 'anna')")
    for statement in statements:
        holder.execute(statement.encode())
    pid = holder.info.backend_pid
    assert acme.rows("select company_id, pid, actor from bds.turns") == [("acme", pid, "anna")]
    thread, errors = in_background(waiter, "begin", "select bds.set_context('acme')", INSERT.replace("%s", "'w'"), "commit")
    while acme.rows("select pid, waiters from bds.turns") != [(pid, [waiter.info.backend_pid])]:
        assert not errors
    other.execute("set lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
        begin(other)
    assert str(caught.value.diag.message_detail).startswith(f"The turn is held by pid {pid}, anna, since ")
    holder.execute("commit")
    thread.join()
    assert not errors and acme.rows(TURNS) == []


def test_a_turn_that_was_waited_for_shows_its_holder(acme: Operator, connect: Connect) -> None:
    first, second = connect(), connect()
    begin(first)
    thread, errors = in_background(second, "begin", "select bds.set_context('acme', 'ben')", "select bds.lock_company('acme')")
    wait_for(acme, QUEUE)
    first.execute("commit")
    thread.join()
    second.execute(INSERT, ("b",))
    assert not errors
    assert acme.rows("select pid, actor, waiters from bds.turns") == [(second.info.backend_pid, "ben", [])]


def test_a_turn_that_a_savepoint_took_ends_with_it(acme: Operator, connect: Connect) -> None:
    one, other = connect(), connect()
    one.execute("begin")
    one.execute("select bds.set_context('acme')")
    one.execute("savepoint a")
    one.execute(INSERT, ("a",))
    one.execute("rollback to a")
    assert acme.rows(TURNS) == []
    other.execute("set lock_timeout = '1s'")
    begin(other)
    other.execute(INSERT, ("b",))
    other.execute("commit")
    one.execute(INSERT, ("c",))
    one.execute("commit")
    assert acme.rows("select id from bds.changes order by id") == [(1,), (2,)]
    assert acme.rows("select code from data.units order by updated_at") == [("b",), ("c",)]


def test_a_wait_that_runs_into_lock_timeout_names_the_holder(acme: Operator, connect: Connect) -> None:
    holder, waiter = connect(), connect("bds_writer")
    pid = begin(holder)
    [(since,)] = acme.rows("select date_trunc('second', since)::text from bds.turns")
    waiter.execute("set lock_timeout = '50ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
        begin(waiter)
    assert caught.value.diag.message_detail == f"The turn is held by pid {pid}, anna, since {since}."
    assert "acme did not finish within 50ms" in (caught.value.diag.message_primary or "")
    waiter.execute("rollback")
    assert waiter.execute("show lock_timeout").fetchone() == ("50ms",)


def test_a_session_that_waits_for_a_second_is_told_for_whom(acme: Operator, connect: Connect) -> None:
    holder, waiter = connect(), connect("bds_writer")
    pid = begin(holder)
    told, notices = threading.Event(), []
    waiter.add_notice_handler(lambda notice: (notices.append(notice.message_primary), told.set()))
    thread, errors = in_background(waiter, "begin", "select bds.set_context('acme')", "select bds.lock_company('acme')", "commit")
    assert told.wait(60)
    assert str(notices[0]).startswith(f"waiting for the turn of acme: pid {pid}, anna, since 20")
    holder.execute("commit")
    thread.join()
    assert not errors
    assert waiter.execute("show lock_timeout").fetchone() == ("0",)


@pytest.mark.slow
def test_a_writer_cannot_prepare_its_transaction_and_one_that_contrives_to_is_shown() -> None:
    """Refused also while the service keeps the bell, so that a writer does not notify."""
    with own_server() as own:
        with psycopg.connect(own.url, autocommit=True) as connection:
            connection.execute("alter system set max_prepared_transactions = 2")
        own.stop()
        own.start()
        with psycopg.connect(own.url, autocommit=True) as holder, psycopg.connect(own.url, autocommit=True) as waiter:
            holder.execute("select bds.create_company('acme')")
            for awake in ("0", "(1000 * extract(epoch from clock_timestamp()))::bigint + 900"):
                for statements in WRITES:
                    holder.execute("begin; select bds.set_context('acme', 'anna')")
                    for statement in statements:
                        holder.execute(f"select setval('bds.bell', {awake})".encode())
                        holder.execute(statement.encode())
                    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot PREPARE"):
                        holder.execute("prepare transaction 'now'")
                    assert holder.execute(TURNS).fetchall() == []
            # without a write nothing holds others up
            for statements in ((), ("savepoint a", WRITE, "rollback to a")):
                holder.execute("begin; select bds.set_context('acme', 'anna')")
                for statement in statements:
                    holder.execute(statement.encode())
                holder.execute("prepare transaction 'nothing'")
                assert holder.execute(TURNS).fetchall() == []
                holder.execute("rollback prepared 'nothing'")
            begin(holder)
            holder.execute("select pg_advisory_unlock_all()")
            holder.execute("prepare transaction 'later'")
            thread, errors = in_background(waiter, "select bds.set_context('acme')", "select bds.lock_company('acme')")
            waiting = [waiter.info.backend_pid]
            while holder.execute(TURNS).fetchall() != [
                ("acme", None, "postgres", "postgres", "later", "prepared transaction", None, waiting)
            ]:
                pass
            with psycopg.connect(own.url) as other:
                other.execute("set lock_timeout = '50ms'; select bds.set_context('acme')")
                with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
                    other.execute("select bds.lock_company('acme')")
            detail = caught.value.diag.message_detail
            assert str(detail).startswith("The turn is held by prepared transaction later, postgres, since 20")
            holder.execute("commit prepared 'later'")
            thread.join()
            assert not errors
            assert holder.execute(TURNS).fetchall() == []


def test_a_role_that_may_only_connect_cannot_hold_a_turn(acme: Operator, connect: Connect) -> None:
    """Every lock that a writer waits for needs a right: none is an advisory lock, which anybody may take."""
    holder, stranger = connect(), connect()
    acme.connection.execute("drop role if exists stranger")
    acme.connection.execute("create role stranger")
    stranger.execute("set session authorization stranger")
    begin(holder)
    holder.execute(INSERT, ("a",))
    keys = acme.rows("select distinct classid::bigint << 32 | objid::bigint from pg_locks where locktype = 'advisory'")
    assert len(keys) == 2
    holder.execute("commit; select pg_advisory_unlock_all()")
    for key in keys:
        stranger.execute("select pg_advisory_lock(%s)", key)
    holder.execute("set lock_timeout = '1ms'; select bds.set_context('acme'); " + INSERT.replace("%s", "'b'"))
    for statement in ("select from bds.clocks for key share", "lock table bds.clocks", "select bds.lock_company('acme')"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), stranger.transaction():
            stranger.execute(statement.encode())
    stranger.execute("reset session authorization")
    acme.connection.execute("drop role stranger")


def test_the_clock_is_found_after_its_table_was_rewritten(acme: Operator, connect: Connect) -> None:
    one = connect()
    for n in range(3):
        begin(one)
        one.execute(INSERT, (f"a{n}",))
        one.execute("commit")
        acme.connection.execute("vacuum full bds.clocks")
    assert acme.rows("select last_id from bds.clocks where company_id = 'acme'") == [(3,)]
