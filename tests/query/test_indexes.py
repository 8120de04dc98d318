"""Conditions that an index serves: PostgreSQL's plan has them as index conditions, not as filters."""

from __future__ import annotations

import psycopg
import pytest

from app.database.connections import connect
from app.query.sql import statements as sql_statements
from tests.query.conftest import Company

FORMS = [
    # entity, $filter, the index condition
    ("products", "id eq 3", "(id = '3'::bigint)"),
    ("products", "id in (1,3)", "(id = ANY ("),
    ("products", "code eq 'A'", "(code = 'A'::text)"),
    ("products", "code in ('A','B')", "(code = ANY ("),
    ("products", "code gt 'A' and code le 'C'", "(code > 'A'::text) AND (code <= 'C'::text)"),
    ("products", "startswith(code,'A%_')", "(code >= 'A%_'::text) AND (code < 'A%`'::text)"),
    ("products", "category/id eq 2", "(category_id = '2'::bigint)"),
    ("products", "category eq null", "(category_id IS NULL)"),
    (
        "products",
        "updatedAt ge 2026-01-01T00:00:00Z and updatedAt lt 2026-02-01",
        "(updated_at < '2026-02-01 00:00:00+00'::timestamp with",
    ),
    ("products", "year(updatedAt) eq 2026", "(updated_at < '2027-01-01 00:00:00+00'::timestamp with time zone)"),
    ("products", "date(updatedAt) eq 2026-01-02", "(updated_at >= '2026-01-02 00:00:00+00'::timestamp with time zone)"),
    ("products", "startOfMonth(updatedAt) ge 2026-01-02", "(updated_at >= '2026-02-01 00:00:00+00'::timestamp with time zone)"),
    ("orders", "year(orderDate) ge 2026", "(order_date >= '2026-01-01'::date)"),
    ("orders", "startOfYear(orderDate) eq 2026-01-01", "(order_date < '2027-01-01'::date)"),
    ("products", "contains(name,'ham_')", r"(name ~~ '%ham\_%'::text)"),
    ("products", "contains(description,'ham') and price gt 0", "(description ~~ '%ham%'::text)"),
    ("products", "endswith(name,'mer')", "(name ~~ '%mer'::text)"),
    ("products", "contains(tolower(name),'mmer')", "~~ '%mmer%'::text)"),
]

# Further indexes that a DBA may create.
INDEXES = """
create extension pg_trgm;
create index on data.orders (company_id, order_date);
create index on data.products using gin (name gin_trgm_ops);
create index on data.products using gin (description gin_trgm_ops);
create index on data.products using gin ((lower(name collate "pg_catalog"."pg_c_utf8") collate "C") gin_trgm_ops);
"""
# Enough rows for the planner to choose between indexes.
ROWS = """
insert into data.products (company_id, id, code, name, description)
select 'acme', 100 + n, 'P' || n, 'Product ' || md5(n::text), md5((n + 1)::text) from generate_series(1, 5000) n;
"""


@pytest.fixture(scope="module", autouse=True)
def _indexes(acme: Company, module_database_url: str) -> None:
    with connect(module_database_url) as owner:
        owner.execute(INDEXES)
        with owner.transaction():
            owner.execute("select bds.set_context('acme')")
            owner.execute(ROWS)
        owner.execute("vacuum analyze data.products")


@pytest.mark.parametrize(("entity", "filter", "searched"), FORMS, ids=[form[1] for form in FORMS])
def test_an_index_serves(acme: Company, entity: str, filter: str, searched: str) -> None:
    statement = sql_statements.count(acme.query(entity, filter=filter), "acme")
    with acme.connection.transaction(force_rollback=True):
        acme.connection.execute("set local enable_seqscan = off")
        plan = psycopg.RawCursor(acme.connection).execute(b"explain (costs off) " + statement.text, statement.values)
        conditions = [line for (line,) in plan if "Index Cond" in line]
    assert any(searched in line for line in conditions), conditions
