"""`bds audit`: who has changed what is administered."""

from __future__ import annotations

import argparse
from typing import Any

from app.cli import stdio, tables
from app.cli.arguments import LIMIT
from app.cli.command import Command, argument
from app.config import Config
from app.database import connections
from app.types import exact_json


def show_audit(options: argparse.Namespace, config: Config) -> int:
    """Print records of home and of the company's place, the latest first."""
    from app.changes.audit import ITEMS, merge, wanted, without_hashes  # imported late: its package serves HTTP

    parts = []
    for url in dict.fromkeys((connections.resolve(config), connections.resolve_company(config, options.company))):
        with connections.connect(url) as connection:
            rows = connection.execute(ITEMS, (options.company, None, wanted(options.limit))).fetchall()
            parts.append([item for (item,) in rows])
    records, has_more = merge(parts, options.limit)
    if options.json:
        stdio.write_records(records)
    else:
        header = ("at (UTC)", "by", "action", "object", "detail")
        stdio.write(tables.table(header, [_cells(each | {"detail": without_hashes(each["detail"])}) for each in records]))
    if has_more:
        stdio.tell_more("records", options.limit)
    return 0


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    at = record["at"][:19].replace("T", " ")
    return at, record["actor"], record["action"], record["object"], "; ".join(_details(record["detail"]))


def _details(detail: dict[str, Any]) -> list[str]:
    """Each changed value, then what else a record tells."""
    old, new = detail.get("old", {}), detail.get("new", {})
    changes = [
        f"{name}: {_shown(old[name])} -> {_shown(new[name])}" if name in old and name in new
        else f"{name}: {_shown((old | new)[name])}"
        for name in sorted({*old, *new})
    ]  # fmt: skip
    return changes + [f"{name}: {_shown(value)}" for name, value in detail.items() if name not in ("old", "new")]


def _shown(value: Any) -> str:
    return exact_json.dumps(value, ensure_ascii=not stdio.is_unicode())


COMMANDS = (
    Command(
        "audit",
        show_audit,
        "show who has changed keys, users, access, hooks, mappers, retention, places and registrations",
        """\
  bds audit acme                               what is about acme, the latest first
  bds audit acme --limit 1000 --json           a JSON object a line
Only the operator may read it. Dumps, restores, deletions, moves, erasures and expired changes are in it, too.""",
        (
            argument("company", metavar="COMPANY", help="the company, also one that was deleted"),
            LIMIT,
            argument("--json", action="store_true", help="print JSON, a line for each record"),
        ),
    ),
)
