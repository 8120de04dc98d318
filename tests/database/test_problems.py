"""bds.problems lists what is wrong, each with the statement that mends it; on a sound database it is empty."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.conftest import Operator, fresh_database, prepared
from tests.database.test_altered_tables import ALTERATIONS, DROP_VIEWS, TABLE
from tests.database.test_compare_log import unlogged

pytestmark = pytest.mark.slow


def fill(operator: Operator) -> None:
    operator.company("acme")
    operator.connection.execute(f"{TABLE}; select bds.register('data.stores')".encode())
    operator.write("acme", "insert into data.stores (code, city, size) values ('a', 'Ulm', 1)")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A'), ('b', 'B')")
    operator.rows("select * from bds.compare_log()")
    assert problems(operator) == []


@pytest.fixture(scope="module")
def template(server: str, of_units: str) -> Iterator[str]:
    yield from prepared(server, fill, of_units)


@pytest.fixture
def acme(operator: Operator) -> Operator:
    return operator


@pytest.fixture
def products(server: str, of_products: str) -> Iterator[Operator]:
    for url in fresh_database(server, of_products):
        with psycopg.connect(url, autocommit=True) as connection:
            fill(Operator(connection))
            yield Operator(connection)


def problems(operator: Operator) -> list[Any]:
    return operator.rows("select kind, company_id, entity, object, detail, mend from bds.problems")


def mend(operator: Operator, listed: list[Any] | None = None) -> None:
    for *_, statement in problems(operator) if listed is None else listed:
        if statement:
            operator.connection.execute(statement.encode())


DETAILS = {
    "add": "column manager is not registered",
    "add with default": "column manager is not registered",
    "rename": "column city was renamed to town",
    "swap": "column code was renamed to city; column city was renamed to code",
    "rename and fill": "column city was renamed to town; column city is not registered",
    "type": "column size was integer, and is bigint",
}


@pytest.mark.parametrize("kind", DETAILS)
def test_an_altered_table_is_listed_and_registered_again(acme: Operator, kind: str) -> None:
    acme.connection.execute(ALTERATIONS[kind].encode())
    [(found, company, entity, table, detail, statement)] = [
        p for p in problems(acme) if p[0] not in ("missing view", "uncompared rows")
    ]
    assert (found, company, entity, table, detail) == ("altered table", None, "stores", "data.stores", DETAILS[kind])
    assert statement == "select bds.register('data.stores', entity => 'stores', singular => 'store')"
    mend(acme)
    assert problems(acme) == []


REWRITES = {
    "alter share type numeric(19, 2)": "column share was numeric(19,4), and is numeric(19,2)",
    "alter code type varchar(1) using 'x'": "column code was text, and is character varying(1)",
    "alter twice set expression as (size * 3)": "column twice was generated as (size * 2), and is as (size * 3)",
}


@pytest.mark.parametrize("alteration", REWRITES)
def test_values_that_an_alteration_rewrites_are_unlogged_until_they_are_recorded(acme: Operator, alteration: str) -> None:
    acme.connection.execute("alter table data.stores add share numeric(19, 4), add twice int generated always as (size * 2) stored")
    acme.connection.execute("select bds.register('data.stores')")
    acme.write("acme", "update data.stores set share = 1.2345")
    assert problems(acme) == []
    acme.connection.execute(f"{DROP_VIEWS}; alter table data.stores {alteration}".encode())
    assert [p[4] for p in problems(acme) if p[0] == "altered table"] == [REWRITES[alteration]]
    acme.connection.execute("select bds.register('data.stores')")
    assert [p[:3] for p in problems(acme)] == [("uncompared rows", None, "stores")]
    assert acme.rows("select kind, company_id, entity, number from bds.compare_log(entity => 'stores')") == [
        ("unlogged update", "acme", "stores", 1)
    ]
    mend(acme)
    assert problems(acme) == []
    assert acme.rows("select l.operation::text, l.old from bds.change_log l order by id desc limit 1") == [("update", {})]


def test_what_protects_a_table_may_be_added_to(acme: Operator) -> None:
    acme.connection.execute(
        "create policy small on data.stores as restrictive for insert with check (size < 10); create role auditor;"
        " create policy few on data.stores as restrictive to auditor using (size < 10); create index on data.stores (city)"
    )
    try:
        acme.connection.execute(
            "create trigger a_own before update on data.stores for each row execute function suppress_redundant_updates_trigger()"
        )
        assert problems(acme) == []
    finally:
        acme.connection.execute("drop policy few on data.stores; drop role auditor")


@pytest.mark.parametrize("role", ["public", "bds_writer", "bds_importer", "bds_operator"])
def test_a_policy_that_hides_rows_from_imports_is_listed(acme: Operator, role: str) -> None:
    acme.connection.execute(f"create policy hide on data.stores as restrictive for all to {role} using (size < 1)".encode())
    assert problems(acme) == [
        (
            "unknown policy", None, "stores", "hide on data.stores", "imports and reverts pass over the rows that it hides",
            "drop policy hide on data.stores",
        )
    ]  # fmt: skip
    mend(acme)
    assert problems(acme) == []


def test_a_trigger_that_can_take_back_a_compared_change_is_listed_until_the_table_is_registered(acme: Operator) -> None:
    acme.connection.execute(
        "create function data.back() returns trigger language plpgsql as 'begin new.city := old.city; return new; end'"
    )
    for name, shown, again in (
        ("zz", "zz", "select bds.register('data.stores', entity => 'stores', singular => 'store')"),
        ("änderung", '"änderung"', None),
    ):
        acme.connection.execute(
            f"create trigger {name} before update on data.stores for each row execute function data.back()".encode()
        )
        [(kind, _, entity, object, detail, statement)] = problems(acme)
        assert (kind, entity, object, statement) == ("late trigger", "stores", f"{shown} on data.stores", again)
        assert detail.endswith(": give it a name that begins with a letter of ASCII") == (again is None)
        mend(acme)
    acme.connection.execute("alter trigger änderung on data.stores rename to aenderung")
    assert problems(acme) == []
    before = acme.rows("select id, updated_at from data.stores")
    acme.write("acme", "update data.stores set city = 'Bonn'")
    assert acme.rows("select id, updated_at from data.stores") == before
    assert acme.rows("select operation::text from bds.change_log where entity = 'stores'") == [("create",)]
    acme.connection.execute(
        "drop trigger zz on data.stores; drop trigger aenderung on data.stores; select bds.register('data.stores')"
    )
    assert acme.rows("select tgname::text from pg_trigger where tgrelid = 'data.stores'::regclass and tgname ~ '^~'") == []
    assert problems(acme) == []


PRINTED_OTHERWISE = """
    set datestyle = 'SQL, DMY'; set timezone = 'Asia/Tokyo'; set intervalstyle = 'iso_8601'; set bytea_output = 'escape';
    set extra_float_digits = -15; set quote_all_identifiers = on;
