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

No transaction waits for a lock longer than `LOCK_TIMEOUT`, because other sessions would wait behind it: it is rolled back and tried
again.  Safe to run twice, to kill at any time and run again, and to run from several processes at once: one works, the others wait
and find nothing to do.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from app import deprecations, resources
from app.database import roles
from app.database.roles import MigrationError
from app.resources import numbers, version

log = logging.getLogger("bds.db")

SQL = resources.folder("sql")
LOCK = 20261120  # advisory lock of the runner
# in which other sessions queue behind a lock that is waited for; before PostgreSQL looks for deadlocks (deadlock_timeout)
LOCK_TIMEOUT = "500 ms"
LOCK_PAUSE = 2.0  # seconds between two tries, in which these sessions go on
LOCK_TRIES = 60
TELLING = 10  # tries, after which to tell who may hold the lock
BUSY = {"55P03", "40P01"}  # SQLSTATEs of a lock that was not given in time, and a deadlock
INTERNALS = "05_impl"  # with what app/deprecations.py adds
SHARDS = "02_shards"  # divides tables
VERSION = "version"  # the row of bds_migrations with the newest program's version in place of a checksum
LAST = "99_grants.sql"  # applied after every other change; recorded when the entities are done, too
FUNCTIONS = "functions"  # the part of an entity that locks nothing
HOLDER = """
    select l.pid, a.usename, a.application_name
    from pg_locks l join pg_stat_activity a on a.pid = l.pid
    where l.locktype = 'advisory' and l.granted and a.datname = current_database()
        and (l.classid, l.objid, l.objsubid) = (0, %s::oid, 1)
"""
# A transaction that reads or writes, and how long it has done so
OLDEST = """
    select pid, usename, application_name, date_trunc('second', clock_timestamp() - xact_start)::text
    from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null and backend_type = 'client backend'
    order by xact_start limit 1
"""
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
LOCK_TABLES = """
    select format('lock table only %%s', c.oid::regclass)
    from pg_class c where c.relnamespace = any (select to_regnamespace(s) from unnest(%s::text[]) s) and c.relkind = 'r' order by 1
"""
# Unlike LOCK, these leave the tables of a view alone.
LOCK_VIEWS = """
    select format('alter view %%s owner to bds_owner', c.oid::regclass)
    from unnest(%s::text[]) name join pg_class c on c.oid = to_regclass(name) and c.relkind = 'v'
"""
# Whether two views are the same but for their names
SAME_VIEW = """
    select count(*) = 2 and count(distinct (pg_get_viewdef(c.oid), c.reloptions, (
        select array_agg((a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation)::text order by a.attnum)
        from pg_attribute a where a.attrelid = c.oid and a.attnum > 0
    ))) = 1
    from pg_class c where c.oid in (to_regclass(%s), to_regclass(%s)) and c.relkind = 'v'
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
# Objects that a schema made anew would take along.
DEPENDENTS = """
    with inside (classid, objid) as (
        select 'pg_proc'::regclass, oid from pg_proc where pronamespace = to_regnamespace(%(schema)s)
        union all select 'pg_class'::regclass, oid from pg_class where relnamespace = to_regnamespace(%(schema)s)
        union all select 'pg_rewrite'::regclass, r.oid from pg_rewrite r join pg_class c on c.oid = r.ev_class
            where c.relnamespace = to_regnamespace(%(schema)s)
        union all select 'pg_attrdef'::regclass, a.oid from pg_attrdef a join pg_class c on c.oid = a.adrelid
            where c.relnamespace = to_regnamespace(%(schema)s)
        union all select 'pg_type'::regclass, oid from pg_type where typnamespace = to_regnamespace(%(schema)s)
        union all select 'pg_constraint'::regclass, oid from pg_constraint where connamespace = to_regnamespace(%(schema)s)
        union all select 'pg_namespace'::regclass, to_regnamespace(%(schema)s)::oid
    )
    select distinct pg_describe_object(d.classid, d.objid, 0)
    from pg_depend d join inside i on (i.classid, i.objid) = (d.refclassid, d.refobjid)
    where (d.classid, d.objid) not in (select classid, objid from inside)
        and not (d.classid = 'pg_class'::regclass and d.objid::regclass::text ^@ 'pg_toast.') order by 1
"""
OVERLOADED = """
    select format('%s.%I', pronamespace::regnamespace, proname), string_agg(oid::regprocedure::text, ' and ' order by oid)
    from pg_proc where pronamespace in (to_regnamespace('bds'), to_regnamespace('bds_service'))
    group by pronamespace, proname having count(*) > 1 order by 1
