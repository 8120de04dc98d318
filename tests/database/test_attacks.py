"""What somebody with one role, or with none, tries beyond it: each attack in a login of its own, and what becomes of it.

An attack ends with an SQLSTATE, or has no effect (HARMLESS), or is one that PostgreSQL does not let us prevent (REMAINS, which
docs/security.md lists).  After each, nothing of another company, of accounts, hooks, functions or rights has changed, and no secret
was shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.conftest import Operator

pytestmark = pytest.mark.slow

HARMLESS, REMAINS = "harmless", "remains"
READER, WRITER, SERVICE, WORKER, OPERATOR = "bds_reader", "bds_writer", "bds_service", "bds_worker", "bds_operator"
ANALYST, NOBODY = "bds_analyst", ""  # a login that is bound to acme; one that may connect and no more
DENIED = "42501"

# role, statements, what becomes of the last one
ATTACKS: list[tuple[str, str, str]] = [
    # settings of the session, which anybody may set
    (WRITER, "set bds.turns = ',acme@,beta@,'; insert into data.units (company_id, code, name) values ('beta', 'x', 'x')", "BD001"),
    (WRITER, "set bds.turns = ',acme@2100-01-01 00:00:00+00,'; update data.units set name = 'x'", "40001"),
    (WRITER, "set bds.clock = '(0,9)'; update data.units set name = name", HARMLESS),
    (WRITER, "set bds.touching = 'items'; update data.units set name = name", HARMLESS),
    (WRITER, "set bds.change_set = 'x'; update data.units set name = 'x'", "22P02"),
    (READER, "reset bds.company; select * from bds.changes", HARMLESS),
    (READER, "set bds.company = ''; select * from api.products", HARMLESS),
    (READER, "set role = 'bds_operator'", DENIED),
    (WRITER, "set session_replication_role = replica", DENIED),
    (WRITER, "set row_security = off; select * from data.units", DENIED),
    (WRITER, "set plan_cache_mode = force_custom_plan; select * from data.units where company_id = 'beta'", HARMLESS),
    # objects of the session's own, and search_path
    (READER, """create function pg_temp.current_setting(text, boolean) returns text language sql return 'beta';
        set search_path = pg_temp, pg_catalog; select * from api.products where company_id = 'beta'""", HARMLESS),
    (WRITER, """create temp table companies as select 'nowhere' as id; set search_path = pg_temp, bds, pg_catalog;
        select bds.set_context('nowhere')""", "BD002"),
    (WRITER, """create function pg_temp.same(text, text) returns boolean language sql return true;
        create operator pg_temp.= (leftarg = text, rightarg = text, function = pg_temp.same); set search_path = pg_temp, pg_catalog;
        select bds.import_begin('beta')""", "BD001"),
    (WRITER, """create function pg_temp.leak(text) returns boolean language plpgsql cost 0.0001 as
        $$ begin raise notice '%', $1; return true; end $$; select * from data.products where pg_temp.leak(name)""", HARMLESS),
    (WRITER, "create temp view mine as select * from data.products; select * from mine", HARMLESS),
    (WRITER, """create function pg_temp.mine() returns trigger language plpgsql as 'begin return null; end';
        create trigger mine before insert on data.units for each row execute function pg_temp.mine()""", DENIED),
    (WRITER, """create function pg_temp.mine() returns trigger language plpgsql as 'begin return null; end';
        alter function bds_log.units_insert() rename to other""", DENIED),
    (READER, "create function mine() returns int language c as 'libc', 'getpid'", DENIED),
    (READER, "create schema mine", DENIED),
    (READER, "create table public.mine (a int)", DENIED),
    # rows of another company
    (WRITER, "insert into data.products (code, name, category_id) values ('x', 'x', 77)", "23503"),
    (WRITER, "insert into data.product_variants (code, product_id) values ('x', 77)", "23503"),
    (WRITER, "update data.products set category_id = 77", "23503"),
    (WRITER, "insert into data.units (company_id, id, code, name) values ('beta', 77, 'x', 'x') on conflict (company_id, id) do update set name = 'x'", "BD001"),
    (WRITER, "merge into data.units u using (values (77)) v (id) on u.id = v.id and u.company_id = 'beta' when matched then update set name = 'x'", HARMLESS),
    (WRITER, "update data.units set company_id = 'beta'", "BD001"),
    (WRITER, "update data.units set name = 'x' where company_id = 'beta' returning *", HARMLESS),
    (WRITER, "delete from data.units where company_id = 'beta' returning *", HARMLESS),
    (WRITER, "select * from data.units where company_id = 'beta' for update", HARMLESS),
    (WRITER, "update bds.imports set actor = 'x' returning *", DENIED),
    (WRITER, "delete from bds.import_errors", DENIED),
    (WRITER, "begin; lock table bds.imports in share mode", DENIED),
    (WRITER, "begin; lock table bds.import_errors in share mode", DENIED),
    (WRITER, "select bds.import_progress('beta', gen_random_uuid(), 1, 1, 1)", "BD001"),
    (WRITER, "select bds_service.import_note_positions('beta', gen_random_uuid(), '{1}', '{x}')", "BD001"),
    (WRITER, "insert into bds.imports (company_id) values ('beta')", DENIED),
    (READER, "select bds.row_history('beta', 'products', 77)", "BD001"),
    (READER, "select bds.row_at('beta', 'products', 77, 1)", "BD001"),
    (WRITER, "select bds.lock_company('beta')", "BD001"),
    (SERVICE, "select bds.create_hook('beta', null, 'http://x/')", "BD001"),
    (SERVICE, "select bds.delete_hook('beta', (select id from bds.hooks limit 1))", "BD001"),
    (SERVICE, "select bds.rotate_hook('beta', (select id from bds.hooks limit 1), true)", "BD001"),
    (SERVICE, "select * from bds.hooks where company_id = 'beta'", HARMLESS),
    (SERVICE, "select * from bds.hook_health where company_id = 'beta'", HARMLESS),
    (ANALYST, "set bds.company = 'beta'; select * from my.products", HARMLESS),
    (ANALYST, "select * from api.products", DENIED),
    # other roles
    *((role, f"set role {other}", DENIED)
      for role in (READER, WRITER, SERVICE, WORKER, OPERATOR, ANALYST, NOBODY)
      for other in ("bds_owner", "bds_dispatcher", "bds_importer")),
    (WORKER, "set role bds_writer", DENIED),
    (SERVICE, "set session authorization postgres", DENIED),
    (SERVICE, "alter role current_user superuser", DENIED),
    (SERVICE, "grant bds_operator to current_user", DENIED),
    (OPERATOR, "create role mallory superuser", DENIED),
    (OPERATOR, "grant bds_owner to current_user", DENIED),
    # tables and views
    (READER, "update api.products set name = 'x'", DENIED),
    (WRITER, "insert into api.products (code, name) values ('x', 'x')", DENIED),
    (READER, "select * from api.products for update", DENIED),
    (READER, "create or replace view api.products as select 1", DENIED),
    (WRITER, "create rule mine as on insert to data.units do instead nothing", DENIED),
    (WRITER, "create policy mine on data.units using (true)", DENIED),
    (WRITER, "alter table data.units disable row level security", DENIED),
    (WRITER, "alter table data.units disable trigger all", DENIED),
    (WRITER, "create table child () inherits (data.units)", DENIED),
    (WRITER, "truncate data.units", DENIED),
    (NOBODY, "select * from bds.companies", DENIED),
    (NOBODY, "select bds.is_operator()", DENIED),
    # the log
    (OPERATOR, "delete from bds.change_log", DENIED),
    (WRITER, "insert into bds.change_log select * from bds.change_log", DENIED),
    (OPERATOR, "update bds.clocks set last_id = 0", DENIED),
    (WORKER, "select * from bds.clocks for update", DENIED),
    (OPERATOR, "alter table data.units disable trigger bds_log_update", DENIED),
    (OPERATOR, "begin; lock table bds.change_log in row exclusive mode", DENIED),
    (SERVICE, "select bds.set_retention('1 day')", DENIED),
    # internals
    (READER, "select bds_change_log.advance('acme', 'units', 5, now(), now())", DENIED),
    (WORKER, "select bds_webhooks.match_filters('x', 'acme', 0, 1, now(), '[]')", DENIED),
    (WRITER, "select bds_feed.rows_where('beta', 'products', 'true')", DENIED),
    (OPERATOR, "select bds.register('data.units')", DENIED),
    # secrets and accounts
    *((role, "select * from bds.hook_secrets", DENIED) for role in (READER, WRITER, SERVICE, WORKER, OPERATOR)),
    *((role, "select * from bds.secrets", DENIED) for role in (READER, WRITER, SERVICE, WORKER, OPERATOR)),
    *((role, "select password_hash from bds.users", DENIED) for role in (READER, WRITER, SERVICE, WORKER, OPERATOR)),
    (SERVICE, "select * from bds.sessions", DENIED),
    (SERVICE, "insert into bds.sessions select * from bds.sessions", DENIED),
    (OPERATOR, "update bds.users set password_hash = 'x'", DENIED),
    (WORKER, "select * from bds.api_keys", DENIED),
    (READER, "select bds.create_key('\\x00', 'mine', '{acme}', null, '{read}')", DENIED),
    (READER, "select bds_service.keep_secret('tokens', 'x')", DENIED),
    (SERVICE, "select bds.create_user('eve@example.com', 'x', '{beta}')", "BD001"),
    (SERVICE, "select bds.set_access('anna@example.com', '{acme,beta}', true)", "BD001"),
    (SERVICE, "select bds.delete_company('beta')", "BD001"),
    (READER, "select rolpassword from pg_authid", DENIED),
    (READER, "select * from pg_statistic", DENIED),
    # webhooks
    *((WORKER, f"select bds.{call}", DENIED) for call in (
        "create_hook('acme', null, 'http://x/')", "update_hook('acme', gen_random_uuid(), null, 'http://x/', null, null, false, false)",
        "delete_hook('acme', gen_random_uuid())", "rotate_hook('acme', gen_random_uuid())", "test_hook('acme', gen_random_uuid())",
        "retry_delivery('acme', gen_random_uuid(), gen_random_uuid())")),
    (SERVICE, "select bds_service.refit_hook('acme', gen_random_uuid(), now(), '[]', 'x')", DENIED),
    (SERVICE, "select * from bds_service.claim_deliveries()", DENIED),
    (SERVICE, "update bds.hooks set url = 'http://x/'", DENIED),
    (SERVICE, "insert into bds.hook_filters select * from bds.hook_filters", DENIED),
    # staging and imports
    (WRITER, "create table staging.mine (a int)", DENIED),
    (WRITER, "select * from staging.{staged}", DENIED),
    (WRITER, "insert into staging.{staged} (code) values ('x')", "BD001"),
    (WRITER, "drop table staging.{staged}", DENIED),
    (WRITER, "select bds.import_run('beta', '{imported}')", "BD001"),
    # sequences
    (READER, "select nextval('data.units_id_seq')", DENIED),
    (WRITER, "select setval('data.units_id_seq', 1)", DENIED),
    (WRITER, "alter sequence data.units_id_seq restart", DENIED),
    # files, programs, the server
    *((OPERATOR, statement, DENIED) for statement in (
        "copy data.units to '/tmp/mine'", "copy (select 1) to program 'true'", "copy data.units from program 'echo'",
        "select pg_read_file('/etc/passwd')", "select pg_ls_dir('.')", "select lo_import('/etc/passwd')", "select lo_export(1, '/tmp/mine')",
        "alter system set log_statement = 'all'", "select pg_reload_conf()", "checkpoint", "create publication mine for all tables",
        "create event trigger mine on ddl_command_start execute function suppress_redundant_updates_trigger()",
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'postgres'",
    )),
    # rewriting and locking whole tables
    (WRITER, "reindex table data.units", DENIED),
    (WRITER, "cluster data.units using units_pkey", DENIED),
    (WRITER, "vacuum full data.units", HARMLESS),
    (WRITER, "analyze data.units", HARMLESS),
    (READER, "begin; lock table api.products in access exclusive mode", DENIED),
    (WORKER, "begin; lock table bds.hooks in share mode", DENIED),
    (WRITER, "begin; lock table data.units in access exclusive mode", REMAINS),
    # what every login of a database may do
    (NOBODY, "listen bds_changes", REMAINS),
    (NOBODY, "notify bds_changes, 'beta'", REMAINS),
    (NOBODY, "select pg_advisory_lock(20261120)", REMAINS),
    (ANALYST, "explain select * from my.products where name = 'beta'", REMAINS),
    (NOBODY, "notify bds_catalog", REMAINS),
    (NOBODY, "select lo_create(0)", REMAINS),
    (NOBODY, "create temp table mine as select generate_series(1, 1000)", REMAINS),
    (NOBODY, "select prosrc from pg_proc where proname = 'set_context'", REMAINS),
]  # fmt: skip

STATE = {
    "beta": "select (select jsonb_agg(u) from data.{table} u where company_id = 'beta')".replace("{table}", "units")
    + ", (select jsonb_agg(p) from data.products p where company_id = 'beta'), (select jsonb_agg(c) from data.categories c where company_id = 'beta')",
    "log": "select md5(string_agg(l::text, '' order by id)) from bds.change_log l where company_id = 'beta'",
    "gaps": "select company_id from bds.changes group by 1 having count(*) <> max(id)",
    "accounts": "select (select jsonb_agg(u) from bds.users u), (select jsonb_agg(k) from bds.api_keys k), (select jsonb_agg(s) from bds.secrets s), (select jsonb_agg(s) from bds.sessions s)",
    "hooks": "select (select jsonb_agg(h) from bds.hooks h), (select jsonb_agg(s) from bds.hook_secrets s)",
    "imports": "select jsonb_agg(i) from bds.imports i where company_id = 'beta'",
    "functions": "select md5(string_agg(p.oid || prosrc || coalesce(p.proacl::text, '') || p.proowner, '' order by p.oid)) from pg_proc p where pronamespace::regnamespace::text !~ '^pg_temp'",
    "relations": "select md5(string_agg(c.oid || relname || relfilenode || relrowsecurity || coalesce(relacl::text, ''), '' order by c.oid)) from pg_class c where relnamespace::regnamespace::text !~ '^pg_' and relkind <> 'S'",
    "triggers": "select md5(string_agg(tgname || tgenabled::text, '' order by oid)) from pg_trigger",
    "roles": "select md5(string_agg(r::text, '' order by rolname)), (select md5(string_agg(m::text, '' order by roleid, member)) from pg_auth_members m) from pg_roles r",
    "settings": "select jsonb_agg(s) from bds.settings s",
}  # fmt: skip


@dataclass
class Place:
    """Companies acme, which the attacker acts for, and beta; what is beta's and secret; what the attacker was shown."""

    operator: Operator
    url: str
    names: dict[str, str]
    secrets: list[str]
    shown: list[str] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        return {name: self.operator.rows(query) for name, query in STATE.items()}

    def attack(self, role: str, statements: str) -> str | None:
        """Run the statements as a login that has this role; returns the SQLSTATE of the last."""
        with psycopg.connect(make_conninfo(self.url, user=f"eve_{role}"), autocommit=True) as connection:
            connection.add_notice_handler(lambda notice: self.shown.append(str(notice.message_primary)))
            connection.execute("set bds.company = 'acme'")
            *before, last = split(
                statements.replace("{staged}", self.names["staged"]).replace("{imported}", self.names["imported"])
            )
            for each in before:
                connection.execute(each.encode())
            try:
                cursor = connection.execute(last.encode())
                if cursor.description:
                    self.shown += [str(row) for row in cursor.fetchall()]
            except psycopg.Error as error:
                self.shown.append(str(error))
                return error.sqlstate
        return None


