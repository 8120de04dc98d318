"""A process serves the schema of its own major version: it does not start over an older one, and goes on over a newer one."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from app import resources
from app.config import Config
from app.database import migrate, schema, units
from app.database.database import Database
from app.database.roles import MigrationError
from tests.service.serving import Service, wait_until

CURRENT = {unit.name: unit.checksum for unit in units.read_units()}
FUNCTIONS = "30_change_log"
FIRST = min(CURRENT, key=lambda name: (not name.startswith("migrations/"), name))


@pytest.mark.parametrize(
    ("version", "applied", "expected"),
    [
        ("1.2.0", CURRENT, "same"),  # of before versions were recorded
        ("1.2.0", {**CURRENT, "version": "1.2.0"}, "same"),
        ("1.2.0", {**CURRENT, "version": "1.1.9"}, "same"),  # which differ in Python alone
        ("1.2.0", {**CURRENT, "version": "1.10.0"}, "same"),
        ("1.2.0", {**CURRENT, FUNCTIONS: "x", "version": "1.10.0"}, "newer"),
        ("1.2.0", {**CURRENT, "migrations/9999_later.sql": "x"}, "newer"),  # while it is being migrated
        ("1.2.0", {**CURRENT, FUNCTIONS: "x", "version": "1.1.0"}, "older"),
        ("1.2.0", {name: each for name, each in CURRENT.items() if name != FIRST}, "older"),
        ("1.2.0", {}, "older"),
        ("1.2.0rc1", {**CURRENT, "version": "1.2.0"}, "same"),
    ],
)
def test_a_schema_is_compared_by_migrations_units_and_version(
    version: str, applied: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "version", lambda: version)
    assert schema.compare(applied) == expected


def start(url: str) -> None:
    async def run() -> None:
        await (await Database.open(Config(database_url=url))).close()

    asyncio.run(run())


def test_a_process_does_not_start_over_an_older_schema_nor_over_another_major_version(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as owner:
        assert owner.execute("select checksum from public.bds_migrations where name = 'version'").fetchone() == (
            resources.version(),
        )
        owner.execute("update public.bds_migrations set checksum = 'x' where name = %s", (FUNCTIONS,))
        with pytest.raises(MigrationError, match=r"older than this program.*: run bds migrate"):
            start(database_url)
        migrate.migrate(database_url)
        start(database_url)
        owner.execute("update public.bds_migrations set checksum = '99.0' where name = 'version'")
        start(database_url)  # the schema is the same
        owner.execute("update public.bds_migrations set checksum = 'x' where name = %s", (FUNCTIONS,))
        with pytest.raises(MigrationError, match=r"the schema is of version 99\.0: install that program"):
            start(database_url)
        with pytest.raises(MigrationError, match=r"newer than this program: version 99\.0"):
            migrate.migrate(database_url)
        owner.execute("drop schema public cascade; create schema public")
        with pytest.raises(MigrationError, match="run bds migrate"):
            start(database_url)


def test_over_a_newer_schema_a_process_serves_and_is_not_ready(service: Service) -> None:
    assert service.ask("/readyz").status == 200
    rows = "insert into public.bds_migrations (name, checksum) values ('migrations/9999_later.sql', 'x')"
    service.operator.rows(rows + " returning name")
    wait_until(lambda: service.ask("/readyz").status == 503)
    reply = service.ask("/readyz")
    assert (reply.json["code"], reply.headers["Retry-After"]) == ("busy", "60") and schema.NEWER in reply.json["detail"]
    assert service.ask("/healthz").status == service.ask("/c/demo/units").status == 200
    service.operator.rows("delete from public.bds_migrations where name = 'migrations/9999_later.sql' returning name")
    wait_until(lambda: service.ask("/readyz").status == 200)
