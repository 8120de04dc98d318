"""What is done again and again: imports whose process has died, old reports, partitions of the change log."""

from __future__ import annotations

import asyncio
import logging
from typing import LiteralString

import psycopg

from app.database.database import Database

log = logging.getLogger("bds.feed")

FORGET: LiteralString = "select bds.forget_imports(make_interval(days => %s))"
# each in a statement of its own: one that fails does not keep the others
STEPS: tuple[LiteralString, ...] = (
    "select bds.reap_imports()",
    "select bds.make_partitions()",
    "select bds.drop_old_changes()",
    FORGET,
)


async def keep_house(database: Database, every: float = 5.0) -> None:
    """Do all of it every few seconds, for ever; what fails is tried again the next time."""
    while True:
        for step in STEPS:
            try:
                async with database.service() as connection:
                    await connection.execute(step, (database.config.import_retention or None,) if step is FORGET else None)
            except psycopg.Error as error:
                log.warning("housekeeping failed: %s: %s", step, type(error).__name__)
            except Exception:
                log.exception("housekeeping failed, and goes on: %s", step)
        await asyncio.sleep(every)
