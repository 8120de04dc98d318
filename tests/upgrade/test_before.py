"""A database of the version before, with imports under way, is brought up to this one: the imports go on.

before.tar.xz is the folder sql of that version (`git archive COMMIT sql | xz`).  Put a newer one in its place when the next
migration is written: it must be the version that is in use, not the one that is being made.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from app.database import migrate
from tests.upgrade.built import assert_built_alike

BEFORE = Path(__file__).with_name("before.tar.xz")
COLUMNS = {
    "products": (
        "code, name, price, category",
        [
            ("KNOWN", "Known", "2.5", None),
            ("NEW", "New", "x", None),
            ("LOST", "Lost", "1", "code:NONE"),
            ("P", "Pen", "1", "code:C"),
        ],
    ),
    "categories": ("code, name", [("C", "Things")]),
}


@pytest.fixture
def before(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database as the version before makes it."""
    with tarfile.open(BEFORE) as archive:
        archive.extractall(tmp_path, filter="data")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("create database before template template0 encoding 'UTF8' locale 'C.UTF-8'")
        url = make_conninfo(server, dbname="before")
        with monkeypatch.context() as patched:
            patched.setattr(migrate, "SQL", tmp_path / "sql")
            migrate.migrate(url)
        yield url
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier("before")))


def in_company(connection: psycopg.Connection[Any], query: str, *parameters: object) -> Any:
    """The first value of a query, in a transaction that names the company."""
    with connection.transaction():
        connection.execute("select bds.set_context('acme', 'me')")
        row = connection.execute(query.encode(), parameters).fetchone()
    return row and row[0]


def stage(connection: psycopg.Connection[Any]) -> Any:
    """The id of an import of which all is staged."""
    import_id = in_company(connection, "select bds.import_begin('acme')")
    for entity, (names, rows) in COLUMNS.items():
        table = in_company(connection, "select bds.import_stage('acme', %s, %s)", import_id, entity)
        with connection.cursor().copy(f"copy {table} ({names}) from stdin".encode()) as copy:
            for row in rows:
                copy.write_row(row)
    return import_id


def test_imports_go_on(before: str, server: str) -> None:
    with psycopg.connect(before, autocommit=True) as connection:
        connection.execute("select bds.create_company('acme')")
        in_company(connection, "insert into data.products (code, name, price) values ('KNOWN', 'Known', 1) returning id")
        staged, done = stage(connection), stage(connection)
        assert in_company(connection, "select bds.import_run('acme', %s, 'false')", done)["entities"]["products"]["created"] == 1

        applied = migrate.migrate(before)
        assert "99_grants.sql" in applied and migrate.is_current(before)

        for import_id in (staged, stage(connection)):
            report = in_company(connection, "select bds.import_run('acme', %s, 'false')", import_id)
            assert report["state"] == "partial" and report["progress"]["records"] == 5
            assert report["entities"]["products"] == {"created": 0, "updated": 0, "deleted": 0, "unchanged": 2, "failed": 2}
            assert report["entities"]["categories"]["unchanged"] == 1
            assert sorted((error["path"], error["code"]) for error in report["errors"]) == [
                ("products[1].price", "invalid_value"),
                ("products[2].category", "lookup_not_found"),
            ]
        assert connection.execute("select count(*) from pg_class where relnamespace = 'staging'::regnamespace").fetchone() == (0,)
        assert_built_alike(before, make_conninfo(server, dbname="bds_template"))
