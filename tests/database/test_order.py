"""Whoever sees one change sees all before it: ids and updatedAt follow commit order, however writers sleep, roll back and race."""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.conftest import Operator

pytestmark = pytest.mark.slow

WRITERS, TRANSACTIONS = 6, 25


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


def write(url: str, number: int, errors: list[BaseException]) -> None:
    """Transactions of several statements that dawdle, and of which some roll back."""
    chance = random.Random(number)
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            for n in range(TRANSACTIONS):
                with connection.transaction(force_rollback=chance.random() < 0.25):
                    connection.execute("select bds.set_context('acme')")
                    connection.execute("insert into data.units (code, name) values (%s, 'unit')", (f"{number}-{n}",))
                    time.sleep(chance.random() * 0.01)
                    connection.execute(
                        "update data.units set name = name || '!' where id in (select id from data.units order by random() limit 2)"
                    )
    except BaseException as error:
        errors.append(error)


def read_ids(url: str, done: threading.Event, seen: list[int]) -> None:
    """A reader in plain SQL that always asks for what comes after the last id it has seen."""
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            ended = done.is_set()
            last = seen[-1] if seen else 0
            rows = connection.execute(
                "select id from bds.changes where company_id = 'acme' and id > %s order by id", (last,)
            ).fetchall()
            seen.extend(row[0] for row in rows)
            if ended and not rows:
                return


def read_rows(url: str, done: threading.Event, seen: dict[int, str]) -> None:
    """A reader that always asks for rows after the last updatedAt it has seen, in pages of five with ties."""
    last = datetime(1, 1, 1, tzinfo=UTC)
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            ended = done.is_set()
            rows = connection.execute(
                "select id, name, updated_at from data.units where company_id = 'acme' and updated_at > %s"
                " order by updated_at fetch first 5 rows with ties",
                (last,),
            ).fetchall()
            seen.update((row_id, name) for row_id, name, _ in rows)
            last = rows[-1][2] if rows else last
            if ended and not rows:
                return


def test_cursor_readers_miss_nothing_while_writers_race(operator: Operator, database_url: str) -> None:
    operator.company("acme")
    done, errors = threading.Event(), []
    ids: list[list[int]] = [[], []]
    names: list[dict[int, str]] = [{}, {}]
    readers = [threading.Thread(target=read_ids, args=(database_url, done, seen)) for seen in ids]
    readers += [threading.Thread(target=read_rows, args=(database_url, done, seen)) for seen in names]
    writers = [threading.Thread(target=write, args=(database_url, n, errors)) for n in range(WRITERS)]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()

    assert not errors
    last = operator.rows("select last_id from bds.clocks where company_id = 'acme'")[0][0]
    assert last > WRITERS * TRANSACTIONS
    assert ids == [list(range(1, last + 1))] * 2, "every id once, in order, without gaps"
    assert names == [dict(operator.rows("select id, name from data.units"))] * 2, "the last state of every row was read"


def test_a_clock_that_goes_back_does_not_take_updated_at_with_it(operator: Operator) -> None:
    operator.company("acme")
    operator.connection.execute("update bds.clocks set last_updated_at = clock_timestamp() + interval '1 hour'")
    [(future,)] = operator.rows("select last_updated_at from bds.clocks")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    operator.write("acme", "insert into data.units (code, name) values ('b', 'B')")
    [(first,), (second,)] = operator.rows("select updated_at from data.units order by id")
    assert future < first < second
    # at=<updatedAt> shows the row, and what is registered then begins with a version that there is
    shown = "select count(*) from bds.rows_at('acme', 'units', bds.version_of('acme', %s))"
    assert [operator.rows(shown, (at.isoformat(),)) for at in (future, first, second)] == [[(0,)], [(1,)], [(2,)]]
    with pytest.raises(psycopg.Error, match="is in the future"):
        operator.rows(shown, ((second + timedelta(microseconds=1)).isoformat(),))
    operator.connection.execute("update bds.column_history set since = %s where entity = 'units'", (second,))
    with pytest.raises(psycopg.Error, match="expected 2 or later"):
        operator.rows("select * from bds.diff('acme', 'units', 1, 2)")


def test_readers_and_other_companies_wait_for_no_writer(operator: Operator, connect) -> None:
    operator.company("acme"), operator.company("beta")
    with connect() as holder, holder.transaction():
        holder.execute("select bds.set_context('acme')")
        holder.execute("insert into data.units (code, name) values ('a', 'A')")
        operator.connection.execute("set lock_timeout = '2s'")
        operator.write("beta", "insert into data.units (code, name) values ('b', 'B')")
        assert operator.rows("select company_id, entity, id from bds.changes") == [("beta", "units", 1)]


def test_a_transaction_may_write_to_several_companies(operator: Operator) -> None:
    operator.company("acme"), operator.company("beta")
    with operator.connection.transaction():
        operator.connection.execute(
            "insert into data.units (company_id, code, name) select c, n, 'x' from unnest(array['acme', 'beta']) c, generate_series(1, 3) n"
        )
        operator.connection.execute("update data.units set name = 'y'")
    assert operator.rows("select company_id, count(*), min(id), max(id) from bds.changes group by 1 order by 1") == [
        ("acme", 6, 1, 6),
        ("beta", 6, 1, 6),
    ]


