"""Brings a database up to `sql/`: migrations once, in order; functions and views again whenever their text changes.

A migration is a file, applied in a transaction of its own.  It never changes once it has been applied, which its checksum proves;
a database that knows migrations which this program does not know is newer, and is left alone.

Every other entry of `sql/` is a unit: a folder, or a file beside the folders.  A unit has one checksum, and is applied whole if it
changed.  All changed units and the grants share one transaction, so that no session ever meets half of them.  A folder that has
internal functions begins with 00_schema.sql, which makes their schema anew: an internal function may change its parameters or its
result freely.  A view that is as its statement makes it is left alone: to replace it would lock out its readers, and wait for them.

What all this has made is recorded (bds_operation.made), and bds.problems lists what differs.  If applying functions and views again
mends some of that, all of them are due; so they are on another version of PostgreSQL, which writes some definitions differently.

At last, what is generated for entities: only the parts whose statements are not those that were installed (bds.generated).
Functions of triggers lock nothing and belong to the units' transaction, since they call internal functions.  Views, and what locks
a table, are installed part by part, each in a transaction of its own.  A part that fails, because its table was dropped or altered,
stays as it was and stops no other: `BrokenEntities` names them at the end.

No transaction waits for a lock longer than `waiting.LOCK_TIMEOUT`, because other sessions would wait behind it: it is rolled back
and tried again.  Safe to run twice, to kill at any time and run again, and to run from several processes at once: one works, the
others wait and find nothing to do.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from app.database import applying, roles, units, waiting
from app.database.pool.pools import parameters
from app.database.roles import MigrationError
from app.resources import numbers, version

log = logging.getLogger("bds.db")

VERSION = "version"  # the row of bds_migrations with the newest program's version in place of a checksum
FUNCTIONS = "functions"  # the part of an entity that locks nothing
# What is not as it was made, and whether to apply everything mends some of it.  A database of before has no record.
STANDING = """
    select coalesce((select jsonb_agg(d) from bds_operation.differences() d), '[]'),
        exists (select from bds_operation.made_problems() p where p.mend = 'bds migrate')
"""
# Tables, and what keeps others from writing or reading them
TABLES = """
    select array_agg(oid::bigint) from pg_class
    where relkind in ('r', 'p') and relnamespace not in ('pg_catalog'::regnamespace, 'pg_toast'::regnamespace)
"""
LOCKED = """
    select c.oid::regclass::text, l.mode
    from pg_locks l join pg_class c on c.oid = l.relation
    where l.pid = pg_backend_pid() and l.locktype = 'relation' and l.granted and c.relkind in ('r', 'p')
        and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
        and c.oid::bigint = any(%s)
"""
# Functions that this transaction has made: the grants write to all of them.
MADE = "select p.oid::regprocedure::text from pg_proc p where p.xmin = pg_current_xact_id()::xid"
AFTER_RESTORE = """
    select bds_operation.fit_columns(), case when bds_operation.was_restored() then bds.after_restore() end
"""
RECORD_MADE = "select bds_operation.record_made(%s)"
DUE_PARTS = "select d.entity, d.part from bds_registry.due_parts() d"
# What is wrong with an entity's table, and what mends it.
TABLE_PROBLEMS = """
    select p.detail, p.mend from (
        select * from bds_operation.replaced_tables() union all select * from bds_operation.altered_tables()
    ) p where p.entity = %s
"""
INSTALL_PART = "select bds_registry.install_part(%s, %s), pg_notify('bds_catalog', '')"

PREPARE = """
    create table if not exists public.bds_migrations (
        name        text collate "C" primary key,
        checksum    text not null,
        applied_at  timestamptz not null default clock_timestamp()
    );
    comment on table public.bds_migrations is 'Migrations and units of sql/ that were applied to this database';
"""
# the service compares what was applied to the databases of its places
ALLOW = "grant select on public.bds_migrations to bds_service, bds_owner"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan: what was applied, in how many seconds, and which existing tables it has locked against writes or reads.

    The last step has the seconds and locks of all functions and views.
    """

    name: str
    seconds: float = 0.0
    locks: Sequence[str] = ()  # such as data.units (access exclusive)


class BrokenEntities(MigrationError):
    """All was applied but parts of entities whose tables were dropped or altered: the message says why, and what mends it."""

    def __init__(self, applied: list[str], reasons: dict[str, str]) -> None:
        self.applied = applied
        number = "1 entity is" if len(reasons) == 1 else f"{len(reasons)} entities are"
        super().__init__("\n".join([f"{number} not up to date:", *(f"  {entity}: {why}" for entity, why in reasons.items())]))


