"""A place: one PostgreSQL server with the companies that live there, and every connection of this process to it.

A place owns its connections.  `start` opens them and `stop` closes them, and nobody else opens one for a company: a caller asks
`Database.place(company)` for the place, uses it for one request or one step of its work, and then asks again, for a company may
move.  A new kind of connection is made in `__init__`, opened and closed here, and given to the pulse if it has to be restored after
an outage.

Reads run as `bds_reader`, which may see the views of one company; imports as `bds_writer`, under row level security; keys and
hooks as `bds_service`.  A session names its company in a statement before the one that reads, never in the same one, where a view
may read the old setting first (app/database/pool/pools.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import LiteralString

import psycopg

from app.config import Config
from app.database.caller import settings
from app.database.catalog import MODEL
from app.database.pool.listening import RECONNECT, listen
from app.database.pool.pools import Pool
from app.database.pool.pulse import Pulse, ping
from app.database.pool.session import Session
from app.database.pool.writers import Writers
from app.database.servers import bell
from app.database.servers.directory import HOME
from app.database.servers.reads import Readers
from app.tasks import cancel_and_wait

FOLLOWERS = 3  # connections that read the change log for its followers
SERVICES = 4  # connections for accounts, hooks and maintenance
WORKERS = 4  # connections of the webhook worker
STATE_POLL = 5.0  # seconds between two looks at the model of a place

State = tuple[str, str, str]
# Hooks, deliveries and mappers are written without the company's turn, so bds_operation.depart does not wait for transactions that
# do.  What they write has to reach the target all the same, so the mover waits for them after the departure (Move._has_caught_up):
#
#     STAY, EMPTY                       transactions of the service that have found the company here, and may be about to write:
#                                       each holds STAY from before it looks, and EMPTY waits for all of them
#     bds_operation.writers_of_others   those that have written already, such as workers and sessions of psql: found by their
#                                       locks of these tables
#
# On a Citus cluster Citus moves the rows, and uses neither: there shards.hold, a trigger of every divided table, makes Citus wait
# for each transaction that has written, with the turn or without it.
STAY: LiteralString = "select pg_advisory_xact_lock_shared(hashtextextended('bds.place:' || %s, 0))"
EMPTY: LiteralString = "select pg_advisory_xact_lock(hashtextextended('bds.place:' || %s, 0))"
CONTEXT: LiteralString = "select bds.set_context(%s, %s), set_config('bds.caller', %s, true)"
# the name of the place, what migrations were applied to it, its model
STATE: LiteralString = f"""
    select s.place,
        (select md5(string_agg(m.name || m.checksum, ',' order by m.name)) from public.bds_migrations m),
        (select md5(m::text) from ({MODEL}) m)
    from bds.settings s
