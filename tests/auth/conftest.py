"""A running service with a user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.auth.client import make_user
from tests.service.serving import Service, running


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        service.operator.company("other")
        make_user(service)
        yield service
