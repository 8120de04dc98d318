"""What is done to what bds migrate and bds.register have made is listed, and the printed mends heal all of it in one pass.

A case is a dict: statements that touch different objects, each with the problems that it makes. All of them are run, listed and
healed together. Each case begins with a database without problems and leaves it so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby

import psycopg
import pytest

from app.database import migrate
from tests.conftest import NO_MONTHS, Operator
from tests.database.test_altered_tables import DROP_VIEWS, SHELVES, TABLE

pytestmark = [pytest.mark.slow, NO_MONTHS]

# roles are those of the server
NAMES = {name: f"{name}_{os.getpid()}" for name in ("dba", "eve", "team", "clara")}
VIEWS = [
    f"missing view: {name}"
    for name in ("api.stores", "my.stores", "past.stores", *(f"past.stores_{each}" for each in ("changed", "deleted", "diff", "ends", "present", "replaced", "unchanged", "versions")))
]  # fmt: skip

# what a member of bds_owner mends
CASES = {
    "rights are given": {
        "grant update, truncate on bds.change_log to bds_writer": ["altered rights: bds.change_log"],
        "grant insert on bds.change_archive to public": ["altered rights: bds.change_archive"],
        "grant update (actor), select (old) on bds.change_log to bds_reader": [
            "altered rights: bds.change_log (actor)", "altered rights: bds.change_log (old)",
        ],
        "grant select (secret) on bds.hook_secrets to bds_worker": ["altered rights: bds.hook_secrets (secret)"],
        "grant update on bds.clocks to {eve}": ["altered rights: bds.clocks"],
        "grant select on bds.secrets to {eve} with grant option; grant usage on schema bds to {eve}; set role {eve};"
        " grant select on bds.secrets to {team}; reset role": ["altered rights: bds", "altered rights: bds.secrets"],
        "grant trigger, references, maintain on bds.hooks to bds_reader": ["altered rights: bds.hooks"],
        "grant select on {month} to bds_reader; grant update (actor) on {month} to {eve}": [
            "altered rights: {month}", "altered rights: {month} (actor)",
        ],
        "grant update on sequence bds.bell to bds_reader": ["altered rights: bds.bell"],
        "alter default privileges for role bds_owner in schema bds grant select on tables to bds_reader": [
            "altered rights: objects to come of bds_owner in schema bds",
        ],
        "alter default privileges for role bds_owner grant execute on functions to {eve}": [
            "altered rights: objects to come of bds_owner",
        ],
        "grant truncate, trigger on data.stores to bds_writer; grant select on data.stores to {eve}": ["altered rights: data.stores"],
        "grant update (city) on data.stores to bds_reader": ["altered rights: data.stores (city)"],
        "grant select on api.stores to bds_analyst; grant select (city) on my.stores to public": [
            "altered rights: api.stores", "altered rights: my.stores (city)",
        ],
        "grant update on sequence data.stores_id_seq to {eve}": ["altered rights: data.stores_id_seq"],
    },
    "rights are taken": {
        "revoke select on bds.clocks from bds_worker; revoke insert on bds.change_log from bds_owner": [
            "altered rights: bds.change_log", "altered rights: bds.clocks",
        ],
        "revoke select (email) on bds.users from bds_service": ["altered rights: bds.users (email)"],
        "revoke execute on function bds.set_context from bds_writer": ["altered rights: bds.set_context(text,text,anycompatible)"],
        "revoke insert on data.stores from bds_writer": ["altered rights: data.stores"],
    },
    "rights are given in another way": {
        "grant select on bds.clocks to bds_worker with grant option": ["altered rights: bds.clocks"],
        "grant create on schema bds to bds_writer; grant usage on schema bds_impl to {eve}": [
            "altered rights: bds", "altered rights: bds_impl",
        ],
        "grant execute on function bds.register to public": ["altered rights: bds.register(regclass,text,text,text,text)"],
    },
    "functions and views": {
        "create or replace function bds_change_log.old_at(old jsonb, names jsonb, texts jsonb) returns jsonb language sql immutable return old;"
        " create or replace function bds_change_log.refuse_altered(this bds.entities) returns void language plpgsql as 'begin end';"
        " alter function bds.first_change set search_path = public; alter function bds.require_company security definer;"
        " alter function bds_impl.is_reserved leakproof cost 7; drop function bds_service.next_due; alter view bds.residents set (security_barrier);"
        " drop view bds.turns; create view bds.backups as select 1 as one": [
            "altered function: bds.first_change(text)", "altered function: bds.require_company(text)",
            "altered function: bds_change_log.old_at(jsonb,jsonb,jsonb)", "altered function: bds_change_log.refuse_altered(bds.entities)",
            "altered function: bds_impl.is_reserved(text)", "altered view: bds.residents", "missing function: bds_service.next_due()",
            "missing view: bds.turns",
        ],
        "create function bds_impl.fill(text, text, text) returns text language sql return 'select 1'": [
            "unknown function: bds_impl.fill(text,text,text)",
        ],
        "create or replace function bds_log.stores_update() returns trigger language plpgsql as 'begin return null; end'": [
            "altered function: bds_log.stores_update()",
        ],
        "alter function bds_log.stores_stamp security invoker": ["altered function: bds_log.stores_stamp()"],
        "alter function bds_import.find_absent_units cost 3; drop function bds_import.keep_units": [
            "altered function: bds_import.find_absent_units(text)", "missing function: bds_import.keep_units(bds.imports)",
        ],
        "create function bds_import.mine() returns int language sql return 1": ["unknown function: bds_import.mine()"],
    },
    "rules and triggers": {
        "create rule nothing as on insert to data.stores do instead nothing": ["unknown rule: nothing on data.stores"],
        'create rule "No more" as on update to api.stores do instead nothing': ['unknown rule: "No more" on api.stores'],
        "create rule quiet as on insert to bds.change_log do instead nothing; create rule quiet as on delete to {month} do instead nothing": [
            "unknown rule: quiet on bds.change_log", "unknown rule: quiet on {month}",
        ],
        "create trigger mine before update on bds.clocks for each row execute function suppress_redundant_updates_trigger()": [
            "unknown trigger: mine on bds.clocks",
        ],
        "create trigger mine before update on bds.change_log for each row execute function suppress_redundant_updates_trigger()": [
            "unknown trigger: mine on bds.change_log",
        ],
        "create trigger bds_zz before update on data.stores for each row execute function suppress_redundant_updates_trigger()": [
            "unknown trigger: bds_zz on data.stores",
        ],
        "alter table data.shelves disable trigger all": [
            "disabled constraint: shelves_company_id_store_id_fkey on data.shelves",
            *(f"disabled trigger: bds_{name} on data.shelves" for name in (
                "1_lock", "1_lock_old_row", "2_stamp", "2_stamp_new", "log_delete", "log_insert", "log_update", "truncate")),
        ],
    },
    "policies and constraints of bds": {
        "drop policy own_company on bds.change_months; alter policy every_company on bds.erasures to public": [
            "altered policy: every_company on bds.erasures", "missing policy: own_company on bds.change_months",
        ],
        "create policy mine on bds.imports using (true)": ["unknown policy: mine on bds.imports"],
        "alter table bds.erasures disable row level security": ["missing row security: bds.erasures"],
        "alter table bds.change_log drop constraint id_is_positive": ["missing constraint: id_is_positive on bds.change_log"],
        "alter table bds.hook_secrets drop constraint hook_secrets_pkey": ["missing constraint: hook_secrets_pkey on bds.hook_secrets"],
        "alter table bds.clocks drop constraint departed_companies_take_no_writes,"
        " add constraint departed_companies_take_no_writes check (true)": [
            "altered constraint: departed_companies_take_no_writes on bds.clocks",
        ],
        "alter table bds.settings set unlogged": ["altered table: bds.settings"],
    },
    "policies and parts of entities": {
        "drop policy own_company on data.stores": ["missing policy: own_company on data.stores"],
        "alter policy every_company on data.stores to public": ["altered policy: every_company on data.stores"],
        'create policy "All: rows" on data.stores using (true)': ['unknown policy: "All: rows" on data.stores'],
        "alter table data.stores disable row level security": ["altered row security: data.stores"],
        "alter table data.shelves drop constraint shelves_pkey": ["missing primary key: data.shelves"],
        "drop trigger bds_log_update on data.stores;"
        " create trigger bds_log_update after update on data.stores for each statement execute function bds_log.refuse_truncate()": [
            "altered trigger: bds_log_update on data.stores",
        ],
        "drop view my.stores": ["missing view: my.stores"],
        'create or replace view api.stores as select company_id, id, code, city, size, updated_at as "updatedAt" from data.stores': [
            "altered view: api.stores",
        ],
        "alter table data.products drop constraint price_is_finite": ["missing constraint: price_is_finite on data.products"],
    },
    "policies and columns of entities": {
        "alter policy own_company on data.stores using (true)": ["altered policy: own_company on data.stores"],
        "alter table data.shelves drop constraint shelves_pkey, add note text": [
            "altered table: data.shelves", "missing primary key: data.shelves",
        ],
        "alter view my.stores reset (security_barrier)": ["altered view: my.stores"],
        "alter table data.units alter name drop not null, alter name set default 'x'": ["altered table: data.units"],
        "create unique index on data.stores (company_id, city)": ["altered table: data.stores"],
    },
    "tables of entities": {
        "create table data.annexes () inherits (data.stores); alter table data.annexes owner to bds_owner": ["unsuitable table: data.stores"],
        "alter table data.shelves set unlogged": ["unsuitable table: data.shelves"],
        "alter table data.units drop constraint units_company_id_code_key": ["altered table: data.units"],
    },
    "texts are rewritten": {
        f"{DROP_VIEWS}; alter table data.stores alter city type text using upper(city)": [*VIEWS, "uncompared rows: data.stores"],
    },
    "numbers are rewritten": {
        f"{DROP_VIEWS}; alter table data.stores alter size type bigint using size + 1": [
            "altered table: data.stores", *VIEWS, "uncompared rows: data.stores.size",
        ],
    },
    "a column is lost": {
        "alter table data.stores drop column city cascade": [
            "altered table: data.stores", "lost column: data.stores.city", *(v for v in VIEWS if not v.endswith(("_deleted", "_replaced"))),
        ],
    },
    "tables are lost": {
        "drop table data.shelves, data.stores cascade": ["missing table: {stores}", "missing table: {shelves}"],
        "drop table data.order_items, data.orders cascade": [
            "altered table: data.invoices", "missing table: {orders}", "missing table: {order_items}",
        ],
    },
}  # fmt: skip

# what needs the rights of an administrator of roles, or of the database's owner
ADMINISTRATION = {
    "rights, members and owners": {
        "grant create on database {database} to bds_writer": ["altered rights: database {database}"],
        "grant bds_dispatcher to {eve}": ["unknown member: {eve}"],
        "grant bds_importer to bds_reader; grant pg_read_all_data to bds_writer": [
            "unknown member: bds_reader", "unknown member: bds_writer",
        ],
        "revoke bds_writer from bds_importer": ["missing member: bds_importer"],
        "grant pg_write_all_data to {clara}": ["unknown member: {clara}"],
        "alter function bds.require_company owner to {eve}": ["altered owner: bds.require_company(text)"],
    },
    "members of members, and owners": {
        "grant bds_reader to {team}; grant {team} to {clara}": ["unknown member: {clara}"],
        "alter table bds.clocks owner to {eve}": ["altered owner: bds.clocks"],
        "alter table data.stores owner to postgres": ["altered owner: data.stores"],
    },
}  # fmt: skip

# what only a person can decide, and how a person undoes it
DECISIONS = {
    "a role and tables": {
        "grant bds_owner to {eve}": (["unknown member: {eve}"], "revoke bds_owner from {eve}"),
        "alter role bds_reader bypassrls login": (["altered role: bds_reader"], "alter role bds_reader nobypassrls nologin"),
        "grant set on parameter session_replication_role to {eve}": (
            ["altered rights: parameter session_replication_role"], "revoke set on parameter session_replication_role from {eve}",
        ),
        "alter table data.stores rename to stores_old; create table data.stores (like data.stores_old including all)": (
            ["replaced table: data.stores_old"], "drop table data.stores; alter table data.stores_old rename to stores",
        ),
        "alter table data.product_variants drop constraint product_variants_company_id_product_id_fkey": (
            ["altered table: data.product_variants"], "alter table data.product_variants add foreign key (company_id, product_id)"
            " references data.products on delete cascade; select bds.register('data.product_variants', parent => 'product_id', collection => 'variants')",
        ),
    },
    "members of members, and an identity": {
        "grant bds_operator to {team}; grant {team} to {eve}": (
            ["unknown member: {eve}", "unknown member: {team}"], "revoke bds_operator from {team}; revoke {team} from {eve}",
        ),
        "alter table data.stores alter id drop identity": (
            ["altered table: data.stores"], "alter table data.stores alter id add generated by default as identity (start 9); select bds.register('data.stores')",
        ),
    },
    "an id that nobody may give": {
        "alter table data.units alter id set generated always": (
            ["altered table: data.units"], "alter table data.units alter id set generated by default",
        ),
        "alter table data.orders add customer text": (["altered table: data.orders"], "alter table data.orders drop customer"),
    },
    "a sequence of another kind": {
        "alter table data.categories alter id drop identity; create sequence data.numbers; alter table data.categories alter id"
        " set default nextval('data.numbers')": (
            ["altered table: data.categories"], "alter table data.categories alter id drop default; drop sequence data.numbers;"
            " alter table data.categories alter id add generated by default as identity; select bds.register('data.categories')",
        ),
    },
    "roles of bds, and a column": {
        "grant bds_writer, bds_service to {eve}": (["unknown member: {eve}"], "revoke bds_writer, bds_service from {eve}"),
        "alter table data.stores alter updated_at drop not null": (
            ["altered table: data.stores"], "alter table data.stores alter updated_at set not null",
        ),
    },
    "roles of PostgreSQL, and a type": {
        "grant pg_read_all_data to {eve}; grant pg_write_all_data to {team}": (
            ["unknown member: {eve}", "unknown member: {team}"],
            "revoke pg_read_all_data from {eve}; revoke pg_write_all_data from {team}",
        ),
        "alter table data.stores add bits bit(3)": (["altered table: data.stores"], "alter table data.stores drop bits"),
    },
    "a name, keys, and a view of another": {
        "alter table data.categories add children_id bigint, add foreign key (company_id, children_id) references data.categories": (
            ["altered table: data.categories"], "alter table data.categories drop children_id",
        ),
        "alter table data.shelves drop constraint shelves_pkey; insert into data.shelves select (s).* from data.shelves s": (
            ["altered table: data.shelves", "missing primary key: data.shelves"],
            "delete from data.shelves s using data.shelves o where s.id = o.id and s.ctid > o.ctid;"
            " alter table data.shelves add primary key (company_id, id)",
        ),
        "create view public.mine as select code from api.units; alter table data.units rename name to title": (
            ["altered table: data.units"], "drop view public.mine; alter table data.units rename title to name;"
            " select bds.register('data.units')",
        ),
    },
    "columns without which there is no entity": {
        "alter table data.product_variants drop updated_at cascade": (
            ["altered table: data.product_variants", "lost column: data.product_variants.updated_at",
             "missing trigger: bds_2_stamp_new on data.product_variants",
             *(f'missing view: {schema}."productVariants{part}"' for schema, part in (
                 ("api", ""), ("my", ""), *(("past", part) for part in ("", "_diff", "_ends", "_present", "_unchanged", "_versions"))))],
            "alter table data.product_variants add updated_at timestamptz not null default now();"
            " select bds.register('data.product_variants', parent => 'product_id', collection => 'variants');"
            " update bds.column_history set is_lost = false",
        ),
    },
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A database without problems, and the names that statements use."""

    url: str
    operator: Operator
    names: dict[str, str]

    def run(self, statement: str) -> None:
        self.operator.connection.execute(statement.format(**self.names).encode())

    def problems(self) -> list[tuple[str, str | None]]:
        """Each problem and its mend."""
        return [
            (f"{kind}: {thing}", mend) for kind, thing, mend in self.operator.rows("select kind, object, mend from bds.problems")
        ]

    def named(self, problems: Iterable[list[str]]) -> list[str]:
        return sorted(each.format(**self.names) for each in chain(*problems))

    def mend(self, listed: list[tuple[str, str | None]], role: str | None) -> None:
        """Run what is printed, in the order of the list; a statement that is printed several times in a row runs once."""
        for mend, _ in groupby(mend for _, mend in listed):
            if mend == "bds migrate":
                migrate.migrate(self.url)
            elif mend:
                with psycopg.connect(self.url, autocommit=True) as connection:
                    if role:
                        connection.execute(f"set session authorization {role}".encode())
                    connection.execute(mend.encode())


