"""Months of the log that a DBA detaches by hand: what is read without them, and who still finds their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.conftest import NO_MONTHS, Operator, fresh_database
from tests.database.aging import age
from tests.database.test_companies import dumped, restore

pytestmark = [pytest.mark.slow, NO_MONTHS]

DETACH = "alter table bds.{} detach partition bds.{}_2020_{:02}"
ATTACH = DETACH.replace("detach", "attach") + " for values from ('2020-{:02}-01Z') to ('2020-{:02}-01Z')"
PHONES = "select version, row ->> 'phone', old ->> 'phone' from bds.row_history('acme', 'customers', %s)"


@pytest.fixture
def carl(operator: Operator) -> int:
    """A customer whose four changes are in the first four months of 2020."""
    operator.company("acme")
    [(row_id,)] = operator.write("acme", "insert into data.customers (code, name, phone) values ('C', 'Carl', '1') returning id")
    for phone in "234":
        operator.write("acme", f"update data.customers set phone = '{phone}'")
    for number in range(1, 5):
        age(operator, f"2020_{number:02}", f"id = {number}")
    return int(row_id)


def detach(operator: Operator, month: int, table: str = "change_log") -> None:
    operator.connection.execute(DETACH.format(table, table, month).encode())


def archive(operator: Operator) -> None:
    operator.connection.execute("select bds.set_retention('1 year', archive => true)")
    operator.connection.execute("select bds.maintain()")
    operator.connection.execute("select bds.set_retention(null)")


@pytest.fixture
def elsewhere(server: str) -> Iterator[Operator]:
    databases = fresh_database(server)
    with psycopg.connect(next(databases), autocommit=True) as connection:
        yield Operator(connection)
    next(databases, None)


@pytest.mark.parametrize(("month", "kept"), [(1, [(2, "2", "1"), (3, "3", "2"), (4, "4", "3")]), (3, [(4, "4", "3")]), (4, [])])
def test_history_begins_after_the_last_month_that_is_missing(
    operator: Operator, carl: int, month: int, kept: list[tuple[int, str, str]]
) -> None:
    detach(operator, month)
    assert operator.rows(PHONES, (carl,)) == kept
    values = "select change_id, new, old from bds.change_values('acme', id => %s) where column_name = 'phone'"
    assert operator.rows(values, (carl,)) == kept
    operator.connection.execute(ATTACH.format("change_log", "change_log", month, month, month + 1).encode())
    assert len(operator.rows(PHONES, (carl,))) == 4


@pytest.mark.parametrize("month", [1, 3, 4])
def test_rows_are_not_compared_with_records_from_before_a_missing_month(operator: Operator, carl: int, month: int) -> None:
    detach(operator, month)
    assert operator.rows("select * from bds.compare_log()") == []
    operator.write("acme", "update data.customers set phone = '5'")
    operator.connection.execute("set session_replication_role = replica; update data.customers set phone = '6'; reset all")
    assert operator.rows("select kind, examples from bds.compare_log()") == [("unlogged update", [carl])]


def change(operator: Operator, change_set: UUID, phone: str) -> None:
    with operator.connection.transaction():
        operator.connection.execute("select bds.set_context('acme', 'me', %s)", (change_set,))
        operator.connection.execute("update data.customers set phone = %s", (phone,))


def test_what_a_detached_month_has_tells_which_change_sets_can_be_undone(operator: Operator) -> None:
    operator.company("acme")
    document = '{"customers": [{"code": "C", "name": "Carl", "phone": "1"}]}'
    [(made,)] = operator.rows("select (bds.import_document('acme', %s) ->> 'importId')::uuid", (document,))
    whole, split, last = uuid4(), uuid4(), uuid4()
    for change_set, phone in ((split, "2"), (whole, "3"), (split, "4"), (last, "5")):
        change(operator, change_set, phone)
    for number, month in enumerate("11234", start=1):
        age(operator, f"2020_0{month}", f"id = {number}")
    operator.connection.execute("update bds.imports set started_at = '2019-12-31'")

    def undone(change_set: UUID) -> str:
        try:
            return str(operator.rows("select bds.revert('acme', %s, true) ->> 'state'", (change_set,))[0][0])
        except psycopg.Error as error:
            return f"{error.sqlstate} {error.diag.message_detail}"

    detach(operator, 1)
    assert [undone(each) for each in (whole, split, last)] == ["failed", 'BD006 {"firstId": 3}', "completed"]
    detach(operator, 2)
    assert [undone(each) for each in (made, split, last)] == ['BD006 {"firstId": 4}'] * 2 + ["completed"]
    detach(operator, 3)
    assert undone(last) == "completed"
    for month in (1, 2, 3):
        operator.connection.execute(ATTACH.format("change_log", "change_log", month, month, month + 1).encode())
    detach(operator, 3)
    # it is there, but what others changed later is not
    assert [undone(each) for each in (made, whole)] == ['BD006 {"firstId": 5}'] * 2
    operator.connection.execute("drop table bds.change_log_2020_03")
    assert undone(last) == 'BD006 {"firstId": 5}', "nothing tells what the month had"


def test_values_are_erased_in_detached_months_too(operator: Operator, carl: int) -> None:
    detach(operator, 2)
    operator.write("acme", "delete from data.customers")
    [(records,)] = operator.rows("select bds.erase('acme', 'customers', %s, '{phone}')", (carl,))
    assert records == 4
    operator.connection.execute(ATTACH.format("change_log", "change_log", 2, 2, 3).encode())
    assert operator.rows("select distinct old ->> 'phone', row_hash from bds.change_log where row_hash <> 0") == []
    assert operator.rows("select distinct old ->> 'phone' from bds.change_log") == [(None,)]
    assert operator.rows("select * from bds.compare_log()") == []


def test_hashes_of_rows_whose_records_are_all_archived_are_erased(operator: Operator, carl: int) -> None:
    operator.write("acme", "delete from data.customers")
    age(operator, "2020_05", "id = 5")
    archive(operator)
    detach(operator, 2, "change_archive")
    operator.connection.execute("select bds.erase('acme', 'customers', %s, '{phone}')", (carl,))
    for log in ("bds.change_archive", "bds.change_archive_2020_02"):
        assert operator.rows(f"select distinct coalesce(row_hash, 0), old ->> 'phone' from {log}") == [(0, None)]


@pytest.mark.parametrize("table", ["change_log", "change_archive"])
def test_a_company_is_dumped_without_detached_months_and_deleted_with_them(
    operator: Operator, carl: int, table: str, elsewhere: Operator
) -> None:
    if table == "change_archive":
        archive(operator)
    detach(operator, 2, table)
    restore(elsewhere, dumped(operator))
    assert elsewhere.rows(f"select array_agg(id order by id) from bds.{table}") == [([1, 3, 4],)]
    assert elsewhere.rows("select bds.first_change('acme')") == operator.rows("select bds.first_change('acme')")
    operator.connection.execute("select bds.delete_company('acme')")
    assert operator.rows(f"select from bds.{table}_2020_02") == []


def test_a_company_that_lost_the_month_that_lasts_is_dumped_and_restored(
    operator: Operator, carl: int, elsewhere: Operator
) -> None:
    operator.write("acme", "update data.customers set phone = '5'")
    [(this,)] = operator.rows("select tableoid::regclass::text from bds.change_log where id = 5")
    operator.connection.execute(f"drop table {this}".encode())
    operator.connection.execute("select bds.maintain()")
    assert operator.rows("select bds.first_change('acme')") == [(6,)]
    restore(elsewhere, dumped(operator))
    for phone in "67":
        elsewhere.write("acme", f"update data.customers set phone = '{phone}'")
    assert elsewhere.rows("select bds.first_change('acme')") == [(6,)]
    assert elsewhere.rows("select bds.row_at('acme', 'customers', %s, 5) ->> 'phone'", (carl,)) == [("5",)]


@pytest.mark.parametrize(
    "read", ["bds.row_at('acme', 'customers', {}, 1)", "(select r from bds.rows_at('acme', 'customers', 1) r where {} > 0)"]
)
def test_a_past_state_is_right_though_its_month_comes_back_meanwhile(
    operator: Operator, carl: int, connect: Callable[..., psycopg.Connection[Any]], read: str
) -> None:
    for month in (1, 2):
        detach(operator, month)
    reader = connect()
    with ThreadPoolExecutor() as threads:
        with operator.connection.transaction():
            operator.connection.execute("lock table bds.change_months")
            answer = threads.submit(reader.execute, f"select {read.format(carl)} ->> 'phone'".encode())
            waits = "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'"
            while not operator.rows(waits, (reader.info.backend_pid,)):
                operator.rows("select pg_stat_clear_snapshot()")
            for month in (1, 2):
                operator.connection.execute(ATTACH.format("change_log", "change_log", month, month, month + 1).encode())
        assert answer.result().fetchone() == ("1",)


def test_a_month_that_is_needed_while_it_is_detached_is_named(operator: Operator, carl: int) -> None:
    content = dumped(operator)
    detach(operator, 2)
    operator.connection.execute("select bds.delete_company('acme')")
    with pytest.raises(psycopg.Error) as caught:
        restore(operator, content)
    assert (caught.value.sqlstate, "bds.change_log_2020_02" in str(caught.value)) == ("BD004", True)
    operator.connection.execute("create schema kept; alter table bds.change_log_2020_02 set schema kept")
    restore(operator, content)
    # the archive's month comes again, too
    archive(operator)
    detach(operator, 2, "change_archive")
    operator.connection.execute("select bds.delete_company('acme')")
    restore(operator, content)
    operator.connection.execute("select bds.set_retention('1 year')")
    [problem] = [problem for (problem,) in operator.rows("select problem from bds.maintain()") if problem]
    assert problem.startswith("BD004: bds.change_archive_2020_02 ")
