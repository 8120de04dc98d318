"""For tests: a test's database as a place of another one, so that whole suites run with a company at a second place."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import count
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.conftest import TEMPLATE, Operator

PLACED = os.environ.get("BDS_TEST_PLACED") == "1"
_numbers = count(1)


@dataclass(frozen=True)
class Placed:
    """A database that is home for the test's database, the place west."""

    home_url: str
    server: str
    name: str

    def operator(self, connection: psycopg.Connection[Any]) -> Operator:
        return PlacedOperator(connection, self.home_url)

    def drop(self) -> None:
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute(f"drop database {self.name} with (force)".encode())


@dataclass(frozen=True)
class PlacedOperator(Operator):
    """Companies are at the place, keys and the directory at home."""

    home_url: str

    def company(self, name: str, tenant: str | None = None) -> str:
        super().company(name, tenant)
        with psycopg.connect(self.home_url, autocommit=True) as home:
            home.execute("select bds.create_company(%s, %s, 'west')", (name, tenant))
        return name

    def delete_company(self, name: str) -> None:
        super().delete_company(name)
        with psycopg.connect(self.home_url, autocommit=True) as home:
            Operator(home).delete_company(name)

    def key(self, *companies: str, tenant: str | None = None, scopes: tuple[str, ...] = ("read", "import", "hooks")) -> str:
        with psycopg.connect(self.home_url, autocommit=True) as home:
            return Operator(home).key(*companies, tenant=tenant, scopes=scopes)


def beside(url: str) -> Placed:
    """A new home for the database at `url`, which has its companies in the directory."""
    server, name = make_conninfo(url, dbname="postgres"), f"home_{conninfo_to_dict(url)['dbname']}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name} template {TEMPLATE} strategy file_copy".encode())
    placed = Placed(make_conninfo(url, dbname=name), server, name)
    with psycopg.connect(url, autocommit=True) as place, psycopg.connect(placed.home_url, autocommit=True) as home:
        place.execute("update bds.settings set place = 'west'")
        home.execute("insert into bds.places (name, url) values ('west', %s)", (url,))
        for company, tenant in place.execute("select id, tenant_id from bds.companies").fetchall():
            home.execute("select bds.create_company(%s, %s, 'west')", (company, tenant))
    return placed
