"""Groups of rows with their numbers and sums: what OData's $apply gives, as a table and as its URL."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Decimal, localcontext
from typing import Any

import psycopg

from app.database.catalog import Catalog, Entity
from app.database.past import Moment
from app.logs import count_rows
from app.query.check.options import parse_query
from app.query.check.query import Query
from app.query.sql import statements as sql_statements
from app.types import named
from app.web.columns import EXACT, Cell, in_words, most_places, name_of, naming
from app.web.conditions import equal_to
from app.web.forms import Form
from app.web.page import PageRequest
from app.web.past import reading_for

SHOWN = 200  # groups
TIMEOUT = 5_000  # milliseconds
LATE = f"This takes more than {TIMEOUT // 1000} seconds: restrict the rows by a condition, or use the URL for programs"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of rows.  sum: None without numbers; test: the condition of /c that a row belongs to it."""

    code: str
    name: str
    count: int
    sum: str | None
    test: str


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups by a column, the largest first.  apply, orderby: OData's options that give them; is_cut: whether there are more."""

    by: Cell
    sum: Cell | None
    groups: list[Group]
    apply: str
    orderby: str
    is_cut: bool

    @property
    def count(self) -> int:
        return sum(each.count for each in self.groups)

    @property
    def total(self) -> str:
        with localcontext(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN):  # exact
            total = sum(Decimal(each.sum) for each in self.groups if each.sum)
        return f"{total:f}" if self.sum and named(self.sum.field.type).kind == "decimal" else str(total)

    @property
    def places(self) -> int:
        """The digits behind the point that a sum has at most."""
        return most_places(each.sum for each in self.groups)

    def share(self, value: int | str | None) -> float:
        """The length of a bar, in percent of the longest one in its column."""
        if isinstance(value, int):
            values = [Decimal(each.count) for each in self.groups]
        else:
            values = [abs(Decimal(each.sum or 0)) for each in self.groups]
        longest = max(values, default=0)
        return round(float(abs(Decimal(value or 0)) / longest * 100), 1) if longest else 0.0


def choose(form: Form, cells: Sequence[Cell]) -> tuple[Cell | None, Cell | None]:
    """The columns by which rows are grouped and of which sums are made.  Adds problems to the form."""
    chosen: list[Cell | None] = []
    for name, choices in (("group", groupable(cells)), ("sum", summable(cells))):
        cell = next((cell for cell in choices if cell.name == form[name]), None)
        if form[name] and cell is None:
            form.add_problem(name, f"expected one of {', '.join(each.name for each in choices)}, got {form[name]}")
        chosen.append(cell)
    return chosen[0], chosen[1]


def groupable(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.is_grouped]


def summable(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.is_number]


async def read_groups(
    page: PageRequest, query: Query, moment: Moment | None, by: Cell, summed: Cell | None, form: Form
) -> Groups | None:
    """The groups of the rows that a query finds; None, with a problem, if that takes longer than TIMEOUT."""
    entity, catalog = query.entity, query.catalog
    count, sum = _alias(entity, "rows"), _alias(entity, "sum")
    target = catalog[by.step.target] if by.step else None
    paths = [by.field.name, *(f"{by.name}/{field.name}" for field in naming(target)[1:])] if target else [by.field.name]
    sums = f",{summed.field.name} with sum as {sum}" if summed else ""
    apply = f"groupby(({','.join(paths)}),aggregate($count as {count}{sums}))"
    orderby = f"{sum if summed else count} desc"
    grouped = parse_query(catalog, entity, [("$apply", apply), ("$orderby", orderby), ("$top", str(SHOWN + 1))])
    statement = sql_statements.page(replace(grouped, filter=query.filter), page.company, EXACT)
    try:
        async with reading_for(page, moment, TIMEOUT) as connection:
            row = await (await connection.raw.execute(statement.text, statement.values)).fetchone()
    except psycopg.errors.QueryCanceled:
        form.add_problem("group", LATE, "busy")
        return None
    found = json.loads(f"[{(row and row[0]) or ''}]", parse_float=str)
    count_rows(min(len(found), SHOWN))
    groups = [_group(page.database.catalog, by, each, each[count], each.get(sum)) for each in found[:SHOWN]]
    return Groups(by, summed, groups, apply, orderby, len(found) > SHOWN)


def _group(catalog: Catalog, by: Cell, found: Mapping[str, Any], count: Any, sum: Any) -> Group:
    value, total = found[by.field.name], None if sum is None else str(sum)
    test = equal_to(by, value)
    if by.step and value is not None:
        row = found.get(by.name)  # in the past there may be none
        code, name = name_of(catalog[by.step.target], {"id": value, **row}) if row else (str(value), "")
        return Group(code, name, int(count), total, test)
    return Group(in_words(by, value), "", int(count), total, test)


def _alias(entity: Entity, name: str) -> str:
    """A name that no property of the entity has."""
    while name in entity.fields or name in entity.navigations:
        name += "_"
    return name
