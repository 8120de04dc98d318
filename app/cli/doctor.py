"""`bds doctor`: what is wrong with the database (bds.problems), as text that fits a terminal or as JSON."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import dict_row

from app.cli import stdio
from app.cli.tables import printable

MIN_WIDTH = 40
COLUMNS = ("kind", "company_id", "entity", "object", "detail", "mend")
PROBLEMS = f"select {', '.join(COLUMNS)} from bds.problems order by kind, company_id, entity, object"
COMPARED = (
    "select min(c.compared_at) from bds.entities e left join bds.log_comparisons c on c.entity = e.name having count(*) = count(c)"
)


def examine(connection: psycopg.Connection[Any], deep: bool) -> tuple[list[dict[str, Any]], str | None]:
    """Return the problems, and the time since which all rows have been compared with the change log; deep: compare them first."""
    if deep:
        connection.execute("select from bds.compare_log()")
    problems = connection.cursor(row_factory=dict_row).execute(PROBLEMS.encode()).fetchall()
    row = connection.execute(COMPARED.encode()).fetchone()
    return problems, f"{row[0]:%Y-%m-%d %H:%M}Z" if row else None


def as_json(problems: Sequence[dict[str, Any]], compared: str | None) -> str:
    """The problems as one JSON object."""
    return json.dumps({"problems": problems, "compared_at": compared}, ensure_ascii=not stdio.is_unicode(), indent=2) + "\n"


def as_text(problems: Sequence[dict[str, Any]], compared: str | None) -> str:
    """The problems one after the other, in lines that fit the terminal, each with the statement that mends it."""
    lines = [line for problem in problems for line in _describe(problem)]
    number = {0: "no problems", 1: "1 problem"}.get(len(problems), f"{len(problems):,} problems")
    when = f"compared with the change log at {compared}" if compared else "never compared with the change log: bds doctor --deep"
    width = max(shutil.get_terminal_size().columns, MIN_WIDTH)
    return "".join(
        textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False) + "\n"
        for line in [*lines, f"{number}; rows were {when}"]
    )


def _describe(problem: dict[str, Any]) -> list[str]:
    kind, company, entity, thing, detail, mend = (printable(problem[name] or "") for name in COLUMNS)
    place = ", ".join(each for each in (company and f"company {company}", entity and f"entity {entity}") if each)
    return [f"{kind}: {thing}{f' ({place})' if place else ''}", f"  {detail}", f"  mend: {mend};", ""]
