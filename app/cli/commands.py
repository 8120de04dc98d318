"""The `bds` command: everything an operator does, each with --help.

Results go to standard output and nothing else does; what is going on goes to standard error.  Exit codes: 0 done, 1 failed, 2 wrong
usage, 3 an import of which some records failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from app import auth, logs
from app.auth.key_admin import check_key_name
from app.cli import accounts, demo, printed, stdio
from app.cli.arguments import (
    SCOPES,
    Parser,
    read_count,
    read_format,
    read_id,
    read_name,
    read_port,
    read_processes,
    read_scopes,
    undecodable,
)
from app.cli.explain import explain
from app.cli.help import EXAMPLES, OVERVIEW
from app.cli.imports import run_import
from app.cli.progress import Progress
from app.config import Config
from app.database import connections, embedded, migrate
from app.errors import SQLSTATES, ServiceError
from app.export.request import FORMATS
from app.tasks import Stopped, interruptible

FAILED, PARTIAL = 1, 3
QUERY = ("filter", "select", "orderby", "expand", "top", "skip")  # OData's options of an export

Command = Callable[[argparse.Namespace, Config], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    stdio.hold()
    logs.start()
    try:
        options = _read(arguments)
        code: int = options.command(options, Config.load())
        return code
    except ServiceError as error:
        return _fail(error.message)
    except psycopg.Error as error:
        return _fail(error.diag.message_primary if error.sqlstate in SQLSTATES else str(error), error.diag.message_hint)
    except OSError as error:
        where, what = error.filename, (error.strerror or "").lower()
        return _fail(f"{where}: {what}" if where and what else what or str(error))
    except (ValueError, migrate.MigrationError) as error:
        return _fail(str(error))
    except Stopped as stopped:
        stdio.say(f"bds: {stopped}")
        return 0
    except KeyboardInterrupt:
        return _fail("interrupted")


def _fail(message: str | None, hint: str | None = None) -> int:
    stdio.say(f"bds: {(message or 'failed').strip()}" + (f"\n     {hint}" if hint else ""))
    return FAILED


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line.  Raises SystemExit when it is wrong, and after help; OSError if that cannot be written."""
    top = parser()
    options = top.parse_args(arguments)
    wrong = undecodable(options)
    if wrong:
        top.error(wrong)
    return options


# Commands -------------------------------------------------------------------------------------------------------------------------


def migrate_database(options: argparse.Namespace, config: Config) -> int:
    url = config.database_url or embedded.start(config.data_dir)
    for name in migrate.migrate(url):
        stdio.say(f"sql/{name}")
    return 0


def serve(options: argparse.Namespace, config: Config) -> int:
    from app.service import processes, server  # the only commands that need the web's packages

    logs.start(config)

    def announce(host: str, port: int) -> None:
        stdio.say(f"serving on {_base(host, port)}")

    if options.processes > 1:
        return processes.serve(config, options.host, options.port, options.processes, announce, worker=not options.no_worker)
    server.serve(config, options.host, options.port, announce, worker=not options.no_worker)
    return 0


def work(options: argparse.Namespace, config: Config) -> int:
    import uvloop

    from app.service import server

    logs.start(config)
    uvloop.run(server.work(config, lambda: stdio.say("delivering webhooks")))
    return 0


def _connect(config: Config) -> psycopg.Connection[Any]:
    return connections.connect(connections.resolve(config))


