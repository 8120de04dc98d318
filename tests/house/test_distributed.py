"""No SQL of the project is refused by a distributed database (Citus), where each company's rows are on one of several servers."""

from __future__ import annotations

import ast as python
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.house import refused
from tests.house.refused import Model

ROOT = Path(__file__).resolve().parents[2]
OURS = "('bds', 'data', 'bds_log') or n.nspname ^@ 'bds_'"

TABLES = "select name from bds_operation.company_tables() where is_dumped and name not in ('bds.companies', 'bds.api_keys')"
VOLATILE = f"""
    select p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
    where p.provolatile = 'v' and (n.nspname = 'pg_catalog' or n.nspname in {OURS})
    group by p.proname
"""
FUNCTIONS = f"""
    select p.oid::regprocedure::text, l.lanname, coalesce(nullif(p.prosrc, ''), pg_get_functiondef(p.oid)), p.proargnames,
        case
            when p.proargmodes && '{{o,t}}' then case when p.proretset then '(out a_ text, out b_ text) returns setof record' else '() returns void' end
            when p.proretset then '() returns setof text'
            else '() returns ' || case when r.typname in ('void', 'trigger') then r.typname else 'text' end
        end
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    join pg_language l on l.oid = p.prolang
    join pg_type r on r.oid = p.prorettype
    where p.prokind = 'f' and (n.nspname in {OURS})
    order by 1
"""
# Takes ids and the time in one statement, which each write runs: PostgreSQL's alone, over a partition.
NOT_DISTRIBUTED = {"bds_change_log.advance(text,text,bigint,timestamp with time zone,timestamp with time zone)"}
# Over tables of the catalog: each query lists what is wrong.  $1: names of tables with rows of companies.
SCHEMA = {
    "an identity column that is not bigint": """
        select a.attrelid::regclass || '.' || a.attname from pg_attribute a
        where a.attidentity <> '' and a.atttypid <> 'int8'::regtype and not a.attisdropped""",
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
    "a foreign key that sets null or default": """
        select k.conrelid::regclass || '.' || k.conname from pg_constraint k
        where k.contype = 'f' and k.conrelid = any ($1::regclass[]) and k.confdeltype in ('n', 'd')""",
    "a policy with a subquery": """
        select p.polrelid::regclass || '.' || p.polname from pg_policy p
        where concat(pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)) ~* '\\mselect\\M'""",
    "a SQL-standard body over rows of companies, which Citus would copy to a new node before their table": """
        select distinct p.oid::regprocedure::text
        from pg_proc p join pg_depend d on d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.refclassid = 'pg_class'::regclass
        where p.prosqlbody is not null and d.refobjid = any ($1::regclass[])""",
    "a trigger function whose name has to be quoted": """
        select p.proname from pg_proc p where p.pronamespace = 'bds_log'::regnamespace and quote_ident(p.proname) <> p.proname""",
}  # fmt: skip
WRONG = {
    "an identity column that is not bigint": "create table data.x (company_id text, n int generated always as identity)",
    "a unique index without the company": "create unique index on data.units (code)",
    "a foreign key to rows of companies without the company":
        "alter table data.units add unique (id); create table data.x (company_id text, unit bigint references data.units (id))",
    "a foreign key that sets null or default": """
        alter table data.units add column other bigint,
        add foreign key (company_id, other) references data.units (company_id, id) on delete set null (other)""",
    "a policy with a subquery": "create policy odd on data.units using (company_id = (select current_setting('bds.company')))",
    "a SQL-standard body over rows of companies, which Citus would copy to a new node before their table":
        "create function data.f() returns bigint language sql return (select count(*) from data.units)",
    "a trigger function whose name has to be quoted":
        """create function bds_log."productVariants_check"() returns int language sql return 1""",
}  # fmt: skip

