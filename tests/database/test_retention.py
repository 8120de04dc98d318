"""Months of the change log: made ahead or at need, dropped, archived, detached; and what of the log is kept."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.conftest import Operator
from tests.database.aging import age

pytestmark = pytest.mark.slow

Connect = Callable[..., "psycopg.Connection"]
PARTITIONS = "select inhrelid::regclass::text from pg_inherits where inhparent = 'bds.{}'::regclass order by 1"
NEW = "insert into data.units (code, name) values ('{}', 'x') returning id"
INDEXES = "select indexrelid::bigint from pg_index where indrelid = '{month}'::regclass order by 1"


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


@pytest.fixture
def acme(operator: Operator) -> Operator:
    operator.company("acme")
    for code in "abc":
        operator.write("acme", NEW.format(code))
    return operator


def partitions(operator: Operator, table: str = "change_log") -> list[str]:
    return [name for (name,) in operator.rows(PARTITIONS.format(table))]


def maintain(operator: Operator) -> dict[str, int]:
    """Run maintenance, without a problem; returns what each step has done."""
    rows = operator.rows("select * from bds.maintain()")
    assert [problem for _, _, problem in rows] == [None] * 10
    return {step: done for step, done, _ in rows}


def test_nothing_is_dropped_unless_a_retention_is_set(acme: Operator) -> None:
    age(acme, "2020_01")
    assert maintain(acme)["expire months of the log"] == 0
    acme.write("acme", "update data.units set name = 'C' where code = 'a'")
    acme.connection.execute("select bds.set_retention('1 year')")
    assert maintain(acme)["expire months of the log"] == 1
    assert acme.rows("select id, bds.first_change('acme') from bds.changes") == [(4, 4)]
    [(row_id,)] = acme.rows("select id from data.units where code = 'a'")
    assert acme.rows("select bds.row_at('acme', 'units', %s, 4) ->> 'name'", (row_id,)) == [("C",)]
    with pytest.raises(psycopg.Error) as caught:
        acme.rows("select bds.row_at('acme', 'units', %s, 2)", (row_id,))
    assert caught.value.sqlstate == "BD006"
    assert acme.rows("select last_id from bds.positions where entity = 'units'") == [(4,)], "a position never goes back"


@pytest.mark.parametrize("whose", ["null", "'acme'"], ids=["every company's", "one company's"])
def test_no_month_expires_before_its_changes_are_matched_with_hooks(acme: Operator, whose: str) -> None:
    acme.company("beta")
    acme.connection.execute("select bds.create_hook('acme', 'units', 'https://example.com/hook')")
    acme.write("acme", NEW.format("d")), acme.write("beta", NEW.format("d"))
    age(acme, "2020_01", "company_id = 'acme' and id < 3")
    age(acme, "2020_02", "company_id = 'acme' and id > 2")
    acme.connection.execute(f"select bds.set_retention('1 year', company => {whose})".encode())
    assert maintain(acme)["expire months of the log"] == 1, "what came before the hook goes"
    assert acme.rows("select bds.first_change('acme')") == [(3,)]
    assert acme.rows("select routed, behind from bds_service.route_changes('acme')") == [(1, False)]
    assert acme.rows("select change_id from bds.hook_queue") == [(4,)]
    assert maintain(acme)["expire months of the log"] == 1
    assert acme.rows("select bds.first_change('acme')") == [(5,)]
    noted = acme.rows(
        "select company_id, left(detail ->> 'month', 7), detail -> 'records', detail -> 'first_id', detail -> 'last_id'"
        " from bds.audit where action = 'expire' order by 2, 1"
    )
    records = None if whose == "null" else 2
    own = [("acme", "2020-01", records, 1, 2), ("acme", "2020-02", records, 3, 4)]
    server = [("", "2020-01", None, None, None), ("", "2020-02", None, None, None)] if whose == "null" else []
    assert noted == sorted(server + own, key=lambda row: row[1]), "who expects them finds out"


@pytest.mark.parametrize("how", ["detach partition bds.{}", "detach partition bds.{} concurrently", "drop"])
def test_the_past_is_gone_when_a_month_is_detached_or_dropped_by_hand(acme: Operator, how: str) -> None:
    age(acme, "2020_01", "id = 1")
    age(acme, "2020_02", "id = 2")
    assert acme.rows("select bds.first_change('acme')") == [(1,)]
    # the newer month goes and the older one stays: what follows a gap is kept, what is before it is of no use
    acme.connection.execute(
        (f"alter table bds.change_log {how}" if how != "drop" else "drop table bds.{}").format("change_log_2020_02").encode()
    )
    assert acme.rows("select bds.first_change('acme')") == [(3,)]
    with pytest.raises(psycopg.Error) as caught:
        acme.rows("select bds.row_at('acme', 'units', 1, 1)")
    assert caught.value.sqlstate == "BD006"
    if how != "drop":
        acme.connection.execute(
            "alter table bds.change_log attach partition bds.change_log_2020_02 for values from ('2020-02-01Z') to ('2020-03-01Z')"
        )
        assert acme.rows("select bds.first_change('acme')") == [(1,)]


def test_a_month_that_was_dropped_while_it_lasted_begins_anew(acme: Operator) -> None:
    age(acme, "2020_01", "id = 1")
    acme.company("beta")
    [this] = {name for name in partitions(acme) if acme.rows(f"select from {name} where id = 2")}
    acme.connection.execute(f"drop table {this}".encode())
    assert maintain(acme)["make months of the log"] == 1
    assert acme.rows("select bds.first_change('acme'), bds.first_change('beta')") == [(4, 1)]
    for code in "de":
        acme.write("acme", NEW.format(code))
        acme.write("beta", NEW.format(code))
    assert acme.rows("select bds.first_change('acme'), bds.first_change('beta')") == [(4, 1)], "what is before the gap is of no use"
    assert acme.rows("select id from bds.changes where company_id = 'acme' and id >= 4 order by id") == [(4,), (5,)]


def test_a_month_that_is_made_for_another_company_does_not_bring_a_lost_one_back(acme: Operator) -> None:
    age(acme, "2020_01", "id = 1")
    age(acme, "2020_02", "id = 2")
    acme.connection.execute("drop table bds.change_log_2020_02")
    acme.connection.execute("select bds_change_log.make_month('2020-02-01Z')")  # as a restore does
    assert acme.rows("select bds.first_change('acme')") == [(3,)]


def test_a_log_of_which_every_month_is_gone_begins_with_the_next_change(acme: Operator) -> None:
    age(acme, "2020_01")
    acme.connection.execute("select bds.set_retention('1 year')")
    maintain(acme)
    assert acme.rows("select bds.first_change('acme')") == [(4,)]
    acme.company("empty")
    assert acme.rows("select bds.first_change('empty')") == [(1,)]


def test_a_month_is_archived_if_the_operator_wants_that(acme: Operator) -> None:
    for id, month in enumerate(("2020_01", "2020_02"), 1):
        age(acme, month, f"id = {id}")
    before = acme.rows("select * from bds.change_log where id < 3 order by id")
    indexes = acme.rows(INDEXES.format(month="bds.change_log_2020_01"))
    acme.connection.execute("select bds.set_retention('1 year', archive => true)")
    assert maintain(acme)["expire months of the log"] == 2
    assert partitions(acme, "change_archive") == ["bds.change_archive_2020_01", "bds.change_archive_2020_02"]
    assert acme.rows(INDEXES.format(month="bds.change_archive_2020_01")) == indexes, "none is built while writers wait"
    assert acme.rows("select * from bds.change_archive order by id") == before
    assert acme.rows("select min(id), bds.first_change('acme') from bds.changes") == [(3, 3)]
    # changes of an archived month that come again are added to it
    acme.connection.execute("select bds_change_log.make_month('2020-02-01Z')")
    acme.connection.execute("insert into bds.change_log select * from bds.change_archive where id = 2")
    acme.connection.execute("update bds.change_log set id = 20 where id = 2")
    assert maintain(acme)["expire months of the log"] == 1
    assert acme.rows("select id from bds.change_archive order by id") == [(1,), (2,), (20,)]


@pytest.mark.parametrize(
    "read", ["bds.row_at('acme', 'units', %s, 1)", "count(*) from bds.rows_at('acme', 'units', 1) r where %s > 0"]
)
def test_a_reader_that_waits_while_a_month_goes_is_told(acme: Operator, connect: Connect, read: str) -> None:
    age(acme, "2020_01", "id = 1")
    age(acme, "2020_02", "id = 2")
    [(row_id,)] = acme.rows("select id from data.units where code = 'a'")
    acme.connection.execute("select bds.set_retention('1 year')")
    reader = connect()
    with ThreadPoolExecutor() as threads:
        with acme.connection.transaction():
            maintain(acme)
            answer = threads.submit(reader.execute, f"select {read}".encode(), (row_id,))
            waits = "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
            while not acme.rows(waits, (reader.info.backend_pid,)):
                acme.rows("select pg_stat_clear_snapshot()")
        with pytest.raises(psycopg.Error) as caught:
            answer.result()
    assert caught.value.sqlstate == "BD006"


def test_a_company_keeps_its_changes_for_its_own_time(acme: Operator) -> None:
    for company in ("beta", "gamma"):
        acme.company(company)
        for code in "abc":
            acme.write(company, NEW.format(code))
    age(acme, "2020_01", "id = 1")
    age(acme, "2024_01", "id = 2")
    acme.connection.execute(
        "select bds.set_retention('100 years'), bds.set_retention('1 year', 'acme'), bds.set_retention('4 years', 'beta')"
    )
    assert maintain(acme)["expire months of the log"] == 3
    kept = "select company_id, array_agg(id order by id), bds.first_change(company_id) from bds.changes group by 1 order by 1"
    counted = kept.replace("(id order by id)", "(last_id order by last_id)").replace("bds.changes", "bds.counted_change_sets")
    assert acme.rows(kept) == [("acme", [3], 3), ("beta", [2, 3], 2), ("gamma", [1, 2, 3], 1)] == acme.rows(counted)
    assert "bds.change_log_2020_01" in partitions(acme)
    # once no company keeps it any more, a month goes whole
    acme.connection.execute("select bds.set_retention('5 years')")
    assert maintain(acme)["expire months of the log"] == 1
    assert "bds.change_log_2020_01" not in partitions(acme)
    assert acme.rows(kept) == [("acme", [3], 3), ("beta", [2, 3], 2), ("gamma", [2, 3], 2)] == acme.rows(counted)
    acme.connection.execute("select bds.set_retention('infinity', 'gamma'), bds.set_retention('1 year')")
    maintain(acme)
    assert acme.rows(kept) == [("acme", [3], 3), ("beta", [2, 3], 2), ("gamma", [2, 3], 2)], "unlimited for one company alone"
    acme.connection.execute("select bds.set_retention(null, 'gamma'), bds.set_retention(null, 'beta')")
    maintain(acme)
    assert acme.rows(kept) == [("acme", [3], 3), ("beta", [3], 3), ("gamma", [3], 3)]


def test_a_reader_of_the_log_does_not_have_its_partition_dropped_under_it(acme: Operator, connect) -> None:
    age(acme, "2020_01")
    acme.connection.execute("select bds.set_retention('1 year')")
    with connect() as reader, reader.transaction():
        assert reader.execute("select count(*) from bds.changes").fetchone() == (3,)
        assert maintain(acme)["expire months of the log"] == 0
        assert reader.execute("select count(*) from bds.changes").fetchone() == (3,)
    assert maintain(acme)["expire months of the log"] == 1


def test_writers_go_on_while_maintenance_waits_for_a_reader_of_the_log(acme: Operator, connect) -> None:
    age(acme, "2020_01")
    acme.connection.execute("select bds.set_retention('1 year')")
    before = partitions(acme)
    reader, maintenance, writer = connect(), connect(), connect()
    with ThreadPoolExecutor() as threads, reader.transaction():
        reader.execute("select from bds.change_log")
        done = threads.submit(maintenance.execute, b"select bds.maintain()")
        while not (done.done() or acme.rows("select from pg_locks where not granted")):
            pass
        writer.execute("set lock_timeout = '1s'")
        writer.execute("update data.units set name = 'B' where company_id = 'acme'")
        assert done.result(timeout=10), "maintenance gives up without an error"
        assert partitions(acme) == before
    maintain(acme)
    assert len(partitions(acme)) == len(before) - 1, "the next call succeeds"


def test_a_month_is_made_while_others_read_and_write_the_log(acme: Operator, connect) -> None:
    last = partitions(acme)[-1]
    acme.connection.execute(f"drop table {last}".encode())
    reader, writer = connect(), connect()
    with reader.transaction(), writer.transaction():
        reader.execute("select from bds.change_log")
        writer.execute("select bds.set_context('acme')")
        writer.execute("update data.units set name = 'B'")
        assert maintain(acme)["make months of the log"] == 1
    assert last in partitions(acme)


def test_a_writer_makes_the_month_that_maintenance_has_not_made(acme: Operator) -> None:
    acme.connection.execute(
        "do $$ declare p regclass; begin for p in select inhrelid from pg_inherits where inhparent = 'bds.change_log'::regclass loop"
        " execute 'drop table ' || p; end loop; end $$"
    )
    acme.connection.execute("update bds.clocks set month = '-infinity'; delete from bds.change_months")
    acme.write("acme", "update data.units set name = 'B' where code = 'a'")
    acme.write("acme", "update data.units set name = 'C' where code = 'a'")
    assert acme.rows("select array_agg(id order by id), bds.first_change('acme') from bds.changes") == [([4, 5], 4)]
    assert len(partitions(acme)) == 1
    assert acme.rows("select month = date_trunc('month', now(), 'UTC'), first_id from bds.change_months") == [(True, 4)]


def test_the_first_change_of_a_month_is_kept_and_no_change_is_older_than_one_before_it(acme: Operator) -> None:
    age(acme, "2020_01")
    # the clock of the machine is a month ahead for a while
    acme.connection.execute("update bds.clocks set last_updated_at = date_trunc('month', now(), 'UTC') + interval '1 month 1 day'")
    for code in "de":
        acme.write("acme", NEW.format(code))
    times = acme.rows("select id, created_at from bds.change_log order by id")
    assert [at for _, at in times] == sorted(at for _, at in times)
    assert acme.rows("select first_id from bds.change_months order by month") == [(1,), (4,)]
    assert acme.rows("select max(month) = date_trunc('month', now(), 'UTC') + interval '1 month' from bds.change_months") == [
        (True,)
    ]
    with pytest.raises(ZeroDivisionError), acme.connection.transaction():
        acme.connection.execute("select bds.set_context('acme')")
        acme.connection.execute("update bds.clocks set month = '-infinity'")
        raise ZeroDivisionError
    assert acme.rows("select count(*) from bds.change_months") == [(2,)]


def test_a_reader_sees_the_months_of_its_company(acme: Operator, connect) -> None:
    acme.company("beta")
    for company, months in (("acme", 1), ("beta", 0)):
        assert connect("bds_reader", company).execute("select count(*) from bds.change_months").fetchone() == (months,)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connect("bds_operator").execute("delete from bds.change_months")


def test_only_the_operator_sets_the_retention(acme: Operator, connect) -> None:
    for role in ("bds_reader", "bds_writer", "bds_service"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connect(role, "acme").execute("select bds.set_retention('1 day')")
    for arguments, code in (("'1 hour'", "BD005"), ("'1 day', 'nobody'", "BD002"), ("'1 day', 'acme', true", "BD005")):
        with pytest.raises(psycopg.Error) as caught:
            connect("bds_operator").execute(f"select bds.set_retention({arguments})".encode())
        assert caught.value.sqlstate == code


def test_one_session_maintains_at_a_time_and_a_failed_step_does_not_stop_the_others(acme: Operator, connect) -> None:
    other = connect()
    with other.transaction():
        other.execute("select * from bds.maintain()")
        assert acme.rows("select * from bds.maintain()") == []
    acme.connection.execute("alter function bds_change_log.make_months(int) rename to renamed")
    problems = {step: problem for step, _, problem in acme.rows("select * from bds.maintain()")}
    assert [step for step, problem in problems.items() if problem] == ["make months of the log"]
    assert str(problems["make months of the log"]).startswith("42883: ")


def test_a_session_without_rights_holds_up_neither_a_new_month_nor_maintenance(acme: Operator, connect) -> None:
    stranger = connect("bds_writer", "acme")
    for name in ("bds.maintain", "bds_change_log.make_month"):
        stranger.execute("select pg_advisory_lock(hashtextextended(%s, 0))", (name,))
    for statement in ("lock table bds.problem_counts in share update exclusive mode", "lock table bds.change_log"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), stranger.transaction():
            stranger.execute(statement.encode())
    [(last,)] = acme.rows("select max(name) from bds_change_log.partitions()")
    acme.connection.execute(f"drop table bds.{last}".encode())
    assert maintain(acme)["make months of the log"] == 1
    takers = "select proname from pg_proc where pronamespace::regnamespace::text ~ '^bds' and prosrc ~ 'pg_advisory_'"
    assert acme.rows(takers) == [], "everybody may take an advisory lock, so nothing waits for one"


def test_the_service_maintains_without_a_problem(acme: Operator, connect: Connect) -> None:
    """It acts for no company, and is no operator."""
    service = connect("bds_service")
    found = service.execute("select step, problem from bds.maintain(interval '1 day') where problem is not null").fetchall()
    assert found == []
    assert acme.rows("select counted::text from bds.change_set_positions where company_id = 'acme'") == [("{[1,4)}",)]
