"""Moves a company from one place to another with PostgreSQL's logical replication, while it is read and written.

The phase is written to bds.directory of home first, so that --resume or --abort goes on from it after a crash.

    copying     The source serves.  A publication of the company's rows, a subscription at the target; until they are the same.
    departing   The company leaves the source, which takes no writes from then on (bds_operation.depart), but serves reads.  The
                rest is replicated; the target gets the company's clock (bds_operation.arrive), without which it takes no writes.
    clearing    The directory names the target.  Replication ends; the rows at the source are deleted after GRACE seconds.

Steps that are told: announced, published, subscribed, copied (copying); departing, departed, caught up, arrived (departing);
switched, unsubscribed, cleared, moved (clearing).

So at no time two places take writes.  Between departing and clearing none does: the service lets writers wait.  Each step can be
repeated.  What is staged for an import does not move, so the company leaves when none is under way: it stays in copying while one
takes long, and in departing the service keeps further ones from beginning (Database.wait_for_departure).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, LiteralString

import psycopg

from app.database.connections import DEPARTURE, connect, one_row, one_value
from app.database.servers.directory import HOME, REFRESH
from app.database.servers.place import EMPTY, STATE, difference
from app.errors import ServiceError
from app.places import cluster
from app.places.replication import POLL, Replication
from app.types import exact_json

COPY_POLL = 0.2  # seconds between two looks whether rows have arrived, or imports ended
LEAVE_TIMEOUT = 600.0  # seconds to wait for a moment without an import under way
# Seconds to wait in departing for imports that have begun: at first, for each second in which one was always under way, at most.
WINDOW, WINDOW_SHARE, WINDOW_MOST = 0.3, 0.2, 0.8 * DEPARTURE
# Seconds in which the rest has to be replicated, else the company goes on at the source for a while; then twice as many.
CATCH_UP = 0.5
DEPARTURES = 8  # of one move, at most
TURN = 5.0  # seconds to wait for the process that has the move: the server may not have noticed yet that it has ended
BATCH = 50_000  # rows that are deleted in one transaction
NEAR = 1 << 20  # bytes of the write-ahead log that the target may lack when the company departs
GRACE = 2 * REFRESH + 1  # seconds in which each process of the service has read the directory again

ENTRY: LiteralString = "select place, source, target, phase, changed_at from bds.directory where company_id = %s"
LOCK_LIMIT: LiteralString = "select set_config('lock_timeout', %s, true)"
NOTE: LiteralString = "select bds_operation.note_place(%s, %s, %s, %s, %s)"
IS_IMPORTING: LiteralString = """
    select exists (
        select 1 from bds.imports
        where company_id = %s and finished_at is null and started_at < clock_timestamp() - make_interval(secs => %s)
    )
"""
CLOCK: LiteralString = """
    select to_jsonb(k), c.log_retention::text from bds.clocks k join bds.companies c on c.id = k.company_id where k.company_id = %s
