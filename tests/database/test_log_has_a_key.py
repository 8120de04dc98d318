"""The change log's ids are a key: of each partition, for publications, and with CHECKs for what its triggers promise."""

from __future__ import annotations

import psycopg
import pytest

from tests.conftest import Operator
from tests.database.aging import age
from tests.upgrade.snapshot import run_import, stage

pytestmark = pytest.mark.slow

PARTITIONS = "(select inhrelid from pg_inherits where inhparent = 'bds.change_log'::regclass)"
KEYS = f"""
    select c.relname, pg_get_constraintdef(k.oid) from pg_class c left join pg_constraint k on k.conrelid = c.oid and k.contype = 'p'
    where c.oid in {PARTITIONS}
"""


@pytest.fixture
def acme(operator: Operator) -> Operator:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('KGM', 'kg'), ('MTR', 'm')")
    return operator


def test_each_partition_has_a_primary_key_later_ones_included(acme: Operator) -> None:
    before = acme.rows(KEYS)
    acme.connection.execute("select bds_change_log.make_months(6)")
    after = acme.rows(KEYS)
    assert len(after) > len(before) > 2
    assert {key for _, key in after} == {"PRIMARY KEY (company_id, id)"}


def test_the_key_is_the_only_index_by_id(acme: Operator) -> None:
    indexes = acme.rows(
        f"select pg_get_indexdef(indexrelid) from pg_index where indrelid in {PARTITIONS} or indrelid = 'bds.change_log'::regclass"
    )
    by_id = [index for (index,) in indexes if index.endswith("(company_id, id)")]
    assert len(by_id) == len(acme.rows(KEYS)) and all(index.startswith("CREATE UNIQUE") for index in by_id)


@pytest.mark.parametrize(
    ("values", "state", "constraint"),
    [
        ("1, 1, 'create', null, null, 1", "23505", "_pkey"),
        ("0, 1, 'create', null, null, 1", "23514", "id_is_positive"),
        ("9, 1, 'create', null, '{}', 1", "23514", "creates_alone_have_no_old_values"),
        ("9, 1, 'update', null, null, 1", "23514", "creates_alone_have_no_old_values"),
        ("9, 1, 'delete', null, null, null", "23514", "creates_alone_have_no_old_values"),
        ("9, 1, 'create', '{variants}', null, 1", "23514", "updates_alone_name_collections"),
        ("9, 1, 'delete', '{variants}', '{}', null", "23514", "updates_alone_name_collections"),
        ("9, 1, 'create', null, null, null", "23514", "deletes_alone_have_no_hash"),
        ("9, 1, 'update', null, '{}', null", "23514", "deletes_alone_have_no_hash"),
        ("9, 1, 'delete', null, '{}', 1", "23514", "deletes_alone_have_no_hash"),
    ],
)
def test_a_record_that_no_trigger_writes_is_refused(acme: Operator, values: str, state: str, constraint: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        acme.connection.execute(
            "insert into bds.change_log (company_id, entity, actor, db_user, transaction_id, created_at,"
            " id, row_id, operation, collections, old, row_hash)"
            f" values ('acme', 'units', 'me', 'me', '1', now(), {values})".encode()
        )
    assert caught.value.sqlstate == state
    assert (caught.value.diag.constraint_name or "").endswith(constraint)


def test_every_table_that_can_be_published_has_a_replica_identity(operator: Operator) -> None:
    assert (
        operator.rows(
            """
            select c.oid::regclass from pg_class c
            where c.relkind = 'r' and c.relpersistence = 'p' and c.relnamespace::regnamespace::text !~ '^(pg_|information_schema)'
                and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and c.relreplident = 'd')
            """
        )
        == []
    )


def test_a_publication_of_all_tables_disturbs_nothing(acme: Operator) -> None:
    acme.connection.execute("set client_min_messages = error; create publication everything for all tables")
    acme.write("acme", "insert into data.orders (code, order_date) values ('O1', '2026-11-20')")
    with acme.connection.transaction():
        acme.connection.execute("select bds.set_context('acme')")
        acme.connection.execute("update data.orders set order_date = '2026-11-21' where code = 'O1'")
        acme.connection.execute("insert into data.order_items (order_id, quantity) select id, 3 from data.orders")
    assert acme.rows("select operation, columns from bds.changes where entity = 'orders' order by id desc limit 1") == [
        ("update", ["orderDate", "items"])
    ]
    report = run_import(acme.connection, "acme", stage(acme.connection, "acme"))
    assert report["entities"]["products"]["created"] == 2
    acme.write("acme", "delete from data.orders")
    acme.connection.execute("select bds.create_hook('acme', 'units', 'https://example.com/hook')")
    acme.key("acme")
    acme.write("acme", "update data.units set name = name || '.'")
    acme.connection.execute("select bds_service.route_changes('acme', '0 s'), bds_service.claim_deliveries()")
    age(acme, "2001_01", "id < 3")
    acme.connection.execute("select bds.set_retention('1 year'), bds.maintain()")
    assert acme.rows("select min(id) from bds.changes") == [(3,)]
