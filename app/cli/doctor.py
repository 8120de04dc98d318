"""`bds doctor`: what is wrong at each place (bds.problems), as text that fits a terminal or as JSON."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from app.cli import stdio
from app.cli.tables import printable
from app.database.connections import connect
from app.database.servers.directory import HOME
from app.types import exact_json

MIN_WIDTH = 40
COLUMNS = ("kind", "company_id", "entity", "object", "detail", "mend")
MEMBERS = {"company_id": "companyId"}  # of problems as JSON, where their names differ
PROBLEMS = f"select {', '.join(COLUMNS)} from bds.problems"  # in the order in which the mends are run
MIGRATE = "bds migrate"  # the one mend that is a command
SEALED: LiteralString = "select r.company_id from bds.residents r union all select '' order by 1"
COMPARED = (
    "select min(c.compared_at) from bds.entities e left join bds.log_comparisons c on c.entity = e.name having count(*) = count(c)"
)


def examine(urls: dict[str, str], deep: bool) -> tuple[list[dict[str, Any]], datetime | None]:
    """Return the problems of all places, and the time since which all rows have been compared with the change log.

    deep: compare them, and verify what is sealed, first.  A place that cannot be examined is a problem of its own.  Raises
    psycopg.Error for home.
    """
    problems, compared = list[dict[str, Any]](), list[datetime | None]()
    for place, url in urls.items():
        try:
            found, when = _examine(url, deep)
        except psycopg.Error as error:
            if place == HOME:
                raise
            detail = f"cannot be examined at its address in bds.places: {type(error).__name__}"
            away = {"kind": "place away", "object": place, "detail": detail}
            found, when = [dict.fromkeys(COLUMNS) | away], None
        problems += [{"place": place} | problem for problem in found]
        compared.append(when)
    return problems, min((when for when in compared if when), default=None) if all(compared) else None


def _examine(url: str, deep: bool) -> tuple[list[dict[str, Any]], datetime | None]:
    problems = list[dict[str, Any]]()
    with connect(url) as connection:
        if deep:
            connection.add_notice_handler(lambda notice: problems.extend(_not_compared(notice)))
            connection.execute("select 1 from bds.compare_log()")
            for (company,) in connection.execute(SEALED).fetchall():
                connection.execute("select bds_service.verify_sealed(%s)", (company,))
        problems += connection.cursor(row_factory=dict_row).execute(PROBLEMS.encode()).fetchall()
        row = connection.execute(COMPARED.encode()).fetchone()
    return problems, row[0] if row else None


def _not_compared(warning: psycopg.errors.Diagnostic) -> list[dict[str, Any]]:
    """The problem of an entity that bds.compare_log leaves out; bds.problems has those whose tables were altered (BD007)."""
    if warning.severity_nonlocalized != "WARNING" or warning.sqlstate == "BD007":
        return []
    return [dict.fromkeys(COLUMNS) | {"kind": "not compared", "object": warning.table_name, "detail": warning.message_primary}]


def as_json(problems: Sequence[dict[str, Any]], compared: datetime | None) -> str:
    """The problems as one JSON object, with names and times as every interface but SQL has them."""
    shown = [{MEMBERS.get(name, name): value for name, value in problem.items()} for problem in problems]
    found = {"problems": shown, "comparedAt": exact_json.plain(compared)}
    return exact_json.dumps(found, ensure_ascii=not stdio.is_unicode(), indent=2) + "\n"


def as_text(problems: Sequence[dict[str, Any]], compared: datetime | None) -> str:
    """The problems one after the other, in lines that fit the terminal, each with the statement that mends it."""
    lines = [line for problem in problems for line in _describe(problem)]
    number = {0: "no problems", 1: "1 problem"}.get(len(problems), f"{len(problems):,} problems")
    since = _minute(compared)
    when = f"compared with the change log at {since}" if since else "never compared with the change log: bds doctor --deep"
    width = max(shutil.get_terminal_size().columns, MIN_WIDTH)
    return "".join(
        textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False) + "\n"
        for line in [*lines, f"{number}; rows were {when}"]
    )


def _minute(when: datetime | None) -> str | None:
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M}Z" if when else None


def _describe(problem: dict[str, Any]) -> list[str]:
    kind, company, entity, thing, detail, mend = (printable(problem[name] or "") for name in COLUMNS)
    at = f"place {printable(problem['place'])}" if problem["place"] != HOME else ""
    where = ", ".join(each for each in (at, company and f"company {company}", entity and f"entity {entity}") if each)
    end = "" if mend == MIGRATE else ";"
    return [f"{kind}: {thing}{f' ({where})' if where else ''}", f"  {detail}", *([f"  mend: {mend}{end}"] if mend else []), ""]
