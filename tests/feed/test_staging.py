"""Staged records belong to their import: other sessions cannot read them, and staged text gains no rights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from tests.feed.conftest import Feed, errors

pytestmark = pytest.mark.slow


@dataclass
class Staged:
    """An import that is staging products, and the session that stages them."""

    feed: Feed
    id: Any
    table: str
    writer: psycopg.Connection[Any]

    def run(self, connection: psycopg.Connection[Any], atomic: str = "false") -> dict[str, Any]:
        with connection.transaction():
            row = connection.execute("select bds.import_run(%s, %s, %s)", (self.feed.company, self.id, atomic)).fetchone()
        assert row
        report: dict[str, Any] = row[0]
        return report


@pytest.fixture
def staged(feed: Feed) -> Iterator[Staged]:
    feed.good(products=[{"code": "A", "name": "a"}, {"code": "B", "name": "b"}])
    with psycopg.connect(feed.url, autocommit=True) as writer:
        writer.execute("set role bds_writer")
        writer.execute("select set_config('bds.company', %s, false)", (feed.company,))
        [(number,)] = writer.execute("select bds.import_begin(%s)", (feed.company,)).fetchall()
        [(table,)] = writer.execute("select bds.import_stage(%s, %s, 'products')", (feed.company, number)).fetchall()
        writer.execute(f"insert into {table} (code, name) values ('C', 'secret')".encode())
        yield Staged(feed, number, table, writer)
        writer.execute("select bds.import_fail(%s, %s)", (feed.company, number))


ATTEMPTS = [
    "select * from {table}", "copy {table} to stdout", "update {table} set name = 'x'", "delete from {table}", "truncate {table}", "drop table {table}",
    "alter table {table} disable trigger all", "alter table {table} add column x int", "create trigger x before insert on {table} execute function bds_change_log.only_company()",
    "create index on {table} (code)", "begin; lock table {table} in access exclusive mode", "select * from staging.i{number}_errors",
    "create table staging.i{number}_units (code text)", "create view staging.i{number}_units as select 1",
    "set role bds_importer; select * from {table}", "select bds_feed.import_prepare('{company}', '{id}')", "select bds_feed.rows_where('{company}', 'products', 'true', false)",
]  # fmt: skip


@pytest.mark.parametrize("statement", ATTEMPTS)
def test_staged_rows_can_neither_be_read_nor_changed_nor_replaced(
    staged: Staged, companies: Callable[[], Feed], statement: str
) -> None:
    number = staged.table.split(".i")[1].split("_")[0]
    for company in (companies().company, staged.feed.company):
        with psycopg.connect(staged.feed.url, autocommit=True) as other:
            other.execute("set session authorization bds_writer")
            other.execute("select set_config('bds.company', %s, false)", (company,))
            with pytest.raises(psycopg.Error) as refused:
                cursor = other.execute(
                    statement.format(table=staged.table, number=number, company=staged.feed.company, id=staged.id).encode()
                )
                cursor.fetchall()
            assert refused.value.sqlstate == "42501", str(refused.value)
    assert staged.run(staged.writer)["entities"]["products"]["created"] == 1


def test_only_the_company_of_the_import_stages_errors(staged: Staged, companies: Callable[[], Feed]) -> None:
    number = staged.table.split(".i")[1].split("_")[0]
    with psycopg.connect(staged.feed.url, autocommit=True) as other:
        other.execute("set role bds_writer")
        other.execute("select set_config('bds.company', %s, false)", (companies().company,))
        with pytest.raises(psycopg.Error) as refused:
            other.execute(f"insert into staging.i{number}_errors (entity, code, message) values ('products', 'x', 'x')".encode())
        assert refused.value.sqlstate == "BD001"


CONDITIONS = [
    # staged in the hope that a role with more rights runs it
    "set_config('role', 'none', true) = 'none'", "(select count(*) from data.products) > 0", "(select rolname from pg_authid limit 1) <> ''",
    "bds.create_company('stolen', null)::text = ''", "pg_read_file('PG_VERSION') <> ''", "true; drop table data.units; select (true",
    "exists (select from bds.api_keys)", "exists (select from {table})",
]  # fmt: skip


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("operation", ["update", "delete"])
def test_a_staged_condition_has_only_the_rights_of_a_reader(staged: Staged, condition: str, operation: str) -> None:
    condition = condition.format(table=staged.table)
    staged.writer.execute(
        f'insert into {staged.table} ("@operation", "@where", name) values (%s, %s, %s)'.encode(), (operation, condition, "hit")
    )
    report = staged.run(staged.feed.operator.connection)  # a superuser
    assert errors(report) == [("products[1].@where", "invalid_directive")]
    assert staged.feed.rows("products", "name", order="code") == [("a",), ("b",), ("secret",)]


@pytest.mark.parametrize("operation", ["update", "delete"])
def test_a_condition_is_evaluated_as_a_reader_of_the_company(staged: Staged, operation: str) -> None:
    condition = "current_user = 'bds_reader' and code = 'A' and (select count(distinct company_id) from api.products) = 1"
    staged.writer.execute(
        f'insert into {staged.table} ("@operation", "@where", name) values (%s, %s, %s)'.encode(), (operation, condition, "hit")
    )
    assert staged.run(staged.feed.operator.connection)["state"] == "completed"
    assert ("A", "a") not in staged.feed.rows("products", "code", "name")


def test_a_condition_that_breaks_out_of_its_parentheses_matches_only_rows_of_the_company(
    staged: Staged, companies: Callable[[], Feed]
) -> None:
    other = companies()
    other.good(products=[{"code": "A", "name": "theirs"}])
    [(row,)] = other.operator.rows("select id from data.products where name = 'theirs'")
    staged.writer.execute(
        f"insert into {staged.table} (\"@operation\", \"@where\", name) values ('update', %s, 'hit')".encode(),
        (f"false) union (select {row}",),
    )
    assert staged.run(staged.feed.operator.connection)["entities"]["products"]["updated"] == 0
    assert other.rows("products", "name") == [("theirs",)]


def test_other_temporary_tables_of_the_session_are_kept(staged: Staged) -> None:
    with psycopg.connect(staged.feed.url, autocommit=True) as session:
        session.execute(
            "create temporary table map_notes (n int); create temporary table rest_of (n int); create temporary table map_categories (n int)"
        )
        session.execute("insert into map_notes values (7)")
        with pytest.raises(psycopg.Error) as refused:
            staged.run(session)
        assert refused.value.sqlstate == "BD004" and "map_categories" in str(refused.value)
        session.execute("drop table map_categories")
        assert staged.run(session)["state"] == "completed"
        assert session.execute("select n from map_notes").fetchall() == [(7,)]
        assert session.execute("select count(*) from rest_of").fetchall() == [(0,)]


def test_the_operator_need_not_name_the_company(feed: Feed) -> None:
    with psycopg.connect(feed.url, autocommit=True) as operator:
        [(number,)] = operator.execute("select bds.import_begin(%s)", (feed.company,)).fetchall()
        [(table,)] = operator.execute("select bds.import_stage(%s, %s, 'units')", (feed.company, number)).fetchall()
        operator.execute(f"insert into {table} (code, name) values ('A', 'a')".encode())
        [(report,)] = operator.execute("select bds.import_run(%s, %s)", (feed.company, number)).fetchall()
        assert report["entities"]["units"]["created"] == 1
        [(number,)] = operator.execute("select bds.import_begin(%s)", (feed.company,)).fetchall()
        operator.execute("select bds.import_fail(%s, %s)", (feed.company, number))


@pytest.mark.parametrize("operation", ["update", "delete"])
def test_a_condition_does_not_change_where_names_are_looked_up(staged: Staged, operation: str) -> None:
    """SET in a function outlives the function's own search_path: operators of the session would then run as bds_importer."""
    connection = staged.feed.operator.connection
    connection.execute(
        "create schema theirs; create function theirs.same(text, text) returns boolean language plpgsql as"
        " $$ begin perform pg_notify('leak', current_user); return $1 operator(pg_catalog.=) $2; end $$;"
        "create operator theirs.= (leftarg = text, rightarg = text, function = theirs.same); grant usage on schema theirs to public"
    )
    try:
        connection.execute("listen leak")
        staged.writer.execute(
            f'insert into {staged.table} ("@operation", "@where", name) values (%s, %s, %s)'.encode(),
            (operation, "set_config('search_path', 'theirs, pg_catalog', false) is not null", "hit"),
        )
        assert errors(staged.run(connection)) == [("products[1].@where", "invalid_directive")]
        assert list(connection.notifies(timeout=0)) == []
    finally:
        connection.execute("unlisten leak; drop schema theirs cascade; reset search_path")
