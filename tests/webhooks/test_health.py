"""How a hook says that it does: state, failures, last attempt, queue, rest; and when its deliveries are tried next."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from app.webhooks.registration import HOOKS
from tests.webhooks.conftest import Queue

RETRIES = 5  # of the schedule, after the first attempt


def health(queue: Queue, hook: str) -> dict[str, Any]:
    rows = queue.rows(HOOKS + " and h.id = %s", ("acme", hook))
    found: dict[str, Any] = rows[0][0]["health"]
    return found


def fail(queue: Queue, hook: str, times: int = 1, status: int | None = 500) -> None:
    """Attempt the hook's next delivery so often, each time as soon as it is due."""
    for _ in range(times):
        queue.due_now(hook)
        queue.record(*queue.claim(), status=status, error=None if status else "timeout: no answer in time")


def now(queue: Queue) -> datetime:
    [(time,)] = queue.rows("select clock_timestamp()")
    assert isinstance(time, datetime)
    return time.astimezone(UTC)


def next_attempts(queue: Queue, hook: str) -> list[datetime]:
    """When the deliveries that have not ended are tried next, oldest first."""
    times = [each["nextAttemptAt"] for each in queue.deliveries(hook) if each["state"] in ("pending", "waiting")]
    return [datetime.fromisoformat(each) for each in times]


def test_a_new_hook_is_ok_and_has_not_been_tried(queue: Queue) -> None:
    expected = {"state": "ok", "reason": None, "failures": 0, "lastStatus": None, "lastAt": None, "queued": 0, "restsUntil": None}
    assert health(queue, queue.hook()) == expected


def test_changes_count_as_queued_until_they_are_delivered(queue: Queue) -> None:
    hook = queue.hook()
    queue.products("A", "B")
    queue.route(3600)
    assert health(queue, hook)["queued"] == 2, "in the window"
    queue.operator.rows("select bds_webhooks.make_batches_of('{acme}', array[%s::uuid], 'infinity')", (hook,))
    queue.operator.rows("update bds.hook_states set next_at = now() returning 1")
    queue.products("C")
    queue.route(3600)
    assert health(queue, hook)["queued"] == 3, "in a delivery, too"
    queue.record(*queue.claim())
    assert health(queue, hook)["queued"] == 1