"""
MEND = "a public function keeps its parameters and its result: drop the old one in a migration, or make a development database anew"


@dataclass(frozen=True, slots=True)
class Unit:
    """A migration, a folder of functions, or a file beside the folders: what is applied whole."""

    name: str  # migrations/0002_tenancy.sql, 20_registry, 99_grants.sql
    files: Sequence[tuple[str, str]]  # name and text of each, in the order in which they are applied

    @property
    def is_migration(self) -> bool:
        return self.name.startswith("migrations/")

    @property
    def checksum(self) -> str:
        return hashlib.sha256(repr(self.files).encode()).hexdigest()


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
        _patiently(connection, partial(_prepare, connection))
        broken: dict[str, str] = {}
        names = list(_apply_due(connection, partial(_patiently, connection), broken, shards))
        if _applied(connection).get(VERSION) != version():
            _patiently(connection, partial(_record, connection, VERSION, version()))
        connection.execute("set role bds_owner")
        # whether it was restored from a dump is not known otherwise
        _patiently(connection, lambda: connection.execute(AFTER_RESTORE))
        return _whole(names, broken)


def other_places(url: str) -> dict[str, str]:
    """The connection strings of places but home, which are migrated first, by name; none before the first migration."""
    with psycopg.connect(url, autocommit=True) as connection:
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
            if name != LAST and not name.startswith("migrations/") and ": " not in name:
                found.append(Step(name))  # all functions are applied before the first of them is named: the grants have their time
                continue
            now, seconds = _locks(connection, tables), time.monotonic() - began
            found.append(Step(name, seconds, sorted(now - held)))
            held, began = now, time.monotonic()
        if steps is not None:
            steps[:] = found

    with _connect(url) as connection:
        _patiently(connection, work, force_rollback=True)
    return _whole(names, broken)


def _locks(connection: psycopg.Connection[Any], tables: list[int]) -> set[str]:
    """Those of some tables that this transaction has locked so that others cannot write or read, each with the lock."""
    found = connection.execute(LOCKED, (tables,)).fetchall()
    return {f"{table} ({' '.join(re.findall('[A-Z][a-z]+', mode.removesuffix('Lock'))).lower()})" for table, mode in found}


def _connect(url: str) -> psycopg.Connection[Any]:
    """A connection that holds the runner's lock."""
    connection = psycopg.connect(url, autocommit=True, application_name="bds migrate")
    version = connection.info.server_version
    if version < 170000:
        raise MigrationError(f"PostgreSQL 17 or newer is needed, this is {version // 10000}")
    roles.require_encoding(connection)
    connection.execute("set client_min_messages = warning; set lock_timeout = 0; set standard_conforming_strings = on")
    if connection.execute("select 1 from pg_extension where extname = 'citus'").fetchone():  # each node is migrated by itself
        for what in ("ddl", "create_role", "alter_role"):
            connection.execute(f"set citus.enable_{what}_propagation = off".encode())
    _take_lock(connection)
    connection.execute("select set_config('lock_timeout', %s, false)", (LOCK_TIMEOUT,))
    return connection


def _prepare(connection: psycopg.Connection[Any]) -> None:
    """Grant rights on the database, which dumps leave out, and create the table of applied files."""
    roles.close(connection)
    connection.execute(PREPARE)
    connection.execute(ALLOW)


def _take_lock(connection: psycopg.Connection[Any]) -> None:
    """Take the runner's lock; while another session holds it, which any session may, wait and tell which."""
    while connection.execute("select pg_try_advisory_lock(%s)", (LOCK,)).fetchone() != (True,):
        if holder := connection.execute(HOLDER, (LOCK,)).fetchone():
            log.warning("waiting for another session that migrates: pid %s, %s, %s", *holder)
            connection.execute("select pg_advisory_lock(%s)", (LOCK,))
            return


def is_current(url: str) -> bool:
    """Whether nothing is due."""
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("select to_regclass('public.bds_migrations')").fetchone() == (None,):
            return False
        applied = _applied(connection)
    return all(applied.get(unit.name) == unit.checksum for unit in units())


