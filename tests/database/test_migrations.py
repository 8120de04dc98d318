"""Migrations: once, in order, safe from two processes at once, and never silently changed."""

import hashlib
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from app.database import applying, migrate, units, waiting
from tests.conftest import Operator
from tests.database.test_problems import fill, problems

pytestmark = pytest.mark.slow


@pytest.fixture
def empty_url(server: str, request: pytest.FixtureRequest):
    name = f"empty_{request.node.name}"[:60]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0".encode())
        yield make_conninfo(server, dbname=name)
        connection.execute(f"drop database {name} with (force)".encode())


def test_an_empty_database_is_migrated_as_planned_once_by_processes_that_begin_at_once(empty_url: str) -> None:
    steps: list[migrate.Step] = []
    planned = migrate.plan(empty_url, steps)
    assert [each.name for each in steps] == planned and not any(each.locks for each in steps), "no table was there"
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("select to_regnamespace('bds'), to_regclass('public.bds_migrations')").fetchone() == (None, None)
    assert planned[0] == "migrations/0001_schemas.sql"
    program = "import json, sys; from app.database import migrate; print(json.dumps(migrate.migrate(sys.argv[1])))"
    workers = [
        subprocess.Popen([sys.executable, "-c", program, empty_url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    outputs = [worker.communicate(timeout=60) for worker in workers]
    assert all(worker.returncode == 0 for worker in workers), outputs
    assert sorted((json.loads(out) for out, _ in outputs), key=len) == [[], [], [], planned], "each file once"
    assert migrate.is_current(empty_url)
    assert migrate.migrate(empty_url) == []


OLDER = """
    update bds.generated set objects = objects || '{"server:": "16", "policy:own_company": "otherwise", "view:api.stores": "otherwise"}';
    update bds_operation.made set definition = 'otherwise' where is_printed;
    update bds_operation.made set definition = '16' where type = 'server'
"""


def test_on_another_version_of_the_server_bds_migrate_makes_everything_again(operator: Operator, database_url: str) -> None:
    fill(operator)
    operator.connection.execute(OLDER.encode())
    operator.connection.execute("alter function bds.require_company leakproof; grant update on bds.clocks to bds_reader")
    assert [(p[0], p[3]) for p in problems(operator)] == [
        ("altered rights", "bds.clocks"),
        ("altered function", "bds.require_company(text)"),
        ("altered server", f"PostgreSQL {operator.connection.info.server_version // 10000}"),
    ], "what is the same in every version is compared"
    assert {p[5] for p in problems(operator)[1:]} == {"bds migrate"}
    assert "entity" not in " ".join(migrate.plan(database_url)) and problems(operator)
    applied = migrate.migrate(database_url)
    assert {"10_tenancy", "99_grants.sql", "stores: functions", "stores: views", "stores: table"} <= set(applied)
    assert problems(operator) == [] and migrate.migrate(database_url) == []
    operator.connection.execute("drop function bds_operation.differences")
    assert "90_operation" in migrate.migrate(database_url) and problems(operator) == []


def test_what_another_version_of_postgresql_has_recorded_is_made_anew(database_url: str) -> None:
    """As after a dump of 17 was restored on 18, where nothing else is due."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("update bds.generated set objects = jsonb_set(objects, '{server:}', '\"16\"') where entity = 'units'")
        assert connection.execute("select kind, entity from bds.problems").fetchall() == [("altered server", None)]
        assert "20_registry" in migrate.migrate(database_url)
        assert connection.execute("select from bds.problems").fetchall() == []
    assert migrate.migrate(database_url) == []


def test_a_run_tells_for_whom_it_waits(database_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with ThreadPoolExecutor() as threads:
        with psycopg.connect(database_url, autocommit=True, application_name="mine") as stranger:
            stranger.execute("select pg_advisory_lock(%s)", (waiting.LOCK,))
            run = threads.submit(migrate.migrate, database_url)
            while not (caplog.messages or run.done()):
                pass
            assert caplog.messages == [
                f"waiting for another session that migrates: pid {stranger.info.backend_pid}, postgres, mine"
            ]
        assert run.result() == []


@pytest.fixture
def own_sql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = tmp_path / "sql"
    shutil.copytree(units.SQL, copy)
    monkeypatch.setattr(units, "SQL", copy)
    return copy


def test_functions_are_applied_again_when_their_file_changes(database_url: str, own_sql: Path) -> None:
    with (own_sql / "10_tenancy" / "1_companies.sql").open("a") as file:
        file.write("create or replace function bds.newcomer() returns int language sql return 7;\n")
    assert not migrate.is_current(database_url)
    assert migrate.migrate(database_url) == ["10_tenancy", "99_grants.sql"]
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select bds.newcomer()").fetchone() == (7,)


def test_a_plan_tells_what_each_step_locks(database_url: str, own_sql: Path) -> None:
    (own_sql / "migrations" / "0099_table.sql").write_text(
        "alter table data.units add extra int;\ncreate table bds.newcomers (id int);\n"
    )
    steps: list[migrate.Step] = []
    assert migrate.plan(database_url, steps)[0] == "migrations/0099_table.sql"
    assert steps[0].locks == ["data.units (access exclusive)"] and steps[0].seconds > 0
    assert not any("units" in lock for each in steps[1:] for lock in each.locks)


def test_a_migration_that_was_applied_may_not_change(database_url: str, own_sql: Path) -> None:
    with (own_sql / "migrations" / "0002_tenancy.sql").open("a") as file:
        file.write("-- an afterthought\n")
    with pytest.raises(migrate.MigrationError, match=r"0002_tenancy\.sql was changed after it was applied"):
        migrate.migrate(database_url)


def test_what_was_released_is_as_it_was_and_comes_first() -> None:
    folder = units.SQL / "migrations"
    released = dict(reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines())
    here = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.sql"))}
    assert list(here)[: len(released)] == list(released)
    assert {name: here[name] for name in released} == released


def test_a_database_that_is_newer_is_left_alone(database_url: str, own_sql: Path) -> None:
    (own_sql / "migrations" / "0099_future.sql").write_text("select 1;\n")
    migrate.migrate(database_url)
    (own_sql / "migrations" / "0099_future.sql").unlink()
    with pytest.raises(migrate.MigrationError, match=r"newer than this program.*0099_future"):
        migrate.migrate(database_url)


def test_a_file_that_fails_leaves_nothing_and_names_its_line(empty_url: str, own_sql: Path) -> None:
    (own_sql / "migrations" / "0003_wrong.sql").write_text("create table data.half (id int);\nselect nothing_like_it;\n")
    with pytest.raises(migrate.MigrationError, match=r"0003_wrong.sql, line 2: .*nothing_like_it"):
        migrate.migrate(empty_url)
    with psycopg.connect(empty_url) as connection:
        assert connection.execute("select to_regclass('data.half')").fetchone() == (None,)


def test_a_run_that_dies_before_the_grants_is_finished_by_the_next(
    database_url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (own_sql / "80_accounts" / "3_throttle.sql").open("a") as file:
        file.write("create function bds.newcomer() returns int language sql return 7;\n")
    apply = applying.apply

    def die_at_the_grants(connection: psycopg.Connection, unit: units.Unit) -> None:
        if unit.name == units.LAST:
            raise KeyboardInterrupt
        apply(connection, unit)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(applying, "apply", die_at_the_grants)
        migrate.migrate(database_url)
    assert not migrate.is_current(database_url)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select to_regproc('bds.newcomer')").fetchone() == (None,)
    assert migrate.migrate(database_url) == ["80_accounts", units.LAST]
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select has_function_privilege('public', 'bds.newcomer()', 'execute')").fetchone() == (False,)


def test_a_run_that_dies_between_a_migration_and_the_grants_is_finished_by_the_next(
    database_url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_sql / "migrations" / "0099_table.sql").write_text("create table bds.newcomers (id int);\n")
    with (own_sql / units.LAST).open("a") as file:
        file.write("grant select on bds.newcomers to bds_operator;\n")
    apply = applying.apply

    def die_after_the_migration(connection: psycopg.Connection, unit: units.Unit) -> None:
        if not unit.is_migration:
            raise KeyboardInterrupt
        apply(connection, unit)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(applying, "apply", die_after_the_migration)
        migrate.migrate(database_url)
    assert not migrate.is_current(database_url)
    assert migrate.migrate(database_url) == [units.LAST]


def test_functions_are_committed_with_the_version_of_their_program(
    database_url: str, own_sql: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (own_sql / "80_accounts" / "3_throttle.sql").open("a") as file:
        file.write("create function bds.newcomer() returns int language sql return 7;\n")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(migrate, "version", lambda: "99.0")
        patched.setattr(migrate, "_due_parts", lambda *_: die() if applied(database_url) == "99.0" else [])
        migrate.migrate(database_url)
    assert applied(database_url) == "99.0"


def applied(url: str) -> str:
    """The version that has migrated a database."""
    with psycopg.connect(url) as connection:
        row = connection.execute("select checksum from public.bds_migrations where name = 'version'").fetchone()
    assert row is not None
    return str(row[0])


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_an_internal_function_changes_its_parameters_and_its_result_without_a_migration(database_url: str, own_sql: Path) -> None:
    path = own_sql / "80_accounts" / "3_throttle.sql"
    text = path.read_text()
    assert "bds_accounts.network_of(address inet, bits int default 32)\n    returns cidr" in text
    text = text.replace(
        "bds_accounts.network_of(address inet, bits int default 32)\n    returns cidr",
        "bds_accounts.network_of(where_from inet, bits int default 32)\n    returns inet",
    )
    path.write_text(text.replace("set_masklen(address, case family(address)", "set_masklen(where_from, case family(where_from)"))
    assert migrate.migrate(database_url) == ["80_accounts", units.LAST]
    with psycopg.connect(database_url) as connection:
        assert connection.execute(
            "select oid::regprocedure::text, prorettype::regtype::text from pg_proc where proname = 'network_of'"
        ).fetchall() == [("bds_accounts.network_of(inet,integer)", "inet")]
        assert connection.execute("select bds_service.count_wrong('10.0.0.1', 9)").fetchone() == (None,)


def test_a_public_function_whose_result_changes_is_refused_by_its_line(database_url: str, own_sql: Path) -> None:
    path = own_sql / "90_operation" / "1_operation.sql"
    replace(path, "    returns bigint\n", "    returns int\n")
    line = 1 + path.read_text().split("function bds.after_restore")[0].count("\n")
    with pytest.raises(
        migrate.MigrationError, match=rf"sql/90_operation/1_operation.sql, line {line}: .*; a public function keeps"
    ):
        migrate.migrate(database_url)


@pytest.mark.parametrize(
    ("file", "function"),
    [("90_operation/1_operation.sql", "bds.after_restore"), ("60_webhooks/6_queue.sql", "bds_service.next_due")],
)
def test_a_public_function_whose_parameters_change_is_refused_by_its_line(
    database_url: str, own_sql: Path, file: str, function: str
) -> None:
    path = own_sql / file
    replace(path, f"function {function}()\n", f"function {function}(thoroughly boolean)\n")
    replace(path, f"comment on function {function}() is", f"comment on function {function}(boolean) is")
    line = 1 + path.read_text().split(f"function {function}")[0].count("\n")
    with pytest.raises(
        migrate.MigrationError, match=rf"line {line}: {function} exists twice, .*boolean.*; a public function keeps"
    ):
        migrate.migrate(database_url)


def test_nothing_outside_a_schema_of_internals_depends_on_what_is_in_it(server: str) -> None:
    made_anew = [schema for path in units.SQL.glob("*/00_schema.sql") for schema in units.made_anew(path.read_text())]
    assert len(made_anew) == 13
    with psycopg.connect(make_conninfo(server, dbname="bds_template")) as connection:
        for name in made_anew:
            assert connection.execute(applying.DEPENDENTS, {"schema": name}).fetchall() == [], name


@pytest.mark.parametrize(
    ("folder", "schema", "query"),
    [
        ("80_accounts", "bds_accounts", "select bds_accounts.network_of('10.0.0.1', 24)"),
        ("50_feed", "bds_feed", "select name from bds_feed.tables"),
    ],
)
def test_a_view_of_a_dbas_own_over_internals_is_not_dropped_silently(
    database_url: str, own_sql: Path, folder: str, schema: str, query: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(f"create view public.mine as {query}".encode())
    with max((own_sql / folder).glob("*.sql")).open("a") as file:
        file.write("-- changed\n")
    with pytest.raises(migrate.MigrationError, match=rf"00_schema\.sql: drop what depends on .*{schema} first: .*view mine"):
        migrate.migrate(database_url)
    with psycopg.connect(database_url) as connection:
        connection.execute("drop view public.mine")
    assert migrate.migrate(database_url) == [folder, units.LAST]
