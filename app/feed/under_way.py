"""Imports over HTTP, which go on beside their requests: counted when they end, told of if they fail, ended with the service."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any

import psycopg

from app import metrics
from app.errors import SQLSTATES, ServiceError
from app.feed.run import Import

log = logging.getLogger("bds.feed")

OUTCOMES = ("created", "updated", "deleted", "unchanged", "failed")
AGAIN = 0.5  # seconds until an import that is told to end is told so again
END = 8.0  # seconds that it has for that

Report = dict[str, Any]


class Served(Import):
    """An import that ends with the service, and whose report says what has ended it."""

    _is_stopped = False

    def stop(self) -> None:
        """End it soon, for the service ends.  What is already written to the last record stays."""
        self._is_stopped = True
        running = self._running
        if running is not None:
            running.cancel_safe(timeout=END)

    def check_cancelled(self) -> None:
        """Raises ServiceError `cancelled` if somebody asked for the import's end, `aborted` if the service ends."""
        super().check_cancelled()
        if self._is_stopped:
            raise _stopped()

    def abort(self, reason: BaseException | None = None) -> None:
        try:
            reason = self._ended_by(reason)
        finally:
            super().abort(reason)

    def _ended_by(self, reason: BaseException | None) -> BaseException | None:
        """What the report is to say; somebody's wish to end it goes before the service's end."""
        if isinstance(reason, asyncio.CancelledError):
            reason = _stopped()
        if isinstance(reason, ServiceError) and reason.code == "aborted" and self.id is not None:
            with self._connect() as connection:
                self._look_whether_cancelled(connection)
            return ServiceError("cancelled", "the import was cancelled") if self._cancelled else reason
        if reason is None or isinstance(reason, ServiceError | psycopg.Error | ConnectionError):
            return reason
        return ServiceError("internal", f"the service failed; its log has import {self.id}")


def _stopped() -> ServiceError:
    return ServiceError("aborted", "the service was stopped before the import had ended; nothing of it was written")


_under_way: dict[asyncio.Task[Report], Served] = {}  # asyncio itself keeps no task alive


def begin(feed: Served, work: Coroutine[Any, Any, Report]) -> asyncio.Task[Report]:
    """Let an import's work go on, whoever waits for it."""
    task = asyncio.create_task(work)
    _under_way[task] = feed
    task.add_done_callback(_under_way.pop)
    task.add_done_callback(partial(_count, feed, time.monotonic()))
    return task


def nobody_waits(feed: Served, task: asyncio.Task[Report]) -> None:
    """No request will be told how an import ends: if that is by a failure of ours, the log is."""
    task.add_done_callback(partial(_log_failure, feed))


def _count(feed: Served, began: float, task: asyncio.Task[Report]) -> None:
    """Count an import that has ended."""
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    report = task.result() if error is None else None
    code = error.code if isinstance(error, ServiceError) else None
    state = report["state"] if report else "cancelled" if code == "cancelled" else "failed"
    metrics.imports.labels(state, str(feed.dry_run).lower()).inc()
    metrics.import_durations.observe(time.monotonic() - began)
    if report and not feed.dry_run:
        for counts in report["entities"].values():
            for outcome in OUTCOMES:
                metrics.import_records.labels(outcome).inc(counts[outcome])
    was_stopped = code == "aborted" or isinstance(error, asyncio.CancelledError)
    log.info("import %s of %s ended: %s%s", feed.id, feed.company, state, ", the service was stopped" if was_stopped else "")


def _log_failure(feed: Served, task: asyncio.Task[Report]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is None or isinstance(error, ServiceError | ConnectionError):  # which the report tells
        return
    if isinstance(error, psycopg.Error) and error.sqlstate in SQLSTATES:
        return
    log.error("import %s of %s failed", feed.id, feed.company, exc_info=error)


async def finish(grace: float) -> None:
    """Let the imports of this event loop end within `grace` seconds; those that have not are stopped, and say so."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    while mine := _of(loop):
        late = loop.time() - deadline
        if late > END:
            log.error("%d imports could not be stopped", len(mine))
            return
        if late >= 0:
            await asyncio.gather(*(asyncio.to_thread(_stop, feed) for feed in mine.values()))
        await asyncio.wait(mine, timeout=AGAIN if late >= 0 else -late)


def _of(loop: asyncio.AbstractEventLoop) -> dict[asyncio.Task[Report], Served]:
    return {task: feed for task, feed in list(_under_way.items()) if task.get_loop() is loop}


def _stop(feed: Served) -> None:
    try:
        feed.stop()
    except psycopg.Error as error:
        log.warning("import %s of %s could not be told to end: %s", feed.id, feed.company, type(error).__name__)
