"""A real PostgreSQL for every test: one embedded server for the run, one template database, a fresh copy of it wherever a test asks."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import argon2
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pytest_postgresql.janitor import DatabaseJanitor

from app import logs
from app.auth import passwords
from app.database import embedded, migrate, roles
from app.places import cluster
from tests import cpu, servers
from tests.cpu import pytest_sessionfinish, pytest_terminal_summary, pytest_testnodedown  # noqa: F401

TEMPLATE = "bds_template"
SHARED = Path(__file__).resolve().parent.parent.parent / "shared"
# Tables are divided into so many shards, as on a worker of Citus; with BDS_TEST_CITUS_URL Citus of that server has the shards
CITUS_URL = os.environ.get("BDS_TEST_CITUS_URL")
DIVIDED = int(os.environ.get("BDS_TEST_DIVIDED") or (4 if CITUS_URL else 0))
# as bds migrate sets it for a database; and shards have statistics that tests read
CITUS_OPTIONS = "-c citus.enable_ddl_propagation=off -c citus.override_table_visibility=off"
_numbers = count(1)
# Servers of tests, and the commands that tests start, write to memory where there is enough of it: to copy the template's files takes
# a third of the time that a disk needs
MEMORY = Path("/dev/shm")
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 8 << 30:
    os.environ.setdefault("TMPDIR", str(MEMORY))
    tempfile.tempdir = None
# To hash a password takes a millisecond in this process; commands, which are processes of their own, make real hashes.
passwords.HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=1024, parallelism=1)


def pytest_configure() -> None:
    """Collect no garbage while tests are collected: half of that time went into looking at objects that all stay."""
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files whose tests wait take turns with those that compute, large ones first, so that processes of pytest seldom all wait."""
    weights: dict[Path, int] = {}
    waiting = {item.path for item in items if item.get_closest_marker("processes")}
    for item in items:
        weights[item.path] = weights.get(item.path, 0) + (10 if item.get_closest_marker("slow") or item.path in waiting else 1)
    places: dict[Path, float] = {}
    for kind in (waiting, weights.keys() - waiting):
        before, total = 0, sum(weights[path] for path in kind)
        for path in sorted(kind, key=lambda path: (-weights[path], path)):
            places[path] = before / total
            before += weights[path]
    items.sort(key=lambda item: places[item.path])


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def not_divided(reason: str) -> pytest.MarkDecorator:
    """Skips a test whose fixture does what cannot be done where tables are divided."""
    return pytest.mark.skipif(DIVIDED > 0, reason=f"tables are divided: {reason}")


NO_MONTHS = not_divided("the log has no months")


def parts_of(table: str) -> str:
    """A subquery: the OIDs of a table and its shards, which have statistics of their own."""
    return f"(select '{table}'::regclass union select t.relid from pg_partition_tree('{table}') t)"


@pytest.fixture(autouse=True)
def no_log_of_another_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A command that a test runs in this process says things on a standard error that is soon closed."""
    monkeypatch.setattr(logs.LogHandler, "active", None)
    yield
    everything = logging.getLogger()
    for handler in [each for each in everything.handlers if isinstance(each, logs.LogHandler)]:
        everything.removeHandler(handler)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A connection string of the run's own server, with the template database in it."""
    if CITUS_URL:
        yield from citus_server(CITUS_URL)
        return
    directory = Path(tempfile.mkdtemp(prefix="bds-tests-"))
    url = servers.start(directory)
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("alter system set fsync = off")
            connection.execute("alter system set full_page_writes = off")  # each copy of the template begins with a checkpoint
            connection.execute("select pg_reload_conf()")
        add_template(url)
        yield url
    finally:
        cpu.add_server(directory)
        embedded.stop(directory)
        shutil.rmtree(directory)