def migrate(url: str, shards: int | None = None) -> list[str]:
    """Apply what is due; returns the names of the units and the parts of entities applied.

    Raises BrokenEntities at the end if parts of some entities could not be installed.
    shards: into how many the tables of a new database are divided (sql/02_shards), a power of 2; None: they are whole.
    """
    with _connect(url) as connection:
        roles.ensure(connection)
        waiting.patiently(connection, partial(_prepare, connection))
        broken: dict[str, str] = {}
        names = list(_apply_due(connection, partial(waiting.patiently, connection), broken, shards))
        if _applied(connection).get(VERSION) != version():
            waiting.patiently(connection, partial(applying.record, connection, VERSION, version()))
        connection.execute("set role bds_owner")
        # whether it was restored from a dump is not known otherwise
        waiting.patiently(connection, lambda: connection.execute(AFTER_RESTORE))
        return _whole(names, broken)


def other_places(url: str) -> dict[str, str]:
    """The connection strings of places but home, which are migrated first, by name; none before the first migration."""
    with psycopg.connect(url, autocommit=True, **parameters(url)) as connection:
        if connection.execute("select to_regclass('bds.places')").fetchone() == (None,):
            return {}
        return dict(connection.execute("select name, url from bds.places where url is not null order by name").fetchall())


def plan(url: str, steps: list[Step] | None = None) -> list[str]:
    """Return what `migrate` would return, and change nothing: units are applied in one transaction, which is rolled back.

    Views and tables of entities are not touched: their locks would stop all readers and writers until the end.
    steps: gets how long each step took, and what it locked.
    """
    names: list[str] = []
    broken: dict[str, str] = {}

    def work() -> None:
        names.clear()
        found: list[Step] = []
        roles.ensure(connection)
        _prepare(connection)
        (tables,) = connection.execute(TABLES).fetchone() or ([],)
        held, began = _locks(connection, tables), time.monotonic()
        for name in _apply_due(connection, lambda step: step(), broken, is_plan=True):
            names.append(name)
            if name != units.LAST and not name.startswith("migrations/") and ": " not in name:
                found.append(Step(name))  # all functions are applied before the first of them is named: the grants have their time
                continue
            now, seconds = _locks(connection, tables), time.monotonic() - began
            found.append(Step(name, seconds, sorted(now - held)))
            held, began = now, time.monotonic()
        if steps is not None:
            steps[:] = found

    with _connect(url) as connection:
        waiting.patiently(connection, work, force_rollback=True)
    return _whole(names, broken)


def _locks(connection: psycopg.Connection[Any], tables: list[int]) -> set[str]:
    """Those of some tables that this transaction has locked so that others cannot write or read, each with the lock."""
    found = connection.execute(LOCKED, (tables,)).fetchall()
    return {f"{table} ({' '.join(re.findall('[A-Z][a-z]+', mode.removesuffix('Lock'))).lower()})" for table, mode in found}


def _connect(url: str) -> psycopg.Connection[Any]:
    """A connection that holds the runner's lock."""
    connection = psycopg.connect(url, autocommit=True, **parameters(url, "bds migrate"))
    version = connection.info.server_version
    if version < 170000:
        raise MigrationError(f"PostgreSQL 17 or newer is needed, this is {version // 10000}")
    roles.require_encoding(connection)
    connection.execute("set client_min_messages = warning; set lock_timeout = 0; set standard_conforming_strings = on")
    if connection.execute("select 1 from pg_extension where extname = 'citus'").fetchone():  # each node is migrated by itself
        for what in ("ddl", "create_role", "alter_role"):
            connection.execute(f"set citus.enable_{what}_propagation = off".encode())
    waiting.take_lock(connection)
    connection.execute("select set_config('lock_timeout', %s, false)", (waiting.LOCK_TIMEOUT,))
    return connection


def _prepare(connection: psycopg.Connection[Any]) -> None:
    """Grant rights on the database, which dumps leave out, and create the table of applied files."""
    roles.close(connection)
    connection.execute(PREPARE)
    connection.execute(ALLOW)


def is_current(url: str) -> bool:
    """Whether nothing is due."""
    with psycopg.connect(url, autocommit=True, **parameters(url)) as connection:
        if connection.execute("select to_regclass('public.bds_migrations')").fetchone() == (None,):
            return False
        applied = _applied(connection)
    return all(applied.get(unit.name) == unit.checksum for unit in units.read_units())


