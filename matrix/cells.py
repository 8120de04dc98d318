"""The cells: each a database on one server, and what is done with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from matrix.servers import PACKAGE, USER, Cluster, Source, cluster
from matrix.work import NotRun, Wrong, as_user, bds, expect, journey, unused_port

C_UTF8 = "locale_provider libc locale 'C.UTF-8'"
TURKISH = "locale_provider libc locale 'tr_TR.utf8'"
TURKISH_ICU = "locale_provider icu icu_locale 'tr-TR' locale 'C.UTF-8'"
GERMAN_ICU = "locale_provider icu icu_locale 'de-DE' locale 'C.UTF-8'"
BUILTIN = "locale_provider builtin builtin_locale 'C.UTF-8' locale 'C'"
ROLES = "grant bds_reader, bds_writer, bds_service, bds_worker to {0}; grant connect on database {1} to {0}"
PGBOUNCER = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")

Run = Callable[[Cluster], list[Any] | None]  # what every cell must give; None: it gives nothing to compare


@dataclass(frozen=True, slots=True)
class Cell:
    """source: package, npm17 or npm18."""

    name: str
    source: str
    run: Run
    is_quick: bool = False


def create(server: Cluster, options: str, owner: str = "postgres", name: str = "service", encoding: str = "UTF8") -> str:
    """A new database; returns the owner's connection string.  Raises NotRun for a locale that the machine or the server lacks."""
    statement = sql.SQL("create database {} owner {} template template0 encoding {} " + options)
    with psycopg.connect(server.url(), autocommit=True) as connection:
        try:
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(owner), encoding))
        except psycopg.Error as error:
            if error.sqlstate in ("22023", "42809", "0A000"):
                raise NotRun(error.diag.message_primary) from error
            raise
    return as_user(server.url(name), owner)