"""


def difference(name: str, state: State, home: State) -> str | None:
    """Why the database in a state cannot be the place of a name; None if it can."""
    if state[0] != name:
        return f"is another database, the place {state[0]!r}"
    if state[1] != home[1]:
        return "has another version: run bds migrate"
    return "has other entities than home: run bds sql with what registers them" if state[2] != home[2] else None


class Place:
    """One server.

    url: past a transaction pooler.  state: its name, migrations and model as it has them, None until they are known.  Only home
    has a pooler in front of it, and replicas; without home nothing works, without another place its companies alone do not.
    """

    def __init__(self, config: Config, name: str, url: str) -> None:
        self.name, self.url = name, url
        self.is_home = name == HOME
        self.state: State | None = None
        pooled = (self.is_home and config.database_url) or url
        self._listen_url = (self.is_home and config.listen_database_url) or url
        if not self.is_home:
            config = replace(config, pooler="none", read_database_url=None)
        pool = partial(self._pool, config, pooled)
        self.readers = Readers(config, pool("bds_reader", config.pool_size))
        self._services = pool("bds_service", SERVICES)
        self._workers = pool("bds_worker", WORKERS)  # opened at the first use
        # of the primary: a replica may lack what a notification is about; opened at the first use
        self._followers = pool("bds_reader", FOLLOWERS, "followers")
        self.writers = Writers(url)
        probe = self.readers.history.sample if self.readers.replicas else ping
        title = "the database" if self.is_home else f"the place {name}"
        self._pulse = Pulse(title, pooled, *self.pools(), probe=probe)
        self._model_changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def _pool(self, config: Config, url: str, role: LiteralString, size: int, name: str | None = None) -> Pool:
        label = (name or role) + ("" if self.is_home else f"@{self.name}")
        return Pool(config, url, role, size, name=label, is_required=self.is_home)

    async def start(self) -> None:
        """Connect.  Raises psycopg.Error if the server cannot be reached and is home."""
        await self._pulse.start(required=self.is_home)
        for replica in self.readers.replicas:
            await replica.start()
        if self._pulse.is_up:
            await self.readers.primary.open(wait=self.is_home)
            await self._services.open()
            with contextlib.suppress(*(() if self.is_home else (psycopg.Error,))):  # _watch looks again
                await self.look()
        self._tasks += [asyncio.create_task(bell.keep(self._listen_url)), asyncio.create_task(self._watch())]
        if not self.is_home:  # Database listens there, and calls note_change
            self._tasks.append(asyncio.create_task(self._listen()))

    def start_soon(self) -> asyncio.Task[None]:
        """Connect in the background: a server that does not answer keeps only its own companies waiting."""
        self._tasks.append(asyncio.create_task(self.start()))
        return self._tasks[-1]

    async def stop(self) -> None:
        """Close all connections."""
        await cancel_and_wait(*self._tasks)
        await self._pulse.stop()
        for replica in self.readers.replicas:
            await replica.stop()
        for pool in self.pools():
            await pool.close()
        await asyncio.to_thread(self.writers.close)

    @property
    def is_up(self) -> bool:
        """Whether the server answered the last check."""
        return self._pulse.is_up

    def problem(self, home: Place) -> str | None:
        """Why companies cannot be served from here; None if they can."""
        if self.is_home:
            return None
        if not self.is_up:
            return "does not answer"
        if self.state is None or home.state is None:
            return "is being looked at"
        return difference(self.name, self.state, home.state)

    async def look(self) -> None:
        """Read the state.  Raises psycopg.Error."""
        async with self.service() as connection:
            self.state = await (await connection.execute(STATE)).fetchone()

    def note_change(self) -> None:
        """The model has changed: read the state soon."""
        self._model_changed.set()

    async def _watch(self) -> None:
        """Read the state at each change of the model, and every STATE_POLL seconds."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STATE_POLL if self.state else RECONNECT):
                    await self._model_changed.wait()
            self._model_changed.clear()
            with contextlib.suppress(psycopg.Error):  # the pulse logs that it does not answer
                await self.look()

    async def _listen(self) -> None:
        async for _ in self.notifications("bds_catalog"):
            self.note_change()

    async def answers(self) -> bool:
        """Whether the server answers; returns within a second.  No replica is needed."""
        return await self._pulse.ask()

    def pools(self) -> tuple[Pool, ...]:
        return self.readers.primary, self._services, self._workers, self._followers

    def service(self) -> AbstractAsyncContextManager[Session]:
        """A connection of the service's role, bound to no company."""
        return self._services.use()

    @contextlib.asynccontextmanager
    async def registration(self, company: str) -> AsyncIterator[Session]:
        """A transaction of the service's role that has named `company`, for its hooks and mappers.

        Raises psycopg.Error BD002 if the company does not live here; it does not move away before the transaction has ended.
        """
        async with self._services.use() as connection, connection.transaction():
            await connection.execute(STAY, (company,))
            await connection.execute(CONTEXT, (company, *settings()))
            yield connection

    @contextlib.asynccontextmanager
    async def worker(self) -> AsyncIterator[Session]:
        """A connection of the webhook worker, which serves every company of the place."""
        await self._workers.open()
        async with self._workers.use() as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def follower(self, company: str) -> AsyncIterator[Session]:
        """A reader's connection to the primary, bound to `company`, for followers of the change log."""
        await self._followers.open()
        async with self._followers.session(company) as connection:
            yield connection

    def notifications(
        self, *channels: LiteralString, on_loss: Callable[[], None] = lambda: None
    ) -> AsyncGenerator[psycopg.Notify | None, None]:
        """Yield notifications on channels, forever; None after each connect.  on_loss: called whenever the connection is lost."""
        return listen(self._listen_url, *channels, on_loss=on_loss)
