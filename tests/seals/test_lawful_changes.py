"""Sealed records that are erased, leave the log, or are copied with their company: what is said of them, and what that does not excuse."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from app.places import dump
from tests.conftest import NO_MONTHS, Operator, not_divided
from tests.database.aging import age, maintain
from tests.seals.sealing import ERASE, INSERT, RANGES, seal, verified


def dumped(operator: Operator) -> bytes:
    out = io.BytesIO()
    operator.connection.execute("set role bds_owner")
    dump.dump(operator.connection, "acme", out, lambda *_: None)
    operator.connection.execute("reset role")
    return out.getvalue()


def restored(operator: Operator, content: bytes) -> None:
    operator.connection.execute("set role bds_owner")
    dump.restore(operator.connection, io.BytesIO(content), True, lambda *_: None)
    operator.connection.execute("reset role")


def copied(operator: Operator) -> None:
    """Dump acme, delete it, restore it."""
    content = dumped(operator)
    operator.delete_company("acme")
    restored(operator, content)


def test_erased_ranges_have_other_keys_and_the_audit_leads_to_their_hashes(operator: Operator) -> None:
    before = dict(
        operator.rows(
            "select first_id, array[key, sealed_hash, hash]::text from bds.seals where company_id = 'acme' and log = 'changes'"
        )
    )
    operator.connection.execute("select bds.erase('acme', 'customers', 1, '{email}')")
    operator.connection.execute("select bds.erase('acme', 'customers', 2, '{email,name}')")
    assert verified(operator) == [("erased", 1, 4), ("erased", 5, 8), ("erased", 9, 12)]
    after = dict(
        operator.rows(
            "select first_id, array[key, sealed_hash, hash]::text from bds.seals where company_id = 'acme' and log = 'changes'"
        )
    )
    assert all(before[first].split(",")[1:] == after[first].split(",")[1:] for first in before)
    assert all(before[first].split(",")[0] != after[first].split(",")[0] for first in before)
    [(detail,)] = operator.rows("select detail from bds.verify_log('acme', 1, 1)")
    assert "erase of row customers/1 at " in detail and "erase of row customers/2 at " in detail
    operator.connection.execute("select bds.erase('acme', 'customers', 2, '{email}')")
    assert operator.rows("select detail ? 'seals' from bds.audit where action = 'erase' order by id") == [
        (True,),
        (True,),
        (False,),
    ]
    seal(operator)
    assert verified(operator, log="audit") == []


def test_an_erasure_does_not_hide_what_was_altered_before(operator: Operator) -> None:
    operator.connection.execute("update bds.change_log set actor = 'x' where company_id = 'acme' and id = 2")
    operator.connection.execute("select bds.erase('acme', 'customers', 1, '{email}')")
    assert verified(operator) == [("altered", 1, 4), ("erased", 5, 8), ("erased", 9, 12)]


KEEP = """
    create temp table kept_seals on commit drop as select * from bds.seals where log = 'changes';
    create temp table kept_log on commit drop as select * from bds.change_log;
"""
PUT_BACK = """
    update bds.seals s set key = k.key, content_hash = k.content_hash from kept_seals k
    where (s.company_id, s.log, s.first_id) = (k.company_id, k.log, k.first_id);
    update bds.change_log l set old = k.old, row_hash = k.row_hash from kept_log k where (l.company_id, l.id) = (k.company_id, k.id);
"""
UNERASED = [("altered", 1, 4), ("altered", 5, 8), ("altered", 9, 12)]


@pytest.mark.parametrize("before", ["", "update bds.change_log set transaction_id = '1' where company_id = 'acme';"])
def test_an_erasure_that_is_undone_is_a_fault(operator: Operator, before: str) -> None:
    """Also of records that were not as they were sealed when they were erased: the audit then leads from something else."""
    with operator.connection.transaction():
        operator.connection.execute((KEEP + before + ERASE + PUT_BACK).encode())
        undo = "update bds.change_log l set transaction_id = k.transaction_id from kept_log k where (l.company_id, l.id) = (k.company_id, k.id)"
        operator.connection.execute(undo.encode())
    assert operator.rows("select from bds.changes where company_id = 'acme' and row_id = 1 and old ->> 'email' = '1@a'") != []
    assert [row for row in verified(operator) if row[0] != "erased"] == UNERASED


DETACH = "alter table bds.change_log detach partition bds.change_log_2020_01"


def begin_in_2020(operator: Operator) -> None:
    """acme's changes 1-4 become those of January 2020, and all is sealed anew."""
    age(operator, "2020_01", "company_id = 'acme' and id < 5")
    operator.connection.execute("delete from bds.seals where log = 'changes'; delete from bds.seal_positions where log = 'changes'")
    seal(operator)


