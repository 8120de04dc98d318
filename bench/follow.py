"""Streams of changes: from a commit to its events at many followers of many companies, while transactions commit at a steady rate."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from statistics import median, quantiles

import psutil
import psycopg

from app.auth.keys import hash_key, make_key
from bench.place import Place, settle
from bench.place import service as serving
from bench.table import Result, say

COMPANIES = 50
FOLLOWERS = 1_000
RATE = 100  # transactions a second
CHANGES = 5  # of a transaction
DURATION = 30  # seconds
WRITERS = 4  # connections
UPDATE = "update data.units set name = %s where company_id = %s"


def measure(place: Place) -> Iterator[Result]:
    """Milliseconds from a commit to an event."""
    companies = [f"follow{n}" for n in range(COMPANIES)]
    with place.database("bench", *companies) as url:
        key = prepare(url, companies)
        with serving(url, place.directory) as service:
            say(f"follow: {FOLLOWERS:,} followers of {COMPANIES} companies, {RATE * CHANGES} changes/s in {RATE} transactions/s")
            command = [sys.executable, "-m", "bench.followers", service.host, str(service.port), key, str(FOLLOWERS), *companies]
            followers = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert followers.stdout is not None
            assert followers.stdout.readline() == "ready\n"
            process = psutil.Process(service.pid)
            used, began = sum(process.cpu_times()[:2]), time.perf_counter()
            commits, waits = write(url, companies)
            load = (sum(process.cpu_times()[:2]) - used) / (time.perf_counter() - began)
            out, _ = followers.communicate()
            memory = service.memory()
    yield from results(commits, waits, out, load, memory)


def results(commits: dict[tuple[str, int], int], waits: list[float], out: str, load: float, memory: float) -> Iterator[Result]:
    """Of the times of commits and of events, by company and change.  Raises RuntimeError if an event is missing, or came twice.

    waits: how long the commits took, in milliseconds.
    """
    times, came = [], defaultdict(int)
    for line in out.splitlines():
        company, id, at = line.split()
        came[company, int(id)] += 1
        times.append(max(0.0, (int(at) - commits[company, int(id)]) / 1e6))
    wrong = sum(came[each] != FOLLOWERS // COMPANIES for each in commits)
    if wrong or len(came) != len(commits):
        raise RuntimeError(f"{wrong} of {len(commits)} changes did not come to each follower once")
    note = (
        f"{FOLLOWERS:,} followers of {COMPANIES} companies, {len(commits) / DURATION:,.0f} changes/s in {RATE} transactions/s, "
        f"{len(times):,} events; median {median(times):.1f} ms, most {max(times):.0f} ms; a commit took {median(waits):.1f} ms, p99 {quantiles(waits, n=100)[98]:.0f} ms; the service used {load:.0%} of a processor "
        f"and {memory:.0f} MB, the machine's load was {os.getloadavg()[0]:.1f}; target < 100"
    )
    yield Result("follow, commit to event, p99", "ms", quantiles(times, n=100)[98], note=note)


def prepare(url: str, companies: list[str]) -> str:
    """Rows to change, and a key for all companies."""
    key = make_key()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select bds.create_key(%s, 'followers', %s, null, '{read}')", (hash_key(key), companies))
        for company in companies:
            with connection.transaction():
                connection.execute("select bds.set_context(%s)", (company,))
                connection.execute(
                    "insert into data.units (company_id, code, name) select %s, n::text, 'x' from generate_series(1, %s) n",
                    (company, CHANGES),
                )
    settle(url, vacuum=True)
    return key


def write(url: str, companies: list[str]) -> tuple[dict[tuple[str, int], int], list[float]]:
    """Commit at RATE, in each company in turn; returns when each change was committed, and how long the commits took."""
    commits: dict[tuple[str, int], int] = {}
    waits: list[float] = []
    began = time.perf_counter()

    def run(first: int) -> None:
        mine = companies[first::WRITERS]
        last = dict.fromkeys(mine, CHANGES)
        with psycopg.connect(url) as connection:
            for number in range(RATE * DURATION // WRITERS):
                company = mine[number % len(mine)]
                time.sleep(max(0.0, began + (number * WRITERS + first) / RATE - time.perf_counter()))
                connection.execute("select bds.set_context(%s)", (company,))
                connection.execute(UPDATE, (f"n{number}", company))
                waiting = time.perf_counter_ns()
                connection.commit()
                committed = time.perf_counter_ns()
                waits.append((committed - waiting) / 1e6)
                commits.update({(company, last[company] + n): committed for n in range(1, CHANGES + 1)})
                last[company] += CHANGES

    threads = [threading.Thread(target=run, args=(n,)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    time.sleep(1)  # the last events
    return commits, waits
