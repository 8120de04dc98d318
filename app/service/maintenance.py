"""Periodic maintenance: ends imports whose process has died, drops old reports, makes and drops partitions of the change log."""

from __future__ import annotations

import asyncio
import logging
from typing import LiteralString

import psycopg

from app.database.database import Database

log = logging.getLogger("bds.maintenance")

INTERVAL = 5.0  # seconds between two runs
FORGET_IMPORTS: LiteralString = "select bds.forget_imports(make_interval(days => %s))"
# each is a statement of its own, so that a failure does not stop the others
STEPS: tuple[LiteralString, ...] = (
    "select bds.reap_imports()",
    "select bds.make_partitions()",
    "select bds.drop_old_changes()",
    FORGET_IMPORTS,
)


async def run_maintenance(database: Database, interval: float = INTERVAL) -> None:
    """Run all steps every `interval` seconds, forever; a step that fails is tried again the next time."""
    while True:
        for step in STEPS:
            try:
                async with database.service() as connection:
                    await connection.execute(step, (database.config.import_retention or None,) if step is FORGET_IMPORTS else None)
            except psycopg.Error as error:
                log.warning("maintenance failed: %s: %s", step, type(error).__name__)
            except Exception:
                log.exception("maintenance failed and continues: %s", step)
        await asyncio.sleep(interval)