def _applied(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """Checksums of the units that were applied, by name."""
    return dict(connection.execute("select name, checksum from public.bds_migrations").fetchall())


def units() -> Iterator[Unit]:
    """Everything in `sql/`, in the order in which it is applied."""
    for path in (*sorted((SQL / "migrations").glob("*.sql")), *sorted(SQL.glob("[0-9]*"))):
        files = sorted(path.glob("*.sql")) if path.is_dir() else [path]
        texts = [(file.relative_to(SQL).as_posix(), file.read_text(encoding="utf-8")) for file in files]
        if path.name == INTERNALS:
            texts.append((f"{INTERNALS}/deprecated", deprecations.statement()))
        yield Unit(path.relative_to(SQL).as_posix(), texts)


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
    known = list(units())
    _require_not_newer(applied, known)
    standing, is_altered = attempt(partial(_standing, connection))
    due = [unit for unit in known if applied.get(unit.name) != unit.checksum or (is_altered and not unit.is_migration)]
    if is_plan:
        _lock_first(connection, due)
    for unit in due:
        if unit.is_migration:
            if unit.name in applied:
                raise MigrationError(f"sql/{unit.name} was changed after it was applied: write a new migration instead")
            attempt(partial(_apply_migration, connection, unit))
            yield unit.name
    functions = [unit for unit in known if not unit.is_migration and (unit in due or unit.name == LAST)]
    if due:
        if shards and SHARDS not in applied:
            attempt(partial(_prepare_shards, connection, shards))
        generated: list[str] = []
        attempt(partial(_apply_functions, connection, functions, standing, generated, broken))
        yield from (unit.name for unit in functions)
        yield from generated
    for entity, part in attempt(partial(_due_parts, connection)):
        if entity not in broken and (is_plan or attempt(partial(_installs_part, connection, entity, part, broken))):
            yield f"{entity}: {part}"
    if due:
        attempt(partial(_record, connection, LAST, functions[-1].checksum))


def _require_not_newer(applied: dict[str, str], known: Sequence[Unit]) -> None:
    """Raises MigrationError if a newer program has migrated the database."""
    unknown = sorted({name for name in applied if name.startswith("migrations/")} - {unit.name for unit in known})
    if unknown:
        raise MigrationError(f"the database is newer than this program: it knows {', '.join(unknown)}")
    if numbers(applied.get(VERSION, "0")) > numbers(version()):
        raise MigrationError(f"the database is newer than this program: version {applied[VERSION]} has migrated it")


def _lock_first(connection: psycopg.Connection[Any], due: Sequence[Unit]) -> None:
    """Lock what units make anew or change, in the order of those who use it: tables of internals, views, and tables only then.

    One that has locked a view and waits for a table, for which this transaction waits in turn, would end each of its tries.
    """
    texts = [text for unit in due for _, text in unit.files]
    connection.execute("set local role bds_owner")
    schemas = [schema for text in texts for schema in _made_anew(text)]
    statements = connection.execute(LOCK_TABLES, (schemas,)).fetchall()
    pieces = [piece for text in texts for piece in _pieces(text)]
    views = [view for view, statement in pieces if view and not _is_same_view(connection, view, statement)]
    statements += connection.execute(LOCK_VIEWS, (views,)).fetchall()
    for (statement,) in statements:
        connection.execute(statement.encode())
    connection.execute("reset role")


def _prepare_shards(connection: psycopg.Connection[Any], number: int) -> None:
    connection.execute("update bds.settings set shards = %s", (number,))
    connection.execute((SQL / "shards.sql").read_bytes())


def _patiently(connection: psycopg.Connection[Any], work: Callable[[], Any], *, force_rollback: bool = False) -> Any:
    """Do the work in a transaction, and again if another session held a lock; returns its result.

    Raises MigrationError after the last try.
    """
    for left in reversed(range(LOCK_TRIES)):
        try:
            with connection.transaction(force_rollback=force_rollback):
                return work()
        except (MigrationError, psycopg.Error) as error:
            cause = error if isinstance(error, psycopg.Error) else error.__cause__
            if not isinstance(cause, psycopg.Error) or cause.sqlstate not in BUSY:
                raise
            if not left:
                raise MigrationError(f"another session held a lock in each of {LOCK_TRIES} tries, end it first: {error}") from error
        if left % TELLING == 0:
            _tell_oldest(connection, left)
        time.sleep(LOCK_PAUSE)


def _tell_oldest(connection: psycopg.Connection[Any], left: int) -> None:
    """Log which transaction may hold the lock: the oldest."""
    if oldest := connection.execute(OLDEST).fetchone():
        log.warning("another session holds a lock, tries left: %s; the oldest transaction: pid %s, %s, %s, %s", left, *oldest)


def _apply_migration(connection: psycopg.Connection[Any], unit: Unit) -> None:
    # a program that dies after this transaction leaves the grants due
    connection.execute("delete from public.bds_migrations where name = %s", (LAST,))
    _apply(connection, unit)


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
    units: Sequence[Unit],
    standing: list[dict[str, Any]],
    generated: list[str],
    broken: dict[str, str],
) -> None:
    """Apply the units, record what they have made, and generate functions of entities; `generated` gets the names of the latter.

    standing: what was not as it was made before.
    broken: gets the entities whose functions could not be generated, and why.
    """
    broken.clear()  # by an earlier attempt
    _lock_first(connection, units)
    connection.execute("delete from public.bds_migrations where name = %s", (LAST,))
    _record(connection, VERSION, version())  # with the functions, so that an earlier program never takes them for older ones
    made: set[str] = set()
    for unit in units:
        if unit.name == LAST:
            made.update(name for (name,) in connection.execute(MADE))
        _apply(connection, unit)
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
        if error.sqlstate in BUSY or isinstance(error, psycopg.OperationalError):
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


