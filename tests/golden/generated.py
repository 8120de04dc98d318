"""Writes what bds.register generates for three tables into the files beside this one: python -m tests.golden.generated

A change of a template shows there what it does to the functions, views and triggers of a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from tests.servers import own_server
from tests.test_every_type import create_samples

HERE = Path(__file__).parent
ENTITIES = ("products", "orderItems", "samples")
IMPORTS = """
    select format(E'%%s returns %%s language %%s\n%%s', p.oid::regprocedure, pg_get_function_result(p.oid), l.lanname, btrim(p.prosrc, E'\n'))
    from pg_proc p join pg_language l on l.oid = p.prolang
    where p.pronamespace = 'bds_import'::regnamespace and obj_description(p.oid, 'pg_proc') ^@ (%s || ':')
    order by p.oid::regprocedure::text collate "C"
"""
TABLES = "select format(E'%%s\n%%s', t.name, t.definition) from bds_feed.tables t where t.entity = %s order by t.name"


def register(connection: psycopg.Connection[Any]) -> None:
    """Register the table with a column of each type."""
    create_samples(connection)


def texts(connection: psycopg.Connection[Any], entity: str) -> Iterator[tuple[str, str]]:
    """Yield what was generated for an entity: a title and the text."""
    for (part,) in connection.execute("select unnest(bds_registry.parts())").fetchall():
        [(statements,)] = connection.execute("select bds_registry.statements(%s, %s)", (entity, part)).fetchall()
        yield f"{part} of {entity}", statements
    yield f"tables of imports of {entity}", "\n\n".join(text for (text,) in connection.execute(TABLES, (entity,)))
    yield f"functions of imports of {entity}", "\n\n".join(text for (text,) in connection.execute(IMPORTS, (entity,)))


def golden(connection: psycopg.Connection[Any], entity: str) -> str:
    """The text of an entity's file."""
    sections = (f"---- {title}\n\n{text.strip()}\n" for title, text in texts(connection, entity))
    return "\n".join(line.rstrip() for line in "\n".join(sections).split("\n"))


def main() -> None:
    with own_server() as server, psycopg.connect(server.url, autocommit=True) as connection:
        register(connection)
        for entity in ENTITIES:
            (HERE / f"{entity}.sql").write_text(golden(connection, entity))


if __name__ == "__main__":
    main()
