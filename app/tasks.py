"""Tasks that go on beside the requests, and how they end."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN = 0.5  # seconds until a task that has not ended is told so again


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their end, whatever it is.

    A cancellation can be lost: `asyncio.wait_for` of Python 3.11, which pools of connections use, forgets one that comes together
    with what it waits for.  So it is said again until it was heard.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN)
    await asyncio.gather(*tasks, return_exceptions=True)  # what they raised was told where it happened
