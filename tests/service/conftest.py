"""A running service for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.service.serving import Service, running


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        yield service
