"""A connection that listens for notifications, and connects again whenever it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import LiteralString

import psycopg

from app.database.pool.pools import parameters

log = logging.getLogger("bds.db")

RECONNECT = 0.5  # seconds between attempts


async def listen(
    url: str, *channels: LiteralString, on_loss: Callable[[], None] = lambda: None
) -> AsyncGenerator[psycopg.Notify | None, None]:
    """Yield notifications on channels, forever; None after each connect, because notifications before it are lost.

    on_loss: called whenever the connection is lost.
    """
    lost = False
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True, **parameters(url, "bds listen")) as connection:
                for channel in channels:
                    await connection.execute(f"listen {channel}")
                lost = False
                yield None
                async for notify in connection.notifies():
                    yield notify
        except psycopg.Error as error:
            on_loss()
            if not lost:
                log.warning("the listening connection was lost: %s", type(error).__name__)
            lost = True
        await asyncio.sleep(RECONNECT)
