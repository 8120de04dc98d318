"""The worker: matches changes with hooks as they are committed, and delivers what is due.

Everything that must survive is in the database (sql/60_webhooks); a worker that dies loses nothing, and any number of them
share the work.  Three tasks run side by side: one listens, one routes changes to hooks, one claims batches, sends them and records
what came of it.  Notifications are hints: whoever misses one finds the work at the next look.
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
from app.catalog import Catalog
from app.db import RECONNECT, Database
from app.errors import QueryError
from app.language.condition import Condition, compile_any
from app.tasks import end
from app.webhooks.send import Delivery, Outcome, Sender

log = logging.getLogger("bds.webhooks")

LOOK = 5.0  # seconds after which a worker looks for work that no notification told of
PAUSE = 0.02  # seconds between two looks at one log: what is committed meanwhile is matched together
BREATH = 0.01  # seconds between two claims where more is about to happen
CLAIM = 100  # deliveries claimed at once
YOUNG = 1.0  # seconds after which an attempt no longer counts as busy: a receiver that hangs keeps nobody waiting
GRACE = 5.0  # seconds that attempts under way have when the worker stops
FORGET = 600.0  # seconds between two looks for deliveries that are old enough to be forgotten


MADE = re.compile(rb'"timestamp" ?: ?"([^"]*)"\}?$')  # the last member of a delivery's body
STALE: LiteralString = """
    select h.company_id, h.id, h.entity, h.filter from bds.hooks h
    where h.filter is not null and not h.disabled and h.deleted_at is null and h.catalog_version is distinct from %s
    order by h.company_id, h.id
    limit 500
"""


def fit(catalog: Catalog, entity: str | None, filter: str) -> tuple[list[Condition], str | None]:
    """What a hook's filter is under the catalog; nothing, and why, if it fits no more."""
    if entity is not None and entity not in catalog:
        return [], f"there is no entity {entity}"
    try:
        return compile_any(catalog, entity, filter), None
    except QueryError as error:
        return [], f"filter: {error.message}"