def add_template(url: str) -> None:
    """Add the template to a server whose own database is migrated; its tables are divided where those of all tests are."""
    source = "template0 encoding 'UTF8' locale 'C.UTF-8'" if DIVIDED else f"{embedded.DATABASE} strategy file_copy"
    with psycopg.connect(make_conninfo(url, dbname="postgres"), autocommit=True) as connection:
        connection.execute(f"create database {TEMPLATE} template {source}".encode())
    template = make_conninfo(url, dbname=TEMPLATE)
    if DIVIDED:
        migrate.migrate(template, DIVIDED)
    with psycopg.connect(template) as connection:
        roles.close(connection)  # a copy has none of the rights on the database
    count_no_problems(template)


def count_no_problems(template: str) -> None:
    """Services of tests need not list the problems of each new database: those that count them set the time back."""
    with psycopg.connect(template, autocommit=True) as connection:
        connection.execute("update bds.problem_counts set counted_at = 'infinity'")


def citus_server(url: str) -> Iterator[str]:
    """A node of Citus by itself, which has all shards of the template."""
    make_citus_template(url)
    try:
        yield make_conninfo(url, options=CITUS_OPTIONS)
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"drop database {TEMPLATE} with (force)".encode())


def make_citus_template(url: str) -> None:
    template = make_conninfo(url, dbname=TEMPLATE)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"drop database if exists {TEMPLATE} with (force)".encode())
        connection.execute(f"create database {TEMPLATE} template template0 encoding 'UTF8' locale 'C.UTF-8'".encode())
    with psycopg.connect(template, autocommit=True) as connection:
        connection.execute("create extension citus")
        host = connection.info.host
        connection.execute("select citus_set_coordinator_host(%s, inet_server_port())", (host,))
        connection.execute("select citus_set_node_property(%s, inet_server_port(), 'shouldhaveshards', true)", (host,))
    migrate.migrate(template, DIVIDED or None)
    count_no_problems(template)
    place_shards(template)
    close(url, TEMPLATE)


def close(url: str, database: str) -> None:
    """End the sessions of a database that is to be copied: Citus has a process in each."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"alter database {database} allow_connections false".encode())
        connection.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", (database,))


def place_shards(url: str) -> None:
    """Let Citus place shards of tables that have been registered, as bds sql does."""
    if CITUS_URL:
        with psycopg.connect(url, autocommit=True) as connection:
            list(cluster.distribute(connection))
        cluster.attach(url)


class Janitor(DatabaseJanitor):
    """Copies the template's files: a third of the time that writing them to the log takes.

    A database is dropped when the next one ends: for sessions that are just ending PostgreSQL waits in steps of 100 ms.
    """

    _ended: ClassVar[list[DatabaseJanitor]] = []

    def _build_create_database_sql(self) -> sql.Composed:
        return super()._build_create_database_sql() + sql.SQL(" strategy file_copy")

    def __exit__(self, *_: object) -> None:
        with self.cursor() as cursor:
            self._dont_datallowconn(cursor, self.dbname)
            self._terminate_connection(cursor, self.dbname)
        self._ended.append(self)
        self.drop_ended(but=1)

    @classmethod
    def drop_ended(cls, but: int = 0) -> None:
        while len(cls._ended) > but:
            cls._ended.pop(0).drop()


def fresh_database(server: str, template: str = TEMPLATE) -> Iterator[str]:
    where = conninfo_to_dict(server)
    name = f"test_{next(_numbers)}"
    janitor = Janitor(
        user=str(where["user"]), host=str(where["host"]), port=where.get("port") or 5432, dbname=name, template_dbname=template
    )
    with janitor:
        yield make_conninfo(server, dbname=name)


def prepared(server: str, prepare: str | Callable[[Operator], object], template: str = TEMPLATE) -> Iterator[str]:
    """The name of a template in which statements, or a function, have been run: what all tests of a module would do first."""
    for url in fresh_database(server, template):
        with psycopg.connect(url, autocommit=True) as connection:
            if isinstance(prepare, str):
                connection.execute(prepare.encode())
            else:
                prepare(Operator(connection))
            name = connection.info.dbname
        place_shards(url)
        close(server, name)
        yield name


def with_entities(server: str, *kept: str) -> Iterator[str]:
    """The name of a template that has these of the nine entities and no other table: it is copied and looked through in less time."""

    def prepare(operator: Operator) -> None:
        for name, table in operator.rows("select name, table_name::text from bds.entities order by ordinal desc"):
            if name not in kept:
                operator.rows(f"select bds.unregister('{name}')")
                operator.connection.execute(f"drop table {table}".encode())
        operator.connection.execute(
            "vacuum (full, analyze) pg_proc, pg_attribute, pg_depend, pg_description, pg_class, pg_rewrite, pg_type"
        )

    if DIVIDED:  # tables come and go by other ways there
        yield TEMPLATE
    else:
        yield from prepared(server, prepare)


@pytest.fixture(scope="session")
def of_units(server: str) -> Iterator[str]:
    yield from with_entities(server, "units")


@pytest.fixture(scope="session")
def of_products(server: str) -> Iterator[str]:
    yield from with_entities(server, "units", "categories", "products", "productVariants")


@pytest.fixture(scope="module")
def template() -> str:
    """The template of a module's databases: the migrated one, unless the module prepares its own."""
    return TEMPLATE


