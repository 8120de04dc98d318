"""Locks: sessions that match changes and record attempts at once never deadlock, and a blocked company delays no other."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.service.serving import wait_until
from tests.webhooks.conftest import Queue, Receiver, working


def is_waiting(queue: Queue, session: psycopg.Connection[Any]) -> bool:
    """Whether a session waits for a lock."""
    return bool(queue.rows("select from pg_locks where not granted and pid = %s", (session.info.backend_pid,)))


def pair(queue: Queue, low: dict[str, Any], high: dict[str, Any]) -> tuple[str, str]:
    """Register two hooks, the first of which has the lower id."""
    while True:
        hooks = queue.hook(**low), queue.hook(**high)
        if hooks[0] < hooks[1]:
            return hooks
        for hook in hooks:
            queue.write("select bds.delete_hook('acme', %s)", (hook,))


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ({"entity": "units"}, {"entity": "categories"}),  # entities are matched in the order of their names
        ({"entity": "units", "filter": "name = 'u'"}, {"entity": "units"}),  # hooks without a filter are matched first
    ],
    ids=["entities", "filters"],
)
def test_matching_and_recording_lock_hooks_in_one_order(
    queue: Queue, connect: Any, low: dict[str, Any], high: dict[str, Any]
) -> None:
    hooks = pair(queue, low, high)

    def change(code: str) -> None:
        queue.write(
            "with c as (insert into data.categories (code, name) values (%s, 'c'))"
            " insert into data.units (code, name) values (%s, 'u')",
            (code, code),
        )

    change("1")
    queue.route()
    claimed = queue.claim()
    assert sorted(each["hook"] for each in claimed) == list(hooks)
    change("2")
    holder, recording, matching = connect(), connect("bds_worker"), connect("bds_worker")
    attempts = json.dumps([{**each, "body": None, "status": 200} for each in claimed])
    with ThreadPoolExecutor() as threads:
        with holder.transaction():
            holder.execute("select from bds.hook_states where hook_id = %s for update", (hooks[0],))
            recorded = threads.submit(recording.execute, "select state from bds_service.record_attempts(%s)", (attempts,))
            wait_until(lambda: is_waiting(queue, recording))
            matched = threads.submit(matching.execute, "select routed from bds_service.route_changes('acme', '0')")
            wait_until(lambda: is_waiting(queue, matching))
        assert recorded.result().fetchall() == [("delivered",), ("delivered",)]
        assert matched.result().fetchall() == [(2,)]
    states = "select queued, lease from bds.hook_states where hook_id = any (%s::uuid[])"
    assert queue.rows(states, (list(hooks),)) == [(1, None), (1, None)]


@pytest.mark.parametrize("what", ["test_hook", "retry_delivery", "replay_hook"])
def test_what_is_to_be_sent_is_due_whichever_attempt_is_recorded_before_its_commit(queue: Queue, connect: Any, what: str) -> None:
    hook = queue.hook(entity="units")
    queue.write("insert into data.units (code, name) values ('1', 'u')")
    queue.route()
    [sent] = queue.claim()
    if what == "retry_delivery":
        queue.write("insert into data.units (code, name) values ('2', 'u')")
        queue.route()
    asked = {
        "test_hook": "select bds.test_hook('acme', %(hook)s)",
        "retry_delivery": "select bds.retry_delivery('acme', %(hook)s, id) from bds.deliveries where id <> %(sent)s",
        "replay_hook": "select bds_service.replay_hook('acme', %(hook)s, 0, 1, 10)",
    }[what]
    asking, recording = connect(), connect("bds_worker")
    attempts = json.dumps([{**sent, "body": None, "status": 200}])
    with ThreadPoolExecutor() as threads:
        with asking.transaction():
            asking.execute(asked, {"hook": hook, "sent": sent["delivery"]})
            recorded = threads.submit(recording.execute, "select state from bds_service.record_attempts(%s)", (attempts,))
            wait_until(lambda: recorded.done() or is_waiting(queue, recording))
        assert recorded.result().fetchall() == [("delivered",)]
    assert [each["hook"] for each in queue.claim()] == [hook]


def test_cleaning_up_waits_for_no_worker(queue: Queue, connect: Any) -> None:
    hook = queue.hook()
    queue.write("select bds.delete_hook('acme', %s)", (hook,))
    queue.operator.connection.execute("update bds.hooks set deleted_at = now() - interval '2 hours'")
    queue.worker.execute("set lock_timeout = '1s'")
    holder = connect()
    with holder.transaction():
        holder.execute("select from bds.hook_states for update")
        assert queue.rows("select bds_service.forget_deliveries('1 hour')") == [(0,)]
        assert queue.rows("select id::text from bds.hooks") == [(hook,)]
    queue.rows("select bds_service.forget_deliveries('1 hour')")
    assert queue.rows("select from bds.hooks") == []


def company(queue: Queue, name: str, url: str) -> str:
    """A company with a hook for its units; returns the hook's id."""
    queue.operator.company(name)
    [(hook,)] = queue.operator.write(name, "select bds.create_hook(%s, 'units', %s)::jsonb ->> 'id'", (name, url))
    return str(hook)


