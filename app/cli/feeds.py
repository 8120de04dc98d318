"""The commands of imports: import a file, list and show imports, revert one; in the database, or with --url in a service."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from app.cli import stdio, tables, versions
from app.cli.arguments import LIMIT, read_id, read_idempotency_key, read_name
from app.cli.command import COMPANY, FAILED, PARTIAL, Command, argument
from app.cli.companies import require_company
from app.cli.remote import KEY_FILE, URL, given_service, segment
from app.config import Config
from app.database import connections
from app.errors import ServiceError
from app.formats import READABLE_LABELS, coding_of_file, entity_of_file, of_file
from app.query.check.moments import NOW, absolute
from app.tasks import interruptible
from app.types import exact_json

LIST = """
    select bds.import_report(i.company_id, i.id, false) from bds.imports i where i.company_id = %s order by i.number desc limit %s
"""
HEADER = ("id", "state", "started (UTC)", "seconds", "file", "mapper", "by", "written", "failed")


def import_file(options: argparse.Namespace, config: Config) -> int:
    from app.cli.imports import run_import, showing  # imported late: other commands need no import

    stdio.require_output()  # checked first: the import cannot be undone if its report cannot be written
    if options.mapper and options.entity:
        options.refuse("expected --entity or --mapper, got both: a mapper names its entities itself")
    service = given_service(options, config)
    if options.idempotency_key is not None and not service:
        options.refuse("expected --url beside --idempotency-key, which a service remembers")
    name = None if options.file == "-" else options.file
    entity = _entity(options, name)
    size = None if name is None else Path(name).stat().st_size
    try:
        with _opened(name) as file, interruptible(), showing(size) as show:
            if service:
                given = {"dryRun": "true" if options.dry_run else None, "mapper": options.mapper, "entity": entity}
                named = {name: value for name, value in given.items() if value}
                report = service.run_import(options.company, file, name, named, show, options.idempotency_key)
            else:
                how = {"name": name, "dry_run": options.dry_run, "mapper": options.mapper, "entity": entity}
                url = connections.resolve_company(config, options.company)
                report = run_import(url, config, options.company, file, show, **how)
    except ServiceError as error:
        if error.target == "entity" and options.entity is None:
            options.refuse(f"{options.file}: expected --entity or --mapper, or the name of an entity at its start; {error.message}")
        raise
    return _report(report, options)


def _entity(options: argparse.Namespace, name: str | None) -> str | None:
    """The entity that a file holds as an export writes it: the one that is given, or that the name of the file begins with."""
    if name is not None and coding_of_file(name):
        options.refuse(f"{name}: expected a file that is not compressed, or - for what another program decompresses")
    found = None if name is None or options.mapper else of_file(name)
    if options.entity or found is None:
        entity: str | None = options.entity
        return entity
    assert name is not None
    if (entity := entity_of_file(name)) is None:
        options.refuse(f"{name}: expected --entity or --mapper for a file of {found.label}")
    return entity


def _opened(name: str | None) -> AbstractContextManager[BinaryIO]:
    return stdio.binary_input() if name is None else Path(name).open("rb")


def revert_import(options: argparse.Namespace, config: Config) -> int:
    from app.cli.imports import run_revert, showing

    stdio.require_output()  # as for an import
    service = given_service(options, config)
    with interruptible(), showing(None) as show:
        if service:
            given = {"dryRun": str(options.dry_run).lower(), "force": str(options.force).lower()}
            report = service.revert(options.company, options.id, given, show)
        else:
            url = connections.resolve_company(config, options.company)
            how = {"dry_run": options.dry_run, "force": options.force}
            report = run_revert(url, config, options.company, {"changeSet": options.id}, show, **how)
    return _report(report, options)


def go_back(options: argparse.Namespace, config: Config) -> int:
    """`bds revert`: undo a range of changes, or a change set."""
    from app.cli.imports import run_revert, showing

    given = {"to": options.to, "from": options.since, "changeSet": options.change_set, "actor": options.actor}
    selection: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    selection |= {name: values for name, values in (("entities", options.entity), ("rows", options.row)) if values}
    if not selection.keys() & {"to", "from", "changeSet"}:
        options.refuse("expected --to, --from or --change-set")
    if "changeSet" in selection and selection.keys() & {"to", "from"}:
        options.refuse("--change-set: expected it without --to and --from")
    if "actor" in selection and "to" in selection and "from" not in selection:
        options.refuse("--actor: expected no actor with --to alone: rows become as they were, whoever changed them")
    stdio.require_output()
    service = given_service(options, config)
    if NOW in (options.to, options.since):
        last = versions.last_version(options, config, service)
        selection |= {name: last for name in ("to", "from") if selection.get(name) == NOW}
    with interruptible(), showing(None) as show:
        if service:
            report = service.go_back(options.company, {**selection, "dryRun": options.dry_run, "force": options.force}, show)
        else:
            url = connections.resolve_company(config, options.company)
            report = run_revert(url, config, options.company, selection, show, dry_run=options.dry_run, force=options.force)
    return _report(report, options)


def list_imports(options: argparse.Namespace, config: Config) -> int:
    if service := given_service(options, config):
        page = service.get(f"/api/{segment(options.company)}/imports?limit={options.limit}")
        found, has_more = page["data"], page["hasMore"]
    else:
        with connections.connect(connections.resolve_company(config, options.company)) as connection:
            require_company(connection, options.company)
            rows = connection.execute(LIST, (options.company, options.limit + 1)).fetchall()
        found, has_more = [report for (report,) in rows[: options.limit]], len(rows) > options.limit
    if options.json:
        stdio.write_records(found)
    else:
        stdio.write(tables.table(HEADER, [_line(each) for each in found]))
    if has_more:
        stdio.tell_more("imports", options.limit)
    return 0


def _line(report: dict[str, Any]) -> tuple[Any, ...]:
    started = report["startedAt"][:16].replace("T", " ")
    counts = report["entities"].values()
    written = sum(each[verb] for each in counts for verb in ("created", "updated", "deleted"))
    state = report["state"] + (", dry run" if report["dryRun"] else "")
    origin = (report["file"] or "", report["mapper"] or "", report["actor"] or "")
    return (
        report["importId"],
        state,
        started,
        tables.seconds(report),
        *origin,
        f"{written:,}",
        sum(each["failed"] for each in counts),
    )


def show_import(options: argparse.Namespace, config: Config) -> int:
    if service := given_service(options, config):
        report = service.get(f"/api/{segment(options.company)}/imports/{segment(options.id)}")
    else:
        with connections.connect(connections.resolve_company(config, options.company)) as connection:
            row = connection.execute("select bds.import_report(%s, %s)", (options.company, options.id)).fetchone()
        assert row is not None
        report = row[0]
    _report(report, options)
    return 0


def _report(report: dict[str, Any], options: argparse.Namespace) -> int:
    """Print the report of an import; returns the exit code."""
    try:
        if options.json:
            stdio.write(exact_json.dumps(report, ensure_ascii=not stdio.is_unicode(), indent=2) + "\n")
        else:
            stdio.write(tables.import_report(report))
    except OSError:
        stdio.message(f"bds: {tables.import_outcome(report)}; its report could not be written")
        raise
    return {"completed": 0, "partial": PARTIAL}.get(report["state"], FAILED)


ID = argument("id", type=read_id, metavar="ID", help="the import, or the change set")
JSON = argument("--json", action="store_true", help="print the whole report as JSON")
DRY_RUN = argument("--dry-run", action="store_true", help="report what would happen, write nothing")

COMMANDS = (
    Command(
        "import list",
        list_imports,
        "list the imports of a company, newest first",
        "  bds import list --company acme\n  bds import list --company acme --limit 1000 --json",
        (COMPANY, LIMIT, argument("--json", action="store_true", help="print JSON, a line for each import"), URL, KEY_FILE),
    ),
    Command(
        "import show",
        show_import,
        "print the report of an import, with its first errors",
        "  bds import show 4f0c2a6e-... --company acme\nA file of this name is ./show.",
        (ID, COMPANY, JSON, URL, KEY_FILE),
    ),
    Command(
        "import revert",
        revert_import,
        "undo an import or any other change set, as an import of its own",
        """\
  bds import revert 4f0c2a6e-... --company acme --dry-run
  bds import revert 4f0c2a6e-... --company acme --force
