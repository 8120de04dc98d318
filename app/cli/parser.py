"""The command line: a table of commands, and the parser made from it.

A new command is a function in app/cli/commands.py and an entry in COMMANDS.  Companies, imports (feeds.py), hooks and mappers have
their own modules.
"""

from __future__ import annotations

import argparse
from typing import Any

from app.cli import (
    accounts,
    assistant,
    audit,
    commands,
    companies,
    completion,
    demo,
    feeds,
    hooks,
    mappers,
    nodes,
    places,
    stdio,
    versions,
)
from app.cli.arguments import (
    BY_NAME,
    SCOPES,
    WHEN,
    Parser,
    read_change,
    read_count,
    read_format,
    read_id,
    read_name,
    read_port,
    read_processes,
    read_scopes,
)
from app.cli.command import COMPANY, Command, argument
from app.cli.remote import KEY_FILE, URL
from app.config import Config
from app.formats import FORMATS, SCHEMA, not_installed
from app.query.check.moments import absolute

OVERVIEW = """\
to begin:
  bds demo --serve                       a demo company to look at
  bds migrate                            create or update the tables of a database
  bds company create acme                a company
  bds key create --company acme          an API key for a program
  bds serve --processes 4                serve HTTP and deliver webhooks

Settings are environment variables BDS_* (docs/reference.md lists them). BDS_DATABASE_URL names the database; without it bds starts
a PostgreSQL of its own, with its files in BDS_DATA_DIR. Exit codes: 0 done, 1 failed, 2 wrong usage or an extra that is not
installed, 3 some records of an import failed. `bds COMMAND --help` shows the options of a command and examples."""

GROUPS = {
    "company": "create, list, move, delete, dump and restore companies",
    "hook": "create, list, test and delete hooks, rotate their secrets",
    "key": "create, list and revoke API keys",
    "node": "workers of a Citus cluster: add one, give each its share",
    "place": "servers on which companies live: add, list and drain them",
    "mapper": "list, store, print and delete mappers",
    "version": "names of versions: give, list and take them",
    "user": "manage the people who sign in",
}


MISSING = not_installed()
NOT_HERE = f"; not installed: {', '.join(MISSING)}" if MISSING else ""
SCOPE_HELP = f"what it may do: some of {','.join(SCOPES)} (all), {','.join(BY_NAME)} (dry runs alone)"
HOST = argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
PORT = argument("--port", type=read_port, default=8080, help="port to listen on, 0 for any free one (%(default)s)")
EMAIL = argument("email", metavar="EMAIL", help="the email address the person signs in with")
USER = (
    EMAIL,
    argument(
        "--company",
        action="append",
        default=[],
        metavar="ID",
        help="a company of the user; may be repeated; only an administrator can be without",
    ),
    argument("--administrator", action="store_true", help="creates and deletes companies and users on the pages, too"),
)


def _print_completion(options: argparse.Namespace, config: Config) -> int:
    stdio.write(completion.script(options.shell, COMMANDS, GROUPS))
    return 0


