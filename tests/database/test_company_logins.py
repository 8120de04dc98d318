"""A login that is bound to a company reads that company in schema my, and nothing else, whatever it sets or defines."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.conftest import Operator, prepared

pytestmark = pytest.mark.slow

Connect = Callable[..., psycopg.Connection[Any]]
LOGINS = ("analyst", "other", "stranger")
ENTITIES = (
    "categories", "customers", "invoiceItems", "invoices", "orderItems", "orders", "products", "productVariants", "units",
)  # fmt: skip


def fill(operator: Operator) -> None:
    """Make companies acme and beta, each with a row of every entity whose text is the company's name; what is beta's is secret."""
    for company in ("acme", "beta"):
        operator.company(company)
        operator.write(
            company,
            f"""
            insert into data.units (code, name) values ('{company}', '{company}');
            insert into data.categories (code, name) values ('{company}', '{company}');
            insert into data.products (code, name, price) values ('{company}', '{company}', 1);
            insert into data.product_variants (code, product_id) select '{company}', id from data.products where company_id = '{company}';
            insert into data.customers (code, name) values ('{company}', '{company}');
            insert into data.orders (code, order_date) values ('{company}', '2026-11-20');
            insert into data.order_items (order_id, description) select id, '{company}' from data.orders where company_id = '{company}';
            insert into data.invoices (code, invoice_date) values ('{company}', '2026-11-20');
            insert into data.invoice_items (invoice_id, description) select id, '{company}' from data.invoices where company_id = '{company}';
            update data.products set name = name || '!' where company_id = '{company}';
            """,
            actor=company,
        )


@pytest.fixture(scope="module")
def template(server: str) -> Iterator[str]:
    yield from prepared(server, fill)


@pytest.fixture
def two(operator: Operator) -> Operator:
    return operator


@pytest.fixture
def login(two: Operator, database_url: str) -> Iterator[Connect]:
    """New connections of logins that are roles of their own; analyst is bound to acme, other to beta, stranger to none."""
    opened: list[psycopg.Connection[Any]] = []

    def connect(name: str = "analyst") -> psycopg.Connection[Any]:
        opened.append(psycopg.connect(make_conninfo(database_url, user=name), autocommit=True))
        return opened[-1]

    for name in LOGINS:
        two.connection.execute(f"create role {name} login".encode())
    two.connection.execute("select bds.grant_company('analyst', 'acme'), bds.grant_company('other', 'beta')")
    yield connect
    for each in opened:
        each.close()
    for name in LOGINS:
        two.connection.execute(f"drop owned by {name}; drop role {name}".encode())


def refused(connection: psycopg.Connection[Any], statement: str) -> str:
    """The SQLSTATE with which a statement is refused."""
    with pytest.raises(psycopg.Error) as caught:
        connection.execute(statement.encode())
        pytest.fail(f"{statement} was not refused")
    return str(caught.value.sqlstate)


def test_a_login_reads_its_company_under_the_names_of_the_api(login: Connect) -> None:
    analyst = login()
    assert analyst.execute('select code, name, price, "categoryId", active from my.products').fetchall() == [
        ("acme", "acme!", 1, None, True)
    ]
    assert login("other").execute("select code, name from my.products").fetchall() == [("beta", "beta!")]
    assert login("stranger").execute("select current_user").fetchall() == [("stranger",)]
    changes = analyst.execute(
        "select id, entity, operation, actor, columns, old from my.changes where entity = 'products' order by id"
    )
    assert [row[:4] for row in changes][-1] == (10, "products", "update", "acme")


def test_what_a_login_reaches_is_schema_my_and_no_more(two: Operator, login: Connect) -> None:
    """Everything in the database is asked for, from the catalog."""
    analyst = login()
    ours = "n.nspname not in ('pg_catalog', 'information_schema') and n.nspname !~ '^pg_(toast|temp)'"
    relations = analyst.execute(
        f"""
        select c.oid::regclass::text, has_table_privilege(c.oid, 'select') or has_any_column_privilege(c.oid, 'select'),
            has_table_privilege(c.oid, 'insert, update, delete, truncate, references, trigger, maintain')
                or has_any_column_privilege(c.oid, 'insert, update, references')
        from pg_class c join pg_namespace n on n.oid = c.relnamespace where {ours} and c.relkind in ('r', 'p', 'v', 'm', 'f')
        """.encode()
    ).fetchall()
    assert len(relations) > 60
    assert {name for name, reads, _ in relations if reads} == {
        f'my."{name}"' if name != name.lower() else f"my.{name}" for name in (*ENTITIES, "changes")
    }
    assert [name for name, _, writes in relations if writes] == []
    functions = f"select p.oid::regprocedure from pg_proc p join pg_namespace n on n.oid = p.pronamespace where {ours}"
    # what a view calls, it calls with the rights of its reader
    assert analyst.execute(f"{functions} and has_function_privilege(p.oid, 'execute')".encode()).fetchall() == [
        ("past.double_of(real)",)
    ]
    sequences = f"select from pg_class c join pg_namespace n on n.oid = c.relnamespace where {ours}"
    assert (
        analyst.execute(
            f"{sequences} and case c.relkind when 'S' then has_sequence_privilege(c.oid, 'usage, select, update') end".encode()
        ).fetchall()
        == []
    )
    schemas = f"select nspname from pg_namespace n where {ours} and has_schema_privilege(oid, 'usage') order by 1"
    assert analyst.execute(schemas.encode()).fetchall() == [("my",), ("public",)]
    builds = f"select nspname from pg_namespace n where {ours} and has_schema_privilege(oid, 'create')"
    assert analyst.execute(builds.encode()).fetchall() == []
    # what the catalog says is tried, too
    for name, reads, _ in relations:
        states = {refused(analyst, f"delete from {name}"), refused(analyst, f"lock table {name} in row exclusive mode")}
        if not reads:
            states |= {refused(analyst, f"select * from {name}"), refused(analyst, f"copy {name} to stdout")}
        assert states <= {"42501", "42809", "25P01"}, (name, states)  # a view is not a table; LOCK outside a transaction


SETTINGS = [
    "set bds.company = 'beta'",
    "set bds.company = 'beta'; set bds.actor = 'beta'",
    "set search_path = data, api, bds, my",
    "set role bds_analyst",
    "set row_security = off",
    "create temp table company_logins as select 'analyst'::name as role_name, 'beta'::text as company_id; set search_path = pg_temp, my",
    "create function pg_temp.current_setting(text, boolean) returns text language sql return 'beta'; set search_path = pg_temp, pg_catalog",
    "set plan_cache_mode = force_generic_plan; set enable_indexscan = off",
]


def test_no_setting_shows_another_company(login: Connect) -> None:
    for settings in SETTINGS:
        analyst = login()
        for statement in settings.split("; "):
            analyst.execute(statement.encode())
        for name in (*ENTITIES, "changes"):
            [(rows, others)] = analyst.execute(
                f"""select count(*), count(*) filter (where m::text ~ 'beta') from my."{name}" m""".encode()
            ).fetchall()
            assert rows > 0 and others == 0, (settings, name)


ROLES = [
    "set role other",
    "set role bds_reader",
    "set role bds_owner",
    "set session authorization other",
    "reset session authorization; set role postgres",
]


def test_a_login_becomes_no_other_role(login: Connect) -> None:
    for statement in ROLES:
        analyst = login()
        *before, last = statement.split("; ")
        for each in before:
            analyst.execute(each.encode())
        assert refused(analyst, last) == "42501", statement
        assert analyst.execute("select code from my.units").fetchall() == [("acme",)], statement


LEAKS = {
    "a cheap function": "pg_temp.leak({column}::text)",
    "a cheap function under or": "pg_temp.leak({column}::text) or {column} is null",
    "an operator": "{column}::text operator(pg_temp.<->) ''",
    "an error": "1 / (case when {column}::text ~ 'beta' then 0 else 1 end) = 1",
    "a cast": "case when {column}::text ~ 'beta' then {column}::text::int end is null",
}


def test_a_function_of_the_reader_sees_no_row_of_another_company(login: Connect) -> None:
    for name, leak in product(["products", "units", "orderItems", "changes"], LEAKS):
        assert_nothing_leaks(login(), name, leak)


def assert_nothing_leaks(analyst: psycopg.Connection[Any], name: str, leak: str) -> None:
    seen: list[str] = []
    analyst.add_notice_handler(lambda notice: seen.append(str(notice.message_primary)))
    analyst.execute("""
        set enable_indexscan = off; set enable_indexonlyscan = off; set enable_bitmapscan = off;  -- else the index filters first
        create function pg_temp.leak(value text) returns boolean language plpgsql cost 0.0001 as
            $$ begin raise notice 'saw %', value; return true; end $$;
        create function pg_temp.leak(value text, other text) returns boolean language sql cost 0.0001 return pg_temp.leak(value);
        create operator pg_temp.<-> (leftarg = text, rightarg = text, function = pg_temp.leak)
    """)
    column = {"orderItems": "description", "changes": "actor"}.get(name, "code")
    condition = LEAKS[leak].format(column=column)
    for query in (
        f'select count(*) from my."{name}" m where {condition}',
        f'select count(*) from my."{name}" m join my.units u on {condition.replace(column, "m." + column)} and u.id is not null',
        f'select count(*) from (select * from my."{name}" m where {condition} offset 0) s',
    ):
        [(rows,)] = analyst.execute(query.encode()).fetchall()
        assert rows >= 1, (name, leak)
    assert not [each for each in seen if "beta" in each], (name, leak)
    if "function" in leak or "operator" in leak:
        assert any("acme" in each for each in seen), (name, leak, "the function was called")


def test_statistics_and_plans_have_no_values_of_another_company(two: Operator, login: Connect) -> None:
    two.connection.execute("analyze")
    analyst = login()
    assert analyst.execute("select count(*) from pg_stats where schemaname in ('api', 'bds', 'data', 'my')").fetchall() == [(0,)]
    assert refused(analyst, "select * from pg_statistic") == "42501"
    plan = "\n".join(line for (line,) in analyst.execute("explain (analyze, verbose) select * from my.products where code > 'a'"))
    assert "beta" not in plan


WRITES = [
    "insert into my.products (code, name) values ('x', 'x')",
    "update my.products set name = 'x'",
    "delete from my.products",
    "merge into my.products p using (values (1)) v (id) on p.id = v.id when matched then delete",
    "truncate my.products",
    "copy my.products from stdin",
    "create view my.mine as select 1",
    "create table my.mine (a int)",
    "alter view my.products reset (security_barrier)",
    "alter view my.products owner to current_user",
    "create or replace view my.products as select * from data.products",
    "drop view my.products",
    "create trigger mine instead of insert on my.products for each row execute function suppress_redundant_updates_trigger()",
    "create rule mine as on insert to my.products do instead nothing",
    "insert into bds.company_logins values ('analyst', 'beta')",
    "update bds.company_logins set company_id = 'beta'",
    "select bds.grant_company('analyst', 'beta')",
    "select bds.set_context('beta')",
    "grant bds_analyst to stranger",
    "alter role stranger rename to other2",
    "select nextval('data.products_id_seq')",
    "select * from my.products for update",
]


def test_a_login_changes_nothing(two: Operator, login: Connect) -> None:
    before = two.rows("select count(*), max(id) from bds.changes")
    analyst = login()
    for statement in WRITES:
        assert refused(analyst, statement) in ("42501", "42809", "2BP01", "55000"), statement
        assert two.rows("select count(*), max(id) from bds.changes") == before, statement


def test_a_new_entity_and_a_new_column_are_there_at_once(two: Operator, login: Connect) -> None:
    analyst = login()
    two.connection.execute(
        'create table data.places (company_id text collate "C" not null, id bigint not null generated by default as identity,'
        " city text, updated_at timestamptz not null, primary key (company_id, id));"
        "comment on table data.places is 'Where'; comment on column data.places.city is 'The town'; select bds.register('data.places')"
    )
    for company in ("acme", "beta"):
        two.write(company, "insert into data.places (city) values (%s)", (company,))
    assert analyst.execute("select city from my.places").fetchall() == [("acme",)]
    assert two.rows("select obj_description('my.places'::regclass), col_description('my.places'::regclass, 2)") == [
        ("Where", "The town")
    ]
    two.connection.execute("alter table data.places add column zip text; select bds.register('data.places')")
    assert analyst.execute("select city, zip from my.places").fetchall() == [("acme", None)]
    two.connection.execute("alter table data.places drop column city cascade; select bds.register('data.places')")
    assert analyst.execute("select * from my.places").fetchall()[0][-1] is None
    two.connection.execute("select bds.unregister('places')")
    assert refused(analyst, "select * from my.places") == "42P01"


@pytest.mark.slow
def test_registering_does_not_deadlock_with_readers(two: Operator, login: Connect, connect: Connect) -> None:
    """The views are locked before the table, as readers lock them."""
    stop = threading.Event()

    def read(connection: psycopg.Connection[Any], view: str) -> int:
        count = 0
        while not stop.is_set():
            with connection.transaction():
                connection.execute(f"select count(*) from {view}".encode())
                connection.execute(f"select * from {view}".encode())
            count += 1
        return count

    readers = [(login(), "my.units"), (login("other"), "my.units"), (connect("bds_reader", "acme"), "api.units")]
    with ThreadPoolExecutor() as threads:
        reading = [threads.submit(read, *reader) for reader in readers]
        try:
            for number in range(30):
                two.connection.execute(
                    f"comment on column data.units.code is '{number}'; select bds.register('data.units')".encode()
                )
        finally:
            stop.set()
        assert all(each.result() > 0 for each in reading)


def test_a_revoked_login_reads_nothing(two: Operator, login: Connect) -> None:
    analyst = login()
    assert analyst.execute("select count(*) from my.units").fetchall() == [(1,)]
    two.connection.execute("select bds.revoke_company('analyst')")
    assert refused(analyst, "select * from my.units") == "42501"
    two.connection.execute("select bds.grant_company('analyst', 'beta')")
    assert analyst.execute("select code from my.units").fetchall() == [("beta",)]
    two.connection.execute("select bds.revoke_company('analyst')")


def test_a_role_that_is_made_again_is_not_bound(two: Operator, login: Connect, database_url: str) -> None:
    two.connection.execute("drop role other; create role other login")
    again = psycopg.connect(make_conninfo(database_url, user="other"), autocommit=True)
    assert refused(again, "select * from my.units") == "42501"
    again.close()
    two.connection.execute("select bds.revoke_company('other')")
    assert two.rows("select role_name::text, company_id from bds.company_logins") == [("analyst", "acme")]


@pytest.mark.parametrize(
    ("before", "call", "state", "says", "hint"),
    [
        ("", "grant_company('stranger', 'nowhere')", "BD002", "no such company: 'nowhere'", None),
        ("", "grant_company(null, 'acme')", "BD002", "no such role: null", "create role ... login"),
        ("", "grant_company('nobody', 'acme')", "BD002", "no such role: 'nobody'", "create role nobody login"),
        ("alter role stranger nologin", "grant_company('stranger', 'acme')", "BD005", "expected a login", "alter role stranger login"),
        ("", "grant_company('analyst', 'beta')", "BD004", "already bound to another", "select bds.revoke_company('analyst')"),
        ("grant bds_reader to stranger", "grant_company('stranger', 'acme')", "BD004", "rows of every", "revoke bds_reader from stranger"),
        (
            "grant pg_read_all_data to stranger with inherit false", "grant_company('stranger', 'acme')", "BD004", "rows of every",
            "revoke pg_read_all_data from stranger",
        ),
        ("grant select on data.units to stranger", "grant_company('stranger', 'acme')", "BD004", "data.units", "revoke all on data.units"),
        ("alter role stranger superuser", "grant_company('stranger', 'acme')", "BD004", "stranger may use", "superuser"),
        ("", "revoke_company('stranger')", "BD002", "stranger is not bound", None),
        ("", "revoke_company(null)", "BD002", "null is not bound", None),
    ],
)  # fmt: skip
def test_a_binding_that_would_not_hold_is_refused(
    two: Operator, login: Connect, before: str, call: str, state: str, says: str, hint: str | None
) -> None:
    two.connection.execute(before.encode())
    with pytest.raises(psycopg.Error) as caught:
        two.connection.execute(f"select bds.{call}".encode())
    assert (caught.value.sqlstate, says in str(caught.value.diag.message_primary)) == (state, True), str(caught.value)
    assert (hint or "") in (caught.value.diag.message_hint or "")


def test_the_same_binding_twice_is_one(two: Operator, login: Connect) -> None:
    two.connection.execute("select bds.grant_company('analyst', 'acme')")
    assert two.rows("select role_name::text, company_id from bds.company_logins order by 1") == [
        ("analyst", "acme"),
        ("other", "beta"),
    ]


def test_only_the_operator_binds(two: Operator, login: Connect, connect: Connect) -> None:
    for role in ("bds_reader", "bds_writer", "bds_service", "bds_worker"):
        for call in ("grant_company('stranger', 'acme')", "revoke_company('analyst')"):
            assert refused(connect(role, "acme"), f"select bds.{call}") == "42501"
    connect("bds_operator").execute("select bds.grant_company('stranger', 'beta')")
    assert login("stranger").execute("select code from my.units").fetchall() == [("beta",)]
