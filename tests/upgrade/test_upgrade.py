"""A database of the last release is brought up to this one: its rows, its log, its keys, its imports and its queue go on.

baseline.sql.xz is that database, as `python -m tests.upgrade.snapshot` wrote it.  Before the upgrade every unit of `sql/` gets another
checksum, and a function that has been removed: so all of them are due, whether or not anything changed since the release.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from app.database import migrate, units
from tests.conftest import Operator
from tests.database.postgres_tools import run
from tests.service.serving import running
from tests.upgrade.built import assert_built_alike
from tests.upgrade.snapshot import KEY, REVOKED, SNAPSHOT, run_import, stage

pytestmark = pytest.mark.processes


@dataclass(frozen=True)
class Upgraded:
    """The database, what was in it before, its migrations of then, and what was applied."""

    url: str
    before: dict[str, list[Any]]
    migrations: list[str]
    applied: list[str]


def tables(connection: psycopg.Connection[Any]) -> dict[str, list[Any]]:
    """Every row of every table but the runner's own: its list, and the fingerprints of what it has generated."""
    ordinal = " - 'ordinal'"  # navigations are numbered anew
    return {
        name: connection.execute(
            f"select to_jsonb(t){ordinal if name == 'bds.navigations' else ''} from {name} t order by 1".encode()
        ).fetchall()
        for (name,) in connection.execute(
            "select c.oid::regclass::text from pg_class c where c.relkind in ('r', 'p') and not c.relispartition"
            " and c.relnamespace::regnamespace::text in ('bds', 'data', 'staging') and c.relname <> 'generated' order by 1"
        ).fetchall()
    }


def age(connection: psycopg.Connection[Any]) -> None:
    """Every unit of `sql/` had another text, and every schema of internals one function more."""
    connection.execute("update public.bds_migrations set checksum = 'of then' where name !~ '^(migrations/|version)'")
    schemas = [f"bds_{path.parent.name.partition('_')[2]}" for path in units.SQL.glob("[0-9]*/00_schema.sql")]
    for schema in schemas:
        connection.execute(f"create function {schema}.relic() returns int language sql return 1".encode())
    assert len(schemas) == 12


@pytest.fixture(scope="module")
def upgraded(server: str) -> Iterator[Upgraded]:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("create database upgraded template template0 encoding 'UTF8' locale 'C.UTF-8'")
        url = make_conninfo(server, dbname="upgraded")
        run(
            "psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", url,
            input=lzma.decompress(SNAPSHOT.read_bytes()),
        )  # fmt: skip
        with psycopg.connect(url, autocommit=True) as old:
            names = [name for (name,) in old.execute("select name from public.bds_migrations order by 1").fetchall()]
            old.execute("set role bds_owner")
            old.execute(migrate.AFTER_RESTORE)
            old.execute("reset role")
            age(old)
            before = tables(old)
        yield Upgraded(url, before, [name for name in names if name.startswith("migrations/")], migrate.migrate(url))
        connection.execute(sql.SQL("drop database upgraded with (force)"))


@pytest.fixture
def operator(upgraded: Upgraded) -> Iterator[Operator]:
    with psycopg.connect(upgraded.url, autocommit=True) as connection:
        yield Operator(connection)


def test_every_unit_was_due_and_no_migration_twice(upgraded: Upgraded) -> None:
    assert upgraded.migrations[0] == "migrations/0001_schemas.sql"
    assert [name for name in upgraded.applied if ": " not in name] == [
        unit.name for unit in units.read_units() if unit.name not in upgraded.migrations
    ]
    assert len(upgraded.before["bds.change_log"]) > 100 and len(upgraded.before["data.warehouses"]) == 1


def test_nothing_is_lost(upgraded: Upgraded, operator: Operator) -> None:
    after = tables(operator.connection)
    assert after.keys() == upgraded.before.keys()
    for name, rows in upgraded.before.items():
        assert after[name] == rows, name


