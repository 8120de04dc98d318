"""A company without an enabled hook costs the worker nothing, and misses nothing once it has one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from app.config import Config
from app.database.database import Database
from app.webhooks import worker
from tests.service.serving import wait_until
from tests.webhooks.conftest import DAY, Queue
from tests.webhooks.receiving import Receiver
from tests.webhooks.test_queue import disable

LISTENS = (
    "select query from pg_stat_activity where datname = current_database() and application_name = 'bds listen'"
    " and query in ('listen bds_hooks', 'listen bds_changes')"
)


def test_a_worker_listens_to_changes_while_there_is_a_hook(
    queue: Queue, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks without a notification once in an hour: what is delivered here, notifications have told it."""
    monkeypatch.setattr(worker, "UNNOTIFIED_POLL", 3600.0)
    matched: list[str] = []

    async def match(each: worker.Worker, company: str) -> None:
        matched.append(company)
        await real(each, company)

    real = worker.Worker._match
    monkeypatch.setattr(worker.Worker, "_match", match)

    async def main() -> None:
        database = await Database.open(Config(database_url=queue.url, webhook_allow_private=True, webhook_window=0.0))
        async with worker.working(database):
            await asyncio.to_thread(use)
        await database.close()

    def use() -> None:
        wait_until(lambda: queue.operator.rows(LISTENS) == [("listen bds_hooks",)])
        queue.products("A")
        hook = queue.hook(url=receiver.url())
        queue.products("B")
        [request] = receiver.wait("/ok", 1)
        assert request.changes == [2]
        wait_until(lambda: queue.operator.rows(LISTENS) == [("listen bds_changes",)])
        queue.operator.company("beta")
        queue.operator.write("beta", "insert into data.products (code, name) values ('B', 'b')")
        queue.products("C")
        receiver.wait("/ok", 2)
        assert set(matched) == {"acme"}
        disable(queue, hook)
        wait_until(lambda: queue.operator.rows(LISTENS) == [("listen bds_hooks",)])
        queue.products("D")
        disable(queue, hook, False)
        queue.products("E")
        assert [each.changes for each in receiver.wait("/ok", 3)] == [[2], [3], [5]]

    asyncio.run(main())


def test_changes_before_the_first_enabled_hook_are_not_matched(queue: Queue) -> None:
    hook = queue.hook()
    queue.products("A")
    assert queue.route() == (1, False)
    disable(queue, hook)
    queue.products("B", "C")
    assert queue.rows("select * from bds_service.companies_behind()") == []
    disable(queue, hook, False)
    assert queue.route() == (0, False)
    queue.products("D")
    assert queue.route() == (1, False)
    assert queue.queued(hook) == [4]


def test_a_second_hook_passes_over_no_change_of_the_first(queue: Queue, connect: Any) -> None:
    """The second one is created while the first is not committed yet, and changes are; there has been one before."""
    queue.write("select bds.delete_hook('acme', %s)", (queue.hook(),))
    creating, other = connect(), connect()
    with ThreadPoolExecutor() as threads:
        with creating.transaction():
            first = create(creating)
            queue.products("A", "B")
            second = threads.submit(create, other)
            wait_until(lambda: is_waiting(queue, other))
        later = second.result()
    queue.products("C")
    queue.route(DAY)
    assert queue.queued(first) == [1, 2, 3]
    assert queue.queued(later) == [3]


def create(session: psycopg.Connection[Any]) -> str:
    with session.transaction():
        session.execute("select bds.set_context('acme')")
        row = session.execute("select bds.create_hook('acme', 'products', 'http://127.0.0.1:9/')").fetchone()
    assert row is not None
    return str(row[0]["id"])


def is_waiting(queue: Queue, session: psycopg.Connection[Any]) -> bool:
    return bool(queue.rows("select from pg_locks where not granted and pid = %s", (session.info.backend_pid,)))