def execute(server: Cluster, *statements: str) -> None:
    """Statements of the superuser, each in a transaction of its own."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def psql(url: str, *words: str, input: str | None = None) -> str:
    program = PACKAGE / "psql"
    if not program.exists():
        raise NotRun("the package has no psql")
    words = (str(program), "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", url, *words)
    done = subprocess.run(words, input=input, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise Wrong(f"psql: {done.stderr[-600:].strip()}")
    return done.stdout


def in_locale(options: str) -> Run:
    return lambda server: journey(create(server, options))


def refused(encoding: str) -> Run:
    def run(server: Cluster) -> None:
        said = bds(create(server, "locale_provider libc locale 'C'", encoding=encoding), "migrate", code=1).stderr
        if f"has the encoding {encoding}, expected UTF8" not in said or "create database" not in said:
            raise Wrong(f"bds migrate: expected a sentence about the encoding, got {said!r}")
        expect(
            "tables in the database",
            psql(server.url("service"), "-c", "select count(*) from pg_tables where schemaname = 'public'"),
            "0\n",
        )

    return run


def owner_with_createrole(server: Cluster) -> list[Any]:
    execute(server, "create role carla login createrole createdb")
    url = create(server, C_UTF8, "carla")
    bds(url, "migrate")
    psql(url, "-c", "create role app login", "-c", ROLES.format("app", "service"))
    return journey(url, as_user(url, "app"))


def owner_without_createrole(server: Cluster) -> list[Any]:
    execute(server, "create role paul login", "create role app login")
    url = create(server, C_UTF8, "paul")
    said = bds(url, "migrate", code=1).stderr
    if "`bds migrate --roles`" not in said:
        raise Wrong(f"bds migrate: expected a sentence that names bds migrate --roles, got {said!r}")
    expect("schemas after the refusal", psql(url, "-c", "select count(*) from pg_namespace where nspname ~ '^bds'"), "0\n")
    for _ in range(2):
        psql(server.url(), input=bds(url, "migrate", "--roles").stdout)
    bds(url, "migrate")
    psql(url, "-c", ROLES.format("app", "service"))  # the owner may grant the roles to logins
    return journey(url, as_user(url, "app"))


def two_services(server: Cluster) -> list[Any]:
    """A second owner with a database of its own; a login that reaches both databases is reported in each."""
    execute(server, *(f"create role {name} login" for name in ("first", "second", "app")))
    urls = {name: create(server, C_UTF8, name, name) for name in ("first", "second")}
    for url in urls.values():
        bds(url, "migrate", code=1)
        psql(server.url(), input=bds(url, "migrate", "--roles").stdout)
        bds(url, "migrate")
    psql(urls["first"], "-c", ROLES.format("app", "first"))
    for name in ("first", "app"):
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(as_user(urls["second"], name)).close()
            raise Wrong(f"{name} may connect to database second, which has another service")
    given = journey(urls["first"], as_user(urls["first"], "app"))
    bds(urls["second"], "doctor")
    psql(urls["second"], "-c", "grant connect on database second to app")
    for name, other in (("first", "second"), ("second", "first")):
        said = bds(urls[name], "doctor", code=1).stdout
        if "shared login: app" not in said or f"revoke connect on database {other} from app" not in said:
            raise Wrong(f"bds doctor of {name}: expected the login app, got {said!r}")
    return given


def dump(former: Source) -> Run:
    """A dump of an older server; bds migrate, and what bds doctor says, heal all that is to be healed."""

    def run(server: Cluster) -> list[Any]:
        with cluster(former) as old:
            given = journey(create(old, C_UTF8))
            programs = {name: str(PACKAGE / name) for name in ("pg_dump", "pg_restore")}
            path = server.directory / "service.dump"
            for words in (
                [programs["pg_dump"], "--format=custom", "--file", str(path), old.url("service")],
                [programs["pg_restore"], "--exit-on-error", "--dbname", restored(server), str(path)],
            ):
                done = subprocess.run(words, capture_output=True, text=True, timeout=120)
                if done.returncode:
                    raise Wrong(f"{Path(words[0]).name}: {done.stderr[-600:].strip()}")
        url = server.url("service")
        bds(url, "migrate")
        found = bds(url, "doctor", "--json", code=None).stdout
        if '"problems": []' not in found:
            raise Wrong(f"bds doctor after bds migrate: expected no problems, got {found[:600]}")
        return given

    return run


def restored(server: Cluster) -> str:
    """An empty database beside the roles, which are those of the cluster."""
    bds(create(server, C_UTF8, name="elsewhere"), "migrate")
    return create(server, C_UTF8)


def housekeeper(server: Cluster) -> None:
    """psql alone keeps house: months are made; they expire, once their changes are matched with hooks, which psql does, too."""
    url = create(server, C_UTF8)
    bds(url, "migrate")
    psql(
        url,
        input="""
        select bds.create_company('acme');
        select bds.set_retention('1 month');
        select bds.create_hook('acme', 'units', 'https://example.com/hook', allow_in_change_set => true);
        select bds.import_document('acme', '{"units": [{"code": "a", "name": "A"}, {"code": "b", "name": "B"}]}');
        select bds_change_log.make_month('2020-01-01Z');
        update bds.change_log set created_at = '2020-01-15Z' where id = 1;
        delete from bds.change_months;
        insert into bds.change_months (company_id, month, first_id)
            select company_id, date_trunc('month', created_at, 'UTC'), min(id) from bds.change_log group by 1, 2;
        drop table bds.change_log_"""
        + next_month()
        + ";",
    )
    deadline = time.monotonic() + 60
    while psql(url, "-c", "select bds.first_change('acme')") != "2\n":
        if time.monotonic() > deadline:
            raise Wrong("the month 2020-01 has not expired after 60 s of bds.maintain()")
        psql(url, "-c", "select bds_service.route_changes('acme')", "-c", "select * from bds.maintain()")
    expect("the next month", psql(url, "-c", f"select to_regclass('bds.change_log_{next_month()}') is not null"), "t\n")
    expect("changes in the queue", psql(url, "-c", "select count(*) > 0 from bds.hook_queue"), "t\n")
    bds(url, "doctor")


def next_month() -> str:
    now = time.gmtime()
    return f"{now.tm_year + now.tm_mon // 12}_{now.tm_mon % 12 + 1:02d}"


def pooled(server: Cluster) -> list[Any]:
    """The service behind PgBouncer in transaction mode."""
    url = create(server, C_UTF8)
    with pooler(server) as port:
        through = f"host=127.0.0.1 port={port} dbname=service user=postgres"
        return journey(url, through, {"BDS_POOLER": "transaction", "BDS_LISTEN_DATABASE_URL": url})


@contextlib.contextmanager
def pooler(server: Cluster) -> Iterator[int]:
    if PGBOUNCER is None:
        raise NotRun("pgbouncer is not installed")
    port, where = unused_port(), conninfo_to_dict(server.url())
    settings = server.directory / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host={where['host']} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n"
        "unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 5\nmax_client_conn = 200\n"
    )
    process = subprocess.Popen([PGBOUNCER, str(settings)], user=USER, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(timeout=30)


CELLS = (
    Cell("Turkish, libc", "npm17", in_locale(TURKISH), is_quick=True),
    Cell("owner without CREATEROLE", "package", owner_without_createrole, is_quick=True),
    Cell("Turkish, libc", "package", in_locale(TURKISH)),
    Cell("Turkish, ICU", "npm17", in_locale(TURKISH_ICU)),
    Cell("Turkish, ICU", "npm18", in_locale(TURKISH_ICU)),
    Cell("German, ICU", "npm17", in_locale(GERMAN_ICU)),
    Cell("German, libc", "package", in_locale("locale_provider libc locale 'de_DE.utf8'")),
    Cell("C", "package", in_locale("locale_provider libc locale 'C'")),
    Cell("C.UTF-8, builtin", "npm17", in_locale(BUILTIN)),
    Cell("C.UTF-8, builtin", "package", in_locale(BUILTIN)),
    Cell("LATIN1 is refused", "package", refused("LATIN1")),
    Cell("SQL_ASCII is refused", "npm17", refused("SQL_ASCII")),
    Cell("owner with CREATEROLE", "npm17", owner_with_createrole),
    Cell("two services, one cluster", "package", two_services),
    Cell("psql keeps house", "package", housekeeper),
    Cell("PgBouncer, transactions", "package", pooled),
)
OF_USER = (CELLS[0], CELLS[1], CELLS[9])  # for each server of PG_BIN


def chosen(sources: list[Source], *, quick: bool) -> list[tuple[Cell, Source | None]]:
    """The cells with their servers; None if the server is missing."""
    named = {source.name.split(" ", 1)[1]: source for source in sources}
    found = [(cell, named.get(cell.source)) for cell in CELLS if cell.is_quick or not quick]
    if quick and "npm17" not in named:  # the same in the other server
        found = [(replace(cell, source="package"), source or named["package"]) for cell, source in found]
    for name, source in named.items():
        if name.startswith("PG_BIN"):
            found += [(replace(cell, source=name), source) for cell in OF_USER]
    if not quick:
        former = named.get("npm17")
        cell = Cell("pg_dump of 17, restored", "package", dump(former) if former else CELLS[0].run)
        found.append((cell, named["package"] if former else None))
    return found
