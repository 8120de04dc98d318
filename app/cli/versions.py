"""`bds diff` and the names of versions: what changed between two moments, in the database."""

from __future__ import annotations

import argparse
from typing import Any

import psycopg

from app.cli import stdio, tables
from app.cli.arguments import WHEN
from app.cli.command import Command, argument
from app.cli.companies import require_company
from app.cli.remote import Remote
from app.config import Config
from app.database import connections
from app.errors import ServiceError, hint
from app.query.check.moments import NOW, absolute
from app.types import exact_json

COUNTED = ("created", "updated", "deleted")
VERSION = "select bds.version_of(%(company)s, %(when)s)"
LAST = "select v.last_id from bds_service.find_version(%(company)s) v"
FETCHED = 1_000  # rows at once
REGISTERED = """
    select e.name, v.registered_id is null
    from bds.entities e cross join lateral bds_service.find_version(%(company)s, %(since)s, entity => e.name) v
    order by e.ordinal
"""
COUNTS = """
    select e.name, count(*) filter (where d.operation = 'create'), count(*) filter (where d.operation = 'update'),
        count(*) filter (where d.operation = 'delete')
    from bds.entities e left join lateral bds.diff(%(company)s, e.name, %(since)s, %(until)s) d on true
    where e.name = any(%(known)s)
    group by e.name, e.ordinal order by e.ordinal
"""
GENERATION = "select coalesce(max(p.generation), 1) from bds.company_positions p where p.company_id = %s"
# all changes in between are read, so the last ones of rows are found at once; and each row by its index
RANGE = """
    select bds.set_range(%(company)s, %(since)s, %(until)s), set_config('bds.grouped_after', %(since)s::bigint::text, true),
        set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true),
        set_config('enable_mergejoin', 'off', true)
"""
NAMES = """
    select v.name, v.version, coalesce(to_char(v.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'), ''),
        to_char(v.created_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI'), v.actor
    from bds.versions v where v.company_id = %s order by v.created_at desc, v.name
"""


def version_of(connection: psycopg.Connection[Any], company: str, when: str) -> int:
    """Resolve a version, its name, a time or `now` to a version.  Raises psycopg.Error."""
    row = connection.execute(LAST if when == NOW else VERSION, {"company": company, "when": when}).fetchone()
    assert row is not None
    version: int = row[0]
    return version


def last_version(options: argparse.Namespace, config: Config, service: Remote | None) -> str:
    """The last version of the command's company.  Raises psycopg.Error, ServiceError, OSError."""
    if service:
        return service.last_version(options.company)
    with connections.connect(connections.resolve_company(config, options.company)) as connection:
        return str(version_of(connection, options.company, NOW))


def show_difference(options: argparse.Namespace, config: Config) -> int:
    with connections.connect(connections.resolve_company(config, options.company)) as connection, connection.transaction():
        connection.execute("set transaction isolation level repeatable read, read only")
        ends = {"company": options.company, "since": version_of(connection, options.company, options.since)}
        ends["until"] = version_of(connection, options.company, options.until)
        if options.entity is None:
            _print_counts(connection, ends, as_json=options.json)
        else:
            _print_rows(connection, ends, options.entity, as_json=options.json)
    return 0


def _print_counts(connection: psycopg.Connection[Any], ends: dict[str, Any], *, as_json: bool) -> None:
    entities = connection.execute(REGISTERED, ends).fetchall()
    notices = [f"{name} was not registered at version {ends['since']}" for name, is_known in entities if not is_known]
    counts = connection.execute(COUNTS, {**ends, "known": [name for name, is_known in entities if is_known]}).fetchall()
    if as_json:  # as GET /c/{companyId}/diff answers it
        [(generation,)] = connection.execute(GENERATION, (ends["company"],)).fetchall()
        shown = {name: dict(zip(COUNTED, numbers, strict=True)) for name, *numbers in counts}
        named = {"since": ends["since"], "version": ends["until"], "generation": generation}
        stdio.write_records([{**named, "entities": shown, "notices": notices}])
        return
    for notice in notices:
        stdio.message(f"notice: {notice}")
    stdio.write(f"from version {ends['since']:,} to {ends['until']:,}\n")
    if counts := [each for each in counts if any(each[1:])]:
        stdio.write(tables.table(("entity", *COUNTED), [(n, *(f"{c:,}" for c in each)) for n, *each in counts]))
    else:
        stdio.write("nothing differs\n")


