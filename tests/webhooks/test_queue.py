"""The queue, as a worker in any language uses it: batches, order, leases, the schedule of retries, cancelled deliveries."""

from __future__ import annotations

import json
import threading
from typing import Any

import psycopg
import pytest

from app.config import seconds_kept
from tests.service.serving import wait_until
from tests.webhooks.conftest import DAY, Queue

pytestmark = pytest.mark.slow

ONE, TWO = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
MISSING = "00000000-0000-0000-0000-00000000dead"


def ids(claimed: dict[str, Any]) -> list[int]:
    return [int(change["id"]) for change in claimed["body"]["changes"]]


def seconds_until(queue: Queue, expression: str, hook: str) -> float:
    query = f"select extract(epoch from {expression} - clock_timestamp())::float8 from bds.hook_states s where s.hook_id = %s"
    [(seconds,)] = queue.rows(query, (hook,))
    return float(seconds)


def test_the_payload_has_the_specified_members(queue: Queue) -> None:
    hook = queue.hook(allow_in_change_set=True)
    queue.products("A", change_set=ONE)
    queue.route()
    [claimed] = queue.claim()
    body = claimed["body"]
    assert body.pop("timestamp").endswith("Z")
    [row_id] = queue.operator.rows("select id::text from data.products")[0]
    assert body == {
        "hookId": hook,
        "tenantId": "shops",
        "organisationId": "acme",
        "changeSetId": ONE,
        "changes": [{"id": "1", "entity": "products", "operation": "create", "rowId": row_id, "changeSetId": ONE}],
    }


def test_a_company_without_a_tenant_is_its_own_tenant(queue: Queue) -> None:
    queue.operator.company("solo")
    queue.operator.write("solo", "select bds.create_hook('solo', 'products', 'http://127.0.0.1:9/')")
    queue.operator.write("solo", "insert into data.products (code, name) values ('A', 'a')")
    queue.rows("select from bds_service.route_changes('solo', '0')")
    assert queue.claim()[0]["body"]["tenantId"] == "solo"


def test_changes_are_collected_until_the_window_of_the_first_ends(queue: Queue) -> None:
    hook = queue.hook()
    queue.products("A")
    queue.route(5)
    assert 4.5 < seconds_until(queue, "s.batch_at", hook) <= 5
    queue.products("B")
    queue.route(DAY)
    assert 4 < seconds_until(queue, "s.batch_at", hook) <= 5, "the window is the first change's"
    assert queue.claim() == []
    queue.operator.connection.execute("update bds.hook_queue set due_at = now() where change_id = 1")
    queue.operator.connection.execute("update bds.hook_states set batch_at = now()")
    [claimed] = queue.claim()
    assert ids(claimed) == [1, 2]


def test_a_hundred_changes_are_due_at_once(queue: Queue) -> None:
    queue.hook()
    queue.products(*(f"P{n}" for n in range(99)))
    queue.route(DAY)
    assert queue.claim() == []
    queue.products("last", "over")
    queue.route(DAY)
    [claimed] = queue.claim()
    assert ids(claimed) == list(range(1, 101))
    queue.record(claimed)
    assert queue.claim() == [], "the rest waits for its own window"
    assert queue.rows("select queued from bds.hook_states") == [(1,)]


def test_a_batch_has_one_change_set_or_none_and_keeps_the_order(queue: Queue) -> None:
    hook = queue.hook(allow_in_change_set=True)
    for number, change_set in enumerate((None, None, ONE, ONE, TWO, None, ONE)):
        queue.products(f"P{number}", change_set=change_set)
    queue.route()
    sent = []
    while claimed := queue.claim():
        sent.append((claimed[0]["body"]["changeSetId"], ids(claimed[0])))
        queue.record(*claimed)
    assert sent == [(None, [1, 2]), (ONE, [3, 4]), (TWO, [5]), (None, [6]), (ONE, [7])]
    assert {delivery["changeSetId"] for delivery in queue.deliveries(hook)} == {None, ONE, TWO}


def test_a_full_batch_makes_the_changes_before_it_due(queue: Queue) -> None:
    hook = queue.hook(allow_in_change_set=True)
    queue.products("A", "B", change_set=ONE)
    queue.products(*(f"P{n}" for n in range(100)), change_set=TWO)
    queue.products("Z")
    queue.route(DAY)
    [claimed] = queue.claim()
    assert ids(claimed) == [1, 2]
    queue.record(claimed)
    [claimed] = queue.claim()
    assert len(ids(claimed)) == 100
    queue.record(claimed)
    assert queue.claim() == []
    assert queue.queued(hook) == [103]