"""


def test_sessions_that_print_otherwise_find_nothing_and_leave_nothing(acme: Operator, connect) -> None:
    acme.connection.execute(
        "create type data.mood as enum ('a'); alter table data.stores add since timestamptz default '2026-01-02 03:04Z' check (since <> '2026-01-01Z'),"
        " add span interval default '1 day', add octets bytea default '\\x00', add share float8 default 0.1, add mood data.mood,"
        " add twice float8 generated always as (share * 0.3) stored; select bds.register('data.stores')"
    )
    other = connect()
    other.execute(PRINTED_OTHERWISE)
    for session in (other, acme.connection):
        assert session.execute("select kind, object, detail from bds.problems").fetchall() == []
        assert session.execute("select * from bds_registry.due_parts()").fetchall() == []
        assert session.execute("select bds.compare_log('acme', 'stores')").fetchall() == []
        session.execute("select bds.register('data.stores')")
    other.execute("select bds.register('data.stores')")
    assert acme.rows("select kind, object, detail from bds.problems") == []
    assert acme.rows("select * from bds_registry.due_parts()") == []
    assert acme.rows("select count(distinct version) from bds_feed.versions") == acme.rows("select count(*) from bds_feed.versions")


def test_a_column_dropped_by_cascade_is_lost(acme: Operator) -> None:
    acme.connection.execute("alter table data.stores drop column city cascade")
    lost = "it was dropped by other means than bds.drop_column: values that no record has are lost"
    assert [(kind, detail) for kind, _, _, _, detail, _ in problems(acme)] == [
        ("altered table", "column city was dropped"),
        *[("missing view", "the entity cannot be read through it as it should be")] * 9,
        ("lost column", lost),
    ]
    acme.connection.execute("select bds.register('data.stores')")
    [(kind, _, entity, column, detail, statement)] = problems(acme)
    assert (kind, entity, column, detail) == ("lost column", "stores", "data.stores.city", lost)
    acme.connection.execute(statement.encode())
    assert problems(acme) == []


def test_each_trigger_that_is_missing_or_disabled_is_listed(acme: Operator) -> None:
    triggers = [
        name for (name,) in acme.rows("select tgname from pg_trigger where tgrelid = 'data.stores'::regclass and not tgisinternal")
    ]
    acme.connection.execute("alter table data.stores disable trigger user")
    assert sorted(p[3] for p in problems(acme)) == sorted(f"{name} on data.stores" for name in triggers)
    assert {p[0] for p in problems(acme)} == {"disabled trigger"}
    acme.connection.execute("set role bds_operator")
    assert {p[0] for p in problems(acme)} == {"disabled trigger"}
    acme.connection.execute("reset role")
    mend(acme)
    assert problems(acme) == []
    for name in triggers:
        acme.connection.execute(f"drop trigger {name} on data.stores".encode())
    assert [p[0] for p in problems(acme)] == ["missing trigger"] * len(triggers)
    acme.connection.execute("alter table data.units enable replica trigger bds_log_insert")
    found = problems(acme)
    assert ("disabled trigger", None, "units", "bds_log_insert on data.units") in [p[:4] for p in found]
    mend(acme, found)
    assert problems(acme) == []


def test_unlogged_writes_are_listed_once_they_were_compared(acme: Operator) -> None:
    unlogged(
        acme.connection,
        "update data.units set name = 'X'; insert into data.units (company_id, code, name) values ('nobody', 'n', 'N')",
    )
    assert problems(acme) == []
    acme.rows("select * from bds.compare_log()")
    found = problems(acme)
    assert [p[:4] for p in found] == [
        ("unknown company", "nobody", "units", "data.units"),
        ("unlogged update", "acme", "units", "data.units"),
    ]
    assert found[1][4].startswith("2 found at 20")
    mend(acme, found)
    assert problems(acme) == []
    assert acme.rows("select count(*) from bds.changes where company_id = 'nobody'") == [(1,)]


def test_partitions_are_looked_after(acme: Operator) -> None:
    months = acme.rows(
        "select to_char(date_trunc('month', now() at time zone 'UTC') + make_interval(months => n), 'YYYY_MM') from generate_series(0, 1) n"
    )
    [this, following] = [f"bds.change_log_{month}" for (month,) in months]
    acme.connection.execute(f"drop table {following}".encode())
    found = problems(acme)
    assert [(p[0], p[3]) for p in found] == [("missing partition", following)]
    mend(acme, found)
    assert problems(acme) == []
    acme.connection.execute(f"alter table bds.change_log detach partition {this}".encode())
    found = problems(acme)
    assert [(p[0], p[3]) for p in found] == [("detached partition", this)]
    mend(acme, found)
    assert problems(acme) == []
    [(key,)] = acme.rows("select conname from pg_constraint where conrelid = %s::regclass and contype = 'p'", (this,))
    acme.connection.execute(f"alter table {this} drop constraint {key}".encode())
    found = problems(acme)
    assert [(p[0], p[3]) for p in found] == [("partition without key", this)]
    mend(acme, found)
    assert problems(acme) == []


def test_a_partition_whose_detachment_was_interrupted_is_listed(
    acme: Operator, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    reader = connect()
    reader.execute("begin isolation level repeatable read")
    reader.execute("select from bds.change_log")
    acme.connection.execute(
        "create table bds.change_log_2020_01 (like bds.change_log including constraints, primary key (company_id, id))"
    )
    acme.connection.execute("alter table bds.change_log_2020_01 owner to bds_owner")
    acme.connection.execute(
        "alter table bds.change_log attach partition bds.change_log_2020_01 for values from ('2020-01-01Z') to ('2020-02-01Z')"
    )
    detaching = connect()
    detaching.execute("set statement_timeout = '200ms'")
    while not problems(acme):  # a slow machine is interrupted before it has begun
        with contextlib.suppress(psycopg.errors.QueryCanceled):
            detaching.execute("alter table bds.change_log detach partition bds.change_log_2020_01 concurrently")
    assert [(p[0], p[3]) for p in problems(acme)] == [("half-detached partition", "bds.change_log_2020_01")]
    reader.execute("rollback")
    mend(acme)
    assert problems(acme) == []


def test_a_sequence_that_gives_ids_which_rows_have_is_listed(acme: Operator) -> None:
    acme.company("beta")
    acme.write("beta", "insert into data.stores (id, code) values (17, 'b')")  # as logical replication or a restore of rows does
    acme.write("acme", "insert into data.units (id, code, name) values (-1, 'c', 'C')")
    [problem] = problems(acme)
    assert problem == (
        "lagging sequence", None, "stores", "data.stores_id_seq",
        "its next value is 2, but data.stores has id up to 17: inserts can fail", "select setval('data.stores_id_seq', 17)",
    )  # fmt: skip
    mend(acme)
    assert problems(acme) == []
    assert acme.write("beta", "insert into data.stores (code) values ('c') returning id") == [(18,)]
    acme.write("acme", "delete from data.units")
    acme.connection.execute("alter sequence data.units_id_seq restart")
    assert problems(acme) == []
    acme.connection.execute(
        "insert into bds.erasures (company_id, number, entity, row_id, columns, records, actor, db_user)"
        " overriding system value values ('acme', 1, 'units', 1, '{code}', 0, 'me', 'me')"
    )
    assert [p[3] for p in problems(acme)] == ["bds.erasures_number_seq"]


def test_the_mend_of_a_sequence_leaves_it_values_to_give(acme: Operator) -> None:
    acme.write("acme", "insert into data.stores (id, code) values (17, 'a'), (9223372036854775807, 'z')")
    assert [(p[3], p[5]) for p in problems(acme)] == [("data.stores_id_seq", "select setval('data.stores_id_seq', 17)")]
    mend(acme)
    assert problems(acme) == []
    assert acme.write("acme", "insert into data.stores (code) values ('b') returning id") == [(18,)]
    acme.connection.execute("select setval('data.stores_id_seq', 9223372036854775807)")
    assert [(p[0], p[3], p[4], p[5]) for p in problems(acme)] == [
        ("lagging sequence", "data.stores_id_seq", "it has given its last value, 9223372036854775807: inserts fail", None)
    ]


def test_a_sequence_of_a_default_that_writers_may_not_use_is_listed(acme: Operator) -> None:
    acme.connection.execute(
        "create sequence data.numbers; alter sequence data.numbers owner to bds_owner;"
        " create table data.tickets (like data.stores, number bigint default nextval('data.numbers'),"
        " serial int generated by default as identity, primary key (company_id, id));"
        " alter table data.tickets alter id add generated by default as identity; select bds.register('data.tickets')"
    )
    assert problems(acme) == []
    acme.connection.execute(
        "grant select on sequence data.numbers to public;"  # its owner's affair
        " revoke usage on sequence data.numbers, data.tickets_serial_seq from bds_writer, bds_operator;"
        " grant usage on sequence data.tickets_serial_seq to bds_operator"
    )
    assert problems(acme) == [
        ("altered rights", None, "tickets", "data.numbers", "bds_operator may not usage; bds_writer may not usage",
         "grant usage on sequence data.numbers to bds_operator; grant usage on sequence data.numbers to bds_writer"),
        ("altered rights", None, "tickets", "data.tickets_serial_seq", "bds_writer may not usage",
         "grant usage on sequence data.tickets_serial_seq to bds_writer"),
    ]  # fmt: skip
    mend(acme)
    assert problems(acme) == []


def test_constraints_and_indexes_that_prove_nothing_are_listed(acme: Operator) -> None:
    acme.connection.execute("alter table data.stores add constraint is_some check (size > 0) not valid")
    acme.connection.execute("create index stores_city on data.stores (company_id, city)")
    acme.connection.execute("update pg_index set indisvalid = false where indexrelid = 'data.stores_city'::regclass")
    found = problems(acme)
    assert [p[:4] for p in found] == [
        ("invalid constraint", None, "stores", "is_some on data.stores"),
        ("invalid index", None, "stores", "data.stores_city"),
    ]
    mend(acme, found)
    assert problems(acme) == []


def test_a_rule_that_rows_break_has_a_mend_once_a_person_has_corrected_them(products: Operator) -> None:
    products.connection.execute("alter table data.stores add constraint is_big check (size > 5) not valid")
    products.connection.execute("create index stores_city on data.stores (company_id, city) where size > 0")
    products.connection.execute(
        "update pg_index set indisunique = true, indisvalid = false, indisready = false where indexrelid = 'data.stores_city'::regclass"
    )
    unlogged(products.connection, "insert into data.stores (company_id, code, city, size) values ('acme', 'b', 'Ulm', 9)")
    products.connection.execute("alter table data.products disable trigger all")
    unlogged(
        products.connection,
        "insert into data.products (company_id, code, name, category_id) values ('acme', 'p', 'P', 99)",
    )
    broken = [
        ("disabled constraint", "products_company_id_category_id_fkey on data.products"),
        ("invalid constraint", "is_big on data.stores"),
        ("invalid index", "data.stores_city"),
    ]
    undecided = [(p[0], p[3]) for p in problems(products) if p[5] is None]
    assert undecided == broken
    unlogged(products.connection, "delete from data.products; delete from data.stores where code = 'a'")
    mend(products)
    products.rows("select * from bds.compare_log(record => true)")
    assert problems(products) == []


def test_imports_without_a_sign_of_life_and_resting_hooks_are_listed(acme: Operator) -> None:
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_context('acme', 'me')")
        [(import_id,)] = acme.rows("select bds.import_begin('acme')")
        [(hook,)] = acme.rows("select bds.create_hook('acme', 'units', 'https://example.com/hook')")
    assert problems(acme) == []
    acme.connection.execute("update bds.imports set heartbeat_at = now() - interval '1 hour'")
    acme.connection.execute("update bds.hook_states set rests_until = now() + interval '1 hour'")
    assert [p[:4] for p in problems(acme)] == [
        ("resting hook", "acme", None, hook["id"]),
        ("stuck import", "acme", None, str(import_id)),
    ]
    assert problems(acme)[0][5] is None and "select bds.test_hook('acme'" in problems(acme)[0][4]
    mend(acme)
    assert [p[0] for p in problems(acme)] == ["resting hook"]


def test_problems_are_counted_for_monitoring(acme: Operator) -> None:
    counts = "select counts from bds.problem_counts"
    acme.connection.execute("alter table data.stores disable trigger bds_log_insert")
    acme.connection.execute("update bds.problem_counts set counted_at = default")  # as in a new database
    acme.connection.execute("set role bds_service; select bds.maintain()")
    assert acme.rows(counts) == [({"disabled trigger": 1},)]
    acme.connection.execute("reset role; alter table data.stores disable trigger bds_log_update; select bds.maintain()")
    assert acme.rows(counts) == [({"disabled trigger": 1},)], "counted a moment ago"
    acme.connection.execute("update bds.problem_counts set counted_at = now() - interval '1 hour'; select bds.maintain()")
    assert acme.rows(counts) == [({"disabled trigger": 2},)]


@pytest.mark.parametrize("statement", ["vacuum full data.stores", f"{DROP_VIEWS}; alter table data.stores rename size to area"])
def test_a_table_whose_values_cannot_have_changed_is_not_to_be_compared(acme: Operator, statement: str) -> None:
    acme.connection.execute(statement.encode())
    acme.connection.execute("select bds.register('data.stores')")
    assert problems(acme) == []


def test_a_reference_to_another_table_is_an_altered_table(products: Operator) -> None:
    products.connection.execute(
        "alter table data.products drop constraint products_company_id_unit_id_fkey,"
        " add foreign key (company_id, unit_id) references data.categories (company_id, id)"
    )
    [(kind, _, entity, _, detail, mend)] = problems(products)
    assert (kind, entity, detail) == ("altered table", "products", "column unit_id refers to categories now, not to units")
    products.connection.execute(mend.encode())
    assert problems(products) == []
    assert products.rows("select target from bds.navigations where entity = 'products' and name = 'unit'") == [("categories",)]


def test_a_table_in_a_closed_schema_or_without_companies_leaves_the_list_readable(products: Operator) -> None:
    products.connection.execute(
        "create schema other; alter table data.units set schema other; alter table other.units add note text"
    )
    products.connection.execute("alter table data.product_variants rename company_id to cid")
    assert {("altered table", "units"), ("altered table", "productVariants")} <= {
        (kind, entity) for kind, _, entity, *_ in problems(products)
    }


def test_a_parent_column_that_was_made_again_is_registered_by_its_name(products: Operator) -> None:
    products.connection.execute('drop view api."productVariants", my."productVariants", past."productVariants_changed" cascade')
    products.connection.execute("alter table data.product_variants drop product_id cascade")
    assert {
        mend for kind, _, entity, _, _, mend in problems(products) if entity == "productVariants" and kind != "lost column"
    } == {None}
    products.connection.execute(
        "alter table data.product_variants add product_id bigint not null,"
        " add foreign key (company_id, product_id) references data.products on delete cascade"
    )
    mends = [
        mend for _, _, entity, _, _, mend in problems(products) if entity == "productVariants" and mend and "bds.register" in mend
    ]
    assert mends and all("parent => 'product_id', collection => 'variants'" in mend for mend in mends)
    products.connection.execute(mends[0].encode())
    assert {kind for kind, *_ in problems(products)} == {"lost column"}
