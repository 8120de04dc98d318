"""Replicates a company's rows from one place to another with PostgreSQL's logical replication.

A publication and a slot at the source, a subscription at the target.  All three have one name; each step can be repeated.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from app.errors import ServiceError

POLL = 0.01  # seconds between two looks in the last moment
WORKER_EXIT = 0.2  # seconds for a worker to end by itself

READY: LiteralString = """
    select coalesce(bool_and(r.srsubstate = 'r'), false), coalesce(max(s.apply_error_count + s.sync_error_count), 0),
        coalesce(jsonb_object_agg(
            r.srrelid::regclass::text, case when r.srsubstate in ('i', 'd') then coalesce(p.tuples_processed, 0) end), '{}')
    from pg_subscription u join pg_subscription_rel r on r.srsubid = u.oid left join pg_stat_subscription_stats s on s.subid = u.oid
    left join pg_stat_progress_copy p on p.datname = current_database() and p.relid = r.srrelid
    where u.subname = %s and u.subdbid = (select d.oid from pg_database d where d.datname = current_database())
"""
TABLES: LiteralString = "select t.table_name::text from bds_operation.moved_tables() t"
SLOT: LiteralString = """
    select coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), s.confirmed_flush_lsn), 0)::int8, s.confirmed_flush_lsn >= %s::pg_lsn
    from pg_replication_slots s
    where s.slot_name = %s and s.database = current_database() and s.wal_status is distinct from 'lost'
"""
# of this database: other services of the cluster may move companies of the same id
SUBSCRIPTION: LiteralString = """
    select u.oid from pg_subscription u
    where u.subname = %s and u.subdbid = (select d.oid from pg_database d where d.datname = current_database())
"""
WORKERS: LiteralString = f"select s.pid from pg_stat_subscription s where s.subid = ({SUBSCRIPTION}) and s.pid is not null"
DROP_SLOT: LiteralString = """
    select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s and database = current_database()
"""
SUBSCRIBE: LiteralString = (
    "create subscription {name} connection {url} publication {name}"
    " with (create_slot = false, slot_name = {name}, synchronous_commit = local)"
)


@dataclass(slots=True)
class Replication:
    """The replication of one company.

    owner: a connection to the source as bds_owner.  source, target: connections of the logins, which may replicate.
    """

    company: str
    owner: psycopg.Connection[Any]
    source: psycopg.Connection[Any]
    target: psycopg.Connection[Any]
    source_name: str
    target_name: str

    @property
    def name(self) -> str:
        return "bds_move_" + hashlib.sha256(self.company.encode()).hexdigest()[:16]

    def exists(self) -> bool:
        """Whether it carries all that moves now.

        A slot may be lost, if the target was away for long; a table may have been registered since the publication was made.
        """
        if not self._is_subscribed() or self._slot() is None:
            return False
        row = self.owner.execute("select bds_operation.is_published(%s)", (self.name,)).fetchone()
        return row == (True,)

    def publish(self) -> None:
        self.owner.execute("select bds_operation.publish(%s, %s)", (self.company, self.name))

    def subscribe(self, source_url: str) -> None:
        """Let the target copy the rows, and follow their changes."""
        self.source.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (self.name,))
        name, url = sql.Identifier(self.name), sql.Literal(make_conninfo(source_url))
        self.target.execute(sql.SQL(SUBSCRIBE).format(name=name, url=url))

    def enable(self) -> None:
        self._alter("alter subscription {} enable")

    def disable(self) -> None:
        """Stop the subscription; returns when nothing more is applied."""
        self._alter("alter subscription {} disable")
        since = time.monotonic()
        while workers := self.target.execute(WORKERS, (self.name,)).fetchall():
            if time.monotonic() > since + WORKER_EXIT:
                self.target.execute("select pg_terminate_backend(%s::int)", workers[0])
            time.sleep(POLL)

    def end(self) -> None:
        if self._is_subscribed():
            self._alter("alter subscription {} disable")
            self._alter("drop subscription {}")
        self.owner.execute(sql.SQL("drop publication if exists {}").format(sql.Identifier(self.name)))
        self.source.execute(DROP_SLOT, (self.name,))

    def wait_for_rows(self, near: int, look: float, show: Callable[[str], None]) -> None:
        """Wait until all rows are copied, and less than `near` bytes are missing.

        show: gets the percentage, at each further tenth.  Raises ServiceError if the rows cannot be stored.
        """
        before, expected, told = None, self._expected(), 0
        while True:
            is_ready, errors, copied = self.target.execute(READY, (self.name,)).fetchone() or (False, 0, {})
            if is_ready and self._lag() < near:
                return
            percent = share(expected, copied)
            if percent // 10 > told // 10 and not is_ready:
                show(f"{percent} % of the rows")
                told = percent
            if before is not None and errors > before:
                raise ServiceError(
                    "conflict",
                    f"{self.target_name} could not take the rows, see the log of its server; {self.company} is served by"
                    f" {self.source_name}: mend it, then --resume, or --abort",
                )
            before = errors
            time.sleep(look)

    def _expected(self) -> dict[str, float]:
        """How many rows each table has of the company, as the planner of the source expects."""
        names = [name for (name,) in self.owner.execute(TABLES).fetchall()]
        counts = {}
        for name in names:
            statement = sql.SQL("explain (format json) select from {} where company_id = {}").format(
                sql.Identifier(*name.split(".")), sql.Literal(self.company)
            )
            row = self.owner.execute(statement).fetchone()
            assert row is not None
            counts[name] = float(row[0][0]["Plan"]["Plan Rows"])
        return counts

    def has_caught_up(self, deadline: float) -> bool:
        """Whether the target has everything that is written until now, before a moment of the monotonic clock."""
        row = self.source.execute("select pg_logical_emit_message(false, 'bds', '', true)::text").fetchone()
        assert row is not None
        while not self._require_slot(row[0])[1]:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)
        return True

    def _lag(self) -> int:
        """Bytes of the write-ahead log that the target lacks."""
        return self._require_slot("0/0")[0]

    def _require_slot(self, last: str) -> tuple[int, bool]:
        if (slot := self._slot(last)) is None:
            raise ServiceError(
                "conflict", f"the replication slot {self.name} is lost at {self.source_name}: --resume copies the rows again"
            )
        return slot

    def _slot(self, last: str = "0/0") -> tuple[int, bool] | None:
        """Bytes that the target lacks, and whether it has everything up to `last`; None without a slot."""
        row = self.owner.execute(SLOT, (last, self.name)).fetchone()
        return (int(row[0]), bool(row[1])) if row else None

    def _is_subscribed(self) -> bool:
        return self.target.execute(SUBSCRIPTION, (self.name,)).fetchone() is not None

    def _alter(self, statement: LiteralString) -> None:
        self.target.execute(sql.SQL(statement).format(sql.Identifier(self.name)))


def share(expected: Mapping[str, float], copied: Mapping[str, int | None]) -> int:
    """The percentage of rows that are copied, 99 at most.  copied: by table; None: all of its rows."""
    done = sum(rows if copied.get(name, 0) is None else min(copied.get(name) or 0, rows) for name, rows in expected.items())
    return min(int(100 * done / max(sum(expected.values()), 1)), 99)
