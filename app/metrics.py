"""What operators watch, in the format of Prometheus: requests, imports, deliveries, pools, the database.

Whoever does something counts it here.  Of several processes that share an address each keeps its counts in files that all of them
read, so that every one of them answers for all (prometheus_client's multiprocess mode).  No label holds what a client could choose.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, multiprocess
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)  # seconds
SLOW = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
QUEUE_LIMIT = 10_000  # deliveries up to which the queue is counted
TOGETHER = 200  # requests that are counted at once

OURS = CollectorRegistry()


def _now(name: str, about: str, *labels: str) -> Gauge:
    """A measurement of this moment, summed over the processes that live."""
    return Gauge(name, about, labels, multiprocess_mode="livesum", registry=OURS)


def _count(name: str, about: str, *labels: str) -> Counter:
    return Counter(name, about, labels, registry=OURS)


def _times(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return Histogram(name, about, labels, buckets=buckets, registry=OURS)


requests = _count("bds_http_requests", "Requests that were answered", "room", "method", "status")
durations = _times("bds_http_request_duration_seconds", "From a request's head to its answer's end", QUICK, "room", "method")
sent = _count("bds_http_response_bytes", "Bytes of answers", "room")
in_progress = _now("bds_http_requests_in_progress", "Requests under way")
refused_credentials = _count("bds_refused_credentials", "Wrong credentials")

imports = _count("bds_imports", "Imports over HTTP that ended, by how", "state", "dry_run")
import_records = _count("bds_import_records", "Records of imports over HTTP, by what came of them", "outcome")
import_durations = _times("bds_import_duration_seconds", "From an import's first byte to its report", SLOW)

attempts = _count("bds_webhook_attempts", "Attempts to deliver a batch, by what came of them", "outcome")
attempt_durations = _times("bds_webhook_attempt_duration_seconds", "How long receivers took", (*QUICK, 120))
delivery_lags = _times("bds_webhook_delivery_lag_seconds", "From when a batch was made until it was delivered", (*QUICK, *SLOW[6:]))

processes = _now("bds_processes", "Processes of the service that run")
memory = _now("bds_resident_memory_bytes", "Memory of its processes")
pool_connections = _now("bds_pool_connections", "Connections to the database", "pool")
pool_idle = _now("bds_pool_idle_connections", "Those that nobody uses", "pool")
pool_limit = _now("bds_pool_limit_connections", "How many there may be", "pool")
pool_waiting = _now("bds_pool_waiting_requests", "Requests that wait for one", "pool")
pool_counters = {
    "requests_num": _count("bds_pool_requests", "Connections that were asked for", "pool"),
    "requests_queued": _count("bds_pool_requests_queued", "Those that were not there at once", "pool"),
    "requests_wait_ms": _count("bds_pool_wait_seconds", "Time spent waiting for them", "pool"),
    "requests_errors": _count("bds_pool_timeouts", "Those that did not come in time", "pool"),
    "connections_lost": _count("bds_pool_connections_lost", "Connections that broke", "pool"),
}


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in the database (bds.backlog): counts up to QUEUE_LIMIT, seconds."""

    deliveries: int
    overdue: float
    imports: int


class Answered(NamedTuple):
    """What is counted of a request."""

    path: str  # raw
    leads_somewhere: bool
    method: str
    status: int
    seconds: float
    size: int  # bytes


class Requests:
    """Counts requests many at a time, which takes a fifth of counting each by itself: some wait until the next sample."""

    def __init__(self) -> None:
        self.under_way = 0
        self._waiting: list[Answered] = []

    def answered(self, request: Answered) -> None:
        """Count a request."""
        self._waiting.append(request)
        if len(self._waiting) >= TOGETHER:
            self.settle()

    def settle(self) -> None:
        """Count those that wait."""
        waiting, self._waiting = self._waiting, []
        sizes: dict[tuple[str, str, int], list[int]] = defaultdict(list)
        for request in waiting:
            room = room_of(unquote(request.path), known=request.leads_somewhere)
            method = request.method if request.method in METHODS else "other"
            sizes[room, method, request.status].append(request.size)
            _duration(room, method).observe(request.seconds)
        for (room, method, status), each in sizes.items():
            requests.labels(room, method, str(status)).inc(len(each))
            sent.labels(room).inc(sum(each))


@cache
def _duration(room: str, method: str) -> Histogram:
    """What observes such requests: looking it up by its labels takes longer than observing."""
    return durations.labels(room, method)


http = Requests()


def room_of(path: str, *, known: bool) -> str:
    """Which part of the service a path leads to; one of a dozen words."""
    first, _, rest = path[1:].partition("/")
    if not known:
        return "none"
    if first == "api":
        company, _, rest = rest.partition("/")
        if company == "odata":
            return "odata"
        word = rest.partition("/")[0]
        return {"import": "import", "imports": "import", "mappers": "mappers"}.get(word, "export")
    if first == "c":
        word = rest.partition("/")[2].partition("/")[0]
        return "hooks" if word == "hooks" else "changes"
    if first == "auth":
        return "auth"
    return "operation" if first in ("healthz", "readyz", "metrics") else "pages"


class Sampler:
    """Copies what others count, or what is only known by looking; again and again, for other processes cannot ask."""

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._seen: dict[tuple[str, str], int] = {}
        processes.set(1)
        for pool, limit in limits.items():
            pool_limit.labels(pool).set(limit)

    def sample(self, pools: Mapping[str, Mapping[str, int]]) -> None:
        """pools: psycopg's statistics of each."""
        http.settle()
        in_progress.set(http.under_way)
        memory.set(_resident())
        for pool, stats in pools.items():
            if not stats:
                continue
            pool_connections.labels(pool).set(stats["pool_size"])
            pool_idle.labels(pool).set(stats["pool_available"])
            pool_waiting.labels(pool).set(stats["requests_waiting"])
            for name, counter in pool_counters.items():
                now = stats.get(name, 0)
                more, self._seen[pool, name] = now - self._seen.get((pool, name), 0), now
                counter.labels(pool).inc(more / 1000 if name.endswith("_ms") else more)


class OfTheDatabase(Collector):
    """What is the same whichever process asks."""

    def __init__(self, is_up: bool, backlog: Backlog | None) -> None:
        self._is_up, self._backlog = is_up, backlog

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("bds_database_up", "Whether the database answers", value=self._is_up)
        if self._backlog is None:
            return
        yield GaugeMetricFamily(
            "bds_webhook_queue_deliveries", f"Deliveries that wait, counted up to {QUEUE_LIMIT}", value=self._backlog.deliveries
        )
        yield GaugeMetricFamily(
            "bds_webhook_overdue_seconds", "For how long the delivery that is due longest has been due", value=self._backlog.overdue
        )
        yield GaugeMetricFamily(
            "bds_imports_under_way", f"Imports that have not ended, counted up to {QUEUE_LIMIT}", value=self._backlog.imports
        )


def exposition(is_up: bool, backlog: Backlog | None, accept: str) -> tuple[bytes, str]:
    """Everything, as text of a media type that is accepted; and that type."""
    registry = CollectorRegistry()
    registry.register(OfTheDatabase(is_up, backlog))
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry.register(OURS)  # it collects, which is all that is asked for
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


def _resident() -> int:
    """Bytes of memory that this process has; 0 where that cannot be read."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