def test_a_deadlock_of_writers_that_named_no_company_comes_with_a_hint(operator: Operator, connect) -> None:
    operator.company("acme"), operator.company("beta")
    one, two = connect(), connect()
    insert = "insert into data.units (company_id, code, name) values (%s, %s, 'x')"
    one.execute("begin; set local deadlock_timeout = '100ms'"), two.execute("begin; set local deadlock_timeout = '10s'")
    one.execute(insert, ("acme", "1")), two.execute(insert, ("beta", "2"))
    other = threading.Thread(target=two.execute, args=(insert, ("acme", "3")))
    other.start()
    with pytest.raises(psycopg.errors.DeadlockDetected) as caught:
        while True:  # until the other one waits for us
            waiting = operator.rows("select count(*) from pg_locks where not granted")
            if waiting == [(1,)]:
                one.execute(insert, ("beta", "4"))
                raise AssertionError("no deadlock")
    assert "bds.set_context" in (caught.value.diag.message_hint or "")
    one.execute("rollback")
    other.join()
    two.execute("rollback")


def test_the_plan_for_one_row_does_not_serve_a_bulk_update(operator: Operator) -> None:
    """plpgsql keeps a plan made for a small transition table; a nested loop between two large ones takes minutes."""
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) select n, 'unit' from generate_series(1, 20000) n")
    for n in range(8):  # enough for a generic plan
        operator.write("acme", "update data.units set name = %s where code = '1'", (f"name {n}",))
    operator.connection.execute("set statement_timeout = '60s'")  # the trap: 82 s for what takes 0.2 s
    plans = operator.rows("select setting from pg_settings where name = 'enable_nestloop'")
    operator.write("acme", "update data.units set name = 'bulk'")
    assert operator.rows("select count(*) from bds.changes where operation = 'update' and old ->> 'name' = 'unit'") == [(20000,)]
    assert plans == [("on",)], "and the setting stays inside the trigger"
    [(source,)] = operator.rows("select prosrc from pg_proc where proname = 'units_update'")
    assert "set_config('enable_nestloop', 'off', true)" in source


SAME = """
    select count(*) filter (where c.created_at = u.updated_at), count(*) filter (where c.created_at < u.updated_at), count(*)
    from bds.changes c join data.units u on (u.company_id, u.id) = (c.company_id, c.row_id) and c.entity = 'units'
    where c.id in (select max(l.id) from bds.changes l group by l.row_id)
"""
FALLING = """
    select count(*) from (select created_at < lag(created_at) over (order by id) as falls from bds.changes where company_id = 'acme') c
    where c.falls
"""


def test_a_change_has_the_time_of_its_row(operator: Operator) -> None:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) select 'u' || n, 'unit' from generate_series(1, 300) n")
    assert operator.rows(SAME) == [(300, 0, 300)]
    operator.write("acme", "update data.units set name = 'other' where id %% 2 = 0")
    operator.write("acme", "update data.units set name = 'one' where code = 'u7'")
    assert operator.rows(SAME) == [(300, 0, 300)]
    operator.write(
        "acme",
        "merge into data.units u using (select 'u' || n as code from generate_series(290, 310) n) s on u.code = s.code"
        " when matched then update set name = 'merged' when not matched then insert (code, name) values (s.code, 'merged')",
    )
    [(same, earlier, rows)] = operator.rows(SAME)
    assert (earlier, rows) == (0, 310) and same >= 289, (
        "a statement that inserts and updates may log later times, never earlier ones"
    )
    assert operator.rows(FALLING) == [(0,)]
    [(id, before, at)] = operator.rows(
        "select row_id, id - 1, bds_service.api_time(created_at) from bds.changes where entity = 'units' and old ->> 'name' = 'unit'"
        " order by id limit 1"
    )
    found = operator.rows(
        "select bds.version_of('acme', %s) > %s, bds.row_at('acme', 'units', %s, bds.version_of('acme', %s)) ->> 'name'",
        (at, before, id, at),
    )
    assert found == [(True, "other")]


def test_a_statement_over_a_months_end_begins_the_month_with_its_first_change_there(operator: Operator) -> None:
    operator.company("acme")
    operator.connection.execute(
        b"""
        select bds_change_log.make_month('2026-01-01Z'), bds_change_log.make_month('2026-02-01Z');
        create function data.at_the_end() returns trigger language plpgsql as $$
        begin
            new.updated_at := timestamptz '2026-01-31 23:59:59.5Z' + make_interval(secs => substr(new.code, 2)::int);
            return new;
        end $$;
        create trigger zz before insert or update on data.units for each row execute function data.at_the_end()
        """
    )
    operator.write(
        "acme",
        "insert into data.units (code, name) values ('u0', 'a'), ('u0b', 'b'), ('u1', 'c'), ('u2', 'd')".replace("u0b", "u00"),
    )
    assert operator.rows("select to_char(month at time zone 'UTC', 'MM'), first_id from bds.change_months order by 1") == [
        ("01", 1),
        ("02", 3),
    ]
    assert operator.rows(SAME) == [(4, 0, 4)]
    assert operator.rows("select bds.version_of('acme', '2026-02-01'), bds.version_of('acme', '2026-02-01T00:00:00.5Z')") == [
        (2, 3)
    ]
    assert [len(operator.rows("select bds.rows_at('acme', 'units', %s)", (version,))) for version in (1, 2, 3, 4)] == [1, 2, 3, 4]
