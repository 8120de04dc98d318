"""Imports over HTTP as background tasks, and their threads: an import goes on when its client leaves, and ends with the service."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import psycopg

from app import metrics
from app.errors import SQLSTATES, ServiceError, disk_full
from app.feed.run import STOP_TIMEOUT, Import, cancelled, stopped

log = logging.getLogger("bds.feed")

OUTCOMES = ("created", "updated", "deleted", "unchanged", "failed")
FAIL_INTERVAL = 1.0  # seconds until the end of an import is stored again, for which there was no space
STOP_INTERVAL = 0.5  # seconds until an import that has not stopped is stopped again

Report = dict[str, Any]

T = TypeVar("T")

_threads = ThreadPoolExecutor(32, thread_name_prefix="import")
_ends = ThreadPoolExecutor(4, thread_name_prefix="import end")  # for the ends of imports, which must not wait for running ones
_unkept: deque[tuple[Import, BaseException | None]] = deque()  # imports whose end could not be stored; a thread works on the first
_unkept_lock = threading.Lock()
_tasks: dict[asyncio.Task[Report], Import] = {}  # asyncio itself keeps no task alive


async def in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Run work for an import, so that other requests go on."""
    return await asyncio.get_running_loop().run_in_executor(_threads, work, *arguments)


async def at_the_end(work: Callable[..., T], *arguments: Any) -> T:
    """Run work that ends an import, even if the current task is cancelled meanwhile."""
    return await asyncio.shield(asyncio.get_running_loop().run_in_executor(_ends, work, *arguments))


def start(importing: Import, work: Coroutine[Any, Any, Report]) -> asyncio.Task[Report]:
    """Start the work of an import as a task of its own, and count the import when it ends."""
    task = asyncio.create_task(work)
    _tasks[task] = importing
    task.add_done_callback(_tasks.pop)
    task.add_done_callback(partial(_count, importing, time.monotonic()))
    return task


def release_memory() -> None:
    """Give the system back what ended imports needed: the allocator keeps it, in the heap of each thread."""
    with contextlib.suppress(AttributeError, OSError):  # glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def log_failure(importing: Import, task: asyncio.Task[Report]) -> None:
    """Log it if the service itself fails: no request waits for the task any more."""
    task.add_done_callback(partial(_log_failure, importing))


def fail(importing: Import, error: BaseException) -> None:
    """Fail an import, with a reason that its report can keep.  A cancel takes precedence over the end of the service.

    If a full disk does not let that be stored either, it is stored as soon as there is space.
    """
    reason: BaseException | None = error
    try:
        reason = _reason(importing, error)
    finally:
        try:
            importing.fail(reason)
        except psycopg.Error as failure:
            if disk_full(failure) is None:
                raise
            _fail_later(importing, reason)


def _fail_later(importing: Import, reason: BaseException | None) -> None:
    with _unkept_lock:
        _unkept.append((importing, reason))
        if len(_unkept) == 1:
            threading.Thread(target=_keep_ends, name="import ends", daemon=True).start()


def _keep_ends() -> None:
    """Store the ends of imports that could not be stored, one after the other, until all are."""
    while _unkept:
        time.sleep(FAIL_INTERVAL)
        with contextlib.suppress(psycopg.OperationalError):  # no space yet, or the database has not recovered from the lack of it
            while _unkept:
                importing, reason = _unkept[0]
                try:
                    importing.fail(reason)
                except psycopg.OperationalError:
                    raise
                except psycopg.Error as error:
                    log.warning("why import %s of %s failed is not kept: %s", importing.id, importing.company, type(error).__name__)
                with _unkept_lock:
                    _unkept.popleft()
                    if not _unkept:
                        return


def _reason(importing: Import, error: BaseException) -> BaseException:
    if isinstance(error, asyncio.CancelledError):
        error = stopped()
    if isinstance(error, ServiceError) and error.code == "aborted" and importing.id is not None:
        return cancelled() if importing.look_if_cancelled() else error
    if full := disk_full(error):
        return full
    if isinstance(error, ServiceError | psycopg.Error | ConnectionError):
        return error
    with contextlib.suppress(psycopg.Error):
        importing.begin()  # so that there is one to look for
    return ServiceError("internal", f"the service failed; see its log for import {importing.id}")


def _count(importing: Import, began: float, task: asyncio.Task[Report]) -> None:
    """Count and log an import that has ended."""
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    report = task.result() if error is None else None
    code = error.code if isinstance(error, ServiceError) else None
    state = report["state"] if report else "cancelled" if code == "cancelled" else "failed"
    metrics.imports.labels(state, str(importing.dry_run).lower()).inc()
    metrics.import_durations.observe(time.monotonic() - began)
    if report and not importing.dry_run:
        for counts in report["entities"].values():
            for outcome in OUTCOMES:
                metrics.import_records.labels(outcome).inc(counts[outcome])
    was_stopped = code == "aborted" or isinstance(error, asyncio.CancelledError)
    suffix = ", the service was stopped" if was_stopped else ""
    log.info("import %s of %s ended: %s%s", importing.id, importing.company, state, suffix)


def _log_failure(importing: Import, task: asyncio.Task[Report]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is None or isinstance(error, ServiceError | ConnectionError) or disk_full(error):  # the report has it
        return
    if isinstance(error, psycopg.Error) and error.sqlstate in SQLSTATES:
        return
    log.error("import %s of %s failed", importing.id, importing.company, exc_info=error)


async def stop_imports(grace: float) -> None:
    """Wait `grace` seconds for the imports of this event loop to end, then stop the others and wait for them."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    while mine := _of(loop):
        late = loop.time() - deadline
        if late > STOP_TIMEOUT:
            log.error("%d imports could not be stopped", len(mine))
            return
        if late >= 0:
            await asyncio.gather(*(asyncio.to_thread(_stop, each) for each in mine.values()))
        await asyncio.wait(mine, timeout=STOP_INTERVAL if late >= 0 else -late)


def _of(loop: asyncio.AbstractEventLoop) -> dict[asyncio.Task[Report], Import]:
    return {task: importing for task, importing in list(_tasks.items()) if task.get_loop() is loop}


def _stop(importing: Import) -> None:
    try:
        importing.stop()
    except psycopg.Error as error:
        log.warning("import %s of %s could not be stopped: %s", importing.id, importing.company, type(error).__name__)
