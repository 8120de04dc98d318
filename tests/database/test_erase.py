"""Erasing: old values of a person are taken out of the log, and it is known that they were."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.conftest import Operator
from tests.database.aging import age

pytestmark = pytest.mark.slow

ERASED = "select bds.erase('acme', 'customers', %s, %s)"


@pytest.fixture
def acme(operator: Operator) -> Operator:
    for company in ("acme", "beta"):
        operator.company(company)
        operator.write(
            company,
            "insert into data.customers (id, code, name, email, phone) values (1, 'C1', 'Anna', 'anna@a', '1'), (2, 'C2', 'Ben', 'ben@a', '2')",
        )
        operator.write(
            company, f"update data.customers set email = 'anna@b', phone = '11' where company_id = '{company}' and id = 1"
        )
        operator.write(company, f"update data.customers set name = 'Ann', phone = null where company_id = '{company}' and id = 1")
        operator.write(company, f"update data.customers set email = null where company_id = '{company}'")
    return operator


def history(operator: Operator, id: int = 1) -> list[tuple[Any, ...]]:
    return operator.rows(
        "select operation, row ->> 'name', row ->> 'email', row ->> 'phone', old from bds.row_history('acme', 'customers', %s)",
        (id,),
    )


def log(operator: Operator, condition: str) -> list[tuple[Any, ...]]:
    return operator.rows(f"select id, entity, row_id, columns, old from bds.changes where {condition} order by company_id, id")


def test_old_values_of_columns_read_as_null_and_everything_else_stays(acme: Operator) -> None:
    others = log(acme, "company_id = 'beta' or row_id <> 1")
    columns = [each[3] for each in log(acme, "company_id = 'acme' and row_id = 1")]
    acme.connection.execute("set bds.actor = 'clerk'")
    assert acme.rows(ERASED, (1, ["email", "name"])) == [(3,)]
    assert history(acme) == [
        ("create", None, None, "1", None),
        ("update", None, None, "11", {"email": None, "phone": "1"}),
        ("update", "Ann", None, None, {"name": None, "phone": "11"}),
        ("update", "Ann", None, None, {"email": None}),
    ]
    assert [each[3] for each in log(acme, "company_id = 'acme' and row_id = 1")] == columns, "which columns changed stays"
    assert log(acme, "company_id = 'beta' or row_id <> 1") == others
    assert acme.rows(
        "select company_id, entity, row_id, columns, records, actor, db_user, erased_at between now() - interval '1 minute' and now() from bds.erasures"
    ) == [("acme", "customers", 1, ["email", "name"], 3, "clerk", "postgres", True)]
    assert acme.rows(ERASED, (1, ["email"])) == [(0,)], "again: nothing is left, which is kept as well"
    assert acme.rows("select number, records from bds.erasures order by 1") == [(1, 3), (2, 0)]


def test_a_deleted_row_is_erased_by_its_id(acme: Operator) -> None:
    acme.write("acme", "delete from data.customers where company_id = 'acme' and id = 1")
    assert acme.rows(ERASED, (1, ["email", "phone", "name", "code"])) == [(4,)]
    assert [(row[0], row[1:4]) for row in history(acme)] == [
        *((operation, (None, None, None)) for operation in ("create", "update", "update", "update")),
        ("delete", (None, None, None)),
    ]
    [(old,)] = acme.rows("select old from bds.changes where company_id = 'acme' and operation = 'delete'")
    assert (old["id"], old["active"], old["code"], old["name"]) == (1, True, None, None)


def test_values_that_were_recorded_under_an_old_name_are_erased_under_the_present_one(acme: Operator) -> None:
    acme.connection.execute("alter table data.customers rename column email to mail; select bds.register('data.customers')")
    acme.write("acme", "update data.customers set mail = 'anna@c' where company_id = 'acme' and id = 1")
    acme.write("acme", "update data.customers set mail = null where company_id = 'acme' and id = 1")
    assert acme.rows(ERASED, (1, ["mail"])) == [(3,)]
    assert "anna@" not in str(acme.rows("select old from bds.change_log where company_id = 'acme'"))
    assert "ben@" in str(acme.rows("select old from bds.change_log where company_id = 'acme'"))
    with pytest.raises(psycopg.Error) as caught:
        acme.rows(ERASED, (1, ["email"]))
    assert caught.value.sqlstate == "BD005"


def test_the_archive_is_erased_as_well(acme: Operator) -> None:
    age(acme, "2020_01", "id < 4 and company_id = 'acme'")
    acme.connection.execute("select bds.set_retention('2 years', archive => true), bds.maintain()")
    assert acme.rows("select count(*) from bds.change_archive where old ->> 'email' = 'anna@a'") == [(1,)]
    assert acme.rows(ERASED, (1, ["email"])) == [(2,)]
    assert acme.rows("select count(*) from bds.change_archive where old ->> 'email' = 'anna@a'") == [(0,)]
    assert acme.rows("select count(*) from bds.change_archive where old ? 'email'") == [(1,)]


def test_errors_of_imports_that_quote_a_value_are_erased(acme: Operator) -> None:
    acme.write("acme", "select bds.import_begin('acme')")
    acme.connection.execute(
        "insert into bds.import_errors (company_id, import_id, n, path, record, code, message)"
        " select 'acme', i.id, v.n, 'customers[' || v.n || ']', v.record, 'x', v.message from bds.imports i, (values"
        " (1, 'email:anna@a', 'm'), (2, null, 'no customer has the email ''anna@b'''), (3, 'code:C1', 'got ''11'' here'), (4, 'code:C1', 'at 11 of 12'))"
        " v (n, record, message)"
    )
    acme.rows(ERASED, (1, ["email", "phone"]))
    assert acme.rows("select n, record, message from bds.import_errors order by n") == [
        (1, None, "erased"),
        (2, None, "erased"),
        (3, None, "erased"),
        (4, "code:C1", "at 11 of 12"),
    ]


def test_values_in_the_dry_run_of_an_undo_are_erased(acme: Operator) -> None:
    acme.write("acme", "select bds.restore('acme', 2, dry_run => true)")
    acme.rows(ERASED, (1, ["email", "name"]))
    acme.connection.execute("alter table data.customers rename column email to mail; select bds.register('data.customers')")
    acme.rows(ERASED, (1, ["phone"]))
    [(rows,)] = acme.rows("select preview from bds.imports")
    assert sorted(
        (each["row"], {name: (each["old"][name], each["new"][name]) for name in each["columns"] if name != "updatedAt"})
        for each in rows
    ) == [
        ("customers/1", {"email": (None, None), "name": (None, None), "phone": (None, None)}),
        ("customers/2", {"email": (None, "ben@a")}),
    ]


def test_hashes_of_earlier_states_go_and_the_log_still_fits_the_rows(acme: Operator) -> None:
    acme.rows(ERASED, (1, ["email"]))
    hashes = "select row_hash = 0 from bds.change_log where company_id = 'acme' and row_id = %s order by id"
    assert acme.rows(hashes, (1,)) == [(True,), (True,), (True,), (False,)]
    assert (True,) not in acme.rows(hashes, (2,))
    assert acme.rows("select * from bds.compare_log('acme')") == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("'acme', 'customers', 1, '{nothing}'", "BD005"),
        ("'acme', 'customers', 1, '{}'", "BD005"),
        ("'acme', 'customers', 1, null", "BD005"),
        ("'acme', 'customers', null, '{name}'", "BD005"),
        ("'acme', 'customers', 1, '{id}'", "BD005"),
        ("'acme', 'customers', 1, '{updatedAt}'", "BD005"),
        ("'acme', 'nothing', 1, '{name}'", "BD002"),
        ("'nobody', 'customers', 1, '{name}'", "BD002"),
    ],
)
def test_what_cannot_be_erased_is_refused(acme: Operator, arguments: str, code: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        acme.rows(f"select bds.erase({arguments})")
    assert caught.value.sqlstate == code
    assert acme.rows("select count(*) from bds.erasures") == [(0,)]


def test_only_the_operator_erases_and_readers_see_the_erasures_of_their_company(acme: Operator, connect: Any) -> None:
    for role in ("bds_reader", "bds_writer", "bds_service", "bds_worker"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connect(role, "acme").execute(ERASED, (1, ["email"]))
    operator = connect("bds_operator")
    assert operator.execute(ERASED, (1, ["email"])).fetchall() == [(2,)]
    assert connect("bds_reader", "acme").execute("select count(*) from bds.erasures").fetchone() == (1,)
    assert connect("bds_reader", "beta").execute("select count(*) from bds.erasures").fetchone() == (0,)
    for statement in ("delete from bds.erasures", "update bds.erasures set actor = 'x'"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            operator.execute(statement)
