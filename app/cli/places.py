"""Places at the command line: add, list and drain them, move companies, run a file of SQL at all of them."""

from __future__ import annotations

import argparse
from typing import Any

from app.cli import stdio, tables
from app.cli.arguments import read_name
from app.cli.command import Command, argument
from app.config import Config
from app.database import connections
from app.database.servers.directory import HOME
from app.places import administration, balance, everywhere, rebalance
from app.places.move import Move
from app.types import exact_json


def add_place(options: argparse.Namespace, config: Config) -> int:
    for name in administration.add(connections.resolve(config), options.name, options.url):
        stdio.message(f"entity {name}" if ": " in name else f"sql/{name}")
    return 0


def list_places(options: argparse.Namespace, config: Config) -> int:
    rows = administration.describe(connections.urls_of_places(config))
    stdio.write(tables.table(("name", "companies", "size", "state"), rows))
    return 0


def drain_place(options: argparse.Namespace, config: Config) -> int:
    if options.end and options.to is not None:
        options.refuse("--end: moves no company, expected it without --to")
    urls = connections.urls_of_places(config)
    is_worker = rebalance.is_worker(urls, options.name)
    if options.to is not None and (is_worker or options.to == options.name or options.to not in urls):
        options.refuse("--to: expected another place that is no worker of Citus")
    if not (options.end or is_worker or options.to):
        administration.require_target(urls, options.name)  # else the place would be drained of nothing, and stay so
    (rebalance if is_worker else administration).set_draining(urls, options.name, not options.end)
    if options.end:
        return 0
    if is_worker:
        rebalance.rebalance(urls, stdio.message)
        return 0
    for company in administration.find_residents(urls, options.name):
        with Move.of(urls, company, lambda _: None, stdio.message) as move:
            if move.leads_to(options.name):
                stdio.message(f"{company} stays at {move.place}")
                move.abort()
            elif move.phase:
                stdio.message(f"{company} goes on")
                move.resume()
            place = move.place
        if place == options.name:
            but = administration.others_than(options.name)
            _bring(urls, company, options.to or administration.choose(urls, company, but=but))
    return 0


def rebalance_places(options: argparse.Namespace, config: Config) -> int:
    urls = connections.urls_of_places(config)
    for company in [] if options.plan else balance.find_moving(urls):
        _bring(urls, company)
    steps = balance.plan(urls)
    rows = [
        (each.company.name, each.company.place, each.target, f"{each.company.size / 1e6:,.0f} MB", f"{each.company.changes:,}")
        for each in steps
    ]
    if rows:
        stdio.write(tables.table(("company", "from", "to", "size", f"changes, {balance.RECENT} days"), rows))
    else:
        stdio.message("every place has its share")
    if not options.plan:
        for each in steps:
            _bring(urls, each.company.name, each.target)
    return 0


def _bring(urls: dict[str, str], company: str, target: str = "") -> None:
    """Move a company, or finish its move."""
    stdio.message(f"{company} goes {'on' if not target else f'to {target}'}")
    with Move.of(urls, company, lambda _: None, stdio.message) as move:
        if move.phase:
            move.resume()
        else:
            move.start(target)


def move_company(options: argparse.Namespace, config: Config) -> int:
    if bool(options.to) + options.resume + options.abort != 1:
        options.refuse("expected one of --to, --resume and --abort")
    with Move.of(connections.urls_of_places(config), options.id, stdio.message, stdio.message) as move:
        if options.resume:
            move.resume()
        elif options.abort:
            move.abort()
        else:
            move.start(options.to)
    return 0


def run_sql(options: argparse.Namespace, config: Config) -> int:
    text = stdio.read_text(options.file)
    administration.run_file(connections.urls_of_places(config), text)
    return 0


def run_query(options: argparse.Namespace, config: Config) -> int:
    names, rows = everywhere.query(connections.urls_of_places(config), options.statement)
    if options.json:
        if twice := sorted({name for name in names if names.count(name) > 1}):
            options.refuse(f"--json: expected a name for each column, got {', '.join(twice)} twice: name them with `as`")
        stdio.write_records(dict(zip(names, map(exact_json.plain, row), strict=True)) for row in rows)
    else:
        stdio.write(tables.table(names, [[_cell(exact_json.plain(value)) for value in row] for row in rows]))
    return 0


def _cell(value: Any) -> str:
    """A value in a table: a text as it is, nothing for null, others as JSON."""
    return value if isinstance(value, str) else "" if value is None else exact_json.dumps(value, ensure_ascii=False)


def read_place(text: str) -> str:
    """The name of a place; for argparse."""
    if text == HOME:
        raise argparse.ArgumentTypeError(f"{HOME} is the database of BDS_DATABASE_URL")
    return read_name(text)


COMMANDS = (
    Command(
        "place add",
        add_place,
        "make a database a place on which companies live, beside home; migrates it",
        """\
  bds place add west postgresql://owner@db-west/bds
The database must have no companies. Its connection string is stored, so it has no password: give that in .pgpass or a service file,
also to the servers, which replicate from each other.""",
        (
            argument("name", type=read_place, metavar="NAME", help="the place's name"),
            argument("url", metavar="URL", help="its connection string"),
        ),
    ),
    Command("place list", list_places, "list places with their companies, sizes and states", "  bds place list"),
    Command(
        "place drain",
        drain_place,
        "move all companies away from a place, which gets no further ones",
        """\
  bds place drain west                         one after the other; may be repeated after an interruption
  bds place drain west --to home               home gets companies only where it is named
  bds place drain west --end                   the place gets companies again""",
        (
            argument("name", metavar="NAME", help="the place"),
            argument("--to", metavar="PLACE", help="where the companies go (the smallest place but home)"),
            argument("--end", action="store_true", help="let the place get companies again; moves none"),
        ),
    ),
    Command(
        "place rebalance",
        rebalance_places,
        "move companies until every place has its share of bytes and of changes",
        """\
  bds place rebalance --plan                   prints what would move; changes nothing
  bds place rebalance                          one after the other; may be repeated
Home gives companies away and gets none, and a place that is being drained is left alone. bds node rebalance is that of Citus.""",
        (argument("--plan", action="store_true", help="print the moves, and change nothing"),),
    ),
    Command(
        "company move",
        move_company,
        "move a company to another place while it is read and written; prints each step",
        """\
  bds company move acme --to west
  bds company move acme --resume               after an interruption
  bds company move acme --abort                stays where it was, unless it has arrived
Writers wait for a moment. A large import delays the move until it has ended.""",
        (
            argument("id", metavar="ID", help="the company"),
            argument("--to", metavar="NAME", help="the place to move it to"),
            argument("--resume", action="store_true", help="go on with a move that was interrupted"),
            argument("--abort", action="store_true", help="undo a move that was interrupted"),
        ),
    ),
    Command(
        "sql",
        run_sql,
        "run a file of SQL at every place, home last; in one transaction at each",
        """\
  bds sql entities.sql                         creates and registers tables everywhere
A place where it has failed is named; the ones before it have it already, so statements should be repeatable.""",
        (argument("file", metavar="FILE", help="statements; - for standard input"),),
    ),
    Command(
        "query",
        run_query,
        "answer a question over the companies of all places, as the operator; read-only",
        """\
  bds query 'select company_id, count(*), sum(total) from data.invoices group by company_id order by 2 desc limit 10'
It runs at each place, and the parts are merged; a statement that cannot be merged is refused.""",
        (
            argument("statement", metavar="SQL", help="one select"),
            argument("--json", action="store_true", help="print JSON objects, one a line"),
        ),
    ),
)
