"""Writes that no trigger saw are found: each record keeps a hash of the row as it became."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import Operator, prepared
from tests.database.aging import age
from tests.database.postgres_tools import run
from tests.database.test_altered_tables import ALTERATIONS, DROP_VIEWS, TABLE
from tests.upgrade.snapshot import run_import, stage

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template(server: str, of_products: str) -> Iterator[str]:
    yield from prepared(
        server,
        f"{TABLE}; select bds.register('data.stores'); select bds.create_company('acme'), bds.create_company('beta')",
        of_products,
    )


@pytest.fixture
def acme(operator: Operator) -> Operator:
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A'), ('b', 'B'), ('c', 'C')")
    operator.write("acme", "update data.units set name = 'B2', symbol = 'b' where code = 'b'")
    operator.write("beta", "insert into data.units (code, name) values ('a', 'A')")
    assert found(operator) == []
    return operator


def found(operator: Operator, call: str = "") -> list[Any]:
    return operator.rows(f"select kind, company_id, entity, number from bds.compare_log({call})")


def unlogged(connection: psycopg.Connection[Any], statement: str) -> None:
    """Write as logical replication and pg_restore --disable-triggers do."""
    with connection.transaction():
        connection.execute("set local session_replication_role = replica")
        connection.execute(statement.encode())


WRITES = {
    "update": (
        "update data.units set name = 'X' where code = 'b' and company_id = 'acme'",
        ("unlogged update", "acme", "units", 1),
    ),
    "null": ("update data.units set symbol = null where code = 'b'", ("unlogged update", "acme", "units", 1)),
    "time": ("update data.units set updated_at = now() where company_id = 'beta'", ("unlogged update", "beta", "units", 1)),
    "insert": (
        "insert into data.units (company_id, code, name) values ('acme', 'd', 'D')",
        ("unlogged insert", "acme", "units", 1),
    ),
    "delete": ("delete from data.units where code = 'c'", ("unlogged delete", "acme", "units", 1)),
    "move": ("update data.units set id = id + 100 where code = 'c'", None),
    "stranger": (
        "insert into data.units (company_id, code, name) values ('nobody', 'd', 'D')",
        ("unknown company", "nobody", "units", 1),
    ),
}


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("way", ["replica", "disabled trigger"])
def test_a_write_without_a_record_is_found(acme: Operator, kind: str, way: str) -> None:
    statement, expected = WRITES[kind]
    if way == "replica":
        unlogged(acme.connection, statement)
    else:
        acme.connection.execute(
            f"alter table data.units disable trigger user; {statement}; alter table data.units enable trigger user".encode()
        )
    both = [("unlogged delete", "acme", "units", 1), ("unlogged insert", "acme", "units", 1)]
    assert found(acme) == ([expected] if expected else both)
    assert acme.rows("select count(*) from bds.log_comparisons") == [(5,)]


def test_rows_restored_without_triggers_are_found(acme: Operator, database_url: str) -> None:
    dump = run("pg_dump", "--dbname", database_url, "--format", "custom", "--data-only", "--table", "data.units")
    acme.write("acme", "update data.units set name = 'C2' where code = 'c'")
    acme.write("acme", "delete from data.units where code = 'a' and company_id = 'acme'")
    acme.write("acme", "insert into data.units (code, name) values ('d', 'D')")
    assert found(acme) == []
    unlogged(acme.connection, "delete from data.units")
    run("pg_restore", "--dbname", database_url, "--data-only", "--disable-triggers", "--superuser", "postgres", input=dump)
    assert found(acme) == [
        ("unlogged delete", "acme", "units", 1),  # D
        ("unlogged insert", "acme", "units", 1),  # A, after the record of its deletion
        ("unlogged update", "acme", "units", 1),  # C, as it was before its last record
    ]
    found(acme, "record => true")
    assert found(acme) == []


def test_imports_leave_nothing_to_find(acme: Operator) -> None:
    acme.write("acme", "insert into data.products (code, name, price) values ('KNOWN', 'Old', 2)")
    report = run_import(acme.connection, "acme", stage(acme.connection, "acme"))
    assert report["entities"]["categories"]["created"] == 1
    acme.write("acme", "insert into data.categories (code, name) values ('C1', 'C')")
    acme.write(
        "acme", "insert into data.product_variants (product_id, code) select id, 'V1' from data.products where code = 'KNOWN'"
    )
    assert found(acme) == []


def test_a_row_that_comes_back_after_its_deletion_is_found(acme: Operator) -> None:
    acme.write("acme", "delete from data.units where company_id = 'acme' and code = 'c'")
    assert found(acme) == []
    unlogged(
        acme.connection,
        "insert into data.units select company_id, row_id, old ->> 'code', 'C' from bds.changes where operation = 'delete'",
    )
    assert found(acme) == [("unlogged insert", "acme", "units", 1)]


def test_only_what_is_asked_for_is_compared_and_the_rest_is_kept(acme: Operator) -> None:
    unlogged(acme.connection, "update data.units set name = 'X'")
    assert found(acme, "'acme', 'units'") == [("unlogged update", "acme", "units", 3)]
    assert found(acme, "'acme', 'categories'") == []
    assert acme.rows("select company_id, cardinality(examples) from bds.log_findings") == [("acme", 3)]
    assert acme.rows("select * from bds.log_comparisons where compared_at > now() - interval '1 ms'") == []
    assert found(acme, "entity => 'units'") == [("unlogged update", "acme", "units", 3), ("unlogged update", "beta", "units", 1)]


def test_a_missing_record_is_found(acme: Operator) -> None:
    acme.connection.execute("delete from bds.change_log where company_id = 'acme' and id in (2, 4)")
    acme.connection.execute("delete from bds.change_log where company_id = 'beta'")
    assert acme.rows("select kind, company_id, number, examples from bds.compare_log() where entity = ''") == [
        ("missing record", "acme", 2, [2, 4]),
        ("missing record", "beta", 1, [1]),
    ]


def test_what_retention_has_dropped_is_not_missed(acme: Operator) -> None:
    age(acme, "2020_01", "id < 4")
    unlogged(acme.connection, "update data.units set updated_at = '2020-01-15Z' where company_id = 'beta' or code <> 'b'")
    acme.connection.execute("select bds.set_retention('1 year'), bds.maintain()")
    assert acme.rows("select company_id, count(*) from bds.changes group by 1") == [("acme", 1)]
    assert found(acme) == []
    unlogged(acme.connection, "update data.units set name = 'X' where code = 'b'")
    unlogged(acme.connection, "insert into data.units (company_id, code, name) values ('acme', 'd', 'D')")
    assert found(acme) == [("unlogged insert", "acme", "units", 1), ("unlogged update", "acme", "units", 1)]


def test_writers_do_not_disturb_a_comparison(acme: Operator, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    writer = connect(company="acme")
    writer.execute("begin; update data.units set name = 'Y' where code = 'b'; delete from data.units where code = 'c'")
    assert found(acme) == []
    writer.execute("commit")
    assert found(acme) == []


@pytest.fixture
def stores(operator: Operator) -> Operator:
    operator.write("acme", "insert into data.stores (code, city, size) values ('a', 'Ulm', 1), ('b', 'Bonn', null)")
    return operator


@pytest.mark.parametrize("kind", [kind for kind in ALTERATIONS if not kind.startswith(("drop", "add with default"))])
def test_rows_that_an_alteration_left_alone_are_not_found(stores: Operator, kind: str) -> None:
    stores.connection.execute(ALTERATIONS[kind].encode())
    stores.connection.execute("select bds.register('data.stores')")
    assert found(stores) == []
    stores.write("acme", "update data.stores set size = 5 where size = 1")
    assert found(stores) == []
    unlogged(stores.connection, "update data.stores set size = coalesce(size, 0) + 1")
    assert found(stores) == [("unlogged update", "acme", "stores", 2)]


GONE = {
    "renamed type": "alter type data.mood rename to feeling",
    "renamed schema": "create schema other; grant usage on schema other to public; alter type data.mood set schema other; alter schema other rename to another",
    "dropped type": f"{DROP_VIEWS}; alter table data.stores alter mood type text using mood::text; drop type data.mood",
}


@pytest.mark.parametrize("kind", GONE)
def test_rows_logged_under_a_type_that_is_gone_are_compared_as_far_as_they_can_be(stores: Operator, kind: str) -> None:
    stores.connection.execute("create type data.mood as enum ('good', 'bad'); alter table data.stores add mood data.mood")
    stores.connection.execute("select bds.register('data.stores')")
    stores.write("acme", "update data.stores set mood = 'good'")
    stores.connection.execute(f"{GONE[kind]}; select bds.register('data.stores')".encode())
    assert found(stores) == []
    if kind != "dropped type":
        unlogged(stores.connection, "update data.stores set mood = 'bad' where code = 'b'")
        assert found(stores, "record => true") == []
    stores.write("acme", "update data.stores set city = 'Kiel'")
    assert found(stores) == []
    unlogged(stores.connection, "update data.stores set mood = null")
    assert found(stores) == [("unlogged update", "acme", "stores", 2)]


NOT_COMPARED = """
    create function public.refuse() returns trigger language plpgsql as
    $$ begin raise exception 'not now' using errcode = '22003'; end $$;
    create trigger refuse before insert on bds.log_comparisons for each row when (new.entity = '{}')
    execute function public.refuse()
