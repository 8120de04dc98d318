"""The bell: NOTIFY bds_changes after each commit, without making the commits wait for one another.

PostgreSQL serialises all commits that notify.  So writers ring only if nobody else does: one process of the service, the keeper,
relays the changes of all companies every RELAY_INTERVAL seconds while there are any, and writers are silent meanwhile.  The
sequence bds.bell tells them, whatever their snapshot: it is the time, in milliseconds, until which the keeper is awake.  A keeper
that dies or hangs stops prolonging it, and writers ring again after LEASE.

A writer looks at the bell before it commits, so a silent one may commit when the keeper has gone to sleep.  Every writer holds a
turn from before its look until its changes can be seen: the keeper goes on reading until the holders of that moment have ended.
The bell is 1 meanwhile: a keeper that comes after one that was killed then, or while it was awake, notifies of every company.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, LiteralString

import psycopg

from app.database.pool.pools import parameters

log = logging.getLogger("bds.db")

RELAY_INTERVAL = 0.015  # seconds between two reads of an awake keeper
QUIET = 4  # reads without a change after which it goes to sleep
LEASE = 250  # milliseconds
TRY = 0.25  # seconds between two attempts to become the keeper: the next one relays what a killed one has not

# The snapshot is taken before the bell is set: what is visible in it, and not relayed yet, has rung for itself.
WAKE: LiteralString = """
    select pg_current_snapshot()::text, setval('bds.bell', (extract(epoch from clock_timestamp()) * 1000)::bigint + %s)
"""
REST: LiteralString = "select setval('bds.bell', least(b.last_value, 1)) from bds.bell b"  # writers ring, silent ones may be open
SLEEP: LiteralString = "select setval('bds.bell', 0)"  # none is open
RELAY: LiteralString = """
    select pg_current_snapshot()::text, (
        select count(pg_notify('bds_changes', c.company_id))
        from bds.clocks c
        where not pg_visible_in_snapshot(c.transaction_id, %s::pg_snapshot)
    ), case when %s > 0 then setval('bds.bell', (extract(epoch from clock_timestamp()) * 1000)::bigint + %s) end
"""
# What a keeper that did not fall asleep may not have relayed: a silent transaction may have committed long after its last change.
RECOVER: LiteralString = """
    select count(pg_notify('bds_changes', c.company_id)) from bds.bell b cross join bds.clocks c where b.last_value > 0
"""
HOLDERS: LiteralString = """
    select distinct l.virtualtransaction
    from pg_locks l join pg_database d on d.oid = l.database
    where d.datname = current_database() and l.relation = 'bds.clocks'::regclass and l.mode in ('RowShareLock', 'RowExclusiveLock')
"""


async def keep(url: str) -> None:
    """Keep the bell, or wait to become its keeper, until cancelled.  The connection string leads past a transaction pooler."""
    is_failing = False
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(url, autocommit=True, **parameters(url, "bds bell")) as connection:
                await connection.execute("set role bds_worker")
                while not await _value(connection, "select pg_try_advisory_lock(hashtextextended('bds.bell', 0))"):
                    is_failing = False
                    await asyncio.sleep(TRY)
                is_failing = False
                await Keeper(connection).run()
        except (psycopg.Error, OSError) as error:
            if not is_failing:
                log.warning("no keeper of the bell: %s", type(error).__name__)
            is_failing = True
        await asyncio.sleep(TRY)


class Keeper:
    """Relays changes over a connection that holds the keeper's lock."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        self._seen = ""  # a snapshot: whatever is visible in it has been relayed, or has rung

    async def run(self) -> None:
        """Relay until cancelled."""
        await self._connection.execute("listen bds_changes")
        await _value(self._connection, RECOVER)
        self._seen = await _value(self._connection, WAKE, (LEASE,))
        try:
            while True:
                await self._relay_while_busy()
                await self._sleep()
        finally:
            with contextlib.suppress(psycopg.Error, OSError):
                await self._connection.execute(REST)

    async def _relay_while_busy(self) -> None:
        quiet = 0
        while quiet < QUIET:
            async for _ in self._connection.notifies(timeout=RELAY_INTERVAL):
                pass  # its own, or of writers that ring although it is awake
            quiet = 0 if await self._relay(LEASE) else quiet + 1

    async def _sleep(self) -> None:
        """Return awake, as soon as a writer rings."""
        await self._connection.execute(REST)
        silent: set[str] | None = None  # writers that may have looked while the keeper was awake
        while True:
            holders = {row[0] for row in await (await self._connection.execute(HOLDERS)).fetchall()}
            silent = holders if silent is None else silent & holders
            await self._relay()  # after the look at the holders: the changes of those that have ended can be seen
            if not silent:
                await self._connection.execute(SLEEP)
                await self._rung(None)
                self._seen = await _value(self._connection, WAKE, (LEASE,))
                return
            if await self._rung(RELAY_INTERVAL):
                await self._relay(LEASE)
                return

    async def _relay(self, lease: int = 0) -> bool:
        """Notify of every company that has changed since the last call; whether there was one.  Prolongs the time awake."""
        row = await (await self._connection.execute(RELAY, (self._seen, lease, lease))).fetchone()
        assert row is not None
        self._seen = row[0]
        return bool(row[1])

    async def _rung(self, timeout: float | None) -> bool:
        """Wait for a writer's notification; whether there was one."""
        async for notify in self._connection.notifies(timeout=timeout):
            if notify.pid != self._connection.info.backend_pid:
                return True
        return False


async def _value(connection: psycopg.AsyncConnection[Any], statement: LiteralString, arguments: tuple[Any, ...] = ()) -> Any:
    row = await (await connection.execute(statement, arguments)).fetchone()
    assert row is not None
    return row[0]
