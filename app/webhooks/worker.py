"""The worker: matches committed changes with hooks, and sends the batches that are due.

All state is in the database: a worker that dies loses nothing, and any number of workers share the work.  Three tasks do most of
it: one listens, one routes changes to hooks in a task for each company, one claims batches, sends them and records the outcomes.
Notifications are hints: a worker that misses one finds the work within UNNOTIFIED_POLL seconds.  While no company has an enabled
hook, the worker listens for hooks alone, and sleeps whatever is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg

from app import metrics
from app.config import DAY, seconds_kept
from app.database.catalog import Catalog
from app.database.database import Database
from app.database.pool.listening import RECONNECT
from app.database.servers.place import WORKERS, Place
from app.logs import describe_error
from app.tasks import cancel_and_wait
from app.webhooks.hook import fit
from app.webhooks.send import Delivery, Outcome, Sender

log = logging.getLogger("bds.webhooks")

UNNOTIFIED_POLL = 5.0  # seconds after which a worker looks for work without a notification
ROUTING_PAUSE = 0.02  # seconds between two starts of routing: changes committed meanwhile are matched together
LONG_PAUSE = 0.25  # the same for hooks that collect changes for a longer window
BREATH = 0.01  # seconds between two claims while attempts are ending
CLAIM = 100  # deliveries claimed at once
YOUNG = 1.0  # seconds for which an attempt counts against CLAIM: a receiver that hangs must not delay others
GRACE = 5.0  # seconds that running attempts have when the worker stops
FORGET = 600.0  # seconds between two looks for deliveries older than the history

MADE = re.compile(rb'"timestamp" ?: ?"([^"]*)"\}?$')  # the last member of a delivery's body
HOOKED: LiteralString = """
    select distinct h.company_id from bds.hooks h join bds.residents r on r.company_id = h.company_id
    where not h.disabled and h.deleted_at is null
"""
STALE: LiteralString = """
    select h.company_id, h.id, h.updated_at, h.entity, h.filter
    from bds.hooks h join bds.residents r on r.company_id = h.company_id
    where h.filter is not null and not h.disabled and h.deleted_at is null and h.catalog_version is distinct from %s
    order by h.company_id, h.id
    limit 500
