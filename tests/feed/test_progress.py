"""How far an import is: its phase, and records done that move while they are compared."""

from __future__ import annotations

import json
import threading
from typing import Any

import psycopg
import pytest

from app.feed.run import Import
from tests.feed.conftest import Feed
from tests.feed.test_crash import blocked, holding
from tests.service.serving import wait_until

pytestmark = pytest.mark.slow

ORDERS = 1_500


def document(quantity: int) -> dict[str, Any]:
    """More records than a small import takes: products, and orders with items."""
    return {
        "products": [{"code": f"P{n}", "name": "p"} for n in range(20)],
        "orders": [
            {
                "code": f"O{n}",
                "orderDate": "2026-01-01",
                "items": [{"product": f"code:P{n % 20}", "quantity": quantity, "price": i} for i in range(2)],
            }
            for n in range(ORDERS)
        ],
    }


def watched(feed: Feed, content: Any) -> list[tuple[str, int, int]]:
    """(phase, records, done) as they are shown while a document is imported."""
    shown: list[tuple[str, int, int]] = []
    importing = Import(
        feed.url, feed.catalog, feed.company, on_progress=lambda phase, _, records, done: shown.append((phase, records, done))
    )
    importing.receive(json.dumps(content).encode())
    assert importing.run()["state"] == "completed"
    return shown


def test_records_are_done_step_by_step_within_one_family(feed: Feed) -> None:
    for quantity in (1, 2):  # new rows, then changed ones
        shown = watched(feed, document(quantity))
        total = ORDERS + 20
        assert {records for phase, records, _ in shown if phase != "receiving"} == {total}
        done = [done for *_, done in shown]
        assert done == sorted(done) and done[-1] == total
        compared = [done for phase, _, done in shown if phase.startswith("comparing order")]
        assert len(set(compared)) >= 5 and compared[-1] in (total // 2, total // 2 - 1)
        written = [done for phase, _, done in shown if phase.startswith("writing")]
        assert len(written) == 3 and written[0] >= total // 2 and len(set(written)) == 3


def progress(feed: Feed) -> dict[str, Any]:
    rows = feed.ask(
        "select bds.import_report(company_id, id) -> 'progress' from bds.imports where company_id = %s order by number desc limit 1",
        feed.company,
    )
    return dict(rows[0][0]) if rows else {"phase": None, "done": 0}


def in_background(feed: Feed, content: Any) -> threading.Thread:
    thread = threading.Thread(target=lambda: feed.good(content))
    thread.start()
    return thread


def test_a_report_has_the_phase(feed: Feed) -> None:
    feed.good(document(1))
    with psycopg.connect(feed.url) as holder:
        holder.execute("select bds.set_context(%s, 'anna'), bds.lock_company(%s)", (feed.company, feed.company))
        thread = in_background(feed, document(2))
        wait_until(lambda: progress(feed)["phase"] == "waiting" and progress(feed)["waitingFor"] is not None)
        assert progress(feed)["done"] == 0
        holder.rollback()
    thread.join()
    assert progress(feed) == {
        "bytes": progress(feed)["bytes"],
        "records": ORDERS + 20,
        "done": ORDERS + 20,
        "phase": None,
        "waitingFor": None,
    }
    with holding(feed, f"select from data.order_items where company_id = '{feed.company}' for update"):
        thread = in_background(feed, document(3))
        wait_until(lambda: blocked(feed))
        wait_until(lambda: progress(feed)["phase"] == "writing")
        assert ORDERS // 2 <= progress(feed)["done"] < ORDERS + 20
    thread.join()
    with feed.operator.connection.transaction():
        importing = feed.begin()
        assert progress(feed)["phase"] == "receiving"
        importing.fail()
