"""Databases whose tables are divided into shards: they have what a whole one has, and tests of imports, reads and changes pass."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from app.database import migrate
from tests.conftest import DIVIDED, Operator
from tests.divided.conftest import SHARDS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# Tests of other suites that go through what shards change, and nothing beside it; a name without a test is a suite as a whole.
# What they leave out differs only in the document. `make test-divided` runs all of each suite.
CHOSEN = {
    # pages of the log and its first change, read from one shard while writers commit
    "tests/changes/test_incremental.py": (),
    # policies and foreign keys of each shard
    "tests/database/test_isolation.py": (
        "test_a_reader_that_has_named_no_company_sees_nothing",
        "test_a_reference_into_another_company_is_refused",
        "test_rows_are_staged_by_the_imports_own_company_alone",
        "test_the_reader_may_read_nothing_but_the_views",
        "test_the_reader_sees_the_company_that_it_has_named_and_no_other",
        "test_the_writer_neither_reads_nor_changes_another_companys_rows",
    ),
    # the order of the log: a company's clock is a row of a shard, found by its place there
    "tests/database/test_turn.py": (
        "test_a_forged_place_of_the_clock_leads_nowhere",
        "test_a_forged_turn_writes_nothing_where_the_company_has_departed",
        "test_a_snapshot_from_before_the_last_change_is_refused",
        "test_ids_and_positions_are_right_after_savepoints_in_several_companies",
        "test_nobody_logs_an_update_that_changes_nothing",
        "test_the_clock_cannot_be_pushed_into_the_future_nor_back",
        "test_the_clock_is_found_where_it_was_left_however_many_statements_there_are",
        "test_whoever_has_a_row_locked_gives_up_its_wait_so_that_the_turns_holder_is_never_a_deadlocks_victim",
    ),
    # each kind of write: insert, merge, update and delete by condition, removal of the rest, in the order of foreign keys;
    # unique keys across records and rows; a failed write is undone
    "tests/feed/test_directives.py": (
        "test_a_condition_never_matches_rows_of_another_company",
        "test_a_condition_selects_rows[price < 3-AB]",
        "test_a_condition_selects_rows[category = 'code:L'-CD]",
        "test_a_delete_of_a_parent_deletes_its_children",
        "test_a_dry_run_reports_everything_that_the_real_one_does",
        "test_a_failed_delete_fails_the_deletes_of_its_batch_and_no_upsert",
        "test_a_lookup_in_a_condition_may_name_a_record_of_the_same_document",
        "test_a_mass_delete_keeps_only_rows_in_use",
        "test_a_mass_update_checks_only_the_unique_fields_that_it_changes",
        "test_a_mass_update_that_changes_nothing_writes_nothing",
        "test_a_mass_update_that_fails_late_fails_its_batch",
        "test_a_remaining_child_keeps_its_parent",
        "test_a_row_in_use_stays",
        "test_all_or_nothing_includes_deletes",
        "test_an_impossible_operation_is_an_error_of_its_record[record0-error0]",  # already_exists: an insert
        "test_an_impossible_operation_is_an_error_of_its_record[record4-error4]",  # not_found
        "test_an_impossible_operation_is_an_error_of_its_record[record24-error24]",  # lookup_not_found
        "test_an_impossible_operation_is_an_error_of_its_record[record26-error26]",  # already_exists: an update by condition
        "test_children_have_operations",
        "test_create_update_upsert_and_delete",
        "test_deletes_run_in_reverse_order_of_dependency",
        "test_mass_updates_see_upserts_and_earlier_mass_updates",
        "test_remove_all_removes_the_rows_that_the_collection_lacks",
        "test_upserts_run_before_deletes",
        "test_what_arrays_and_collections_lack_goes_before_the_rows_that_it_refers_to",
    ),
    # rows found by their ids and by each unique key
    "tests/feed/test_identity.py": (
        "test_a_delete_of_an_item_uses_only_its_id",
        "test_a_lookup_renames_its_row",
        "test_a_record_identifies_its_row",
        "test_rows_of_another_company_do_not_exist",
        "test_the_lookup_of_a_new_row_sets_its_field",
    ),
    # items without a key, matched with the rows of their parents' shard
    "tests/feed/test_linkage.py": (
        "test_items_are_matched_within_their_parent",
        "test_many_changed_items_of_one_parent_are_matched",
        "test_random_orders_sent_again_change_nothing",
        "test_top_level_items_are_matched_within_the_parent_that_they_name",
    ),
    # reads with a filter, an order, expanded rows; ETags from the log
    "tests/odata/test_answers.py": (),
    "tests/odata/test_expand.py": (),
    # hooks and deliveries are rows of companies, too
    "tests/webhooks/test_registration.py": (),
}
# what belongs to a table, without shards and what they have
PARTS = """
    select c.oid::regclass::text, p.part
    from pg_class c
    cross join lateral (
        select concat('column ', a.attname, ' ', format_type(a.atttypid, a.atttypmod), ' ', a.attnotnull, a.attidentity, a.attgenerated)
        from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
        union all
        -- a copy is checked
        select concat('constraint ', k.conname, ' ', replace(pg_get_constraintdef(k.oid), ' NOT VALID', '')) from pg_constraint k
        where k.conrelid = c.oid and k.contype <> 'n' and k.conparentid = 0 and k.conname <> 'change_log_pkey'
        union all
        select 'policy ' || p.polname || pg_get_expr(p.polqual, p.polrelid) from pg_policy p where p.polrelid = c.oid
        union all
        select 'index ' || replace(pg_get_indexdef(i.indexrelid), ' ONLY ', ' ') from pg_index i
        where i.indrelid = c.oid and i.indexrelid <> coalesce(to_regclass('bds.change_log_pkey'), 0)
        union all
        select 'trigger ' || t.tgname from pg_trigger t
        where t.tgrelid = c.oid and not t.tgisinternal and t.tgname <> 'bds_hold'  -- of shards that Citus places
        union all
        select concat('right ', a.grantee::regrole, ' ', a.privilege_type) from aclexplode(c.relacl) a
        union all
        select concat('owner ', c.relowner::regrole, ' ', c.relrowsecurity, ' ', obj_description(c.oid, 'pg_class'))
    ) p (part)
    where c.relnamespace::regnamespace::text in ('bds', 'data') and c.relkind in ('r', 'p') and not c.relispartition
