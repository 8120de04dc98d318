"""What the change log costs: the same writes into registered tables, of which some have their triggers switched off."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from bench.place import COMPANY, Place, pgbench, settle
from bench.table import Result, rate, rates, say, timed

ROUNDS = 3
ROWS = 100_000
DURATION = 5  # seconds of a round of single-row commits
# What is left on of each table: all; nothing; updatedAt; updatedAt in the order of commits, which reads by it need with or without a log.
TABLES = {
    "bench_logged": None,
    "bench_plain": (),
    "bench_stamped": ("bds_2_stamp",),
    "bench_ordered": ("bds_1_lock", "bds_2_stamp"),
}
FLOORS = {"bench_ordered": "log off", "bench_stamped": "log and lock off", "bench_plain": "triggers off"}
TARGET = {("bench_ordered", 1): "; target >= 0.7"}  # table and clients
BULK = {
    "insert": "insert into data.{} (company_id, code, name, updated_at)"
    " select '{}', 'code ' || n, 'name ' || n, clock_timestamp() from generate_series(1, {}) n",
    "update": "update data.{} set name = name || '.' where company_id = '{}'",
    "delete": "delete from data.{} where company_id = '{}'",
}
SINGLE = """\\set id random(:first, :last)
\\set value random(1, 1000000000)
update data.{} set name = 'name ' || :value where company_id = '{}' and id = :id;
"""


def measure(place: Place) -> Iterator[Result]:
    """Rows a second, commits a second."""
    with place.database(COMPANY) as url:
        for table in TABLES:
            _make(url, table)
        with psycopg.connect(url, autocommit=True) as connection:
            for table, triggers in TABLES.items():
                if triggers is not None:
                    connection.execute(f"alter table data.{table} disable trigger user".encode())
                for trigger in triggers or ():
                    connection.execute(f"alter table data.{table} enable trigger {trigger}".encode())
        yield from _bulk(url)
        for clients in (1, 4):
            yield from _commits(url, clients, place.directory)


def _make(url: str, table: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"create table data.{table} (like data.units including all)".encode())
        connection.execute("select bds.register(%s)", (f"data.{table}",))


def _bulk(url: str) -> Iterator[Result]:
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(ROUNDS):
        say(f"log: {ROWS:,} rows, round {number + 1} of {ROUNDS}")
        for operation, statement in BULK.items():
            for table in ("bench_logged", "bench_plain"):
                settle(url)
                times[operation, table].append(_write(url, statement.format(table, COMPANY, ROWS)))
        settle(url, vacuum=True)
    for operation in BULK:
        ours, floor = times[operation, "bench_logged"], times[operation, "bench_plain"]
        yield rate(f"log, {operation}", "rows/s", ROWS, ours, floor, f"{ROWS:,} rows in a statement; floor: triggers off")


def _write(url: str, statement: str) -> float:
    with psycopg.connect(url) as connection:
        return timed(_commit, connection, statement)[0]


def _commit(connection: psycopg.Connection[Any], statement: str) -> None:
    connection.execute("select bds.set_context(%s)", (COMPANY,))
    connection.execute(statement.encode())
    connection.commit()


def _commits(url: str, clients: int, directory: Path) -> Iterator[Result]:
    """Updates of one row each, at random."""
    say(f"log: single-row commits, {clients} clients")
    speeds: dict[str, list[float]] = defaultdict(list)
    ranges = {table: _fill(url, table) for table in TABLES}
    settle(url, vacuum=True)
    for _ in range(ROUNDS):
        for table, (first, last) in ranges.items():
            script = directory / f"{table}.sql"
            script.write_text(SINGLE.format(table, COMPANY))
            speeds[table].append(pgbench(url, script, "bds_writer", clients, DURATION, first=first, last=last))
    for table, what in FLOORS.items():
        more = median(1e6 / logged - 1e6 / plain for logged, plain in zip(speeds["bench_logged"], speeds[table], strict=True))
        # what a commit waits for the disk is in both: the slower the disk, the nearer the ratio of one client is to 1
        note = f"single-row updates, {clients} client{'s' * (clients > 1)}; floor: {what}; {more * clients:.0f} us more for each"
        note += TARGET.get((table, clients), "")
        yield rates(f"log, commits of {clients} ({what})", "commits/s", speeds["bench_logged"], speeds[table], note)


def _fill(url: str, table: str) -> tuple[int, int]:
    """Fresh rows; returns their first and last id."""
    for operation in ("delete", "insert"):
        _write(url, BULK[operation].format(table, COMPANY, ROWS))
    with psycopg.connect(url) as connection:
        row = connection.execute(f"select min(id), max(id) from data.{table}".encode()).fetchone()
    assert row is not None
    return row[0], row[1]
