"""What is used by all tests of the house."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    """Files are parsed without garbage collection: what it calls makes ast.parse fail in Python 3.11 (recursion depth mismatch)."""
    gc.disable()
    yield
    gc.enable()