Rows that were changed later stay unless --force, and so do rows to which others refer. Undoing it again restores the import. A file
of this name is ./revert.""",
        (
            ID,
            COMPANY,
            DRY_RUN,
            argument("--force", action="store_true", help="undo rows that were changed later, too"),
            JSON,
            URL,
            KEY_FILE,
        ),
    ),
    Command(
        "revert",
        go_back,
        "undo changes: back to a version, a range of changes, a change set; as an import of its own",
        """\
  bds revert acme --to yesterday --dry-run             what would change
  bds revert acme --to 2026-11-20T08:00Z --entity products
  bds revert acme --from -2h --actor anna@example.com
Rows of a range that were changed later stay unless --force. What was registered later stays as it is.""",
        (
            argument("company", metavar="COMPANY", help="the company"),
            argument("--to", type=absolute, metavar="WHEN", help="the version to go back to; with --from the end of the range"),
            argument("--from", dest="since", type=absolute, metavar="WHEN", help="undo the changes after this version"),
            argument("--change-set", type=read_id, metavar="ID", help="undo this change set"),
            argument(
                "--entity", action="append", default=[], metavar="E", help="an entity alone, with its children; may be repeated"
            ),
            argument(
                "--row",
                action="append",
                default=[],
                metavar="E/LOOKUP",
                help="a row alone, such as products/code:A1; the same",
            ),
            argument("--actor", metavar="NAME", help="the changes of this actor alone"),
            DRY_RUN,
            argument("--force", action="store_true", help="undo rows that were changed later, too"),
            JSON,
            URL,
            KEY_FILE,
        ),
    ),
    Command(
        "import",
        import_file,
        "import a document of desired values into a company",
        """\
  bds import feed.json --company acme --dry-run
  bds import catalog.xml --company acme --mapper catalog
  bds import products.xlsx --company acme            what an export of products wrote; else --entity products
  zcat feed.json.gz | bds import - --company acme --json
  BDS_KEY=... bds import feed.json --company acme --url https://data.example.com""",
        (
            argument("file", metavar="FILE", help="a JSON import document, or the mapper's source; - for standard input"),
            COMPANY,
            argument(
                "--entity",
                metavar="E",
                help=f"read {READABLE_LABELS} as `bds export E` writes it (the entity with which such a file's name begins)",
            ),
            argument("--mapper", type=read_name, metavar="M", help="read XML, JSON, CSV or Excel with this mapper of the company"),
            DRY_RUN,
            argument(
                "--idempotency-key",
                type=read_idempotency_key,
                metavar="KEY",
                help="with --url: import it once, however often it is sent with this key within a day",
            ),
            JSON,
            URL,
            KEY_FILE,
        ),
    ),
)
