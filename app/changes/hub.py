"""Followers of the change log in one process: one LISTEN connection for all of them, and a tail for each followed company.

Connections do not grow with followers: tails, and followers that catch up, share a few.  A change is in the log before its
notification is sent, and notifications are only hints: after each connect all tails read the log without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator

import psycopg

from app.auth.gate import Gate
from app.changes.page import Elsewhere, Page, Start, condition, read_page, read_start
from app.changes.tail import Follower, Tail
from app.database.database import Database
from app.database.servers.place import FOLLOWERS, Place
from app.errors import ServiceError
from app.tasks import cancel_and_wait
from app.types.event_ids import Event

log = logging.getLogger("bds.changes")

CHECK = 8.0  # seconds between two checks of the credentials of all followers
MOST = 10_000  # followers of a process


class Hub:
    """The tails and followers of one process."""

    def __init__(self, database: Database, gate: Gate) -> None:
        self._database, self._gate = database, gate
        self._tails: dict[str, Tail] = {}
        self._followers: set[Follower] = set()
        self._task: asyncio.Task[None] | None = None
        self._readers = asyncio.Semaphore(FOLLOWERS - 1)  # one connection is left for the tails
        self._is_closed = False

    async def start(self, company: str, after: Event | None, target: str) -> Start:
        """The change after which a follower begins; see read_start."""
        with contextlib.suppress(Elsewhere):
            async with self._database.follower(company) as connection:
                return await read_start(connection, company, after, target)
        await self._database.find_again(company)  # this process has not heard yet where it is
        async with self._database.follower(company) as connection:
            return await read_start(connection, company, after, target)

    @contextlib.contextmanager
    def following(self, follower: Follower, start: Start) -> Iterator[Tail]:
        """Keep a follower for the duration of the block.  Raises ServiceError: busy, aborted."""
        if self._is_closed:
            raise ServiceError("aborted", "the service stops", headers={"Retry-After": "1"})
        if len(self._followers) >= MOST:
            raise ServiceError("busy", f"{MOST:,} streams are open in this process", headers={"Retry-After": "60"})
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        tail = self._tails.get(follower.company)
        if tail and tail.generation != start.generation:
            tail.wake()  # it has not noticed yet that it is over
        if tail is None or tail.is_over or tail.generation != start.generation:
            tail = self._tails[follower.company] = Tail(self._database, follower.company, start.last, start.generation)
        tail.add(follower)
        self._followers.add(follower)
        try:
            yield tail
        finally:
            self._followers.discard(follower)
            tail.remove(follower)

    async def read(self, follower: Follower) -> Page:
        """Read the next page for a follower from the log."""
        catalog = self._database.catalog
        filter = condition(catalog, follower.filter)
        async with self._readers, self._database.follower(follower.company) as connection:
            return await read_page(connection, catalog, follower.company, follower.position, filter)

    def end(self) -> None:
        """End all streams, and refuse new ones."""
        self._is_closed = True
        for follower in list(self._followers):
            follower.end()

    async def close(self) -> None:
        """End the tasks."""
        if self._task:
            await cancel_and_wait(self._task)

    async def _run(self) -> None:
        """Listen, and check credentials, while there are followers."""
        listening = asyncio.create_task(self._database.at_each_place(self._listen))
        try:
            while self._followers:
                await asyncio.sleep(CHECK)
                try:
                    await self._check()
                except (psycopg.Error, OSError) as error:
                    log.warning("credentials of followers could not be checked: %s", type(error).__name__)
        finally:  # the next follower starts a new task
            tails, self._tails, self._task = list(self._tails.values()), {}, None
            await cancel_and_wait(listening, *(tail.task for tail in tails))

    async def _listen(self, place: Place) -> None:
        async for notify in place.notifications("bds_changes", "bds_hooks"):  # the latter also after delete and restore
            for tail in self._tails.values() if notify is None else filter(None, (self._tails.get(notify.payload),)):
                tail.wake()

    async def _check(self) -> None:
        """End the streams whose credentials have ended; drop unused tails and records.  Raises psycopg.Error, OSError."""
        for follower in list(self._followers):
            if not await self._gate.still_may(follower.headers, "read", follower.company):
                follower.end()
        for company, tail in list(self._tails.items()):
            tail.forget()
            if not tail.followers and self._tails.get(company) is tail:
                del self._tails[company]
                await cancel_and_wait(tail.task)
