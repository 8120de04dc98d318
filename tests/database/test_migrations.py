"""Migrations: once, in order, safe from two processes at once, and never silently changed."""

import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from app.database import migrate


@pytest.fixture
def empty_url(server: str, request: pytest.FixtureRequest):
    name = f"empty_{request.node.name}"[:60]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0".encode())
        yield make_conninfo(server, dbname=name)
        connection.execute(f"drop database {name} with (force)".encode())


def test_a_second_run_finds_nothing_to_do(empty_url: str) -> None:
    assert migrate.migrate(empty_url)[0] == "migrations/0001_core.sql"
    assert migrate.is_current(empty_url)
    assert migrate.migrate(empty_url) == []


def test_two_processes_at_once_apply_each_file_once(empty_url: str) -> None:
    program = "import sys; from app.database import migrate; print(len(migrate.migrate(sys.argv[1])))"
    workers = [
        subprocess.Popen([sys.executable, "-c", program, empty_url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    outputs = [worker.communicate(timeout=60) for worker in workers]
    assert all(worker.returncode == 0 for worker in workers), outputs
    assert sorted(int(out) for out, _ in outputs)[:3] == [0, 0, 0]


@pytest.fixture
def own_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "sql"
    shutil.copytree(migrate.SQL, copy)
    monkeypatch.setattr(migrate, "SQL", copy)
    return copy


def test_functions_are_applied_again_when_their_file_changes(empty_url: str, own_sql: Path) -> None:
    migrate.migrate(empty_url)
    with (own_sql / "01_tenancy.sql").open("a") as file:
        file.write("create or replace function bds.newcomer() returns int language sql return 7;\n")
    assert not migrate.is_current(empty_url)
    assert migrate.migrate(empty_url) == ["01_tenancy.sql", "99_grants.sql"]
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("select bds.newcomer()").fetchone() == (7,)


def test_a_migration_that_was_applied_may_not_change(empty_url: str, own_sql: Path) -> None:
    migrate.migrate(empty_url)
    with (own_sql / "migrations" / "0002_business.sql").open("a") as file:
        file.write("-- an afterthought\n")
    with pytest.raises(migrate.MigrationError, match=r"0002_business\.sql was changed after it was applied"):
        migrate.migrate(empty_url)


def test_a_database_that_is_newer_is_left_alone(empty_url: str, own_sql: Path) -> None:
    (own_sql / "migrations" / "0099_future.sql").write_text("select 1;\n")
    migrate.migrate(empty_url)
    (own_sql / "migrations" / "0099_future.sql").unlink()
    with pytest.raises(migrate.MigrationError, match=r"newer than this program.*0099_future"):
        migrate.migrate(empty_url)


def test_a_file_that_fails_leaves_nothing_and_names_its_line(empty_url: str, own_sql: Path) -> None:
    (own_sql / "migrations" / "0003_wrong.sql").write_text("create table data.half (id int);\nselect nothing_like_it;\n")
    with pytest.raises(migrate.MigrationError, match=r"0003_wrong.sql, line 2: .*nothing_like_it"):
        migrate.migrate(empty_url)
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("select to_regclass('data.half')").fetchone() == (None,)


def test_a_run_that_dies_before_the_grants_is_finished_by_the_next(
    empty_url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.migrate(empty_url)
    with (own_sql / "08_accounts.sql").open("a") as file:
        file.write("create function bds.newcomer() returns int language sql return 7;\n")
    apply = migrate._apply

    def die_at_the_grants(connection: psycopg.Connection, name: str, *rest: str) -> None:
        if name == migrate.LAST:
            raise KeyboardInterrupt
        apply(connection, name, *rest)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(migrate, "_apply", die_at_the_grants)
        migrate.migrate(empty_url)
    assert not migrate.is_current(empty_url)
    assert migrate.migrate(empty_url) == [migrate.LAST]
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("select has_function_privilege('public', 'bds.newcomer()', 'execute')").fetchone() == (False,)


def test_a_month_whose_changes_went_to_the_default_partition_stops_no_migration(empty_url: str) -> None:
    migrate.migrate(empty_url)
    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute("select bds.create_company('acme')")
        connection.execute(
            "do $$ begin execute 'drop table bds.change_log_' || to_char(now() at time zone 'UTC', 'YYYY_MM'); end $$"
        )
        connection.execute("insert into data.units (company_id, code, name) values ('acme', 'a', 'A')")
        connection.execute("select bds.make_partitions()")
        assert connection.execute("select count(*) from bds.change_log_default").fetchone() == (1,)
