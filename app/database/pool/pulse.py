"""Whether a database answers: checked every second, on demand, and when the server ends the connection that is used for that.

A pool notices a restarted server only when a request meets a broken connection, and reconnects ever more rarely.  The pulse notices
an outage at once and the return within RETRY seconds; it then restores the pools, so that waiting requests are served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg

from app.database.pool.pools import Pool, parameters
from app.database.pool.session import Session
from app.tasks import cancel_and_wait

log = logging.getLogger("bds.db")

INTERVAL = 1.0  # seconds between two checks
RETRY = 0.25  # seconds between two attempts to reach a database that is down
ANSWER_TIMEOUT = 1.0  # seconds without an answer after which the database counts as down

Probe = Callable[[psycopg.AsyncConnection[Any]], Awaitable[None]]


class NotUsable(psycopg.OperationalError):
    """The server answers, but not as it has to; the message says why."""


async def ping(connection: psycopg.AsyncConnection[Any]) -> None:
    """Ask for nothing but an answer."""
    await connection.execute("select", prepare=False)


class Pulse:
    """Watches one database for the pools that depend on it.

    is_up: whether it answered the last check.  probe: what a check asks; an error of psycopg's means no.
    """

    def __init__(self, name: str, url: str, *pools: Pool, probe: Probe = ping) -> None:
        self.is_up = False
        self._name, self._url, self._pools, self._probe = name, url, pools, probe
        self._connection: Session | None = None
        self._lock = asyncio.Lock()
        self._went_down = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._check: asyncio.Task[str | None] | None = None

    async def start(self, *, required: bool = True) -> None:
        """Connect and start to watch.  Raises psycopg.Error if the database cannot be reached and is required."""
        try:
            self._connection = await self._connect()
            await self._probe(self._connection)
            self._set(True)
        except (psycopg.Error, OSError) as error:
            if required:
                raise
            self._set(False)
            log.warning("%s cannot be used: %s", self._name, _told(error))
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task:
            await cancel_and_wait(self._task)
        await self._close()

    async def ask(self) -> bool:
        """Check whether the database answers; takes ANSWER_TIMEOUT seconds at most."""
        async with self._lock:
            connection = self._connection
            if not self.is_up or connection is None:
                return False
            check = self._check
            if check is None or check.done():  # else an earlier caller was cancelled while it waited
                check = self._check = asyncio.create_task(self._find_problem(connection))
            if not (await asyncio.wait({check}, timeout=ANSWER_TIMEOUT))[0]:
                connection.hang_up()  # to cancel the check would take seconds
            problem = await check
            if problem is None:
                return True
            self._set(False)
            self._went_down.set()
            log.warning("%s cannot be used: %s", self._name, problem)
            return False

    async def _run(self) -> None:
        while True:
            try:
                await self._watch()
            except Exception:
                log.exception("watching %s failed and continues", self._name)
                await asyncio.sleep(RETRY)

    async def _watch(self) -> None:
        if self.is_up:
            with contextlib.suppress(TimeoutError), self._watched():
                async with asyncio.timeout(INTERVAL):
                    await self._went_down.wait()
            self._went_down.clear()
            await self.ask()
        else:
            await self._reconnect()

    async def _reconnect(self) -> None:
        """Wait until the database answers again."""
        await self._close()
        while True:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT * 2):
                    self._connection = await self._connect()
                    await self._probe(self._connection)
                    break
            except (psycopg.Error, OSError):
                await self._close()
                await asyncio.sleep(RETRY)
        log.warning("%s answers again", self._name)
        self._set(True)
        await asyncio.gather(*(pool.restore() for pool in self._pools), return_exceptions=True)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Set `_went_down` inside if something arrives unasked, as the end of the connection does.

        Another descriptor of the socket is watched, because psycopg watches the connection's own during a check; what arrives then
        causes one more check.
        """
        assert self._connection is not None
        loop, line = asyncio.get_running_loop(), os.dup(self._connection.fileno())
        loop.add_reader(line, self._went_down.set)
        try:
            yield
        finally:
            loop.remove_reader(line)
            os.close(line)

    async def _find_problem(self, connection: psycopg.AsyncConnection[Any]) -> str | None:
        """Why the database cannot be used; None if it can."""
        try:
            await self._probe(connection)
        except (psycopg.Error, OSError) as error:
            return _told(error)
        return None

    async def _connect(self) -> Session:
        return await Session.connect(self._url, autocommit=True, prepare_threshold=None, **parameters(self._url))

    def _set(self, is_up: bool) -> None:
        self.is_up = is_up
        for pool in self._pools:
            pool.note_state(is_up=is_up)

    async def _close(self) -> None:
        """Close the connection; a check that runs fails at once."""
        if self._connection is not None:
            self._connection.hang_up()
            if self._check is not None:
                await asyncio.wait({self._check})
            await self._connection.close()
            self._connection = self._check = None


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, NotUsable) else f"it does not answer ({type(error).__name__})"
