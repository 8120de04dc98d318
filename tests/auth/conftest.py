"""A running service with a user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.auth import passwords, throttle
from tests.auth.client import make_user
from tests.service.serving import PATIENCE, Service, running


@pytest.fixture(scope="module")
def template(of_products: str) -> str:
    return of_products


@pytest.fixture(autouse=True)
def long_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logins wait long enough for a slow machine."""
    for module in (throttle, passwords):
        monkeypatch.setattr(module, "QUEUE_TIMEOUT", PATIENCE * 6)


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        service.operator.company("other")
        make_user(service)
        yield service
