"""Random $apply: PostgreSQL and the oracle in Python give the same groups."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date, datetime, time
from fractions import Fraction
from typing import Any

import psycopg
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from app.query.check.options import parse_query
from app.query.sql import statements as sql_statements
from tests.query import oracle, samples
from tests.query.conftest import Judged
from tests.query.maker import BOUNDED, Maker
from tests.query.oracle import Sample, Undecided

pytestmark = pytest.mark.slow

METHODS = {"text": ("min", "max"), "bool": ("min", "max"), "whole": ("min", "max", "sum"), "decimal": ("min", "max", "sum")}
ANY = ("count", "countdistinct")
Group = dict[tuple[str, ...], object]


@dataclass(frozen=True)
class Grouping:
    """groupby of paths with aggregates a0, a1 ..., a filter on rows and a filter on groups."""

    paths: list[tuple[int, str]]  # number of parents up, field
    aggregates: list[tuple[str, Sample | None]]  # method and operand; $count has none
    rows: Sample
    least: int | None  # a0 is at least this

    @property
    def apply(self) -> str:
        made = ",".join(
            f"$count as a{n}" if value is None else f"{value.inside(oracle.OR)} with {method} as a{n}"
            for n, (method, value) in enumerate(self.aggregates)
        )
        fields = ",".join("/".join((*["parent"] * up, name)) for up, name in self.paths)
        return f"groupby(({fields}),aggregate({made}))" if fields else f"aggregate({made})"

    @property
    def filter(self) -> str:
        return self.rows.inside(oracle.AND) + ("" if self.least is None else f" and a0 ge {self.least}")

    def groups(self, rows: list[samples.Row]) -> list[Group]:
        """The groups, each as its values by path."""
        found: dict[tuple[object, ...], list[samples.Row]] = {} if self.paths else {(): []}
        for row in rows:
            if self.rows.evaluate({"": row}) is True:
                found.setdefault(tuple(_behind(row, up, name) for up, name in self.paths), []).append(row)
        groups = []
        for key, members in found.items():
            aggregates = [_aggregated(method, value, members) for method, value in self.aggregates]
            if self.least is None or (aggregates[0] is not None and aggregates[0] >= self.least):
                shown = {(*["parent"] * up, name): value for (up, name), value in zip(self.paths, key, strict=True)}
                groups.append(shown | {(f"a{n}",): value for n, value in enumerate(aggregates)})
        return groups


class Missing:
    """Marks a path that leads to no row."""


def _behind(row: samples.Row, up: int, name: str) -> object:
    above: samples.Row | None = row
    for steps in range(up):
        above = above and above.parent
        if above is None:
            return (Missing, steps)
    assert above is not None
    return above[name]


def _aggregated(method: str, value: Sample | None, rows: list[samples.Row]) -> Any:
    if value is None:
        return len(rows)
    known = [known_value for row in rows if (known_value := value.evaluate({"": row})) is not None]
    if any(isinstance(each, oracle.Rounded) for each in known):
        raise Undecided
    match method:
        case "count":
            return len(known)
        case "countdistinct":
            return len(set(known))
        case "sum":
            return sum(known, Fraction(0)) if known else None
        case "min":
            return min(known, default=None)
    return max(known, default=None)


def _canonical(group: Group) -> str:
    """A text that is equal for equal groups."""
    texts = {}
    for path, value in group.items():
        if isinstance(value, tuple):  # an object is null if its path leads to no row
            texts["/".join(path[: value[1] + 1])] = "null"
        elif isinstance(value, bool):
            texts["/".join(path)] = str(value).lower()
        elif isinstance(value, int | Fraction):
            texts["/".join(path)] = str(Fraction(value))
        else:
            texts["/".join(path)] = "null" if value is None else f"'{written_json(value)}'"
    return str(sorted(texts.items()))


def written_json(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value.isoformat(timespec='microseconds')}Z"
    return value.isoformat() if isinstance(value, date | time) else str(value)


def _answered(answer: dict[str, Any], before: tuple[str, ...] = ()) -> Group:
    group: Group = {}
    for name, value in answer.items():
        group |= _answered(value, (*before, name)) if isinstance(value, dict) else {(*before, name): value}
    return group


@st.composite
def groupings(draw: st.DrawFn) -> Grouping:
    maker = Maker(draw)
    fields = [name for names in samples.FIELDS.values() for name in names if name != "id"]
    paths = [(draw(st.sampled_from((0, 0, 1, 2))), maker.choose(*fields)) for _ in range(draw(st.integers(0, 3)))]
    aggregates: list[tuple[str, Sample | None]] = [("count", None)]
    for _ in range(draw(st.integers(0, 3))):
        type = maker.choose(*METHODS)
        aggregates.append((maker.choose(*METHODS[type], *ANY), maker.make(type, 1)))
    rows = maker.make("bool", 1) if draw(st.booleans()) else oracle.constant("id gt 0", True)
    return Grouping(
        list(dict.fromkeys(paths)), aggregates, Sample(rows.text, oracle.OR, rows.evaluate), draw(st.sampled_from((None, 1, 2, 5)))
    )


@BOUNDED
@given(groupings())
def test_random_groups_are_the_same(judged: Judged, grouping: Grouping) -> None:
    try:
        expected = grouping.groups(judged.rows)
    except Undecided:
        reject()
    query = parse_query(judged.catalog, judged.catalog["samples"], [("$apply", grouping.apply), ("$filter", grouping.filter)])
    statement = sql_statements.rows(query, "acme")
    rows = psycopg.RawCursor(judged.reader).execute(statement.text, statement.values).fetchall()
    answered = [_answered(json.loads(row, parse_float=Fraction, parse_int=Fraction)) for (row,) in rows]
    assert sorted(map(_canonical, answered)) == sorted(map(_canonical, expected))
