"""Background tasks, signals, and threads that end with the process."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any, TypeVar

AGAIN = 0.5  # seconds after which a task that has not ended is cancelled again
UNANSWERED = "stopped while waiting for the database to answer"

T = TypeVar("T")


class Stopped(BaseException):
    """A signal ended the service before it had started; the message tells what it waited for.

    No Exception: the signal may arrive while a line is logged, and logging goes on after an Exception.
    """


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGINT raise Stopped while the block waits for the database; for use outside an event loop."""

    def stop(_number: int, _frame: object) -> None:
        raise Stopped(UNANSWERED)

    with _handled(stop, signal.SIGTERM, signal.SIGINT):
        yield


@contextlib.contextmanager
def interruptible(*others: signal.Signals) -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT does, so that the block can clean up; nohup is respected.

    others: SIGINT, if it must do so inside an event loop, too, where it would cancel the main task and not interrupt a write.
    """

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    with _handled(stop, *others, *(each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL)):
        yield


@contextlib.contextmanager
def _handled(handler: Callable[[int, Any], None], *numbers: signal.Signals) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # signals arrive in the main thread
        yield
        return
    before = {each: signal.signal(each, handler) for each in numbers}
    try:
        yield
    finally:
        for each, former in before.items():
            signal.signal(each, former)


async def cancel_and_wait(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended, with whatever result.

    A cancellation can be lost: `asyncio.wait_for` of Python 3.11, which connection pools use, forgets one that arrives together
    with its result.  So tasks are cancelled again every AGAIN seconds.
    """
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=AGAIN)
    await asyncio.gather(*tasks, return_exceptions=True)  # exceptions were logged where they happened


async def in_daemon(work: Callable[..., T], *arguments: Any) -> T:
    """Run `work` in a daemon thread, with the caller's context variables, and return its result.

    Unlike the event loop's threads it cannot delay the process's end.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if outcome.done():  # the awaiting task was cancelled
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

    threading.Thread(target=copy_context().run, args=(run,), name=work.__name__, daemon=True).start()
    return await outcome
