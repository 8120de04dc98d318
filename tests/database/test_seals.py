"""Seals of the change log and of the audit: what is sealed, what changes sealed records lawfully, what is named as a fault.

Each state is also verified by docs/verify_seals.py, which uses no function of the service.
"""

from __future__ import annotations

import importlib.util
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.places import dump
from tests.conftest import NO_MONTHS, Operator, not_divided, prepared
from tests.database.aging import age, maintain

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "verify_seals.py"
SEAL = "select done, problem from bds.maintain(seal_age => '0') where step = 'seal records'"
RANGES = "select first_id, last_id from bds.seals where company_id = 'acme' and log = 'changes' order by 1"
LOG = "select kind, first_id, last_id from bds.verify_log(%s, log => %s) order by first_id, kind, last_id"
FAULTS = {"altered", "missing", "added", "chain"}

spec = importlib.util.spec_from_file_location("verify_seals", SCRIPT)
assert spec and spec.loader
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


def seal(operator: Operator) -> None:
    [(_, problem)] = operator.rows(SEAL)
    assert problem is None


def fill(operator: Operator) -> None:
    """acme has the sealed changes 1-4, 5-8 and 9-12, and two acts of administration."""
    for company in ("acme", "beta"):
        operator.company(company)
    values = "select n, 'C' || n, 'Name ' || n, 'é\"\\' || n || chr(10), null from generate_series(1, 4) n"
    operator.write("acme", f"insert into data.customers (id, code, name, email, phone) {values}", actor="änna\n5 x")
    operator.write("beta", f"insert into data.customers (id, code, name, email, phone) {values}")
    seal(operator)
    operator.write("acme", "update data.customers set email = id || '@a' where company_id = 'acme'")
    seal(operator)
    operator.write("acme", "update data.customers set email = null, phone = '5' where company_id = 'acme' and id <= 3")
    operator.write("acme", "delete from data.customers where company_id = 'acme' and id = 4")
    for name in ("one", "two"):
        operator.write("acme", f"select bds.put_mapper('acme', '{name}', 'csv', 'text')")
        seal(operator)


@pytest.fixture(scope="module")
def template(server: str) -> Iterator[str]:
    yield from prepared(server, fill)


def verified(operator: Operator, company: str = "acme", log: str = "changes") -> list[tuple[Any, ...]]:
    """What bds.verify_log says, which is what the script says."""
    found = operator.rows(LOG, (company, log))
    with operator.connection.transaction():
        said = [row[:3] for row in script.verify(operator.connection, company, log)]
    assert sorted(said[:-1], key=lambda row: (row[1], row[0], row[2])) == found
    return found


# Sealing ------------------------------------------------------------------------------------------------------------------------


def test_ranges_follow_one_another_and_what_is_sealed_is_right(operator: Operator) -> None:
    assert operator.rows(RANGES) == [(1, 4), (5, 8), (9, 12)]
    assert operator.rows("select company_id, first_id, last_id from bds.seals where log = 'audit' order by 1, 2") == [
        ("", 1, 2), ("acme", 1, 1), ("acme", 2, 2),
    ]  # fmt: skip
    assert [verified(operator, *each) for each in (("acme",), ("beta",), ("acme", "audit"), ("", "audit"))] == [[]] * 4
    assert operator.rows("select log_head('acme') = (l.last_id, l.hash, l.sealed_at) from bds.seals l where first_id = 9"
        .replace("log_head", "bds.log_head")) == [(True,)]  # fmt: skip


def test_records_wait_until_they_are_many_or_old(operator: Operator) -> None:
    step = "select done from bds.maintain() where step = 'seal records'"
    insert = "insert into data.units (code, name) select 'u' || n, 'U' from generate_series(%s::int, %s::int) n"
    operator.write("acme", insert, (1, 9_999))
    assert operator.rows(step) == [(0,)] and verified(operator) == [("unsealed", 13, 10_011)]
    operator.write("acme", insert, (10_000, 10_001))
    assert operator.rows(step) == [(10_000,)] and operator.rows(RANGES)[-1] == (13, 10_012)
    assert verified(operator) == [("unsealed", 10_013, 10_013)]
    operator.connection.execute("update bds.seal_positions set waits_since = waits_since - interval '1 hour'")
    assert operator.rows(step) == [(0,)], "the time of the record counts"
    operator.connection.execute("update bds.change_log set created_at = created_at - interval '1 hour' where id = 10013")
    operator.connection.execute("update bds.seal_positions set waits_since = null")
    assert operator.rows(step) == [(1,)] and verified(operator) == []