def write_unit(queue: Queue, company: str, code: str) -> None:
    queue.operator.write(company, "insert into data.units (code, name) values (%s, 'u')", (code,))


def sessions(queue: Queue) -> str:
    """What the worker's sessions do, for the message of a test that fails."""
    query = (
        "select pid, state, wait_event_type, wait_event, left(query, 100) from pg_stat_activity"
        " where datname = current_database() and application_name = 'bds'"
    )
    return "\n".join(map(str, queue.operator.rows(query)))


def waiting(queue: Queue) -> int:
    """The number of workers' sessions that wait for a lock."""
    query = (
        "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'bds'"
        " and wait_event_type = 'Lock'"
    )
    return int(queue.operator.rows(query)[0][0])


@pytest.mark.slow
def test_a_company_whose_matching_is_blocked_delays_no_other(queue: Queue, receiver: Receiver, connect: Any) -> None:
    for name in ("blocked", "free"):
        company(queue, name, receiver.url(f"/{name}"))
    holder = connect()
    with working(queue.url):
        with holder.transaction():
            holder.execute("select from bds.hook_states where company_id = 'blocked' for update")
            write_unit(queue, "blocked", "1")
            wait_until(lambda: waiting(queue) == 1)
            for n in range(1, 4):
                write_unit(queue, "free", str(n))
                receiver.wait("/free", n)
                write_unit(queue, "blocked", f"1{n}")
            assert waiting(queue) == 1, "one task for each company"
            assert receiver.of("/blocked") == []
        wait_until(lambda: set(receiver.changes("/blocked")) == {1, 2, 3, 4})


@pytest.mark.slow
def test_blocked_companies_leave_a_connection_for_deliveries(queue: Queue, receiver: Receiver, connect: Any) -> None:
    blocked = [f"blocked{n}" for n in range(6)]
    for name in blocked:
        company(queue, name, receiver.url("/blocked"))
        queue.operator.write(name, "select bds.create_hook(%s, 'products', %s)", (name, receiver.url("/unfit")))
    hook = company(queue, "free", receiver.url("/free"))
    holder = connect()
    with working(queue.url):
        with holder.transaction():
            holder.execute("select from bds.hook_states where company_id like 'blocked%' for update")
            for name in blocked:
                write_unit(queue, name, "1")
            wait_until(lambda: waiting(queue) == 3)
            # disabling a hook waits while its company is being matched
            queue.operator.connection.execute("update bds.hooks set columns = '{gone}' where entity = 'products'")
            queue.operator.connection.execute("notify bds_catalog")
            for n in range(1, 4):
                queue.operator.write("free", "select bds.test_hook('free', %s)", (hook,))
                try:
                    receiver.wait("/free", n)
                except AssertionError as error:
                    raise AssertionError(sessions(queue)) from error
            assert waiting(queue) == 3
        receiver.wait("/blocked", len(blocked))
        wait_until(lambda: len(queue.rows("select from bds.hooks where disabled")) == len(blocked))
