"""`bds migrate` and maintenance beside sessions that read and write: only what differs is touched, and nobody is stopped.

A reader is open in all of these tests.  That a writer goes on is: its statement has finished while the reader was open.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.cli import main
from app.database import migrate, units, waiting
from tests.conftest import prepared
from tests.database.test_migrations import own_sql, replace

pytestmark = pytest.mark.slow

__all__ = ["own_sql"]  # a fixture

ENTITIES = (
    "units", "categories", "products", "productVariants", "customers", "orders", "orderItems", "invoices", "invoiceItems"
)  # fmt: skip
STATE = """
    select 'g', entity, part || fingerprint from bds.generated union all
    select 'm', name, checksum || applied_at from public.bds_migrations union all
    select 'f', oid::regprocedure::text, md5(prosrc) || xmin::text from pg_proc where pronamespace::regnamespace::text ~ '^bds' union all
    select 'p', polname, oid::text from pg_policy union all
    select 'r', oid::regclass::text, xmin::text from pg_class where relnamespace::regnamespace::text ~ '^(bds|api|my|data)'
    order by 1, 2, 3
"""


@pytest.fixture(scope="module")
def template(server: str) -> Iterator[str]:
    yield from prepared(server, "select bds.create_company('acme'), bds.create_company('beta')")


@pytest.fixture
def url(database_url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in (("LOCK_TIMEOUT", "200ms"), ("LOCK_PAUSE", 0.2), ("LOCK_TRIES", 1000)):
        monkeypatch.setattr(waiting, name, value)
    return database_url


@pytest.fixture
def reader(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url) as connection:
        connection.execute("select from bds.change_log")
        connection.execute("select from api.products")
        yield connection


def write(url: str, company: str, *statements: str) -> None:
    """Write in a session of its own, which gives up only after a minute."""
    with psycopg.connect(url) as connection:
        connection.execute("set statement_timeout = '60s'")
        connection.execute("select bds.set_context(%s)", (company,))
        for statement in statements:
            connection.execute(statement.encode())


def change_policies(own_sql: Path) -> None:
    replace(own_sql / "20_registry" / "3_install.sql", "to bds_operator using (true)'", "to bds_operator using (1 = 1)'")


def change_log_functions(own_sql: Path) -> None:
    replace(
        own_sql / "30_change_log" / "31_log_functions.sql",
        "        if is_single then\n",
        "    -- a word about it\n        if is_single then\n",
    )


def change_positions(own_sql: Path) -> None:
    """Another definition of the view bds.entity_positions, with the same rows."""
    replace(
        own_sql / "30_change_log" / "21_changes.sql",
        "jsonb_each_text(c.positions) p;",
        "jsonb_each_text(c.positions) p where true;",
    )


def wait_for_lock(url: str, done: Future[Any], pid: int | None = None) -> None:
    """Wait until a session waits for a lock: `bds migrate`, unless one is named."""
    waits = """
        select from pg_locks l join pg_stat_activity a using (pid)
        where not l.granted and case when %(pid)s::int is null then a.application_name = 'bds migrate' else l.pid = %(pid)s end
    """
    with psycopg.connect(url, autocommit=True) as other:
        while not other.execute(waits.encode(), {"pid": pid}).fetchall():
            assert not done.done()


def test_what_changes_nothing_that_is_generated_touches_no_entity(reader: psycopg.Connection[Any], url: str, own_sql: Path) -> None:
    for folder in ("05_impl", "20_registry", "30_change_log"):
        with sorted((own_sql / folder).glob("*.sql"))[-1].open("a") as file:
            file.write("-- changed\n")
    assert migrate.migrate(url) == ["05_impl", "20_registry", "30_change_log", units.LAST]
    assert reader.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


def test_views_that_are_as_they_would_be_made_are_left_to_their_readers(
    reader: psycopg.Connection[Any], url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where everything else of their folder changes; one that differs is replaced, and is waited for."""
    monkeypatch.setattr(waiting, "LOCK_TRIES", 1)
    views = [view for unit in units.read_units() for _, text in unit.files for view, _ in units.pieces(text) if view]
    for view in views:
        reader.execute(f"select from {view} limit 0".encode())
    for folder in set(own_sql.glob("[0-9]*_*/")) - {own_sql / "55_entities"}:  # which registers tables again
        with sorted(folder.glob("*.sql"))[-1].open("a") as file:
            file.write("-- changed\n")
    assert len(views) > 15 and "30_change_log" in migrate.plan(url)
    change_positions(own_sql)
    with pytest.raises(migrate.MigrationError, match="another session held a lock in each of 1 tries"):
        migrate.migrate(url)
    reader.rollback()
    migrate.migrate(url)
    assert migrate.is_current(url)
    assert reader.execute("select pg_get_viewdef('bds.entity_positions'::regclass) ~ 'WHERE true'").fetchone() == (True,)


