"""Triggers that a DBA has added to an entity's table: what they write is logged in order, and they cannot change keys."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.conftest import Operator
from tests.database.test_turn import assert_gapless

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template(of_products: str) -> str:
    return of_products


@pytest.fixture
def acme(operator: Operator) -> Operator:
    operator.company("acme")
    operator.company("beta")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A'), ('b', 'B')")
    return operator


def trigger(operator: Operator, when: str, body: str, table: str = "units", name: str = "own") -> None:
    operator.connection.execute(
        f"create function public.{name}() returns trigger language plpgsql as $$ begin {body} end $$;"
        f"create trigger {name} {when.format(table='data.' + table)} execute function public.{name}()".encode()
    )


def log(operator: Operator, after: int = 2) -> list[Any]:
    return operator.rows(
        "select c.entity, c.operation, c.row_id, c.old, c.columns from bds.changes c"
        " where c.company_id = 'acme' and c.id > %s order by c.id",
        (after,),
    )


def names(operator: Operator, row: int = 1, entity: str = "units") -> list[Any]:
    """The operation and the name of each version of a row."""
    history = operator.rows(
        "select h.operation, h.\"row\" ->> 'name' from bds.row_history('acme', %s, %s) h order by h.version", (entity, row)
    )
    assert operator.rows("select kind, entity, examples from bds.compare_log('acme')") == []
    assert_gapless(operator)
    return history


FIRST = "a_first"  # fires before the log's triggers of a statement, which PostgreSQL fires by name


@pytest.mark.parametrize("level", ["row", "statement"])
def test_what_a_trigger_does_to_the_rows_of_a_statement_is_logged_after_it(acme: Operator, level: str) -> None:
    trigger(
        acme,
        f"after insert or update on {{table}} for each {level} when (pg_trigger_depth() = 0)",
        "update data.units set name = name || '!' where code = 'a'; return null;",
        name=FIRST,
    )
    acme.write("acme", "update data.units set name = 'one' where code = 'a'")
    assert names(acme) == [("create", "A"), ("update", "one"), ("update", "one!")]
    acme.write("acme", "update data.units set name = 'two'")
    twice = [("update", "two!!")] if level == "row" else []
    assert names(acme)[3:] == [("update", "two"), ("update", "two!"), *twice]
    assert names(acme, 2) == [("create", "B"), ("update", "two")]
    acme.write("acme", "delete from data.units where code = 'a'")
    acme.write("acme", "insert into data.units (id, code, name) values (1, 'a', 'new')")
    assert names(acme)[-3:] == [("delete", None), ("create", "new"), ("update", "new!")]


def test_each_statement_of_a_transaction_has_the_changes_of_its_own_triggers(acme: Operator) -> None:
    trigger(
        acme,
        "after update on {table} for each row when (new.name ~ '^[0-9]$' and new.name < '4')",
        "update data.units set name = (new.name::int + 1)::text where code = new.code; return null;",
    )
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_context('acme')")
        acme.connection.execute("update data.units set name = '1' where code = 'a'")  # each trigger fires the next one
        acme.connection.execute("update data.units set name = '9' where code = 'a'")
        acme.connection.execute("savepoint here; update data.units set name = '2'; rollback to here")
        acme.connection.execute("update data.units set name = '3'")
        acme.connection.execute("delete from data.units where code = 'a'")
    assert names(acme) == [
        ("create", "A"), *[("update", name) for name in "12349"], *[("update", name) for name in "34"], ("delete", None),
    ]  # fmt: skip
    assert names(acme, 2) == [("create", "B"), ("update", "3"), ("update", "4")]


def test_a_statement_that_inserts_and_updates_comes_before_its_triggers_changes_of_both(acme: Operator) -> None:
    trigger(
        acme,
        "after insert or update on {table} for each row when (pg_trigger_depth() = 0)",
        "update data.units set name = name || '!' where code = new.code; return null;",
    )
    acme.write(
        "acme",
        "insert into data.units (code, name) values ('c', 'C'), ('a', 'A2')"
        " on conflict (company_id, code) do update set name = excluded.name",
    )
    assert names(acme) == [("create", "A"), ("update", "A2"), ("update", "A2!")]
    assert names(acme, 3) == [("create", "C"), ("update", "C!")]


def test_what_a_trigger_deletes_and_inserts_again_keeps_its_order(acme: Operator) -> None:
    trigger(
        acme,
        "after delete on {table} for each row when (pg_trigger_depth() = 0)",
        "insert into data.units (company_id, id, code, name) values (old.company_id, old.id, old.code, 'kept'); return null;",
    )
    acme.write("acme", "delete from data.units where code = 'a'")
    assert names(acme) == [("create", "A"), ("delete", None), ("create", "kept")]


def test_a_row_that_a_trigger_replaces_is_deleted_first(acme: Operator) -> None:
    trigger(
        acme,
        "before insert on {table} for each row when (pg_trigger_depth() = 0)",
        "delete from data.units where code = new.code; new.id := 1; return new;",
        name="zz_replace",
    )
    trigger(
        acme,
        "after insert on {table} for each row when (new.name = 'again')",
        "update data.units set name = 'last' where code = new.code; return null;",
    )
    acme.write("acme", "insert into data.units (code, name) values ('a', 'new')")
    assert names(acme) == [("create", "A"), ("delete", None), ("create", "new")]
    acme.write("acme", "insert into data.units (code, name) values ('a', 'again')")
    assert names(acme)[3:] == [("delete", None), ("create", "again"), ("update", "last")]


def test_a_row_that_a_trigger_deletes_at_once_is_created_and_deleted(acme: Operator) -> None:
    trigger(
        acme, "after insert on {table} for each row when (new.name = 'x')", "delete from data.units where id = new.id; return null;"
    )
    acme.write("acme", "insert into data.units (code, name) values ('x', 'x'), ('y', 'y')")
    assert names(acme, 3) == [("create", "x"), ("delete", None)]


def test_children_that_a_trigger_makes_follow_their_parent(acme: Operator) -> None:
    trigger(
        acme,
        "after insert on {table} for each row",
        "insert into data.product_variants (company_id, code, product_id) values (new.company_id, new.code || '-1', new.id); return null;",
        table="products",
    )
    acme.write("acme", "insert into data.products (code, name) values ('p', 'P'), ('q', 'Q')")
    assert [row[:2] for row in log(acme)] == [
        ("products", "create"), ("products", "create"), ("productVariants", "create"), ("products", "update"),
        ("productVariants", "create"), ("products", "update"),
    ]  # fmt: skip
    assert log(acme)[3][3:] == ({}, ["variants"])
    assert names(acme, entity="products") == [("create", "P"), ("update", "P")]


def test_only_parents_are_said_to_have_changed_with_their_children(acme: Operator) -> None:
    """A trigger of the parent may fire while the log's trigger touches it."""
    trigger(
        acme,
        "after update on {table} for each row",
        "update data.units set symbol = 's' where code = 'a'; update data.units set symbol = symbol where code = 'b';"
        "insert into data.categories (company_id, code, name) values (new.company_id, 'c', 'C') on conflict do nothing; return null;",
        table="products",
    )
    acme.write("acme", "insert into data.products (code, name) values ('p', 'P')")
    acme.write("acme", "insert into data.product_variants (code, product_id) select 'v', id from data.products")
    assert sorted(row[:2] + row[3:] for row in log(acme, 4)) == [
        ("categories", "create", None, ["id", "code", "name", "parentId"]),
        ("products", "update", {}, ["variants"]),
        ("units", "update", {"symbol": None}, ["symbol"]),
    ]


