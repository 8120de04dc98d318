"""The tail of a company's change log: its newest changes, read once for all followers in the process.

A tail reads new changes with a boolean column for each filter in use, and keeps the newest records.  A follower is only a position:
it takes the tail's records after its position, and reads records that the tail no longer has from the log.  So a slow follower
neither delays other followers nor makes the tail grow.

A tail reads on when its fastest follower has taken everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import psycopg

from app.changes.page import PAGE, Record, condition, fetch, tail_statement
from app.database.database import Database
from app.database.pool.listening import RECONNECT
from app.database.pool.session import Session
from app.errors import QueryError, ServiceError
from app.query.check.tree import Expression
from app.query.sql.parameters import Statement
from app.types.event_ids import prefix

log = logging.getLogger("bds.changes")

UNNOTIFIED_POLL = 10.0  # seconds after which a tail reads the log without a notification
REFRESH = 3600.0  # seconds for which a statement keeps its bound by month
KEEP = 2 * PAGE  # records that a tail keeps for slower followers
FILTERS = 64 << 10  # characters of the different filters of a company's followers


class Follower(Protocol):
    """A reader of a company's changes.  position: the last change that it has taken."""

    company: str
    filter: str
    position: int

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of its request, with the credentials."""

    def end(self) -> None:
        """End the stream; its client has to connect again."""


class Events(NamedTuple):
    """Changes as server-sent events.  through: all changes up to this id are included; sent: the id of the last one in the data."""

    through: int
    sent: int
    changes: int = 0
    data: bytes = b""


def encode(records: list[Record], through: int, generation: int) -> Events:
    """Records as events."""
    if not records:
        return Events(through, 0)
    before = prefix(generation).encode()
    data = b"".join(b"id: %b%d\ndata: %b\n\n" % (before, record.id, record.text) for record in records)
    return Events(through, records[-1].id, len(records), data)


@dataclass(slots=True)
class Batch:
    """Records that were read together, with ids after `after` and through `through`.  filters: the index of each in `matches`."""

    after: int
    through: int
    records: list[Record]
    filters: Mapping[str, int]
    generation: int
    _encoded: dict[str, Events] = field(default_factory=dict)

    def events(self, after: int, filter: str) -> Events:
        """The records after an id that satisfy the filter.  Those of a whole batch are encoded once, for all followers."""
        column = self.filters[filter] if filter else None
        if after <= self.after and filter in self._encoded:
            return self._encoded[filter]
        records = [each for each in self.records if each.id > after and (column is None or each.matches[column])]
        events = encode(records, self.through, self.generation)
        if after <= self.after:
            self._encoded[filter] = events
        return events


class Broken(Exception):
    """The log does not continue at the tail's position.

    The company was deleted or restored, a month of the log is gone, or the database lost commits: its generation is another one.
    """


class Tail:
    """The newest changes of a company in a generation, through `position`."""

    def __init__(self, database: Database, company: str, position: int, generation: int) -> None:
        self.position, self.generation = position, generation
        self.followers: set[Follower] = set()
        self.is_over = False
        self._database, self._company = database, company
        self._batches: deque[Batch] = deque()
        self._filters: Counter[str] = Counter()  # of the followers
        self._statement: tuple[Statement, dict[str, int], float] | None = None  # its filters, and until when it is used
        self._woken, self._wanted, self._news = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Let the tail look for changes."""
        self._woken.set()

    def add(self, follower: Follower) -> None:
        """Add a follower.  Raises ServiceError(busy) if the filters would become too many."""
        if follower.filter and not self._filters[follower.filter]:
            if sum(map(len, self._filters)) + len(follower.filter) > FILTERS:
                raise ServiceError("busy", "the company's followers use too many different filters", headers={"Retry-After": "60"})
            self._statement = None
        if follower.filter:
            self._filters[follower.filter] += 1
        self.followers.add(follower)

    def remove(self, follower: Follower) -> None:
        """Remove a follower."""
        self.followers.discard(follower)
        if follower.filter:
            self._filters[follower.filter] -= 1
            if not self._filters[follower.filter]:
                del self._filters[follower.filter]
                self._statement = None

    def events(self, after: int, filter: str) -> Events | None:
        """The next events after an id, without data if there are none; None if they have to be read from the log."""
        if after >= self.position:
            return Events(after, 0)
        for batch in reversed(self._batches):
            if batch.after <= after:
                return batch.events(after, filter) if not filter or filter in batch.filters else None
        return None

    async def wait(self, after: int, until: float) -> None:
        """Wait for changes after an id, until a time of the event loop's clock."""
        self._wanted.set()
        if self.position <= after:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._news.wait()

    def forget(self) -> None:
        """Drop the batches that all followers have taken."""
        lowest = min((each.position for each in self.followers), default=self.position)
        while self._batches and self._batches[0].through <= lowest:
            self._batches.popleft()

    async def _run(self) -> None:
        is_failing = False
        while True:
            try:
                self._woken.clear()
                while await self._read():
                    pass
                is_failing = False
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(UNNOTIFIED_POLL):
                        await self._woken.wait()
            except Broken:
                self.is_over = True
                for follower in list(self.followers):
                    follower.end()
                return
            except (psycopg.Error, OSError, ServiceError) as error:
                if not is_failing:
                    log.warning("followers wait for the database: %s", type(error).__name__)
                is_failing = True
                self._statement = None
                await asyncio.sleep(RECONNECT)
            except Exception:
                log.exception("reading changes for followers failed and continues")
                self._statement = None
                await asyncio.sleep(RECONNECT)

    async def _read(self) -> bool:
        """Read the next changes; whether there may be more.  Raises Broken."""
        await self._wanted.wait()
        async with self._database.follower(self._company) as connection:
            statement, filters = await self._prepared(connection)
            page = await fetch(connection, statement, self.position)
        if page.generation != self.generation:
            raise Broken
        if not self.position + len(page.records) == page.through == min(page.last, self.position + PAGE):
            raise Broken  # ids have no gaps
        if not page.records:
            return False
        self._batches.append(Batch(self.position, page.through, page.records, filters, self.generation))
        self.position = page.through
        while sum(len(each.records) for each in self._batches) > KEEP:
            self._batches.popleft()
        self._wanted.clear()
        self._news.set()
        self._news = asyncio.Event()
        return len(page.records) == PAGE

    async def _prepared(self, connection: Session) -> tuple[Statement, dict[str, int]]:
        now = asyncio.get_running_loop().time()
        if self._statement is None or self._statement[2] < now:
            catalog, conditions = self._database.catalog, self._conditions()
            statement = await tail_statement(connection, catalog, self._company, self.position, list(conditions.values()))
            self._statement = statement, {filter: column for column, filter in enumerate(conditions)}, now + REFRESH
        return self._statement[:2]

    def _conditions(self) -> dict[str, Expression]:
        """The conditions of the filters.  Ends the followers with a filter that does not fit the model any more."""
        conditions = {}
        for filter in self._filters:
            try:
                found = condition(self._database.catalog, filter)
            except QueryError:  # which a client gets when it connects again
                for follower in self.followers:
                    if follower.filter == filter:
                        follower.end()
            else:
                if found:
                    conditions[filter] = found
        return conditions
