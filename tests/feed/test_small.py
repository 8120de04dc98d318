"""Small documents: one transaction, no table, no catalog row; the same result as if they were large."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import psycopg
import pytest

from app.database import connections
from app.errors import ServiceError
from app.feed.run import Import
from tests.feed.conftest import Feed, counts, errors
from tests.service.serving import wait_until


def order(code: str, **more: Any) -> dict[str, Any]:
    return {"orders": [{"code": code, "orderDate": "2026-01-01", "items": [{"quantity": 1, "description": "x"}], **more}]}


class Session:
    """One session that lends itself to every import, as the service's pool does."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.connection = connections.connect(feed.url, "bds_writer")
        self.uses = 0

    @contextlib.contextmanager
    def lend(self) -> Iterator[psycopg.Connection[Any]]:
        self.uses += 1
        yield self.connection

    def send(self, document: dict[str, Any]) -> dict[str, Any]:
        importing = Import(self.feed.url, self.feed.catalog, self.feed.company, writers=self.lend)
        importing.receive(json.dumps(document).encode())
        return importing.run()

    def tables(self) -> list[Any]:
        return self.connection.execute(
            "select oid, relname from pg_class where relnamespace = pg_my_temp_schema() order by oid"
        ).fetchall()


@pytest.fixture
def session(feed: Feed) -> Iterator[Session]:
    session = Session(feed)
    yield session
    session.connection.close()


def test_the_second_import_of_a_session_makes_no_table_and_writes_little(session: Session) -> None:
    session.send(order("O0"))
    tables = session.tables()
    position = "select pg_current_wal_insert_lsn() - '0/0'"
    made = "select sum(pg_stat_get_tuples_inserted(oid)) from pg_class where relname in ('pg_class', 'pg_attribute', 'pg_type')"
    session.connection.execute("select pg_stat_force_next_flush()")
    before, sizes = session.feed.operator.rows(made), []
    for n in range(1, 6):
        start = session.feed.operator.rows(position)[0][0]
        assert session.send(order(f"O{n}"))["entities"]["orderItems"]["created"] == 1
        sizes.append(session.feed.operator.rows(position)[0][0] - start)
    assert session.tables() == tables
    session.connection.execute("select pg_stat_force_next_flush()")
    assert session.feed.operator.rows(made) == before
    assert min(sizes) < 40_000  # bytes of WAL, to which autovacuum and checkpoints add


@pytest.mark.parametrize(
    "document",
    [
        order("O"),
        {"orders": [{"code": "O", "orderDate": "never", "items": [{"product": "code:none"}]}]},
        {
            "@atomic": False,
            "categories": [{"code": "C", "name": "c", "parent": "code:D"}, {"code": "D", "name": "d"}, {"code": "D"}],
        },
        {"products": [{"code": "P", "name": "p", "variants": [{"code": "V"}]}], "products@removeAll": True},
        {"units": [{"code": "U", "name": "u", "colour": "red"}, {"@operation": "delete", "code": "none"}]},
        {"units": []},
        {},
    ],
    ids=range(7),
)
def test_a_small_document_gives_what_a_large_one_gives(companies: Callable[[], Feed], document: dict[str, Any]) -> None:
    found = []
    for is_large in (False, True):
        feed = companies()
        importing = Import(feed.url, feed.catalog, feed.company)
        if is_large:
            importing.begin()
        importing.receive(json.dumps(document).encode())
        report = importing.run()
        assert feed.ask("select is_small from bds.imports where id = %s", importing.id) == [(not is_large,)]
        stored = {entity: [row[3:] for row in rows] for entity, rows in feed.stored().items()}
        found.append((report["state"], counts(report), errors(report), report["errors"], stored.keys(), len(feed.log())))
        assert feed.staged() == 0
    assert found[0] == found[1]


def test_imports_of_one_session_know_nothing_of_each_other(session: Session) -> None:
    assert session.send({"units": [{"code": "A", "name": None}]})["state"] == "failed"
    report = session.send({"units": [{"code": "B", "name": "b"}]})
    assert (report["state"], report["errors"], report["entities"]["units"]["created"]) == ("completed", [], 1)
    with session.connection.transaction():  # two in one transaction
        session.connection.execute("select set_config('bds.company', %s, true)", (session.feed.company,))
        for code in "CD":
            rows = {"units": [{"@ordinal": 0, "code": code, "name": "n"}]}
            run = "select bds.import_rows(%s, %s, records => 1)"
            [(report,)] = session.connection.execute(run, (session.feed.company, json.dumps(rows))).fetchall()
            assert report["entities"]["units"]["created"] == report["progress"]["records"] == 1
    assert session.feed.rows("units", "code", order="code") == [("B",), ("C",), ("D",)]


def test_a_registered_table_is_known_to_a_session_that_has_imported(session: Session) -> None:
    session.send(order("O0"))
    session.feed.operator.connection.execute("alter table data.orders add column shelf text")
    session.feed.operator.connection.execute("select bds.register('data.orders')")
    with connections.connect(session.feed.url) as reader:
        catalog = connections.read_catalog(reader)
    importing = Import(session.feed.url, catalog, session.feed.company, writers=session.lend)
    importing.receive(json.dumps(order("O1", shelf="S")).encode())
    assert importing.run()["state"] == "completed"
    assert session.feed.rows("orders", "code", "shelf", order="code") == [("O0", None), ("O1", "S")]


