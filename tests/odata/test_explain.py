"""`bds explain`: the statement of a request, its values and PostgreSQL's plan."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from app.cli.explain import explain
from app.config import Config
from app.errors import ServiceError

ROWS = (
    "insert into data.orders (code, order_date) select 'O' || n, '2026-01-01' from generate_series(1, 2000) n",
    "insert into data.products (code, name) select 'P' || n, 'P' from generate_series(1, 20) n",
    "insert into data.order_items (order_id, product_id, quantity, price) select o.id, p.id, 1, 1"
    " from (select id from data.orders where company_id = 'acme') o, (select id from data.products where company_id = 'acme' limit 3) p",
)
CHANGES = (
    "update data.orders set total = 1 where company_id = 'acme' and id % 10 = 0",
    "update data.order_items set quantity = 2 where company_id = 'acme' and id % 10 = 0",
)


@pytest.fixture(scope="module")
def url(module_database_url: str) -> str:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        connection.execute("select bds.create_company('acme')")
    return module_database_url


def explained(url: str, path: str) -> str:
    return asyncio.run(explain(Config(database_url=url), path))


def test_explain_prints_the_statement_its_values_and_the_plan(url: str) -> None:
    filter = "price%20gt%20100%20and%20contains(name,'50%25')"
    printed = explained(url, f"/api/odata/acme/products?$filter={filter}&$top=5")
    statement, values, plan = printed.split("\n\n")
    assert all(f"${number} " in statement for number in range(1, 4)) and "$4" not in statement and "limit 5" in statement.lower()
    assert values.split("\n") == ["  $1 = 'acme'", "  $2 = '100'", r"  $3 = '%50\\%%'"]
    assert "products" in plan


def test_a_document_has_no_statement(url: str) -> None:
    with pytest.raises(ServiceError, match="no SQL"):
        explained(url, "/api/odata/acme/$metadata")


def test_a_past_state_is_explained_as_of_its_version(url: str) -> None:
    printed = explained(url, "/api/odata/acme@0/products?$top=5")
    assert "past.products_present" in printed and "api.products" not in printed and "change_log" in printed
    with pytest.raises(ServiceError, match="version 7 is yet to come"):
        explained(url, "/api/odata/acme@7/products")


def test_rows_that_are_related_to_past_ones_are_not_looked_for_among_all_of_them(url: str) -> None:
    """The plan is that of the service's cursor: one for the first rows alone takes minutes for 100,000 orders with their items."""
    with psycopg.connect(url, autocommit=True) as connection:
        versions = []
        for statements in (ROWS, CHANGES):
            with connection.transaction():
                connection.execute("select bds.set_context('acme', 'test')")
                for statement in statements:
                    connection.execute(statement.encode())
                versions += connection.execute("select last_id from bds.clocks where company_id = 'acme'").fetchone() or ()
        connection.execute("vacuum analyze")
    assert "Join Filter" not in explained(url, f"/api/odata/acme@{versions[0]}/orders?$expand=items").split("\n\n")[2]
