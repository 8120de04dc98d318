"""Metrics in the format of Prometheus: requests, imports, deliveries, pools, the database.

Processes that share an address keep their counts in files that all of them read, so that each answers for all (prometheus_client's
multiprocess mode).  No label holds a value that a client can choose.

Private parts of prometheus_client in use: MetricWrapperBase._labelnames and _metric_init; Histogram._sum, _buckets, _upper_bounds.
tests/service/test_private_names.py fails if they change.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, multiprocess, values
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.logs import AccessRecord

# upper bounds of histogram buckets, in seconds
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
LONG = (0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
QUEUE_LIMIT = 10_000  # deliveries up to which the queue is counted
BATCH = 200  # requests that are counted in one go
DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"  # the variable by which prometheus_client finds the shared directory

PROCESS = CollectorRegistry()  # metrics that each process measures by itself
_unlabelled: list[MetricWrapperBase] = []  # those that have their value from the start

M = TypeVar("M", bound=MetricWrapperBase)


def _noted(metric: M) -> M:
    if not metric._labelnames:
        _unlabelled.append(metric)
    return metric


def _gauge(name: str, about: str, *labels: str) -> Gauge:
    """A current value, summed over the running processes."""
    return _noted(Gauge(name, about, labels, multiprocess_mode="livesum", registry=PROCESS))


def _counter(name: str, about: str, *labels: str) -> Counter:
    return _noted(Counter(name, about, labels, registry=PROCESS))


def _histogram(name: str, about: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
    return _noted(Histogram(name, about, labels, buckets=buckets, registry=PROCESS))


# the label `area` is that of app/wire/target.py
requests = _counter("bds_http_requests", "Answered requests", "area", "method", "status")
durations = _histogram("bds_http_request_duration_seconds", "From a request's head to its answer's end", SHORT, "area", "method")
sent = _counter("bds_http_response_bytes", "Bytes of answers", "area")
rows = _counter("bds_http_response_rows", "Rows in answers, of data and of the change log", "area")
in_progress = _gauge("bds_http_requests_in_progress", "Requests in progress")
refused_credentials = _counter("bds_refused_credentials", "Wrong credentials")

imports = _counter("bds_imports", "Finished imports over HTTP", "state", "dry_run")
import_records = _counter("bds_import_records", "Records of imports over HTTP", "outcome")
import_durations = _histogram("bds_import_duration_seconds", "From an import's first byte to its report", LONG)

attempts = _counter("bds_webhook_attempts", "Attempts to deliver a batch", "outcome")
attempt_durations = _histogram("bds_webhook_attempt_duration_seconds", "Response time of receivers", (*SHORT, 120))
delivery_lags = _histogram("bds_webhook_delivery_lag_seconds", "From the making of a batch to its delivery", (*SHORT, *LONG[6:]))

followers = _gauge("bds_followers", "Streams of changes that are open")
followed_changes = _counter("bds_followed_changes", "Changes sent to followers")
followers_cut = _counter("bds_followers_cut", "Followers that were cut because they did not read")

spooled_readers = _gauge("bds_spooled_readers", "Slow readers for which part of their answer waits")
spooled_bytes = _gauge("bds_spooled_bytes", "Bytes of temporary files in which answers wait for slow readers")
spool_limit = _gauge("bds_spool_limit_bytes", "Most bytes allowed in these files")

processes = _gauge("bds_processes", "Running processes of the service")
memory = _gauge("bds_resident_memory_bytes", "Memory of the service's processes")
pool_connections = _gauge("bds_pool_connections", "Connections to the database", "pool")
pool_idle = _gauge("bds_pool_idle_connections", "Idle connections", "pool")
pool_limit = _gauge("bds_pool_limit_connections", "Most connections allowed", "pool")
pool_waiting = _gauge("bds_pool_waiting_requests", "Requests that wait for a connection", "pool")
pool_counters = {
    "requests_num": _counter("bds_pool_requests", "Connections requested", "pool"),
    "requests_queued": _counter("bds_pool_requests_queued", "Connections that were not available at once", "pool"),
    "requests_wait_ms": _counter("bds_pool_wait_seconds", "Time spent waiting for connections", "pool"),
    "requests_errors": _counter("bds_pool_timeouts", "Connections that were not available in time", "pool"),
    "connections_lost": _counter("bds_pool_connections_lost", "Connections that broke", "pool"),
}
replica_up = Gauge(
    "bds_replica_up", "Whether a replica answers as a standby", ["replica"], multiprocess_mode="livemin", registry=PROCESS
)
replica_lag = Gauge(
    "bds_replica_lag_seconds", "How far a replica is behind", ["replica"], multiprocess_mode="livemax", registry=PROCESS
)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Work that waits in the database (bds_service.backlog): counts up to QUEUE_LIMIT; overdue in seconds.

    problems: counts by kind.
    """

    deliveries: int
    overdue: float
    imports: int
    failing_hooks: int
    resting_hooks: int
    problems: dict[str, int]

    def __add__(self, other: Backlog) -> Backlog:
        """The work that waits at two places."""
        return Backlog(
            self.deliveries + other.deliveries,
            max(self.overdue, other.overdue),
            self.imports + other.imports,
            self.failing_hooks + other.failing_hooks,
            self.resting_hooks + other.resting_hooks,
            {kind: self.problems.get(kind, 0) + other.problems.get(kind, 0) for kind in self.problems | other.problems},
        )