def _record(connection: psycopg.Connection[Any], name: str, checksum: str) -> None:
    connection.execute(
        "insert into public.bds_migrations (name, checksum) values (%s, %s)"
        " on conflict (name) do update set checksum = excluded.checksum, applied_at = clock_timestamp()",
        (name, checksum),
    )


def _apply(connection: psycopg.Connection[Any], unit: Unit) -> None:
    """Run the unit's files and record it, in the transaction of the caller."""
    if unit.name != LAST:
        _record(connection, unit.name, unit.checksum)
    connection.execute("set local role bds_owner")
    for name, text in unit.files:
        _require_alone(connection, name, text)
        _run(connection, name, text)
    if not unit.is_migration:
        _require_no_overload(connection, unit)
    connection.execute("reset role")


def _run(connection: psycopg.Connection[Any], name: str, text: str) -> None:
    """Run a file, but for its statements of views that are there as these would make them."""
    for view, piece in _pieces(text):
        if view and _is_same_view(connection, view, piece):
            continue
        try:
            connection.execute(piece.encode())
        except psycopg.Error as error:
            raise MigrationError(f"sql/{name}{_line(error, piece)}: {_explained(error)}") from error


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """A file in pieces: each statement of a view with the view's name, and what is between them; each on its lines of the file."""
    end = 0
    for found in re.finditer(r"^create or replace view ([\w.]+).*?;$", text, re.MULTILINE | re.DOTALL):
        for view, begin, until in (("", end, found.start()), (found[1], found.start(), found.end())):
            yield view, "\n" * text.count("\n", 0, begin) + text[begin:until]
        end = found.end()
    yield "", "\n" * text.count("\n", 0, end) + text[end:]


def _is_same_view(connection: psycopg.Connection[Any], view: str, statement: str) -> bool:
    """Whether a statement would make a view as it is: it makes one elsewhere, for a moment."""
    if connection.execute("select to_regclass(%s)", (view,)).fetchone() == (None,):
        return False
    other = "bds_compared.a_view"
    try:
        with connection.transaction(force_rollback=True):
            connection.execute(f"create schema bds_compared; {statement.strip().replace(view, other, 1)}".encode())
            return connection.execute(SAME_VIEW, (view, other)).fetchone() == (True,)
    except psycopg.OperationalError:  # such as a lock
        raise
    except psycopg.Error:  # what it needs is still to be made, or it is wrong, which running it will tell
        return False


def _made_anew(text: str) -> list[str]:
    """The schemas that a file drops and makes again."""
    lists = re.findall(r"^drop schema if exists ([\w, ]+) cascade;", text, re.MULTILINE)
    return [schema for each in lists for schema in each.split(", ")]


def _require_alone(connection: psycopg.Connection[Any], name: str, text: str) -> None:
    """Raises MigrationError if making a schema anew would drop objects outside of it, such as a view of the DBA's own."""
    for schema in _made_anew(text):
        if outside := [described for (described,) in connection.execute(DEPENDENTS, {"schema": schema}).fetchall()]:
            raise MigrationError(f"sql/{name}: drop what depends on internals of schema {schema} first: {', '.join(outside)}")


def _require_no_overload(connection: psycopg.Connection[Any], unit: Unit) -> None:
    """Raises MigrationError if a public function was given other parameters, which leaves the old one beside the new one."""
    for function, both in connection.execute(OVERLOADED).fetchall():
        for name, text in unit.files:
            if found := re.search(rf"\bfunction {re.escape(function)}\(", text):
                line = text.count("\n", 0, found.start()) + 1
                raise MigrationError(f"sql/{name}, line {line}: {function} exists twice, {both}; {MEND}")


def _line(error: psycopg.Error, text: str) -> str:
    """Where in the file an error is: at its position, or at the function that its hint names."""
    position = int(error.diag.statement_position or 0) - 1
    if position < 0 and (function := re.search(r"\bFUNCTION ([\w.]+)\(", error.diag.message_hint or "")):
        position = text.find(f"function {function[1]}(")
    return f", line {text.count(chr(10), 0, position) + 1}" if position >= 0 else ""


def _explained(error: psycopg.Error) -> str:
    """The error, and the mend where PostgreSQL's hint would lead astray: other objects may depend on a public function."""
    return f"{error.diag.message_primary}; {MEND}" if error.sqlstate == "42P13" else str(error)
