"""What is sealed, and what keeps records from being sealed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conftest import NO_MONTHS, Operator
from tests.database.aging import age
from tests.seals.sealing import RANGES, SEAL, seal, verified


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
