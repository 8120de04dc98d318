"""Verifying goes on beside all that is in its way, and what docs/verify_seals.py says is the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.conftest import Operator
from tests.seals.sealing import CHANGE, ERASE, SCRIPT, script, verified


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