@NO_MONTHS
def test_a_range_has_changes_of_one_month(operator: Operator) -> None:
    operator.company("old")
    operator.write("old", "insert into data.units (code, name) select n::text, 'U' from generate_series(1, 6) n")
    age(operator, "2020_01", "company_id = 'old' and id < 4")
    seal(operator)
    assert operator.rows("select first_id, last_id from bds.seals where company_id = 'old' order by 1") == [(1, 3), (4, 6)]
    assert verified(operator, "old") == []


def test_sealing_waits_for_nobody_and_stops_nobody(operator: Operator, connect: Callable[..., Any]) -> None:
    writer = connect()
    with writer.transaction():
        writer.execute("select bds.set_context('acme'); insert into data.units (code, name) values ('w', 'W')")
        operator.write("beta", "insert into data.units (code, name) values ('w', 'W')")
        assert operator.rows(SEAL) == [(1, None)], "what is not committed is not sealed, and its turn is not waited for"
    eraser = connect()
    with eraser.transaction():
        eraser.execute("select bds.erase('acme', 'customers', 1, '{email}')")
        assert operator.rows(SEAL) == [(0, None)], "put off"
    assert operator.rows(SEAL) == [(2, None)] and operator.rows(SEAL) == [(0, None)]
    assert [row[0] for row in verified(operator)] == ["erased"] * 3


def test_nothing_is_sealed_behind_a_missing_record(operator: Operator) -> None:
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A'), ('b', 'B'), ('c', 'C')")
    operator.connection.execute("delete from bds.change_log where company_id = 'acme' and id = 13")
    assert operator.rows(SEAL) == [(0, "records of changes of acme between 13 and 15 are missing")]
    assert verified(operator) == [("missing", 13, 13), ("unsealed", 14, 15)]


def test_what_is_missing_before_it_was_sealed_is_named(operator: Operator) -> None:
    operator.write("acme", "insert into data.units (code, name) select 'u' || n, 'U' from generate_series(13, 20) n")
    assert verified(operator) == [("unsealed", 13, 20)]
    operator.connection.execute("delete from bds.change_log where company_id = 'acme' and id in (14, 17, 18, 20)")
    gaps = [("missing", 14, 14), ("missing", 17, 18), ("missing", 20, 20)]
    assert verified(operator) == sorted(
        [*gaps, ("unsealed", 13, 13), ("unsealed", 15, 16), ("unsealed", 19, 19)], key=lambda r: r[1]
    )
    [(detail,)] = operator.rows("select detail from bds.verify_log('acme') where first_id = 15")
    assert detail.startswith("2 records wait")
    operator.rows("select bds_service.verify_sealed('acme')")
    assert operator.rows("select kind, first_id, last_id from bds.seal_findings order by 2") == gaps


def test_what_is_in_the_way_is_told_of_each_log_and_of_those_alone(operator: Operator) -> None:
    rename = "update data.customers set name = name || '!' where company_id = %s and id < 4"
    for company in ("acme", "beta"):
        operator.connection.execute(rename, (company,))
    operator.rows("select from bds.maintain()")  # these logs wait from now on
    operator.company("sound")  # its audit does not wait yet, which is looked at before them
    operator.connection.execute("delete from bds.change_log where (company_id, id) in (('acme', 13), ('beta', 5))")
    told = [
        f"records of changes of {company} between {ids} are missing"
        for company, ids in {"acme": "13 and 15", "beta": "5 and 7"}.items()
    ]
    [(done, problem)] = operator.rows(SEAL)
    assert done > 0 and sorted(problem.split("; ")) == told


# Lawful changes -----------------------------------------------------------------------------------------------------------------


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
ERASE = "select bds.erase('acme', 'customers', 1, '{email}');"
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


# What is not lawful -------------------------------------------------------------------------------------------------------------

