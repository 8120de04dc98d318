"""Facets: beside the rows, how many of them have each value of an enum, a boolean, a reference or a date.

They count the first COUNTED rows that match and end after TIMEOUT, so that they cost the same in a table of any size.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import psycopg

from app.database.past import Moment
from app.query.check.query import Query
from app.query.sql import statements as sql_statements
from app.web.columns import EXACT, Cell
from app.web.conditions import equal_to, within
from app.web.page import PageRequest
from app.web.past import reading_for
from app.web.row_names import Row, row_names

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
    except psycopg.errors.QueryCanceled:
        return None
    return await _named(page, wanted, found)


async def _named(page: PageRequest, cells: Sequence[Cell], found: Sequence[tuple[str, str | None, int, int, int]]) -> Facets:
    """The facets of counted values, those of references by code and name."""
    targets = {cell.field.name: cell.step.target for cell in cells if cell.step}
    rows = [(targets[name], int(value)) for name, value, *_ in found if name in targets and value]
    names = await row_names(page, rows)
    facets = []
    for cell in cells:
        counts = [(value, count) for name, value, count, *_ in found if name == cell.field.name]
        if cell.is_day:
            values = _periods(cell, counts)
            others = len(values) - SHOWN
        else:
            values = [_value(cell, value, count, names) for value, count in counts]
            others = next((distinct for name, _, _, distinct, _ in found if name == cell.field.name), 0) - SHOWN
        if values:
            facets.append(Facet(cell, values[:SHOWN], max(others, 0)))
    return Facets(facets, any(total == COUNTED for *_, total in found))


def _value(cell: Cell, value: str | None, count: int, names: dict[Row, tuple[str, str]]) -> Value:
    test = equal_to(cell, value)
    if value is None:
        return Value("none", "", count, test)
    if cell.step:
        return Value(*names.get((cell.step.target, int(value)), (value, "")), count, test)
    words = {"true": "yes", "false": "no"} if cell.field.type == "bool" else {"": "empty text"}
    return Value(words.get(value, value), "", count, test)


def _periods(cell: Cell, counts: Sequence[tuple[str | None, int]]) -> list[Value]:
    """The months of days, newest first; their years if there are many."""
    months = Counter({value: count for value, count in counts if value and PERIOD.fullmatch(value)})
    periods = months
    if len(months) > SHOWN:
        periods = Counter()
        for month, count in months.items():
            periods[month[:4]] += count
    return [Value(period, "", periods[period], within(cell, period)) for period in sorted(periods, reverse=True)]