COMMANDS = (
    Command(
        "serve",
        commands.serve,
        "serve HTTP until SIGTERM, and deliver webhooks",
        """\
  bds serve --host 0.0.0.0 --processes 4       four HTTP processes on one address, and one that delivers webhooks
  bds serve --no-worker                        HTTP only
On SIGTERM it accepts no more requests, gives those that run 30 s to finish, and exits. With --processes, a process that dies or
hangs is replaced, and so is one that gets SIGTERM. Each process has its own connections: docs/operate.md has the sum.
Monitoring reads /healthz, /readyz and /metrics.""",
        (
            HOST,
            PORT,
            argument(
                "--processes", type=read_processes, default=1, metavar="N", help="HTTP processes on one address (%(default)s)"
            ),
            argument("--no-worker", action="store_true", help="do not deliver webhooks; `bds worker` does"),
        ),
    ),
    Command(
        "worker",
        commands.work,
        "deliver webhooks until SIGTERM; any number of workers share the work",
        "  bds worker                                   on as many machines as you like, beside `bds serve --no-worker`",
    ),
    Command(
        "migrate",
        commands.migrate_database,
        "create or update the tables and functions of the database; prints the files applied",
        """\
  BDS_DATABASE_URL=postgresql://owner@db/bds bds migrate
  bds migrate --plan                           applies everything in a transaction that is rolled back
  bds migrate --roles | psql -h db -U admin    for an owner without CREATEROLE: what an administrator runs first
Safe to run at any time, also several times at once; a second run changes nothing. Run it after an update of the program and after
restoring a backup.""",
        (
            argument("--plan", action="store_true", help="print what would be applied, and change nothing"),
            argument("--roles", action="store_true", help="print the statements that make the roles, for an administrator"),
        ),
    ),
    *companies.COMMANDS,
    *places.COMMANDS,
    *nodes.COMMANDS,
    Command(
        "key create",
        commands.create_key,
        "create an API key and print it; it is not shown again",
        """\
  bds key create --company acme --company beta --scope read --name power-bi --expires 90d
  KEY=$(bds key create --company acme)""",
        (
            argument(
                "--company", required=True, action="append", metavar="ID", help="a company that it gives access to; may be repeated"
            ),
            argument("--scope", type=read_scopes, values=(*SCOPES, *BY_NAME), default=list(SCOPES), help=SCOPE_HELP),
            argument("--name", default="cli", help="its name in lists (%(default)s)"),
            argument(
                "--expires", type=accounts.read_expiry, metavar="WHEN", help="2027-01-31, 2027-01-31T12:00Z, 90d, 12h (never)"
            ),
        ),
    ),
    Command(
        "key list",
        commands.list_keys,
        "list API keys",
        "  bds key list                                 ids, companies, scopes and last use; never a key",
    ),
    Command(
        "key revoke",
        commands.revoke_key,
        "revoke an API key at once",
        "  bds key revoke 4f0c2a6e-...                  takes effect in every process at once",
        (argument("id", type=read_id, metavar="ID", help="as `bds key list` shows it"),),
    ),
    *hooks.COMMANDS,
    *mappers.COMMANDS,
    Command(
        "user create",
        commands.create_user,
        "create a user; reads the password from standard input, or makes one and prints it",
        """\
  bds user create anna@example.com --company acme < /dev/null       makes a password and prints it
  echo "$PASSWORD" | bds user create anna@example.com --company acme --company beta""",
        USER,
    ),
    Command(
        "user access",
        commands.set_access,
        "set the companies of a user, and whether it is an administrator",
        """\
  bds user access anna@example.com --company acme --company beta    these and no others
  bds user access anna@example.com --company acme --administrator   companies and users, too""",
        USER,
    ),
    Command(
        "user password",
        commands.change_password,
        "set a new password; ends the user's sessions and tokens",
        "  bds user password anna@example.com < /dev/null    signs her out everywhere",
        (EMAIL,),
    ),
    Command("user list", commands.list_users, "list users", "  bds user list"),
    Command(
        "user delete",
        commands.delete_user,
        "delete a user; ends the user's sessions and tokens",
        "  bds user delete anna@example.com",
        (EMAIL,),
    ),
    Command(
        "doctor",
        commands.examine_database,
        "list what is wrong with the database at each place, with the statements that mend it; exits with 1 if there is anything",
        """\
  bds doctor                                   altered tables, triggers, partitions, indexes, imports, hooks
  bds doctor --deep --json                     compares every row with the change log first, and the log with its seals
  bds doctor --print-heads > heads.jsonl       what proves later that the logs were not rebuilt; keep it elsewhere
  bds doctor --head heads.jsonl                compares such a file with the logs""",
        (
            argument("--deep", action="store_true", help="compare all rows with the change log, and verify what is sealed, first"),
            argument("--print-heads", action="store_true", help="print the heads of the chains of seals, and nothing else"),
            argument("--head", metavar="FILE", help="report each head of the file that its chain does not contain"),
            argument("--json", action="store_true", help="print JSON"),
        ),
    ),
    Command(
        "explain",
        commands.explain_request,
        "print the SQL of an OData request, and PostgreSQL's plan for it",
        "  bds explain '/api/odata/demo/products?$filter=price gt 100&$top=5'",
        (argument("path", metavar="PATH", help="as in a URL: '/api/odata/demo/products?$top=5'"),),
    ),
    Command(
        "dsn",
        commands.print_dsn,
        "print the connection string of the database in use, for psql",
        '  psql "$(bds dsn)"\n  pg_dump --format=custom --dbname "$(bds dsn)" --file bds.dump',
    ),
    Command(
        "stop",
        commands.stop,
        "stop the embedded PostgreSQL",
        "  bds stop                                     the server that `bds` started in BDS_DATA_DIR; no other",
    ),
    *feeds.COMMANDS,
    *versions.COMMANDS,
    *audit.COMMANDS,
    Command(
        "export",
        commands.export_rows,
        "export a company's rows in any format",
        """\
  bds export products --company acme --format csv --select code,name,price --orderby 'price desc' --top 10
  bds export orders --company acme --format excel --filter 'total gt 1000' --output orders.xlsx
  bds export orders --company acme --format json --url https://data.example.com --key-file key.txt
  bds export orders --company acme --format parquet --since yesterday --output changed.parquet
  bds export orders --company acme --format csv --version year-end
  bds export diff --company acme --format json --since 17     what changed in all entities""",
        (
            argument("entity", metavar="ENTITY", help="such as products; diff for all, with --since"),
            COMPANY,
            argument(
                "--format",
                type=read_format,
                metavar="F",
                values=[name for name in (*FORMATS, SCHEMA.name) if name not in MISSING],
                help=f"{', '.join(FORMATS)}, or {SCHEMA.name} (the XML's schema){NOT_HERE}",
            ),
            argument("--mapper", type=read_name, metavar="M", help="a template, or an import mapping to run in reverse"),
            argument(
                "--no-ids",
                dest="ids",
                action="store_const",
                const="false",
                help="leave ids out, to restore rows or for another company",
            ),
            argument("--version", dest="of_version", type=absolute, metavar="WHEN", help=f"rows as of {WHEN}"),
            argument("--at", type=absolute, metavar="TIME", help="rows as of a time alone, such as 2026-01-01, yesterday or -12h"),
            argument("--since", type=absolute, metavar="WHEN", help="only what has changed since then, the same as --version"),
            argument(
                "--versions",
                action="store_const",
                const="true",
                help="with --since, every version of a row that was valid in between, with @validFrom and @validTo",
            ),
            argument("--output", "-o", metavar="FILE", help="file to write (standard output); it appears when it is complete"),
            *(
                argument(
                    f"--{name}",
                    type=read_count if name in ("top", "skip") else str,
                    metavar=name.upper(),
                    help=f"OData's ${name}{', or a condition of /c' if name == 'filter' else ''}",
                )
                for name in commands.QUERY
            ),
            URL,
            KEY_FILE,
        ),
    ),
    Command(
        "follow",
        commands.follow_company,
        "print a company's changes as they commit, one JSON object a line, until a signal or until its reader ends",
        """\
  bds follow acme                              from now on
  bds follow acme --entity orders --after 0    all kept changes of orders, then new ones
  BDS_KEY=... bds follow acme --url https://data.example.com
Records are those of GET /c/acme/changes. To continue, give the id of the last change that you have.""",
        (
            argument("company", metavar="COMPANY", help="the company"),
            argument("--entity", metavar="E", help="only changes of this entity, such as orders"),
            argument("--after", type=read_change, metavar="ID", help="begin after this change (the last one)"),
            URL,
            KEY_FILE,
        ),
    ),
    *assistant.COMMANDS,
    Command(
        "completion",
        _print_completion,
        "print a script with which a shell completes commands and options",
        """\
  source <(bds completion bash)                in ~/.bashrc; for zsh likewise
  bds completion fish > ~/.config/fish/completions/bds.fish""",
        (argument("shell", choices=("bash", "zsh", "fish"), metavar="SHELL", help="bash, zsh or fish"),),
    ),
    Command(
        "demo",
        commands.load_demo,
        f"create the company {demo.COMPANY} with generated data; prints an API key and how to sign in",
        "  bds demo --serve --port 8080                 what `make run` does",
        (argument("--serve", action="store_true", help="then serve, and stop the embedded PostgreSQL at the end"), HOST, PORT),
    ),
)


