"""The follower that docs/changes.md prints in Python: the text itself runs, and follows."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.conftest import Operator
from tests.docs.documents import examples
from tests.service.serving import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def text() -> str:
    (found,) = [each.text for each in examples("docs/changes.md") if each.kind == "python"]
    return found


@pytest.fixture
def followed(operator: Operator, database_url: str, text: str) -> Iterator[list[str]]:
    """Lines that the follower has printed, of a company with 1,500 changes at the start."""
    operator.company("demo")
    operator.company("other")
    operator.write("demo", "insert into data.units (code, name) select n::text, 'x' from generate_series(1, 1500) n")
    lines: list[str] = []
    process = subprocess.Popen(
        [sys.executable, "-c", text], env={**os.environ, "DATABASE_URL": database_url}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    reading = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")))  # type: ignore[union-attr]
    reading.start()
    yield lines
    process.terminate()
    process.wait()
    reading.join()


def test_the_printed_follower_prints_every_change_once(operator: Operator, followed: list[str]) -> None:
    wait_until(lambda: len(followed) == 1500)
    for number in range(20):  # each commit wakes it; without that it would look again after a minute
        operator.write("demo", "update data.units set name = %s where company_id = 'demo' and code = '7'", (f"n{number}",))
        operator.write("other", "insert into data.units (code, name) values (%s, 'x')", (str(number),))
        wait_until(lambda number=number: len(followed) == 1501 + number)  # type: ignore[misc]
    log = operator.rows("select id, entity, row_id, operation from bds.changes where company_id = 'demo' order by id")
    assert [line.split() for line in followed] == [[str(value) for value in row] for row in log]


def test_the_printed_follower_fits_a_screen(text: str) -> None:
    assert len(text.strip().splitlines()) <= 15