def test_failures_count_up_to_the_next_success(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    fail(queue, hook, 2)
    before = now(queue)
    found = health(queue, hook)
    assert (found["state"], found["failures"], found["lastStatus"], found["queued"]) == ("failing", 2, 500, 1)
    fail(queue, hook, status=None)
    found = health(queue, hook)
    assert (found["state"], found["failures"], found["lastStatus"]) == ("failing", 3, None)
    assert before - timedelta(seconds=1) < datetime.fromisoformat(found["lastAt"]) <= now(queue)
    fail(queue, hook, status=204)
    found = health(queue, hook)
    assert (found["state"], found["failures"], found["lastStatus"], found["queued"]) == ("ok", 0, 204, 0)


def test_a_refused_delivery_and_a_failed_test_are_failures(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    fail(queue, hook, status=410)
    assert health(queue, hook)["state"] == "failing"
    queue.write("select bds.test_hook('acme', %s)", (hook,))
    assert health(queue, hook)["queued"] == 0, "a test holds no change"
    queue.record(*queue.claim(), status=503)
    assert (health(queue, hook)["failures"], health(queue, hook)["lastStatus"]) == (2, 503)


def test_an_attempt_that_was_given_back_is_none(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    fail(queue, hook)
    before = health(queue, hook)
    queue.due_now(hook)
    queue.rows("select bds_service.release_leases(%s)", (json.dumps(queue.claim()),))
    assert health(queue, hook) == before


def test_a_hook_out_of_retries_rests_and_says_until_when(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    fail(queue, hook, 1 + RETRIES)
    queue.send("B")
    found = health(queue, hook)
    assert (found["state"], found["failures"], found["queued"]) == ("resting", 6, 1)
    assert timedelta(minutes=59) < datetime.fromisoformat(found["restsUntil"]) - now(queue) <= timedelta(hours=1)
    queue.operator.connection.execute("update bds.hook_states set rests_until = now() - interval '1 s'")
    assert (health(queue, hook)["state"], health(queue, hook)["restsUntil"]) == ("failing", None)


def test_a_disabled_hook_is_disabled_whatever_came_before(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    fail(queue, hook, 1 + RETRIES)
    queue.write("select bds.update_hook('acme', %s, 'products', 'http://127.0.0.1:9/', null, null, false, true)", (hook,))
    found = health(queue, hook)
    assert (found["state"], found["queued"], found["restsUntil"]) == ("disabled", 0, None)
    assert queue.rows("select rests_until from bds.hook_states where hook_id = %s", (hook,)) == [(None,)]


def test_another_url_starts_afresh_and_the_same_one_rests_on(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    fail(queue, hook, 1 + RETRIES)
    queue.send("B")
    [(url,)] = queue.rows("select url from bds.hooks where id = %s", (hook,))
    change = "select bds.update_hook('acme', %s, 'products', %s, null, null, false, false)"
    queue.write(change, (hook, url))
    assert (health(queue, hook)["state"], queue.claim()) == ("resting", [])
    queue.write(change, (hook, "http://127.0.0.1:9/other"))
    found = health(queue, hook)
    assert (found["state"], found["failures"], found["restsUntil"], found["queued"]) == ("ok", 0, None, 1)
    assert queue.rows("select url from bds_service.claim_deliveries(100, '1 min')") == [("http://127.0.0.1:9/other",)]


def test_a_rest_is_ended_by_hand(queue: Queue) -> None:
    hook = queue.hook()
    end = "select bds_service.end_rest('acme', %s)"

    def refused() -> None:
        with pytest.raises(psycopg.Error) as raised:
            queue.write(end, (hook,))
        assert raised.value.sqlstate == "BD004"

    refused()
    queue.send("A")
    fail(queue, hook, 1 + RETRIES)
    queue.send("B")
    assert queue.claim() == []
    queue.write(end, (hook,))
    found = health(queue, hook)
    assert (found["state"], found["failures"], found["restsUntil"]) == ("failing", 6, None)
    refused()
    [claimed] = queue.claim()
    assert [change["id"] for change in claimed["body"]["changes"]] == ["2"]
    with pytest.raises(psycopg.Error) as raised:
        queue.write(end, (uuid4(),))
    assert raised.value.sqlstate == "BD002"


def test_while_a_hook_rests_no_delivery_claims_an_earlier_attempt(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    fail(queue, hook, 1 + RETRIES)
    queue.send("B")
    queue.send("C")
    until = datetime.fromisoformat(health(queue, hook)["restsUntil"])
    assert next_attempts(queue, hook) == [until, until]
    # one that is sent again by hand goes at once, also during the rest
    failed = queue.deliveries(hook)[0]["id"]
    queue.write("select bds.retry_delivery('acme', %s, %s)", (hook, failed))
    first, *others = next_attempts(queue, hook)
    assert first <= now(queue) and others == [until, until]


def test_later_deliveries_wait_for_an_earlier_one(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    fail(queue, hook)
    queue.send("B")
    first, second = next_attempts(queue, hook)
    assert timedelta(seconds=50) < first - now(queue) <= timedelta(seconds=60) and second == first


def test_the_next_attempt_is_never_in_the_past(queue: Queue) -> None:
    """No worker runs here: what is due, and what is under way, is tried now."""
    hook = queue.hook()
    queue.send("A")
    fail(queue, hook)
    queue.operator.connection.execute("update bds.deliveries set next_attempt_at = now() - interval '1 h'")
    queue.operator.connection.execute("update bds.hook_states set next_at = now() - interval '1 h'")
    before = now(queue)
    assert [before <= each <= now(queue) for each in next_attempts(queue, hook)] == [True]
    queue.claim()
    before = now(queue)
    assert [before <= each <= now(queue) for each in next_attempts(queue, hook)] == [True]


DISABLE = "select bds_service.disable_failing(%s)"


def backdate(queue: Queue, hook: str, days: int) -> None:
    """Put the first failure so many days before the last attempt."""
    queue.operator.connection.execute(
        "update bds.hook_states set failing_since = last_at - make_interval(days => %s) where hook_id = %s and failures > 0",
        (days, hook),
    )


def test_a_hook_that_has_only_failed_for_too_long_is_disabled(queue: Queue) -> None:
    hook, other = queue.hook(), queue.hook("units")
    queue.send("A", "B")
    assert queue.rows(DISABLE, ("0",)) == [(None,)], "it was not tried"
    fail(queue, hook, 2)
    assert queue.rows(DISABLE, ("1 hour",)) == [(None,)]
    backdate(queue, hook, 7)
    assert queue.rows(DISABLE, ("7 days 1 hour",)) == [(None,)]
    [(disabled,)] = queue.rows(DISABLE, ("7 days",))
    assert str(disabled) == hook
    found = health(queue, hook)
    assert (found["state"], found["reason"], found["failures"], found["queued"]) == ("disabled", "failures", 2, 0)
    assert queue.states(hook) == ["cancelled"] and health(queue, other)["state"] == "ok"
    assert queue.rows(DISABLE, ("7 days",)) == [(None,)]
    change = "select bds.update_hook('acme', %s, 'products', 'http://127.0.0.1:9/', %s, null, false, %s)"
    queue.write(change, (hook, "price > 0", True))
    assert health(queue, hook)["reason"] == "failures", "as long as it is disabled"
    queue.write(change, (hook, None, False))
    assert (health(queue, hook)["state"], health(queue, hook)["reason"]) == ("failing", None)
    queue.send("C")
    fail(queue, hook)
    assert queue.rows(DISABLE, ("7 days",)) == [(None,)], "it begins anew"


@pytest.mark.parametrize("event", ["success", "another url", "an attempt by hand"])
def test_a_hook_that_has_not_only_failed_is_not_disabled(queue: Queue, event: str) -> None:
    hook = queue.hook()
    queue.send("A")
    if event == "an attempt by hand":
        queue.write("select bds.retry_delivery('acme', %s, %s)", (hook, queue.deliveries(hook)[0]["id"]))
        queue.record(*queue.claim(), status=500)
        assert health(queue, hook)["failures"] == 0
    else:
        fail(queue, hook)
    backdate(queue, hook, 7)
    if event == "success":
        fail(queue, hook, status=200)
        queue.send("B")
        fail(queue, hook)
    elif event == "another url":
        queue.write("select bds.update_hook('acme', %s, 'products', 'http://127.0.0.1:9/b', null, null, false, false)", (hook,))
    assert queue.rows(DISABLE, ("7 days",)) == [(None,)]


def test_hooks_are_listed_by_one_statement_without_calls_for_each(queue: Queue) -> None:
    queue.hook()
    plan = "\n".join(row[0] for row in queue.rows("explain (verbose) " + HOOKS, ("acme",)))
    assert "hook_json(" not in plan and "SubPlan" not in plan, plan
    assert plan.count(" on bds.deliveries ") == 1, plan


def test_only_hooks_that_rest_now_are_a_problem(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    fail(queue, hook, 1 + RETRIES)
    queue.send("B")
    resting = "select object, detail from bds.problems where kind = 'resting hook'"
    [(name, detail)] = queue.operator.rows(resting)
    assert name == hook and detail.startswith("1 changes wait until ")
    queue.write("select bds.delete_hook('acme', %s)", (hook,))
    assert queue.operator.rows(resting) == []


def test_unhealthy_hooks_are_counted(queue: Queue) -> None:
    counts = "select failing_hooks, resting_hooks from bds_service.backlog(100)"
    failing, resting, disabled, _ = (queue.hook() for _ in range(4))
    assert queue.operator.rows(counts) == [(0, 0)]
    queue.send("A")
    fail(queue, failing, status=404)  # claims all four
    for hook in (resting, disabled):
        queue.operator.connection.execute(
            "update bds.hook_states set rests_until = now() + interval '1 h' where hook_id = %s", (hook,)
        )
    queue.operator.connection.execute("update bds.hook_states set failures = 0 where hook_id <> %s", (failing,))
    queue.operator.connection.execute("update bds.hooks set disabled = true where id = %s", (disabled,))
    assert queue.operator.rows(counts) == [(1, 1)]
