"""The Chromium of the machine, which tests and `make pictures` drive."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
MISSING = "no Chromium on this machine: apt-get install chromium"


def find() -> str | None:
    """The path of the browser; None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def started(path: str) -> Iterator[Any]:
    """The browser of a path.  Skips a test if playwright is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: make install")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS, env={**os.environ, "NO_PROXY": "*"})
        yield browser
        browser.close()


@contextmanager
def for_tests() -> Iterator[Any]:
    """The browser.  Skips a test if there is none; `make test` and `make test-clients` try to install it as root."""
    if (path := find()) is None:
        pytest.skip(MISSING)
    with started(path) as browser:
        yield browser