def test_it_waits_for_imports_with_nothing_that_they_will_need(url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They use bds_feed.entities first, then tables of that schema."""
    monkeypatch.setattr(waiting, "LOCK_TIMEOUT", "20s")  # long enough for PostgreSQL to find a deadlock
    monkeypatch.setattr(waiting, "LOCK_TRIES", 1)
    with (own_sql / "50_feed" / "90_api.sql").open("a") as file:
        file.write("-- changed\n")
    with ThreadPoolExecutor() as threads, psycopg.connect(url) as importer:
        importer.execute("select from bds_feed.entities")
        done = threads.submit(migrate.migrate, url)
        wait_for_lock(url, done)
        importer.execute("select from bds_feed.state, bds_feed.tables, bds_feed.versions, bds_impl.types")
        importer.rollback()
        assert done.result(timeout=60)[:1] == ["50_feed"]


@pytest.mark.parametrize("is_small", [True, False])
def test_an_import_uses_the_entities_first(url: str, is_small: bool) -> None:
    with ThreadPoolExecutor() as threads, psycopg.connect(url, autocommit=True) as importer, psycopg.connect(url) as holder:
        run = """select bds.import_rows('acme', '{"units": [{"@ordinal": 0, "code": "A", "name": "a"}]}')"""
        if not is_small:
            [(id,)] = importer.execute("select bds.import_begin('acme')").fetchall()
            [(table,)] = importer.execute("select bds.import_stage('acme', %s, 'units')", (id,)).fetchall()
            importer.execute(f"insert into {table} (\"@ordinal\", code, name) values (0, 'A', 'a')".encode())
            run = f"select bds.import_run('acme', '{id}')"
        holder.execute("lock table only bds_feed.state, only bds_feed.versions in access exclusive mode")
        imported = threads.submit(importer.execute, run.encode())
        wait_for_lock(url, imported, importer.info.backend_pid)
        locks = "select array_agg(relation::regclass::text) from pg_locks where pid = %s and relation::regclass::text ~ '^bds_feed.[a-z]+$' and granted"
        assert holder.execute(locks, (importer.info.backend_pid,)).fetchone() == (["bds_feed.entities"],)
        holder.rollback()
        assert imported.result(timeout=60).fetchone()[0]["entities"]["units"]["created"] == 1  # type: ignore[index]


def test_new_log_functions_wait_for_no_reader(reader: psycopg.Connection[Any], url: str, own_sql: Path) -> None:
    change_log_functions(own_sql)
    assert migrate.migrate(url) == ["30_change_log", units.LAST, *(f"{name}: functions" for name in ENTITIES)]
    write(url, "acme", "insert into data.products (code, name) values ('a', 'A')", "update data.products set name = 'B'")
    with psycopg.connect(url) as connection:
        assert connection.execute(
            "select prosrc ~ 'a word about it' from pg_proc where proname = 'products_update'"
        ).fetchone() == (True,)
        assert connection.execute("select count(*) from bds.changes where entity = 'products'").fetchone() == (2,)


def test_a_change_to_a_table_that_is_read_waits_and_writers_go_on(reader: psycopg.Connection[Any], url: str, own_sql: Path) -> None:
    change_policies(own_sql)
    with ThreadPoolExecutor() as threads, psycopg.connect(url, autocommit=True) as other:
        done = threads.submit(migrate.migrate, url)
        wait_for_lock(url, done)
        try:
            # what comes before the table is installed and stays so; a try that waits makes others wait no longer than itself
            assert other.execute("select count(*) from pg_policy where pg_get_expr(polqual, polrelid) = '(1 = 1)'").fetchone() == (
                2,
            )
            write(url, "acme", "insert into data.units (code, name) values ('a', 'A')", "update data.units set name = 'B'")
            write(url, "beta", "insert into data.products (code, name) values ('a', 'A')", "update data.products set name = 'B'")
            write(url, "acme", "insert into data.orders (code, order_date) values ('a', now())")
            other.execute("set statement_timeout = '60s'; select from api.products; select from bds.changes; select bds.maintain()")
            assert not done.done()
        finally:
            reader.rollback()
        assert done.result(timeout=120) == ["20_registry", units.LAST, *(f"{name}: table" for name in ENTITIES)]
        assert other.execute("select count(*) from pg_policy where pg_get_expr(polqual, polrelid) = '(1 = 1)'").fetchone() == (9,)
    assert migrate.is_current(url) and migrate.migrate(url) == []


def test_an_upgrade_that_gets_no_lock_tells_the_oldest_transaction_gives_up_and_is_finished_by_the_next(
    reader: psycopg.Connection[Any], url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waiting, "LOCK_TRIES", 2)
    monkeypatch.setattr(waiting, "TELLING", 1)
    change_policies(own_sql)
    with pytest.raises(migrate.MigrationError, match=r"another session held a lock in each of 2 tries.*table of entity products"):
        migrate.migrate(url)
    assert f"tries left: 1; the oldest transaction: pid {reader.info.backend_pid}, postgres, " in caplog.text
    assert not migrate.is_current(url)
    reader.rollback()
    assert migrate.migrate(url) == [units.LAST, *(f"{name}: table" for name in ENTITIES[2:])]
    assert migrate.is_current(url)


def test_no_lock_of_another_session_ends_an_upgrade_at_once(url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever waits for a lock is tried again: the first and the last step, too."""
    change_log_functions(own_sql)
    for table, mode in (
        ("public.bds_migrations", "share update exclusive"), ("public.bds_migrations", "access exclusive"),
        ("bds.generated", "access exclusive"), ("bds.clocks", "share"),
    ):  # fmt: skip
        with psycopg.connect(url) as holder, monkeypatch.context() as patched:
            holder.execute(f"lock table {table} in {mode} mode".encode())
            patched.setattr(waiting, "LOCK_TRIES", 2)
            with pytest.raises(migrate.MigrationError, match="another session held a lock in each of 2 tries"):
                migrate.migrate(url)
    migrate.migrate(url)
    assert migrate.is_current(url) and migrate.plan(url) == []


def test_an_upgrade_that_is_killed_between_two_entities_is_finished_by_the_next(
    url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_policies(own_sql)
    install = migrate._install_part

    def die_at_customers(connection: psycopg.Connection[Any], entity: str, part: str) -> None:
        if entity == "customers":
            raise KeyboardInterrupt
        install(connection, entity, part)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(migrate, "_install_part", die_at_customers)
        migrate.migrate(url)
    assert not migrate.is_current(url)
    assert migrate.migrate(url) == [units.LAST, *(f"{name}: table" for name in ENTITIES[4:])]
    assert migrate.is_current(url)


def test_tables_that_were_dropped_or_altered_stop_no_other_entity(
    url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("drop table data.orders cascade; alter table data.customers drop column city cascade")
    change_policies(own_sql)
    change_log_functions(own_sql)
    lost = "column order_id no longer refers to order; bds.register refuses it: the table of its parent orders was dropped"
    again = "select bds.register('data.customers', entity => 'customers', singular => 'customer')"
    monkeypatch.setenv("BDS_DATABASE_URL", url)
    assert main.main(["migrate"]) == 1
    lines = capfd.readouterr().err.splitlines()
    assert lines[-3:] == [
        "bds: 2 entities are not up to date:",
        f"  orderItems: {lost}",
        f"  customers: column city was dropped; mend: {again}",
    ]
    others = [name for name in ENTITIES if name not in ("customers", "orders", "orderItems")]
    assert {f"entity {name}: {part}" for name in others for part in ("functions", "table")} <= set(lines)
    assert migrate.is_current(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(again.encode())
        connection.execute("select bds.unregister('orderItems'), bds.unregister('orders'), bds.register('data.invoices')")
    assert main.main(["migrate"]) == 0


def state(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(STATE.encode()).fetchall()


def test_a_plan_names_what_would_be_applied_and_changes_nothing(url: str, own_sql: Path) -> None:
    assert migrate.plan(url) == []
    change_policies(own_sql)
    change_log_functions(own_sql)
    (own_sql / "migrations" / "0099_table.sql").write_text("create table bds.newcomers (id int primary key);\n")
    before = state(url)
    planned = migrate.plan(url)
    assert state(url) == before and not migrate.is_current(url)
    assert planned[:4] == ["migrations/0099_table.sql", "20_registry", "30_change_log", units.LAST]
    assert planned[4:] == [f"{name}: {part}" for part in ("functions", "table") for name in ENTITIES]
    assert migrate.migrate(url) == planned


def test_a_plan_waits_for_no_reader_of_an_entity_and_stops_none(
    reader: psycopg.Connection[Any], url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LOCK_TRIES", 1)
    change_policies(own_sql)
    assert migrate.plan(url) == ["20_registry", units.LAST, *(f"{name}: table" for name in ENTITIES)]
    assert reader.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


def test_a_plan_locks_views_and_tables_in_the_order_of_readers(url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for one that has read a view, and that waits for a table of a migration before it."""
    monkeypatch.setattr(waiting, "LOCK_TRIES", 1)
    monkeypatch.setattr(waiting, "LOCK_TIMEOUT", "60s")
    migration = "alter table bds.change_months add constraint new_check check (true)"
    (own_sql / "migrations" / "0099_constraint.sql").write_text(migration)
    change_positions(own_sql)
    with ThreadPoolExecutor() as threads, psycopg.connect(url) as connection:
        connection.execute("select from bds.entity_positions")
        done = threads.submit(migrate.plan, url)
        wait_for_lock(url, done)
        connection.execute("set local lock_timeout = '10s'; select from bds.change_months")
        connection.rollback()
        assert done.result(timeout=120) == ["migrations/0099_constraint.sql", "30_change_log", units.LAST]


def test_an_entity_whose_comment_changed_is_generated_again_alone(url: str, own_sql: Path) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("comment on table data.units is 'What is measured in'")
    with (own_sql / units.LAST).open("a") as file:
        file.write("-- changed\n")
    assert migrate.migrate(url) == [units.LAST, "units: views"]
    with psycopg.connect(url) as connection:
        assert connection.execute("select obj_description('api.units'::regclass)").fetchone() == ("What is measured in",)
