"""Whether a database answers: checked every second, and on demand, over a connection of its own.

A pool notices a restarted server only when a request meets a broken connection, and reconnects ever more rarely.  The pulse notices
an outage at once and the return within RETRY seconds; it then restores the pools, so that waiting requests are served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg

from app.database.pools import Pool, parameters
from app.tasks import cancel_and_wait

log = logging.getLogger("bds.db")

INTERVAL = 1.0  # seconds between two checks
RETRY = 0.25  # seconds between two attempts to reach a database that is down
ANSWER_TIMEOUT = 1.0  # seconds without an answer after which the database counts as down


Probe = Callable[[psycopg.AsyncConnection[Any]], Awaitable[None]]


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
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()
        self._went_down = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._check: asyncio.Task[bool] | None = None
        self._closing: set[asyncio.Task[None]] = set()

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
            log.warning("%s cannot be used: %s", self._name, type(error).__name__)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task:
            await cancel_and_wait(self._task)
        self._close_connection()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def ask(self) -> bool:
        """Check whether the database answers; takes ANSWER_TIMEOUT seconds at most."""
        async with self._lock:
            connection = self._connection
            if not self.is_up or connection is None:
                return False
            check = self._check
            if check is None or check.done():  # else an earlier caller was cancelled while it waited
                check = self._check = asyncio.create_task(self._answers(connection))
            await asyncio.wait({check}, timeout=ANSWER_TIMEOUT)
            if check.done() and check.result():
                return True
            self._set(False)
            self._went_down.set()
            log.warning("%s does not answer", self._name)
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
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL):
                    await self._went_down.wait()
            self._went_down.clear()
            await self.ask()
        else:
            await self._reconnect()

    async def _reconnect(self) -> None:
        """Wait until the database answers again."""
        self._close_connection()
        while True:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT * 2):
                    self._connection = await self._connect()
                    await self._probe(self._connection)
                    break
            except (psycopg.Error, OSError):
                self._close_connection()
                await asyncio.sleep(RETRY)
        log.warning("%s answers again", self._name)
        self._set(True)
        await asyncio.gather(*(pool.restore() for pool in self._pools), return_exceptions=True)

    async def _answers(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        try:
            await self._probe(connection)
        except (psycopg.Error, OSError):
            return False
        return True

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        connect = psycopg.AsyncConnection.connect
        return await connect(self._url, autocommit=True, prepare_threshold=None, **parameters(self._url))

    def _set(self, is_up: bool) -> None:
        self.is_up = is_up
        for pool in self._pools:
            pool.note_state(is_up=is_up)

    def _close_connection(self) -> None:
        """Close the connection in a background task: with a hanging server even a cancelled query takes seconds to end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            task = asyncio.create_task(_close(connection, self._check))
            self._check = None
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _close(connection: psycopg.AsyncConnection[Any], check: asyncio.Task[bool] | None) -> None:
    """Close a connection after its last query has ended, so that the event loop does not watch a closed socket."""
    if check is not None and not check.done():
        await cancel_and_wait(check)
    with contextlib.suppress(psycopg.Error, OSError):
        await connection.close()
