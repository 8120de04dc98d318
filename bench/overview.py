"""What the overview of a company costs, whose figures must not depend on its size; the floor is a company of a hundredth of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from statistics import median
from typing import Any

import psycopg

from app.database.connections import connect
from bench.place import Place
from bench.table import Result, rate, say, timed

ROUNDS = 200
STEPS = 30
FILL = "insert into data.units (company_id, code, name) select %s, 'U' || n, 'unit' from generate_series(%s::int, %s::int) n"


def measure(place: Place, rows: int) -> Iterator[Result]:
    """Milliseconds of a figure."""
    sizes = {"large": rows, "small": max(rows // 100, 100)}
    with place.database(*sizes) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            for company, size in sizes.items():
                say(f"overview: {size:,} rows of company {company}")
                fill(connection, company, size)
            connection.execute("analyze")
        ours, floor = (read(url, company) for company in sizes)
    for name, durations in ours.items():
        note = f"median of {ROUNDS}, {rows:,} rows and changes; floor: {sizes['small']:,}"
        yield rate(f"overview, {name}", "queries/s", 1, [median(durations)], [median(floor[name])], note)


def fill(connection: psycopg.Connection[Any], company: str, size: int) -> None:
    """So many rows, in as many transactions as a chart has steps."""
    for step in range(STEPS):
        with connection.transaction():
            connection.execute("select bds.set_context(%s, 'bench')", (company,))
            connection.execute(FILL, (company, step * size // STEPS + 1, (step + 1) * size // STEPS))


def read(url: str, company: str) -> dict[str, list[float]]:
    """Seconds of each figure; the chart's steps are those of the time in which the company was filled."""
    with connect(url) as operator:
        row = operator.execute(
            "select min(created_at), max(created_at) from bds.changes where company_id = %s", (company,)
        ).fetchone()
    assert row is not None
    first: datetime = row[0]
    step: timedelta = (row[1] - first) / STEPS
    bounds = [first + step * n for n in range(STEPS + 1)]
    with connect(url, "bds_reader") as reader:
        reader.execute("select set_config('bds.company', %s, false)", (company,))
        queries: dict[str, Callable[[], Any]] = {
            "chart": lambda: reader.execute("select * from bds_service.count_changes(%s, %s)", (company, bounds)).fetchall(),
            "rows": lambda: reader.execute("select * from bds_service.count_rows(%s)", (company,)).fetchall(),
        }
        return {name: [timed(query)[0] for _ in range(ROUNDS)] for name, query in queries.items()}
