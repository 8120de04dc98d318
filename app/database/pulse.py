"""Whether a database answers: checked every second, and on demand, over a connection of its own.

A pool notices a restarted server only when a request meets a broken connection, and reconnects ever more rarely.  The pulse notices
an outage at once and the return within RETRY seconds; it then restores the pools, so that waiting requests are served.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import psycopg

from app.database.pools import Pool, parameters
from app.tasks import cancel_and_wait

log = logging.getLogger("bds.db")

INTERVAL = 1.0  # seconds between two checks
RETRY = 0.25  # seconds between two attempts to reach a database that is down
ANSWER_TIMEOUT = 1.0  # seconds without an answer after which the database counts as down


class Pulse:
    """Watches one database for the pools that depend on it.  `is_up`: whether it answered the last check."""

    def __init__(self, name: str, url: str, *pools: Pool) -> None:
        self.is_up = False
        self._name, self._url, self._pools = name, url, pools
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()
        self._went_down = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._check: asyncio.Task[bool] | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Connect and start to watch.  Raises psycopg.Error if the database cannot be reached."""
        self._connection = await self._connect()
        self._set(True)
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
                check = self._check = asyncio.create_task(_answers(connection))
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
                    break
            except (psycopg.Error, OSError):
                await asyncio.sleep(RETRY)
        log.warning("%s answers again", self._name)
        self._set(True)
        await asyncio.gather(*(pool.restore() for pool in self._pools), return_exceptions=True)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        connect = psycopg.AsyncConnection.connect
        return await connect(self._url, autocommit=True, prepare_threshold=None, **parameters(self._url))

    def _set(self, is_up: bool) -> None:
        self.is_up = is_up
        for pool in self._pools:
            pool.is_down = not is_up

    def _close_connection(self) -> None:
        """Close the connection in a background task: with a hanging server even a cancelled query takes seconds to end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            task = asyncio.create_task(_close(connection, self._check))
            self._check = None
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _answers(connection: psycopg.AsyncConnection[Any]) -> bool:
    try:
        await connection.execute("select", prepare=False)
    except (psycopg.Error, OSError):
        return False
    return True


async def _close(connection: psycopg.AsyncConnection[Any], check: asyncio.Task[bool] | None) -> None:
    """Close a connection after its last query has ended, so that the event loop does not watch a closed socket."""
    if check is not None and not check.done():
        await cancel_and_wait(check)
    with contextlib.suppress(psycopg.Error, OSError):
        await connection.close()