def _applied(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """Checksums of the units that were applied, by name."""
    return dict(connection.execute("select name, checksum from public.bds_migrations").fetchall())


def _apply_due(
    connection: psycopg.Connection[Any],
    attempt: Callable[[Callable[[], Any]], Any],
    broken: dict[str, str],
    shards: int | None = None,
    *,
    is_plan: bool = False,
) -> Iterator[str]:
    """Apply what is due, one step after the other, each by `attempt`; yields the names.

    broken: gets the entities of which a part could not be installed, and why.
    is_plan: views and tables of entities are only named.
    """
    applied: dict[str, str] = attempt(partial(_applied, connection))
    known = list(units.read_units())
    _require_not_newer(applied, known)
    standing, is_altered = attempt(partial(_standing, connection))
    due = [unit for unit in known if applied.get(unit.name) != unit.checksum or (is_altered and not unit.is_migration)]
    if is_plan:
        applying.lock_first(connection, due)
    for unit in due:
        if unit.is_migration:
            if unit.name in applied:
                raise MigrationError(f"sql/{unit.name} was changed after it was applied: write a new migration instead")
            attempt(partial(_apply_migration, connection, unit))
            yield unit.name
    functions = [unit for unit in known if not unit.is_migration and (unit in due or unit.name == units.LAST)]
    if due:
        if shards and units.SHARDS not in applied:
            attempt(partial(_prepare_shards, connection, shards))
        generated: list[str] = []
        attempt(partial(_apply_functions, connection, functions, standing, generated, broken))
        yield from (unit.name for unit in functions)
        yield from generated
    for entity, part in attempt(partial(_due_parts, connection)):
        if entity not in broken and (is_plan or attempt(partial(_installs_part, connection, entity, part, broken))):
            yield f"{entity}: {part}"
    if due:
        attempt(partial(applying.record, connection, units.LAST, functions[-1].checksum))


def _require_not_newer(applied: dict[str, str], known: Sequence[units.Unit]) -> None:
    """Raises MigrationError if a newer program has migrated the database."""
    unknown = sorted({name for name in applied if name.startswith("migrations/")} - {unit.name for unit in known})
    if unknown:
        raise MigrationError(f"the database is newer than this program: it knows {', '.join(unknown)}")
    if numbers(applied.get(VERSION, "0")) > numbers(version()):
        raise MigrationError(f"the database is newer than this program: version {applied[VERSION]} has migrated it")


def _prepare_shards(connection: psycopg.Connection[Any], number: int) -> None:
    connection.execute("update bds.settings set shards = %s", (number,))
    connection.execute((units.SQL / "shards.sql").read_bytes())


def _apply_migration(connection: psycopg.Connection[Any], unit: units.Unit) -> None:
    # a program that dies after this transaction leaves the grants due
    connection.execute("delete from public.bds_migrations where name = %s", (units.LAST,))
    applying.apply(connection, unit)


def _standing(connection: psycopg.Connection[Any]) -> tuple[list[dict[str, Any]], bool]:
    """What is not as it was made, and whether all functions and views are to be applied again."""
    if connection.execute("select to_regclass('bds_operation.made')").fetchone() == (None,):
        return [], False
    try:
        with connection.transaction():
            connection.execute("set local role bds_owner")
            row = connection.execute(STANDING).fetchone()
            connection.execute("reset role")
    except psycopg.ProgrammingError:  # what compares was dropped or altered itself
        return [], True
    return row or ([], False)


def _apply_functions(
    connection: psycopg.Connection[Any],
    functions: Sequence[units.Unit],
    standing: list[dict[str, Any]],
    generated: list[str],
    broken: dict[str, str],
) -> None:
    """Apply units of functions, record what these have made, and generate functions of entities; `generated` gets their names.

    standing: what was not as it was made before.
    broken: gets the entities whose functions could not be generated, and why.
    """
    broken.clear()  # by an earlier attempt
    applying.lock_first(connection, functions)
    connection.execute("delete from public.bds_migrations where name = %s", (units.LAST,))
    # with the functions, so that an earlier program never takes them for older ones
    applying.record(connection, VERSION, version())
    made: set[str] = set()
    for unit in functions:
        if unit.name == units.LAST:
            made.update(name for (name,) in connection.execute(MADE))
        applying.apply(connection, unit)
    connection.execute("set local role bds_owner")
    connection.execute(RECORD_MADE, (Jsonb([each for each in standing if each["object"] not in made]),))
    connection.execute("reset role")
    entities = [entity for entity, part in _due_parts(connection) if part == FUNCTIONS]
    generated[:] = [f"{entity}: {FUNCTIONS}" for entity in entities if _installs_part(connection, entity, FUNCTIONS, broken)]


def _due_parts(connection: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    with connection.transaction():
        connection.execute("set local role bds_owner")
        due = connection.execute(DUE_PARTS).fetchall()
        connection.execute("reset role")
    return due


def _installs_part(connection: psycopg.Connection[Any], entity: str, part: str, broken: dict[str, str]) -> bool:
    """Install a part of an entity; if that fails, leave it as it was and note why in `broken`."""
    connection.execute("set local role bds_owner")
    try:
        with connection.transaction():
            _install_part(connection, entity, part)
    except psycopg.Error as error:
        if error.sqlstate in waiting.BUSY or isinstance(error, psycopg.OperationalError):
            raise MigrationError(f"{part} of entity {entity}: {error}") from error
        problem = connection.execute(TABLE_PROBLEMS, (entity,)).fetchone()
        broken[entity] = "; mend: ".join(
            filter(None, problem or (f"{part}: {error.diag.message_primary}", error.diag.message_hint))
        )
    connection.execute("reset role")
    return entity not in broken


def _install_part(connection: psycopg.Connection[Any], entity: str, part: str) -> None:
    connection.execute(INSTALL_PART, (entity, part))


def _whole(names: list[str], broken: dict[str, str]) -> list[str]:
    """The names of what was applied.  Raises BrokenEntities if parts of some entities could not be installed."""
    if broken:
        raise BrokenEntities(names, broken)
    return names
