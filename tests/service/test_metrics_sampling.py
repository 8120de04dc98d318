"""Sampling of metrics continues after a failure."""

from __future__ import annotations

import asyncio

import pytest

from app.config import Config
from app.database.database import Database
from app.metrics import Sampler
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
