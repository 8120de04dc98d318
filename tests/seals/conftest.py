"""Databases with the sealed records of sealing.py."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.conftest import Operator, prepared
from tests.seals.sealing import fill


@pytest.fixture(scope="module")
def template(server: str) -> Iterator[str]:
    yield from prepared(server, fill)


@pytest.fixture(scope="module")
def shared_operator(module_database_url: str) -> Iterator[Operator]:
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        yield Operator(connection)
