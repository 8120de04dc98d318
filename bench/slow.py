"""What slow readers of whole collections do to others: reads by key beside 200 of them, and how many of them are refused."""

from __future__ import annotations

import contextlib
import http.client
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

from bench.documents import write_basis, write_products
from bench.place import COMPANY, Place, Service, load, service, settle
from bench.table import Result, say

READERS = 200
CLIENTS, DURATION, ROUNDS = 16, 5, 3  # of the reads by key: connections, seconds of a round
TARGET = 0.67


def measure(place: Place, rows: int) -> Iterator[Result]:
    """Milliseconds within which 99 of 100 reads by key are answered, and numbers of slow readers."""
    with place.database(COMPANY) as url:
        say(f"slow: loading {rows:,} products")
        for document in (write_basis(place.directory), write_products(place.directory, rows).path):
            load(url, document)
        settle(url, vacuum=True)
        with service(url, place.directory) as running:
            alone = [_read_by_key(running) for _ in range(ROUNDS)]
            say(f"slow: {READERS} readers begin")
            with _readers(running) as process:
                started, filling = time.perf_counter(), list[tuple[float, float]]()
                while not filling or _metric(running, "bds_pool_connections") > _metric(running, "bds_pool_idle_connections"):
                    filling.append(_read_by_key(running))
                took = time.perf_counter() - started
                spooled, waiting = _metric(running, "bds_spooled_bytes") / 1e6, _metric(running, "bds_spooled_readers")
                beside = [_read_by_key(running) for _ in range(ROUNDS)]
                memory = running.memory()
                process.terminate()
                statuses = Counter(process.communicate()[0].split())
            alone += [_read_by_key(running) for _ in range(ROUNDS)]  # whatever else has changed meanwhile
    note = f"{READERS} readers of {rows:,} rows; {CLIENTS} connections"
    yield Result(
        "slow, readers served", "readers", statuses["200"], READERS, statuses["200"] / READERS, f"others: {dict(statuses)}"
    )
    yield Result("slow, spooled", "MB", spooled, note=f"for {waiting:.0f} readers, in {took:.0f} s beside reads by key")
    for name, times, target in (("while they are spooled", filling, ""), ("beside them", beside, f"; target >= {TARGET}")):
        (rate, p99), (rate_alone, p99_alone) = _median(times), _median(alone)
        yield Result(f"slow, by key, p99 {name}", "ms", p99, p99_alone, p99_alone / p99, f"{note}; floor: alone{target}")
        yield Result(f"slow, by key, rate {name}", "requests/s", rate, rate_alone, rate / rate_alone, "floor: alone")
    yield Result("slow, memory", "MB", memory, note="of the service")


def _median(each: list[tuple[float, float]]) -> tuple[float, float]:
    rates, times = zip(*each, strict=True)
    return sorted(rates)[len(rates) // 2], sorted(times)[len(times) // 2]


def _read_by_key(running: Service) -> tuple[float, float]:
    """Requests a second, and the milliseconds within which 99 of 100 are answered."""
    path = f"/api/odata/{COMPANY}/products({{}})"
    words = (running.host, running.port, running.basic, path, "rows", 1, 1000, CLIENTS, DURATION)
    command = [sys.executable, "-m", "bench.client", *map(str, words)]
    rate, p99 = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return float(rate), float(p99)


@contextlib.contextmanager
def _readers(running: Service) -> Iterator[subprocess.Popen[str]]:
    words = (running.host, running.port, running.basic, f"/api/odata/{COMPANY}/products", READERS)
    process = subprocess.Popen([sys.executable, "-m", "bench.slow_client", *map(str, words)], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _metric(running: Service, name: str) -> float:
    """The sum of a metric over its labels."""
    connection = http.client.HTTPConnection(running.host, running.port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return sum(float(value) for value in re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE))
