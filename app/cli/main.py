"""The `bds` command from its arguments to its exit code.

Results go to standard output and nothing else does; messages go to standard error.  Exit codes: 0 done, 1 failed, 2 wrong usage
or an extra that is not installed, 3 some records of an import failed.
"""

from __future__ import annotations

import argparse
import os
import pwd
import sys
from collections.abc import Sequence

import psycopg

from app import deprecations, logs
from app.cli import stdio
from app.cli.arguments import find_undecodable
from app.cli.command import MISUSED
from app.cli.commands import fail
from app.cli.parser import parser
from app.config import Config, unknown_settings
from app.database import connections, schema
from app.database.caller import acting
from app.database.roles import MigrationError
from app.errors import ALTERED, SQLSTATES, ServiceError
from app.query.check.moments import RELATIVE
from app.resources import version
from app.tasks import Stopped

LONGEST_USER = 200  # characters, as of every actor
LACKING = ALTERED | {"3F000", "22023"}  # nor a schema, a role
IMPORTS = ("import list", "import show", "import revert")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code.  Without a command it prints the help.

    Raises SystemExit after help and for wrong usage.
    """
    stdio.fill_closed_streams()
    logs.start()
    config: Config | None = None
    try:
        options = _read(arguments)
        if options.version:
            stdio.write(f"bds {version()}\n")
            return 0
        for warning in (*unknown_settings(), *deprecations.warnings(os.environ, options.words)):
            stdio.message(f"bds: {warning}")
        with acting(_user()):
            config = Config.load()
            code: int = options.command(options, config)
    except ServiceError as error:
        if error.code == "not_installed":
            fail(error.message)
            return MISUSED
        option = error.target if error.target and error.target.startswith("$") else None
        return fail(f"{option}: {error.message}" if option and option not in error.message else error.message)
    except psycopg.Error as error:
        if problem := _schema_problem(error, config):
            return fail(problem)
        return fail(error.diag.message_primary if error.sqlstate in SQLSTATES else str(error), error.diag.message_hint)
    except OSError as error:
        where, what = error.filename, (error.strerror or "").lower()
        return fail(f"{where}: {what}" if where and what else what or str(error))
    except (ValueError, MigrationError) as error:
        return fail(str(error))
    except Stopped as stopped:
        stdio.message(f"bds: {stopped}")
        return 0
    except KeyboardInterrupt:
        return fail("interrupted")
    return code


def _read(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line.  Raises SystemExit after help and for wrong usage; OSError if help cannot be written."""
    top = parser()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if " ".join(words[:2]) in IMPORTS:  # `import` itself takes a file, which argparse could not tell from an action
        words[:2] = [" ".join(words[:2])]
    for at in range(len(words) - 1, 0, -1):
        if RELATIVE.fullmatch(words[at]) and words[at - 1].startswith("--"):  # argparse would take -7d for an option
            words[at - 1 : at + 1] = [f"{words[at - 1]}={words[at]}"]
    options: argparse.Namespace
    options, unknown = top.parse_known_args(words)
    if unknown:
        options.refuse_unknown(unknown)
    if options.command is None and not options.version:
        top.print_help()
        raise SystemExit(0)
    problem = find_undecodable(options)
    if problem:
        top.error(problem)
    return options


def _schema_problem(error: psycopg.Error, config: Config | None) -> str | None:
    """What is wrong with the schema of the database, if a statement has failed for what that lacks."""
    if error.sqlstate not in LACKING or config is None or not config.database_url:
        return None
    try:
        with connections.connect(connections.resolve(config)) as connection:
            schema.require(schema.read(connection))
    except MigrationError as problem:
        return str(problem)
    except psycopg.Error:
        pass
    return None


def _user() -> str:
    """The operating system's name of the user, who is the actor of what the command writes; empty if it has none."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""
    return name.encode("utf-8", "replace").decode()[:LONGEST_USER]