MODEL = Model(frozenset({"bds.imports", "data.units"}), frozenset({"bds.companies"}), frozenset({"clock_timestamp", "nextval"}))
BAD = {
    "update bds.imports set heartbeat_at = clock_timestamp()": "clock_timestamp where bds.imports is written",
    "with d as (delete from data.units where updated_at < clock_timestamp() returning 1) select 1 from d":
        "clock_timestamp where data.units is written",
    "merge into data.units t using s on true when matched then delete returning 1": "merge into data.units",
    "select exists (select from bds.imports i where i.id = $1)": "select without columns from bds.imports",
    "select from bds.companies": "select without columns from bds.companies",
    "select from a join bds.companies c on true": "select without columns from bds.companies",
    "create policy p on data.units using (company_id = (select current_setting('x')))": "policy p has a subquery",
    "create table data.x (a int references data.units (id) on delete set null)": "on delete set null or default",
    "select format('update bds.imports set bytes = nextval(%L) where id = %s', 'x', 1)": "nextval where bds.imports is written",
}  # fmt: skip


@pytest.fixture(scope="module")
def connection(module_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture(scope="module")
def model(connection: psycopg.Connection[Any]) -> Model:
    names = [{name for (name,) in connection.execute(query.encode())} for query in (TABLES, VOLATILE)]
    assert {"data.products", "bds.clocks", "bds.change_log"} <= names[0] and {"clock_timestamp", "nextval"} <= names[1]
    return Model(frozenset(names[0]), frozenset({"bds.companies", "bds.tenants"}), frozenset(names[1]))


@pytest.mark.parametrize(("statement", "found"), BAD.items())
def test_what_is_refused_is_found(statement: str, found: str) -> None:
    assert refused.refusals(MODEL, statement) == [found]


def test_statements_over_other_tables_are_not_refused() -> None:
    other = "update bds.sessions set at = clock_timestamp(); select from pg_class; select 1 from bds.imports; update bds.imports set a = now()"
    assert refused.refusals(MODEL, other) == []


def test_several_statements_in_a_string_are_found_if_one_changes_a_table() -> None:
    assert list(refused.crowds("alter table {table} owner to x; create index on {table} (a)"))
    assert not list(refused.crowds("select 1; select 2"))
    assert not list(refused.crowds("comment on table {table} is {comment:L}"))


@pytest.mark.parametrize("wrong", SCHEMA)
def test_the_schema_has_no(connection: psycopg.Connection[Any], model: Model, wrong: str) -> None:
    assert schema_errors(connection, model, wrong) == []


@pytest.mark.parametrize("wrong", SCHEMA)
def test_a_wrong_schema_is_found(connection: psycopg.Connection[Any], model: Model, wrong: str) -> None:
    with connection.transaction(force_rollback=True):
        connection.execute(WRONG[wrong].encode())
        assert len(schema_errors(connection, model, wrong)) == 1


def test_functions_are_not_refused(connection: psycopg.Connection[Any], model: Model) -> None:
    found, judged = {}, 0
    for name, language, body, parameters, header in connection.execute(FUNCTIONS.encode()).fetchall():
        texts = list(refused.queries(body, parameters, header)) if language == "plpgsql" else [body]
        judged += len(texts)
        if name in NOT_DISTRIBUTED:
            continue
        if errors := [error for text in texts for error in refused.refusals(model, text)]:
            found[name] = errors
    assert judged > 2000
    assert found == {}


@pytest.mark.parametrize("path", sorted((ROOT / "sql").rglob("*.sql")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_are_not_refused(model: Model, path: Path) -> None:
    assert refused.refusals(model, path.read_text(encoding="utf-8")) == []


def test_generated_statements_that_change_tables_are_run_one_by_one(connection: psycopg.Connection[Any]) -> None:
    found = []
    for name, language, body, parameters, header in connection.execute(FUNCTIONS.encode()).fetchall():
        if language == "plpgsql":
            texts = refused.queries(body, parameters, header)
            found += [f"{name}: {error}" for text in texts for error in refused.run_at_once(text)]
    assert found == []


@pytest.mark.parametrize("path", sorted((ROOT / "app").rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_statements_of_the_service_are_not_refused(model: Model, path: Path) -> None:
    for node in python.walk(python.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, python.Constant) and isinstance(node.value, str):
            assert refused.refusals(model, node.value) == [], node.value


def schema_errors(connection: psycopg.Connection[Any], model: Model, wrong: str) -> list[tuple[Any, ...]]:
    query = SCHEMA[wrong]
    return connection.execute(query.replace("$1", "%s").encode(), [list(model.companies)] * query.count("$1")).fetchall()
