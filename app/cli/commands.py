"""The functions of commands of `bds`; app/cli/parser.py has their options."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from app import extras, logs
from app.auth.keys import check_key_name, hash_key, make_key
from app.cli import accounts, demo, doctor, heads, stdio, tables, versions
from app.cli.arguments import SCOPES
from app.cli.command import FAILED
from app.cli.progress import Progress
from app.cli.remote import given_service
from app.config import Config
from app.database import connections, embedded, migrate, roles, units, waiting
from app.database.caller import acting
from app.formats import CUSTOM, FORMATS, PDF
from app.places import administration, cluster
from app.query.check.moments import NOW
from app.tasks import interruptible

QUERY = ("filter", "select", "orderby", "expand", "top", "skip")  # options of an export, as OData has them


def migrate_database(options: argparse.Namespace, config: Config) -> int:
    if options.plan and options.roles:
        options.refuse("--roles: prints statements and changes nothing, expected it without --plan")
    home = config.database_url or embedded.start(config.data_dir)
    if options.roles:
        for url in {**migrate.other_places(home), "": home}.values():
            stdio.write_exact(roles.statements(url))
        return 0
    is_cluster = cluster.is_coordinator(home)
    code = 0
    for place, url in {**migrate.other_places(home), "": home}.items():
        at = f"{place}: " if place else ""
        reasons, steps = "", list[migrate.Step]()
        try:
            names = migrate.plan(url, steps) if options.plan else migrate.migrate(url)
        except migrate.BrokenEntities as error:  # the other entities and places are brought up to date
            names, reasons, code = error.applied, f"bds: {at}{error}", 1
        about = {each.name: _told(each) for each in steps}
        for name in names:
            stdio.message(at + (f"entity {name}" if ": " in name else f"sql/{name}") + about.get(name, ""))
        if reasons:
            stdio.message(reasons)
    if is_cluster:
        for step in cluster.plan(home) if options.plan else cluster.arrange(home):
            stdio.message(step)
    return code


def _told(step: migrate.Step) -> str:
    """How long a step of a plan took, and what it locks."""
    if ": " in step.name:
        return f": locks the entity's table for a moment, waits {waiting.LOCK_TIMEOUT} for that at most and tries again"
    if not step.seconds:
        return ""
    duration = f"{step.seconds / 60:.1f} min" if step.seconds >= 60 else f"{step.seconds:.1f} s"
    with_functions = ", with all functions" if step.name == units.LAST else ""
    return f": {duration}{with_functions}" + (f", locks {', '.join(step.locks)}" if step.locks else "")


def serve(options: argparse.Namespace, config: Config) -> int:
    logs.start(config)

    def announce(host: str, port: int) -> None:
        stdio.message(f"serving on {_base(host, port)}")

    # imported late: only these commands need the web packages
    if options.processes > 1:
        from app.service import processes

        with acting(""):
            return processes.serve(config, options.host, options.port, options.processes, announce, worker=not options.no_worker)
    from app.service import server

    with acting(""):  # what a service does by itself has no actor
        server.serve(config, options.host, options.port, announce, worker=not options.no_worker)
    return 0


def work(options: argparse.Namespace, config: Config) -> int:
    import uvloop

    from app.service import server

    logs.start(config)
    with acting(""):
        uvloop.run(server.run_worker(config, lambda: stdio.message("delivering webhooks")))
    return 0


def _connect(config: Config) -> psycopg.Connection[Any]:
    return connections.connect(connections.resolve(config))


def create_key(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection, connection.transaction():  # a key that could not be printed is not kept
        stdio.write(_new_key(connection, options.name, options.company, options.scope, options.expires) + "\n")
    return 0


def list_keys(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection:
        rows = connection.execute(accounts.KEYS).fetchall()
    stdio.write(tables.table(("id", "name", "companies", "scopes", "created (UTC)", "used", "expires", "state"), rows))
    return 0


def revoke_key(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection:
        row = connection.execute("select bds.revoke_key(%s::uuid)", (options.id,)).fetchone()
        if row == (True,):
            return 0
        query = "select bds_service.api_time(revoked_at) from bds.api_keys where id = %s::uuid"
        row = connection.execute(query, (options.id,)).fetchone()
    return fail(f"key {options.id} was revoked at {row[0]}" if row else f"no key has the id {options.id}")


def _require_access(options: argparse.Namespace) -> None:
    if not (options.company or options.administrator):
        raise ValueError("expected --company ID, or --administrator: another user without a company has nothing to see")


def create_user(options: argparse.Namespace, config: Config) -> int:
    _require_access(options)
    with _connect(config) as connection, connection.transaction():  # a password that could not be printed is not kept
        made = accounts.create_user(connection, options.email, options.company, options.administrator)
        if made:
            stdio.write(made + "\n")
    return 0


def change_password(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection, connection.transaction():  # a password that could not be printed is not kept
        made = accounts.change_password(connection, options.email)
        if made:
            stdio.write(made + "\n")
    return 0


def list_users(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection:
        rows = connection.execute(accounts.USERS).fetchall()
    stdio.write(tables.table(("email", "companies", "administrator", "created (UTC)", "last login"), rows))
    return 0


def set_access(options: argparse.Namespace, config: Config) -> int:
    _require_access(options)
    with _connect(config) as connection:
        accounts.set_access(connection, options.email, options.company, options.administrator)
    return 0


def delete_user(options: argparse.Namespace, config: Config) -> int:
    with _connect(config) as connection:
        accounts.delete_user(connection, options.email)
        has_administrator = connections.one_value(connection, "select exists (select from bds.users where is_administrator)")
    stdio.message(f"{options.email} can no longer sign in; API keys that this user created stay valid: bds key list")
    if not has_administrator:
        stdio.message("there is no administrator any more: bds user create EMAIL --administrator, or bds user access")
    return 0


def examine_database(options: argparse.Namespace, config: Config) -> int:
    beside = [name for name in ("--head", "--deep", "--json") if getattr(options, name[2:]) not in (None, False)]
    if options.print_heads and beside:
        options.refuse(f"--print-heads: expected it alone, got {beside[0]} beside it")
    urls = connections.urls_of_places(config)
    if options.print_heads:
        text, away = heads.print_heads(urls)
        stdio.write(text)
        for place in away:
            stdio.message(f"bds: {place} cannot be reached: its heads are missing")
        return FAILED if away else 0
    kept = [] if options.head is None else heads.read_heads(Path(options.head).read_bytes(), options.head)
    problems, compared = doctor.examine(urls, options.deep)
    problems += [dict.fromkeys(doctor.COLUMNS) | problem for problem in heads.missing_heads(urls, kept, options.head)]
    stdio.write((doctor.as_json if options.json else doctor.as_text)(problems, compared))
    return FAILED if problems else 0


def explain_request(options: argparse.Namespace, config: Config) -> int:
    from app.cli.explain import explain  # with the web packages, as above

    stdio.write(asyncio.run(explain(config, options.path)) + "\n")
    return 0


def print_dsn(options: argparse.Namespace, config: Config) -> int:
    stdio.write_exact(connections.resolve(config) + "\n")
    return 0


def stop(options: argparse.Namespace, config: Config) -> int:
    if config.database_url:
        return fail("bds stop stops the embedded server only; BDS_DATABASE_URL names another one")
    return 0 if embedded.stop(config.data_dir) else fail(f"no embedded PostgreSQL runs in {config.data_dir}")


def export_rows(options: argparse.Namespace, config: Config) -> int:
    from app.cli import exports  # imported late: the formats' packages are large

    _refuse_combinations(options)
    given = {name: getattr(options, name) for name in ("mapper", "ids", "versions", "at", "since")}
    given |= {"version": options.of_version, "format": options.format and options.format.name}
    given |= {f"${name}": getattr(options, name) for name in QUERY}
    given = {name: value for name, value in given.items() if value is not None and not (value == NOW and name in ("version", "at"))}
    service = given_service(options, config)
    if options.since == NOW:
        given["since"] = versions.last_version(options, config, service)
    if service is None and options.format:
        extras.require(options.format.extra)  # before the file is opened
    if options.output is None:
        stdio.require_output()
    if options.output is None and sys.stdout.isatty() and options.format and options.format.is_binary:
        return fail(f"{options.format.name} cannot be shown on a terminal: expected --output FILE")
    progress = Progress()

    def show(rows: int, total: int, size: int) -> None:
        phase = "laying out pages" if options.format is PDF and rows >= total > 0 else "exporting"
        counted = f"{rows:,} rows, " if total else ""
        progress.show(phase, rows / total if total else None, f"{counted}{size / 1e6:,.1f} MB")

    try:
        with stdio.output(options.output) as out:
            if service:
                service.export(options.company, options.entity, given, out, show)
            else:
                url = connections.resolve_company(config, options.company)
                exports.run(url, config, options.company, options.entity, given, out, show)
    finally:
        progress.close()
    return 0


def _refuse_combinations(options: argparse.Namespace) -> None:
    """Raise SystemExit for options of an export that do not go together."""
    if options.mapper is None and options.format in (None, CUSTOM):
        options.refuse(
            f"expected --mapper, or --format: one of {', '.join(FORMATS)}"
            if options.format is None
            else "--format custom: expected --mapper"
        )
    if options.since is None and (options.versions or options.entity == "diff"):
        options.refuse(f"{'--versions' if options.versions else options.entity}: expected --since, the earlier end")
    if options.of_version is not None and options.at is not None:
        options.refuse("--at: expected --version or --at, got both")


def follow_company(options: argparse.Namespace, config: Config) -> int:
    from app.cli import follow  # imported late: only this command needs an event loop

    stdio.require_output()
    if service := given_service(options, config):
        with interruptible(), contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
            service.follow(options.company, options.entity, options.after)
        return 0
    follow.run(connections.resolve_company(config, options.company), config, options.company, options.entity, options.after)
    return 0


def load_demo(options: argparse.Namespace, config: Config) -> int:
    from app.cli.imports import run_import, showing  # imported late, as in app/cli/feeds.py

    stdio.require_output()
    url = connections.resolve(config)
    with connections.connect(url) as connection:
        if connection.execute("select 1 from bds.companies where id = %s", (demo.COMPANY,)).fetchone() is None:
            administration.create_company(connections.urls_of_places(config), demo.COMPANY)
        with showing(None) as show:
            run_import(connections.resolve_company(config, demo.COMPANY), config, demo.COMPANY, demo.open_document(), show)
        with connection.transaction():
            connection.execute("select bds.revoke_key(id) from bds.api_keys where name = 'demo' and revoked_at is null")
            key = _new_key(connection, "demo", [demo.COMPANY], list(SCOPES))
            password = accounts.ensure_administrator(connection, demo.USER, [demo.COMPANY])
            if not options.serve:
                stdio.write(key + "\n")
    if not options.serve:
        stdio.message(f"in the browser: sign in as {demo.USER} with {password}")
        return 0
    return _serve_demo(options, config, key, password)


def _serve_demo(options: argparse.Namespace, config: Config, key: str, password: str) -> int:
    from app.service import server

    def announce(host: str, port: int) -> None:
        base = _base(host, port)
        stdio.write(
            f"URL:      {base}\ncompany:  {demo.COMPANY}\nAPI key:  {key}\n"
            f"sign in:  {base}/login as {demo.USER}\npassword: {password}\n\n"
            f"Try:      curl -u api:{key} '{base}/api/odata/{demo.COMPANY}/products?$top=2'\n"
            f"          psql '{connections.resolve(config)}' -c 'select * from bds.changes order by id desc limit 5'\n\n"
            "Press Ctrl-C to stop.\n"
        )

    logs.start(config)
    try:
        with acting(""):
            server.serve(config, options.host, options.port, announce)
    finally:
        if not config.database_url:
            embedded.stop(config.data_dir)
    return 0


# Helpers -------------------------------------------------------------------------------------------------------------------------


def fail(message: str | None, hint: str | None = None) -> int:
    """Print an error; returns the exit code."""
    stdio.message(f"bds: {(message or 'failed').strip()}" + (f"\n     {hint}" if hint else ""))
    return FAILED


def _new_key(
    connection: psycopg.Connection[Any], name: str, companies: list[str], scopes: list[str], expires: datetime | None = None
) -> str:
    check_key_name(name)
    key = make_key()
    connection.execute(
        "select bds.create_key(%s, %s, %s, null, %s, %s)",
        (hash_key(key), name, list(dict.fromkeys(companies)), scopes, expires),
    )
    return key


def _base(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