REHASH = """
    update bds.seals s set hash = bds_seals.seal_hash(s) where first_id = 5 and company_id = 'acme' and log = 'changes'
"""
FORGED = """
    update bds.seals s set content_hash = m.hash, sealed_hash = m.hash from bds.seals o cross join lateral bds_seals.measure(o) m
    where s.company_id = 'acme' and s.log = 'changes' and s.first_id = 5 and (o.company_id, o.log, o.first_id) = ('acme', 'changes', 5)
"""
RECHAINED = """
    update bds.seals s set previous = o.hash from bds.seals o
    where (s.company_id, s.log, s.first_id, o.company_id, o.log, o.first_id) = ('acme', 'changes', 9, 'acme', 'changes', 5);
    update bds.seals s set hash = bds_seals.seal_hash(s) where first_id = 9 and company_id = 'acme' and log = 'changes'
"""
CHANGE = "update bds.change_log set {} where company_id = 'acme' and id = 6"
ACT = "update bds.company_audit set {} where company_id = 'acme' and id = 2"
DELETE = "delete from bds.{} where company_id = 'acme' and {};"
INSERT = (
    "insert into bds.change_log (row_id, transaction_id, row_hash, operation, company_id, entity, actor, db_user, created_at, id)"
    " select 1, '1', 1, 'create', 'acme', 'units', 'x', 'x', {}, {}"
)
GONE = DELETE.format("change_log", "id between 5 and 8")
FORGET = "update bds.change_months set first_id = 9 where company_id = 'acme';"  # then 1-8 are not kept
NEW_HASH = "update bds.seals set content_hash = 'x' where company_id = 'acme' and log = 'changes' and first_id = 5;"


def act(action: str, thing: str, detail: str, id: int | None = None) -> str:
    last = "(select coalesce(max(id), 0) + 1 from bds.company_audit where company_id = 'acme')"
    return (
        "insert into bds.company_audit (company_id, at, actor, db_user, action, object, detail, id)"
        f" values ('acme', clock_timestamp(), 'x', 'x', '{action}', '{thing}', '{detail}', {id or last});"
    )


def expiry(ids: str, thing: str = "changes") -> str:
    return act("expire", thing, f"{{{ids}}}")