def archive(operator: Operator) -> None:
    operator.connection.execute("select bds.set_retention('2 years', archive => true)")
    maintain(operator)


@NO_MONTHS
@pytest.mark.parametrize(
    ("lawful", "said"),
    [
        ("select bds.set_retention('2 years')", [("expired", 1, 4)]),
        ("select bds.set_retention('2 years', 'acme')", [("expired", 1, 4)]),
        ("select bds.set_retention('2 years', archive => true)", []),
        (DETACH, []),
        (DETACH + "; alter table bds.change_log_2020_01 set schema data", [("expired", 1, 4)]),
        ("drop table bds.change_log_2020_01", [("expired", 1, 4)]),
    ],
)
def test_months_that_leave_the_log(operator: Operator, lawful: str, said: list[Any]) -> None:
    begin_in_2020(operator)
    assert operator.rows(RANGES) == [(1, 4), (5, 12)] and verified(operator) == []
    operator.connection.execute(lawful.encode())
    maintain(operator)
    assert verified(operator) == said
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    seal(operator)
    assert verified(operator) == said and operator.rows(RANGES)[-1] == (13, 13)
    month = f"bds.change_{'archive' if 'archive' in lawful else 'log'}_2020_01"
    if not said:
        operator.connection.execute(f"update {month} set actor = 'x' where id = 3".encode())
        assert verified(operator) == [("altered", 1, 4)], "verified where they are"
        operator.connection.execute(f"delete from {month} where company_id = 'acme'".encode())
        assert verified(operator) == [("missing", 1, 4)], "the month still stands"
        operator.connection.execute(f"drop table {month}".encode())
        assert verified(operator) == [("expired", 1, 4)], "it is gone"
    if "'acme'" in lawful:
        operator.connection.execute("delete from bds.company_audit where action = 'expire'")
        assert verified(operator) == [("missing", 1, 4)], "expired without a record in the audit"


@NO_MONTHS
@pytest.mark.parametrize("is_dropped_before", [True, False])
def test_an_archived_month_of_a_restored_company_expires_when_it_is_dropped(operator: Operator, is_dropped_before: bool) -> None:
    begin_in_2020(operator)
    archive(operator)
    content = dumped(operator)
    operator.delete_company("acme")
    drop = "drop table bds.change_archive_2020_01"
    if is_dropped_before:
        operator.connection.execute(drop.encode())
    restored(operator, content)
    assert verified(operator) == []
    operator.connection.execute(drop.encode())
    assert verified(operator) == [("expired", 1, 4)]
    copied(operator)
    assert verified(operator) == [("expired", 1, 4)]
    for parent in ("change_log", "change_archive"):  # as the restore of another company does
        operator.connection.execute("select bds_change_log.make_month('2020-01-01Z', %s)", (parent,))
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    seal(operator)
    assert verified(operator) == [("expired", 1, 4)]


@NO_MONTHS
@pytest.mark.parametrize("parent", ["change_log", "change_archive"])
def test_a_dropped_archived_month_stays_expired_when_it_is_made_anew(operator: Operator, parent: str) -> None:
    begin_in_2020(operator)
    archive(operator)
    operator.connection.execute("drop table bds.change_archive_2020_01")
    assert verified(operator) == [("expired", 1, 4)]
    operator.connection.execute("select bds_change_log.make_month('2020-01-01Z', %s)", (parent,))
    assert verified(operator) == [("expired", 1, 4)]
    operator.connection.execute("select bds.maintain()")  # archives it
    assert verified(operator) == [("expired", 1, 4)]


@NO_MONTHS
def test_a_month_of_the_log_that_is_made_again_takes_nothing_from_the_archive(operator: Operator) -> None:
    begin_in_2020(operator)
    archive(operator)
    operator.connection.execute("select bds_change_log.make_month('2020-01-01Z')")  # as the restore of another company does
    assert verified(operator) == []
    operator.connection.execute("delete from bds.change_archive where company_id = 'acme'")
    assert verified(operator) == [("missing", 1, 4)]
    operator.connection.execute("drop table bds.change_archive_2020_01")
    assert verified(operator) == [("expired", 1, 4)]


