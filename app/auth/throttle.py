"""Limits wrong credentials, counted in the database for all processes together: A_MINUTE per address, AN_HOUR per email address.

What counts as one address is defined by the SQL function network_of.

A wrong key, token or cookie adds one to the count of its address; beyond the limit the answer is too_many_requests.  Valid ones
are never refused.

A login is checked only while its address and its email address have attempts left, because otherwise parallel guesses could exceed
the limits:

1. A process checks at most CONCURRENT_LOGINS logins of an address at a time; further ones wait for up to QUEUE_TIMEOUT.
2. bds_service.begin_attempt reserves one of the attempts that are left in the minute and in the hour.  If a limit is reached by
   wrong credentials, the login is refused unchecked.  If that of the address is reached only together with the reservations of
   running logins, the login polls until one of them has ended, for up to QUEUE_TIMEOUT.
3. bds_service.end_attempt gives the reservation of a correct login back, and counts that of a wrong one.

So parallel wrong logins are limited like consecutive ones, and parallel correct logins do not cause each other's refusal.  An email
address of nobody has a limit like every other one; that of a user does not hold where the user has signed in before.
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

A_MINUTE = 20  # wrong credentials of one address
AN_HOUR = 100  # wrong logins with one email address, from all networks
CONCURRENT_LOGINS = 2  # of one address in one process
QUEUE_TIMEOUT = 10.0  # seconds that a login waits to be checked, and again for a reservation
POLL_INTERVAL = 0.1  # seconds between two attempts to get a reservation

WRONG_CREDENTIALS = "wrong credentials from this address"
WRONG_LOGINS = "wrong logins with this email address"
BEGIN = "select minute_began, hour_began, wait, is_for_email from bds_service.begin_attempt(%s::inet, %s, %s, %s)"
END = "select bds_service.end_attempt(%s::inet, %s, %s, %s, %s)"

T = TypeVar("T")


class Throttle:
    """Counts wrong credentials, and refuses an address that has sent too many."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._semaphores: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # by network
        self._tasks: set[asyncio.Task[Any]] = set()  # asyncio itself holds only weak references

    async def count_failure(self, address: str | None) -> None:
        """Count wrong credentials of an address.  Raises ServiceError(too_many_requests) beyond the limit, with Retry-After."""
        if address is None:
            return
        async with self._database.service() as connection:
            cursor = await connection.execute("select bds_service.count_wrong(%s::inet, %s)", (address, A_MINUTE))
            row = await cursor.fetchone()
        if row and row[0] is not None:
            raise _too_many(WRONG_CREDENTIALS, row[0])

    async def attempt(self, address: str | None, email: str, check: Callable[[], Awaitable[T | None]]) -> T | None:
        """Run the check of a login with an email address and return its result; None means a wrong login, which is counted.

        A running check is finished even if its client disconnects: otherwise guesses could be made uncounted.
        Raises ServiceError(too_many_requests) without a check, ServiceError(busy) or TimeoutError after QUEUE_TIMEOUT, and
        whatever `check` raises.
        """
        if address is None:
            return await check()
        semaphore = self._semaphores.setdefault(_network_of(address), asyncio.Semaphore(CONCURRENT_LOGINS))
        try:
            async with asyncio.timeout(QUEUE_TIMEOUT):
                await semaphore.acquire()
        except TimeoutError:
            message = "too many logins from this address are being checked; try again later"
            raise ServiceError("busy", message, headers={"Retry-After": "5"}) from None

        def ended(task: asyncio.Task[T | None]) -> None:
            semaphore.release()
            self._tasks.discard(task)
            if not task.cancelled():
                task.exception()  # read it, or asyncio logs it as never retrieved if the client has disconnected

        task = asyncio.create_task(self._run_check(address, email, check))
        self._tasks.add(task)
        task.add_done_callback(ended)
        return await asyncio.shield(task)

    async def _run_check(self, address: str, email: str, check: Callable[[], Awaitable[T | None]]) -> T | None:
        began, was_wrong = await self._reserve(address, email), False
        try:
            result = await check()
            was_wrong = result is None
            return result
        finally:
            await self._release(address, email, *began, was_wrong)

    async def _reserve(self, address: str, email: str) -> tuple[datetime, datetime]:
        """Reserve an attempt; returns the beginning of the minute and of the hour in which it counts."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + QUEUE_TIMEOUT
        while True:
            async with self._database.service() as connection:
                row = await (await connection.execute(BEGIN, (address, email, A_MINUTE, AN_HOUR))).fetchone()
            assert row is not None
            minute, hour, wait, is_for_email = row
            if wait is not None:
                raise _too_many(WRONG_LOGINS if is_for_email else WRONG_CREDENTIALS, wait)
            if minute is not None:
                return minute, hour
            if loop.time() > deadline:
                raise TimeoutError
            await asyncio.sleep(POLL_INTERVAL)

    async def _release(self, address: str, email: str, minute: datetime, hour: datetime, was_wrong: bool) -> None:
        try:
            async with self._database.service() as connection:
                await connection.execute(END, (address, email, minute, hour, was_wrong))
        except psycopg.Error as error:  # the reservation ends with its minute; with the email address the login counts as wrong
            log.warning("the reservation of a login was not released: %s", type(error).__name__)


def _network_of(address: str) -> str:
    """What counts as one address, like the SQL function network_of: an IPv4 address, or an IPv6 network of /64"""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return address if parsed.version == 4 else str(ipaddress.ip_network((parsed, 64), strict=False))


def _too_many(what: str, wait: int) -> ServiceError:
    metrics.refused_credentials.inc()
    return ServiceError("too_many_requests", f"too many {what}; try again in {wait} s", headers={"Retry-After": str(wait)})
