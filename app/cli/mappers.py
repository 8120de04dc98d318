"""Mappers at the command line: list, store, print and delete them."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.cli import stdio, tables
from app.cli.arguments import read_name
from app.cli.command import COMPANY, Command, argument
from app.cli.companies import require_company
from app.config import Config
from app.database import connections

MAPPERS = """
    select name, format, to_char(created_at, 'YYYY-MM-DD HH24:MI'), to_char(updated_at, 'YYYY-MM-DD HH24:MI')
    from bds.mappers
    where company_id = %s
    order by name
"""


def list_mappers(options: argparse.Namespace, config: Config) -> int:
    with connections.connect(connections.resolve_company(config, options.company)) as connection:
        require_company(connection, options.company)
        rows = connection.execute(MAPPERS, (options.company,)).fetchall()
    stdio.write(tables.table(("name", "type", "created (UTC)", "updated (UTC)"), rows))
    return 0


def put_mapper(options: argparse.Namespace, config: Config) -> int:
    from app.mapper import store  # imported late: other commands need no languages

    with stdio.binary_input() if options.file == "-" else Path(options.file).open("rb") as file:
        body = file.read()
    url = connections.resolve_company(config, options.company)
    with connections.connect(url, "bds_reader") as connection:
        format, text = store.checked(connections.read_catalog(connection), body)
    with connections.connect(url) as connection:
        connection.execute("select bds.put_mapper(%s, %s, %s, %s)", (options.company, options.name, format, text))
    return 0


def get_mapper(options: argparse.Namespace, config: Config) -> int:
    from app.mapper import store

    with connections.connect(connections.resolve_company(config, options.company)) as connection:
        require_company(connection, options.company)
        row = connection.execute(store.TEXT, (options.company, options.name)).fetchone()
    if row is None:
        raise store.missing(options.name)
    stdio.write_exact(row[0])
    return 0


def delete_mapper(options: argparse.Namespace, config: Config) -> int:
    from app.mapper import store

    with connections.connect(connections.resolve_company(config, options.company)) as connection:
        require_company(connection, options.company)
        if connection.execute("select bds.delete_mapper(%s, %s)", (options.company, options.name)).fetchone() != (True,):
            raise store.missing(options.name)
    return 0


NAME = argument("name", type=read_name, metavar="NAME", help="the mapper")
COMMANDS = (
    Command("mapper list", list_mappers, "list a company's mappers", "  bds mapper list --company acme", (COMPANY,)),
    Command(
        "mapper put",
        put_mapper,
        "check a mapper and store it, or replace the one of that name",
        """\
  bds mapper put catalog catalog.mapper --company acme
  bds mapper get catalog --company acme | bds mapper put catalog - --company beta""",
        (NAME, argument("file", metavar="FILE", help="the mapper's text; - for standard input"), COMPANY),
    ),
    Command(
        "mapper get",
        get_mapper,
        "print the text of a mapper",
        "  bds mapper get catalog --company acme > catalog.mapper",
        (NAME, COMPANY),
    ),
    Command("mapper delete", delete_mapper, "delete a mapper", "  bds mapper delete catalog --company acme", (NAME, COMPANY)),
)
