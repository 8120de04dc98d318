"""The service's own roles add to the change log by writing rows, and in no other way."""

from __future__ import annotations

import psycopg
import pytest

from tests.conftest import Operator

ROLES = ("bds_reader", "bds_writer", "bds_service", "bds_operator")
KEPT = """
    select c.oid, c.relname from pg_class c
    where c.oid = 'bds.change_log'::regclass or c.oid in (select inhrelid from pg_inherits where inhparent = 'bds.change_log'::regclass)
        or c.oid = any (array['bds.clocks', 'bds.changes', 'bds.positions', 'bds.company_positions', 'bds.entity_positions', 'bds.change_months', 'bds.change_archive', 'bds.settings']::regclass[])
"""


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


@pytest.fixture
def acme(operator: Operator) -> Operator:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A'), ('b', 'B')")
    return operator


def contents(operator: Operator) -> list[tuple[object, ...]]:
    return operator.rows("select * from bds.changes order by company_id, id") + operator.rows("select c::text from bds.clocks c")


@pytest.mark.parametrize("role", ROLES)
def test_no_role_has_a_right_to_write_where_the_log_is_kept(acme: Operator, role: str) -> None:
    for right in ("insert", "update", "delete", "truncate", "references", "trigger", "maintain"):
        assert acme.rows(f"select k.relname from ({KEPT}) k where has_table_privilege(%s, k.oid, %s)", (role, right)) == []
    for right in ("insert", "update", "references"):
        assert acme.rows(f"select k.relname from ({KEPT}) k where has_any_column_privilege(%s, k.oid, %s)", (role, right)) == []
    assert (
        acme.rows(
            "select nspname from pg_namespace where nspname in ('bds', 'bds_log', 'data', 'api') and has_schema_privilege(%s, oid, 'create')",
            (role,),
        )
        == []
    )
    assert acme.rows(
        "select pg_has_role(%s, 'bds_owner', 'member'), rolsuper, rolcreaterole, rolbypassrls from pg_roles where rolname = %s",
        (role, role),
    ) == [(False, False, False, False)]
    assert acme.rows(
        "select c.oid::regclass::text from pg_class c where c.relnamespace in ('bds'::regnamespace, 'data'::regnamespace, 'api'::regnamespace)"
        " and pg_get_userbyid(c.relowner) <> 'bds_owner'"
    ) == []  # fmt: skip


ATTEMPTS = [
    "update bds.change_log set actor = 'nobody'",
    "update bds.change_archive set actor = 'nobody'",
    "delete from bds.changes",
    "insert into bds.change_log (company_id, id) values ('acme', 99)",
    "truncate bds.change_log",
    "drop table bds.change_archive",
    "alter table bds.change_log detach partition bds.change_archive",
    "alter table bds.change_log disable trigger all",
    "lock table bds.change_log in access exclusive mode",
    "create rule nothing as on insert to bds.change_log do instead nothing",
    "update bds.clocks set last_id = 0",
    "select * from bds.clocks for update",
    "update bds.settings set log_retention = '1 day'",
    "insert into bds.change_months values ('acme', now(), 100)",
    "alter table data.units disable trigger bds_log_update",
    "alter table data.units disable trigger all",
    "drop trigger bds_log_update on data.units",
    "create trigger mine before insert on bds.change_log for each row execute function suppress_redundant_updates_trigger()",
    "create trigger a before insert on data.units for each row execute function suppress_redundant_updates_trigger()",
    "create trigger a instead of insert on bds.changes for each row execute function suppress_redundant_updates_trigger()",
    "create or replace function bds_log.units_update() returns trigger language plpgsql as 'begin return null; end'",
    "alter function bds_log.units_update() owner to current_user",
    "set session_replication_role = replica",
    "set role bds_owner",
    "select bds_change_log.advance('acme', 'units', 5, now(), now())",
    "select bds_change_log.expire_months('infinity')",
    "select bds_change_log.name_collection('acme', 'products', 'variants', '{1}')",
    "select bds.unregister('units')",
    "select bds_registry.uninstall_table('data.units')",
    "select bds_registry.install_entity('units')",
    "select bds_log.units_update()",
    "truncate data.units cascade",
    "copy bds.change_log from program 'echo'",
    "drop schema bds_log cascade",
    "drop owned by bds_owner",
    "reassign owned by bds_owner to current_user",
]


@pytest.mark.parametrize("role", ROLES)
def test_every_attempt_to_alter_the_log_is_refused(acme: Operator, connect, role: str) -> None:
    before = contents(acme)
    connection = connect()
    # a login that is the role itself, not a superuser that has set the role
    connection.execute(f"set session authorization {role}".encode())
    connection.execute("select set_config('bds.company', 'acme', false)")
    for attempt in ATTEMPTS:
        with pytest.raises(psycopg.Error) as caught, connection.transaction():
            connection.execute(attempt.encode())
        assert caught.value.sqlstate in ("42501", "BD001", "BD004", "0A000"), (attempt, str(caught.value))
    assert contents(acme) == before


def test_a_writer_that_shadows_operators_and_functions_is_logged_and_refused_all_the_same(acme: Operator, connect) -> None:
    """It may create in some schema, and set its search_path; what logs, and what keeps companies apart, does not look there."""
    acme.company("beta")
    with acme.connection.transaction():
        acme.rows("select bds.set_context('beta')")
        [(staged,)] = acme.rows("select bds.import_stage('beta', bds.import_begin('beta'), 'units')")
    acme.connection.execute("create schema theirs; grant usage, create on schema theirs to bds_writer")
    writer = connect("bds_writer", "acme")
    writer.execute("""
        create function theirs.clock_timestamp() returns timestamptz language sql as $$ select timestamptz '2100-01-01' $$;
        create function theirs.same(text, text) returns boolean language sql as $$ select true $$;
        create operator theirs.= (leftarg = text, rightarg = text, function = theirs.same);
        create function theirs.current_setting(text, boolean) returns text language sql as $$ select 'forged' $$;
        set search_path = theirs, pg_catalog;
    """)
    writer.execute("update data.units set name = 'changed' where code operator(pg_catalog.=) 'a'")
    writer.execute("insert into data.units (code, name) values ('c', 'C')")
    writer.execute("delete from data.units where code operator(pg_catalog.=) 'b'")
    assert acme.rows("select id, operation, actor, old ->> 'name' from bds.changes where id > 2 order by id") == [
        (3, "update", "postgres", "A"), (4, "create", "postgres", None), (5, "delete", "postgres", "B"),
    ]  # fmt: skip
    assert acme.rows("select count(*) from data.units where updated_at > now()") == [(0,)]
    for attempt in (f"insert into {staged} (code) values ('x')", "select bds.require_company('beta')"):
        with pytest.raises(psycopg.Error) as refused:
            writer.execute(attempt.encode())
        assert refused.value.sqlstate == "BD001", attempt
