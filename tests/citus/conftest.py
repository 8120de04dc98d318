"""A cluster for each test: a fresh database on every node of the one that BDS_TEST_CITUS_URL names, its coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from app.config import Config
from app.database import connections, migrate
from app.database.servers.directory import HOME
from app.places import administration, cluster, rebalance
from tests.conftest import CITUS_URL, Operator

COMPANY = "demo"
_numbers = count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/citus/" in item.path.as_posix() and not CITUS_URL:
            item.add_marker(pytest.mark.skip(reason="BDS_TEST_CITUS_URL names no cluster"))


@dataclass(frozen=True)
class Cluster:
    """A coordinator and its workers, as (host, port)."""

    url: str
    workers: list[tuple[str, int]]

    @property
    def names(self) -> list[str]:
        return [cluster.place_name(*worker) for worker in self.workers]

    @property
    def urls(self) -> dict[str, str]:
        """The connection strings of places, home first."""
        return connections.urls_of_places(Config(database_url=self.url))

    def arrange(self) -> list[str]:
        """What bds migrate does."""
        for url in (*migrate.other_places(self.url).values(), self.url):
            migrate.migrate(url)
        return list(cluster.arrange(self.url))

    def company(self, company: str = COMPANY) -> str:
        """Create a company; returns its place."""
        place = administration.choose(self.urls, company)
        administration.create_company(self.urls, company, None, place)
        return place

    def rows(self, place: str, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.urls[place], autocommit=True) as connection:
            return connection.execute(query.encode()).fetchall()

    def write(self, place: str, statement: str, company: str = COMPANY) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.urls[place], autocommit=True) as connection:
            return Operator(connection).write(company, statement)

    def place(self, company: str = COMPANY) -> str:
        """Where the directory has a company."""
        rows = self.rows(HOME, f"select place, phase from bds.directory where company_id = '{company}'")
        assert rows and rows[0][1] is None, rows
        return str(rows[0][0])


@contextmanager
def made(workers: int) -> Iterator[Cluster]:
    """A new database on all nodes, with so many of them in the cluster."""
    assert CITUS_URL
    name = f"bds_citus_{next(_numbers)}"
    with psycopg.connect(CITUS_URL) as connection:
        nodes = [node[1:] for node in cluster.find_nodes(connection).values()]
        here = (connection.info.host, connection.info.port)
    servers = [make_conninfo(CITUS_URL, host=host, port=port) for host, port in (here, *nodes)]
    for server in servers:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"drop database if exists {name} with (force)".encode())
            connection.execute(f"create database {name} template template0 encoding 'UTF8' locale 'C.UTF-8'".encode())
        with psycopg.connect(make_conninfo(server, dbname=name), autocommit=True) as connection:
            connection.execute("create extension citus")
    url = make_conninfo(servers[0], dbname=name)
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            if workers:
                connection.execute("select citus_set_coordinator_host(%s, %s)", here)
            for node in nodes[:workers]:
                connection.execute("select citus_add_node(%s, %s)", node)
        yield Cluster(url, nodes)
    finally:
        for server in servers:
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f"drop database {name} with (force)".encode())


@pytest.fixture(autouse=True)
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no time for readers whose directory is old; the test of a running service gives it."""
    monkeypatch.setattr(cluster, "SHARDS", 4)
    monkeypatch.setattr(rebalance, "GRACE", 0.0)


@pytest.fixture
def pair() -> Iterator[Cluster]:
    """A cluster with two workers, migrated."""
    with made(2) as it:
        it.arrange()
        yield it