def split(statements: str) -> list[str]:
    """Statements apart, by the semicolons that are not in a body."""
    found, inside = [""], False
    for part in statements.replace("as 'begin return null; end'", "as $$begin return null; end$$").split("$$"):
        if inside:
            found[-1] += f"$${part}$$"
        else:
            first, *more = part.split(";")
            found[-1] += first
            found += more
        inside = not inside
    return [each for each in found if each.strip()]


@pytest.fixture(scope="module")
def place(module_database_url: str) -> Iterator[Place]:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        operator = Operator(connection)
        for company in ("acme", "beta"):
            operator.company(company)
            secret = f"{company}-confidential"
            number = 77 if company == "beta" else 7
            operator.write(
                company,
                f"insert into data.units (id, code, name) values ({number}, 'u', '{secret}');"
                f"insert into data.categories (id, code, name) values ({number}, 'c', '{secret}');"
                f"insert into data.products (id, code, name) values ({number}, 'p', '{secret}')",
            )
            operator.write(company, "select bds.create_hook(%s, null, 'http://127.0.0.1:9/')", (company,))
        operator.key("beta")
        connection.execute(
            "select bds.create_user('anna@example.com', '$argon2id$confidential', '{beta}'), bds_service.keep_secret('tokens', 'token-confidential')"
        )
        [(imported, table)] = operator.write(
            "beta",
            "with i as materialized (select bds.import_begin('beta') as id) select id, bds.import_stage('beta', id, 'units') from i",
        )
        for role in (READER, WRITER, SERVICE, WORKER, OPERATOR, ANALYST, NOBODY):
            connection.execute(f"create role eve_{role} login".encode())
            if role == ANALYST:
                connection.execute(f"select bds.grant_company('eve_{role}', 'acme')".encode())
            elif role:
                connection.execute(f"grant {role} to eve_{role}".encode())
        secrets = [secret for (secret,) in operator.rows("select secret from bds.hook_secrets")]
        names = {"staged": str(table).removeprefix("staging."), "imported": str(imported)}
        yield Place(
            operator, module_database_url, names, [*secrets, "$argon2id$confidential", "token-confidential", "beta-confidential"]
        )
        for role in (READER, WRITER, SERVICE, WORKER, OPERATOR, ANALYST, NOBODY):
            connection.execute(f"drop owned by eve_{role}; drop role eve_{role}".encode())


@pytest.mark.parametrize(("role", "statements", "outcome"), ATTACKS, ids=lambda value: " ".join(value.split())[-60:])
def test_an_attack_ends_as_expected_and_changes_nothing(place: Place, role: str, statements: str, outcome: str) -> None:
    before = place.state()
    place.shown.clear()
    state = place.attack(role, statements)
    assert state == (None if outcome in (HARMLESS, REMAINS) else outcome), place.shown
    assert place.state() == before
    assert [secret for secret in place.secrets if any(secret in each for each in place.shown)] == []


def test_what_remains_is_in_the_threat_model() -> None:
    remaining = {statements.split(";")[-1].split()[0] for _, statements, outcome in ATTACKS if outcome == REMAINS}
    assert remaining == {"lock", "listen", "notify", "select", "create", "explain"}
    text = " ".join((Path(__file__).parents[2] / "docs" / "security.md").read_text().split())
    for words in (
        "`lock table`",
        "`listen`",
        "`notify`",
        "large objects",
        "temporary tables",
        "source of functions",
        "advisory locks",
        "`explain`",
    ):
        assert words in text