def parser() -> Parser:
    """Return the parser; `command` of what it reads is the function to run, `refuse` raises wrong usage."""
    top = Parser(
        prog="bds",
        description="A company's business data straight from PostgreSQL.",
        epilog=OVERVIEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="store_true", help="print the version and exit")
    top.options = ["--help", "--version"]
    top.set_defaults(command=None, words="", refuse_unknown=top.refuse_unknown)
    actions = top.add_subparsers(title="commands", metavar="COMMAND")
    groups = {
        name: actions.add_parser(name, help=help).add_subparsers(required=True, metavar="ACTION") for name, help in GROUPS.items()
    }
    for each in COMMANDS:
        group, _, action = each.name.rpartition(" ")
        if group in groups:
            _add(groups[group], action, each)
        else:
            _add(actions, each.name, each)
    return top


def _add(actions: Any, name: str, command: Command) -> None:
    added = actions.add_parser(
        name,
        help=command.help,
        description=f"{command.help[0].upper()}{command.help[1:]}.",
        epilog=f"example:\n{command.example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for each in command.arguments:
        added.add_argument(*each.flags, **each.options)
    added.options = ["--help", *(flag for each in command.arguments for flag in each.flags if flag.startswith("--"))]
    added.set_defaults(command=command.run, words=command.name, refuse=added.error, refuse_unknown=added.refuse_unknown)