class Worker:
    """Routes and delivers until it is cancelled."""

    def __init__(self, database: Database, sender: Sender) -> None:
        self._database = database
        self._config = database.config
        self._sender = sender
        self._behind: set[str] = set()  # companies that have changes to be matched
        self._changed = asyncio.Event()
        self._looked = 0.0  # when work was last looked for that nobody has told of
        self._wake = asyncio.Event()  # something may be due
        self._refit = asyncio.Event()  # the model may have changed
        database.on_notify("bds_catalog", lambda _: self._refit.set())
        self._under_way: dict[Delivery, tuple[asyncio.Task[None], float]] = {}  # and since when
        self._outcomes: list[tuple[Delivery, Outcome]] = []
        self._is_waiting = False  # for the database, as the log knows already

    async def run(self) -> None:
        """Work until cancelled; then let attempts end for a moment, and hand back those that do not."""
        works = (self._listen, self._fit, self._route, self._deliver, self._renew, self._forget)
        tasks = [asyncio.create_task(self._again(each)) for each in works]
        try:
            await asyncio.gather(*tasks)
        finally:
            await asyncio.shield(self._stop(tasks))

    async def _stop(self, tasks: list[asyncio.Task[None]]) -> None:
        await end(*tasks)
        await self._hand_back()

    async def _again(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work over and over; a database that is away is waited for."""
        while True:
            try:
                await work()
            except (psycopg.Error, OSError) as error:
                if not self._is_waiting:  # six tasks would say so twice a second
                    log.warning("the worker waits for the database: %s", type(error).__name__)
                self._is_waiting = True
                await asyncio.sleep(RECONNECT)
            except Exception:
                log.exception("the worker failed and goes on")
                await asyncio.sleep(RECONNECT)

    # Listening

    async def _listen(self) -> None:
        async for notify in self._database.notifications("bds_changes", "bds_hooks"):
            if notify is None:
                while not await self._look():
                    await asyncio.sleep(RECONNECT)
            else:
                self._behind.add(notify.payload)
                self._changed.set()
                if notify.channel == "bds_hooks":
                    self._wake.set()

    async def _look(self) -> bool:
        """Find what was missed while nobody listened.  False if the database does not answer."""
        try:
            behind = await self._call("select * from bds.companies_behind()")
        except (psycopg.Error, OSError):
            return False
        self._looked = time.monotonic()
        self._behind |= {row[0] for row in behind}
        self._changed.set()
        self._wake.set()
        return True

    # Routing

    async def _route(self) -> None:
        await _happens(self._changed, LOOK)
        if time.monotonic() - self._looked > LOOK:  # however much is said, something may have been missed
            await self._look()
        self._changed.clear()
        companies, self._behind = self._behind, set()
        for company in companies:
            try:
                await self._route_one(company)
            except BaseException:
                self._behind |= companies  # nothing to do is quickly seen
                raise
        if companies:  # whoever has matched their changes: what is due is everybody's
            self._wake.set()
        await asyncio.sleep(PAUSE)

    async def _route_one(self, company: str) -> None:
        try:
            [(behind,)] = await self._call(
                "select behind from bds.route_changes(%s, make_interval(secs => %s))",
                (company, self._config.webhook_window),
            )
        except psycopg.OperationalError:
            raise
        except psycopg.Error as error:  # a filter of another model, perhaps: it concerns this company alone
            log.warning("the hooks of %s cannot be matched: %s", company, error.diag.message_primary)
            self._refit.set()
            return
        if behind:
            self._behind.add(company)
            self._changed.set()

    async def _fit(self) -> None:
        """Disable hooks of what the model no longer has; compile the filters anew that were compiled for another model."""
        self._refit.clear()
        catalog = self._database.catalog
        for company, hook, problem in await self._call("select company_id, id, problem from bds.unfit_hooks order by 1, 2"):
            await self._call("select bds.refit_hook(%s, %s, null, %s, %s)", (company, hook, catalog.version, problem))
        while rows := await self._call(STALE, (catalog.version,)):
            for company, hook, entity, filter in rows:
                compiled, problem = fit(catalog, entity, filter)
                await self._call(
                    "select bds.refit_hook(%s, %s, %s, %s, %s)",
                    (company, hook, json.dumps([each.members() for each in compiled]), catalog.version, problem),
                )
            await self._look()  # for changes that could not be matched before
        await _happens(self._refit, FORGET)

    # Delivering

    async def _deliver(self) -> None:
        if self._room() < CLAIM * 3 // 4:
            await asyncio.sleep(BREATH)  # many end soon: they are recorded together
        self._wake.clear()
        await self._record()
        room = self._room()
        if not room:
            await _happens(self._wake, YOUNG / 4)
        elif await self._claim(room) < room:
            await _happens(self._wake, min(LOOK, max(BREATH, await self._due_in())))

    def _room(self) -> int:
        now = time.monotonic()
        young = sum(now - since < YOUNG for _, since in self._under_way.values())
        return max(0, min(CLAIM - young, self._config.webhook_concurrency - len(self._under_way)))

    async def _claim(self, most: int) -> int:
        rows = await self._call(
            "select company, hook, delivery, lease_id, url, secret, convert_to(body, 'UTF8')"
            " from bds.claim_deliveries(%s, make_interval(secs => %s))",
            (most, self._config.webhook_lease),
        )
        for row in rows:
            delivery = Delivery(*row)
            self._under_way[delivery] = (asyncio.create_task(self._attempt(delivery)), time.monotonic())
        return len(rows)

    async def _attempt(self, delivery: Delivery) -> None:
        try:
            outcome = await self._sender.send(delivery)
            self._outcomes.append((delivery, outcome))
            count(delivery, outcome)
        finally:
            del self._under_way[delivery]
            self._wake.set()

    async def _record(self) -> None:
        outcomes, self._outcomes = self._outcomes, []
        if not outcomes:
            return
        try:
            await self._call(
                "select from bds.record_attempts(%s, %s, make_interval(secs => %s))",
                (
                    json.dumps([delivery.key() | outcome.members() for delivery, outcome in outcomes]),
                    list(self._config.webhook_retry),
                    self._config.webhook_penalty,
                ),
            )
        except BaseException:
            self._outcomes = outcomes + self._outcomes
            raise

    async def _due_in(self) -> float:
        rows = await self._call("select bds.next_due()")
        return LOOK if rows[0][0] is None else float(rows[0][0])

    # Keeping and giving back

    async def _renew(self) -> None:
        await asyncio.sleep(self._config.webhook_lease / 3)
        mine = list(self._under_way)
        if not mine:
            return
        rows = await self._call(
            "select bds.renew_leases(%s, make_interval(secs => %s))",
            (json.dumps([delivery.key() for delivery in mine]), self._config.webhook_lease),
        )
        kept = {row[0] for row in rows}
        for delivery in mine:
            if delivery.lease not in kept and delivery in self._under_way:
                self._under_way[delivery][0].cancel()  # another worker has it

    async def _hand_back(self) -> None:
        tasks = [task for task, _ in self._under_way.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=GRACE)
        left = list(self._under_way)
        for task, _ in list(self._under_way.values()):
            task.cancel()
        with contextlib.suppress(psycopg.Error, OSError):
            async with asyncio.timeout(GRACE):
                await self._record()
                await self._call("select bds.release_leases(%s)", (json.dumps([delivery.key() for delivery in left]),))

    async def _forget(self) -> None:
        rows = await self._call("select bds.forget_deliveries(make_interval(secs => %s))", (self._config.webhook_history * 86400,))
        if not rows[0][0]:
            await asyncio.sleep(FORGET)

    async def _call(self, statement: Any, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        async with self._database.worker() as connection:
            rows = await (await connection.execute(statement, parameters)).fetchall()
        self._is_waiting = False
        return rows


def count(delivery: Delivery, outcome: Outcome) -> None:
    """Count an attempt."""
    metrics.attempt_durations.observe(outcome.duration)
    status = outcome.status or 0
    kind = "delivered" if 200 <= status < 300 else "refused" if 400 <= status < 500 else "failed"
    made = MADE.search(delivery.body)
    if kind == "delivered" and made:
        lag = datetime.now(UTC) - datetime.fromisoformat(made[1].decode())
        metrics.delivery_lags.observe(max(0.0, lag.total_seconds()))
    metrics.attempts.labels(kind).inc()


async def _happens(event: asyncio.Event, within: float) -> bool:
    """Whether the event is set before so many seconds are over."""
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _raise_file_limit() -> None:
    """Let the process have as many connections as it may: each attempt under way holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 1 << 16)) if hard > 0 else 1 << 16, hard))


@contextlib.asynccontextmanager
async def working(database: Database) -> AsyncIterator[None]:
    """A worker, for as long as the block lasts."""
    config = database.config
    _raise_file_limit()
    async with Sender.open(config.webhook_timeout, config.webhook_allow_private) as sender:
        task = asyncio.create_task(Worker(database, sender).run())
        try:
            yield
        finally:
            task.cancel()  # once: it ends its own tasks, and hands back what they had
            await asyncio.gather(task, return_exceptions=True)
