"""Maintenance while other sessions hold the locks that it wants: it puts off what it cannot do, does the rest, and stops nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.conftest import NO_MONTHS, Operator
from tests.database.aging import age

pytestmark = [pytest.mark.slow, NO_MONTHS]

Connect = Callable[..., psycopg.Connection[Any]]

COMPARE, COUNT, DEAD, OLD, SETS, KEYS, VERIFY, SEAL, MAKE, EXPIRE = (
    "compare rows with the log", "count problems", "end dead imports", "forget old imports", "count change sets",
    "forget keys of requests", "verify sealed records", "seal records", "make months of the log", "expire months of the log",
)  # fmt: skip
MAINTAIN = b"select step, done, problem from bds.maintain(import_age => '1 day', compare_age => '0', seal_age => '0')"
# what each step has to do
DUE = {COMPARE: 1, COUNT: 1, DEAD: 2, OLD: 1, SETS: 6, KEYS: 1, VERIFY: 3, SEAL: 7, MAKE: 1, EXPIRE: 3}
NOTHING = dict.fromkeys(DUE, 0)
HELD = [
    # a session that reads or writes, and sleeps with its transaction open
    ("access share", "data.units, bds.clocks, bds.imports", {}),
    ("row exclusive", "data.units, bds.clocks, bds.imports", {}),
    ("access share", "bds.change_log", {EXPIRE: 1}),  # the deletes of a company block nobody
    ("access share", "bds.change_log_2020_01", {EXPIRE: 1}),
    ("row exclusive", "bds.change_log_2020_02", {EXPIRE: 1}),
    ("share update exclusive", "bds.change_log", {MAKE: 0, EXPIRE: 1}),
    ("share", "bds.change_log", {MAKE: 0, EXPIRE: 0}),
    ("share", "bds.imports", {DEAD: 0, OLD: 0}),
    ("share", "bds.change_months", {EXPIRE: 2}),
    ("share", "bds.counted_change_sets", {SETS: 0, EXPIRE: 0}),
    # one that changes a table
    ("access exclusive", "data.units", {COUNT: 0}),
    ("access exclusive", "bds.change_log", {COMPARE: 0, COUNT: 0, SETS: 0, SEAL: 0, MAKE: 0, EXPIRE: 0}),
    ("share", "bds.seals", {SEAL: 0}),
    ("access exclusive", "bds.seal_positions", {COUNT: 0, VERIFY: 0, SEAL: 0}),
    ("access exclusive", "bds.clocks", NOTHING | {MAKE: 1}),
    ("access exclusive", "bds.imports", {COUNT: 0, DEAD: 0, OLD: 0, SETS: 0, KEYS: 0}),
    ("access exclusive", "staging.i1_errors", {DEAD: 1}),
]  # fmt: skip


@pytest.fixture
def acme(operator: Operator) -> Operator:
    """Companies whose maintenance has work for each step."""
    for company in ("acme", "beta"):
        operator.company(company)
        for code in "abc":
            operator.write(company, "insert into data.units (code, name) values (%s, 'unit')", (code,))
    for _ in range(3):
        operator.write("acme", "select bds.import_begin('acme')")
    operator.connection.execute("update bds.imports set heartbeat_at = now() - interval '1 hour' where number < 3")
    operator.connection.execute(
        "select bds.import_fail('acme', id) from bds.imports where number = 3;"
        " update bds.imports set finished_at = now() - interval '2 days', started_at = now() - interval '2 days' where number = 3"
    )
    operator.connection.execute("insert into bds.import_keys values ('acme', 'a', gen_random_uuid(), now() - interval '2 days')")
    [(last,)] = operator.rows("select max(name) from bds_change_log.partitions()")
    operator.connection.execute(f"drop table bds.{last}".encode())
    age(operator, "2020_01", "id = 1")
    age(operator, "2024_01", "id = 2")
    age(operator, "2020_02", "company_id = 'none'")
    operator.connection.execute("select bds.set_retention('4 years'), bds.set_retention('1 year', 'acme')")
    operator.connection.execute("select bds_seals.seal_log('', 'audit', '0', 'infinity')")
    # every company's 2020_01 and 2020_02 go whole, of 2024_01 what is of acme
    operator.connection.execute("update bds.problem_counts set counted_at = '-infinity'")
    return operator


def assert_whole(session: psycopg.Connection[Any]) -> None:
    """From the first change that is kept on, each company has all of them; an import has its tables until it ends."""
    kept = """select c.company_id, c.last_id, bds.first_change(c.company_id), (select array_agg(l.id order by l.id) from bds.change_log l
        where l.company_id = c.company_id and l.id >= bds.first_change(c.company_id)) from bds.clocks c"""
    for _, last, first, ids in session.execute(kept.encode()).fetchall():
        assert ids == list(range(first, last + 1))
    staged = """select i.number from bds.imports i
        where (i.finished_at is null) <> (to_regclass('staging.i' || i.number || '_errors') is not null)"""
    assert session.execute(staged.encode()).fetchall() == []


def test_a_step_that_gets_no_lock_is_put_off_and_the_others_are_done(acme: Operator, connect: Connect) -> None:
    maintenance, holder = connect(), connect()
    maintenance.execute("set statement_timeout = '60s'")
    for mode, tables, less in HELD:
        holder.execute("begin")
        holder.execute(f"lock table {tables} in {mode} mode".encode())
        maintenance.execute("begin")
        rows = maintenance.execute(MAINTAIN).fetchall()
        assert {step: done for step, done, _ in rows} == DUE | less, (mode, tables)
        assert {problem.partition(":")[0] for _, _, problem in rows if problem} <= {"55P03"}, (mode, tables)
        holder.execute("rollback")
        assert_whole(maintenance)
        maintenance.execute("rollback")
    assert {step: done for step, done, _ in maintenance.execute(MAINTAIN).fetchall()} == DUE, "the next call does everything"
    assert_whole(maintenance)
