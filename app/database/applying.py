"""Applies migrations and units to a database, each in the transaction of the caller.

A view that is as its statement would make it is left alone: to replace it waits for its readers.  What is made anew or changed
is locked before anything else, in the order of those who use it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import psycopg

from app.database.roles import MigrationError
from app.database.units import LAST, Unit, made_anew, pieces

# The materialized view first: who uses it and tables of its schema uses it before them (bds_feed.begin_tables).
LOCK_TABLES = """
    select format(
        case c.relkind when 'm' then 'alter materialized view %%s owner to bds_owner' else 'lock table only %%s' end,
        c.oid::regclass
    )
    from pg_class c
    where c.relnamespace = any (select to_regnamespace(s) from unnest(%s::text[]) s) and c.relkind in ('m', 'r')
    order by c.relkind, 1
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


def lock_first(connection: psycopg.Connection[Any], due: Sequence[Unit]) -> None:
    """Lock what units make anew or change, in the order of those who use it: what internals store, views, and tables only then.

    One that has locked a view and waits for a table, for which this transaction waits in turn, would end each of its tries.
    """
    texts = [text for unit in due for _, text in unit.files]
    connection.execute("set local role bds_owner")
    schemas = [schema for text in texts for schema in made_anew(text)]
    statements = connection.execute(LOCK_TABLES, (schemas,)).fetchall()
    found = [piece for text in texts for piece in pieces(text)]
    views = [view for view, statement in found if view and not _is_same_view(connection, view, statement)]
    statements += connection.execute(LOCK_VIEWS, (views,)).fetchall()
    for (statement,) in statements:
        connection.execute(statement.encode())
    connection.execute("reset role")


def apply(connection: psycopg.Connection[Any], unit: Unit) -> None:
    """Run the unit's files and record it.  Raises MigrationError with the file and line."""
    if unit.name != LAST:
        record(connection, unit.name, unit.checksum)
    connection.execute("set local role bds_owner")
    for name, text in unit.files:
        _require_alone(connection, name, text)
        _run(connection, name, text)
    if not unit.is_migration:
        _require_no_overload(connection, unit)
    connection.execute("reset role")


def record(connection: psycopg.Connection[Any], name: str, checksum: str) -> None:
    connection.execute(
        "insert into public.bds_migrations (name, checksum) values (%s, %s)"
        " on conflict (name) do update set checksum = excluded.checksum, applied_at = clock_timestamp()",
        (name, checksum),
    )


def _run(connection: psycopg.Connection[Any], name: str, text: str) -> None:
    """Run a file, but for its statements of views that are there as these would make them."""
    for view, piece in pieces(text):
        if view and _is_same_view(connection, view, piece):
            continue
        try:
            connection.execute(piece.encode())
        except psycopg.Error as error:
            raise MigrationError(f"sql/{name}{_line(error, piece)}: {_explained(error)}") from error


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


def _require_alone(connection: psycopg.Connection[Any], name: str, text: str) -> None:
    """Raises MigrationError if making a schema anew would drop objects outside of it, such as a view of the DBA's own."""
    for schema in made_anew(text):
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
