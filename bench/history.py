"""What it takes to read a log of millions of records: pages by id, a row's history; the floor is the same log at a hundredth of its size."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import psycopg

from app.changes.log import read_changes
from app.config import Config
from app.database.connections import connect
from app.database.database import Database
from bench.place import Place
from bench.table import Result, rate, say, timed

COMPANIES = 20
MONTHS = 24
VERSIONS = 20  # changes of each row
ROUNDS = 300
PAGE = 1_000

# Of n: a company in turn, its next id, entities of which one is rare, rows that come back again and again.
RECORDS_OF_A_MONTH = f"""
    insert into {{partition}} (
        company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id, last_updated_at,
        row_hash, old
    )
    select 'c' || n % {COMPANIES}, n / {COMPANIES} + 1, (array['orders', 'customers'])[1 + (n / {COMPANIES} % 100 = 0)::int],
        1 + hashint8(n / {COMPANIES})::bigint % {{rows}} + {{rows}}, 'update', {{since}} + (n - {{first}}) * interval '28 days' / {{amount}},
        '1', 'bench', 'bench', null, {{since}}, 0, '{{{{"total": 12.3400, "status": "open"}}}}'
    from generate_series({{first}}, {{first}} + {{amount}} - 1) n
"""


def measure(place: Place, records: int) -> Iterator[Result]:
    """Milliseconds of a query."""
    times: dict[str, list[list[float]]] = defaultdict(list)
    for size in (records, records // 100):
        with place.database(*(f"c{n}" for n in range(COMPANIES))) as url:
            fill(url, size)
            say(f"history: reading a log of {size:,} records")
            for name, durations in read(url, size // COMPANIES).items():
                times[name].append(durations)
    for name, (ours, floor) in times.items():
        note = f"median of {ROUNDS}, {records:,} records, p99 {sorted(ours)[-ROUNDS // 100] * 1e3:.1f} ms; floor: {records // 100:,} records"
        yield rate(f"history, {name}", "queries/s", 1, [median(ours)], [median(floor)], note)


def fill(url: str, size: int) -> None:
    """A log of so many records in partitions of past months."""
    amount, rows = size // MONTHS, size // COMPANIES // VERSIONS
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off; set maintenance_work_mem = '256MB'; set timezone = 'UTC'")
        for month in range(MONTHS):
            if month % 4 == 0:
                say(f"history: {size:,} records, month {month + 1} of {MONTHS}")
            year, number = 2020 + month // 12, month % 12 + 1
            partition, since = f"bds.change_log_{year}_{number:02}", f"timestamptz '{year}-{number}-01'"
            connection.execute(f"select bds_change_log.make_month({since})".encode())
            statement = RECORDS_OF_A_MONTH.format(partition=partition, rows=rows, since=since, first=month * amount, amount=amount)
            connection.execute(statement.encode())
        connection.execute("update bds.clocks set last_id = %s", (size // COMPANIES,))
        connection.execute(
            "insert into bds.change_months (company_id, month, first_id)"
            " select company_id, date_trunc('month', created_at, 'UTC'), min(id) from bds.change_log group by 1, 2"
        )
        connection.execute("vacuum analyze bds.change_log")
        with connection.transaction():  # a row as it is now
            connection.execute("set local session_replication_role = replica")
            connection.execute(
                "insert into data.orders (company_id, id, code, order_date) select 'c1', n, n, now()"
                " from (select distinct row_id from bds.change_log where company_id = 'c1' and entity = 'orders' limit 5000) as r (n)"
            )


def read(url: str, last: int) -> dict[str, list[float]]:
    """Seconds of each query, asked as the service asks."""
    chance = random.Random(1)
    with connect(url, "bds_reader") as reader, asyncio.Runner() as runner:
        database = runner.run(Database.open(Config(database_url=url)))

        def page(filter: str, sort: str = "id") -> Any:
            options = [("filter", filter), ("sort", sort), ("limit", str(PAGE))]
            return runner.run(read_changes(database, "c1", options))

        reader.execute("select set_config('bds.company', 'c1', false)")
        rows = [row[0] for row in reader.execute("select id from api.orders").fetchall()]
        queries: dict[str, Callable[[], Any]] = {
            "page by id": lambda: page(f"id > {chance.randrange(last)}"),
            "page of a rare entity": lambda: page(f"entity = 'customers' and id > {chance.randrange(last)}"),
            "newest page": lambda: page("", sort="-id"),
            "changes of a row": lambda: page(f"entity = 'orders' and rowId = '{chance.choice(rows)}'"),
            "row_history": lambda: reader.execute(
                "select * from bds.row_history('c1', 'orders', %s)", (chance.choice(rows),)
            ).fetchall(),
            "row_at": lambda: reader.execute(
                "select bds.row_at('c1', 'orders', %s, %s)", (chance.choice(rows), chance.randrange(last))
            ).fetchall(),
        }
        times = {name: [timed(query)[0] for _ in range(ROUNDS)] for name, query in queries.items()}
        runner.run(database.close())
        return times