@NO_MONTHS
@pytest.mark.parametrize(
    ("lawful", "table"),
    [
        (DETACH, "bds.change_log_2020_01"),
        ("select bds.set_retention(now() - '2020-02-15', archive => true)", "bds.change_archive_2020_01"),
    ],
)
def test_a_companys_own_retention_takes_nothing_from_earlier_months_that_stand(operator: Operator, lawful: str, table: str) -> None:
    age(operator, "2020_02", "company_id = 'acme' and id between 5 and 8")
    begin_in_2020(operator)
    operator.connection.execute(lawful.encode())
    maintain(operator)
    operator.connection.execute("select bds.set_retention(null), bds.set_retention('2 years', 'acme')")
    maintain(operator)
    assert operator.rows("select bds.first_change('acme')") == [(9,)] and verified(operator) == [("expired", 5, 8)]
    operator.connection.execute(f"delete from {table} where company_id = 'acme'".encode())
    assert verified(operator) == [("missing", 1, 4), ("expired", 5, 8)]
    operator.connection.execute(f"drop table {table}".encode())
    assert verified(operator) == [("expired", 1, 4), ("expired", 5, 8)]


@NO_MONTHS
@pytest.mark.parametrize("table", ["bds.change_log", "bds.change_archive"])
def test_a_copy_does_not_excuse_what_was_deleted_at_its_source(operator: Operator, table: str) -> None:
    begin_in_2020(operator)
    if table == "bds.change_archive":
        archive(operator)
    operator.connection.execute(f"delete from {table} where company_id = 'acme' and id < 5".encode())
    assert verified(operator) == [("missing", 1, 4)]
    copied(operator)
    assert verified(operator) == [("missing", 1, 4)]


@NO_MONTHS
def test_a_month_that_is_made_anew_was_dropped_by_hand(operator: Operator) -> None:
    [(month,)] = operator.rows("select tableoid::regclass::text from bds.change_log limit 1")
    operator.connection.execute(f"drop table {month}".encode())
    assert verified(operator) == [("expired", 1, 4), ("expired", 5, 8), ("expired", 9, 12)]
    maintain(operator)
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    seal(operator)
    assert verified(operator) == [("expired", 1, 4), ("expired", 5, 8), ("expired", 9, 12)]


ARCHIVE = "select bds.set_retention('2 years', archive => true)"


def begin_unsealed_in_2020(operator: Operator) -> None:
    """acme's changes 1-4 become those of January 2020, of which none is sealed and one is missing."""
    age(operator, "2020_01", "company_id = 'acme' and id < 5")
    operator.connection.execute("delete from bds.seals where log = 'changes'; delete from bds.seal_positions where log = 'changes'")
    operator.connection.execute("delete from bds.change_log where company_id = 'acme' and id = 3")
    assert verified(operator) == [("unsealed", 1, 2), ("missing", 3, 3), ("unsealed", 4, 12)]


@NO_MONTHS
@pytest.mark.parametrize(("leave", "table"), [(ARCHIVE, "change_archive_2020_01"), (DETACH, "change_log_2020_01")])
def test_what_was_missing_before_its_month_left_the_log_unsealed_stays_missing(operator: Operator, leave: str, table: str) -> None:
    begin_unsealed_in_2020(operator)
    operator.connection.execute(leave.encode())
    maintain(operator)
    left = [("expired", 1, 2), ("missing", 3, 3), ("expired", 4, 4)]
    assert verified(operator) == [*left, ("unsealed", 5, 12)]
    seal(operator)
    assert verified(operator) == left, "between seals, too"
    if leave == ARCHIVE:
        copied(operator)
        assert verified(operator) == left, "a copy excuses nothing"
    operator.connection.execute(f"drop table bds.{table}".encode())
    assert verified(operator) == [("expired", 1, 4)]
    copied(operator)
    assert verified(operator) == [("expired", 1, 4)]


@NO_MONTHS
def test_a_copy_lacks_unsealed_changes_of_a_detached_month(operator: Operator, connect: Callable[..., Any]) -> None:
    begin_unsealed_in_2020(operator)
    operator.connection.execute(DETACH.encode())
    content = dumped(operator)
    operator.delete_company("acme")
    operator.connection.execute("drop table bds.change_log_2020_01; select bds_change_log.make_month('2020-01-01Z')")
    restored(operator, content)
    assert verified(operator) == [("expired", 1, 4), ("unsealed", 5, 12)]


@NO_MONTHS
@pytest.mark.parametrize("leave", [ARCHIVE.replace(", archive => true", ""), "drop table bds.change_log_2020_01"])
def test_a_record_among_those_that_have_expired_unsealed_is_added(operator: Operator, leave: str) -> None:
    begin_unsealed_in_2020(operator)
    operator.connection.execute(leave.encode())
    maintain(operator)
    assert verified(operator) == [("expired", 1, 4), ("unsealed", 5, 12)]
    operator.connection.execute(INSERT.format("now()", 2).encode())
    assert verified(operator) == [("expired", 1, 1), ("added", 2, 2), ("expired", 3, 4), ("unsealed", 5, 12)]


