"""A company's month of the log that expires, and the company deleted, while others write; the floor is a writer's transaction alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median, quantiles

import psycopg

from bench.place import COMPANY, Place, settle
from bench.table import Result, rates, say, timed

OTHER = "other"
ALONE = 5.0  # seconds of writing with nothing beside
MONTH = "timestamptz '2020-01-01Z'"
RECORDS = f"""
    insert into bds.change_log_2020_01 (
        company_id, id, entity, row_id, operation, created_at, transaction_id, actor, db_user, change_set_id, last_updated_at,
        row_hash, old
    )
    select '{COMPANY}', n, 'orders', 1 + n %% 100000, 'update', {MONTH} + n * interval '28 days' / %(records)s, '1', 'bench', 'bench', null,
        {MONTH}, 0, '{{"total": 12.3400, "status": "open"}}'
    from generate_series(1, %(records)s) n
"""
EXPIRE = "select bds_change_log.expire_changes()"
# What the operator has set before, what takes the month away, and who writes meanwhile.
WAYS = {
    "dropped": ("select bds.set_retention('1 year')", EXPIRE, (COMPANY, OTHER)),
    "archived": ("select bds.set_retention('1 year', archive => true)", EXPIRE, (COMPANY, OTHER)),
    "deleted": (f"select bds.set_retention('1 year', '{COMPANY}')", EXPIRE, (COMPANY, OTHER)),
    "deleted with its company": ("select", f"select bds.delete_company('{COMPANY}')", (OTHER,)),
}


def measure(place: Place, records: int) -> Iterator[Result]:
    """Transactions a second of two writers, one of them of the company whose month it is unless that is deleted, too."""
    for way, (settings, statement, writers) in WAYS.items():
        with place.database(COMPANY, OTHER) as url:
            say(f"retention: {records:,} records that are {way}")
            fill(url, records)
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(settings.encode())
                alone, ours, seconds = beside(url, lambda: _expire(connection, statement), *writers)  # noqa: B023
        note = f"{records:,} records in {seconds:.1f} s; a writer beside: {described(ours)}; alone: {described(alone)}"
        yield rates(f"retention, a writer while a month is {way}", "commits/s", [1 / median(ours)], [1 / median(alone)], note)


def _expire(connection: psycopg.Connection[tuple[int]], statement: str) -> None:
    """Until nothing is left to do: a call gives up where it would keep sessions waiting."""
    while connection.execute(statement.encode()).fetchone() == (0,):
        time.sleep(0.1)


def fill(url: str, records: int) -> None:
    """A log of so many records in a month that is over, and then what is written now."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set synchronous_commit = off; set maintenance_work_mem = '256MB'; set timezone = 'UTC'")
        connection.execute(f"select bds_change_log.make_month({MONTH})".encode())
        connection.execute(RECORDS.encode(), {"records": records})
        connection.execute("update bds.clocks set last_id = %s where company_id = %s", (records, COMPANY))
        connection.execute(f"insert into bds.change_months (company_id, month, first_id) values ('{COMPANY}', {MONTH}, 1)".encode())
    settle(url, vacuum=True)


def beside(url: str, work: Callable[[], None], *companies: str) -> tuple[list[float], list[float], float]:
    """Seconds of the transactions of a writer for each company alone, and beside some work; and the seconds that this takes."""
    with writing(url, companies) as times:
        time.sleep(ALONE)
        alone, begun = [seconds for _, seconds in times], time.perf_counter()
        seconds, _ = timed(work)
        ended = begun + seconds
    return alone, [taken for at, taken in times if at + taken >= begun and at <= ended] or alone[-1:], seconds


@contextmanager
def writing(url: str, companies: tuple[str, ...]) -> Iterator[list[tuple[float, float]]]:
    """Threads that write as long as the block lasts; yields when each transaction began, and the seconds that it took."""
    times: list[tuple[float, float]] = []
    stopped = threading.Event()

    def write(company: str) -> None:
        with psycopg.connect(url) as connection:
            number = 0
            while not stopped.is_set():
                number, began = number + 1, time.perf_counter()
                connection.execute("select bds.set_context(%s)", (company,))
                connection.execute("insert into data.units (code, name) values (%s, 'unit')", (f"u{number}",))
                connection.commit()
                times.append((began, time.perf_counter() - began))

    threads = [threading.Thread(target=write, args=(company,)) for company in companies]
    for thread in threads:
        thread.start()
    try:
        yield times
    finally:
        stopped.set()
        for thread in threads:
            thread.join()


def described(seconds: list[float]) -> str:
    """Median, 99 % and the longest, in milliseconds."""
    most = quantiles(seconds, n=100)[-1] if len(seconds) > 1 else seconds[0]
    return f"median {median(seconds) * 1e3:.1f} ms, p99 {most * 1e3:.1f}, longest {max(seconds) * 1e3:.1f}"