def _print_rows(connection: psycopg.Connection[Any], ends: dict[str, Any], name: str, *, as_json: bool) -> None:
    from app.database.past import model_of  # imported late: other commands compile no statements
    from app.query.sql.difference import Difference, records

    catalog = model_of(connections.read_catalog(connection))
    if name not in catalog:
        raise ServiceError("not_found", f"no such entity: {name}{hint(name, catalog.entities)}")
    connection.execute(RANGE, ends)
    with connection.cursor("difference") as cursor:
        cursor.itersize = FETCHED
        for _, text in cursor.execute(records(catalog, ends["company"], Difference(catalog[name]))):
            record = exact_json.loads(text)
            if as_json:
                stdio.write_records([record])
            else:
                stdio.write(_line(record) + "\n")


def _line(record: dict[str, Any]) -> str:
    """A row that differs, in a line: an update with both values of each field, else the fields that are not null."""
    operation, columns, old, new = (record[name] for name in ("operation", "columns", "old", "new"))
    if operation == "update":
        changes = [f"{name}: {_shown(old[name])} -> {_shown(new[name])}" for name in columns]
    else:
        whole = new if operation == "create" else old
        changes = [
            f"{name}: {_shown(whole[name])}" for name in columns if name not in ("id", "updatedAt") and whole[name] is not None
        ]
    return f"{operation} {record['rowId']}  {tables.printable('; '.join(changes))}"


def _shown(value: Any) -> str:
    return exact_json.dumps(value, ensure_ascii=not stdio.is_unicode())


def put_version(options: argparse.Namespace, config: Config) -> int:
    with connections.connect(connections.resolve_company(config, options.company)) as connection, connection.transaction():
        version = version_of(connection, options.company, options.when)
        connection.execute("select bds.name_version(%s, %s, %s)", (options.company, options.name, version))
    stdio.message(f"{options.name} is version {version:,}")
    return 0


def delete_version(options: argparse.Namespace, config: Config) -> int:
    with connections.connect(connections.resolve_company(config, options.company)) as connection:
        row = connection.execute("select bds.forget_version(%s, %s)", (options.company, options.name)).fetchone()
    if row is None or not row[0]:
        raise ServiceError("not_found", f"no version is called {options.name!r}")
    return 0


def list_versions(options: argparse.Namespace, config: Config) -> int:
    with connections.connect(connections.resolve_company(config, options.company)) as connection:
        require_company(connection, options.company)
        rows = connection.execute(NAMES, (options.company,)).fetchall()
    stdio.write(tables.table(("name", "version", "at (UTC)", "named (UTC)", "by"), rows))
    return 0


COMPANY = argument("company", metavar="COMPANY", help="the company")
NAME = argument("name", metavar="NAME", help="a letter and up to 62 of A-Z a-z 0-9 _ -")
COMMANDS = (
    Command(
        "diff",
        show_difference,
        "show what differs between two moments: how many rows of each entity, or an entity's rows",
        """\
  bds diff acme --since yesterday                      how many rows of each entity
  bds diff acme products --since 2026-11-01            each product that differs, with its old and new values
  bds diff acme products --since year-end --until -7d --json""",
        (
            COMPANY,
            argument("entity", metavar="ENTITY", nargs="?", help="an entity; without it, the counts of all"),
            argument("--since", required=True, type=absolute, metavar="WHEN", help=WHEN),
            argument("--until", default="now", type=absolute, metavar="WHEN", help="the same (now)"),
            argument("--json", action="store_true", help="print JSON, a line for each row"),
        ),
    ),
    Command(
        "version put",
        put_version,
        "give a version a name, or move the name to it",
        "  bds version put acme year-end --when 2026-12-31T23:00Z",
        (COMPANY, NAME, argument("--when", default="now", type=absolute, metavar="WHEN", help=f"{WHEN} (now)")),
    ),
    Command("version list", list_versions, "list the names of versions", "  bds version list acme", (COMPANY,)),
    Command(
        "version delete", delete_version, "take a name from its version", "  bds version delete acme year-end", (COMPANY, NAME)
    ),
)
