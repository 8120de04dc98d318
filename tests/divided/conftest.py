"""Databases whose tables are divided into shards."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from app.database import migrate

SHARDS = 4
_numbers = count(1)


@pytest.fixture(scope="module")
def divided(server: str) -> Iterator[str]:
    """A migrated database with divided tables."""
    name = f"divided_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"create database {name} template template0 encoding 'UTF8' locale 'C.UTF-8'".encode())
    url = make_conninfo(server, dbname=name)
    migrate.migrate(url, SHARDS)
    yield url
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)".encode())