class RequestCounter:
    """Counts requests BATCH at a time, in a fifth of the time; the rest is counted at the next sample."""

    def __init__(self) -> None:
        self.in_progress = 0
        self.answered = 0
        self._waiting: list[AccessRecord] = []

    def count(self, request: AccessRecord) -> None:
        """Count a request."""
        self.answered += 1
        self._waiting.append(request)
        if len(self._waiting) >= BATCH:
            self.settle()

    def settle(self) -> None:
        """Count the collected requests."""
        waiting, self._waiting = self._waiting, []
        alike: dict[tuple[str, str, int], list[AccessRecord]] = defaultdict(list)
        for request in waiting:
            method = request.method if request.method in METHODS else "other"
            alike[request.area, method, request.status].append(request)
        for (area, method, status), each in alike.items():
            requests.labels(area, method, str(status)).inc(len(each))
            sent.labels(area).inc(sum(request.size for request in each))
            rows.labels(area).inc(sum(request.rows for request in each))
            _observe(durations.labels(area, method), [request.seconds for request in each])


def _observe(histogram: Histogram, values: Sequence[float]) -> None:
    """Observe many values: a histogram's own method writes two numbers for each of them, where processes share a file."""
    histogram._sum.inc(sum(values))
    for bucket, number in Tally(bisect_left(histogram._upper_bounds, each) for each in values).items():
        histogram._buckets[bucket].inc(number)


http = RequestCounter()


class Sampler:
    """Copies counts kept elsewhere, and measures memory; runs periodically because other processes cannot ask."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], int] = {}
        processes.set(1)

    def sample(
        self, pools: Mapping[str, Mapping[str, int]], limits: Mapping[str, int], replicas: Mapping[str, tuple[bool, float]]
    ) -> None:
        """Take a sample.

        pools: the statistics of each pool, as psycopg counts them.  limits: the most connections of each.
        replicas: whether each is up, and its lag in seconds.
        """
        http.settle()
        in_progress.set(http.in_progress)
        memory.set(_resident_memory())
        for pool, stats in pools.items():
            pool_connections.labels(pool).set(stats["pool_size"])
            pool_idle.labels(pool).set(stats["pool_available"])
            pool_waiting.labels(pool).set(stats["requests_waiting"])
            for name, counter in pool_counters.items():
                now = stats.get(name, 0)
                seen, self._seen[pool, name] = self._seen.get((pool, name), 0), now
                more = now - seen if now >= seen else now  # a pool that is made anew counts from 0
                counter.labels(pool).inc(more / 1000 if name.endswith("_ms") else more)
        for pool, limit in limits.items():
            pool_limit.labels(pool).set(limit)
        for name, (is_up, lag) in replicas.items():
            replica_up.labels(name).set(is_up)
            replica_lag.labels(name).set(lag)


def share(directory: Path) -> None:
    """Keep this process's metrics in files in `directory` from now on, and answer for all processes that do."""
    os.environ[DIRECTORY] = str(directory)
    values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
    for each in _unlabelled:  # others make their values later
        each._metric_init()  # type: ignore[no-untyped-call]


def drop_process(directory: Path, pid: int) -> None:
    """Remove the gauges of a dead process from `directory`; its counts stay."""
    multiprocess.mark_process_dead(pid, str(directory))  # type: ignore[no-untyped-call]


class DatabaseCollector(Collector):
    """Metrics that are the same for every process."""

    def __init__(self, is_up: bool, places: Mapping[str, bool], backlog: Backlog | None) -> None:
        self._is_up, self._places, self._backlog = is_up, places, backlog

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("bds_database_up", "Whether the database answers", value=self._is_up)
        if self._places:
            up = GaugeMetricFamily("bds_place_up", "Whether companies of a place are served", labels=("place",))
            for name, serves in self._places.items():
                up.add_metric((name,), serves)
            yield up
        if self._backlog is None:
            return
        yield GaugeMetricFamily(
            "bds_webhook_queue_deliveries", f"Waiting deliveries, counted up to {QUEUE_LIMIT}", value=self._backlog.deliveries
        )
        yield GaugeMetricFamily(
            "bds_webhook_overdue_seconds", "Time since the oldest due delivery became due", value=self._backlog.overdue
        )
        hooks = GaugeMetricFamily(
            "bds_webhook_unhealthy_hooks", f"Hooks that fail or rest, counted up to {QUEUE_LIMIT}", labels=("state",)
        )
        hooks.add_metric(("failing",), self._backlog.failing_hooks)
        hooks.add_metric(("resting",), self._backlog.resting_hooks)
        yield hooks
        yield GaugeMetricFamily(
            "bds_imports_in_progress", f"Unfinished imports, counted up to {QUEUE_LIMIT}", value=self._backlog.imports
        )
        problems = GaugeMetricFamily("bds_problems", "Problems of the database, as bds doctor lists them", labels=("kind",))
        for kind, count in self._backlog.problems.items():
            problems.add_metric((kind,), count)
        yield problems


def exposition(is_up: bool, places: Mapping[str, bool], backlog: Backlog | None, accept: str) -> tuple[bytes, str]:
    """All metrics as text, and its media type, chosen by `accept`.  places: whether those beside home can serve."""
    registry = CollectorRegistry()
    registry.register(DatabaseCollector(is_up, places, backlog))
    if DIRECTORY in os.environ:
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry.register(PROCESS)
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


def _resident_memory() -> int:
    """Resident memory of this process in bytes; 0 where it cannot be read."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
