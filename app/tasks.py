"""Tasks that go on beside the requests, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

AGAIN = 0.5  # seconds until a task that has not ended is told so again
UNANSWERED = "stopped before it had begun: the database had not answered yet"

T = TypeVar("T")


class Stopped(Exception):
    """A service was told to end before it had begun, and does; the message says what it waited for."""


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Outside an event loop: SIGTERM and SIGINT raise Stopped while the block waits for the database."""

    def stop(_number: int, _frame: object) -> None:
        raise Stopped(UNANSWERED)

    with _handled(stop, signal.SIGTERM, signal.SIGINT):
        yield


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT does, so that the block ends what it has begun; nohup is heeded."""

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    with _handled(stop, *(each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL)):
        yield


@contextlib.contextmanager
def _handled(handler: Callable[[int, Any], None], *numbers: signal.Signals) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # where signals arrive
        yield
        return
    before = {each: signal.signal(each, handler) for each in numbers}
    try:
        yield
    finally:
        for each, former in before.items():
            signal.signal(each, former)


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


async def in_daemon(work: Callable[..., T], *arguments: Any) -> T:
    """Do work in a thread that ends with the process, whatever it waits for; the event loop's own threads are waited for."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if outcome.done():  # nobody waits for it any more
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work(*arguments)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=work.__name__, daemon=True).start()
    return await outcome
