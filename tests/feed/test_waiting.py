"""An import that waits for the company's turn says for whom, in its report and on the command line; one that holds it is shown."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from tests.feed.conftest import Feed
from tests.feed.test_crash import blocked, command, holding
from tests.service.serving import wait_until

pytestmark = pytest.mark.slow

DOCUMENT = {"units": [{"code": "A", "name": "a"}]}


def waiting_for(feed: Feed) -> str | None:
    rows = feed.ask(
        "select bds.import_report(company_id, id) -> 'progress' ->> 'waitingFor' from bds.imports where company_id = %s",
        feed.company,
    )
    return rows[0][0] if rows else None


def send_in_background(feed: Feed) -> threading.Thread:
    thread = threading.Thread(target=lambda: feed.good(DOCUMENT))
    thread.start()
    return thread


def test_a_report_names_the_holder_of_the_turn_until_it_comes(feed: Feed) -> None:
    with psycopg.connect(feed.url) as holder:
        holder.execute("select bds.set_context(%s, 'anna'), bds.lock_company(%s)", (feed.company, feed.company))
        thread = send_in_background(feed)
        wait_until(lambda: waiting_for(feed) is not None)
        assert (waiting_for(feed) or "").startswith(f"the turn of {feed.company}: pid {holder.info.backend_pid}, anna, since 20")
        holder.rollback()
    thread.join()
    assert waiting_for(feed) is None
    assert feed.rows("units", "code") == [("A",)]


def test_an_import_that_holds_the_turn_is_shown_as_one(feed: Feed) -> None:
    feed.good(units=[{"code": "A", "name": "old"}])
    query = "select runs, actor, application_name from bds.turns where company_id = %s"
    with holding(feed, f"select from data.units where company_id = '{feed.company}' for update"):
        thread = send_in_background(feed)
        wait_until(lambda: blocked(feed))
        shown: list[tuple[Any, ...]] = feed.operator.rows(query, (feed.company,))
    thread.join()
    assert shown == [("import", "postgres", "bds")]
    assert feed.operator.rows(query, (feed.company,)) == []


@pytest.mark.processes
def test_the_command_says_whose_turn_it_waits_for(feed: Feed) -> None:
    with psycopg.connect(feed.url) as holder, command(feed) as process:
        assert process.stdin is not None and process.stderr is not None
        holder.execute("select bds.set_context(%s, 'anna'), bds.lock_company(%s)", (feed.company, feed.company))
        process.stdin.write(b'{"units": [{"code": "A", "name": "a"}]}')
        process.stdin.close()
        process.stdin = None
        line = process.stderr.readline().decode()
        assert line.startswith(f"waiting for the turn of {feed.company}: pid {holder.info.backend_pid}, anna, since 20")
        holder.rollback()
        assert process.wait(60) == 0