@pytest.fixture(scope="module")
def place(module_database_url: str) -> Iterator[Place]:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        operator = Operator(connection)
        operator.company("acme")
        connection.execute(f"{TABLE}; select bds.register('data.stores'); {SHELVES}".encode())
        for store in ("a", "b"):
            operator.write("acme", "insert into data.stores (code, city, size) values (%s, %s, 1)", (store, store))
        operator.write("acme", "insert into data.shelves (store_id) select id from data.stores")
        operator.rows("select * from bds.compare_log()")
        [(month,)] = operator.rows(
            "select max(inhrelid::regclass::text) from pg_inherits where inhparent = 'bds.change_log'::regclass"
        )
        tables = ("stores", "shelves", "orders", "order_items")
        [(numbers,)] = operator.rows(
            "select array(select to_regclass('data.' || t)::oid::text from unnest(%s::text[]) t)", (list(tables),)
        )
        names = {
            **NAMES, **dict(zip(tables, numbers, strict=True)), "month": str(month), "database": connection.info.dbname
        }  # fmt: skip
        for role in NAMES.values():
            connection.execute(f"create role {role} login; grant connect on database {names['database']} to {role}".encode())
        connection.execute("grant bds_owner, bds_operator to {dba}".format(**names).encode())
        connection.execute("insert into bds_operation.made values ('member', %s, '', '', false)", (f"bds_owner to {names['dba']}",))
        connection.execute("select bds.grant_company(%s, 'acme')", (names["clara"],))
        place = Place(module_database_url, operator, names)
        assert place.problems() == []
        yield place
        for role in NAMES.values():
            connection.execute(f"drop owned by {role}; drop role {role}".encode())


@pytest.mark.parametrize("case", DECISIONS)
def test_what_a_person_decides_has_no_mend(place: Place, case: str) -> None:
    for statement in DECISIONS[case]:
        place.run(statement)
    listed = place.named(problems for problems, _ in DECISIONS[case].values())
    assert sorted(place.problems()) == [(each, None) for each in listed]
    with suppress(migrate.BrokenEntities):
        migrate.migrate(place.url)
    assert sorted(place.problems()) == [(each, None) for each in listed], "bds migrate decides nothing"
    for _, undo in reversed(DECISIONS[case].values()):
        place.run(undo)
    assert place.problems() == []


@pytest.mark.parametrize("case", [*ADMINISTRATION, *CASES])
def test_the_printed_mends_heal_everything_in_one_pass(place: Place, case: str) -> None:
    statements = {**ADMINISTRATION, **CASES}[case]
    for statement in statements:
        place.run(statement)
    found = place.problems()
    assert sorted(each for each, _ in found) == place.named(statements.values())
    assert [each for each, mend in found if not mend] == []
    place.mend(found, place.names["dba"] if case in CASES else None)
    assert place.problems() == []
