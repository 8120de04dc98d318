"""Brings a database up to `sql/`: numbered migrations once, in order; functions and views again whenever their file changes.

Safe to run twice, and at the same time from several processes: one works, the others wait and find nothing to do.  Each file
runs in a transaction of its own, which writes the file's row first.  A migration that has been applied never changes, which its
checksum proves; a database that knows migrations which this program does not is newer than it, and is left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import psycopg

from app import resources

SQL = resources.folder("sql")
LOCK = 20261120  # advisory lock of the runner
FIRST = "migrations/0001_core.sql"  # makes the roles
LAST = "99_grants.sql"  # what every other file made: who may use it, and the entities that are generated from it

PREPARE = """
    create table if not exists public.bds_migrations (
        name        text primary key,
        checksum    text not null,
        applied_at  timestamptz not null default clock_timestamp()
    );
    comment on table public.bds_migrations is 'Files of sql/ that were applied to this database';
"""


class MigrationError(Exception):
    """The database and `sql/` do not fit together, or a file failed: the message says which."""


def migrate(url: str) -> list[str]:
    """Apply what is due; returns the names of the files applied."""
    with psycopg.connect(url, autocommit=True, application_name="bds migrate") as connection:
        version = connection.info.server_version
        if version < 170000:
            raise MigrationError(f"PostgreSQL 17 or newer is needed, this is {version // 10000}")
        connection.execute("set client_min_messages = warning; set lock_timeout = 0")
        connection.execute("select pg_advisory_lock(%s)", (LOCK,))
        connection.execute(PREPARE)
        applied = _applied(connection)
        names = list(_apply_due(connection, applied))
        connection.execute("set role bds_owner")
        connection.execute("select bds.after_restore()")  # whether it was restored from a dump is not known otherwise
        return names


def is_current(url: str) -> bool:
    """Whether nothing is due."""
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("select to_regclass('public.bds_migrations')").fetchone() == (None,):
            return False
        applied = _applied(connection)
    return all(applied.get(name) == checksum for name, checksum, _ in _files())


def _applied(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """Checksums of the files that were applied, by name."""
    return dict(connection.execute("select name, checksum from public.bds_migrations").fetchall())


def _files() -> Iterator[tuple[str, str, str]]:
    """(name, checksum, text) of each file, in the order in which they are applied."""
    for path in (*sorted((SQL / "migrations").glob("*.sql")), *sorted(SQL.glob("*.sql"))):
        text = path.read_text(encoding="utf-8")
        yield path.relative_to(SQL).as_posix(), hashlib.sha256(text.encode()).hexdigest(), text


def _apply_due(connection: psycopg.Connection[Any], applied: dict[str, str]) -> Iterator[str]:
    files = list(_files())
    unknown = sorted(name for name in applied if name.startswith("migrations/") and name not in {name for name, _, _ in files})
    if unknown:
        raise MigrationError(f"the database is newer than this program: it knows {', '.join(unknown)}")
    changed = False
    for name, checksum, text in files:
        if applied.get(name) == checksum and not (changed and name == LAST):
            continue
        if name in applied and name.startswith("migrations/"):
            raise MigrationError(f"sql/{name} was changed after it was applied: write a new migration instead")
        _apply(connection, name, checksum, text)
        changed = True
        yield name


def _apply(connection: psycopg.Connection[Any], name: str, checksum: str, text: str) -> None:
    try:
        with connection.transaction():
            connection.execute(
                "insert into public.bds_migrations (name, checksum) values (%s, %s)"
                " on conflict (name) do update set checksum = excluded.checksum, applied_at = clock_timestamp()",
                (name, checksum),
            )
            # whatever is made anew leaves the last file due, also if this program dies before it comes to that
            connection.execute("delete from public.bds_migrations where name = %s and name <> %s", (LAST, name))
            if name != FIRST:
                connection.execute("set local role bds_owner")
            connection.execute(text.encode())
            if name == LAST:
                connection.execute("select bds.refresh_entities()")
                connection.execute("select pg_notify('bds_catalog', '')")
    except psycopg.Error as error:
        position = error.diag.statement_position
        line = f", line {text.count(chr(10), 0, int(position)) + 1}" if position else ""
        raise MigrationError(f"sql/{name}{line}: {error}") from error
