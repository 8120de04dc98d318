"""Commits of one row each: by clients of one company, and of many; beside the same without the log, and without notifications."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles

import psycopg

from bench.place import pgbench_speed, settle, start_pgbench
from bench.table import Result, rates, say

ROUNDS = 3
COMPANIES = 16
ROWS = 5_000  # of each company
DURATION = 4  # seconds of a round
BELLS = 300  # commits whose notification is timed
FLOORS = {"bench_ordered": "turn and stamp alone", "bench_plain": "triggers off"}
QUIET = "bench_quiet"  # the logged table, without notifications
SINGLE = """\\set id random(:first, :last)
\\set value random(1, 1000000000)
update data.{} set name = 'name ' || :value where company_id = '{}' and id = :id;
"""
KEEPER = "import asyncio, sys; from app.database.servers import bell; asyncio.run(bell.keep(sys.argv[1]))"


def measure(url: str, directory: Path) -> Iterator[Result]:
    """Commits a second, and milliseconds from a commit to its notification."""
    companies = [f"bench{n}" for n in range(COMPANIES)]
    with psycopg.connect(url, autocommit=True) as connection:
        for company in companies:
            connection.execute("select bds.create_company(%s)", (company,))
            for table in ("bench_logged", *FLOORS):
                connection.execute(
                    f"insert into data.{table} (company_id, code, name, updated_at)"
                    " select %s, 'code ' || n, 'name', clock_timestamp() from generate_series(1, %s) n".encode(),
                    (company, ROWS),
                )
    for clients, each in ((1, companies[:1]), (4, companies[:1]), (16, companies[:1]), (16, companies)):
        yield from _commits(url, directory, clients, each)
    with keeper(url):
        yield from _bells(url, directory, companies)


def _commits(url: str, directory: Path, clients: int, companies: list[str]) -> Iterator[Result]:
    where = "one company" if len(companies) == 1 else f"{len(companies)} companies"
    say(f"log: single-row commits, {clients} clients in {where}")
    speeds: dict[str, list[float]] = defaultdict(list)
    settle(url, vacuum=True)
    for _ in range(ROUNDS):
        with keeper(url):
            for table in ("bench_logged", *FLOORS):
                speeds[table].append(_speed(url, directory, table, clients, companies))
            with _without_notify(url):
                speeds[QUIET].append(_speed(url, directory, "bench_logged", clients, companies))
        speeds["unkept"].append(_speed(url, directory, "bench_logged", clients, companies))
    for table, what in (FLOORS | {QUIET: "no pg_notify", "unkept": "no process keeps the bell"}).items():
        target = "; target >= 0.9" if table == QUIET and len(companies) > 1 else ""
        note = f"single-row updates, {clients} clients in {where}; floor: {what}{target}"
        yield rates(f"log, {clients} in {where} ({what})", "commits/s", speeds["bench_logged"], speeds[table], note)


def _speed(url: str, directory: Path, table: str, clients: int, companies: list[str]) -> float:
    """Transactions a second of all companies together."""
    return sum(pgbench_speed(each) for each in _start(url, directory, table, clients // len(companies), companies, DURATION))


def _start(url: str, directory: Path, table: str, clients: int, companies: list[str], duration: int) -> list[subprocess.Popen[str]]:
    running = []
    for company in companies:
        script = directory / f"{table}_{company}.sql"
        script.write_text(SINGLE.format(table, company))
        with psycopg.connect(url) as connection:
            row = connection.execute(
                f"select min(id), max(id) from data.{table} where company_id = %s".encode(), (company,)
            ).fetchone()
            assert row is not None
        running.append(start_pgbench(url, script, "bds_writer", clients, duration, company, first=row[0], last=row[1]))
    return running


@contextlib.contextmanager
def keeper(url: str) -> Iterator[None]:
    """A process that keeps the bell, as `bds serve` does."""
    process = subprocess.Popen([sys.executable, "-c", KEEPER, url])
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            while connection.execute("select from bds.bell where last_value = 0 and is_called").fetchone() is None:
                time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("alter sequence bds.bell restart")


@contextlib.contextmanager
def _without_notify(url: str) -> Iterator[None]:
    """The log without the notification, and without the look at the bell."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("select pg_get_functiondef(oid) from pg_proc where proname = 'advance'").fetchone()
        assert row is not None
        quiet = row[0].replace("then bds_change_log.ring(company) end", "then null end")
        assert quiet != row[0]
        connection.execute(quiet)
        yield
        connection.execute(row[0])


def _bells(url: str, directory: Path, companies: list[str]) -> Iterator[Result]:
    """The time from a commit to its notification: alone, and while the other companies write."""
    for busy in (False, True):
        say(f"log: notifications, {'others write' if busy else 'alone'}")
        others = _start(url, directory, "bench_logged", 1, companies[1:9], 3600) if busy else []
        try:
            times = _time_bells(url, companies[0])
        finally:
            for each in others:
                each.terminate()
                each.wait()
        note = (
            f"{BELLS} commits, {'while 8 other companies write' if busy else 'alone'}; median {median(times):.1f} ms; target < 50"
        )
        yield Result(f"log, commit to notification, p99{' (busy)' * busy}", "ms", quantiles(times, n=100)[98], note=note)


def _time_bells(url: str, company: str) -> list[float]:
    committed, came = [], threading.Event()
    times: list[float] = []

    def listen() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("listen bds_changes")
            came.set()
            for notify in connection.notifies():
                if notify.payload == company and not came.is_set():
                    times.append(max(0.0, time.perf_counter() - committed[-1]) * 1000)
                    came.set()
                    if len(times) == BELLS:
                        return

    thread = threading.Thread(target=listen)
    thread.start()
    came.wait()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select set_config('bds.company', %s, false)", (company,))
        for n in range(BELLS):
            time.sleep((40 + n * 7 % 50) / 1000)  # at any phase of the keeper
            came.clear()
            committed.append(time.perf_counter())
            connection.execute(
                "update data.bench_logged set name = %s where company_id = %s and code = 'code 1'", (f"bell {n}", company)
            )
            came.wait()
    thread.join()
    return times