TAMPERED: dict[str, tuple[str, list[tuple[str, int, int]]]] = {  # of the changes of acme
    "a value": (CHANGE.format("""old = old || '{"email": "x"}'"""), [("altered", 5, 8)]),
    "a column of a value": (CHANGE.format("old = old - 'email'"), [("altered", 5, 8)]),
    "digits of a number": (
        """update bds.change_log set old = old || '{"id": 4.0}' where company_id = 'acme' and id = 12""", [("altered", 9, 12)]
    ),
    "an actor": (CHANGE.format("actor = 'nobody'"), [("altered", 5, 8)]),
    "a login": (CHANGE.format("db_user = 'nobody'"), [("altered", 5, 8)]),
    "a time": (CHANGE.format("created_at = created_at + interval '1 microsecond'"), [("altered", 5, 8)]),
    "the time of before": (CHANGE.format("last_updated_at = 'infinity'"), [("altered", 5, 8)]),
    "a change set": (CHANGE.format("change_set_id = gen_random_uuid()"), [("altered", 5, 8)]),
    "a transaction": (CHANGE.format("transaction_id = '1'"), [("altered", 5, 8)]),
    "a row": (CHANGE.format("row_id = 7"), [("altered", 5, 8)]),
    "an entity": (CHANGE.format("entity = 'units'"), [("altered", 5, 8)]),
    "collections": (CHANGE.format("collections = '{orders}'"), [("altered", 5, 8)]),
    "the hash of a row": (CHANGE.format("row_hash = 5"), [("altered", 5, 8)]),
    "an operation": (
        "update bds.change_log set operation = 'create', old = null where company_id = 'acme' and id = 12 and row_hash is not null;"
        + "update bds.change_log set operation = 'create', old = null, collections = null where company_id = 'acme' and id = 9",
        [("altered", 9, 12)],
    ),
    "two records that change places": (
        "update bds.change_log set id = 100 where company_id = 'acme' and id = 6;"
        "update bds.change_log set id = 6 where company_id = 'acme' and id = 7;"
        "update bds.change_log set id = 7 where company_id = 'acme' and id = 100",
        [("altered", 5, 8)],
    ),
    "a record that is removed": ("delete from bds.change_log where company_id = 'acme' and id = 6", [("missing", 5, 8)]),
    "a range that is removed": ("delete from bds.change_log where company_id = 'acme' and id < 5", [("missing", 1, 4)]),
    "a record of another company": (
        "update bds.change_log set company_id = 'gone' where company_id = 'acme' and id = 6", [("missing", 5, 8)]
    ),
    "a seal that is removed": (
        "delete from bds.seals where company_id = 'acme' and first_id = 5 and log = 'changes'",
        [("missing", 5, 8), ("chain", 9, 12)],
    ),
    "the first seal": (
        "delete from bds.seals where company_id = 'acme' and first_id = 1 and log = 'changes'", [("missing", 1, 4), ("chain", 5, 8)]
    ),
    "content that is hashed anew": (
        CHANGE.format("actor = 'x'") + ";" + FORGED.replace("sealed_hash = m.hash", "key = s.key"), [("altered", 5, 8)]
    ),
    "a seal that is replaced": (CHANGE.format("actor = 'x'") + ";" + FORGED + ";" + REHASH, [("chain", 9, 12)]),
    "a sealed hash that is replaced": (CHANGE.format("actor = 'x'") + ";" + FORGED, [("chain", 5, 8)]),
    "a generation": ("update bds.seals set generation = 2 where company_id = 'acme' and first_id = 5", [("chain", 5, 8)]),
    "a key": ("update bds.seals set key = 'x' where company_id = 'acme' and first_id = 5", [("altered", 5, 8)]),
    "a range": (
        "update bds.seals set last_id = 7 where company_id = 'acme' and first_id = 5",
        [("altered", 5, 7), ("chain", 5, 7), ("missing", 8, 8)],
    ),
    "an erasure that is not in the audit": (
        "select bds.erase('acme', 'customers', 1, '{email}'); delete from bds.company_audit where action = 'erase';"
        "delete from bds.audit_pending",
        [("altered", 1, 4), ("altered", 5, 8), ("altered", 9, 12)],
    ),
    "a record with an id that is taken": (
        "select bds_change_log.make_month('2020-01-01Z');" + INSERT.format("timestamptz '2020-01-02'", 6), [("added", 5, 8)]
    ),
    "records beyond the clock": (f"{INSERT.format('now()', 13)}; {INSERT.format('now()', 20)}", [("added", 13, 20)]),
    "the clock": ("update bds.clocks set last_id = 20 where company_id = 'acme'", [("missing", 13, 20)]),
    "the clock, back": ("update bds.clocks set last_id = 10 where company_id = 'acme'", [("added", 11, 12)]),
    "the clock, to its end": (
        "update bds.clocks set last_id = 4611686018427387903 where company_id = 'acme'", [("missing", 13, 4611686018427387903)]
    ),
    "the last seal": (DELETE.format("seals", "log = 'changes' and first_id = 9"), [("chain", 9, 12), ("unsealed", 9, 12)]),
    "every seal": (DELETE.format("seals", "log = 'changes'"), [("chain", 1, 12), ("unsealed", 1, 12)]),
    "every seal and record": (
        DELETE.format("seals", "true") + DELETE.format("change_log", "true"), [("chain", 1, 12), ("missing", 1, 12)]
    ),
    "every seal and record, and the clock": (
        DELETE.format("seals", "true") + DELETE.format("change_log", "true")
        + "update bds.clocks set last_id = 0 where company_id = 'acme'",
        [("chain", 1, 12), ("missing", 1, 12)],
    ),
    "how far it is sealed": (
        "update bds.seal_positions set sealed_id = 20 where company_id = 'acme' and log = 'changes'",
        [("chain", 13, 20), ("missing", 13, 20)],
    ),
    "a range that hardly ends": (
        "update bds.seals set last_id = 9223372036854775806 where company_id = 'acme' and log = 'changes' and first_id = 9",
        [("chain", 9, 9223372036854775806)],
    ),
    "ranges that overlap": (
        "update bds.seals set last_id = 9 where company_id = 'acme' and log = 'changes' and first_id = 5",
        [("altered", 5, 9), ("chain", 5, 9), ("chain", 9, 12)],
    ),
    "an expiry of what is kept": (GONE + expiry('"first_id": 5, "last_id": 8'), [("missing", 5, 8)]),
    "an expiry of something else": (GONE + FORGET + expiry('"first_id": 5, "last_id": 8', "other"), [("missing", 5, 8)]),
    **{
        f"an expiry of {ids}": (GONE + FORGET + expiry(ids), [("missing", 5, 8)])
        for ids in (
            "", '"first_id": 5', '"last_id": 8', '"first_id": 8, "last_id": 5', '"first_id": "5", "last_id": "8"',
            '"first_id": 5, "last_id": 8.5', '"first_id": -5, "last_id": 8', '"first_id": 5, "last_id": 9223372036854775807',
            '"first_id": null, "last_id": null', '"first_id": [5], "last_id": {}', '"first_id": 5, "last_id": 7',
            '"first_id": 5, "last_id": 8, "archived": true', '"first_id": 5, "last_id": 8, "archived": true, "month": 2020',
        )
    },
    "an expiry into an archive that never was": (
        GONE + expiry('"first_id": 5, "last_id": 8, "archived": true, "month": "2019-01-01T00:00:00+00:00"'), [("missing", 5, 8)]
    ),
    "what is kept, and an expiry in parts": (
        GONE + FORGET + expiry('"first_id": 5, "last_id": 6') + expiry('"first_id": 7, "last_id": 8'), [("expired", 5, 8)]
    ),
    **{
        f"an act that is noted with {detail}": (NEW_HASH + act(action, "changes", detail), [("altered", 5, 8)])
        for action, detail in (
            ("erase", '{"seals": 5}'), ("erase", '{"seals": [5, null, [], {"first_id": [5]}, {"first_id": 5}]}'), ("erase", "[]"),
            ("erase", '{"seals": {"first_id": 5}}'), ("erase", '["seals"]'), ("expire", '{"seals": [{"first_id": 5}]}'),
            ("erase", '{"seals": [{"first_id": true, "before": "x", "after": null}]}'),
        )
    },
    **{
        f"an act that is noted with {detail[:30]}": (act(action, "changes", detail), said)
        for action, detail, said in (
            ("erase", '{"caller": 1e5000, "seals": [{"first_id": 1e5000}, {"first_id": -1e-5000}]}', []),
            ("erase", '{"seals": [{"first_id": 5.00000000000000000000001}]}', []),
            ("erase", '{"seals": [{"first_id": 5.0, "before": "x"}]}', [("altered", 5, 8)]),
            ("erase", f'{{"caller": {"[" * 2000}{"]" * 2000}}}', []),
            ("expire", '{"first_id": 1e5000, "last_id": 1e5001}', []),
            ("expire", '{"first_id": 1.0, "last_id": 1.5e0, "month": [1e5000]}', []),
        )
    },
    "an act of a far time": (act("erase", "changes", "{}").replace("clock_timestamp()", "'20000-01-01'"), []),
    "an erasure that is noted as an expiry": (
        "select bds.erase('acme', 'customers', 1, '{email}'); set constraints all immediate;"
        "update bds.company_audit set action = 'expire' where action = 'erase'",
        [("altered", 1, 4), ("altered", 5, 8), ("altered", 9, 12)],
    ),
}  # fmt: skip
AUDIT_TAMPERED: dict[str, tuple[str, list[tuple[str, int, int]]]] = {
    "an actor": (ACT.format("actor = 'x'"), [("altered", 2, 2)]),
    "a detail": (ACT.format("detail = '{}'"), [("altered", 2, 2)]),
    "a time": (ACT.format("at = at - interval '1 s'"), [("altered", 2, 2)]),
    "an action": (ACT.format("action = 'delete'"), [("altered", 2, 2)]),
    "a record that is removed": (DELETE.format("company_audit", "id = 2"), [("missing", 2, 2)]),
    "a content hash": (
        "update bds.seals set content_hash = 'x', sealed_hash = 'x' where company_id = 'acme' and log = 'audit' and first_id = 2",
        [("altered", 2, 2), ("chain", 2, 2)],
    ),
    "the last seal": (DELETE.format("seals", "log = 'audit' and first_id = 2"), [("chain", 2, 2), ("unsealed", 2, 2)]),
    "every seal": (DELETE.format("seals", "true"), [("chain", 1, 2), ("unsealed", 1, 2)]),
    "every record": (DELETE.format("company_audit", "true"), [("missing", 1, 1), ("missing", 2, 2)]),
    "every record and seal": (
        DELETE.format("company_audit", "true") + DELETE.format("seals", "true"), [("chain", 1, 2), ("missing", 1, 2)]
    ),
    "nothing, with a number and a depth that Python does not read": (
        act("erase", "changes", '{"caller": 1e5000}') + act("erase", "changes", f'{{"caller": {"[" * 2000}{"]" * 2000}}}'),
        [("unsealed", 3, 4)],
    ),
    "what expired changes do not excuse": (
        DELETE.format("company_audit", "id = 1") + FORGET + expiry('"first_id": 1, "last_id": 8'),
        [("missing", 1, 1), ("unsealed", 3, 3)],
    ),
    "a record that was not sealed yet": (act("x", "x", "{}", 4), [("missing", 3, 3), ("unsealed", 4, 4)]),
    "the last id that there is": (
        act("x", "x", "{}", 9223372036854775806),
        [("missing", 3, 9223372036854775805), ("unsealed", 9223372036854775806, 9223372036854775806)],
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def shared_operator(module_database_url: str) -> Iterator[Operator]:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        yield Operator(connection)


def test_no_seal_ends_with_an_id_after_which_none_can_be_computed(shared_operator: Operator) -> None:
    """Else the verification of every company would end with an error at this one."""
    with pytest.raises(psycopg.errors.CheckViolation), shared_operator.connection.transaction():
        shared_operator.connection.execute("update bds.seals set last_id = 9223372036854775807 where company_id = 'acme'")


CASES = [("changes", each) for each in TAMPERED] + [("audit", each) for each in AUDIT_TAMPERED]


@pytest.mark.parametrize(
    ("log", "what"),
    [pytest.param(*case, marks=[not_divided("the log has a key there")] if "taken" in case[1] else []) for case in CASES],
)
def test_what_a_superuser_changes_is_named_by_its_range(shared_operator: Operator, log: str, what: str) -> None:
    statements, said = (TAMPERED if log == "changes" else AUDIT_TAMPERED)[what]
    with shared_operator.connection.transaction(force_rollback=True):
        shared_operator.connection.execute(statements.encode())
        assert verified(shared_operator, log=log) == said


def test_a_company_of_which_no_month_is_known_is_verified(operator: Operator) -> None:
    operator.company("empty")
    assert verified(operator, "empty") == []
    operator.connection.execute("delete from bds.change_months where company_id = 'acme'")
    assert verified(operator) == []
    operator.connection.execute("delete from bds.change_log where company_id = 'acme' and id < 5")
    assert verified(operator) == [("missing", 1, 4)]


def test_seals_that_are_gone_are_not_made_again(operator: Operator) -> None:
    operator.connection.execute("delete from bds.seals where company_id = 'acme' and first_id = 9")
    assert verified(operator) == [("chain", 9, 12), ("unsealed", 9, 12)]
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    assert operator.rows(SEAL) == [(0, "seals of changes of acme up to 12 are gone")]
    assert verified(operator) == [("chain", 9, 12), ("unsealed", 9, 13)]


def test_a_chain_that_is_made_anew_has_another_head(operator: Operator) -> None:
    [(head,)] = operator.rows("select hash from bds.log_head('acme')")
    for statement in (CHANGE.format("actor = 'x'"), FORGED, REHASH, *RECHAINED.split(";")):
        operator.connection.execute(statement.encode())
    assert verified(operator) == [], "nothing in the database tells"
    assert operator.rows("select hash = %s from bds.log_head('acme')", (head,)) == [(False,)]


# Verifying ----------------------------------------------------------------------------------------------------------------------


def verify_due(operator: Operator) -> int:
    """Let maintenance verify all that is due, for a quarter of a second a call; the number of calls that found something."""
    calls = 0
    while operator.rows("select done > 0 from bds.maintain() where step = 'verify sealed records'") == [(True,)]:
        calls += 1
    return calls


def test_maintenance_verifies_and_a_fault_is_a_problem_until_it_is_mended(operator: Operator) -> None:
    problems = "select company_id, object, detail ~ '^altered, found at .*: its records', mend from bds.problems where kind = 'log altered'"
    due = "update bds.seal_positions set verified_at = '2000-01-01'"
    operator.connection.execute(due.encode())
    assert verify_due(operator) > 0 and operator.rows(problems) == []
    assert verify_due(operator) == 0, "once a week"
    operator.connection.execute(CHANGE.format("actor = 'x'").encode())
    operator.connection.execute(due.encode())
    verify_due(operator)
    assert operator.rows(problems) == [("acme", "bds.changes 5-8", True, None)]
    operator.connection.execute(CHANGE.format("actor = 'postgres'").encode())
    operator.rows("select bds_service.verify_sealed('acme')")
    assert operator.rows(problems) == []


@pytest.mark.parametrize("column", ["waits_since", "begun_at", "verified_at"])
@pytest.mark.parametrize("time", ["infinity", "-infinity"])
def test_no_time_of_sealing_or_verifying_is_infinite(shared_operator: Operator, column: str, time: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation), shared_operator.connection.transaction():
        shared_operator.connection.execute(f"update bds.seal_positions set {column} = %s".encode(), (time,))


@pytest.mark.parametrize("value", ["-1", "9223372036854775807"])
@pytest.mark.parametrize("column", ["sealed_id", "verified_id"])
def test_no_position_is_one_after_which_none_can_be_computed(shared_operator: Operator, column: str, value: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation), shared_operator.connection.transaction():
        shared_operator.connection.execute(f"update bds.seal_positions set {column} = {value}".encode())


@pytest.mark.parametrize("change", [
    "clocks set last_id = -1", "clocks set last_id = 4611686018427387904",
    "change_months set first_id = 0", "change_months set first_id = 9223372036854775807",
])  # fmt: skip
def test_no_id_of_a_clock_or_month_is_one_with_which_none_can_be_computed(shared_operator: Operator, change: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation), shared_operator.connection.transaction():
        shared_operator.connection.execute(f"update bds.{change} where company_id = 'beta'".encode())


def test_a_company_that_cannot_be_verified_is_told_and_stops_no_other(operator: Operator) -> None:
    operator.connection.execute(
        "alter table bds.clocks drop constraint if exists ids_go_on;"
        "update bds.clocks set last_id = 9223372036854775807 where company_id = 'acme';"
        "update bds.change_log set actor = 'x' where company_id = 'beta' and id = 1;"
        "update bds.seal_positions set verified_at = null"
    )
    problems = (
        "select company_id, object, detail ~ 'it cannot be verified: 22003' from bds.problems where kind = 'log altered' order by 1"
    )
    told = [("acme", "bds.changes 1-12", True), ("beta", "bds.changes 1-4", False)]
    assert verify_due(operator) > 0 and operator.rows(problems) == told
    operator.connection.execute("delete from bds.seal_findings")
    operator.rows("select bds_service.verify_sealed(c) from unnest(array['acme', 'beta']) c")
    assert operator.rows(problems) == told
    operator.connection.execute("update bds.clocks set last_id = 12 where company_id = 'acme'")
    operator.rows("select bds_service.verify_sealed('acme')")
    assert operator.rows(problems) == told[1:]


def test_a_position_beyond_the_last_seal_begins_anew(operator: Operator) -> None:
    operator.connection.execute(CHANGE.format("actor = 'x'").encode())
    operator.connection.execute("update bds.seal_positions set verified_at = null, verified_id = 9223372036854775806")
    assert verify_due(operator) > 0
    assert operator.rows("select company_id, kind, first_id from bds.seal_findings") == [("acme", "altered", 5)]


def test_ranges_that_hardly_end_are_told_of_each_company(operator: Operator) -> None:
    operator.connection.execute(
        "update bds.seals set last_id = 9223372036854775806 where log = 'changes' and hash in (select (bds.log_head(c.id)).hash"
        " from bds.companies c); update bds.seal_positions set verified_at = null"
    )
    assert verify_due(operator) > 0
    found = [("acme", "chain", 9), ("beta", "chain", 1)]
    assert operator.rows("select company_id, kind, first_id from bds.seal_findings order by 1") == found
    assert operator.rows("select sum(bds_service.verify_sealed(c)) > 0 from unnest(array['acme', 'beta']) c") == [(True,)]


def test_an_erasure_under_way_keeps_no_other_company_from_being_verified(operator: Operator, connect: Callable[..., Any]) -> None:
    operator.connection.execute("update bds.change_log set actor = 'x' where company_id = 'beta' and id = 1")
    operator.connection.execute("update bds.seal_positions set verified_at = null")
    eraser = connect()
    with eraser.transaction():
        eraser.execute(ERASE)
        assert verify_due(operator) > 0
    assert operator.rows("select company_id from bds.seal_findings") == [("beta",)]


def test_a_time_in_the_future_ends_neither_verifying_nor_sealing(operator: Operator) -> None:
    for verified_at, begun_at in (("now() + interval '9 years'", "null"), ("null", "now() + interval '9 years'")):
        operator.connection.execute(f"update bds.seal_positions set verified_at = {verified_at}, begun_at = {begun_at}".encode())
        assert verify_due(operator) > 0
        assert operator.rows("select from bds.seal_positions where verified_at > clock_timestamp()") == []
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    operator.connection.execute("update bds.change_log set created_at = created_at - interval '2 hours' where id = 13")
    operator.connection.execute("update bds.seal_positions set waits_since = now() + interval '9 years'")
    assert operator.rows("select done from bds.maintain() where step = 'seal records'") == [(1,)]


def test_verifying_goes_on_where_it_stopped(operator: Operator) -> None:
    part = "select bds_seals.verify_part('acme', 'changes', '-infinity'), verified_id from bds.seal_positions where company_id = 'acme' and log = 'changes'"
    position = "select verified_id, verified_at is not null, begun_at is not null from bds.seal_positions where company_id = 'acme' and log = 'changes'"
    operator.connection.execute("update bds.seal_positions set verified_at = null")
    operator.connection.execute(CHANGE.format("actor = 'x'").encode())
    seen = []
    for _ in range(4):
        operator.rows(part)
        seen += operator.rows(position)
    assert seen == [(4, False, True), (8, False, True), (12, False, True), (0, True, False)]
    assert operator.rows("select kind, first_id, last_id from bds.seal_findings") == [("altered", 5, 8)]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("'acme', 5, 4", "BD005"),
        ("'acme', 1, 13", "BD005"),
        ("'acme', 13", "BD005"),
        ("'acme', 0", "BD005"),
        ("'acme', -1, 2", "BD005"),
        ("'nobody'", "BD002"),
        ("null", "BD002"),
        ("''", "BD002"),
        ("'acme', log => 'other'", "BD005"),
        ("'acme', log => null", "BD005"),
    ],
)
def test_what_cannot_be_verified_is_refused(shared_operator: Operator, arguments: str, code: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        shared_operator.rows(f"select * from bds.verify_log({arguments})")
    assert caught.value.sqlstate == code


def test_a_part_of_the_log_is_verified(shared_operator: Operator) -> None:
    with shared_operator.connection.transaction(force_rollback=True):
        shared_operator.connection.execute("update bds.change_log set actor = 'x' where company_id = 'acme' and id in (1, 12)")
        found = [
            shared_operator.rows("select first_id from bds.verify_log('acme', %s, %s)", ends) for ends in ((4, 4), (5, 8), (8, 9))
        ]
        assert found == [[(1,)], [], [(9,)]]


def test_the_form_of_records_depends_on_no_setting(shared_operator: Operator) -> None:
    with shared_operator.connection.transaction(force_rollback=True):
        for setting, value in (
            ("datestyle", "SQL, DMY"), ("timezone", "Asia/Kathmandu"), ("intervalstyle", "iso_8601"), ("extra_float_digits", "-5"),
            ("bytea_output", "escape"), ("quote_all_identifiers", "on"), ("search_path", "pg_temp"), ("lc_messages", "C"),
            ("lc_numeric", "C"), ("array_nulls", "off"), ("xmloption", "content"), ("standard_conforming_strings", "on"),
        ):  # fmt: skip
            shared_operator.connection.execute("select set_config(%s, %s, true)", (setting, value))
        assert verified(shared_operator) == [] and verified(shared_operator, log="audit") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(("nobody",), "no such company here: nobody"), (("",), "no such company here: "), (("acme", "x"), "usage: "), ((), "usage: ")],
)
def test_the_script_verifies_nothing_else(module_database_url: str, arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run([sys.executable, SCRIPT, module_database_url, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.startswith(said)


def test_the_script_needs_no_right_beyond_the_operators(operator: Operator, connect: Callable[..., Any]) -> None:
    with connect("bds_operator") as reader:
        for company, log in (("acme", "changes"), ("acme", "audit"), ("", "audit")):
            assert [row[0] for row in script.verify(reader, company, log)] == ["head"]


def test_the_script_says_what_it_found(operator: Operator, database_url: str) -> None:
    operator.connection.execute(CHANGE.format("actor = 'x'").encode())
    done = subprocess.run([sys.executable, SCRIPT, database_url, "acme"], capture_output=True, text=True, check=False)
    [(head,)] = operator.rows("select encode(hash, 'hex') from bds.log_head('acme')")
    assert done.stdout == f"altered 5-8: its records are not as they were sealed\nhead 12-12: {head}\n" and done.returncode == 1