def test_a_large_backlog_is_sent_in_hundreds(queue: Queue) -> None:
    hook = queue.hook()
    queue.products(*(f"P{n}" for n in range(1_050)))
    queue.route()
    sent = []
    while claimed := queue.claim():
        sent.append(ids(claimed[0]))
        queue.record(*claimed)
    assert [len(batch) for batch in sent] == [100] * 10 + [50]
    assert [change for batch in sent for change in batch] == list(range(1, 1_051))
    assert set(queue.states(hook)) == {"delivered"}


def test_deliveries_of_one_hook_are_sent_in_turn_and_those_of_several_in_parallel(queue: Queue, connect: Any) -> None:
    queue.hook()
    queue.hook()
    queue.products(*(f"P{n}" for n in range(150)))
    queue.route()
    first = queue.claim(most=1)
    second = queue.claim()
    assert len(first) == len(second) == 1
    assert first[0]["hook"] != second[0]["hook"]
    assert queue.claim() == []
    queue.record(*first)
    [third] = queue.claim()
    assert (third["hook"], ids(third)) == (first[0]["hook"], list(range(101, 151)))


def test_a_locked_hook_is_skipped(queue: Queue, connect: Any) -> None:
    hooks = {queue.hook(), queue.hook()}
    queue.send("A")
    other = connect("bds_worker")
    with other.transaction():
        held = other.execute("select hook from bds_service.claim_deliveries(1)").fetchone()
        assert held is not None
        [mine] = queue.claim()
        assert {str(held[0]), mine["hook"]} == hooks


