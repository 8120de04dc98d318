"""Hooks at the command line: list, create, test, enable, disable and delete them, and rotate their secrets."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg

from app.cli import stdio, tables
from app.cli.arguments import read_hook_id
from app.cli.command import COMPANY, Command, argument
from app.cli.companies import require_company
from app.config import Config
from app.database import connections
from app.errors import ServiceError
from app.types import exact_json

HEADER = ("id", "state", "failures", "last attempt (UTC)", "status", "queued", "entity", "url", "filter")
# of a company that lives there: rows of one that has moved away may still be there
NAMED = """
    select h.company_id from bds.hooks h join bds.residents r on r.company_id = h.company_id
    where h.id = %s and h.deleted_at is null
"""
SWITCH = """
    select bds.update_hook(h.company_id, h.id, h.entity, h.url, h.filter, h.columns, h.allow_in_change_set, %s)
    from bds_service.lock_hook(%s, %s) h
"""


def list_hooks(options: argparse.Namespace, config: Config) -> int:
    from app.webhooks.registration import HOOKS  # imported late: other commands need no languages

    with connections.connect(connections.resolve_company(config, options.company)) as connection:
        require_company(connection, options.company)
        hooks = [row[0] for row in connection.execute(HOOKS + " order by h.number", (options.company,))]
    if options.json:
        stdio.write_records(hooks)
    else:
        stdio.write(tables.table(HEADER, [_line(hook) for hook in hooks]))
    return 0


def _line(hook: dict[str, Any]) -> tuple[Any, ...]:
    health = hook["health"]
    last = (health["lastAt"] or "never")[:16].replace("T", " ")
    status = health["lastStatus"] or ("no answer" if health["lastAt"] else "")
    queued = (health["queued"], hook["entity"] or "every", hook["url"], hook["filter"] or "")
    return hook["id"], health["state"], health["failures"], last, status, *queued


def create_hook(options: argparse.Namespace, config: Config) -> int:
    from app.webhooks.hook import Hook, check_address, read_members
    from app.webhooks.registration import CREATE, parameters

    columns = None if options.columns is None else [name.strip() for name in options.columns.split(",")]
    members = {"entity": options.entity, "url": options.url, "filter": options.filter, "columns": columns}
    members |= {"allowInChangeSet": options.change_sets, "disabled": options.disabled}
    hook = Hook(**read_members(exact_json.dumps(members).encode()))
    url = connections.resolve_company(config, options.company)
    with connections.connect(url, "bds_reader") as connection:
        hook.check(connections.read_catalog(connection))
    asyncio.run(check_address(hook.url, config.webhook_allow_private))
    with connections.connect(url) as connection, connection.transaction():  # a secret that could not be printed is not kept
        created = _one(connection, CREATE, parameters(options.company, hook))
        stdio.write(f"{created['id']} {created['secret']}\n")
    for notice in created["notices"]:
        stdio.message(f"notice: {notice}; --change-sets includes them")
    return 0


def test_hook(options: argparse.Namespace, config: Config) -> int:
    with _having(options.id, config) as (connection, named):
        stdio.write(f"{_one(connection, 'select bds.test_hook(%s, %s)', named)}\n")
    return 0


def rotate_hook(options: argparse.Namespace, config: Config) -> int:
    with (
        _having(options.id, config) as (connection, named),
        connection.transaction(),
    ):  # a secret that could not be printed is not kept
        stdio.write(f"{_one(connection, 'select bds.rotate_hook(%s, %s, %s)', (*named, options.revoke))}\n")
    return 0


def enable_hook(options: argparse.Namespace, config: Config) -> int:
    return _switch(options, config, disabled=False)


def disable_hook(options: argparse.Namespace, config: Config) -> int:
    return _switch(options, config, disabled=True)


def _switch(options: argparse.Namespace, config: Config, *, disabled: bool) -> int:
    with _having(options.id, config) as (connection, named):
        _one(connection, SWITCH, (disabled, *named))
    return 0


def delete_hook(options: argparse.Namespace, config: Config) -> int:
    with _having(options.id, config) as (connection, named):
        _one(connection, "select bds.delete_hook(%s, %s)", named)
    return 0


@contextlib.contextmanager
def _having(hook: str, config: Config) -> Iterator[tuple[psycopg.Connection[Any], tuple[str, str]]]:
    """A connection to the place that has a hook; its company and id.  Raises ServiceError(not_found)."""
    for url in connections.urls_of_places(config).values():
        with connections.connect(url) as connection:
            row = connection.execute(NAMED, (hook,)).fetchone()
            if row is not None:
                yield connection, (row[0], hook)
                return
    raise ServiceError("not_found", f"no such hook: {hook}")


def _one(connection: psycopg.Connection[Any], query: Any, values: Any) -> Any:
    row = connection.execute(query, values).fetchone()
    assert row is not None
    return row[0]


ID = argument("id", type=read_hook_id, metavar="ID", help="as `bds hook list` shows it")
COMMANDS = (
    Command(
        "hook list",
        list_hooks,
        "list a company's hooks with their health",
        """\
  bds hook list --company acme                 states, last attempts, what is queued; never a secret
  bds hook list --company acme --json""",
        (COMPANY, argument("--json", action="store_true", help="print JSON, a line for each hook")),
    ),
    Command(
        "hook create",
        create_hook,
        "create a hook and print its id and its secret; the secret is not shown again",
        """\
  bds hook create https://example.com/hook --company acme --entity products --filter 'price > 100' --columns price,name
  read ID SECRET < <(bds hook create https://example.com/hook --company acme --change-sets)""",
        (
            argument("url", metavar="URL", help="where changes are sent by POST"),
            COMPANY,
            argument("--entity", metavar="E", help="the entity to watch (all)"),
            argument("--filter", metavar="F", help="a condition on the row, such as 'price > 100'"),
            argument("--columns", metavar="C,...", help="for an update, one of these must have changed (any)"),
            argument("--change-sets", action="store_true", help="include changes of change sets; every import is one"),
            argument("--disabled", action="store_true", help="create it disabled"),
        ),
    ),
    Command(
        "hook test",
        test_hook,
        "send a made-up change to a hook, once, and print the delivery's id",
        "  bds hook test 1b40e49e-...                   a worker sends it; `bds hook list` shows the result",
        (ID,),
    ),
    Command(
        "hook rotate",
        rotate_hook,
        "give a hook a new secret and print it; the previous one signs for another day",
        """\
  bds hook rotate 1b40e49e-...                 deliveries carry both signatures for a day
  bds hook rotate 1b40e49e-... --revoke        the earlier secret ends at once""",
        (ID, argument("--revoke", action="store_true", help="end the earlier secret at once")),
    ),
    Command("hook enable", enable_hook, "enable a hook; it sees later changes", "  bds hook enable 1b40e49e-...", (ID,)),
    Command("hook disable", disable_hook, "disable a hook and cancel its queue", "  bds hook disable 1b40e49e-...", (ID,)),
    Command("hook delete", delete_hook, "delete a hook and cancel its queue", "  bds hook delete 1b40e49e-...", (ID,)),
)
