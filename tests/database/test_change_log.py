"""The change log: one record for each real change by any writer, none for a write that changes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from tests.conftest import Operator, prepared

TUPLES_READ = "select sum(idx_tup_read)::int8 from pg_stat_user_indexes where relid = 'data.products'::regclass"  # of indexes


def fill(operator: Operator) -> None:
    operator.company("acme")
    operator.write(
        "acme", "insert into data.products (code, name, price) values ('A', 'Apple', 1), ('B', 'Beer', 2)", actor="setup"
    )


@pytest.fixture(scope="module")
def template(server: str, of_products: str) -> Iterator[str]:
    yield from prepared(server, fill, of_products)


@pytest.fixture
def acme(operator: Operator) -> Operator:
    return operator


def log(operator: Operator, after: int = 0) -> list[tuple[object, ...]]:
    return operator.rows(
        "select entity, operation, columns, old from bds.changes where company_id = 'acme' and id > %s order by id", (after,)
    )


def last_id(operator: Operator) -> int:
    return int(operator.rows("select last_id from bds.clocks where company_id = 'acme'")[0][0])


def test_a_create_stores_nothing_but_the_record(acme: Operator) -> None:
    changes = log(acme)
    assert [(entity, operation, old) for entity, operation, _, old in changes] == [("products", "create", None)] * 2
    assert "variants" in changes[0][2] and "code" in changes[0][2], "a create changes all columns"


def test_an_update_keeps_the_old_values_of_the_columns_that_changed_null_included(acme: Operator) -> None:
    start = last_id(acme)
    acme.write("acme", "update data.products set price = 9, description = 'red', name = name where code = 'A'")
    assert log(acme, start) == [("products", "update", ["price", "description"], {"price": 1.0, "description": None})]


def test_a_delete_keeps_the_row(acme: Operator) -> None:
    start = last_id(acme)
    acme.write("acme", "delete from data.products where code = 'B'")
    [(entity, operation, _, old)] = log(acme, start)
    assert (entity, operation, old["code"], old["price"], old["barcode"]) == ("products", "delete", "B", 2.0, None)


@pytest.mark.parametrize(
    "statement",
    [
        "update data.products set price = price",
        "update data.products set price = 1.00000 where code = 'A'",
        "update data.products set updated_at = '2001-01-01'",
        "merge into data.products t using (values ('A', 1)) s (code, price) on t.company_id = 'acme' and t.code = s.code"
        " when matched then update set price = s.price when not matched then do nothing",
        "update data.products set price = 5 where code = 'none'",
    ],
)
def test_an_update_that_changes_nothing_leaves_no_trace(acme: Operator, statement: str) -> None:
    before = (
        acme.rows("select * from data.products order by id"),
        last_id(acme),
        acme.rows("select * from bds.positions order by 1, 2"),
    )
    acme.write("acme", statement)
    assert (
        acme.rows("select * from data.products order by id"),
        last_id(acme),
        acme.rows("select * from bds.positions order by 1, 2"),
    ) == before


# type, a value, one that is equal and reads differently (none: equal values read alike), and the first as the log has it
EQUAL = [
    ("interval", "30 days", "1 month", "30 days"),
    ("numeric", "1.0", "1.00", 1.0),
    ("jsonb", '{"a": 1.0}', '{"a": 1.00}', {"a": 1.0}),
    ("public.span", "24:00", "1 day", "24:00:00"),
    ("numeric(9, 2)", "1.0", None, None),
    ("text", "x" * 20_000, None, None),
    ("jsonb", json.dumps({"b": ["y" * 20_000], "a": 1}), None, None),
    ("timestamptz", "2026-01-01T00:00:00Z", None, None),
]


@pytest.mark.parametrize(("type", "value", "other", "logged"), EQUAL, ids=[f"{each[0]} {n}" for n, each in enumerate(EQUAL)])
def test_a_value_that_is_equal_and_reads_differently_is_a_change(
    acme: Operator, type: str, value: str, other: str | None, logged: object
) -> None:
    acme.connection.execute(
        f"create domain public.span interval; alter table data.products add column extra {type}; "
        "select bds.register('data.products', entity => 'products', singular => 'product')".encode()
    )
    acme.write("acme", "update data.products set extra = %s where code = 'A'", (value,))
    start = last_id(acme)
    for same in (value, value):
        acme.write("acme", "update data.products set extra = %s where code = 'A'", (same,))
    acme.write("acme", "update data.products set extra = extra")
    assert log(acme, start) == []
    if other is not None:
        acme.write("acme", "update data.products set extra = %s where code = 'A'", (other,))
        assert log(acme, start) == [("products", "update", ["extra"], {"extra": logged})]
        assert acme.rows("select extra::text from data.products where code = 'A'") == acme.rows(
            f"select %s::{type}::text", (other,)
        )
        assert acme.rows("select * from bds.compare_log('acme')") == []


def test_who_when_and_in_which_change_set_and_transaction(acme: Operator) -> None:
    start, change_set = last_id(acme), uuid4()
    acme.write("acme", "update data.products set price = price + 1", actor="maria", change_set=change_set)
    rows = acme.rows(
        "select actor, change_set_id, count(distinct transaction_id), count(*) from bds.changes where id > %s group by 1, 2",
        (start,),
    )
    assert rows == [("maria", change_set, 1, 2)]


def test_a_dba_without_context_is_named_by_the_database_user(acme: Operator) -> None:
    start = last_id(acme)
    acme.connection.execute("update data.products set price = 77 where company_id = 'acme' and code = 'A'")
    assert acme.rows("select actor = session_user, change_set_id from bds.changes where id > %s", (start,)) == [(True, None)]


def test_the_login_is_kept_whatever_actor_the_session_names(acme: Operator, connect) -> None:
    start, writer = last_id(acme), connect("bds_writer")
    with writer.transaction():
        writer.execute("select bds.set_context('acme', 'someone')")
        writer.execute("insert into data.units (code, name) values ('KGM', 'kg')")
        writer.execute("insert into data.units (code, name) values ('MTR', 'm'), ('LTR', 'l')")
        writer.execute("update data.units set name = name || '.' where company_id = 'acme'")
        writer.execute(
            "insert into data.product_variants (code, product_id) select 'V', min(id) from data.products where company_id = 'acme'"
        )
        writer.execute("delete from data.units where company_id = 'acme'")
    assert acme.rows(
        "select actor, db_user = session_user, array_agg(distinct operation order by operation), count(*) from bds.changes"
        " where id > %s group by 1, 2",
        (start,),
    ) == [("someone", True, ["create", "delete", "update"], 11)]


@pytest.mark.parametrize("role", ["postgres", "bds_writer"])
@pytest.mark.parametrize("is_later", [False, True], ids=["first", "later"])
@pytest.mark.parametrize(
    "statement",
    [
        "insert into data.units (code, name) values ('KGM', 'kg')",
        "insert into data.units (code, name) values ('KGM', 'kg'), ('MTR', 'm') on conflict (company_id, code) do update set name = 'x'",
        "insert into data.units (company_id, code, name) values ('', 'KGM', 'kg')",
        "insert into data.units (company_id, code, name) values (null, 'KGM', 'kg')",
        "insert into data.units (code, name, updated_at) values ('KGM', 'kg', '2020-01-01Z')",
        "merge into data.units u using (values ('KGM')) as v (code) on u.code = v.code when not matched then insert (code, name) values (v.code, 'kg')",
    ],
)
def test_a_new_row_without_a_company_is_refused_with_the_way_to_name_one(
    acme: Operator, connect, statement: str, is_later: bool, role: str
) -> None:
    session = connect(role)
    if is_later:
        with session.transaction():
            session.execute("select bds.set_context('acme')")
    with pytest.raises(psycopg.Error) as caught:
        session.execute(statement.encode())
    assert caught.value.sqlstate == "BD001"
    assert "no company is named" in (caught.value.diag.message_primary or "")
    assert "bds.set_context(company, actor, change_set)" in (caught.value.diag.message_hint or "")


@pytest.mark.parametrize(("change_set", "given"), [("'import-7'", "'import-7'"), ("''", "''"), ("7", "'7'")])
def test_a_change_set_that_is_not_a_uuid_is_named(acme: Operator, change_set: str, given: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        acme.rows(f"select bds.set_context('acme', 'me', {change_set})")
    assert (caught.value.sqlstate, caught.value.diag.message_primary) == (
        "BD005",
        f"expected a UUID as the change set, got {given}",
    )
    assert "gen_random_uuid()" in (caught.value.diag.message_hint or "")


@pytest.mark.parametrize(
    "change_set", ["gen_random_uuid()", "gen_random_uuid()::text", "'3F0C6A52-9D2E-4C1B-8A57-6F1F0A4F9D11'", "null"]
)
def test_a_change_set_is_a_uuid_as_text_or_null(acme: Operator, change_set: str) -> None:
    with acme.connection.transaction():
        acme.rows(f"select bds.set_context('acme', 'me', {change_set})")
        acme.connection.execute("insert into data.units (code, name) values ('KGM', 'kg')")
    assert acme.rows("select change_set_id is null from bds.changes order by id desc limit 1") == [(change_set == "null",)]


def test_a_child_changes_its_parent_with_the_collection_among_the_columns(acme: Operator) -> None:
    start = last_id(acme)
    stamp = "select updated_at from data.products where code = 'A'"
    before = acme.rows(stamp)
    acme.write("acme", "insert into data.product_variants (code, product_id) select 'A-1', id from data.products where code = 'A'")
    assert [change[:3] for change in log(acme, start)][1:] == [("products", "update", ["variants"])]
    assert acme.rows(stamp) > before


def test_a_parent_that_the_transaction_has_recorded_gets_no_second_record(acme: Operator) -> None:
    start = last_id(acme)
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_context('acme')")
        acme.connection.execute("update data.products set price = 50 where code = 'A'")
        acme.connection.execute(
            "insert into data.product_variants (code, product_id) select 'A-1', id from data.products where code = 'A'"
        )
        acme.connection.execute("update data.product_variants set name = 'one'")
        acme.connection.execute("insert into data.products (code, name) values ('C', 'Corn')")
        acme.connection.execute(
            "insert into data.product_variants (code, product_id) select 'C-1', id from data.products where code = 'C'"
        )
    assert [(e, o, c if o == "update" else None) for e, o, c, _ in log(acme, start)] == [
        ("products", "update", ["price", "variants"]),
        ("productVariants", "create", None),
        ("productVariants", "update", ["name"]),
        ("products", "create", None),
        ("productVariants", "create", None),
    ]


def test_a_child_that_moves_touches_both_of_its_parents(acme: Operator) -> None:
    acme.write("acme", "insert into data.product_variants (code, product_id) select 'V', id from data.products where code = 'A'")
    start = last_id(acme)
    acme.write("acme", "update data.product_variants set product_id = (select id from data.products where code = 'B')")
    assert sorted((e, c) for e, _, c, _ in log(acme, start)) == [
        ("productVariants", ["productId"]),
        ("products", ["variants"]),
        ("products", ["variants"]),
    ]


def test_a_parent_deleted_with_its_children_is_one_record_and_theirs(acme: Operator) -> None:
    acme.write(
        "acme",
        "insert into data.product_variants (code, product_id) select 'V' || n, id from data.products, generate_series(1, 3) n where code = 'A'",
    )
    start = last_id(acme)
    acme.write("acme", "delete from data.products where code = 'A'")
    assert sorted((e, o) for e, o, _, _ in log(acme, start)) == [("productVariants", "delete")] * 3 + [("products", "delete")]


def test_finding_the_parents_records_does_not_read_all_records_of_the_transaction(acme: Operator) -> None:
    """A partition without statistics once made each probe read every record of the parents' entity."""
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_context('acme')")
        acme.connection.execute("insert into data.products (code, name) select 'P' || n, 'x' from generate_series(1, 2000) n")
        acme.connection.execute("update data.products set name = 'y'")
        acme.connection.execute("insert into data.product_variants (code, product_id) select 'V' || id, id from data.products")
        [(read,)] = acme.rows("select sum(idx_tup_fetch) from pg_stat_xact_all_tables where relname ^@ 'change_log'")
    assert read < 2000 * 10
    assert acme.rows(
        "select count(*) from bds.changes where entity = 'products' and operation = 'update' and 'variants' = any (columns)"
    ) == [(2002,)]


