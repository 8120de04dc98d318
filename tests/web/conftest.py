"""A running service with somebody signed in, and a real Chromium where there is one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.auth.client import make_user
from tests.http.serving import Service, running
from tests.web.visitor import Visitor, visitor

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
COMPANIES = ("demo", "second")  # of the visitor; there is a third one, that is none of theirs


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


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for the whole run."""
    path = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium (`make test` tries that as root)")
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: make install")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS, env={**os.environ, "NO_PROXY": "*"})
        yield browser
        browser.close()
