"""Wrong credentials are counted for each address, in the database, so that it does not matter which process they reach.

A login holds a place among those that may be wrong until it is known to be right.  Where attempts under way hold all that are
left, it waits for them: right ones are never refused for one another, and wrong ones at the same time are as many as those one
after another.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import psycopg

from app import metrics
from app.database.database import Database
from app.errors import ServiceError

log = logging.getLogger("bds.auth")

FORGET = 300.0  # seconds between two times
A_MINUTE = 20  # wrong credentials of one address
AT_ONCE = 2  # logins of one address that a process looks at; the others of that address wait, and those of no other address
PATIENCE = 10.0  # seconds that a login waits for its turn, and as long for a place
AGAIN = 0.1  # seconds until it is looked whether there is a place

T = TypeVar("T")


class Throttle:
    """Counts; and refuses when it has been too many."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._under_way: set[asyncio.Task[Any]] = set()  # asyncio itself keeps no task alive

    async def count(self, address: str | None) -> None:
        """Count wrong credentials of an address.  Raises too_many_requests, with the seconds to wait, from the 21st in a minute."""
        if address is None:
            return
        async with self._database.service() as connection:
            cursor = await connection.execute("select bds.count_wrong(%s::inet, %s)", (address, A_MINUTE))
            row = await cursor.fetchone()
        if row and row[0] is not None:
            raise _too_many(row[0])

    async def attempt(self, address: str | None, check: Callable[[], Awaitable[T | None]]) -> T | None:
        """Let a login be checked: what it is known to be, None if it is wrong, which is counted.

        Raises too_many_requests without a check, busy if its turn does not come, and what `check` raises.  A check that
        has begun goes on if whoever asked has left, so that nobody makes attempts that are not counted.
        """
        if address is None:
            return await check()
        turns = self._turns.setdefault(_network_of(address), asyncio.Semaphore(AT_ONCE))
        try:
            async with asyncio.timeout(PATIENCE):
                await turns.acquire()
        except TimeoutError:
            message = "too many passwords of this address are being checked; try again later"
            raise ServiceError("busy", message, headers={"Retry-After": "5"}) from None

        def ended(task: asyncio.Task[T | None]) -> None:
            turns.release()
            self._under_way.discard(task)
            if not task.cancelled():
                task.exception()  # whoever asked is told, or has left

        task = asyncio.create_task(self._counted(address, check))
        self._under_way.add(task)
        task.add_done_callback(ended)
        return await asyncio.shield(task)

    async def _counted(self, address: str, check: Callable[[], Awaitable[T | None]]) -> T | None:
        began, was_wrong = await self._place(address), False
        try:
            found = await check()
            was_wrong = found is None
            return found
        finally:
            await self._give_back(address, began, was_wrong)

    async def _place(self, address: str) -> datetime:
        """Hold a place among the attempts that may be wrong; since when those are counted."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        while True:
            async with self._database.service() as connection:
                cursor = await connection.execute("select began, wait from bds.begin_attempt(%s::inet, %s)", (address, A_MINUTE))
                row = await cursor.fetchone()
            assert row is not None
            began, wait = row
            if wait is not None:
                raise _too_many(wait)
            if began is not None:
                return began  # type: ignore[no-any-return]
            if loop.time() > deadline:
                raise TimeoutError
            await asyncio.sleep(AGAIN)

    async def _give_back(self, address: str, began: datetime, was_wrong: bool) -> None:
        try:
            async with self._database.service() as connection:
                await connection.execute("select bds.end_attempt(%s::inet, %s, %s)", (address, began, was_wrong))
        except psycopg.Error as error:  # it holds its place until the minute is over
            log.warning("the end of a login was not noted: %s", type(error).__name__)

    async def keep_forgetting(self) -> None:
        """Drop, now and then, what is counted no longer; for ever."""
        while True:
            await asyncio.sleep(FORGET)
            try:
                async with self._database.service() as connection:
                    await connection.execute("select bds.forget_wrong()")
            except psycopg.Error as error:
                log.warning("wrong credentials were not forgotten: %s", type(error).__name__)


def _network_of(address: str) -> str:
    """What is counted together, as bds_accounts.network_of has it: an IPv4 address, or the IPv6 network that one subscriber has."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return address if parsed.version == 4 else str(ipaddress.ip_network((parsed, 64), strict=False))


def _too_many(wait: int) -> ServiceError:
    metrics.refused_credentials.inc()
    message = f"too many wrong credentials have come from this address; try again in {wait} s"
    return ServiceError("too_many_requests", message, headers={"Retry-After": str(wait)})