def test_there_is_nothing_more_to_do(upgraded: Upgraded) -> None:
    assert migrate.is_current(upgraded.url) and migrate.migrate(upgraded.url) == []


def test_the_past_can_still_be_read(operator: Operator) -> None:
    product = "(select id from data.products where company_id = 'acme' and code = 'P7')"
    history = operator.rows(
        f"select operation, actor, \"row\" ->> 'name', \"row\" ->> 'price' from bds.row_history('acme', 'products', {product})"
    )
    assert history == [("create", "anna", "Produkt ž 7", "7.2500"), ("update", "anna", "Renamed", None)]


def test_what_is_written_goes_on_where_the_log_ended(operator: Operator) -> None:
    last: Any = operator.rows("select max(id) from bds.changes where company_id = 'acme'")[0][0]
    operator.write("acme", "insert into data.products (code, name) values ('NEW', 'New')")
    operator.write("acme", "insert into data.warehouses (code) values ('W2')")
    made = operator.rows("select id, entity from bds.changes where company_id = 'acme' and id > %s order by id", (last,))
    assert made == [(last + 1, "products"), (last + 2, "warehouses")]
    counted = operator.rows("select count(*), count(distinct id), max(id) from bds.changes where company_id = 'acme'")
    assert counted == [(last + 2,) * 3]
    operator.write("acme", "delete from data.products where company_id = 'acme' and code = 'NEW'")
    operator.write("acme", "delete from data.warehouses where company_id = 'acme' and code = 'W2'")


def test_imports_go_on(operator: Operator) -> None:
    [(staged,)] = operator.rows("select id from bds.imports where company_id = 'gamma' and finished_at is null")
    for import_id in (staged, stage(operator.connection, "gamma")):
        report = run_import(operator.connection, "gamma", import_id)
        assert report["state"] == "partial" and report["progress"]["records"] == 5
        assert report["entities"]["products"] == {"created": 0, "updated": 0, "deleted": 0, "unchanged": 2, "failed": 2}
        assert report["entities"]["categories"]["unchanged"] == 1
        assert sorted((error["path"], error["code"]) for error in report["errors"]) == [
            ("products[1].price", "invalid_value"),
            ("products[2].category", "lookup_not_found"),
        ]
    assert operator.rows("select count(*) from pg_class where relnamespace = 'staging'::regnamespace") == [(0,)]


def test_it_is_built_as_a_new_one_is(upgraded: Upgraded, server: str) -> None:
    assert_built_alike(upgraded.url, make_conninfo(server, dbname="bds_template"))


def test_the_queue_goes_on(operator: Operator) -> None:
    [(first,)] = operator.rows("select body::jsonb -> 'changes' -> 0 ->> 'operation' from bds_service.claim_deliveries()")
    assert first == "create"
    operator.connection.execute("update bds.deliveries set state = 'delivered', next_attempt_at = null, finished_at = now()")
    operator.connection.execute("update bds.hook_queue set due_at = now()")
    operator.connection.execute("update bds.hook_states set batch_at = now(), next_at = null, lease = null")
    assert operator.rows("select count(*) from bds_service.claim_deliveries()") == [(1,)], "of the change that waited"


def test_it_is_served_to_the_key_of_then(upgraded: Upgraded) -> None:
    with running(upgraded.url, company="demo") as service:
        authorization = f"Bearer {KEY}"
        rows = service.ask("/c/acme/products?filter=code%20=%20'P7'", authorization=authorization)
        assert rows.status == 200 and rows.json["data"][0]["name"] == "Renamed"
        assert service.ask("/c/acme/warehouses", authorization=authorization).json["data"][0]["code"] == "W1"
        assert service.ask("/c/beta/products", authorization=authorization).status == 403
        assert service.ask("/c/acme/products", authorization=f"Bearer {REVOKED}").status == 401
        changes = service.ask("/c/acme/changes?limit=1", authorization=authorization).json["data"]
        assert changes[0]["id"] == 1