"""


def test_an_entity_that_cannot_be_compared_does_not_keep_the_others_from_it(acme: Operator) -> None:
    acme.connection.execute(NOT_COMPARED.format("stores").encode())
    unlogged(acme.connection, "update data.units set name = 'X' where company_id = 'beta'")
    notices: list[tuple[str | None, str | None]] = []
    acme.connection.add_notice_handler(lambda notice: notices.append((notice.sqlstate, notice.message_primary)))
    assert found(acme) == [("unlogged update", "beta", "units", 1)]
    assert notices == [("22003", "stores is not compared with the change log: not now")]
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        found(acme, "entity => 'stores'")
    step = "select done, problem from bds.maintain(compare_age => '0 s') where step = 'compare rows with the log'"
    problem = "22003: stores is not compared: not now"
    assert {acme.rows(step)[0] for _ in range(7)} == {(1, problem)}


def test_a_comparison_depends_on_no_setting_of_the_session(stores: Operator) -> None:
    stores.write("acme", "update data.stores set city = '2026-02-01'")
    stores.connection.execute(
        f"{DROP_VIEWS}; alter table data.stores alter city type date using city::date; select bds.register('data.stores')".encode()
    )
    stores.connection.execute("set datestyle = 'German'; set timezone = 'Asia/Tokyo'; set intervalstyle = 'iso_8601'")
    assert found(stores) == []
    unlogged(stores.connection, "update data.stores set size = 9 where code = 'b'")
    assert found(stores, "record => true") == []
    assert stores.rows("select count(*) from bds.changes where operation = 'update' and old = '{}'") == [(1,)]


def test_values_that_an_alteration_changed_are_found(stores: Operator) -> None:
    stores.connection.execute(
        f"{DROP_VIEWS}; alter table data.stores alter size type text using 'size ' || size; select bds.register('data.stores')".encode()
    )
    assert found(stores) == [("unlogged update", "acme", "stores", 1)]


def test_a_column_that_was_dropped_with_its_records_is_not_missed_and_one_that_was_not_is(stores: Operator) -> None:
    stores.connection.execute("select bds.drop_column('stores', 'size')")
    assert found(stores) == []
    stores.connection.execute("alter table data.stores drop column city cascade; select bds.register('data.stores')")
    assert found(stores) == [("unlogged update", "acme", "stores", 2)]


@pytest.mark.parametrize("way", ["select bds.drop_column('stores', 'city')", "alter table data.stores drop column city cascade"])
def test_writes_after_a_column_was_dropped_are_not_found(stores: Operator, way: str) -> None:
    stores.connection.execute(f"{way}; select bds.register('data.stores')".encode())
    stores.write("acme", "insert into data.stores (code, size) values ('new', 1)")
    stores.write("acme", "update data.stores set size = 7")
    assert stores.rows("select kind, entity from bds.compare_log()") == []


def test_rows_that_were_there_before_the_registration_are_not_missed(operator: Operator) -> None:
    operator.connection.execute(TABLE.replace("stores", "shops").encode())
    operator.connection.execute(
        "insert into data.shops (company_id, code, updated_at) values ('acme', 'a', now()), ('acme', 'b', now())"
    )
    operator.connection.execute("select bds.register('data.shops')")
    assert found(operator) == []
    operator.write("acme", "update data.shops set city = 'Ulm' where code = 'a'")
    assert found(operator) == []
    unlogged(operator.connection, "insert into data.shops (company_id, code) values ('acme', 'c')")
    assert found(operator) == [("unlogged insert", "acme", "shops", 1)]


def test_differences_can_be_recorded(acme: Operator) -> None:
    unlogged(acme.connection, "update data.units set name = 'X' where code = 'a'")
    unlogged(acme.connection, "insert into data.units (company_id, code, name) values ('acme', 'd', 'D')")
    unlogged(acme.connection, "delete from data.units where code = 'c'")
    before = acme.rows("select max(id) from bds.changes where company_id = 'acme'")[0][0]
    assert found(acme, "'acme', record => true") == []
    assert found(acme) == [("unlogged update", "beta", "units", 1)]
    records = acme.rows(
        "select operation, old, actor from bds.changes where company_id = 'acme' and id > %s order by id", (before,)
    )
    assert sorted(records) == [("create", None, "postgres"), ("delete", {}, "postgres"), ("update", {}, "postgres")]
    assert acme.rows("select last_id from bds.positions where company_id = 'acme' and entity = 'units'") == [(before + 3,)]
    assert found(acme, "record => true") == [] and found(acme) == []
    acme.write("acme", "update data.units set name = 'Y' where company_id = 'acme' and code = 'a'")
    names = acme.rows(
        "select h.row ->> 'name' from bds.row_history('acme', 'units', (select id from data.units where company_id = 'acme' and code = 'a')) h"
    )
    assert names[1:] == [("X",), ("Y",)]


def test_maintenance_compares_one_entity_a_call_if_its_last_comparison_is_old(acme: Operator) -> None:
    unlogged(acme.connection, "update data.units set name = 'X' where company_id = 'beta'")
    compared = "select entity from bds.log_comparisons where compared_at > now() - interval '1 hour' order by 1"
    acme.connection.execute("update bds.log_comparisons set compared_at = now() - interval '2 days'")
    acme.connection.execute("select bds.maintain()")
    assert acme.rows(compared) == [] and acme.rows("select from bds.log_findings") == []
    for n in range(1, 7):
        acme.connection.execute("select bds.maintain(compare_age => '1 day')")
        assert len(acme.rows(compared)) == min(n, 5)
    assert acme.rows("select kind, company_id from bds.log_findings") == [("unlogged update", "beta")]


def test_only_the_operator_compares(acme: Operator, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connect("bds_reader", "acme").execute("select bds.compare_log('acme')")
    assert connect("bds_operator").execute("select bds.compare_log()").fetchall() == []
    with pytest.raises(psycopg.Error) as caught:
        acme.rows("select bds.compare_log('acme', 'nothing')")
    assert caught.value.sqlstate == "BD002"
