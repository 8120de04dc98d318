"""`end` cancels tasks until they end."""

from __future__ import annotations

import asyncio
import contextlib

from app.tasks import cancel_and_wait


def test_a_task_that_loses_its_cancellation_is_cancelled_again() -> None:
    """asyncio.wait_for loses one before Python 3.12 if it arrives together with the result."""

    async def losing() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def failing() -> None:
        raise ValueError("of its own")

    async def run() -> None:
        tasks = [asyncio.create_task(losing()), asyncio.create_task(failing())]
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await cancel_and_wait(*tasks)
        assert tasks[0].cancelled() and isinstance(tasks[1].exception(), ValueError)

    asyncio.run(run())
