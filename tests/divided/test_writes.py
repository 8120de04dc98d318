"""Writes and imports into divided tables: they are logged as those into whole ones."""

from __future__ import annotations

import json
from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import Operator

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sharded(divided: str) -> Iterator[Operator]:
    with psycopg.connect(divided, autocommit=True) as connection:
        yield Operator(connection)


@pytest.fixture(scope="module")
def companies(sharded: Operator) -> list[str]:
    """Companies in different shards."""
    names = [sharded.company(f"company{n}") for n in range(8)]
    assert sharded.rows("select count(distinct tableoid) > 1 from bds.clocks") == [(True,)]
    return names


def log(operator: Operator, company: str) -> list[tuple[object, ...]]:
    query = "select id, entity, operation, old, collections from bds.change_log where company_id = %s order by id"
    return operator.rows(query, (company,))


def test_changes_of_rows_are_logged(sharded: Operator, companies: list[str]) -> None:
    for company in companies[:3]:
        sharded.write(company, "insert into data.units (code, name) values ('KG', 'Kilo'), ('M', 'Metre')")
        sharded.write(company, "update data.units set name = name || '!' where company_id = %s", (company,))
        sharded.write(company, "update data.units set name = name where company_id = %s", (company,))
        sharded.write(company, "delete from data.units where company_id = %s and code = 'KG'", (company,))
        written = log(sharded, company)
        assert [(id, operation) for id, _, operation, *_ in written] == [
            (1, "create"), (2, "create"), (3, "update"), (4, "update"), (5, "delete"),
        ]  # fmt: skip
        assert written[2][3] == {"name": "Kilo"} and written[4][3]["code"] == "KG"  # type: ignore[index]
        assert sharded.rows("select last_id from bds.clocks where company_id = %s", (company,)) == [(5,)]


def test_a_statement_over_several_companies_is_logged_in_each(sharded: Operator, companies: list[str]) -> None:
    several = companies[3:5]
    for company in several:
        sharded.write(company, "insert into data.units (code, name) values ('KG', 'Kilo'), ('M', 'Metre')")
    with sharded.connection.transaction():
        for company in several:
            sharded.connection.execute("select bds.lock_company(%s)", (company,))
        sharded.connection.execute("update data.units set name = 'x' where company_id = any (%s)", (several,))
    assert [[entry[0] for entry in log(sharded, company)] for company in several] == [[1, 2, 3, 4]] * 2


def test_children_change_their_parents_once(sharded: Operator, companies: list[str]) -> None:
    company = companies[5]
    sharded.write(company, "insert into data.orders (code, order_date) values ('A', '2026-01-01')")
    sharded.write(company, "insert into data.order_items (order_id) select id from data.orders where company_id = %s", (company,))
    with sharded.connection.transaction():
        sharded.connection.execute("select bds.set_context(%s)", (company,))
        for statement in (
            "update data.orders set note = 'x' where company_id = %s",
            "update data.order_items set quantity = 2 where company_id = %s",
            "delete from data.order_items where company_id = %s",
        ):
            sharded.connection.execute(statement.encode(), (company,))
    assert [(entity, operation, collections) for _, entity, operation, _, collections in log(sharded, company)] == [
        ("orders", "create", None), ("orderItems", "create", None), ("orders", "update", ["items"]),
        ("orders", "update", ["items"]), ("orderItems", "update", None), ("orderItems", "delete", None),
    ]  # fmt: skip
    assert sharded.rows("select * from bds.compare_log(%s)", (company,)) == []


def test_an_import_creates_updates_and_removes(sharded: Operator, companies: list[str]) -> None:
    company = companies[6]

    def run(document: dict[str, object]) -> dict[str, dict[str, int]]:
        [(report,)] = sharded.write(company, "select bds.import_document(%s, %s)", (company, json.dumps(document)))
        assert report["state"] == "completed", report
        return report["entities"]  # type: ignore[no-any-return]

    first = {
        "orders": [
            {"code": code, "orderDate": "2026-01-01", "items": [{"description": "a"}, {"description": "b"}]} for code in "AB"
        ]
    }
    assert run(first)["orderItems"]["created"] == 4
    assert run(first)["orders"]["unchanged"] == 2
    second = {"orders": [{"code": "A", "note": "x", "items": [{"description": "a", "quantity": 3}]}], "orders@removeAll": True}
    counts = run(second)
    assert (counts["orders"]["updated"], counts["orders"]["deleted"], counts["orderItems"]["deleted"]) == (1, 1, 3)
    assert sharded.rows("select * from bds.compare_log(%s)", (company,)) == []
    ids = [entry[0] for entry in log(sharded, company)]
    assert ids == list(range(1, len(ids) + 1))


def test_a_version_is_named_and_its_name_moved(sharded: Operator, companies: list[str]) -> None:
    for company in companies[3:5]:
        for version, is_new in ((0, True), (1, False)):
            assert sharded.rows("select bds.name_version(%s, 'start', %s)", (company, version)) == [(is_new,)]
            assert sharded.rows("select version from bds.versions where company_id = %s", (company,)) == [(version,)]


def test_a_forged_place_of_the_clock_is_looked_up_again(sharded: Operator, companies: list[str]) -> None:
    company = companies[7]
    with sharded.connection.transaction():
        sharded.connection.execute("select bds.set_context(%s)", (company,))
        sharded.connection.execute("insert into data.units (code, name) values ('KG', 'Kilo')")
        # no row is there
        sharded.connection.execute("select set_config('bds.clock', '(999,1)', true)")
        sharded.connection.execute("insert into data.units (code, name) values ('M', 'Metre')")
    assert [entry[0] for entry in log(sharded, company)] == [1, 2]
