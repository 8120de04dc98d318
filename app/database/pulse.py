"""Whether a database answers: asked again and again over a connection of its own, and at once by whoever wants to know.

The pools notice a restarted server only when a request meets a broken connection, and then try again ever more rarely.  The pulse
notices its end at once and its return within a quarter of a second, and says so: what waits is served then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

import psycopg

from app.database.pools import Pool, parameters
from app.tasks import end

log = logging.getLogger("bds.db")

INTERVAL = 1.0  # seconds between two questions
RETRY = 0.25  # seconds between two attempts to reach a database that is away
PATIENCE = 1.0  # seconds after which one that does not answer counts as away


class Pulse:
    """Of one database, and of the pools that depend on it.  `is_up`: whether it answered when it was asked last."""

    def __init__(self, name: str, url: str, *pools: Pool) -> None:
        self.is_up = False
        self._name, self._url, self._pools = name, url, pools
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._turn = asyncio.Lock()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._question: asyncio.Task[bool] | None = None
        self._dropped: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin.  Raises psycopg.Error if the database cannot be reached now."""
        self._connection = await self._connect()
        self._set(True)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task:
            await end(self._task)
        self._drop()
        await asyncio.gather(*self._dropped, return_exceptions=True)

    async def ask(self) -> bool:
        """Whether the database answers now; never waits longer than PATIENCE."""
        async with self._turn:
            connection = self._connection
            if not self.is_up or connection is None:
                return False
            question = self._question
            if question is None or question.done():  # else whoever has asked has left
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
                log.exception("watching %s failed, and goes on", self._name)
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
        """Wait for the database."""
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
        """Close the connection, in a task of its own: a server that hangs keeps a question for seconds, even if it is cancelled."""
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
    """Close a connection once nobody waits for anything on it: the event loop must not watch a socket that is no more."""
    if question is not None and not question.done():
        await end(question)
    with contextlib.suppress(psycopg.Error, OSError):
        await connection.close()
