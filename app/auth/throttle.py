"""Wrong credentials are counted for each address, in the database, so that it does not matter which process they reach."""

from __future__ import annotations

import asyncio
import logging

import psycopg

from app import metrics
from app.db import Database
from app.errors import ServiceError

log = logging.getLogger("bds.auth")

FORGET = 300.0  # seconds between two times
A_MINUTE = 20  # wrong credentials of one address


class Throttle:
    """Counts; and refuses when it has been too many."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def count(self, address: str | None) -> None:
        """Count wrong credentials of an address.  Raises too_many_requests, with the seconds to wait, from the 21st in a minute."""
        if address is None:
            return
        async with self._database.service() as connection:
            cursor = await connection.execute("select bds.count_wrong(%s::inet, %s)", (address, A_MINUTE))
            row = await cursor.fetchone()
        wait = row[0] if row else None
        if wait is not None:
            metrics.refused_credentials.inc()
            message = f"too many wrong credentials have come from this address; try again in {wait} s"
            raise ServiceError("too_many_requests", message, headers={"Retry-After": str(wait)})

    async def uncount(self, address: str | None) -> None:
        """Take one back that turned out to be right."""
        if address is not None:
            async with self._database.service() as connection:
                await connection.execute("select bds.uncount_wrong(%s::inet)", (address,))

    async def keep_forgetting(self) -> None:
        """Drop, now and then, what is counted no longer; for ever."""
        while True:
            await asyncio.sleep(FORGET)
            try:
                async with self._database.service() as connection:
                    await connection.execute("select bds.forget_wrong()")
            except psycopg.Error as error:
                log.warning("wrong credentials were not forgotten: %s", type(error).__name__)
