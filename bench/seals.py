"""What seals cost: sealing and verifying a long log beside reading it as text, and commits of one row with and without sealing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg

from bench.history import COMPANIES, fill
from bench.place import Place, pgbench_speed, settle, start_pgbench
from bench.table import Result, rates, say, timed

COMPANY = "c0"
ROUNDS = 5
CLIENTS = 4
DURATION = 4  # seconds of a round
PAUSE = 1.0  # seconds between two calls of bds.maintain; the service waits for five
TEXTS = "select count(l.*::text) from bds.change_log l"
SEAL = "select done, problem from bds.maintain(seal_age => '0') where step = 'seal records'"
VERIFY = "select count(*) from generate_series(0, %s) n cross join lateral bds.verify_log('c' || n)"
LAST = "update bds.clocks c set last_id = (select max(l.id) from bds.change_log l where l.company_id = c.company_id)"
PEAK = "select sum(total_bytes) from pg_backend_memory_contexts"
UPDATE = (
    "\\set id random(1, 100)\nupdate data.units set name = 'unit ' || random() where company_id = 'c0' and code = 'u' || :id;\n"
)


def measure(place: Place, records: int) -> Iterator[Result]:
    """Records and commits a second."""
    companies = [f"c{n}" for n in range(COMPANIES)]
    with place.database(*companies) as url:
        fill(url, records)
        yield from _verifying(url, records)
    with place.database(COMPANY) as url:
        yield from _commits(url, place.directory)


def _verifying(url: str, records: int) -> Iterator[Result]:
    """In one process each: workers of PostgreSQL would count in parallel what a function verifies one range after the other."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set max_parallel_workers_per_gather = 0")
        connection.execute(LAST.encode())
        say(f"seals: {records:,} records")
        sealing, cursor = timed(connection.execute, SEAL.encode())
        done, problem = cursor.fetchone() or (0, None)
        assert done > records * 0.99 and problem is None, problem
        reading, verifying = list[float](), list[float]()
        for _ in range(2):
            reading.append(timed(connection.execute, TEXTS.encode())[0])
            seconds, cursor = timed(connection.execute, VERIFY.encode(), (COMPANIES - 1,))
            assert cursor.fetchone() == (0,)
            verifying.append(seconds)
        [(memory,)] = connection.execute(PEAK.encode()).fetchall()
    note = "in one process; floor: select count(l.*::text); target >= 0.25"
    yield rates("seals, verifying", "records/s", [records / s for s in verifying], [records / s for s in reading], note)
    yield rates(
        "seals, sealing",
        "records/s",
        [records / sealing],
        [records / reading[0]],
        f"{note[:-16]}; {int(memory) >> 20} MB of memory",
    )


def _commits(url: str, directory: Path) -> Iterator[Result]:
    script = directory / "seals.sql"
    script.write_text(UPDATE)
    with psycopg.connect(url, autocommit=True) as connection, connection.transaction():
        connection.execute("select bds.set_context('c0')")
        connection.execute("insert into data.units (code, name) select 'u' || n, 'unit' from generate_series(1, 100) n")
    settle(url, vacuum=True)
    say("seals: commits")
    speeds: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(ROUNDS):
        for seals in (False, True):
            ended = threading.Event()
            sealing = threading.Thread(target=_seal, args=(url, ended, seals))
            sealing.start()
            speeds[seals].append(pgbench_speed(start_pgbench(url, script, "bds_writer", CLIENTS, DURATION, COMPANY)))
            ended.set()
            sealing.join()
    note = f"{CLIENTS} clients in one company; a call of bds.maintain each second that seals; floor: one that does not"
    yield rates("seals, commits meanwhile", "commits/s", speeds[True], speeds[False], note)


def _seal(url: str, ended: threading.Event, seals: bool) -> None:
    """Maintain until the event; without seals another session has the lock for which that step of maintenance does not wait."""
    with psycopg.connect(url, autocommit=True) as connection, psycopg.connect(url) as holder:
        if not seals:
            holder.execute("lock table bds.seals in share mode")
        while not ended.wait(PAUSE):
            connection.execute(SEAL.encode())
