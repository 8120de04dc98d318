"""The life of a company: the list of its tables, its end, its dump and its return, here or in another database."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from app.errors import ServiceError
from app.places import dump
from tests.conftest import NO_MONTHS, Operator, fresh_database, prepared
from tests.database.aging import age
from tests.upgrade.snapshot import HASH, WAREHOUSES, run_import, stage

pytestmark = pytest.mark.slow

Connect = Callable[..., psycopg.Connection[Any]]
TABLES = """
    select n.nspname || '.' || c.relname
    from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid and a.attname = 'company_id'
    where c.relkind in ('r', 'p') and not c.relispartition and n.nspname !~ '^pg_' and not a.attisdropped
"""

LATE = "update data.units set name = 'late' where company_id = %s and code = 'MTR'"


def no_show(table: str, size: int) -> None:
    """Show no progress."""


NOTES = "create table data.notes (company_id text, note text); alter table data.notes owner to bds_owner"


def fill(operator: Operator, company: str) -> None:
    """Give a company something of everything."""
    operator.company(company, "group")
    operator.write(company, "insert into data.categories (code, name) values ('A', 'Anfang'), ('B', 'Běh\t\\N')")
    operator.write(company, f"update data.categories set parent_id = id where company_id = '{company}' and code = 'B'")
    operator.write(
        company,
        "insert into data.products (code, name, price, category_id)"
        " select 'P' || n, 'Produkt ž ' || n, n + 0.25, (select min(id) from data.categories where company_id = %s) from generate_series(1, 60) n",
        (company,),
    )
    operator.write(company, "insert into data.warehouses (code) values ('W1')")
    operator.write(company, f"delete from data.products where company_id = '{company}' and code = 'P60'", actor="anna")
    report = run_import(operator.connection, company, stage(operator.connection, company))
    assert report["state"] == "partial"
    operator.write(company, "insert into data.orders (code, order_date) values ('O1', '2026-11-20')")
    operator.write(
        company, "insert into data.order_items (order_id, quantity) select id, 3 from data.orders where company_id = %s", (company,)
    )
    operator.write(company, "select bds.put_mapper(%s, 'words', 'template', 'name: {{ name }}')", (company,))
    operator.write(company, "select bds.create_hook(%s, 'units', 'https://example.com/hook')", (company,))
    operator.write(company, "insert into data.units (code, name) values ('H87', 'piece')")
    operator.rows("select * from bds_service.route_changes(%s, '0 s')", (company,))
    operator.rows("select bds_webhooks.make_batches()")
    operator.write(company, "insert into data.units (code, name) values ('MTR', 'metre')")
    operator.rows("select * from bds_service.route_changes(%s, '1 hour')", (company,))
    operator.rows(
        "with a as (select * from bds_service.claim_deliveries()) select bds_service.record_attempts(jsonb_agg(jsonb_build_object("
        "'company', a.company, 'hook', a.hook, 'delivery', a.delivery, 'lease', a.lease_id, 'status', 503, 'reply', 'no'))) from a"
    )
    operator.key(company)


def fill_two(operator: Operator) -> None:
    """Make two companies, acme with a past and an archive."""
    operator.connection.execute(WAREHOUSES.encode())
    for company in ("acme", "beta"):
        fill(operator, company)
    age(operator, "2019_01", "id = 1")
    operator.connection.execute("select bds.set_retention('3 years', archive => true)")
    operator.connection.execute("select bds.maintain()")
    operator.connection.execute("select bds.set_retention(null)")
    age(operator, "2020_01", "id in (2, 3)")
    operator.connection.execute(f"{NOTES}; insert into data.notes values ('acme', 'a'), ('beta', 'b')".encode())


@pytest.fixture(scope="module")
def template(server: str) -> Iterator[str]:
    yield from prepared(server, fill_two)


@pytest.fixture
def filled(operator: Operator) -> Operator:
    return operator


def wait_until_blocked(operator: Operator, connection: psycopg.Connection[Any]) -> None:
    while operator.rows("select cardinality(pg_blocking_pids(%s))", (connection.info.backend_pid,)) == [(0,)]:
        pass


def contents(operator: Operator, company: str, **without: str) -> dict[str, tuple[int, str]]:
    """How many rows each table has of a company, and a hash of them, except for columns that the server gives out."""
    found = {}
    for name, condition, columns in operator.rows(
        "select name, condition, columns from bds_operation.company_tables() where is_dumped"
    ):
        if name == "bds.clocks":
            columns = [each for each in columns if each not in ("transaction_id", "begun_at", "commons")]
        if name == "bds.hooks":
            columns = [each for each in columns if each not in without]
        row = ", ".join(f'"{each}"' for each in columns)
        condition = condition.replace("$1", f"'{company}'")
        found[name] = operator.rows(
            f"select count(*), md5(string_agg(r::text, '' order by r::text)) from (select {row} from {name} where {condition}) r".replace(
                "%", "%%"
            )
        )[0]
    return found  # type: ignore[return-value]


def dumped(operator: Operator, company: str = "acme") -> bytes:
    operator.connection.execute("set role bds_owner")
    out = io.BytesIO()
    dump.dump(operator.connection, company, out, no_show)
    operator.connection.execute("reset role")
    return out.getvalue()


def restore(operator: Operator, content: bytes, company: str = "acme", *, hooks: bool = True) -> None:
    operator.connection.execute("set role bds_owner")
    try:
        assert dump.restore(operator.connection, io.BytesIO(content), hooks, no_show) == company
    finally:
        operator.connection.execute("reset role")


def fill_another(operator: Operator) -> None:
    operator.connection.execute(f"{WAREHOUSES}; {NOTES}".encode())
    fill(operator, "gamma")


@pytest.fixture(scope="module")
def another(server: str) -> Iterator[str]:
    yield from prepared(server, fill_another)


@pytest.fixture
def elsewhere(server: str, another: str) -> Iterator[Operator]:
    """Another database, with the same entities and a company of its own."""
    for url in fresh_database(server, another):
        with psycopg.connect(url, autocommit=True) as connection:
            yield Operator(connection)


def test_no_table_with_companies_is_forgotten(filled: Operator) -> None:
    listed = [name for (name,) in filled.rows("select name from bds_operation.company_tables()")]
    assert sorted(listed) == sorted([name for (name,) in filled.rows(TABLES)] + ["bds.companies", "bds.api_keys"])
    assert "data.warehouses" in listed and "data.notes" in listed, "a DBA's own"
    for child, parent in filled.rows(
        "select c.name, p.name from pg_constraint k join bds_operation.company_tables() c on c.table_name = k.conrelid"
        " join bds_operation.company_tables() p on p.table_name = k.confrelid where k.contype = 'f' and c.name <> p.name"
    ):
        assert listed.index(parent) < listed.index(child)


def test_of_a_deleted_company_nothing_is_left_and_of_the_others_everything(filled: Operator) -> None:
    before = contents(filled, "beta")
    filled.connection.execute("select bds.create_user('anna@example.com', %s, '{acme,beta}')", (HASH,))
    filled.connection.execute("select bds.create_user('bob@example.com', %s, '{acme}')", (HASH,))
    filled.connection.execute("select bds.create_user('boss@example.com', %s, '{acme}', true)", (HASH,))
    filled.key("acme", "beta")
    deleted = dict(filled.rows("select * from bds.delete_company('acme')"))
    assert deleted["data.products"] == 61 and deleted["bds.change_archive"] == 1 and deleted["data.notes"] == 1
    assert {name for name, (count, _) in contents(filled, "acme").items() if count} == set()
    assert filled.rows("select email, companies from bds.users order by email") == [
        ("anna@example.com", ["beta"]),
        ("boss@example.com", []),
    ]
    after = contents(filled, "beta")
    assert after.pop("bds.api_keys") != before.pop("bds.api_keys"), "a key that had both companies has one now"
    assert after == before
    assert filled.rows("select name from bds_operation.company_tables() t where t.is_dumped and t.name = 'bds.change_log'") != []
    filled.company("acme")
    filled.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    assert filled.rows("select id from bds.changes where company_id = 'acme'") == [(1,)]
    with pytest.raises(psycopg.Error) as caught:
        filled.rows("select bds.delete_company('nobody')")
    assert caught.value.sqlstate == "BD002"


def test_rows_of_a_company_that_is_not_known_are_deleted(filled: Operator) -> None:
    with filled.connection.transaction():
        filled.connection.execute("set local session_replication_role = replica")
        filled.connection.execute("insert into data.units (company_id, code, name, updated_at) values ('ghost', 'g', 'G', now())")
        filled.connection.execute("delete from bds.companies where id = 'beta'")
    assert filled.rows("select * from bds.delete_company('ghost')") == [("data.units", 1)]
    assert dict(filled.rows("select * from bds.delete_company('beta')"))["data.products"] == 61
    assert filled.rows("select count(*) from bds.change_log where company_id = 'beta'") == [(0,)]


def test_triggers_are_passed_over_for_the_deletion_alone(filled: Operator) -> None:
    with filled.connection.transaction():
        filled.rows("select bds.delete_company('acme')")
        assert filled.rows("show session_replication_role") == [("origin",)]
        filled.connection.execute("select bds.set_context('beta')")
        filled.connection.execute("update data.units set name = 'again' where company_id = 'beta' and code = 'MTR'")
    assert filled.rows("select old from bds.changes where company_id = 'beta' order by id desc limit 1") == [({"name": "metre"},)]


def test_an_owner_that_may_not_pass_over_triggers_deletes_too(filled: Operator) -> None:
    content = dumped(filled)
    with filled.connection.transaction(force_rollback=True):
        filled.connection.execute("revoke set on parameter session_replication_role from bds_owner")
        assert dict(filled.rows("select * from bds.delete_company('acme')"))["data.products"] == 61
        assert {name for name, (count, _) in contents(filled, "acme").items() if count} == set()
        with pytest.raises(psycopg.Error, match="may not set session_replication_role"), filled.connection.transaction():
            filled.connection.execute("set local role bds_owner")
            dump.restore(filled.connection, io.BytesIO(content), True, no_show)


@pytest.mark.parametrize(
    ("rule", "left"), [("cascade", []), ("set null (product_id)", [(None,)]), ("no action", "foreign key constraint")]
)
def test_tables_that_are_not_deleted_with_a_company_keep_to_their_foreign_keys(filled: Operator, rule: str, left: Any) -> None:
    """Without its triggers the delete would leave references to rows that are gone."""
    filled.connection.execute(
        "create schema owners; create table owners.notes (company_id text, product_id bigint,"
        f" foreign key (company_id, product_id) references data.products on delete {rule});"
        " insert into owners.notes select company_id, id from data.products where company_id = 'acme' limit 1".encode()
    )
    if isinstance(left, str):
        with pytest.raises(psycopg.errors.ForeignKeyViolation, match=left):
            filled.delete_company("acme")
        assert filled.rows("select count(*) from data.products where company_id = 'acme'") > [(0,)]
    else:
        filled.delete_company("acme")
        assert filled.rows("select product_id from owners.notes") == left
        assert filled.rows("select count(*) from bds.change_log where company_id = 'acme'") == [(0,)]


def test_a_company_with_an_import_under_way_is_not_deleted(filled: Operator) -> None:
    staged = stage(filled.connection, "acme")
    with pytest.raises(psycopg.Error) as caught:
        filled.rows("select bds.delete_company('acme')")
    assert (caught.value.sqlstate, str(staged) in str(caught.value)) == ("BD004", True)
    filled.write("acme", "select bds.import_cancel('acme', %s)", (staged,))
    filled.write("acme", "select bds.import_fail('acme', %s, 'cancelled')", (staged,))
    filled.rows("select bds.delete_company('acme')")


def test_a_writer_and_a_deletion_wait_for_each_other(filled: Operator, connect: Connect) -> None:
    writer, other = connect(), connect()
    with ThreadPoolExecutor() as threads:
        with writer.transaction():
            writer.execute("select bds.set_context('acme')")
            writer.execute(LATE, ("acme",))
            deletion = threads.submit(other.execute, b"select bds.delete_company('acme')")
            wait_until_blocked(filled, other)
        deletion.result(timeout=30)
        assert filled.rows("select count(*) from data.units where company_id = 'acme'") == [(0,)]
        # now the writer comes second
        with other.transaction():
            other.execute("select bds.delete_company('beta')")

            def write() -> None:
                with writer.transaction():
                    writer.execute("select bds.set_context('beta')")
                    writer.execute(LATE, ("beta",))

            late = threads.submit(write)
            wait_until_blocked(filled, writer)
        with pytest.raises(psycopg.Error) as caught:
            late.result(timeout=30)
        assert caught.value.sqlstate == "BD002"


@pytest.mark.parametrize(
    "work",
    [
        "select * from bds_service.route_changes('acme', '0 s')",
        "select bds_webhooks.make_batches_of(array_agg(company_id), array_agg(hook_id), 'infinity') from bds.hook_states where company_id = 'acme'",
        "select bds.test_hook('acme', id) from bds.hooks where company_id = 'acme'",
        "with a as (select * from bds_service.claim_deliveries()) select bds_service.record_attempts(jsonb_agg(jsonb_build_object("
        "'company', a.company, 'hook', a.hook, 'delivery', a.delivery, 'lease', a.lease_id, 'status', 200))) from a",
    ],
)
def test_a_deletion_waits_for_the_worker_and_leaves_nothing_that_it_writes(filled: Operator, connect: Connect, work: str) -> None:
    filled.write("acme", "insert into data.units (code, name) values ('new', 'n')")
    filled.connection.execute("update bds.deliveries set next_attempt_at = now() where next_attempt_at is not null")
    filled.connection.execute("update bds.hook_states set next_at = now()")
    worker, other = connect(), connect()
    with ThreadPoolExecutor() as threads:
        with worker.transaction():
            assert worker.execute(work.encode()).fetchall()
            deletion = threads.submit(other.execute, b"select bds.delete_company('acme')")
            wait_until_blocked(filled, other)
        deletion.result(timeout=30)
    assert {name for name, (count, _) in contents(filled, "acme").items() if count} == set()


def test_a_result_of_a_delivery_whose_company_is_gone_is_ignored(filled: Operator) -> None:
    filled.connection.execute("update bds.deliveries set next_attempt_at = now() where next_attempt_at is not null")
    filled.connection.execute("update bds.hook_states set next_at = now()")
    [(leases,)] = filled.rows(
        "select jsonb_agg(jsonb_build_object('company', a.company, 'hook', a.hook, 'delivery', a.delivery, 'lease', a.lease_id, 'status', 200))"
        " from bds_service.claim_deliveries() a where a.company = 'acme'"
    )
    filled.rows("select bds.delete_company('acme')")
    assert filled.rows("select * from bds_service.record_attempts(%s)", (json.dumps(leases),)) == []
    assert filled.rows("select * from bds_service.renew_leases(%s)", (json.dumps(leases),)) == []
    assert filled.rows("select * from bds_service.route_changes('acme', '0 s')") == [(0, False)]


def test_only_the_operator_deletes_and_only_the_owner_dumps(filled: Operator, connect: Connect) -> None:
    for role in ("bds_reader", "bds_writer", "bds_service", "bds_worker"):
        with pytest.raises(psycopg.Error) as caught:
            connect(role, "acme").execute("select bds.delete_company('acme')")
        assert caught.value.sqlstate == ("BD001" if role == "bds_service" else "42501")  # the service may for an administrator
    for role in ("bds_operator", "bds_service"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            dump.dump(connect(role), "acme", io.BytesIO(), no_show)


@pytest.mark.parametrize("place", ["here", "elsewhere"])
def test_a_restored_company_is_the_one_that_was_dumped_and_goes_on(filled: Operator, elsewhere: Operator, place: str) -> None:
    target = filled if place == "here" else elsewhere
    filled.key("acme", "beta")
    filled.key(tenant="group")
    other = "beta" if place == "here" else "gamma"
    others = contents(target, other)
    compared = "select kind, entity, number from bds.compare_log('acme')"
    differences = filled.rows(compared)  # of the row whose record was made old
    before, content = contents(filled, "acme"), dumped(filled)
    if place == "here":
        filled.rows("select bds.delete_company('acme')")
    restore(target, content)
    assert contents(target, "acme") == before
    # a key that had both companies is one of the other alone
    assert contents(target, other) | {"bds.api_keys": None} == others | {"bds.api_keys": None}
    assert before["bds.change_archive"][0] == 1 and before["bds.api_keys"][0] == 1 and before["bds.delivery_attempts"][0] == 1
    assert target.rows("select count(*) from bds.api_keys where 'acme' = any (companies)") == [(1,)], "a key of this company alone"
    assert target.rows("select bds.first_change('acme')") == [(2,)]
    assert target.rows(compared) == differences, "rows fit the hashes of the log as they did"
    # an import goes on: new ids, the next changes, nothing else
    [(last, row)] = target.rows(
        "select c.last_id, (select max(id) from data.products where company_id = 'acme') from bds.clocks c where company_id = 'acme'"
    )
    report = run_import(target.connection, "acme", stage(target.connection, "acme"))
    assert report["entities"]["products"]["unchanged"] + report["entities"]["products"]["updated"] > 0
    target.write(
        "acme",
        "insert into data.products (code, name) values ('NEXT', 'n'); update data.units set name = 'Metre' where company_id = 'acme' and code = 'MTR'",
    )
    assert target.rows("select min(id) > %s from data.products where company_id = 'acme' and code = 'NEXT'", (row,)) == [(True,)]
    ids = [id for (id,) in target.rows("select id from bds.changes where company_id = 'acme' and id > %s order by id", (last,))]
    assert ids == list(range(last + 1, last + 1 + len(ids))) and len(ids) >= 2
    # and so does the hook: what was queued, and what is new
    assert target.rows("select routed from bds_service.route_changes('acme', '0 s')") == [(len(ids),)]
    target.rows(
        "select bds_webhooks.make_batches_of(array_agg(company_id), array_agg(hook_id), 'infinity') from bds.hook_states where company_id = 'acme'"
    )
    assert target.rows("select state, change_count from bds.deliveries where company_id = 'acme' order by number") == [
        ("waiting", 1),
        ("pending", 2),
    ]


def test_hooks_are_restored_disabled_unless_they_are_wanted(filled: Operator, elsewhere: Operator) -> None:
    restore(elsewhere, dumped(filled), hooks=False)
    assert elsewhere.rows("select disabled from bds.hooks where company_id = 'acme'") == [(True,)]
    assert elsewhere.rows("select distinct state from bds.deliveries where company_id = 'acme'") == [("cancelled",)]
    assert elsewhere.rows("select count(*) from bds.hook_queue where company_id = 'acme'") == [(0,)]
    elsewhere.write("acme", "insert into data.units (code, name) values ('new', 'n')")
    elsewhere.rows("select * from bds_service.route_changes('acme', '0 s')")
    assert elsewhere.rows("select count(*) from bds.hook_queue where company_id = 'acme'") == [(0,)]


def test_a_company_that_exists_is_not_restored(filled: Operator) -> None:
    content, before = dumped(filled), contents(filled, "acme")
    with pytest.raises(psycopg.Error) as caught:
        restore(filled, content)
    assert caught.value.sqlstate == "BD004"
    assert contents(filled, "acme") == before
    filled.rows("select bds.delete_company('acme')")
    with filled.connection.transaction():
        filled.connection.execute("set local session_replication_role = replica")
        filled.connection.execute("insert into data.units (company_id, code, name, updated_at) values ('acme', 'g', 'G', now())")
    with pytest.raises(psycopg.Error) as caught:
        restore(filled, content)
    assert (caught.value.sqlstate, caught.value.diag.message_hint) == (
        "BD004",
        "delete them first: select * from bds.delete_company('acme')",
    )


RENAME = "alter table data.warehouses rename column {} to {}; select bds.register('data.warehouses')"


def test_history_that_was_recorded_under_old_names_is_read_under_the_present_ones(filled: Operator, elsewhere: Operator) -> None:
    history = "select version, operation, row, old from bds.row_history('acme', 'warehouses', (select id from data.warehouses where company_id = 'acme')) order by 1"
    for operator in (filled, elsewhere):
        operator.connection.execute("alter table data.warehouses add column city text; select bds.register('data.warehouses')")
    filled.write("acme", "update data.warehouses set city = 'Ulm' where company_id = 'acme'")
    filled.write("acme", "update data.warehouses set city = 'Bonn' where company_id = 'acme'")
    elsewhere.connection.execute(RENAME.format("city", "town").encode())  # before the dump, the other one after it
    filled.connection.execute(RENAME.format("city", "town").encode())
    filled.write("acme", "update data.warehouses set town = 'Rom' where company_id = 'acme'")
    before = filled.rows(history)
    assert [old for *_, old in before][1:] == [{"town": None}, {"town": "Ulm"}, {"town": "Bonn"}]
    content = dumped(filled)
    restore(elsewhere, content)
    assert [each[3] for each in elsewhere.rows(history)] == [each[3] for each in before]
    assert [(each[2] or {}).get("town") for each in elsewhere.rows(history)][2:] == ["Bonn", "Rom"]
    logged = "select old from bds.change_log where company_id = 'acme' and entity = 'warehouses' order by id"
    filled.rows("select bds.delete_company('acme')")
    restore(filled, content)
    assert filled.rows(history) == before
    assert [old for (old,) in filled.rows(logged)][2] == {"city": "Ulm"}, "where the names were the same the log stays as it was"


SWAP = f"{RENAME.format('city', 'town')}; alter table data.warehouses add column city text; select bds.register('data.warehouses')"
TEXT = (
    "select bds.drop_views('warehouses'); alter table data.warehouses drop constraint city_is_finite, alter column city type text using city #>> '{}'; "
    "select bds.register('data.warehouses')"
)
# what alters a table after it got the column city of a type, what is written in the dump between its alteration there and here, and
# whether that can be told apart here
ALTERED = {
    "a renamed column": ("text", SWAP, "town = 'Bonn'", True),
    "a column of its former name": ("text", SWAP, "city = 'Bonn'", False),
    "an added column": (
        "text",
        "alter table data.warehouses add column more text; select bds.register('data.warehouses')",
        "more = 'x'",
        False,
    ),
    "another column": (
        "text",
        "alter table data.warehouses add column more text; select bds.register('data.warehouses')",
        "city = 'x'",
        True,
    ),
    "a text that was JSON": ("jsonb", TEXT, "city = 'Bonn'", False),
    "a text beside one that was JSON": ("jsonb", TEXT, "name = 'Bonn'", True),
    "two renames": ("text", f"{RENAME.format('city', 'a')}; {RENAME.format('a', 'town')}", "town = 'Bonn'", True),
}


@pytest.mark.parametrize("here_first", [True, False])
@pytest.mark.parametrize("kind", ALTERED)
def test_history_of_a_table_that_was_altered_at_another_time_is_the_same_or_refused(
    filled: Operator, elsewhere: Operator, kind: str, here_first: bool
) -> None:
    type_, change, between, is_known = ALTERED[kind]
    value = "'\"Ulm\"'" if type_ == "jsonb" else "'Ulm'"
    for operator in (filled, elsewhere):
        operator.connection.execute(
            f"alter table data.warehouses add column city {type_}, add column name text; select bds.register('data.warehouses')".encode()
        )
    update = "update data.warehouses set {} where company_id = 'acme'"
    filled.write("acme", update.format(f"city = {value}"))
    filled.write("acme", update.format("city = null"))
    filled.write("acme", update.format(f"city = {value}"))
    if here_first:
        elsewhere.connection.execute(change.encode())
        filled.write("acme", update.format("name = 'x', city = city"))
    filled.connection.execute(change.encode())
    filled.write("acme", update.format(between))
    filled.write("acme", update.format(between.replace("= '", "= 'other ")))
    if not here_first:
        elsewhere.connection.execute(change.encode())
    filled.write("acme", update.format("name = 'last', code = 'W2'"))
    history = (
        "select version, operation, old from bds.row_history('acme', 'warehouses', "
        "(select id from data.warehouses where company_id = 'acme')) order by 1"
    )
    content = dumped(filled)
    if not here_first and not is_known:
        with pytest.raises(psycopg.Error, match="warehouses was altered at another time there than here: change") as caught:
            restore(elsewhere, content)
        assert caught.value.sqlstate == "BD005"
        return
    restore(elsewhere, content)
    assert elsewhere.rows(history) == filled.rows(history)
    [(last,)] = filled.rows("select last_id from bds.company_positions where company_id = 'acme'")
    for version in range(last - 3, last):
        states = [state(operator, version) for operator in (filled, elsewhere)]
        assert states[0] == states[1], version


def state(operator: Operator, version: int) -> list[tuple[Any, ...]]:
    with operator.connection.transaction():
        operator.connection.execute("select bds.set_version('acme', %s)", (version,))
        return operator.rows("select * from past.warehouses where company_id = 'acme'")


def test_children_that_got_their_parent_later_in_the_dump_are_read_so(filled: Operator, elsewhere: Operator) -> None:
    later = "select name, parent_since from bds.entities where parent_since > '-infinity'"
    assert filled.rows(later) == elsewhere.rows(later) == []
    filled.connection.execute(
        "select bds.register('data.order_items');"
        " select bds.register('data.order_items', parent => 'order_id', collection => 'items')"
    )
    restore(elsewhere, dumped(filled))
    assert filled.rows(later) == elsewhere.rows(later)
    assert [name for name, _ in elsewhere.rows(later)] == ["orderItems"]


def test_a_restore_that_would_hide_history_is_refused(filled: Operator, elsewhere: Operator) -> None:
    content = dumped(filled)
    elsewhere.connection.execute("select bds.unregister('warehouses'); select bds.register('data.warehouses')")
    with pytest.raises(psycopg.Error, match="history of warehouses begins later here") as caught:
        restore(elsewhere, content)
    assert caught.value.sqlstate == "BD005"
    assert elsewhere.rows("select count(*) from bds.companies where id = 'acme'") == [(0,)]


def test_a_table_that_differs_is_named(filled: Operator, elsewhere: Operator) -> None:
    elsewhere.connection.execute("alter table data.notes add column more text")
    with pytest.raises(psycopg.Error, match=r"table data\.notes differs") as caught:
        restore(elsewhere, dumped(filled))
    assert caught.value.sqlstate == "BD005"
    elsewhere.connection.execute("drop table data.notes")
    with pytest.raises(psycopg.Error, match=r"table data\.notes differs"):
        restore(elsewhere, dumped(filled))


def places(content: bytes) -> list[int]:
    """Where a dump may be cut or damaged: around each of its records."""
    found, place = [0, 5], len(dump.MAGIC)
    while place < len(content):
        _, length, _ = dump.FRAME.unpack_from(content, place)
        found += [place, place + 3, place + dump.FRAME.size + length // 2]
        place += dump.FRAME.size + length
    return found


def test_of_a_dump_that_is_cut_or_damaged_nothing_is_restored(filled: Operator) -> None:
    content = dumped(filled)
    filled.rows("select bds.delete_company('acme')")
    before = contents(filled, "acme")
    for place in places(content):
        for bad in (
            content[:place],
            content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :] if place < len(content) else b"",
        ):
            with pytest.raises(ServiceError, match=r"ends too early|damaged at byte|expected a dump"):
                restore(filled, bad)
    with pytest.raises(ServiceError, match="damaged at byte"):
        restore(filled, content + b"x")
    # a record that is missing as a whole, though every other one is right
    second = len(dump.MAGIC) + dump.FRAME.size + dump.FRAME.unpack_from(content, len(dump.MAGIC))[1]
    with pytest.raises(ServiceError, match="damaged at byte"):
        restore(filled, content[:second] + content[second + dump.FRAME.size + dump.FRAME.unpack_from(content, second)[1] :])
    assert contents(filled, "acme") == before
    restore(filled, content)


def test_a_restore_leaves_a_sequence_values_to_give(filled: Operator, elsewhere: Operator) -> None:
    filled.write("acme", "insert into data.units (id, code, name) values (1000, 'a', 'A'), (9223372036854775807, 'z', 'Z')")
    restore(elsewhere, dumped(filled))
    assert elsewhere.write("acme", "insert into data.units (code, name) values ('b', 'B') returning id") == [(1001,)]


def test_a_dump_is_one_snapshot(filled: Operator, connect: Connect) -> None:
    """Its tables fit together though somebody writes meanwhile."""
    before, writer = contents(filled, "acme"), connect()
    out = io.BytesIO()

    def write_between(table: str, size: int) -> None:
        with writer.transaction():
            writer.execute("select bds.set_context('acme')")
            writer.execute("update data.products set name = name || '.' where company_id = 'acme'")

    filled.connection.execute("set role bds_owner")
    dump.dump(filled.connection, "acme", out, write_between)
    filled.connection.execute("reset role")
    filled.rows("select bds.delete_company('acme')")
    restore(filled, out.getvalue())
    assert contents(filled, "acme") == before


@NO_MONTHS
def test_a_month_that_expires_during_a_dump_is_not_archived_before_its_end(filled: Operator, connect: Connect) -> None:
    before, operator = contents(filled, "acme"), connect()
    filled.connection.execute("select bds.set_retention('1 year', archive => true)")
    done = []

    def archive(table: str, size: int) -> None:
        done.extend(operator.execute("select done from bds.maintain() where step = 'expire months of the log'").fetchall())

    filled.connection.execute("set role bds_owner")
    out = io.BytesIO()
    dump.dump(filled.connection, "acme", out, archive)
    filled.connection.execute("reset role")
    assert set(done) == {(0,)}
    filled.rows("select bds.delete_company('acme')")
    restore(filled, out.getvalue())
    assert contents(filled, "acme") == before
    archive("", 0)
    assert done[-1] == (1,)


def test_records_of_a_dump_are_bounded(filled: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "PIECE", 1000)
    content = dumped(filled)
    sizes = [len(each) for kind, each in dump.read(io.BytesIO(content)) if kind == b"D"]
    assert len(sizes) > 20 and max(sizes) < 3000
    forged = content[: len(dump.MAGIC)] + dump.FRAME.pack(b"H", dump.LONGEST + 1, 0)
    with pytest.raises(ServiceError, match="damaged"):
        list(dump.read(io.BytesIO(forged)))
    assert json.loads(next(dump.read(io.BytesIO(content)))[1])["company"] == "acme"
    assert zlib.crc32(b"") == 0


def test_a_table_whose_rows_the_owner_may_not_delete_is_named_with_the_grant(filled: Operator) -> None:
    filled.connection.execute("create table data.remarks (company_id text); insert into data.remarks values ('acme')")
    message = r"bds_owner may not delete the rows that acme has in data\.remarks"
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match=message) as caught:
        filled.rows("select bds.delete_company('acme')")
    filled.connection.execute(str(caught.value.diag.message_hint).encode())
    assert dict(filled.rows("select * from bds.delete_company('acme')"))["data.remarks"] == 1