"""
LIVES: LiteralString = "select from bds.residents where company_id = %s"
IS_HIDDEN: LiteralString = "select string_agg(t::text, ', ') from unnest(%s::regclass[]) t where row_security_active(t)"
MAY_REPLICATE: LiteralString = "select rolsuper or rolreplication from pg_roles where rolname = session_user"

Say = Callable[[str], None]


class Move:
    """One company's move, over connections of its own.

    say: gets the name of each step that is done; show: what it waits for, and how far the copy is.
    """

    def __init__(self, urls: dict[str, str], company: str, say: Say, show: Say) -> None:
        self._urls, self._company, self._say, self._show = urls, company, say, show
        self._stack = contextlib.ExitStack()
        self._home = self._stack.enter_context(connect(urls[HOME], "bds_owner"))
        self._connections: dict[tuple[str, str | None], psycopg.Connection[Any]] = {}
        self._known_header: dict[str, Any] | None = None
        self.place: str = HOME
        self.phase: str | None = None
        self._source_name = self._target_name = ""

    @classmethod
    @contextlib.contextmanager
    def of(cls, urls: dict[str, str], company: str, say: Say, show: Say = lambda _: None) -> Iterator[Move]:
        """Take the company's move; one process at a time has it.  Raises ServiceError, psycopg.Error."""
        self = cls(urls, company, say, show)
        with self._stack:
            try:
                with self._home.transaction():
                    self._home.execute(LOCK_LIMIT, (f"{TURN}s",))
                    self._home.execute("select pg_advisory_lock(hashtextextended('bds.move:' || %s, 0))", (company,))
            except psycopg.errors.LockNotAvailable:
                raise ServiceError("conflict", f"another process is moving {company}") from None
            if not one_value(self._home, "select exists (select 1 from bds.companies where id = %s)", company):
                raise ServiceError("not_found", f"no such company: {company!r}")
            self._read()
            yield self

    def start(self, target: str) -> None:
        """Move the company to `target`.  Raises ServiceError, psycopg.Error; a move that has begun can be resumed or aborted."""
        if self.phase:
            raise ServiceError(
                "conflict",
                f"{self._company} is being moved from {self._source_name} to {self._target_name}: expected --resume or --abort",
            )
        if target not in self._urls:
            raise ServiceError("not_found", f"no such place: {target!r}")
        if target == self.place:
            raise ServiceError("conflict", f"{self._company} is at {target} already")
        cluster.require_elsewhere(self._urls[HOME], self._company, self.place)
        cluster.require_placement(self._urls[HOME], self._company, target)
        self._source_name, self._target_name = self.place, target
        self._check()
        self._note("copying")
        self._say("announced")
        self._run()

    def resume(self) -> None:
        """Go on with a move that was interrupted.  Raises ServiceError, psycopg.Error."""
        self._require_phase()
        if self.phase != "clearing":
            cluster.require_placement(self._urls[HOME], self._company, self._target_name)
        self._check()
        self._run()

    def abort(self) -> None:
        """Undo a move, as long as the directory names the source.  Raises ServiceError, psycopg.Error."""
        self._require_phase()
        if self.phase == "clearing":
            raise ServiceError("conflict", f"{self._company} is at {self._target_name} already: expected --resume, which clears up")
        if self.phase == "departing":
            self._show(f"waiting for writers at {self._source_name} and {self._target_name}")
            self._stay()
        self._replication.end()
        self._show(f"deleting what was copied to {self._target_name}")
        self._delete_rows(self._target)
        self._home.execute(NOTE, (self._company, self._source_name, None, None, None))
        self._say("aborted")

    def leads_to(self, place: str) -> bool:
        """Whether the company would live at a place, and does not yet."""
        return self.phase in ("copying", "departing") and self._target_name == place

    def _run(self) -> None:
        if self.phase == "departing" and not (self._has_arrived() or self._replication.exists()):
            self._stay()
        if self.phase == "copying":
            self._copy()
        if self.phase != "clearing":
            if not self._has_arrived():
                self._depart()
                self._arrive()
            self._note("clearing")
            self._say("switched")
        self._clear()

    # The directory

    def _read(self) -> None:
        row = self._home.execute(ENTRY, (self._company,)).fetchone()
        if row:
            self.place, self.phase = row[0], row[3]
            self._source_name, self._target_name = row[1] or "", row[2] or ""

    def _note(self, phase: str) -> None:
        """Note the phase at home."""
        place = self._target_name if phase == "clearing" else self._source_name
        self._home.execute(NOTE, (self._company, place, self._source_name, self._target_name, phase))
        self.place, self.phase = place, phase

    def _require_phase(self) -> None:
        if not self.phase:
            raise ServiceError("conflict", f"{self._company} is not being moved; it is at {self.place}")
        cluster.require_elsewhere(self._urls[HOME], self._company, self._source_name)

    # Steps

    def _check(self) -> None:
        """Raise ServiceError unless rows can be replicated from the source to the target."""
        home = self._state(HOME)
        for name in (self._source_name, self._target_name):
            if problem := difference(name, self._state(name), home):
                raise ServiceError("conflict", f"the place {name} {problem}")
        source = self._login(self._source_name)
        if (level := one_value(source, "show wal_level")) != "logical":
            hint = "alter system set wal_level = logical, and restart it"
            raise ServiceError("conflict", f"wal_level is {level} at {self._source_name}, expected logical: {hint}")
        if not one_value(source, MAY_REPLICATE):
            raise ServiceError("forbidden", f"the login may not replicate from {self._source_name}: alter role ... replication")
        tables = [row[0] for row in self._source.execute("select table_name from bds_operation.moved_tables()")]
        if hidden := one_value(source, IS_HIDDEN, tables):
            raise ServiceError("forbidden", f"row level security hides rows of {hidden} from the login: alter role ... bypassrls")

    def _copy(self) -> None:
        """Replicate until the target has what the source has."""
        if not self._replication.exists():
            self._replication.end()
            self._delete_rows(self._target)
            self._known_header = None
            with self._target.transaction():
                self._target.execute("select bds_operation.await_company(%s)", (exact_json.dumps(self._header()),))
            self._replication.publish()
            self._say("published")
            self._replication.subscribe(self._urls[self._source_name])
            self._say("subscribed")
        self._replication.enable()
        self._replication.wait_for_rows(NEAR, COPY_POLL, self._show)
        # as its arrival does, when the company takes no writes
        self._target.execute("select bds_operation.require_history(%s)", (exact_json.dumps(self._header()),))
        self._say("copied")

    def _depart(self) -> None:
        """Let the company leave the source, at a moment without an import, and wait until the target has its last row."""
        self._header()  # known before a writer waits
        self._replication.enable()
        began, is_told = time.monotonic(), False
        deadline = began + LEAVE_TIMEOUT
        for number in range(DEPARTURES):
            while not self._leave(min(WINDOW + WINDOW_SHARE * (time.monotonic() - began), WINDOW_MOST)):
                if not is_told:
                    self._show(f"waiting, {LEAVE_TIMEOUT:.0f} s at most, for an import under way or a writer in its turn")
                    is_told = True
                if time.monotonic() > deadline:
                    raise ServiceError(
                        "busy",
                        f"{self._company} had imports under way, or a writer in its turn, for {LEAVE_TIMEOUT:.0f} s:"
                        " try --resume later",
                    )
                time.sleep(COPY_POLL)
            if self._has_caught_up(CATCH_UP * 2**number):
                if self._replication.exists():
                    self._say("caught up")
                    return
                self._stay()
                self._copy()
            else:
                self._stay()
        raise ServiceError("busy", f"the rest does not reach {self._target_name} in time: try --resume later")

    def _leave(self, window: float) -> bool:
        """Let the company leave the source.

        window: seconds; False if an import has been under way for longer, or imports or another writer in its turn are not through
        after them.
        """
        if one_value(self._source, IS_IMPORTING, self._company, window):
            return False
        self._note("departing")
        self._say("departing")
        deadline = time.monotonic() + window
        while True:
            try:
                with self._source.transaction():
                    self._limit_locks(window)
                    self._source.execute("select bds_operation.depart(%s)", (self._company,))
                self._say("departed")
                return True
            except psycopg.Error as error:
                if error.sqlstate not in ("BD004", "55P03"):  # an import is under way, another writer has the turn
                    if not self._source.broken:  # else its commit may have been done
                        self._note("copying")
                    raise
            if time.monotonic() > deadline:
                self._note("copying")
                return False
            time.sleep(POLL)

    def _limit_locks(self, seconds: float) -> None:
        """Let the transaction at the source wait for no lock longer than that."""
        self._source.execute(LOCK_LIMIT, (f"{seconds}s",))

    def _has_caught_up(self, patience: float) -> bool:
        """Wait for writers without a turn (see EMPTY), and for what they wrote; whether all of it arrived in time."""
        deadline = time.monotonic() + patience
        source = self._source
        try:
            with source.transaction():
                self._limit_locks(patience)
                source.execute(EMPTY, (self._company,))
        except psycopg.errors.LockNotAvailable:
            return False
        writers: set[str] = set(one_value(source, "select bds_operation.writers_of_others()"))
        while writers & set(one_value(source, "select bds_operation.writers_of_others()")):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)
        return self._replication.has_caught_up(deadline)

    def _stay(self) -> None:
        """Let the company take writes at the source again; the target, if it has the clock already, loses it first."""
        last = one_value(self._source, "select last_id from bds.clocks where company_id = %s", self._company)
        if not one_value(self._target, "select bds_operation.take_back(%s, %s)", self._company, last):
            raise ServiceError(
                "conflict",
                f"{self._company} is at {self._target_name} and was written there, or may have sent webhooks: expected --resume",
            )
        self._source.execute("select bds_operation.stay(%s)", (self._company,))
        self._note("copying")

    def _has_arrived(self) -> bool:
        return self._target.execute(LIVES, (self._company,)).fetchone() is not None

    def _arrive(self) -> None:
        """Let the company live at the target."""
        clock, retention = one_row(self._source, CLOCK, self._company)
        header = exact_json.dumps(self._header() | {"log_retention": retention})
        if self._source.execute(LIVES, (self._company,)).fetchone():
            raise ServiceError("conflict", f"{self._company} takes writes at {self._source_name}: expected --resume")
        self._replication.disable()
        with self._target.transaction():
            self._target.execute("select bds_operation.arrive(%s, %s)", (header, exact_json.dumps(clock)))
        self._say("arrived")

    def _clear(self) -> None:
        """Delete the rows at the source, once no process of the service reads them any more."""
        self._replication.end()
        self._say("unsubscribed")
        passed = one_value(self._home, "select extract(epoch from clock_timestamp() - %s)::float8", self._changed_at())
        if passed < GRACE:
            self._show(f"waiting {GRACE - passed:.0f} s until every process of the service knows the new place")
            time.sleep(GRACE - passed)
        self._delete_rows(self._source)
        self._say("cleared")
        self._home.execute(NOTE, (self._company, self._target_name, None, None, None))
        self._say("moved")

    def _delete_rows(self, place: psycopg.Connection[Any]) -> None:
        """Delete the company's rows where it does not live, in transactions of a second or so, so that vacuum is not held up."""
        while one_value(place, "select bds_operation.clear_company(%s, %s)", self._company, BATCH) >= BATCH:
            pass

    # Connections

    @property
    def _source(self) -> psycopg.Connection[Any]:
        return self._connection(self._source_name, "bds_owner")

    @property
    def _target(self) -> psycopg.Connection[Any]:
        return self._connection(self._target_name, "bds_owner")

    @property
    def _replication(self) -> Replication:
        source, target = self._login(self._source_name), self._login(self._target_name)
        return Replication(self._company, self._source, source, target, self._source_name, self._target_name)

    def _login(self, place: str) -> psycopg.Connection[Any]:
        """A connection that acts as its login, which may replicate."""
        return self._connection(place, None)

    def _connection(self, place: str, role: LiteralString | None) -> psycopg.Connection[Any]:
        if place not in self._urls:
            raise ServiceError("not_found", f"no such place: {place!r}")
        if (place, role) not in self._connections:
            self._connections[place, role] = self._stack.enter_context(connect(self._urls[place], role))
        return self._connections[place, role]

    def _state(self, place: str) -> tuple[str, str, str]:
        name, version, model = one_row(self._login(place), STATE)
        return name, version, model

    def _header(self) -> dict[str, Any]:
        if self._known_header is None:
            self._known_header = one_value(self._source, "select bds_operation.dump_header(%s)", self._company)
        return self._known_header

    def _changed_at(self) -> Any:
        return one_row(self._home, ENTRY, self._company)[4]