def create_company(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection:
        connection.execute("select bds.create_company(%s, %s)", (options.id, options.tenant))
    return 0


def create_key(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection, connection.transaction():  # a key that could not be printed is not kept
        stdio.put(_new_key(connection, options.name, options.company, options.scope, options.expires) + "\n")
    return 0


def list_keys(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection:
        rows = connection.execute(accounts.KEYS).fetchall()
    stdio.put(printed.table(("id", "name", "companies", "scopes", "created (UTC)", "used", "expires", "state"), rows))
    return 0


def revoke_key(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection:
        row = connection.execute("select bds.revoke_key(%s::uuid)", (options.id,)).fetchone()
    return 0 if row == (True,) else _fail(f"there is no valid key {options.id}")


def create_user(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection, connection.transaction():  # nor is a password
        made = accounts.create_user(connection, options.email, options.company)
        if made:
            stdio.put(made)
    return 0


def change_password(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection, connection.transaction():  # nor is a password
        made = accounts.change_password(connection, options.email)
        if made:
            stdio.put(made)
    return 0


def list_users(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection:
        rows = connection.execute(accounts.USERS).fetchall()
    stdio.put(printed.table(("email", "companies", "created (UTC)", "last login"), rows))
    return 0


def delete_user(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection:
        accounts.delete_user(connection, options.email)
    return 0


def explain_request(options: argparse.Namespace, config: Config) -> int:
    stdio.put(explain(config, options.path) + "\n")
    return 0


def print_dsn(options: argparse.Namespace, config: Config) -> int:
    stdio.put(connections.resolve(config) + "\n")
    return 0


def stop(options: argparse.Namespace, config: Config) -> int:
    if config.database_url:
        return _fail("the database of BDS_DATABASE_URL is not ours to stop")
    return 0 if embedded.stop(config.data_dir) else _fail(f"no PostgreSQL runs in {config.data_dir}")


def import_file(options: argparse.Namespace, config: Config) -> int:
    stdio.require_output()  # what is imported cannot be taken back
    size = None if options.file == "-" else Path(options.file).stat().st_size
    with stdio.binary_input() if options.file == "-" else Path(options.file).open("rb") as file:
        url = connections.resolve(config)
        with interruptible():
            report = run_import(url, config, options.company, file, size, dry_run=options.dry_run, mapper=options.mapper)
    try:
        if options.json:
            stdio.put(json.dumps(report, ensure_ascii=not stdio.is_unicode(), indent=2) + "\n")
        else:
            stdio.put(printed.report(report))
    except OSError:
        stdio.say(f"bds: {printed.ended(report)}; its report could not be written")
        raise
    return {"completed": 0, "partial": PARTIAL}.get(report["state"], FAILED)


def export_rows(options: argparse.Namespace, config: Config) -> int:
    from app.cli import exports  # with the formats' packages

    if options.mapper is None and options.format in (None, "custom"):
        options.refuse(
            f"expected --mapper, or --format: one of {', '.join(FORMATS)}"
            if options.format is None
            else "--format custom: expected --mapper"
        )
    given = {"format": options.format, "mapper": options.mapper} | {f"${name}": getattr(options, name) for name in QUERY}
    given = {name: value for name, value in given.items() if value is not None}
    if options.output is None:
        stdio.require_output()
    if options.output is None and sys.stdout.isatty() and options.format in ("excel", "pdf"):
        return _fail(f"{options.format} is not for a terminal: expected --output FILE")
    progress = Progress()

    def show(rows: int, total: int, size: int) -> None:
        progress.show("exporting", min(1.0, rows / total) if total else None, f"{rows:,} rows, {size / 1e6:,.1f} MB")

    try:
        with exports.output(options.output) as out:
            exports.run(connections.resolve(config), config, options.company, options.entity, given, out, show)
    finally:
        progress.close()
    return 0


def load_demo(options: argparse.Namespace, config: Config) -> int:
    stdio.require_output()
    url = connections.resolve(config)
    with connections.connect(url) as connection:
        if connection.execute("select from bds.companies where id = %s", (demo.COMPANY,)).fetchone() is None:
            connection.execute("select bds.create_company(%s)", (demo.COMPANY,))
        run_import(url, config, demo.COMPANY, demo.Stream(), None)
        with connection.transaction():
            connection.execute("select bds.revoke_key(id) from bds.api_keys where name = 'demo' and revoked_at is null")
            key = _new_key(connection, "demo", demo.COMPANY, list(SCOPES))
            password = accounts.keep_user(connection, demo.USER, [demo.COMPANY])
            if not options.serve:
                stdio.put(key + "\n")
    if not options.serve:
        stdio.say(f"in the browser: sign in as {demo.USER} with {password}")
        return 0
    return _serve_demo(options, config, key, password)


def _serve_demo(options: argparse.Namespace, config: Config, key: str, password: str) -> int:
    from app.service import server

    def announce(host: str, port: int) -> None:
        base = _base(host, port)
        stdio.put(
            f"URL:      {base}\ncompany:  {demo.COMPANY}\nAPI key:  {key}\n"
            f"sign in:  {base}/login as {demo.USER}\npassword: {password}\n\n"
            f"Try:      curl -u api:{key} '{base}/api/odata/{demo.COMPANY}/products?$top=2'\n"
            f"          psql '{connections.resolve(config)}' -c 'select * from bds.changes order by id desc limit 5'\n\n"
            "Ctrl-C ends it.\n"
        )

    logs.start(config)
    try:
        server.serve(config, options.host, options.port, announce)
    finally:
        if not config.database_url:
            embedded.stop(config.data_dir)
    return 0


# What they share ------------------------------------------------------------------------------------------------------------------


def _new_key(
    connection: psycopg.Connection[Any], name: str, company: str, scopes: list[str], expires: datetime | None = None
) -> str:
    check_key_name(name)
    key = auth.make_key()
    connection.execute("select bds.create_key(%s, %s, %s, null, %s, %s)", (auth.hash_key(key), name, [company], scopes, expires))
    return key


def _base(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


# The command line -----------------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    top = Parser(
        prog="bds",
        description="A company's business data straight from PostgreSQL.",
        epilog=OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(where: Any, name: str, command: Command, help: str) -> argparse.ArgumentParser:
        each: argparse.ArgumentParser = where.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        each.formatter_class = argparse.RawDescriptionHelpFormatter
        each.epilog = f"example:\n{EXAMPLES[each.prog.removeprefix('bds ')]}"
        each.set_defaults(command=command)
        return each

    def add_address(each: argparse.ArgumentParser) -> None:
        each.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
        each.add_argument("--port", type=read_port, default=8080, help="port to listen on, 0 for any free one (%(default)s)")

    each = add(commands, "serve", serve, "serve HTTP until SIGTERM, and deliver webhooks")
    add_address(each)
    each.add_argument(
        "--processes", type=read_processes, default=1, metavar="N", help="HTTP processes that share the address (%(default)s)"
    )
    each.add_argument("--no-worker", action="store_true", help="do not deliver webhooks: `bds worker` does")
    add(commands, "worker", work, "deliver webhooks until SIGTERM; any number of workers share the work")
    add(commands, "migrate", migrate_database, "bring the database up to this program's sql/; prints the files applied")

    company = commands.add_parser("company", help="make companies").add_subparsers(required=True, metavar="ACTION")
    each = add(company, "create", create_company, "make a company")
    each.add_argument("id", metavar="ID", help="1 to 63 characters of a-z 0-9 - _")
    each.add_argument("--tenant", help="the tenant that it belongs to; made if it is new")

    key = commands.add_parser("key", help="make, list and revoke API keys").add_subparsers(required=True, metavar="ACTION")
    each = add(key, "create", create_key, "make an API key and print it, this once")
    each.add_argument("--company", required=True, metavar="ID", help="the company that it opens")
    each.add_argument("--scope", type=read_scopes, default=list(SCOPES), help=f"what it may do: some of {','.join(SCOPES)} (all)")
    each.add_argument("--name", default="cli", help="what it is called in lists (%(default)s)")
    each.add_argument(
        "--expires", type=accounts.read_expiry, metavar="WHEN", help="2027-01-31, 2027-01-31T12:00Z, 90d, 12h (never)"
    )
    add(key, "list", list_keys, "list API keys")
    add(key, "revoke", revoke_key, "end an API key at once").add_argument(
        "id", type=read_id, metavar="ID", help="as `bds key list` shows it"
    )

    user = commands.add_parser("user", help="let people sign in").add_subparsers(required=True, metavar="ACTION")
    each = add(user, "create", create_user, "make a user; the password comes on standard input, or is made and printed")
    each.add_argument("email", metavar="EMAIL", help="how they sign in")
    each.add_argument("--company", required=True, action="append", metavar="ID", help="a company of theirs; may be repeated")
    each = add(user, "password", change_password, "give a user a new password; ends their sessions and tokens")
    each.add_argument("email", metavar="EMAIL")
    add(user, "list", list_users, "list users")
    add(user, "delete", delete_user, "delete a user; ends their sessions and tokens").add_argument("email", metavar="EMAIL")

    each = add(commands, "explain", explain_request, "print the SQL of an OData request, and PostgreSQL's plan for it")
    each.add_argument("path", metavar="PATH", help="as in a URL: '/api/odata/demo/products?$top=5'")
    add(commands, "dsn", print_dsn, "print the connection string of the database in use, for psql")
    add(commands, "stop", stop, "stop the embedded PostgreSQL")

    each = add(commands, "import", import_file, "import a document of desired values into a company")
    each.add_argument("file", metavar="FILE", help="a JSON import document, or what the mapper reads; - for standard input")
    each.add_argument("--company", required=True, metavar="ID")
    each.add_argument("--mapper", type=read_name, metavar="M", help="read XML, JSON or CSV by this mapper of the company")
    each.add_argument("--dry-run", action="store_true", help="report what would happen, write nothing")
    each.add_argument("--json", action="store_true", help="print the whole report as JSON")

    each = add(commands, "export", export_rows, "export a company's rows in any format")
    each.add_argument("entity", metavar="ENTITY", help="such as products")
    each.add_argument("--company", required=True, metavar="ID")
    each.add_argument(
        "--format", type=read_format, metavar="F", help="json, xml, csv, excel, pdf, html, custom, or xsd: the schema of the xml"
    )
    each.add_argument("--mapper", type=read_name, metavar="M", help="a template, or an import mapping to run backwards")
    each.add_argument("--output", "-o", metavar="FILE", help="where to (standard output); it is there when it is whole")
    for name in QUERY:
        kind = read_count if name in ("top", "skip") else str
        each.add_argument(f"--{name}", type=kind, metavar=name.upper(), help=f"as OData's ${name}")
    each.set_defaults(refuse=each.error)

    each = add(
        commands, "demo", load_demo, f"make the company {demo.COMPANY} with generated data; prints an API key and how to sign in"
    )
    each.add_argument("--serve", action="store_true", help="then serve, and stop the embedded PostgreSQL at the end")
    add_address(each)
    return top