"""


class Worker:
    """Routes changes and delivers batches of one place until it is cancelled."""

    def __init__(self, database: Database, place: Place, sender: Sender) -> None:
        self._database, self._place = database, place
        self._config = database.config
        self._sender = sender
        self._hooked: set[str] = set()  # companies with enabled hooks, as of the last look
        self._behind: set[str] = set()  # those with changes to match
        self._routing: dict[str, asyncio.Task[None]] = {}  # a task for each company that is being matched
        # taken by tasks that match or wait for matching: one connection is left for deliveries
        self._routes = asyncio.Semaphore(WORKERS - 1)
        self._changed = asyncio.Event()  # a company is behind, or a routing task has ended
        self._looked = 0.0  # time of the last look without a notification
        self._looking = asyncio.Lock()  # one after the other: an earlier look must not replace what a later one has found
        self._pause = min(max(ROUTING_PAUSE, self._config.webhook_window / 10), LONG_PAUSE)
        self._wake = asyncio.Event()  # a batch may be due
        self._refit = asyncio.Event()  # the model or a hook may have changed
        self._compared: Catalog | None = None  # the catalog with which all hooks were last compared
        database.on_notify("bds_catalog", lambda _: self._refit.set())
        self._attempts: dict[Delivery, tuple[asyncio.Task[None], float]] = {}  # the running ones, with their start
        self._outcomes: list[tuple[Delivery, Outcome]] = []
        self._failed = asyncio.Event()  # an attempt has failed
        self._is_waiting = False  # for the database; logged once

    async def run(self) -> None:
        """Work until cancelled; then wait GRACE seconds for running attempts, and release the leases of the others."""
        works = (self._listen, self._fit, self._route, self._deliver, self._renew, self._disable, self._forget)
        tasks = [asyncio.create_task(self._again(each)) for each in works]
        try:
            await asyncio.gather(*tasks)
        finally:
            await asyncio.shield(self._stop(tasks))

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        await cancel_and_wait(*tasks, *self._routing.values())
        await self._hand_back()

    async def _again(self, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat the work forever; wait while the database is down."""
        while True:
            if not await self._try(work):
                await asyncio.sleep(RECONNECT)

    async def _try(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do the work; whether it succeeded."""
        try:
            await work()
        except (psycopg.Error, OSError) as error:
            if not self._is_waiting:  # else each task would log it twice a second
                log.warning("the worker is waiting for the database: %s", type(error).__name__)
            self._is_waiting = True
        except Exception:
            log.exception("the worker failed and continues")
        else:
            return True
        return False

    # Listening

    async def _listen(self) -> None:
        """Listen until the first hook is enabled, or the last one no longer is: then to other channels."""
        is_hooked = bool(self._hooked)
        channels: tuple[LiteralString, ...] = ("bds_hooks", "bds_changes") if is_hooked else ("bds_hooks",)
        async with contextlib.aclosing(self._place.notifications(*channels)) as notifications:
            async for notify in notifications:
                await self._hear(notify)
                if bool(self._hooked) != is_hooked:
                    return

    async def _hear(self, notify: psycopg.Notify | None) -> None:
        """Wake the tasks that a notification, or None for those that were missed, may have work for."""
        if notify is not None and notify.channel == "bds_changes":
            if notify.payload in self._hooked:
                self._behind.add(notify.payload)
                self._changed.set()
            return
        while not await self._look():
            await asyncio.sleep(RECONNECT)
        if notify is not None:
            self._refit.set()

    async def _look(self) -> bool:
        """Find hooks, and the work of missed notifications.  Returns False if the database does not answer."""
        async with self._looking:
            try:
                hooked = await self._call(HOOKED)
                behind = await self._call("select * from bds_service.companies_behind()")
            except (psycopg.Error, OSError):
                return False
            self._hooked = {row[0] for row in hooked}
            self._behind |= {row[0] for row in behind}
        self._looked = time.monotonic()
        self._changed.set()
        self._wake.set()
        return True

    # Routing

    async def _route(self) -> None:
        """Start a task for each company that is behind and has none."""
        await _wait_for(self._changed, UNNOTIFIED_POLL)
        if time.monotonic() - self._looked > UNNOTIFIED_POLL:  # even with many notifications, one may have been missed
            await self._look()
        self._changed.clear()
        self._wake.set()  # a task that has ended may have made deliveries due, even if another worker did the matching
        for company in self._behind - self._routing.keys():
            self._routing[company] = asyncio.create_task(self._route_one(company))
        await asyncio.sleep(self._pause)

    async def _route_one(self, company: str) -> None:
        """Match the company's changes once; while the database is down, only after a pause."""
        try:
            async with self._routes:
                self._behind.discard(company)  # a notification from now on starts another task
                succeeded = await self._try(lambda: self._match(company))
            if not succeeded:
                self._behind.add(company)
                await asyncio.sleep(RECONNECT)
        finally:
            del self._routing[company]
            self._changed.set()

    async def _match(self, company: str) -> None:
        try:
            [(routed, behind)] = await self._call(
                "select * from bds_service.route_changes(%s, make_interval(secs => %s))",
                (company, self._config.webhook_window),
            )
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:  # perhaps a filter compiled for another model; other companies are not affected
            log.warning("cannot match the hooks of %s: %s", company, describe_error(error))
            self._refit.set()
            return
        if routed is None:
            self._refit.set()  # a filter must be compiled first; then the worker looks for changes again
        elif behind:
            self._behind.add(company)

    async def _fit(self) -> None:
        """Disable hooks that do not fit the model; compile filters that are new or were compiled for another model."""
        self._refit.clear()
        catalog = self._database.catalog
        if catalog is not self._compared:  # 120 ms for 2,000 hooks: after each reload, not for each new hook
            for *hook, problem in await self._call("select company_id, id, updated_at, problem from bds.unfit_hooks order by 1, 2"):
                await self._refit_hook(*hook, None, catalog.version, problem)
            self._compared = catalog
        while rows := await self._call(STALE, (catalog.version,)):
            for *hook, entity, filter in rows:
                compiled, problem = fit(catalog, entity, filter)
                if problem and await self._is_outdated(catalog):
                    return self._refit.set()
                filters = json.dumps([each.members() for each in compiled])
                await self._refit_hook(*hook, filters, catalog.version, problem)
            await self._look()  # changes that could not be matched before
        await _wait_for(self._refit, FORGET)

    async def _is_outdated(self, catalog: Catalog) -> bool:
        """Whether the model has changed; a notification of a hook may arrive before that of the model."""
        await self._database.reload()
        return self._database.catalog.version != catalog.version

    async def _refit_hook(self, *hook: Any) -> None:
        async with self._routes:  # it waits while the company's hooks are being matched
            await self._call("select bds_service.refit_hook(%s, %s, %s, %s, %s, %s)", hook)

    # Delivering

    async def _deliver(self) -> None:
        if self._free_slots() < CLAIM * 3 // 4:
            await asyncio.sleep(BREATH)  # attempts that end soon are recorded together
        self._wake.clear()
        await self._record()
        room = self._free_slots()
        if not room:
            await _wait_for(self._wake, YOUNG / 4)
        elif await self._claim(room) < room:
            await _wait_for(self._wake, min(UNNOTIFIED_POLL, max(BREATH, await self._due_in())))

    def _free_slots(self) -> int:
        now = time.monotonic()
        young = sum(now - started < YOUNG for _, started in self._attempts.values())
        return max(0, min(CLAIM - young, self._config.webhook_concurrency - len(self._attempts)))

    async def _claim(self, most: int) -> int:
        rows = await self._call(
            "select company, hook, delivery, lease_id, url, secrets, convert_to(body, 'UTF8')"
            " from bds_service.claim_deliveries(%s, make_interval(secs => %s))",
            (most, self._config.webhook_lease),
        )
        for company, hook, id, lease, url, secrets, body in rows:
            delivery = Delivery(company, hook, id, lease, url, tuple(secrets), body)
            self._attempts[delivery] = (asyncio.create_task(self._attempt(delivery)), time.monotonic())
        return len(rows)

    async def _attempt(self, delivery: Delivery) -> None:
        try:
            outcome = await self._sender.send(delivery)
            self._outcomes.append((delivery, outcome))
            count(delivery, outcome)
        finally:
            del self._attempts[delivery]
            self._wake.set()

    async def _record(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        if not outcomes:
            return
        try:
            await self._call(
                "select from bds_service.record_attempts(%s, %s, make_interval(secs => %s))",
                (
                    json.dumps([delivery.key() | outcome.members() for delivery, outcome in outcomes]),
                    list(self._config.webhook_retry),
                    self._config.webhook_penalty,
                ),
            )
        except BaseException:
            self._outcomes = outcomes + self._outcomes
            raise
        if not all(200 <= (outcome.status or 0) < 300 for _, outcome in outcomes):
            self._failed.set()

    async def _disable(self) -> None:
        """Disable hooks that have only failed for too long."""
        self._failed.clear()
        seconds = self._config.webhook_disable_after * DAY
        while seconds:
            [(hook,)] = await self._call("select bds_service.disable_failing(make_interval(secs => %s))", (seconds,))
            if hook is None:
                break
            log.warning("the hook %s has only failed for too long and is disabled", hook)
        await _wait_for(self._failed, FORGET)

    async def _due_in(self) -> float:
        rows = await self._call("select bds_service.next_due()")
        return UNNOTIFIED_POLL if rows[0][0] is None else float(rows[0][0])

    # Leases

    async def _renew(self) -> None:
        await asyncio.sleep(self._config.webhook_lease / 3)
        mine = list(self._attempts)
        if not mine:
            return
        rows = await self._call(
            "select bds_service.renew_leases(%s, make_interval(secs => %s))",
            (json.dumps([delivery.key() for delivery in mine]), self._config.webhook_lease),
        )
        kept = {row[0] for row in rows}
        for delivery in mine:
            if delivery.lease not in kept and delivery in self._attempts:
                self._attempts[delivery][0].cancel()  # another worker has the lease

    async def _hand_back(self) -> None:
        tasks = [task for task, _ in self._attempts.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
        left = list(self._attempts)
        for task, _ in list(self._attempts.values()):
            task.cancel()
        with contextlib.suppress(psycopg.Error, OSError):
            async with asyncio.timeout(GRACE):
                await self._record()
                await self._call("select bds_service.release_leases(%s)", (json.dumps([delivery.key() for delivery in left]),))

    async def _forget(self) -> None:
        kept = seconds_kept(self._config.webhook_retention)
        rows = await self._call("select bds_service.forget_deliveries(make_interval(secs => %s))", (kept,))
        if not rows[0][0]:
            await asyncio.sleep(FORGET)

    async def _call(self, statement: Any, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        async with self._place.worker() as connection:
            rows = await (await connection.execute(statement, parameters)).fetchall()
        self._is_waiting = False
        return rows


def count(delivery: Delivery, outcome: Outcome) -> None:
    """Count an attempt in the metrics."""
    metrics.attempt_durations.observe(outcome.duration)
    status = outcome.status or 0
    kind = "delivered" if 200 <= status < 300 else "refused" if 400 <= status < 500 else "failed"
    made = MADE.search(delivery.body)
    if kind == "delivered" and made:
        lag = datetime.now(UTC) - datetime.fromisoformat(made[1].decode())
        metrics.delivery_lags.observe(max(0.0, lag.total_seconds()))
    metrics.attempts.labels(kind).inc()


async def _wait_for(event: asyncio.Event, within: float) -> bool:
    """Wait for the event; whether it was set within so many seconds."""
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _raise_file_limit() -> None:
    """Raise the limit of open files to its maximum: each running attempt holds a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 1 << 16)) if hard > 0 else 1 << 16, hard))


@contextlib.asynccontextmanager
async def working(database: Database) -> AsyncIterator[None]:
    """Run a worker during the block."""
    config = database.config
    _raise_file_limit()
    async with Sender.open(config.webhook_timeout, config.webhook_allow_private) as sender:
        task = asyncio.create_task(database.at_each_place(lambda place: Worker(database, place, sender).run()))
        try:
            yield
        finally:
            task.cancel()  # once: the worker then ends its tasks and releases its leases
            await asyncio.gather(task, return_exceptions=True)
