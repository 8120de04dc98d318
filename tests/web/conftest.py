"""A running service and a user who is logged in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.auth.client import make_user
from tests.service.serving import Service, running
from tests.web.visitor import Visitor, visitor

COMPANIES = ("demo", "second")  # of the user; they have no access to the third one


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, webhook_allow_private=True, webhook_window=0.1) as service:
        service.operator.company("second", "t1")
        service.operator.company("third")
        make_user(service, "anna@example.com", *COMPANIES)
        yield service


@pytest.fixture(scope="module")
def anna(service: Service) -> Visitor:
    return visitor(service)
