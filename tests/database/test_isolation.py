"""Two companies never see each other, whatever the HTTP layer does: tried as the service's own roles, in SQL."""

from __future__ import annotations

import psycopg
import pytest

from tests.conftest import Operator

pytestmark = pytest.mark.slow

ENTITIES = ("units", "categories", "products", "productVariants", "customers", "orders", "orderItems", "invoices", "invoiceItems")


@pytest.fixture
def two(operator: Operator) -> Operator:
    for company in ("acme", "beta"):
        operator.company(company)
        operator.write(company, "insert into data.products (code, name) values (%s, 'secret')", (company.upper(),))
    return operator


def test_the_reader_sees_the_company_that_it_has_named_and_no_other(two: Operator, connect) -> None:
    for company in ("acme", "beta"):
        reader = connect("bds_reader", company)
        assert reader.execute("select company_id, code from api.products").fetchall() == [(company, company.upper())]
        assert reader.execute("select distinct company_id from bds.changes").fetchall() == [(company,)]
        assert reader.execute("select distinct company_id from bds.positions").fetchall() == [(company,)]


def test_a_reader_that_has_named_no_company_sees_nothing(two: Operator, connect) -> None:
    reader = connect("bds_reader")
    for view in (*(f'api."{entity}"' for entity in ENTITIES), "bds.changes", "bds.positions", "bds.company_positions"):
        assert reader.execute(f"select count(*) from {view}".encode()).fetchone() == (0,)


def test_the_reader_may_read_nothing_but_the_views(two: Operator, connect) -> None:
    reader = connect("bds_reader", "acme")
    for relation in ("data.products", "bds.change_log", "bds.companies", "bds.api_keys", "bds.clocks", "bds.tenants"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute(f"select * from {relation}".encode())
    for statement in (
        "delete from api.products",
        "update api.products set name = ''",
        "insert into api.products (code) values ('x')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute(statement.encode())


def test_the_writer_neither_reads_nor_changes_another_companys_rows(two: Operator, connect) -> None:
    writer = connect("bds_writer", "acme")
    assert writer.execute("select company_id from data.products").fetchall() == [("acme",)]
    assert writer.execute("update data.products set name = 'mine' where company_id = 'beta'").rowcount == 0
    assert writer.execute("delete from data.products where company_id = 'beta'").rowcount == 0
    for company in ("beta", "nowhere"):
        with pytest.raises(psycopg.Error) as caught:
            writer.execute("insert into data.products (company_id, code, name) values (%s, 'x', 'x')", (company,))
        assert caught.value.sqlstate in ("BD001", "42501")


def test_a_reference_into_another_company_is_refused(two: Operator) -> None:
    [(category,)] = two.write("beta", "insert into data.categories (code, name) values ('c', 'C') returning id")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        two.write("acme", "update data.products set category_id = %s where company_id = 'acme'", (category,))


@pytest.mark.parametrize(
    "call",
    [
        "bds.require_company('beta')",
        "bds.lock_company('beta')",
        "bds.import_begin('beta')",
        "bds.import_report('beta', gen_random_uuid())",
        "bds.import_stage('beta', gen_random_uuid(), 'products')",
        "bds.import_run('beta', gen_random_uuid())",
        "bds.import_fail('beta', gen_random_uuid())",
    ],
)
def test_functions_that_take_a_company_raise_unless_it_is_the_named_one(two: Operator, connect, call: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        connect("bds_writer", "acme").execute(f"select {call}".encode())
    assert caught.value.sqlstate == "BD001"


def test_rows_are_staged_by_the_imports_own_company_alone(two: Operator, connect) -> None:
    acme, beta = connect("bds_writer", "acme"), connect("bds_writer", "beta")
    [(import_id,)] = acme.execute("select bds.import_begin('acme')").fetchall()
    [(table,)] = acme.execute("select bds.import_stage('acme', %s, 'products')", (import_id,)).fetchall()
    with pytest.raises(psycopg.Error) as caught, beta.cursor().copy(f"copy {table} (code, name) from stdin".encode()) as copy:
        copy.write_row(("X", "from beta"))
    assert caught.value.sqlstate == "BD001"


def test_only_the_operator_makes_companies_and_entities(two: Operator, connect) -> None:
    for role in ("bds_reader", "bds_writer", "bds_service"):
        connection = connect(role, "acme")
        for call in ("bds.create_company('gamma')", "bds.register('data.products')", "bds.unregister('products')"):
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(f"select {call}".encode())
            # the service may for an administrator
            assert caught.value.sqlstate == ("BD001" if (role, call[:10]) == ("bds_service", "bds.create") else "42501")


def test_no_function_is_open_to_everybody(operator: Operator) -> None:
    assert (
        operator.rows("""
        select n.nspname || '.' || p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname ~ '^bds' and has_function_privilege('public', p.oid, 'execute')
    """)
        == []
    )


def test_every_security_definer_function_has_a_fixed_search_path(operator: Operator) -> None:
    assert (
        operator.rows("""
        select p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname ~ '^bds' and p.prosecdef
            and not exists (select from unnest(p.proconfig) c where c = 'search_path=pg_catalog, pg_temp')
    """)
        == []
    )
