"""The files of sql/ parse as PostgreSQL: what is inside functions the server has checked when it made them."""

from pathlib import Path

import pytest
from pglast import parse_sql

from app.database import units

FILES = sorted(units.SQL.rglob("*.sql"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_parses(path: Path) -> None:
    assert parse_sql(path.read_text())