def test_an_expired_lease_frees_the_delivery_for_another_worker(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    [lost] = queue.claim(lease=0)
    [again] = queue.claim()
    assert again["delivery"] == lost["delivery"] and again["lease"] != lost["lease"]
    assert queue.record(lost, status=500) == [], "without the lease an attempt is not recorded"
    assert queue.record(again) == ["delivered"]
    assert len(queue.deliveries(hook)[0]["attempts"]) == 1


def test_a_lease_is_renewed_and_released(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    [claimed] = queue.claim(lease=0)
    mine = json.dumps([{**claimed, "body": None}, {**claimed, "body": None, "lease": MISSING}])
    assert [str(row[0]) for row in queue.rows("select bds_service.renew_leases(%s, '1 minute')", (mine,))] == [claimed["lease"]]
    assert queue.claim() == []
    queue.rows("select bds_service.release_leases(%s)", (mine,))
    [again] = queue.claim()
    assert again["delivery"] == claimed["delivery"]
    assert queue.deliveries(hook)[0]["attempts"] == []


def test_the_schedule_of_retries_is_the_specified_one(queue: Queue) -> None:
    """1, 3, 9, 27, 81 minutes; then the batch is removed and the hook rests for an hour."""
    hook = queue.hook()
    queue.send("A")
    queue.send("B")
    for failures, delay in enumerate((60, 180, 540, 1620, 4860), 1):
        [claimed] = queue.claim()
        assert ids(claimed) == [1], "later batches wait"
        assert queue.record(claimed, status=(500, 503, None, 302, 199)[failures - 1]) == ["waiting"]
        assert delay - 5 < seconds_until(queue, "s.next_at", hook) <= delay
        assert queue.claim() == []
        queue.due_now(hook)
    [claimed] = queue.claim()
    assert queue.record(claimed, status=None, error="timeout") == ["failed"]
    assert 3_595 < seconds_until(queue, "s.rests_until", hook) <= 3_600
    assert 3_595 < seconds_until(queue, "s.next_at", hook) <= 3_600
    assert queue.claim() == []
    first, _ = queue.deliveries(hook)
    assert (first["state"], first["nextAttemptAt"]) == ("failed", None)
    assert [attempt["status"] for attempt in first["attempts"]] == [500, 503, None, 302, 199, None]
    assert first["attempts"][-1].items() >= {"error": "timeout", "reply": "r", "durationMs": 12}.items()
    queue.due_now(hook)
    [claimed] = queue.claim()
    assert ids(claimed) == [2], "later batches go out after the rest"


def test_success_resets_the_schedule(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    for _ in range(3):
        queue.record(*queue.claim(), status=500)
        queue.due_now(hook)
    assert queue.record(*queue.claim()) == ["delivered"]
    queue.send("B")
    queue.record(*queue.claim(), status=500)
    assert 55 < seconds_until(queue, "s.next_at", hook) <= 60


def test_4xx_is_permanent(queue: Queue) -> None:
    hook = queue.hook()
    statuses = (400, 404, 410, 429, 499)
    for number in range(len(statuses) + 1):
        queue.send(f"P{number}")
    for number, status in enumerate(statuses, 1):
        [claimed] = queue.claim()
        assert ids(claimed) == [number], "no retry, no rest"
        assert queue.record(claimed, status=status) == ["failed"]
    assert queue.states(hook) == ["failed"] * len(statuses) + ["pending"]


def test_2xx_is_delivered(queue: Queue) -> None:
    hook = queue.hook()
    for status in (200, 201, 204, 299):
        queue.send(f"P{status}")
        assert queue.record(*queue.claim(), status=status) == ["delivered"]
    for delivery in queue.deliveries(hook):
        assert delivery.items() >= {"state": "delivered", "changes": 1, "hookId": hook, "nextAttemptAt": None}.items()
        assert delivery["finishedAt"] >= delivery["createdAt"]


def disable(queue: Queue, hook: str, disabled: bool = True) -> None:
    queue.write(
        "select bds.update_hook('acme', h.id, h.entity, h.url, h.filter, h.columns, h.allow_in_change_set, %s)"
        " from bds.hooks h where h.id = %s",
        (disabled, hook),
    )


def test_disabling_cancels_queued_deliveries_and_enabling_starts_empty(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("waits")
    queue.record(*queue.claim(), status=500)
    queue.send("pending")
    queue.claim()
    queue.products("collected")
    queue.route(DAY)
    disable(queue, hook)
    assert queue.states(hook) == ["cancelled"] * 3
    queue.send("unseen")
    disable(queue, hook, False)
    queue.send("seen")
    [claimed] = queue.claim()
    assert ids(claimed) == [5]


def test_deleting_cancels_queued_deliveries(queue: Queue) -> None:
    hook = queue.hook()
    queue.products("A")
    queue.route(DAY)
    queue.write("select bds.delete_hook('acme', %s)", (hook,))
    assert queue.states(hook) == ["cancelled"]
    queue.products("B")
    assert queue.matched(hook) == []
    assert queue.claim() == []
    assert queue.operator.rows("select * from bds.hook_secrets") == []
    with pytest.raises(psycopg.Error) as raised:
        queue.write("select bds.delete_hook('acme', %s)", (hook,))
    assert raised.value.sqlstate == "BD002"


def test_changes_matched_while_the_hook_was_being_disabled_are_cancelled(queue: Queue, connect: Any) -> None:
    """A worker that matches at that moment still finds the hook enabled."""
    hook = queue.hook()
    queue.products("A")
    queue.route(DAY)
    queue.operator.connection.execute("update bds.hooks set disabled = true")
    queue.operator.connection.execute("update bds.hook_queue set due_at = now()")
    queue.operator.connection.execute("update bds.hook_states set batch_at = now()")
    assert queue.claim() == []
    assert queue.states(hook) == ["cancelled"]


def test_disabling_waits_for_a_matching_worker_and_cancels_its_changes(queue: Queue, connect: Any) -> None:
    hook = queue.hook()
    queue.products("A")
    other = connect("bds_worker")
    with other.transaction():
        other.execute("select from bds_service.route_changes('acme', '0')")
        disabling = threading.Thread(target=disable, args=(queue, hook))
        disabling.start()
        wait_until(lambda: bool(other.execute("select from pg_locks where not granted").fetchall()))
    disabling.join()
    assert queue.states(hook) == ["cancelled"]
    assert queue.claim() == []


def test_a_hook_is_not_changed_while_a_worker_is_matching(queue: Queue, connect: Any) -> None:
    """Else a change could match neither the old filter nor the new one."""
    hook = queue.hook()
    queue.write("insert into data.units (code, name) values ('u', 'u')")
    other = connect("bds_worker")
    with other.transaction():
        other.execute("select from bds_service.route_changes('acme', '0')")
        changing = threading.Thread(target=disable, args=(queue, hook))
        changing.start()
        wait_until(lambda: bool(other.execute("select from pg_locks where not granted").fetchall()))
    changing.join()
    assert queue.route() == (0, False)


@pytest.mark.parametrize(("status", "state"), [(200, "delivered"), (500, "cancelled"), (400, "cancelled")])
def test_an_attempt_that_runs_when_the_hook_is_disabled_is_recorded(queue: Queue, status: int, state: str) -> None:
    hook = queue.hook()
    queue.send("A")
    claimed = queue.claim()
    disable(queue, hook)
    assert queue.states(hook) == ["cancelled"]
    assert queue.record(*claimed, status=status) == [state]
    assert len(queue.deliveries(hook)[0]["attempts"]) == 1
    assert queue.claim() == []


def test_a_new_url_applies_to_queued_deliveries(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    queue.write("select bds.update_hook('acme', %s, 'products', 'http://new/', null, null, false, false)", (hook,))
    assert queue.rows("select url from bds_service.claim_deliveries()") == [("http://new/",)]


def test_a_manual_retry_is_sent_next_with_a_fresh_schedule(queue: Queue) -> None:
    hook = queue.hook()
    for code in ("A", "B", "C"):
        queue.send(code)
    queue.record(*queue.claim(), status=404)
    for _ in range(6):  # the second delivery fails for good, and the hook rests
        queue.record(*queue.claim(), status=500)
        queue.operator.connection.execute(
            "update bds.hook_states set next_at = now() where next_at is not null and rests_until is null"
        )
        queue.operator.connection.execute("update bds.deliveries set next_attempt_at = now() where finished_at is null")
    assert queue.states(hook) == ["failed", "failed", "pending"]
    assert queue.claim() == []
    first, second, third = (delivery["id"] for delivery in queue.deliveries(hook))
    queue.write("select bds.retry_delivery('acme', %s, %s)", (hook, second))
    [claimed] = queue.claim()
    assert claimed["delivery"] == second, "although the hook rests"
    assert queue.record(claimed, status=500) == ["waiting"]
    queue.write("select bds.retry_delivery('acme', %s, %s)", (hook, first))
    [claimed] = queue.claim()
    assert claimed["delivery"] == first
    assert queue.record(claimed) == ["delivered"], "and the hook rests no longer"
    queue.due_now(hook)
    [claimed] = queue.claim()
    assert claimed["delivery"] == second
    assert queue.record(claimed) == ["delivered"]
    [claimed] = queue.claim()
    assert claimed["delivery"] == third


RETRY = "select bds.retry_delivery('acme', %s, %s)"


def place_of(queue: Queue, delivery: str) -> tuple[Any, ...]:
    """Where a delivery and its hook are in the schedule, and the failures that count."""
    [place] = queue.rows(
        "select d.failures, d.next_attempt_at, s.failures, s.rests_until from bds.deliveries d"
        " join bds.hook_states s using (company_id, hook_id) where d.id = %s",
        (delivery,),
    )
    return place


@pytest.mark.parametrize("rests", [False, True])
@pytest.mark.parametrize(
    ("status", "state"), [(200, "delivered"), (500, "waiting"), (None, "waiting"), (302, "waiting"), (410, "failed")]
)
def test_a_delivery_that_waits_is_sent_next_beside_its_schedule(queue: Queue, status: int | None, state: str, rests: bool) -> None:
    hook = queue.hook()
    for code in ("A", "B", "C"):
        queue.send(code)
    queue.record(*queue.claim(), status=500)
    if rests:
        queue.operator.connection.execute("update bds.hook_states set rests_until = now() + interval '1 h'")
    first, second, third = (delivery["id"] for delivery in queue.deliveries(hook))
    assert queue.claim() == [], "the first one waits"
    for chosen in (third, first):
        before, shown = place_of(queue, chosen), {each["id"]: each["nextAttemptAt"] for each in queue.deliveries(hook)}
        queue.write(RETRY, (hook, chosen))
        [due] = queue.rows(
            "select bds_service.delivery_json(d, s) ->> 'nextAttemptAt' <= bds_service.api_time(clock_timestamp()) from bds.deliveries d"
            " join bds.hook_states s using (company_id, hook_id) where d.id = %s",
            (chosen,),
        )
        assert due == (True,)
        [claimed] = queue.claim()
        assert claimed["delivery"] == chosen
        assert queue.record(claimed, status=status, error=None if status else "timeout") == [state]
        if state == "waiting":
            assert place_of(queue, chosen) == before, "neither failures nor the next attempt"
            assert {each["id"]: each["nextAttemptAt"] for each in queue.deliveries(hook)} == shown
            assert queue.claim() == []
    if state != "waiting":
        queue.due_now(hook)
        assert [each["delivery"] for each in queue.claim()] == [second], "the others follow in order"


def test_attempts_beside_the_schedule_do_not_use_it_up(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    [delivery] = (each["id"] for each in queue.deliveries(hook))
    states = []
    for _ in range(6):
        queue.write(RETRY, (hook, delivery))
        states += queue.record(*queue.claim(), status=503)
        queue.due_now(hook)
        states += queue.record(*queue.claim(), status=503)
    assert states == ["waiting"] * 11 + ["failed"]
    assert len(queue.deliveries(hook)[0]["attempts"]) == 12
    assert queue.rows("select failures, rests_until > now() from bds.hook_states where hook_id = %s", (hook,)) == [(6, True)]


def test_a_delivery_that_cannot_be_sent_again_is_refused(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    queue.send("B")
    first, second = (each["id"] for each in queue.deliveries(hook))

    def refused(delivery: str, says: str, state: str = "BD004") -> None:
        before = queue.deliveries(hook)[0]["attempts"], queue.states(hook)
        with pytest.raises(psycopg.Error) as raised:
            queue.write(RETRY, (hook, delivery))
        assert (raised.value.sqlstate, says in str(raised.value)) == (state, True), raised.value
        assert (queue.deliveries(hook)[0]["attempts"], queue.states(hook)) == before

    refused(MISSING, "no delivery", "BD002")
    [claimed] = queue.claim()
    assert claimed["delivery"] == first
    refused(first, "is being sent")
    queue.write(RETRY, (hook, second))
    assert queue.claim() == [], "one at a time"
    queue.record(claimed, status=500)
    [urgent] = queue.claim()
    assert urgent["delivery"] == second
    queue.record(urgent)
    queue.write(RETRY, (hook, second))
    [again] = queue.claim()
    refused(second, "is being sent")
    queue.record(again)
    disable(queue, hook)
    refused(first, "is cancelled")
    refused(second, "is of a disabled hook")


def test_a_late_result_is_not_that_of_the_attempt_that_was_asked_for(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    [late] = queue.claim(lease=0)
    queue.write(RETRY, (hook, late["delivery"]))
    assert queue.record(late, status=500) == []
    [claimed] = queue.claim()
    assert claimed["delivery"] == late["delivery"]
    assert queue.record(claimed) == ["delivered"]


def test_a_test_delivers_one_invented_change_once(queue: Queue) -> None:
    hook = queue.hook(None)
    queue.send("A")
    [(delivery,)] = queue.write("select bds.test_hook('acme', %s)", (hook,))
    [claimed] = queue.claim()
    assert claimed["delivery"] == str(delivery), "before all others"
    [change] = claimed["body"]["changes"]
    assert (change["id"], change["rowId"]) == ("0", "0")
    assert queue.record(claimed, status=500) == ["failed"]
    [claimed] = queue.claim()
    assert ids(claimed) == [1]


def test_a_disabled_hook_can_be_tested(queue: Queue) -> None:
    hook = queue.hook(disabled=True)
    queue.send("A")
    queue.write("select bds.test_hook('acme', %s)", (hook,))
    [claimed] = queue.claim()
    assert ids(claimed) == [0]


def test_next_due_tells_when_a_delivery_is_due(queue: Queue) -> None:
    assert queue.rows("select bds_service.next_due()") == [(None,)]
    queue.hook()
    queue.products("A")
    queue.route(100)
    assert 95 < queue.rows("select bds_service.next_due()")[0][0] <= 100


def test_old_deliveries_and_deleted_hooks_are_removed(queue: Queue) -> None:
    hook, other = queue.hook(), queue.hook()
    queue.send("A")
    queue.record(*queue.claim())
    assert queue.rows("select bds_service.forget_deliveries('1 hour')") == [(0,)]
    queue.write("select bds.delete_hook('acme', %s)", (hook,))
    queue.operator.connection.execute("update bds.deliveries set finished_at = now() - interval '2 hours'")
    queue.operator.connection.execute("update bds.hooks set deleted_at = now() - interval '2 hours' where deleted_at is not null")
    assert queue.rows("select bds_service.forget_deliveries(make_interval(secs => %s))", (seconds_kept(0),)) == [(0,)]
    assert queue.rows("select count(*) from bds.hooks") == [(2,)]
    assert queue.rows("select bds_service.forget_deliveries(make_interval(secs => %s))", (seconds_kept(1 / 24),)) == [(2,)]
    assert [str(row[0]) for row in queue.rows("select id from bds.hooks")] == [other]
    assert queue.operator.rows("select from bds.delivery_attempts") == []


def test_no_session_reads_secrets_and_a_worker_is_given_that_of_a_delivery(queue: Queue, connect: Any) -> None:
    queue.hook()
    queue.send("A")
    [([secret],)] = queue.rows("select secrets from bds_service.claim_deliveries()")
    assert secret.startswith("whsec_")
    for role in ("bds_reader", "bds_writer", "bds_service", "bds_worker", "bds_operator"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connect(role, "acme").execute("select secret from bds.hook_secrets")


def test_the_service_sees_only_hooks_of_the_company_of_its_session(queue: Queue, connect: Any) -> None:
    hook = queue.hook()
    queue.operator.company("beta")
    assert connect("bds_service", "acme").execute("select id::text from bds.hooks").fetchall() == [(hook,)]
    service = connect("bds_service", "beta")
    assert service.execute("select from bds.hooks").fetchall() == []
    for call in (
        f"bds_service.lock_hook('acme', '{hook}')",
        f"bds.delete_hook('acme', '{hook}')",
        "bds.create_hook('acme', null, 'http://x/')",
    ):
        with pytest.raises(psycopg.Error) as raised:
            service.execute(f"select {call}".encode())
        assert raised.value.sqlstate == "BD001"
    for role in ("bds_reader", "bds_writer"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connect(role, "acme").execute("select from bds.hooks")


def test_the_worker_cannot_alter_the_log(queue: Queue) -> None:
    for statement in ("delete from bds.change_log", "update bds.change_log set actor = 'x'", "update data.products set name = 'x'"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            queue.rows(statement)


@pytest.mark.parametrize(
    ("entity", "url", "columns", "says"),
    [
        ("nope", "https://x.com/", None, "no such entity: nope"),
        ("units", "https://x.com/", ["symbol", "price"], "column 'price'"),
        (None, "https://x.com/", ["nope"], "no entity has a column 'nope'"),
        (None, "https://x.com/", [None], "no entity has a column NULL"),
        ("units", "ftp://x.com/", None, "'ftp://x.com/' is not"),
        ("units", "https:///x", None, "http or https address"),
        ("units", "https://x.com/\n", None, "http or https address"),
        ("units", None, None, "null is not"),
    ],
)  # fmt: skip
def test_a_hook_that_could_never_match_is_refused_by_sql(
    queue: Queue, entity: str | None, url: str | None, columns: list[str | None] | None, says: str
) -> None:
    with pytest.raises(psycopg.Error) as raised:
        queue.write("select bds.create_hook('acme', %s, %s, columns => %s)", (entity, url, columns))
    assert (raised.value.sqlstate, says in str(raised.value)) == ("BD005", True), raised.value
    hook = queue.hook("units")
    with pytest.raises(psycopg.Error) as raised:
        queue.write("select bds.update_hook('acme', %s, %s, %s, null, %s, false, false)", (hook, entity, url, columns))
    assert raised.value.sqlstate == "BD005"


def test_a_hook_of_no_company_is_refused(queue: Queue) -> None:
    with pytest.raises(psycopg.Error) as raised:
        queue.rows("reset role; select bds.create_hook('nobody', null, 'https://x.com/')")
    assert raised.value.sqlstate == "BD002"


def test_a_lease_is_valid_only_for_its_own_delivery(queue: Queue) -> None:
    mine, other = queue.hook(), queue.hook()
    queue.send("A")
    first, second = sorted(queue.claim(), key=lambda each: each["hook"] != mine)
    assert (first["hook"], second["hook"]) == (mine, other)
    assert queue.record({**first, "delivery": second["delivery"]}) == []
    assert queue.states(other) == ["pending"] and queue.deliveries(other)[0]["attempts"] == []


def test_the_duration_of_an_attempt_is_optional(queue: Queue) -> None:
    hook = queue.hook()
    queue.send("A")
    [claimed] = queue.claim()
    attempts = json.dumps([{**claimed, "body": None, "status": 200}])
    assert queue.rows("select state from bds_service.record_attempts(%s)", (attempts,)) == [("delivered",)]
    assert (
        queue.deliveries(hook)[0]["attempts"][0].items() >= {"status": 200, "durationMs": 0, "error": None, "reply": None}.items()
    )
