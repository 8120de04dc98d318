"""The memory for reading a document is bounded, whatever the document contains."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from app.database import connections
from app.feed import rows, shapes
from app.feed.rows import Rows


@pytest.fixture
def read(module_database_url: str) -> Rows:
    with psycopg.connect(module_database_url) as connection:
        return Rows(connections.read_catalog(connection))


def test_the_number_of_kept_shapes_is_bounded(read: Rows) -> None:
    names = ("code", "name", "symbol", "updatedAt")
    records: list[dict[str, Any]] = [{**dict.fromkeys(names), f"x{n}": None} for n in range(3 * shapes.REMEMBERED)]
    read.add("units", records, b"")
    assert 0 < len(read.tables["units"].shapes) <= shapes.REMEMBERED
    assert read.records == 3 * shapes.REMEMBERED


def test_a_very_wide_shape_is_not_kept(read: Rows) -> None:
    read.add("units", [{f"x{n}": None for n in range(rows.WIDEST_SHAPE + 1)}], b"")
    assert not read.tables["units"].shapes


def test_errors_count_towards_the_size(read: Rows) -> None:
    """They are staged with the lines: records that only have errors must be staged, too."""
    read.add("units", [{f"x{n}": None for n in range(10_000)}], b"")
    assert read.size >= 10_000 * len("units has no field x")
