"""Periodic maintenance, which is one function of the database: bds.maintain."""

from __future__ import annotations

import asyncio
import logging
from typing import LiteralString

import psycopg

from app.config import seconds_kept
from app.database.database import Database
from app.database.servers.place import Place

log = logging.getLogger("bds.maintenance")

INTERVAL = 5.0  # seconds between two runs
MAINTAIN: LiteralString = "select step, problem from bds.maintain(make_interval(secs => %s))"
# by itself, too: the maintenance before may take minutes for a month that expires
REAP: LiteralString = "select 'end dead imports', null::text from bds.reap_imports()"


async def run_maintenance(database: Database, interval: float = INTERVAL) -> None:
    """Maintain each place every `interval` seconds, forever; a step that fails is tried again the next time."""
    await database.at_each_place(lambda place: _run(place, seconds_kept(database.config.import_retention), interval))


async def _run(place: Place, kept: float | None, interval: float) -> None:
    await asyncio.gather(_repeat(place, interval, MAINTAIN, kept), _repeat(place, interval, REAP))


async def _repeat(place: Place, interval: float, statement: LiteralString, *values: float | None) -> None:
    """Run a statement, whose rows are (step, problem), every `interval` seconds, forever."""
    while True:
        try:
            async with place.service() as connection:
                for step, problem in await (await connection.execute(statement, values)).fetchall():
                    if problem:
                        log.warning("maintenance: %s: %s", step, problem)
        except psycopg.Error as error:
            log.warning("maintenance failed: %s", type(error).__name__)
        except Exception:
            log.exception("maintenance failed and continues")
        await asyncio.sleep(interval)