"""


def rows(url: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


def test_a_divided_table_has_what_a_whole_one_has(divided: str, database_url: str) -> None:
    assert migrate.migrate(divided) == []
    assert set(rows(divided, PARTS)) == set(rows(database_url, PARTS))
    assert rows(divided, "select bds_shards.whole_tables()") == []
    assert rows(divided, "select * from bds.problems where kind <> 'missing partition'") == []


def test_a_company_is_in_the_shard_that_citus_has_it_in(divided: str) -> None:
    with psycopg.connect(divided, autocommit=True) as connection:
        operator = Operator(connection)
        for n in range(20):
            company = operator.company(f"company-{n}")
            operator.write(company, "insert into data.units (code, name) values ('KG', 'kilogram')")
    # Citus gives each shard a range of hashtext, in order
    expected = "'shards.data_units_' || (hashtext(company_id)::bigint + 2147483648) * 4 / 4294967296"
    assert rows(divided, f"select count(*) from data.units where tableoid::regclass::text <> {expected}") == [(0,)]
    assert rows(divided, "select count(distinct tableoid) from data.units") == [(SHARDS,)]


def test_a_table_is_divided_when_it_is_registered(divided: str) -> None:
    table = "company_id text not null, id bigint generated by default as identity, code text, updated_at timestamptz not null"
    with psycopg.connect(divided, autocommit=True) as connection:
        operator = Operator(connection)
        company = operator.company("register")
        for name in ("empty", "used"):
            connection.execute(f"create table data.{name} ({table}, primary key (company_id, id))".encode())
        connection.execute("insert into data.used (company_id, updated_at) values ('register', now())")
        with pytest.raises(psycopg.Error) as refused:
            connection.execute("select bds.register('data.used')")
        assert refused.value.sqlstate == "BD004"
        connection.execute("select bds.register('data.empty')")
        assert rows(divided, "select bds_shards.is_divided('data.empty')") == [(True,)]
        operator.write(company, "insert into data.empty (code) values ('A')")
        assert operator.rows("select entity, operation::text from bds.change_log where company_id = 'register'") == [
            ("empty", "create")
        ]
        connection.execute("select bds.unregister('empty')")
        connection.execute("drop table data.empty, data.used")


def test_changes_of_a_divided_log_expire_by_company(divided: str) -> None:
    with psycopg.connect(divided, autocommit=True) as connection:
        operator = Operator(connection)
        company = operator.company("old")
        operator.write(company, "insert into data.units (code, name) values ('KG', 'kilogram')")
        connection.execute("update bds.change_log set created_at = created_at - interval '1 year' where company_id = 'old'")
        for table in ("change_months", "clocks"):  # that change was a year ago
            statement = (
                f"update bds.{table} set month = date_trunc('month', now() - interval '1 year', 'UTC') where company_id = 'old'"
            )
            connection.execute(statement.encode())
        operator.write(company, "update data.units set name = 'Kilogram' where company_id = 'old'")
        assert operator.rows("select bds.first_change('old')") == [(1,)]
        connection.execute("select bds.set_retention('30 days')")
        connection.execute("select bds.maintain()")
        assert operator.rows("select id from bds.change_log where company_id = 'old'") == [(2,)]
        assert operator.rows("select bds.first_change('old')") == [(2,)]


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif(DIVIDED > 0, reason="this run divides all tables")
def test_chosen_tests_of_suites_pass_over_divided_tables() -> None:
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not processes",
        *(f"{suite}::{test}" for suite, tests in CHOSEN.items() for test in tests),
        *(suite for suite, tests in CHOSEN.items() if not tests),
    ]
    environment = {**os.environ, "BDS_TEST_DIVIDED": str(SHARDS)}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