@pytest.mark.parametrize("is_small", [True, False])
def test_a_column_that_is_dropped_while_the_document_arrives_is_said_to_the_client(session: Session, is_small: bool) -> None:
    connection, feed = session.feed.operator.connection, session.feed
    column = "bay_small" if is_small else "bay_large"
    field = "baySmall" if is_small else "bayLarge"
    connection.execute(f"alter table data.orders add column {column} text")
    connection.execute("select bds.register('data.orders')")
    with connections.connect(feed.url) as reader:
        catalog = connections.read_catalog(reader)
    connection.execute("select bds.drop_column('orders', %s)", (column,))
    importing = Import(feed.url, catalog, feed.company, writers=session.lend)
    if not is_small:
        importing.begin()
    importing.receive(json.dumps(order("O1", **{field: "B"})).encode())
    with pytest.raises(ServiceError, match="send it again") as raised:
        importing.run()
    importing.fail(raised.value)
    assert raised.value.code == "conflict" and feed.rows("orders", "code") == []
    assert feed.ask("select state from bds.imports where company_id = %s", feed.company) == [("failed",)]
    assert session.send(order("O1"))["state"] == "completed"


LONG = "x" * 20_000


def test_a_value_that_fits_into_no_page_is_imported(session: Session) -> None:
    for description in (LONG, LONG + "y"):
        assert session.send({"products": [{"code": "P", "name": "p", "description": description}]})["state"] == "completed"
    # a stored one goes through the import with the rest of its row
    report = session.send({"products": [{"code": "P", "price": 2}]})
    assert report["entities"]["products"]["updated"] == 1
    assert session.feed.rows("products", "description", "price") == [(LONG + "y", 2)]


def test_a_stored_value_that_fits_into_no_page_does_not_fail_a_mass_update(session: Session) -> None:
    noise = random.Random(1).randbytes(15_000).hex()  # which compression leaves too long
    products = [{"code": "P", "name": "p", "description": noise}, {"code": "Q", "name": "q"}]
    assert session.send({"products": products})["state"] == "completed"
    for condition, updated in (("code = 'P'", 1), ("active = true or code = 'P'", 1)):
        report = session.send({"products": [{"@operation": "update", "@where": condition, "active": False}]})
        assert (report["state"], counts(report)["products"]["updated"]) == ("completed", updated), report["errors"]
    assert session.feed.rows("products", "description", "active") == [(noise, False), (None, False)]


def test_a_key_that_is_too_long_for_its_index_fails_only_its_record(session: Session) -> None:
    long = random.Random(1).randbytes(2_500).hex()
    report = session.send({"@atomic": False, "units": [{"code": long, "name": "n"}, {"code": "B", "name": "b"}]})
    assert errors(report) == [("units[0]", "invalid_value")]
    assert session.feed.rows("units", "code") == [("B",)]


def test_an_import_that_has_to_wait_is_listed(session: Session) -> None:
    feed = session.feed
    with psycopg.connect(feed.url) as holder:
        holder.execute("select bds.set_context(%s, 'holder')", (feed.company,))
        holder.execute("insert into data.units (code, name) values ('H', 'h')")
        importing = Import(feed.url, feed.catalog, feed.company, writers=session.lend)
        importing.receive(json.dumps({"units": [{"code": "H", "name": "new"}]}).encode())
        reports: list[dict[str, Any]] = []
        work = Thread(target=lambda: reports.append(importing.run()))
        work.start()
        wait_until(
            lambda: feed.ask("select state, is_small from bds.imports where company_id = %s", feed.company) == [("running", False)]
        )
        holder.commit()
        work.join()
    assert reports[0]["entities"]["units"] == {"created": 0, "updated": 1, "deleted": 0, "unchanged": 0, "failed": 0}


def test_a_temporary_table_in_the_way_is_gone_round(session: Session) -> None:
    session.connection.execute("create temporary table map_orders (n int)")
    assert session.send(order("O"))["state"] == "completed"
    assert session.connection.execute("select count(*) from map_orders").fetchall() == [(0,)]


def test_what_a_session_stages_is_its_companys(session: Session, companies: Callable[[], Feed]) -> None:
    other = companies()
    connection = session.connection
    connection.execute("select set_config('bds.company', %s, false)", (session.feed.company,))
    run = """select bds.import_rows(%s, '{"units": [{"@ordinal": 0, "code": "A", "name": "a"}]}')"""
    with pytest.raises(psycopg.Error) as refused:
        connection.execute(run, (other.company,))
    assert refused.value.sqlstate == "BD001"
    with connection.transaction():
        connection.execute(run, (session.feed.company,))
        for statement in (
            "select * from pg_temp.staged_units",
            "insert into pg_temp.staged_units (code) values ('B')",
            "delete from pg_temp.map_units",
            "drop table pg_temp.map_units",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(statement.encode())


@pytest.mark.parametrize(
    "name",
    [
        "\\",
        "\\n",
        "a\nb",
        "\r\n",
        "\\\\\n\\",
        "tab\there",
        "\x02",
        "\x03",
        "\x02\x03\x02",
        "\\\x02",
        "a\\\x03",
        "\x01",
        "\x01\x01",
        "Ω\u2028𝄞",
        '"',
        " ",
    ],
)
def test_every_text_of_a_small_document_is_stored_as_it_was_sent(session: Session, name: str) -> None:
    document = {
        "products": [{"code": "P", "name": name, "description": None}, {"description": name, "name": name, "code": "Q" + name}]
    }
    report = session.send(document)
    assert (report["state"], report["errors"]) == ("completed", [])
    assert session.feed.rows("products", "code", "name", "description", order="id") == [("P", name, None), ("Q" + name, name, name)]
    assert session.feed.ask("select is_small from bds.imports where company_id = %s", session.feed.company) == [(True,)]