@pytest.fixture
def database_url(server: str, template: str) -> Iterator[str]:
    """A fresh, migrated database for one test."""
    yield from fresh_database(server, template)


@pytest.fixture(scope="module")
def module_database_url(server: str, template: str) -> Iterator[str]:
    """A fresh, migrated database for the tests of one module, which keep apart by company."""
    yield from fresh_database(server, template)


@dataclass(frozen=True)
class Operator:
    """The operator's connection (autocommit), and what an operator does before a test."""

    connection: psycopg.Connection[Any]

    def company(self, name: str, tenant: str | None = None) -> str:
        self.connection.execute("select bds.create_company(%s, %s)", (name, tenant))
        return name

    def delete_company(self, name: str) -> None:
        self.connection.execute("select bds.delete_company(%s)", (name,))

    def key(self, *companies: str, tenant: str | None = None, scopes: tuple[str, ...] = ("read", "import", "hooks")) -> str:
        """An API key for the companies, or for all of the tenant's."""
        key = "bds_" + secrets.token_urlsafe(32)
        self.connection.execute(
            "select bds.create_key(%s, 'test', %s, %s, %s)",
            (hashlib.sha256(key.encode()).digest(), list(companies) or None, tenant, list(scopes)),
        )
        return key

    def write(self, company: str, statement: str, parameters: tuple[Any, ...] = (), **context: Any) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction that names the company; returns its rows."""
        with self.connection.transaction():
            self.connection.execute(
                "select bds.set_context(%s, %s, %s)", (company, context.get("actor"), context.get("change_set"))
            )
            cursor = self.connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def rows(self, query: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode(), parameters).fetchall()


@pytest.fixture
def operator(database_url: str) -> Iterator[Operator]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield Operator(connection)


def new_session(url: str, role: str | None = None, company: str | None = None) -> psycopg.Connection[Any]:
    connection = psycopg.connect(url, autocommit=True)
    if role:
        connection.execute(f"set role {role}".encode())
    if company:
        connection.execute("select set_config('bds.company', %s, false)", (company,))
    return connection


@pytest.fixture
def connect(database_url: str) -> Iterator[Callable[..., psycopg.Connection[Any]]]:
    """Open further connections to the test's database, in autocommit mode, as a role if one is named."""
    opened: list[psycopg.Connection[Any]] = []

    def connect(role: str | None = None, company: str | None = None) -> psycopg.Connection[Any]:
        opened.append(new_session(database_url, role, company))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def shared() -> Path:
    """The folder of real input; tests that need it are skipped where it is not."""
    if not (SHARED / "tools" / "make_feed.py").exists():
        pytest.skip("no real input beside the project")
    return SHARED
