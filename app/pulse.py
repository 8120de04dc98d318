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

from app.pools import Pool, parameters

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

    async def start(self) -> None:
        """Begin.  Raises psycopg.Error if the database cannot be reached now."""
        self._connection = await self._connect()
        self._set(True)
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._drop()

    async def ask(self) -> bool:
        """Whether the database answers now; never waits longer than PATIENCE."""
        async with self._turn:
            connection = self._connection
            if not self.is_up or connection is None:
                return False
            question = asyncio.create_task(_ask(connection))
            await asyncio.wait({question}, timeout=PATIENCE)
            if question.done() and question.result():
                return True
            question.cancel()  # nobody waits for its end: a server that hangs would keep it
            self._set(False)
            self._changed.set()
            log.warning("%s does not answer", self._name)
            return False

    async def _run(self) -> None:
        while True:
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
        await self._drop()
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

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await connection.close()


async def _ask(connection: psycopg.AsyncConnection[Any]) -> bool:
    try:
        await connection.execute("select", prepare=False)
    except (psycopg.Error, OSError):
        return False
    return True
