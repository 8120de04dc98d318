"""Whether a database answers: checked every second, and on demand, over a connection of its own.

A pool notices a restarted server only when a request meets a broken connection, and reconnects ever more rarely.  The pulse notices
an outage at once and the return within RETRY seconds; it then revives the pools, so that waiting requests are served.
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
RETRY = 0.25  # seconds between two attempts to reach a database that is away
PATIENCE = 1.0  # seconds without an answer after which the database counts as away


class Pulse:
    """Watches one database for the pools that depend on it.  `is_up`: whether it answered the last check."""

    def __init__(self, name: str, url: str, *pools: Pool) -> None:
        self.is_up = False
        self._name, self._url, self._pools = name, url, pools
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._checking = asyncio.Lock()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._question: asyncio.Task[bool] | None = None
        self._dropped: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Connect and start to watch.  Raises psycopg.Error if the database cannot be reached."""
        self._connection = await self._connect()
        self._set(True)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task:
            await cancel_and_wait(self._task)
        self._drop()
        await asyncio.gather(*self._dropped, return_exceptions=True)

    async def ask(self) -> bool:
        """Check whether the database answers; takes PATIENCE seconds at most."""
        async with self._checking:
            connection = self._connection
            if not self.is_up or connection is None:
                return False
            question = self._question
            if question is None or question.done():  # else an earlier caller was cancelled while it waited
                question = self._question = asyncio.create_task(_ask(connection))
            await asyncio.wait({question}, timeout=PATIENCE)
            if question.done() and question.result():
                return True
            self._set(False)
            self._changed.set()
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
                    await self._changed.wait()
            self._changed.clear()
            await self.ask()
        else:
            await self._return()

    async def _return(self) -> None:
        """Wait until the database answers again."""
        self._drop()
        while True:
            try:
                async with asyncio.timeout(PATIENCE * 2):
                    self._connection = await self._connect()
                    break
            except (psycopg.Error, OSError):
                await asyncio.sleep(RETRY)
        log.warning("%s answers again", self._name)
        self._set(True)
        await asyncio.gather(*(pool.revive() for pool in self._pools), return_exceptions=True)

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        connect = psycopg.AsyncConnection.connect
        return await connect(self._url, autocommit=True, prepare_threshold=None, **parameters(self._url))

    def _set(self, is_up: bool) -> None:
        self.is_up = is_up
        for pool in self._pools:
            pool.is_away = not is_up

    def _drop(self) -> None:
        """Close the connection in a background task: with a hanging server even a cancelled query takes seconds to end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            task = asyncio.create_task(_close(connection, self._question))
            self._question = None
            self._dropped.add(task)
            task.add_done_callback(self._dropped.discard)


async def _ask(connection: psycopg.AsyncConnection[Any]) -> bool:
    try:
        await connection.execute("select", prepare=False)
    except (psycopg.Error, OSError):
        return False
    return True


async def _close(connection: psycopg.AsyncConnection[Any], question: asyncio.Task[bool] | None) -> None:
    """Close a connection after its last query has ended, so that the event loop does not watch a closed socket."""
    if question is not None and not question.done():
        await cancel_and_wait(question)
    with contextlib.suppress(psycopg.Error, OSError):
        await connection.close()
