"""Whether the schema of a database is that of this program, by what `bds migrate` has recorded there.

A process serves a schema of its own major version.  It does not start over an older one.  A newer one, which `bds migrate` of the
next program has made while this process runs, it serves on, but /readyz tells that it is to be replaced.

    public.bds_migrations   a row for each migration and unit with its checksum (app/database/units.py), and the row VERSION with
                            the newest program that has applied any
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, LiteralString

import psycopg

from app.database import migrate, units
from app.database.roles import MigrationError
from app.resources import numbers, version

APPLIED: LiteralString = "select name, checksum from public.bds_migrations"
NEWER = "schema is newer"

Standing = Literal["same", "newer", "older"]


def compare(applied: Mapping[str, str]) -> Standing:
    """How a schema stands to this program.  applied: the rows of bds_migrations."""
    own = {unit.name: unit.checksum for unit in units.read_units()}
    if any(name.startswith("migrations/") and name not in own for name in applied):
        return "newer"
    if all(applied.get(name) == checksum for name, checksum in own.items()):
        return "same"
    return "newer" if numbers(applied.get(migrate.VERSION, "0")) > numbers(version()) else "older"


def require(applied: Mapping[str, str]) -> None:
    """Raises MigrationError unless this program may begin to serve a schema."""
    found, newest = compare(applied), applied.get(migrate.VERSION, "0")
    if found == "older":
        raise MigrationError(f"the schema is older than this program, which is version {version()}: run bds migrate")
    if found == "newer" and numbers(newest)[:1] != numbers(version())[:1]:
        raise MigrationError(f"the schema is of version {newest}: install that program, this one is version {version()}")


def read(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """What was applied; nothing before the first migration."""
    try:
        return dict(connection.execute(APPLIED).fetchall())
    except psycopg.errors.UndefinedTable:
        return {}


async def load(url: str, parameters: Mapping[str, Any]) -> dict[str, str]:
    """What was applied; unlike `read` it can be cancelled while the database does not answer."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True, **parameters) as connection:
        try:
            return dict(await (await connection.execute(APPLIED)).fetchall())
        except psycopg.errors.UndefinedTable:
            return {}
