"""Webhooks: how many changes a second go out, how long after its window one does, what a receiver that hangs costs the others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median, quantiles

import psycopg

from app.database import connections
from app.database.catalog import Catalog
from app.query.sql.conditions import compile_filter
from bench.place import BDS, COMPANY, PATIENCE, Place, settle
from bench.table import Result, say, timed

HOOKS = 2_000
CHANGES = 20_000
ROUNDS = 3
LATENCIES = 150
WINDOW = 0.2  # seconds, while latencies are measured
CONDITIONS = (
    "price > 0", "active = true", "name != ''", "barcode is null", "id > 0", "description is null", "updatedAt > '2020-01-01'"
)  # fmt: skip


@dataclass
class Receiver:
    """The receiver's process, and what it has said: how many changes have arrived, and when the last one did."""

    process: subprocess.Popen[str]
    port: int
    changes: int = 0
    last: float = 0.0

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            changes, last = line.split()
            self.last, self.changes = float(last), int(changes)

    def wait(self, changes: int) -> float:
        """When the last of so many changes arrived."""
        deadline = time.monotonic() + PATIENCE
        while self.changes < changes:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.changes} changes arrived, {changes} were expected")
            time.sleep(0.01)
        return self.last


def measure(place: Place) -> Iterator[Result]:
    """Changes a second of one worker and of two, latency, the same beside receivers that hang."""
    with receiving() as receiver, place.database(COMPANY) as url:
        make(url, receiver.port)
        speeds: dict[str, list[float]] = {"one": [], "two": [], "hanging": []}
        doubled = 0
        for number in range(ROUNDS):
            say(f"webhooks: {CHANGES:,} changes for {HOOKS:,} hooks, round {number + 1} of {ROUNDS}")
            turns = (("one", 1), ("two", 2), ("hanging", 1))
            for name, workers in (
                turns[number % 3 :] + turns[: number % 3]
            ):  # what the rounds leave behind is charged to each in turn
                with hanging(url, receiver.port, 50 if name == "hanging" else 0), working(url, workers, "0"):
                    speed, twice = throughput(url, receiver)
                speeds[name].append(speed)
                doubled += twice
        note = f"{CHANGES:,} changes, each for one of {HOOKS:,} hooks; target 5,000; {doubled} came twice"
        yield Result("webhooks, one worker", "changes/s", median(speeds["one"]), note=note)
        for name, what in (("two", "two workers; floor: one"), ("hanging", "beside 50 receivers that hang; floor: none hangs")):
            ratio = median(a / b for a, b in zip(speeds[name], speeds["one"], strict=True))
            yield Result(f"webhooks, {name}", "changes/s", median(speeds[name]), median(speeds["one"]), ratio, what)
        for hang in (0, 50):
            yield from latency(url, receiver, hang)
    with place.database(COMPANY) as url:
        yield shapes(url)


def latency(url: str, receiver: Receiver, hang: int) -> Iterator[Result]:
    """From a commit to the POST of its change, beyond the window."""
    say(f"webhooks: latency beside {hang} receivers that hang")
    beyond = []
    with hanging(url, receiver.port, hang), working(url, 1, str(WINDOW)), psycopg.connect(url) as connection:
        for number in range(LATENCIES):
            before = receiver.changes
            connection.execute("select bds.set_context(%s)", (COMPANY,))
            connection.execute(
                "update data.products set name = %s where company_id = %s and id = 1", (f"l{hang} {number}", COMPANY)
            )
            connection.commit()
            committed = time.time()
            beyond.append((receiver.wait(before + 1) - committed - WINDOW) * 1e3)
    beside = f", beside {hang} that hang" if hang else ""
    note = f"commit to POST beyond the window{beside}; median {median(beyond):.0f} ms; target 250 ms"
    yield Result(f"webhooks, p99{beside}", "ms", quantiles(beyond, n=100)[98], note=note)


def shapes(url: str) -> Result:
    """One change, matched with filters of as many shapes as there are subsets of some conditions; planned already, and planned anew."""
    say("webhooks: shapes of filters")
    with connections.connect(url, "bds_reader") as reader:
        catalog = connections.read_catalog(reader)
    with psycopg.connect(url) as connection:
        connection.execute("select bds.set_context(%s)", (COMPANY,))
        connection.execute("insert into data.products (id, code, name, price) values (1, 'A', 'x', 1)")
        for number in range(2 ** len(CONDITIONS)):
            filter = " and ".join(["code = 'A'", *(each for n, each in enumerate(CONDITIONS) if number >> n & 1)])
            hook(connection, catalog, "http://127.0.0.1:9/", filter)
    times: dict[bool, list[float]] = {True: [], False: []}
    with psycopg.connect(url, autocommit=True) as writer, psycopg.connect(url, autocommit=True, prepare_threshold=None) as worker:
        worker.execute("set role bds_worker")
        for number in range(4 * ROUNDS):
            writer.execute("update data.products set price = price + 1 where company_id = %s", (COMPANY,))
            if anew := number % 2 == 0:
                worker.execute("deallocate all")
            times[anew].append(timed(worker.execute, "select bds_service.route_changes(%s, '1 day')", (COMPANY,))[0] * 1e3)
    note = f"{2 ** len(CONDITIONS)} shapes, one change; ours: planned already; floor: planned anew; a ratio above 1 is the gain"
    return Result(
        "webhooks, shapes", "ms", median(times[False]), median(times[True]), median(times[True]) / median(times[False]), note
    )


