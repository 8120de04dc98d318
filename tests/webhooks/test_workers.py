"""Whatever dies or misbehaves: each hook gets every committed change at least once, in order, and no other change."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from app.config import Config
from app.database.database import Database
from app.webhooks import worker
from tests.conftest import Operator
from tests.servers import own_server
from tests.service.serving import wait_until
from tests.webhooks.conftest import COMMAND, ROOT, SETTINGS, Queue, working
from tests.webhooks.receiving import Receiver

pytestmark = pytest.mark.processes

LONG = 60.0  # seconds that a test waits for something that takes several attempts


def wait_long(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@dataclass
class Writers:
    """Threads that write products of acme, commit or roll back after a while, and keep a list of their commits."""

    url: str
    seed: int = 0
    commits: dict[int, float] = field(default_factory=dict)  # change id -> a moment before its commit
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopped: threading.Event = field(default_factory=threading.Event)

    def write(self, number: int) -> None:
        chosen = random.Random(f"{self.seed} {number}")
        count = 0
        while not self.stopped.is_set():
            with suppress(psycopg.OperationalError), psycopg.connect(self.url) as connection:  # the server may be down
                while not self.stopped.is_set():
                    count += 1
                    self.transaction(connection, chosen, f"{number} {count} {chosen.random()}")
            time.sleep(0.05)

    def transaction(self, connection: psycopg.Connection[Any], chosen: random.Random, code: str) -> None:
        connection.execute("select bds.set_context('acme')")
        rows = chosen.choice((1, 1, 2, 30))
        connection.execute("insert into data.products (code, name) select %s || n, 'x' from generate_series(1, %s) n", (code, rows))
        row = connection.execute("select last_id from bds.clocks where company_id = 'acme'").fetchone()
        assert row is not None
        time.sleep(chosen.random() / 100)
        if chosen.random() < 0.3:
            connection.rollback()
            return
        # before the commit: if its answer is lost, only the log tells whether it happened
        with self.lock:
            self.commits |= {change: time.monotonic() for change in range(row[0] - rows + 1, row[0] + 1)}
        connection.commit()
        time.sleep(chosen.random() / 10)

    @contextmanager
    def writing(self, threads: int = 2) -> Iterator[None]:
        started = [threading.Thread(target=self.write, args=(number,)) for number in range(threads)]
        for thread in started:
            thread.start()
        try:
            yield
        finally:
            self.stopped.set()
            for thread in started:
                thread.join()

    def check(self, receiver: Receiver, path: str) -> None:
        """Compare the requests to a hook for every product with the log."""
        with psycopg.connect(self.url) as connection:
            log = [row[0] for row in connection.execute("select id from bds.change_log where company_id = 'acme' order by id")]
        wait_long(lambda: len(set(receiver.changes(path))) >= len(log))
        sent = receiver.changes(path)
        assert list(dict.fromkeys(sent)) == log, "every change, in order, none that was rolled back"
        assert all(request.at >= self.commits[change] for request in receiver.of(path) for change in request.changes)
        assert receiver.most[path] == 1, f"one at a time to {path}"


@pytest.fixture
def hooks(queue: Queue, receiver: Receiver) -> list[str]:
    """Paths of hooks for every product, whose receivers behave differently."""
    receiver.answers = {
        "/flaky": [503, 200, "reset", 200, 200, "empty", 200] * 10_000,
        "/garbage": ["garbage", 200, 200, "headers", 200] * 10_000,
        "/slow": ["slow"],
    }
    paths = ["/good", "/slow", "/flaky", "/garbage"]
    for path in paths:
        queue.hook(url=receiver.url(path))
    return paths


def test_killed_workers_lose_nothing(queue: Queue, receiver: Receiver, hooks: list[str]) -> None:
    writers, chosen = Writers(queue.url), random.Random(7)
    # a worker that lives renews its leases, however little of the processors it gets
    settings = {"BDS_WEBHOOK_WINDOW": "0.3", "BDS_WEBHOOK_LEASE": "15"}
    with writers.writing():
        for _ in range(3):
            with working(queue.url, **settings) as first, working(queue.url, **settings):
                time.sleep(chosen.random())
                first.kill()
                time.sleep(chosen.random() / 4)
    with working(queue.url, BDS_WEBHOOK_LEASE=settings["BDS_WEBHOOK_LEASE"]):
        for path in hooks:
            writers.check(receiver, path)
    assert len(writers.commits) > 20


def test_workers_that_survive_deliver_each_change_once(queue: Queue, receiver: Receiver) -> None:
    for path in ("/a", "/b", "/c"):
        queue.hook(url=receiver.url(path))
    writers = Writers(queue.url, seed=2)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(working(queue.url, BDS_WEBHOOK_LEASE="5"))
        with writers.writing():
            time.sleep(2)
        for path in ("/a", "/b", "/c"):
            writers.check(receiver, path)
            assert len(receiver.changes(path)) == len(writers.commits)


def test_workers_share_the_deliveries_that_one_of_them_has_matched(queue: Queue, receiver: Receiver) -> None:
    receiver.answers["/slow"] = ["slow"]
    hooks = [queue.hook(url=receiver.url("/slow")) for _ in range(80)]
    with working(queue.url, BDS_WEBHOOK_CONCURRENCY="5"), working(queue.url, BDS_WEBHOOK_CONCURRENCY="5"):
        queue.products("A")
        receiver.wait("/slow", len(hooks))
    assert receiver.most["/slow"] > 5, "one alone has five under way"


def test_a_database_that_crashes_and_restarts_loses_nothing(receiver: Receiver) -> None:
    with own_server() as own:
        with psycopg.connect(own.url, autocommit=True) as connection:
            operator = Operator(connection)
            operator.company("acme")
            for path in ("/good", "/flaky"):
                operator.write("acme", "select bds.create_hook('acme', 'products', %s)", (receiver.url(path),))
        receiver.answers["/flaky"] = [500, 200] * 10_000
        writers = Writers(own.url, seed=3)
        with working(own.url), working(own.url):
            with writers.writing():
                for _ in range(2):
                    time.sleep(0.7)
                    own.crash()
                time.sleep(0.5)
            for path in ("/good", "/flaky"):
                writers.check(receiver, path)


def test_another_worker_takes_over_the_delivery_of_a_dead_one(queue: Queue, receiver: Receiver) -> None:
    hook = queue.hook(url=receiver.url("/once"))
    receiver.answers["/once"] = ["hang", 200]
    with working(queue.url, BDS_WEBHOOK_TIMEOUT="60") as dying:
        queue.products("A")
        receiver.wait("/once", 1)
        with working(queue.url, BDS_WEBHOOK_TIMEOUT="60"):
            time.sleep(1)
            assert len(receiver.of("/once")) == 1, "its lease is renewed as long as it lives"
            dying.kill()
            first, again = receiver.wait("/once", 2)
            wait_until(lambda: queue.states(hook) == ["delivered"])
    assert first.body == again.body and first.headers["webhook-id"] == again.headers["webhook-id"]
    [attempt] = queue.deliveries(hook)[0]["attempts"]
    assert attempt["status"] == 200


def test_a_worker_that_was_stopped_for_longer_than_its_lease_sends_nothing_under_another_id(
    queue: Queue, receiver: Receiver
) -> None:
    """SIGSTOP while it waits for an answer; another worker takes its delivery over and goes on, then it wakes."""
    hook = queue.hook(url=receiver.url("/once"))
    receiver.answers["/once"] = ["hang", 200]
    with working(queue.url, BDS_WEBHOOK_TIMEOUT="60") as stopped:
        queue.products("A")
        receiver.wait("/once", 1)
        stopped.send_signal(signal.SIGSTOP)
        try:
            with working(queue.url):
                receiver.wait("/once", 2)
                queue.products("B")
                wait_until(lambda: queue.states(hook) == ["delivered"] * 2)
                stopped.send_signal(signal.SIGCONT)
                receiver.released.set()  # its answer arrives, too late
                queue.products("C")
                wait_until(lambda: queue.states(hook) == ["delivered"] * 3)
        finally:
            stopped.send_signal(signal.SIGCONT)
        queue.products("D")  # which it delivers itself
        wait_until(lambda: queue.states(hook) == ["delivered"] * 4)
    sent = [(request.headers["webhook-id"], tuple(request.changes)) for request in receiver.of("/once")]
    assert sent[0] == sent[1]
    assert [changes for _, changes in sent[1:]] == [(1,), (2,), (3,), (4,)]
    assert len({id for id, _ in sent[1:]}) == 4
    assert [len(delivery["attempts"]) for delivery in queue.deliveries(hook)] == [1, 1, 1, 1]


def test_a_stopping_worker_releases_its_leases(queue: Queue, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "GRACE", 0.1)
    hook = queue.hook(url=receiver.url("/hang"))
    receiver.answers["/hang"] = ["hang"]
    queue.send("A")

    async def main() -> None:
        config = Config(database_url=queue.url, webhook_allow_private=True, webhook_lease=3600.0)
        database = await Database.open(config)
        async with worker.working(database):
            await asyncio.to_thread(receiver.wait, "/hang", 1)
        await database.close()

    asyncio.run(main())
    [claimed] = queue.claim()
    assert claimed["hook"] == hook
    assert queue.deliveries(hook)[0]["attempts"] == [], "nothing is counted as a failure"


def test_a_hanging_receiver_does_not_delay_others(queue: Queue, receiver: Receiver) -> None:
    """More hanging receivers than attempts are started at once."""
    receiver.answers |= {f"/hang{n}": ["hang"] for n in range(250)}
    for n in range(250):
        queue.hook("units", url=receiver.url(f"/hang{n}"))
    queue.hook(url=receiver.url("/good"))
    with working(queue.url, BDS_WEBHOOK_TIMEOUT="60"):
        queue.write("insert into data.units (code, name) values ('u', 'u')")
        receiver.wait("/hang0", 1)
        for n in range(5):
            queue.products(f"P{n}")
            receiver.wait("/good", n + 1)
        wait_until(lambda: sum(receiver.under_way.values()) == 250)
        receiver.released.set()


def test_failures_follow_the_schedule_and_the_hook_rests(queue: Queue, receiver: Receiver) -> None:
    hook = queue.hook(url=receiver.url("/down"))
    receiver.answers["/down"] = [500, "hang", "reset", 503, 200]
    with working(queue.url, BDS_WEBHOOK_RETRY="0.1,0.4,0.8", BDS_WEBHOOK_PENALTY="1.5", BDS_WEBHOOK_TIMEOUT="0.5"):
        queue.products("A")
        receiver.wait("/down", 1)
        queue.products("B")
        attempts = receiver.wait("/down", 5)
        assert [request.changes for request in attempts] == [[1], [1], [1], [1], [2]]
        times = [request.at for request in attempts]
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps[0] >= 0.1 and gaps[1] >= 0.5 + 0.4 and gaps[2] >= 0.8 and gaps[3] >= 1.5
        wait_until(lambda: queue.states(hook) == ["failed", "delivered"])
    first = queue.deliveries(hook)[0]
    assert [attempt["status"] for attempt in first["attempts"]] == [500, None, None, 503]
    assert first["attempts"][1]["error"].startswith("timeout")


def test_a_hook_that_only_fails_is_disabled_by_a_worker(queue: Queue, receiver: Receiver) -> None:
    receiver.answers = {"/dead": [503], "/mixed": [503, 200]}
    dead, mixed = (queue.hook(url=receiver.url(path)) for path in ("/dead", "/mixed"))
    day = 86_400.0
    with working(queue.url, BDS_WEBHOOK_RETRY="0.1,0.1,0.1,0.1,0.1,60", BDS_WEBHOOK_DISABLE_AFTER=str(0.2 / day)):
        queue.products("A")
        wait_until(lambda: queue.states(dead) == ["cancelled"] and queue.states(mixed) == ["delivered"])
        reasons = "select hook_id::text, state, reason from bds.hook_health"
        wait_until(lambda: sorted(queue.rows(reasons)) == sorted([(dead, "disabled", "failures"), (mixed, "ok", None)]))
        assert 2 <= len(receiver.of("/dead")) <= 6
        queue.products("B")
        receiver.wait("/mixed", 3)
    assert {change for request in receiver.of("/dead") for change in request.changes} == {1}


def test_a_redirect_is_not_a_success_and_4xx_is_final(queue: Queue, receiver: Receiver) -> None:
    moved, gone = queue.hook(url=receiver.url("/moved")), queue.hook(url=receiver.url("/gone"))
    receiver.answers |= {"/moved": ["redirect", 200], "/gone": [410]}
    with working(queue.url):
        queue.products("A")
        wait_until(lambda: (queue.states(moved), queue.states(gone)) == (["delivered"], ["failed"]))
    assert (len(receiver.of("/moved")), len(receiver.of("/elsewhere")), len(receiver.of("/gone"))) == (2, 0, 1)


def test_a_private_address_is_a_temporary_failure(queue: Queue, receiver: Receiver) -> None:
    hook = queue.hook(url=receiver.url())
    with working(queue.url, BDS_WEBHOOK_ALLOW_PRIVATE="0", BDS_WEBHOOK_RETRY="60"):
        queue.products("A")
        wait_until(lambda: queue.states(hook) == ["waiting"])
    assert queue.deliveries(hook)[0]["attempts"][0]["error"].startswith("address_refused")
    assert receiver.requests == []


def test_changes_committed_while_no_worker_ran_are_delivered(queue: Queue, receiver: Receiver) -> None:
    queue.hook(url=receiver.url())
    queue.products("A")
    with working(queue.url):
        receiver.wait("/ok", 1)
    queue.products("B")
    with working(queue.url):
        assert [request.changes for request in receiver.wait("/ok", 2)] == [[1], [2]]


def test_a_worker_listens_again_after_its_connection_was_cut(queue: Queue, receiver: Receiver) -> None:
    queue.hook(url=receiver.url())
    with working(queue.url):
        for number in range(2):
            queue.operator.connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name like 'bds%'"
            )
            queue.products(f"P{number}")
            receiver.wait("/ok", number + 1)


def test_changes_are_collected_for_the_window(queue: Queue, receiver: Receiver) -> None:
    queue.hook(url=receiver.url())
    with working(queue.url, BDS_WEBHOOK_WINDOW="0.5"):
        began = time.monotonic()
        queue.products("A")
        queue.products("B")
        [request] = receiver.wait("/ok", 1)
        assert request.changes == [1, 2]
        assert request.at - began >= 0.5


def test_a_filter_column_or_entity_that_no_longer_fits_the_model_disables_its_hook(queue: Queue, receiver: Receiver) -> None:
    queue.operator.connection.execute(
        'create table data.places (company_id text collate "C" not null, id bigint not null generated by default as identity,'
        " city text, land text, updated_at timestamptz not null, primary key (company_id, id))"
    )
    queue.operator.connection.execute("select bds.register('data.places')")
    broken = queue.hook("places", url=receiver.url("/broken"), filter="city = 'Wien'")
    watching = queue.hook("places", url=receiver.url("/broken"), columns=["land", "city"])
    fitting = queue.hook("places", url=receiver.url("/fitting"), filter="land = 'AT'")
    with working(queue.url):
        with queue.operator.connection.transaction():
            queue.operator.connection.execute("select bds.drop_views('places')")
            queue.operator.connection.execute("alter table data.places drop column city")
            queue.operator.connection.execute("alter table data.places add column zip text")
            queue.operator.connection.execute("select bds.register('data.places')")
        queue.write("insert into data.places (land) values ('AT')")
        receiver.wait("/fitting", 1)
        for hook in (broken, watching):
            wait_until(lambda hook=hook: bool(queue.rows("select from bds.hooks where id = %s and disabled", (hook,))))  # type: ignore[misc]
        problems = dict(queue.rows("select id::text, problem from bds.hooks where disabled"))
        assert "places has no field city" in problems[broken] and "places has no column 'city'" in problems[watching]
        queue.operator.connection.execute("select bds.unregister('places')")
        wait_until(lambda: bool(queue.rows("select from bds.hooks where id = %s and disabled", (fitting,))))
    assert queue.rows("select problem from bds.hooks where id = %s", (fitting,)) == [("no such entity: places",)]
    assert queue.states(fitting) == ["delivered"] and receiver.of("/broken") == []


@pytest.mark.parametrize("options", [[], ["--no-worker"]])
def test_serve_delivers_unless_told_not_to(queue: Queue, receiver: Receiver, options: list[str]) -> None:
    queue.hook(url=receiver.url())
    environment = {**os.environ, **SETTINGS, "BDS_DATABASE_URL": queue.url}
    process = subprocess.Popen([*COMMAND, "serve", "--port", "0", *options], cwd=ROOT, stderr=subprocess.PIPE, env=environment)
    assert process.stderr is not None
    try:
        while not re.search(rb"serving on", process.stderr.readline()):
            assert process.poll() is None
        queue.products("A")
        if options:
            with working(queue.url):
                receiver.wait("/ok", 1)
            listening = (
                "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'bds listen'"
            )
            wait_until(lambda: queue.rows(listening) == [(1,)])
        else:
            receiver.wait("/ok", 1)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stderr.close()
