"""Sampling of metrics continues after a failure; requests are counted many at a time."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry, Histogram

from app import metrics
from app.config import Config
from app.database.database import Database
from app.logs import AccessRecord
from app.metrics import SHORT, RequestCounter, Sampler
from app.service import metrics_endpoint
from app.tasks import cancel_and_wait


def test_a_failed_sample_is_logged_and_the_next_one_is_taken(
    module_database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        database = await Database.open(Config(database_url=module_database_url))
        pools, taken = database.pools, asyncio.Event()

        def failing_once() -> dict[str, dict[str, int]]:
            monkeypatch.setattr(database, "pools", lambda: (taken.set(), pools())[1])
            raise ValueError("of the pool")

        monkeypatch.setattr(database, "pools", failing_once)
        monkeypatch.setattr(metrics_endpoint, "INTERVAL", 0.01)
        task = asyncio.create_task(metrics_endpoint.run_sampling(database, Sampler()))
        async with asyncio.timeout(30):
            await taken.wait()
        await cancel_and_wait(task)
        await database.close()

    asyncio.run(run())
    assert [record.getMessage() for record in caplog.records if record.name == "bds.http"] == ["a metrics sample failed"]


def test_durations_that_are_counted_together_are_what_they_were_one_by_one() -> None:
    durations = [0.0, 0.0005, 0.001, 0.0011, 0.25, 59.9, 60, 61, 1e9]
    counter, registry = RequestCounter(), CollectorRegistry()
    expected = Histogram("bds_http_request_duration_seconds", "-", buckets=SHORT, registry=registry)
    for seconds in durations:
        expected.observe(seconds)
        counter.count(AccessRecord(0.0, "1", None, "GET", "/", "made up", None, None, 200, 0, 1, seconds))
    counter.settle()
    found = metrics.durations.labels("made up", "GET")
    assert _samples(found) == _samples(expected) and registry.get_sample_value(f"{expected._name}_count") == len(durations)


def _samples(histogram: Histogram) -> list[tuple[str, dict[str, str], float]]:
    """Name, labels and value of each number but the time at which the histogram was made."""
    return [(name, labels, value) for name, labels, value, *_ in histogram._samples() if name != "_created"]


def test_a_pool_that_is_made_anew_counts_from_nothing() -> None:
    sampler, name = Sampler(), "made anew"
    for number in (5, 7, 3):
        sampler.sample({name: {"pool_size": 1, "pool_available": 1, "requests_waiting": 0, "requests_num": number}}, {}, {})
    assert metrics.pool_counters["requests_num"].labels(name)._value.get() == 10
