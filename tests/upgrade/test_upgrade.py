"""A database of the first release is brought up to this one: its rows, its log, its keys and its entities are what they were.

first.sql.xz is what pg_dump made of one: its schema after the migrations 0001 to 0003, three companies, an entity of a DBA's own, an
import, and keys of which one is revoked.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from app.database import migrate
from tests.conftest import Operator
from tests.database.postgres_tools import run
from tests.service.serving import running
from tests.upgrade.built import assert_built_alike

FIRST = Path(__file__).with_name("first.sql.xz")
KEY = "bds_" + "FirstReleaseKeyOfATest".ljust(43, "0")
REVOKED = "bds_" + "RevokedKeyOfATest".ljust(43, "0")


@pytest.fixture(scope="module")
def old_url(server: str) -> Iterator[str]:
    """The first release's database, as it was."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("create database upgraded template template0 encoding 'UTF8' locale 'C.UTF-8'")
        url = make_conninfo(server, dbname="upgraded")
        run(
            "psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", url, input=lzma.decompress(FIRST.read_bytes())
        )
        yield url
        connection.execute(sql.SQL("drop database upgraded with (force)"))


def tables(connection: psycopg.Connection[Any]) -> dict[str, list[Any]]:
    """Every row of what the upgrade must leave alone."""
    found: dict[str, list[Any]] = {}
    for (name,) in connection.execute(
        "select relname from pg_class where relnamespace = 'data'::regnamespace and relkind = 'r'"
    ).fetchall():
        found[name] = connection.execute(
            sql.SQL("select to_jsonb(t) from data.{} t order by 1::text").format(sql.Identifier(name))
        ).fetchall()
    found["log"] = connection.execute(
        "select company_id, id, entity, row_id, operation::text, created_at, actor, change_set_id, last_updated_at, collections, old"
        " from bds.change_log order by company_id, id"
    ).fetchall()
    found["keys"] = connection.execute(
        "select id, hash, name, companies, scopes, revoked_at from bds.api_keys order by id"
    ).fetchall()
    found["companies"] = connection.execute("select id, tenant_id, number from bds.companies order by id").fetchall()
    found["imports"] = connection.execute("select company_id, id, state from bds.imports order by id").fetchall()
    return found


@pytest.fixture(scope="module")
def upgraded(old_url: str) -> tuple[str, dict[str, list[Any]], list[str]]:
    """The database's url, what was in it before, and the files that were applied."""
    with psycopg.connect(old_url, autocommit=True) as connection:
        before = tables(connection)
    return old_url, before, migrate.migrate(old_url)


def test_it_was_the_first_release(upgraded: tuple[str, Any, list[str]]) -> None:
    _, before, applied = upgraded
    numbers = sorted(path.name for path in (migrate.SQL / "migrations").glob("*.sql"))
    assert [name for name in applied if name.startswith("migrations/")] == [f"migrations/{name}" for name in numbers[3:]]
    assert len(before["log"]) > 100 and len(before["products"]) == 78 and len(before["warehouses"]) == 1


def test_nothing_is_lost(upgraded: tuple[str, dict[str, list[Any]], Any]) -> None:
    url, before, _ = upgraded
    with psycopg.connect(url, autocommit=True) as connection:
        after = tables(connection)
    for name, rows in before.items():
        assert after[name] == rows, name


def test_there_is_nothing_more_to_do(upgraded: tuple[str, Any, Any]) -> None:
    assert migrate.is_current(upgraded[0]) and migrate.migrate(upgraded[0]) == []


def test_the_past_can_still_be_read(upgraded: tuple[str, Any, Any]) -> None:
    with psycopg.connect(upgraded[0], autocommit=True) as connection:
        product = "(select id from data.products where company_id = 'acme' and code = 'P7')"
        history = connection.execute(
            f"select operation, actor, \"row\" ->> 'name', \"row\" ->> 'price' from bds.row_history('acme', 'products', {product})".encode()
        ).fetchall()
        assert history[0] == ("create", "anna", "Produkt ž 7", "7.2500")
        assert history[-1] == ("update", "anna", "Renamed", None)


def test_what_is_written_goes_on_where_the_log_ended(upgraded: tuple[str, dict[str, list[Any]], Any]) -> None:
    url, _, _ = upgraded
    with psycopg.connect(url, autocommit=True) as connection:
        operator = Operator(connection)
        last = operator.rows("select max(id) from bds.changes where company_id = 'acme'")[0][0]
        operator.write("acme", "insert into data.products (code, name) values ('NEW', 'New')")
        operator.write("acme", "insert into data.warehouses (code) values ('W2')")
        made = operator.rows("select id, entity from bds.changes where company_id = 'acme' and id > %s order by id", (last,))
        assert made == [(last + 1, "products"), (last + 2, "warehouses")]
        assert operator.rows("select count(*), count(distinct id), max(id) from bds.changes where company_id = 'acme'") == [
            (last + 2,) * 3
        ]
        operator.write("acme", "delete from data.products where company_id = 'acme' and code = 'NEW'")
        operator.write("acme", "delete from data.warehouses where company_id = 'acme' and code = 'W2'")


def test_it_is_built_as_a_new_one_is(upgraded: tuple[str, Any, Any], server: str) -> None:
    assert_built_alike(upgraded[0], make_conninfo(server, dbname="bds_template"))


def test_it_is_served_to_the_key_of_then(upgraded: tuple[str, Any, Any]) -> None:
    with running(upgraded[0], company="demo") as service:
        authorization = f"Bearer {KEY}"
        rows = service.ask("/c/acme/products?filter=code%20=%20'P7'", authorization=authorization)
        assert rows.status == 200 and rows.json["data"][0]["name"] == "Renamed"
        assert service.ask("/c/acme/warehouses", authorization=authorization).json["data"][0]["code"] == "W1"
        assert service.ask("/c/beta/products", authorization=authorization).status == 403
        assert service.ask("/c/acme/products", authorization=f"Bearer {REVOKED}").status == 401
        changes = service.ask("/c/acme/changes?limit=1", authorization=authorization).json["data"]
        assert changes[0]["id"] == 1