@NO_MONTHS
def test_a_detached_month_stands_under_another_name(operator: Operator) -> None:
    begin_in_2020(operator)
    archive(operator)
    operator.connection.execute(
        "alter table bds.change_archive detach partition bds.change_archive_2020_01;"
        "alter table bds.change_archive_2020_01 rename to foo"
    )
    assert verified(operator) == []
    operator.connection.execute("delete from bds.foo where company_id = 'acme'")
    assert verified(operator) == [("missing", 1, 4)]
    operator.connection.execute("drop table bds.foo")
    assert verified(operator) == [("expired", 1, 4)]


NO_MONTH = {
    "of another owner": "create table bds.copy (like {} including constraints)",
    "with other columns": "create table bds.copy (like {} including constraints); alter table bds.copy drop column id, owner to bds_owner",
    "with a column of another type": "create table bds.copy (like {} including constraints);"
    " alter table bds.copy alter old type text, owner to bds_owner",
    "that its owner may not read": "create table bds.copy (like {} including constraints); alter table bds.copy owner to bds_owner;"
    " revoke all on bds.copy from bds_owner",
}


@NO_MONTHS
@pytest.mark.parametrize("kind", NO_MONTH)
def test_a_table_that_only_looks_like_a_month_is_told_and_stops_nobody(operator: Operator, kind: str) -> None:
    [(month,)] = operator.rows("select tableoid::regclass::text from bds.change_log limit 1")
    problems = "select kind, object from bds.problems where object = 'bds.copy'"
    operator.connection.execute(NO_MONTH[kind].format(month).encode())
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    operator.connection.execute("update bds.seal_positions set verified_at = null")
    assert operator.rows("select problem from bds.maintain(seal_age => '0') where problem is not null") == []
    operator.connection.execute(ERASE.encode())
    assert [row[0] for row in verified(operator)] == ["erased"] * 3
    assert operator.rows(problems) == [("misplaced table", "bds.copy")]


def test_a_restored_company_has_its_chain_which_goes_on(operator: Operator) -> None:
    operator.connection.execute("select bds.erase('acme', 'customers', 1, '{email}')")
    before = operator.rows("select * from bds.seals where company_id = 'acme' and log = 'changes' order by first_id")
    operator.delete_company("beta")
    assert operator.rows("select 1 from bds.seals where company_id = 'beta'") == []
    copied(operator)
    assert operator.rows("select * from bds.seals where company_id = 'acme' and log = 'changes' order by first_id") == before
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    seal(operator)
    assert verified(operator) == [("erased", 1, 4), ("erased", 5, 8), ("erased", 9, 12)] and operator.rows(RANGES)[-1] == (13, 13)
    assert verified(operator, log="audit") == []


@not_divided("registers a table again")
def test_a_restore_that_renames_columns_says_so(operator: Operator) -> None:
    rename = "alter table data.customers rename column {} to {}; select bds.register('data.customers')"
    operator.connection.execute(rename.format("phone", "mobile").encode())
    assert verified(operator) == [], "records keep the names of then"
    out = dumped(operator)
    operator.delete_company("acme")
    # this server has never known the old name
    operator.connection.execute("delete from bds.column_history where entity = 'customers' and column_name = 'phone'")
    operator.connection.execute("update bds.column_history set since = '-infinity' where column_name = 'mobile'")
    restored(operator, out)
    assert verified(operator) == [("renamed", 9, 12)]
    operator.connection.execute("select bds.erase('acme', 'customers', 1, '{email}')")
    assert verified(operator) == [("erased", 1, 4), ("erased", 5, 8), ("erased", 9, 12), ("renamed", 9, 12)]
    assert operator.rows("select object, jsonb_array_length(detail -> 'seals') from bds.audit where action = 'rename'") == [
        ("changes", 1)
    ]


@NO_MONTHS
def test_a_copy_notes_what_its_source_no_longer_had(operator: Operator) -> None:
    begin_in_2020(operator)
    operator.connection.execute("drop table bds.change_log_2020_01")
    copied(operator)
    assert verified(operator) == [("expired", 1, 4)]
    assert operator.rows("select detail ->> 'left' is not null from bds.audit where company_id = 'acme' and action = 'expire'") == [
        (True,)
    ]