def test_a_trigger_cannot_keep_a_parent_from_changing_with_its_children(acme: Operator) -> None:
    """One that skips updates without a change does not: the parent's time changes."""
    acme.write("acme", "insert into data.products (id, code, name) values (1, 'p', 'P'), (2, 'q', 'Q')")
    acme.connection.execute(
        "create trigger a_first before update on data.products for each row execute function suppress_redundant_updates_trigger()"
    )
    acme.write("acme", "insert into data.product_variants (code, product_id) values ('v', 1)")
    assert log(acme, 5)[0][:3] == ("products", "update", 1)
    trigger(acme, "before update on {table} for each row when (old.id = 2)", "return null;", table="products")
    for statement in (
        "insert into data.product_variants (code, product_id) values ('w', 2)",
        "update data.product_variants set product_id = 2",
    ):
        with pytest.raises(psycopg.Error, match="skips the update that records the change of 'variants'") as error:
            acme.write("acme", statement)
        assert error.value.sqlstate == "27000"
    assert len(log(acme, 5)) == 1


@pytest.mark.parametrize("statement", ["update data.units set name = 'x' where code = 'a'", "update data.units set name = 'x'"])
@pytest.mark.parametrize("key", ["company_id := 'beta'", "id := new.id + 100"])
def test_a_trigger_cannot_change_a_key(acme: Operator, statement: str, key: str) -> None:
    trigger(acme, "before update on {table} for each row", f"new.{key}; return new;", name="zz_after_the_stamp")
    with pytest.raises(psycopg.Error, match="the company_id and the id of a row cannot be changed") as error:
        acme.write("acme", statement)
    assert error.value.sqlstate == "BD004"
    assert log(acme) == []


def test_a_trigger_that_sets_updated_at_is_named_as_a_cause(acme: Operator) -> None:
    trigger(acme, "before update on {table} for each row", "new.updated_at := '2001-01-01'; return new;", name="set_updated_at")
    with pytest.raises(psycopg.errors.SerializationFailure) as error:
        acme.write("acme", "update data.units set name = 'x'")
    assert "a trigger that fires after bds_2_stamp has set updated_at" in str(error.value.diag.message_hint)
