"""The tables with rows of companies can be divided into shards by the company, which Citus places (sql/02_shards)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

TABLES = "select name from bds_operation.company_tables() where is_dumped and name not in ('bds.companies', 'bds.api_keys')"
# Over tables of the catalog: each query lists what is wrong.  $1: names of tables with rows of companies.
SCHEMA = {
    "a unique index without the company": """
        select i.indexrelid::regclass from pg_index i
        where i.indrelid = any ($1::regclass[]) and (i.indisunique or i.indisexclusion) and not exists (
            select from pg_attribute a where a.attrelid = i.indrelid and a.attname = 'company_id' and a.attnum = any (i.indkey::int2[]))
        """,
    "a foreign key to rows of companies without the company": """
        select k.conrelid::regclass || '.' || k.conname from pg_constraint k
        where k.contype = 'f' and k.confrelid = any ($1::regclass[]) and not exists (
            select from unnest(k.conkey, k.confkey) as c (own, other)
            join pg_attribute a on a.attrelid = k.conrelid and a.attnum = c.own and a.attname = 'company_id'
            join pg_attribute b on b.attrelid = k.confrelid and b.attnum = c.other and b.attname = 'company_id')""",
    "a SQL-standard body over rows of companies, which Citus would copy to a new node before their table": """
        select distinct p.oid::regprocedure::text
        from pg_proc p join pg_depend d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.refclassid = 'pg_class'::regclass
        where p.prosqlbody is not null and d.refobjid = any ($1::regclass[])""",
}  # fmt: skip
WRONG = {
    "a unique index without the company": "create unique index on data.units (code)",
    "a foreign key to rows of companies without the company":
        "alter table data.units add unique (id); create table data.x (company_id text, unit bigint references data.units (id))",
    "a SQL-standard body over rows of companies, which Citus would copy to a new node before their table":
        "create function data.f() returns bigint language sql return (select count(*) from data.units)",
}  # fmt: skip


@pytest.fixture(scope="module")
def connection(module_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("wrong", SCHEMA)
def test_the_schema_has_no(connection: psycopg.Connection[Any], wrong: str) -> None:
    assert schema_errors(connection, wrong) == []


@pytest.mark.parametrize("wrong", SCHEMA)
def test_a_wrong_schema_is_found(connection: psycopg.Connection[Any], wrong: str) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute(WRONG[wrong].encode())
        assert len(schema_errors(connection, wrong)) == 1


def schema_errors(connection: psycopg.Connection[Any], wrong: str) -> list[tuple[Any, ...]]:
    query, tables = SCHEMA[wrong], [name for (name,) in connection.execute(TABLES)]
    assert {"data.products", "bds.clocks", "bds.change_log"} <= set(tables)
    return connection.execute(query.replace("$1", "%s").encode(), [tables] * query.count("$1")).fetchall()
