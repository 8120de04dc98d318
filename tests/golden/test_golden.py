"""What is generated for a table stands beside this test, so that a reviewer sees what a change of a template does."""

from __future__ import annotations

import psycopg
import pytest

from tests.conftest import Operator
from tests.golden import generated


@pytest.fixture(scope="module")
def registered(module_database_url: str):
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        generated.register(connection)
        yield Operator(connection)


@pytest.mark.parametrize("entity", generated.ENTITIES)
def test_generated_text_is_as_it_was_reviewed(registered: Operator, entity: str) -> None:
    expected = (generated.HERE / f"{entity}.sql").read_text()
    assert generated.golden(registered.connection, entity) == expected, (
        "python -m tests.golden.generated writes it anew; review the difference"
    )
