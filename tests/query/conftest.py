"""Fixtures: a hand-made catalog, and companies with rows in a real PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from app.database import catalog as catalogs
from app.database.connections import connect, read_catalog
from app.query.check.options import parse_query
from app.query.check.query import Query
from app.query.sql import statements as sql_statements
from app.query.sql.parameters import Statement
from tests.query import model, samples


@pytest.fixture(scope="session")
def catalog() -> catalogs.Catalog:
    return model.catalog()


@dataclass(frozen=True)
class Company:
    """The company acme, read as bds_reader."""

    catalog: catalogs.Catalog
    connection: psycopg.Connection[Any]

    def run(self, statement: Statement) -> list[tuple[Any, ...]]:
        return psycopg.RawCursor(self.connection).execute(statement.text, statement.values).fetchall()

    def query(self, entity: str, **options: str) -> Query:
        return parse_query(self.catalog, self.catalog[entity], [(f"${name}", text) for name, text in options.items()])

    def codes(self, filter: str, entity: str = "products", **options: str) -> str:
        """The codes of the rows that match, joined by spaces."""
        query = self.query(entity, filter=filter, select="code", **options)
        rows = self.run(sql_statements.rows(query, "acme"))
        (total,) = [count for count, _ in self.run(sql_statements.count(query, "acme"))]
        assert "top" in options or total == len(rows)
        return " ".join(row.removeprefix('{"code":"').removesuffix('"}') for (row,) in rows)


ROWS = """
insert into data.categories (company_id, id, code, name, parent_id) values
    ('acme', 1, 'T', 'Tools', null), ('acme', 2, 'H', 'Hammers', 1), ('acme', 3, 'Z', 'Zangen ÄÖ', 1);
insert into data.products (company_id, id, code, name, description, barcode, price, active, category_id) values
    ('acme', 1, 'A', 'Hammer', 'it''s heavy', '4001', 12.5, true, 2),
    ('acme', 2, 'B', 'hammer small', null, null, 0, false, 2),
    ('acme', 3, 'C', ' Äpfel %_\\ ', '', '4003', -7.5, true, 3),
    ('acme', 4, 'D', 'Drill', '42', '4004', null, true, null),
    ('acme', 5, 'E', '日本 𝒳y', '1e400', '4005', 999999999999999.9999, false, 1);
insert into data.product_variants (company_id, id, code, price, product_id) values
    ('acme', 1, 'A-1', 1, 1), ('acme', 2, 'A-2', null, 1), ('acme', 3, 'D-1', 3, 4);
insert into data.orders (company_id, id, code, order_date, total) values
    ('acme', 1, 'O1', '2024-02-29', 10), ('acme', 2, 'O2', '2026-01-04', null), ('acme', 3, 'O3', '1969-12-31', 5);
"""


@pytest.fixture(scope="module")
def acme(module_database_url: str) -> Iterator[Company]:
    with connect(module_database_url) as owner:
        owner.execute("select bds.create_company('acme')")
        with owner.transaction():
            owner.execute("select bds.set_context('acme')")
            owner.execute(ROWS.encode())
        owner.execute("analyze")
        with connect(module_database_url, "bds_reader") as reader:
            reader.execute("select set_config('bds.company', 'acme', false)")
            yield Company(read_catalog(owner), reader)


@pytest.fixture
def where(catalog: catalogs.Catalog) -> Callable[..., tuple[str, list[Any]]]:
    """Compiles a $filter on products to its condition and the values of $2, $3 ..."""

    def where(filter: str, entity: str = "products") -> tuple[str, list[Any]]:
        query = parse_query(catalog, catalog[entity], [("$filter", filter)])
        return model.condition(sql_statements.count(query, "acme"))

    return where


SAMPLES = 60  # rows in PostgreSQL and in Python


@dataclass(frozen=True)
class Judged:
    """The same rows in PostgreSQL and in Python."""

    catalog: catalogs.Catalog = field(repr=False)
    reader: psycopg.Connection = field(repr=False)
    rows: list[samples.Row] = field(repr=False)

    def ids(self, option: str, text: str) -> list[int]:
        query = parse_query(self.catalog, self.catalog["samples"], [(option, text), ("$select", "id")])
        statement = sql_statements.rows(query, "acme")
        return [json.loads(row)["id"] for (row,) in psycopg.RawCursor(self.reader).execute(statement.text, statement.values)]


@pytest.fixture(scope="module")
def judged(module_database_url: str) -> Iterator[Judged]:
    rows = samples.make(SAMPLES)
    with connect(module_database_url) as owner:
        owner.execute(samples.TABLE.encode())
        for name in ("acme", "other"):
            owner.execute("select bds.create_company(%s)", (name,))
            with owner.transaction():
                owner.execute("select bds.set_context(%s)", (name,))
                samples.store(owner, name, rows)
        with connect(module_database_url, "bds_reader") as reader:
            reader.execute("select set_config('bds.company', 'acme', false)")
            yield Judged(read_catalog(owner), reader, rows)
