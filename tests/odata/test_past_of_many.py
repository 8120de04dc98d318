"""Past states in which more rows have changed than are looked for by their ids: they read as they did when they were the present."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from app.database import connections
from app.database.catalog import Catalog
from app.database.past import NAME_VERSION, Moment, model_of, parameters
from app.query.check.options import parse_query
from app.query.sql import past as sql_past
from app.query.sql import statements as sql_statements
from tests.odata.test_past import IS_DEEP

pytestmark = pytest.mark.slow

FEW = 1_000  # instead of sql_past.FEW: the statements are the same, and read a tenth of the rows
ORDERS = FEW + 100
ROWS = (
    "insert into data.products (code, name) select 'P' || n, 'Product ' || n from generate_series(1, 3) n",
    "insert into data.orders (code, order_date, total, status)"
    f" select 'O' || n, '2026-01-01', n, 'draft' from generate_series(1, {ORDERS}) n",
    "insert into data.order_items (order_id, product_id, quantity, price)"
    " select o.id, p.id, o.total, p.id from data.orders o join data.products p using (company_id) where company_id = 'acme'",
)
CHANGES = (
    "delete from data.order_items where company_id = 'acme' and id % 5 = 0",
    "update data.order_items set quantity = quantity + 1, price = 7 where company_id = 'acme' and id % 2 = 0",
    "update data.orders set total = total + 1, status = 'confirmed' where company_id = 'acme' and id % 4 <> 0",
    "update data.orders set code = code || '!' where company_id = 'acme' and id % 3 = 0",
    "insert into data.orders (code, order_date, total, status)"
    f" select 'N' || n, '2026-01-01', n, 'draft' from generate_series(1, {ORDERS}) n",
)
QUERIES = (
    ("orders", "$filter=status eq 'draft'&$top=20&$expand=items"),
    ("orders", "$filter=status eq 'draft'&$expand=items"),
    ("orders", "$filter=status eq 'confirmed'"),
    ("orders", "$filter=contains(code,'7') and status eq 'draft'&$orderby=total desc&$expand=items"),
    ("orders", f"$top={sql_statements.PAGE}&$expand=items"),
    ("orders", f"$top={sql_statements.PAGE + 1}&$orderby=total desc&$expand=items&$skip=3"),
    ("orders", "$filter=items/any(i:i/quantity gt 500) and status eq 'draft'"),
    ("orders", "$filter=code eq 'O9'&$expand=items"),
    ("orderItems", "$filter=product/id eq 2&$expand=order"),
    ("orderItems", "$filter=price eq 2&$expand=product,order&$top=500"),
    ("orderItems", "$filter=price eq 7"),
)


@pytest.fixture(scope="module", autouse=True)
def _few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_past, "FEW", FEW)
        yield


@pytest.fixture(scope="module")
def reader(module_database_url: str) -> Iterator[psycopg.Connection[tuple[str, ...]]]:
    with connections.connect(module_database_url, "bds_reader") as connection:
        connection.execute("set bds.company = 'acme'")
        yield connection


@pytest.fixture(scope="module")
def versions(module_database_url: str, reader: psycopg.Connection[tuple[str, ...]]) -> dict[int, list[object]]:
    """What the queries gave at each version, when it was the last one."""
    seen = {}
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        connection.execute("select bds.create_company('acme')")
        for statement in (*ROWS, *CHANGES):
            with connection.transaction():
                connection.execute("select bds.set_context('acme', 'test')")
                connection.execute(statement.encode())
            connection.execute("analyze")
            [(version,)] = connection.execute("select last_id from bds.clocks where company_id = 'acme'").fetchall()
            if statement not in ROWS[:-1]:
                seen[version] = answers(reader, connections.read_catalog(reader))
    return seen


def answers(reader: psycopg.Connection[tuple[str, ...]], catalog: Catalog) -> list[object]:
    """The rows of each query as a stream reads them, and as a page of as many rows."""
    found = list[object]()
    for entity, options in QUERIES:
        query = parse_query(
            catalog, catalog[entity], [(name, value) for name, _, value in (o.partition("=") for o in options.split("&"))]
        )
        kinds = (sql_statements.rows, sql_statements.page) if query.top else (sql_statements.rows,)
        for statement in (kind(query, "acme") for kind in kinds):
            rows = psycopg.RawCursor(reader).execute(statement.text, statement.values, prepare=False).fetchall()
            found.append((options, [row[0] for row in rows]))
    return found


def test_every_version_reads_as_it_did(
    module_database_url: str, reader: psycopg.Connection[tuple[str, ...]], versions: dict[int, list[object]]
) -> None:
    catalog = model_of(connections.read_catalog(reader))
    for deep in ("false", "true"):  # behind few changes, and behind many
        with psycopg.connect(module_database_url) as connection:
            connection.execute(f"{IS_DEEP} return {deep}".encode())
        for version, expected in versions.items():
            reader.execute(NAME_VERSION, parameters("acme", Moment(version=version), local=False))
            for found, then in zip(answers(reader, catalog), expected, strict=True):
                assert found == then, (version, deep, found)
