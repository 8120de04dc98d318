"""Companies at the command line: create, list, delete, dump, restore."""

from __future__ import annotations

import argparse
import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import psycopg

from app.cli import stdio, tables
from app.cli.command import Command, argument
from app.cli.progress import Progress
from app.config import Config
from app.database import connections
from app.errors import ServiceError
from app.places import administration, dump

COMPANIES = """
    select c.id, coalesce(c.tenant_id, ''), to_char(c.created_at, 'YYYY-MM-DD HH24:MI'), r.last_id::text,
        coalesce(to_char(nullif(r.last_updated_at, '-infinity'), 'YYYY-MM-DD HH24:MI'), 'never')
    from bds.companies c join bds.residents r on r.company_id = c.id
    order by c.id
"""


def create_company(options: argparse.Namespace, config: Config) -> int:
    administration.create_company(connections.urls_of_places(config), options.id, options.tenant, options.place)
    return 0


def list_companies(options: argparse.Namespace, config: Config) -> int:
    rows: list[tuple[str, ...]] = []
    urls = connections.urls_of_places(config)
    for place, url in urls.items():
        with connections.connect(url) as connection:
            rows += [(*row, place) for row in connection.execute(COMPANIES).fetchall()]
    header = ("id", "tenant", "created (UTC)", "changes", "last change", "place")
    stdio.write(tables.table(header, sorted(rows)) if len(urls) > 1 else tables.table(header[:-1], [row[:-1] for row in rows]))
    return 0


def require_company(connection: psycopg.Connection[Any], company: str) -> None:
    """Raise ServiceError(not_found) if there is no such company."""
    if connection.execute("select 1 from bds.companies where id = %s", (company,)).fetchone() is None:
        raise ServiceError("not_found", f"no such company: {company!r}")


def delete_company(options: argparse.Namespace, config: Config) -> int:
    if not options.yes:
        with connections.connect(connections.resolve_company(config, options.id)) as connection:
            require_company(connection, options.id)
        options.refuse(f"everything of {options.id} would be deleted, its change log too: expected --yes")
    rows = administration.delete_company(connections.urls_of_places(config), options.id)
    for table, count in rows:
        stdio.message(f"{table}: {count:,} rows deleted")
    return 0


def dump_company(options: argparse.Namespace, config: Config) -> int:
    with (
        _owner(connections.resolve_company(config, options.id)) as connection,
        _owner(connections.resolve(config)) as home,
        _private(options.output) as out,
        _shown("dumping") as show,
    ):
        dump.dump(connection, options.id, out, show, home=home)
    return 0


def restore_company(options: argparse.Namespace, config: Config) -> int:
    from_input = options.file == "-"
    if from_input and sys.stdin is not None and sys.stdin.isatty():
        options.refuse("expected a file, or a dump on standard input")
    with contextlib.ExitStack() as stack:
        source = stdio.binary_input() if from_input else stack.enter_context(Path(options.file).open("rb"))
        connection, show = stack.enter_context(_owner(connections.resolve(config))), stack.enter_context(_shown("restoring"))
        company = dump.restore(connection, source, options.hooks, show)
    stdio.message(f"{company} is restored" + ("" if options.hooks else "; its hooks are disabled"))
    return 0


@contextlib.contextmanager
def _owner(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection that acts as bds_owner.  Raises ServiceError(forbidden)."""
    try:
        connection = connections.connect(url, "bds_owner")
    except psycopg.errors.InsufficientPrivilege:
        raise ServiceError("forbidden", "only a member of bds_owner dumps and restores companies") from None
    with connection:
        yield connection


@contextlib.contextmanager
def _private(path: str | None) -> Iterator[BinaryIO]:
    """A file or standard output that nobody else can read: a dump contains the secrets of hooks.  Raises ServiceError, OSError."""
    if path is None:
        stdio.require_output()
        if sys.stdout.isatty():
            raise ServiceError("malformed_request", "a dump is not shown on a terminal: expected a pipe, or --output FILE")
    with stdio.output(path) as out:
        if stat.S_ISREG(os.fstat(out.fileno()).st_mode):
            os.fchmod(out.fileno(), 0o600)
        yield out


@contextlib.contextmanager
def _shown(phase: str) -> Iterator[dump.Show]:
    progress = Progress()
    try:
        yield lambda table, size: progress.show(phase, None, f"{table}, {size / 1e6:,.1f} MB")
    finally:
        progress.close()


COMMANDS = (
    Command(
        "company create",
        create_company,
        "create a company",
        "  bds company create acme --tenant acme-group",
        (
            argument("id", metavar="ID", help="1 to 63 characters of a-z 0-9 - _"),
            argument("--tenant", help="the tenant that it belongs to; created if it does not exist"),
            argument("--place", metavar="NAME", help="the place on which it lives (the smallest one that is not drained)"),
        ),
    ),
    Command(
        "company list",
        list_companies,
        "list companies",
        "  bds company list                             ids, tenants, the number of changes and the time of the last one",
    ),
    Command(
        "company delete",
        delete_company,
        "delete a company with everything of it, its change log too",
        """\
  bds company delete acme --yes
Refused while an import is under way. Keys and users of this company alone are deleted, too.""",
        (
            argument("id", metavar="ID", help="the company"),
            argument("--yes", action="store_true", help="really delete it; there is no way back but a dump"),
        ),
    ),
    Command(
        "company dump",
        dump_company,
        "write a company into a pipe or a file: its rows, log, hooks with secrets, mappers, reports and keys of it alone",
        """\
  bds company dump acme --output acme.dump
  bds company dump acme | BDS_DATABASE_URL=postgresql://owner@other/bds bds company restore
Only the owner may dump. It is one snapshot; everybody goes on meanwhile.""",
        (
            argument("id", metavar="ID", help="the company"),
            argument("--output", "-o", metavar="FILE", help="file to write, with mode 0600 (standard output)"),
        ),
    ),
    Command(
        "company restore",
        restore_company,
        "create a company from its dump, in a database of the same version",
        """\
  bds company restore acme.dump
All or nothing; a company that exists is refused. Ids, the log and its clock go on where they were.""",
        (
            argument("file", metavar="FILE", nargs="?", default="-", help="a dump (standard input)"),
            argument("--hooks", action="store_true", help="keep hooks enabled, and what is queued for them (they are disabled)"),
        ),
    ),
)
