"""Deliveries in the metrics: attempts, lag, backlog."""

from __future__ import annotations

import psycopg
import pytest

from tests.service.test_processes import serve, wait_until
from tests.webhooks.conftest import SETTINGS, Queue
from tests.webhooks.receiving import Receiver

pytestmark = pytest.mark.slow


def test_attempts_are_counted_by_outcome_in_every_process(queue: Queue, receiver: Receiver) -> None:
    queue.hook(url=receiver.url())
    key = queue.operator.key("acme")
    with serve(queue.url, key, "--processes", "2", **SETTINGS) as served:
        queue.products("A")
        wait_until(lambda: served.metrics().get('bds_webhook_attempts_total{outcome="delivered"}') == 1)
        found = served.metrics()
        assert found["bds_webhook_delivery_lag_seconds_count"] == found["bds_webhook_attempt_duration_seconds_count"] == 1
        assert found['bds_webhook_delivery_lag_seconds_bucket{le="+Inf"}'] == 1
        wait_until(lambda: served.metrics()["bds_webhook_queue_deliveries"] == 0)
        unhealthy = [f'bds_webhook_unhealthy_hooks{{state="{state}"}}' for state in ("failing", "resting")]
        assert [served.metrics()[name] for name in unhealthy] == [0, 0]
        receiver.answers["/ok"] = [404, 200]
        queue.products("B")
        wait_until(lambda: [served.metrics()[name] for name in unhealthy] == [1, 0])
        queue.products("C")
        wait_until(lambda: [served.metrics()[name] for name in unhealthy] == [0, 0])


def backlog(queue: Queue, at_most: int = 10_000) -> tuple[int, float, int]:
    (row,) = queue.operator.rows("select deliveries, overdue, imports from bds_service.backlog(%s)", (at_most,))
    return row  # type: ignore[return-value]


def test_the_backlog_is_counted_up_to_a_limit_with_its_delay(queue: Queue) -> None:
    assert backlog(queue) == (0, 0, 0)
    first, second = queue.hook(), queue.hook()
    queue.send("A")
    assert backlog(queue)[0] == 2 and backlog(queue, 1)[0] == 1
    queue.operator.connection.execute("update bds.hook_states set next_at = now() - interval '90 s' where hook_id = %s", (first,))
    assert 90 <= backlog(queue)[1] < 120
    for each in queue.claim():
        queue.record(each)
    assert backlog(queue) == (0, 0, 0) and second


def test_the_backlog_is_counted_by_index_scans_only(queue: Queue) -> None:
    with psycopg.connect(queue.url, autocommit=True) as connection:
        connection.execute("set enable_seqscan = off")
        (source,) = connection.execute("select prosrc from pg_proc where proname = 'backlog'").fetchone() or ("",)
        plan = "\n".join(line for (line,) in connection.execute(f"explain {source.replace('at_most', '100')}").fetchall())
        assert "Seq Scan" not in plan and "deliveries_under_way" in plan and "imports_under_way" in plan, plan
        assert "hook_states_unhealthy" in plan, plan


@pytest.mark.parametrize("role", ["bds_reader", "bds_writer", "bds_worker"])
def test_only_the_service_and_the_operator_may_count(queue: Queue, connect, role: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connect(role).execute("select bds_service.backlog(1)")
