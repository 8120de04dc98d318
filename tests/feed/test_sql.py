"""An import in SQL only, as a DBA runs it in psql."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from app.database import connections
from tests.conftest import place_shards
from tests.feed.conftest import Feed
from tests.service.serving import wait_until


def stage(connection: psycopg.Connection[Any], feed: Feed) -> tuple[Any, str]:
    """(id, staging table of products) of an import that has begun."""
    with connection.transaction():
        connection.execute("select bds.set_context(%s, 'me')", (feed.company,))
        row = connection.execute("select bds.import_begin(%s)", (feed.company,)).fetchone()
        assert row
        staged = connection.execute("select bds.import_stage(%s, %s, 'products')", (feed.company, row[0])).fetchone()
        assert staged
    return row[0], staged[0]


def test_rows_from_csv(feed: Feed) -> None:
    with psycopg.connect(feed.url, autocommit=True) as connection:
        import_id, table = stage(connection, feed)
        with connection.cursor().copy(f"copy {table} (code, name, price) from stdin csv".encode()) as copy:
            copy.write("P,Pen,1.5\nQ,Quill,x\nR,Ruler,\n")
        with connection.transaction():
            row = connection.execute("select bds.import_run(%s, %s, 'false')", (feed.company, import_id)).fetchone()
    assert row
    report = row[0]
    assert (report["state"], report["progress"]["records"]) == ("partial", 3)
    assert report["entities"]["products"] == {"created": 2, "updated": 0, "deleted": 0, "unchanged": 0, "failed": 1}
    assert [(e["path"], e["record"], e["code"]) for e in report["errors"]] == [("products[1].price", "code:Q", "invalid_value")]
    assert feed.rows("products", "code", "price") == [("P", 1.5), ("R", None)]
    assert feed.ask("select distinct actor, change_set_id from bds.changes where company_id = %s", feed.company) == [
        ("me", import_id)
    ]


def test_a_dry_run_writes_nothing(feed: Feed) -> None:
    with psycopg.connect(feed.url, autocommit=True) as connection, connection.transaction():
        connection.execute("select bds.set_context(%s)", (feed.company,))
        (import_id,) = connection.execute("select bds.import_begin(%s, null, true)", (feed.company,)).fetchone() or (None,)
        (table,) = connection.execute("select bds.import_stage(%s, %s, 'units')", (feed.company, import_id)).fetchone() or (None,)
        connection.execute(f"insert into {table} (code, name) values ('A', 'a')".encode())
        (report,) = connection.execute("select bds.import_run(%s, %s)", (feed.company, import_id)).fetchone() or (None,)
    assert report["entities"]["units"]["created"] == 1 and report["dryRun"]
    assert not feed.log()


def test_errors_of_children_without_their_parents_have_a_path(feed: Feed) -> None:
    with psycopg.connect(feed.url, autocommit=True) as connection, connection.transaction():
        connection.execute("select bds.set_context(%s)", (feed.company,))
        (import_id,) = connection.execute("select bds.import_begin(%s)", (feed.company,)).fetchone() or (None,)
        (table,) = connection.execute("select bds.import_stage(%s, %s, 'orderItems')", (feed.company, import_id)).fetchone() or (
            None,
        )
        connection.execute(f"""insert into {table} ("@ordinal", "@parent", quantity) values (0, null, 'x'), (1, 7, 'y')""".encode())
        (report,) = connection.execute("select bds.import_run(%s, %s, 'false')", (feed.company, import_id)).fetchone() or (None,)
    assert {e["path"] for e in report["errors"] if e["code"] == "invalid_value"} == {
        "orderItems[0].quantity",
        "orderItems[1].quantity",
    }
    assert report["state"] == "failed"


def test_a_late_cancel_is_a_conflict(feed: Feed) -> None:
    with psycopg.connect(feed.url) as runs, psycopg.connect(feed.url, autocommit=True) as other, ThreadPoolExecutor(1) as others:
        import_id, table = stage(runs, feed)
        runs.execute(f"insert into {table} (code, name) values ('A', 'a')".encode())
        runs.commit()
        runs.execute("select bds.set_context(%s)", (feed.company,))
        runs.execute("select bds.import_run(%s, %s)", (feed.company, import_id))
        other.execute("select set_config('bds.company', %s, false)", (feed.company,))
        asked = others.submit(other.execute, "select bds.import_cancel(%s, %s)", (feed.company, import_id))
        wait_until(
            lambda: bool(feed.ask("select from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'import_cancel'"))
        )
        runs.commit()
        with pytest.raises(psycopg.Error, match="has ended: it is completed") as refused:
            asked.result()
    assert refused.value.sqlstate == "BD004"
    assert feed.rows("products", "code") == [("A",)]


def test_a_cancelled_import_does_not_run(feed: Feed) -> None:
    with psycopg.connect(feed.url, autocommit=True) as connection:
        import_id, table = stage(connection, feed)
        connection.execute(f"insert into {table} (code, name) values ('A', 'a')".encode())
        with connection.transaction():
            connection.execute("select bds.set_context(%s)", (feed.company,))
            connection.execute("select bds.import_cancel(%s, %s)", (feed.company, import_id))
        with pytest.raises(psycopg.errors.QueryCanceled, match="was cancelled"), connection.transaction():
            connection.execute("select bds.set_context(%s)", (feed.company,))
            connection.execute("select bds.import_run(%s, %s)", (feed.company, import_id))
        with connection.transaction():
            connection.execute("select bds.set_context(%s)", (feed.company,))
            connection.execute("select bds.import_fail(%s, %s, 'cancelled')", (feed.company, import_id))
    assert not feed.rows("products", "code")


@pytest.mark.parametrize(("atomic", "state"), [("false", "partial"), ("true", "failed")])
def test_a_failure_is_raised_if_a_script_asks_for_that(feed: Feed, atomic: str, state: str) -> None:
    with psycopg.connect(feed.url, autocommit=True) as connection:
        import_id, table = stage(connection, feed)
        connection.execute(
            f"insert into {table} (code, name, price) values ('A', 'a', '1'), ('B', 'b', 'x'), ('C', null, '2')".encode()
        )
        with pytest.raises(psycopg.Error) as raised:
            connection.execute("select bds.import_run(%s, %s, %s, raise_on_failure => true)", (feed.company, import_id, atomic))
        assert raised.value.sqlstate == "BD008" and not feed.rows("products", "code")
        message, report = raised.value.diag.message_primary or "", json.loads(raised.value.diag.message_detail or "")
        assert message.startswith("the import failed at products[1].price: invalid_value: ") and "(and 1 more errors)" in message
        assert report["state"] == state and report["errorCount"] == 2
        connection.execute("select bds.import_run(%s, %s, %s)", (feed.company, import_id, atomic))  # nothing was lost
    assert feed.rows("products", "code") == ([("A",)] if atomic == "false" else [])


def test_a_success_is_no_failure(feed: Feed) -> None:
    with psycopg.connect(feed.url, autocommit=True) as connection:
        import_id, table = stage(connection, feed)
        connection.execute(f"insert into {table} (code, name) values ('A', 'a')".encode())
        connection.execute("select bds.import_run(%s, %s, raise_on_failure => true)", (feed.company, import_id))
    assert feed.rows("products", "code") == [("A",)]


@pytest.mark.parametrize("statement", [
    "select bds.import_stage('{company}', '{id}', 'products')", "select bds.import_run('{company}', '{id}')",
    "select bds.import_fail('{company}', '{id}')", "select bds.import_report('{company}', '{id}')", "select bds.import_begin('{company}')",
    "insert into {table} (code) values ('X')",
])  # fmt: skip
def test_a_writer_of_another_company_is_refused(feed: Feed, companies: Callable[[], Feed], statement: str) -> None:
    other = companies()
    with psycopg.connect(feed.url, autocommit=True) as connection:
        connection.execute("set role bds_writer")
        import_id, table = stage(connection, feed)
        connection.execute("select set_config('bds.company', %s, false)", (other.company,))
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(statement.format(company=feed.company, id=import_id, table=table).encode())
        assert refused.value.sqlstate == "BD001"
        connection.execute("select set_config('bds.company', %s, false)", (feed.company,))
        connection.execute("select bds.import_fail(%s, %s)", (feed.company, import_id))
    assert json.dumps(feed.ask("select state from bds.imports where company_id = %s", feed.company)) == '[["failed"]]'


AWKWARD = """
    create table data.notes (
        company_id text collate "C" not null, id bigint not null generated by default as identity,
        name text, position text, shape text, ordinal text, parent text, is_new text, hash text, place text, n text,
        score int, doubled int generated always as (score * 2) stored,
        updated_at timestamptz not null, primary key (company_id, id),
        check (doubled < 100), check (score > 0)
    );
    select bds.register('data.notes');
"""


def test_column_names_never_collide_with_those_of_the_comparison(feed: Feed) -> None:
    feed.operator.connection.execute(AWKWARD.encode())
    place_shards(feed.url)
    again = Feed(feed.url, connections.read_catalog(feed.operator.connection), feed.company, feed.operator)
    values = dict.fromkeys(("name", "position", "shape", "ordinal", "parent", "isNew", "hash", "place", "n"), "x")
    report = again.send({"notes": [{**values, "score": 3}]})
    assert report["entities"]["notes"]["created"] == 1, report
    [(row_id,)] = feed.operator.rows("select id from data.notes")
    assert again.send({"notes": [{"id": row_id, **values}]})["entities"]["notes"]["unchanged"] == 1
    broken = again.send({"notes": [{"id": row_id, "score": 0}]})
    assert [error["code"] for error in broken["errors"]] == ["invalid_value", "batch_failed"]
    assert "rule" in broken["errors"][0]["message"]
