"""Facets: beside the rows, how many of them have each value of an enum, a boolean, a reference or a date.

They count the first COUNTED rows that match and end after TIMEOUT, so that they cost the same in a table of any size.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import psycopg

from app.database.catalog import Catalog
from app.database.past import Moment
from app.database.pool.session import Session
from app.query.check.query import Query
from app.query.sql import statements as sql_statements
from app.web.columns import EXACT, Cell, in_words, name_of, naming
from app.web.conditions import checked, equal_to, within
from app.web.page import PageRequest
from app.web.past import reading_for

COUNTED = 10_000  # rows
TIMEOUT = 500  # milliseconds
SHOWN = 7  # values of a column
# all months of columns of days, the most frequent values of others; the last two parameters are SHOWN and the names of days
COUNTS = b"""
    select c.name, c.value, c.count, c.values, c.rows
    from (
        select f.name, f.value, f.count, count(*) over of_column as values, sum(f.count) over of_column as rows,
            row_number() over (of_column order by f.count desc, f.value) as number
        from (
            select v.key as name, case when v.key = any ($%(days)d::text[]) then left(v.value, 7) else v.value end as value,
                count(*)
            from (%(rows)s) as r cross join json_each_text(r.row::json) as v
            group by 1, 2
        ) as f
        window of_column as (partition by f.name)
    ) as c
    where c.number <= $%(shown)d::int or c.name = any ($%(days)d::text[])
    order by c.number
"""
Counted = tuple[str, str | None, int, int, int]  # column, value, rows with it, values of the column, rows in all
Names = dict[str, dict[str, tuple[str, str]]]  # column -> id -> code, name
PERIOD = re.compile(r"\d{4}-\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class Value:
    """A value, the rows that have it, and the test of /c that they do."""

    code: str
    name: str
    count: int
    test: str


@dataclass(frozen=True, slots=True)
class Facet:
    """A column's values: the most frequent ones, of days the newest months or years.  others: how many values are left out."""

    cell: Cell
    values: list[Value]
    others: int


@dataclass(frozen=True, slots=True)
class Facets:
    """is_cut: whether more rows may match than were counted."""

    facets: list[Facet]
    is_cut: bool


async def count_facets(page: PageRequest, query: Query, moment: Moment | None, cells: Sequence[Cell]) -> Facets | None:
    """The facets of the rows that a query finds; None if there are none, or counting them takes longer than TIMEOUT."""
    wanted = [cell for cell in cells if cell.step or cell.is_choice or cell.is_day]
    if not wanted:
        return None
    first = replace(query, select=tuple(cell.field for cell in wanted), expand=(), order=(), after=None, page=None, top=COUNTED)
    statement = sql_statements.rows(first, page.company, EXACT)
    number = len(statement.values)
    text = COUNTS % {b"rows": statement.text, b"shown": number + 1, b"days": number + 2}
    values = (*statement.values, str(SHOWN), [cell.field.name for cell in wanted if cell.is_day])
    try:
        async with reading_for(page, moment, TIMEOUT) as connection:
            found = await (await connection.raw.execute(text, values)).fetchall()
            names = {
                cell.field.name: await _names(connection, page.company, query.catalog, cell.step.target, found, cell.field.name)
                for cell in wanted
                if cell.step
            }
    except psycopg.errors.QueryCanceled:
        return None
    facets = [_facet(cell, [each for each in found if each[0] == cell.field.name], names) for cell in wanted]
    return Facets([each for each in facets if each.values], any(rows == COUNTED for *_, rows in found))


async def _names(
    connection: Session, company: str, catalog: Catalog, target: str, found: Sequence[Counted], field: str
) -> dict[str, tuple[str, str]]:
    """(code, name), by id, of the rows to which a reference leads."""
    ids = ",".join(value for name, value, *_ in found if name == field and value)
    if not ids:
        return {}
    entity = catalog[target]
    query = Query(catalog, entity, filter=checked(catalog, entity, f"id in ({ids})"), select=naming(entity), top=SHOWN)
    statement = sql_statements.rows(query, company, EXACT)
    rows = [json.loads(row) for (row,) in await (await connection.raw.execute(statement.text, statement.values)).fetchall()]
    return {row["id"]: name_of(entity, row) for row in rows}


def _facet(cell: Cell, counts: Sequence[Counted], names: Names) -> Facet:
    if cell.is_day:
        values = _periods(cell, counts)
        others = len(values) - SHOWN
    else:
        values = [_value(cell, value, count, names) for _, value, count, *_ in counts]
        others = (counts[0][3] if counts else 0) - SHOWN
    return Facet(cell, values[:SHOWN], max(others, 0))


def _value(cell: Cell, value: str | None, count: int, names: Names) -> Value:
    test = equal_to(cell, value)
    if cell.step and value is not None:
        return Value(*names[cell.field.name].get(value, (value, "")), count, test)
    return Value(in_words(cell, value), "", count, test)


def _periods(cell: Cell, counts: Sequence[Counted]) -> list[Value]:
    """The months of days, newest first; their years if there are many."""
    months = Counter({value: count for _, value, count, *_ in counts if value and PERIOD.fullmatch(value)})
    periods = months
    if len(months) > SHOWN:
        periods = Counter()
        for month, count in months.items():
            periods[month[:4]] += count
    return [Value(period, "", periods[period], within(cell, period)) for period in sorted(periods, reverse=True)]
