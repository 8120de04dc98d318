"""A resolver of names for tests: companies live in shards, partitions of their tables, and generated code names these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import psycopg

from app.database import migrate

TABLES = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
# The log has partitions by month already: its shards are views.
RESOLVER = """
create or replace function bds_impl.is_distributed() returns boolean language sql immutable return true;
create or replace function bds_impl.shard_of(relation regclass, company text) returns text language sql stable
set search_path = pg_catalog, pg_temp as $$
    select case when relation = 'bds.change_log'::regclass then 'bds_shards.change_log' else coalesce(
        (
            select i.inhrelid::regclass::text
            from pg_inherits i join pg_class c on c.oid = i.inhrelid
            where i.inhparent = relation and c.relname ~ '_shard_[0-3]$'
                and satisfies_hash_partition(i.inhparent, 4, right(c.relname, 1)::int, company)
        ),
        relation::text
    ) end
$$;
create schema if not exists bds_shards;
create or replace view bds_shards.change_log as select * from bds.change_log;
"""
PARTITIONED = "when c.relkind = 'p' then 'a partitioned table'"
# Statement triggers are of the table that a statement names.
TRIGGERS = """
do $$
declare
    made record;
begin
    for made in
        select t.tgname, replace(pg_get_triggerdef(t.oid), ' ON ' || t.tgrelid::regclass || ' ', ' ON ' || i.inhrelid::regclass || ' ') as text
        from pg_trigger t join pg_inherits i on i.inhparent = t.tgrelid
        where t.tgname ~ '^bds_' and t.tgtype::int & 1 = 0 and t.tgparentid = 0
    loop
        execute made.text;
    end loop;
end
$$
"""


def migrate_with_shards(url: str) -> None:
    """Migrate a new database whose tables of companies are in shards."""
    units = list(migrate._units())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(migrate.PREPARE)
        for unit in units:
            if unit.is_migration:
                with connection.transaction():
                    migrate._apply(connection, unit)
        with connection.transaction():
            connection.execute(TABLES.encode())
    with patch.object(migrate, "_units", lambda: _resolved(units)):
        migrate.migrate(url)
    with psycopg.connect(url) as connection:
        connection.execute(TRIGGERS.encode())
        for unit in units:
            connection.execute("update public.bds_migrations set checksum = %s where name = %s", (unit.checksum, unit.name))


def _resolved(units: Sequence[migrate.Unit]) -> Iterator[migrate.Unit]:
    for unit in units:
        yield unit if unit.is_migration else replace(unit, files=[(name, _resolve(name, text)) for name, text in unit.files])


def _resolve(name: str, text: str) -> str:
    if name == "05_impl/4_shards.sql":
        return text + RESOLVER
    return text.replace(PARTITIONED, f"when to_regclass(c.oid::regclass || '_shard_0') is not null then null {PARTITIONED}")
