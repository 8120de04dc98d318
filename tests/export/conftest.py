"""A running service with a company full of awkward values, and an importer for what it exports."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest

from app.database import connections
from tests.conftest import Operator
from tests.feed.conftest import Feed
from tests.service.serving import PATIENCE, Reply, Service, running

TEXTS = (
    "plain",
    "",
    " spaces at both ends ",
    "comma, \"quotes\", 'apostrophes' and \\ backslashes",
    "two\nlines\r\nand\ttabs",
    "\r",
    "<b>&amp; markup</b> ]]> -->",
    "=1+1",
    "+49 30 1234",
    "-5",
    "@SUM(A1)",
    "\t=1",
    "＝1",
    " =1",
    "\u3000\u00a0 ＋1",
    " \n @A1",
    " '=1",
    " 1",
    "\u0001\u0002\u0003\u001f\u007f\u0085 controls",
    "\ufeff\ufffe\uffff\u200b\u2028 oddities",
    "Žluťoučký kůň, Grüße, 日本語, عربى, 😀",
    "_x000D_ and _x0041_",
    "_x0041_x0042_ _x005F_x0041_ __x0041_x",
    "code:P1",
    "id:1",
    "null",
    "true",
    "007",
    "{{ 7 * 7 }} %s %(x)s {0}",
    "x" * 32_767,
    "\\.",
    "e\u0301 é",
    "'in quotes'",
    "'",
    "''=1",
    '""',
    "…",
)


@dataclass(frozen=True)
class Shop:
    """The service, and an importer into its company demo."""

    service: Service
    feed: Feed

    def get(self, entity: str, format: str | None = None, **options: Any) -> Reply:
        """Request an export.  options: those of OData without $, or the parameters mapper, companyId and ids."""
        names = {name: name if name in ("mapper", "companyId", "ids") else f"${name}" for name in options}
        query = "".join(f"&{names[name]}={quote(str(value))}" for name, value in options.items())
        return self.service.ask(f"/api/demo/{entity}?export=true" + (f"&format={format}" if format else "") + query)

    def good(self, entity: str, format: str, **options: Any) -> bytes:
        reply = self.get(entity, format, **options)
        assert reply.status == 200, reply.body
        return reply.body


@pytest.fixture(scope="module")
def shop(module_database_url: str) -> Iterator[Shop]:
    with running(module_database_url) as service:
        with connections.connect(module_database_url) as connection:
            catalog = connections.read_catalog(connection)
        shop = Shop(service, Feed(module_database_url, catalog, "demo", service.operator))
        fill(shop)
        yield shop


def fill(shop: Shop) -> None:
    """Create a few rows of most entities, with awkward texts in every text field."""
    shop.feed.good(
        units=[{"code": "PCE", "name": "piece"}],
        categories=[{"code": "tools", "name": "Tools"}, {"code": 'a:b, "c" <d>', "name": "Odd", "parent": "code:tools"}],
        customers=[{"code": "C1", "name": "Anna", "email": "anna@example.com"}],
    )
    write = shop.service.operator.write
    category, unit = (shop.feed.ask(f"select max(id) from api.{name}")[0][0] for name in ("categories", "units"))
    for number, text in enumerate(TEXTS):
        write(
            "demo",
            "insert into data.products (company_id, code, name, description, price, active, category_id, unit_id)"
            " values ('demo', %s, %s, %s, %s, %s, %s, %s)",
            (f"P{number}", text, text, number / 4, number % 2 == 0, category if number % 2 else None, unit),
        )
    shop.feed.good(
        {
            "products": [
                {"code": "P0", "variants": [{"code": "P0-S", "name": "small", "price": 1}, {"code": "P0-L", "name": "large"}]}
            ],
            "orders": [
                {"code": "O1", "orderDate": "2026-11-20", "customer": "code:C1", "total": "123456789012345.6789"},
                {"code": "O2", "orderDate": "1899-12-31", "note": "old"},
            ],
            "invoices": [
                {
                    "code": "I1", "invoiceDate": "2026-11-20", "dueDate": "9999-12-31", "customer": "code:C1", "order": "code:O1",
                    "items": [
                        {"product": "code:P0", "quantity": 2, "price": "0.1"},
                        {"product": "code:P0", "quantity": 2, "price": "0.1"},
                        {"description": "=cmd()", "quantity": "0.000001"},
                    ],
                },
                {"code": "I2", "invoiceDate": "2026-11-21"},
            ],
        }
    )  # fmt: skip


def put_mapper(service: Service, name: str, text: str) -> None:
    """Store a mapper of company demo."""
    connection = http.client.HTTPConnection(service.host, service.port, timeout=PATIENCE)
    headers = {"Authorization": service.basic, "Content-Type": "text/plain"}
    connection.request("PUT", f"/api/demo/mappers/{name}", text.encode(), headers)
    assert connection.getresponse().status in (201, 204)
    connection.close()


def allow_all(operator: Operator, table: str) -> None:
    """Drop the constraints on values that JSON cannot hold, as for rows that are older than the constraints."""
    for (name,) in operator.rows(
        "select conname from pg_constraint where conrelid = %s::regclass and conname like %s", (f"data.{table}", "%_is_finite")
    ):
        operator.connection.execute(f'alter table data.{table} drop constraint "{name}"')