def throughput(url: str, receiver: Receiver) -> tuple[float, int]:
    """Changes a second from a commit to the last POST, and how many came twice."""
    before = receiver.changes
    with psycopg.connect(url) as connection:
        connection.execute("select bds.set_context(%s)", (COMPANY,))
        connection.execute("update data.products set name = %s where company_id = %s", (str(time.time()), COMPANY))
        connection.commit()
        committed = time.time()
    took = receiver.wait(before + CHANGES) - committed
    time.sleep(0.5)  # whatever comes twice
    return CHANGES / took, receiver.changes - before - CHANGES


def make(url: str, port: int) -> None:
    """Products in as many categories as there are hooks, each for one category."""
    with connections.connect(url, "bds_reader") as reader:
        catalog = connections.read_catalog(reader)
    with psycopg.connect(url) as connection:
        connection.execute("select bds.set_context(%s)", (COMPANY,))
        connection.execute(
            "insert into data.categories (id, code, name) select n, 'C' || n, 'x' from generate_series(1, %s) n", (HOOKS,)
        )
        connection.execute(
            "insert into data.products (id, code, name, category_id) select n, 'P' || n, 'x', n %% %s + 1 from generate_series(1, %s) n",
            (HOOKS, CHANGES),
        )
        for number in range(1, HOOKS + 1):
            filter = f"category = 'code:C{number}'"
            hook(connection, catalog, f"http://127.0.0.1:{port}/{number}", filter)
    settle(url, vacuum=True)


def hook(connection: psycopg.Connection, catalog: Catalog, url: str, filter: str) -> None:
    """A hook of products whose filter is compiled already."""
    row = connection.execute("select bds.create_hook(%s, 'products', %s, %s)", (COMPANY, url, filter)).fetchone()
    compiled = compile_filter(catalog, catalog["products"], filter)
    assert row is not None and compiled is not None
    connection.execute(
        "select bds_service.refit_hook(h.company_id, h.id, h.updated_at, %s, %s) from bds.hooks h where h.company_id = %s and h.id = %s",
        (json.dumps([compiled.members()]), catalog.version, COMPANY, row[0]["id"]),
    )


@contextlib.contextmanager
def hanging(url: str, port: int, hooks: int) -> Iterator[None]:
    """Further hooks, each with a delivery under way whose receiver does not answer."""
    with psycopg.connect(url) as connection:
        connection.execute("select bds.set_context(%s)", (COMPANY,))
        made = [
            row[0]["id"]
            for number in range(hooks)
            for row in connection.execute(
                "select bds.create_hook(%s, 'units', %s)", (COMPANY, f"http://127.0.0.1:{port}/hang{number}")
            )
        ]
        for hook in made:
            connection.execute("select bds.test_hook(%s, %s)", (COMPANY, hook))
    try:
        yield
    finally:
        with psycopg.connect(url) as connection:
            connection.execute("select bds.set_context(%s)", (COMPANY,))
            for hook in made:
                connection.execute("select bds.delete_hook(%s, %s)", (COMPANY, hook))


@contextlib.contextmanager
def working(url: str, workers: int, window: str) -> Iterator[None]:
    """`bds worker`, so many times; killed at the end, for some receivers never answer."""
    settings = {"BDS_DATABASE_URL": url, "BDS_WEBHOOK_WINDOW": window, "BDS_WEBHOOK_ALLOW_PRIVATE": "1"}
    started = [subprocess.Popen([BDS, "worker"], env=os.environ | settings, stderr=subprocess.PIPE) for _ in range(workers)]
    try:
        for process in started:
            assert process.stderr is not None
            process.stderr.readline()
        time.sleep(1.5)  # whatever hangs has been under way for a while
        yield
    finally:
        for process in started:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    """The receiver in a process of its own."""
    process = subprocess.Popen([sys.executable, "-m", "bench.receiver"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    receiver = Receiver(process, int(process.stdout.readline()))
    reader = threading.Thread(target=receiver.read)
    reader.start()
    try:
        yield receiver
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        reader.join()