def test_truncate_is_refused(acme: Operator) -> None:
    with pytest.raises(psycopg.Error) as caught:
        acme.connection.execute("truncate data.products cascade")
    assert caught.value.sqlstate == "BD004"


def test_a_row_keeps_its_company_and_its_id(acme: Operator) -> None:
    acme.company("beta")
    for assignment in ("company_id = 'beta'", "id = id + 1000"):
        with pytest.raises(psycopg.Error) as caught:
            acme.connection.execute(f"update data.products set {assignment} where company_id = 'acme'".encode())
        assert caught.value.sqlstate == "BD004"


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1), (3, 3), (1, 3, 2), (2, 1, 4)], ids=str)
def test_a_statement_over_several_companies_numbers_the_rows_of_each(operator: Operator, numbers: tuple[int, ...]) -> None:
    companies = [operator.company(name) for name in ("alfa", "beta", "coop")[: len(numbers)]]
    operator.connection.execute(
        "insert into data.units (company_id, code, name)"
        " select c, n, n from unnest(%s::text[], %s::int[]) as t (c, number), generate_series(1, number) n",
        (companies, list(numbers)),
    )
    operator.connection.execute("update data.units set name = name || '.'")
    operator.connection.execute("delete from data.units")
    for company, number in zip(companies, numbers, strict=True):
        expected = [(n + 1, ("create", "update", "delete")[n // number]) for n in range(3 * number)]
        assert operator.rows("select id, operation from bds.changes where company_id = %s order by id", (company,)) == expected
        positions = "select last_id, positions from bds.clocks where company_id = %s"
        assert operator.rows(positions, (company,)) == [(3 * number, {"units": 3 * number})]
    assert operator.rows("select * from bds.compare_log()") == []


def test_a_rolled_back_transaction_takes_its_ids_with_it(acme: Operator) -> None:
    start = last_id(acme)
    with pytest.raises(ZeroDivisionError), acme.connection.transaction():
        acme.connection.execute("select bds.set_context('acme')")
        acme.connection.execute("update data.products set price = price + 1")
        raise ZeroDivisionError
    acme.write("acme", "update data.products set price = price + 1 where code = 'A'")
    assert acme.rows("select id from bds.changes where id > %s", (start,)) == [(start + 1,)]


def test_a_savepoint_that_is_rolled_back_leaves_the_lock_and_the_ids_right(acme: Operator) -> None:
    start = last_id(acme)
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_context('acme')")
        with pytest.raises(ZeroDivisionError), acme.connection.transaction():
            acme.connection.execute("update data.products set price = 1000")
            raise ZeroDivisionError
        acme.connection.execute("update data.products set price = 2000 where code = 'A'")
    assert acme.rows("select id, old ->> 'price' from bds.changes where id > %s", (start,)) == [(start + 1, "1.0000")]


def test_one_notification_for_each_transaction_and_company(acme: Operator, connect) -> None:
    acme.company("beta")
    listener = connect()
    listener.execute("listen bds_changes")
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_context('acme')")
        acme.connection.execute("update data.products set price = price + 1")
        acme.connection.execute("insert into data.units (code, name) values ('u', 'U')")
    acme.write("beta", "insert into data.units (code, name) values ('u', 'U')")
    assert [n.payload for n in listener.notifies(timeout=5, stop_after=2)] == ["acme", "beta"]
    assert list(listener.notifies(timeout=0.2)) == []


def test_the_services_roles_cannot_alter_the_log(acme: Operator, connect) -> None:
    for role in ("bds_reader", "bds_writer", "bds_service", "bds_operator"):
        connection = connect(role, "acme")
        for statement in (
            "update bds.change_log set actor = 'nobody'",
            "delete from bds.change_log",
            "insert into bds.change_log (id) values (1)",
            "truncate bds.change_log",
            "update bds.clocks set last_id = 0",
            "select bds_change_log.advance('acme', 'products', 1, now(), now())",
            "update bds.changes set actor = 'nobody'",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode())


def test_records_go_to_the_partition_of_their_month(acme: Operator) -> None:
    assert acme.rows(
        "select count(*) from bds.change_log where tableoid::regclass::text = 'bds.change_log_' || to_char(now() at time zone 'UTC', 'YYYY_MM')"
    ) == [(2,)]
    acme.connection.execute("select bds.maintain()")  # again: nothing to do
    assert acme.rows("select count(*) from pg_inherits where inhparent = 'bds.change_log'::regclass") == [(4,)]


def test_old_values_do_not_depend_on_the_sessions_settings(acme: Operator) -> None:
    acme.connection.execute("set timezone = 'Asia/Kolkata'; set datestyle = 'SQL, DMY'; set extra_float_digits = -5")
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_context('acme')")
        acme.connection.execute("update data.products set price = 8 where code = 'A'")
        acme.connection.execute("set local datestyle = 'SQL, MDY'")
        acme.connection.execute("delete from data.products where code = 'A'")
    [(stamp,)] = acme.rows("select old ->> 'updatedAt' from bds.changes where operation = 'delete'")
    assert stamp.endswith("+00:00")


def test_a_table_that_is_filled_again_is_searched_by_its_key(operator: Operator) -> None:
    """By its statistics it still has one row, for which each index costs the same: the log looks at each row, not at all for each."""
    rows, company = 1_000, operator.company("again")
    operator.connection.execute("alter table data.products set (autovacuum_enabled = off)")
    operator.write(company, f"insert into data.products (code, name) select 'p' || n, 'x' from generate_series(1, {rows}) n")
    operator.write(company, f"delete from data.products where company_id = '{company}' and code <> 'p{rows}'")
    operator.connection.execute("vacuum analyze data.products")
    products = [{"code": f"p{n}", "name": "again"} for n in range(1, rows + 1)]
    operator.rows("select pg_stat_force_next_flush()")
    [(before,)] = operator.rows(TUPLES_READ)
    operator.rows("select bds.import_document(%s, %s)", (company, json.dumps({"products": products})))
    operator.rows("select pg_stat_force_next_flush()")
    [(after,)] = operator.rows(TUPLES_READ)
    assert after - before < 50 * rows
