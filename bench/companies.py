"""What a process of the service costs with many companies, in one database and over four places, beside a few companies.

Nothing that a request, a notification or housekeeping does grows with the number of companies; what a process keeps of the
directory does, by an entry for each company of another place.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from app.database.servers.directory import HOME
from app.places import administration
from bench.place import COMPANY, Place, Service, service
from bench.table import Result, say, timed

MANY, FEW = 10_000, 10
PLACES = 4
ROUNDS = 20
REST, IDLE = 20.0, 60.0  # seconds: until what the start left is done, and of which the processor time is taken
HOOKS = "select bds.create_hook(id, 'products', 'http://127.0.0.1:9/', 'price > 10') from bds.companies"
WRITE = "insert into data.units (code, name) values (%s, 'unit')"
# as bds.create_company does, for all at once
CREATE = """
    with made as (insert into bds.companies (id) select 'c' || n from generate_series(%s::int, %s) n returning id)
    insert into bds.clocks (company_id) select id from made
"""
ELSEWHERE = """
    with made as (insert into bds.companies (id) select 'c' || n from generate_series(%s::int, %s) n returning id)
    insert into bds.directory (company_id, place) select id, %s from made
"""


def measure(where: Place) -> Iterator[Result]:
    """Seconds, milliseconds and MB, of MANY companies (ours) and of FEW (floor)."""
    few = _all(where, FEW, 1)
    for number, name in ((1, "in one database"), (PLACES, f"over {PLACES} places")):
        many = _all(where, MANY, number)
        for what, (unit, value) in many.items():
            note = f"{MANY:,} companies; floor: {FEW} in one database"
            yield Result(f"companies {name}, {what}", unit, value, few[what][1], few[what][1] / value, note)

    one, many = _idle(where, 0), _idle(where, MANY)
    note = f"a hook for each of {MANY:,} companies; floor: of one; target: 20 ms more"
    yield Result("companies in one database, CPU in an idle second", "ms", many, one, one / many, note)


def _idle(where: Place, companies: int) -> float:
    """Milliseconds of CPU in a second in which a service with its worker, and PostgreSQL, have nothing to do."""
    say(f"companies: idle with {companies + 1:,}")
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(where.database(COMPANY))
        _run(url, CREATE, 1, companies)
        _run(url, HOOKS)
        _run(url, "select from bds.maintain(seal_age => '0')")
        _run(url, "vacuum (analyze)")
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served = psutil.Process(stack.enter_context(service(url, directory)).pid)
        while _ask(url, "select count(*) from bds.hooks where catalog_version is null"):  # filters, as they are compiled once
            time.sleep(1)
        time.sleep(REST)
        before = _used(served, where.server)
        time.sleep(IDLE)
        return 1e3 * (_used(served, where.server) - before) / IDLE


def _used(*processes: psutil.Process) -> float:
    """Seconds of CPU of processes and their children."""
    used = 0.0
    for process in processes:
        times = process.cpu_times()
        used += times.user + times.system + times.children_user + times.children_system
        for child in process.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                own = child.cpu_times()
                used += own.user + own.system
    return used


def _all(where: Place, companies: int, number: int) -> dict[str, tuple[str, float]]:
    say(f"companies: {companies:,} over {number} places")
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(where.database(COMPANY))
        names = [HOME, *(f"place{n}" for n in range(1, number))]
        share = companies // number
        for n, name in enumerate(names):
            limits = (n * share + 1, (n + 1) * share)
            if name == HOME:
                _run(home, CREATE, *limits)
                continue
            url = stack.enter_context(where.database())
            administration.add(home, name, make_conninfo(url))
            _run(url, CREATE, *limits)
            _run(home, ELSEWHERE, *limits, name)
        _run(home, "analyze")
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started = time.perf_counter()
        serving = stack.enter_context(service(home, directory, "--no-worker"))
        return {"time to start": ("s", time.perf_counter() - started), **_of_service(home, serving)}


def _of_service(home: str, serving: Service) -> dict[str, tuple[str, float]]:
    base = f"http://{serving.host}:{serving.port}"
    request = urllib.request.Request(f"{base}/api/odata/{COMPANY}/units", headers={"Authorization": serving.basic})
    read, metrics = _median(lambda: _get(request)), _median(lambda: _get(urllib.request.Request(f"{base}/metrics")))
    with psycopg.connect(home, autocommit=True) as writer, psycopg.connect(home, autocommit=True) as listener:
        listener.execute("listen bds_changes")
        heard = []
        for n in range(ROUNDS):
            with writer.transaction():
                writer.execute("select bds.set_context(%s, 'bench')", (COMPANY,))
                writer.execute(WRITE, (f"U{n}",))
            since = time.perf_counter()
            next(iter(listener.notifies(timeout=10, stop_after=1)))
            heard.append(time.perf_counter() - since)
        keeping = _median(lambda: writer.execute("select * from bds.maintain()").fetchall())
    memory = psutil.Process(serving.pid).memory_info().rss / 1e6
    return {
        "memory of a process": ("MB", memory), "a read": ("ms", read), "/metrics": ("ms", metrics),
        "notification after a commit": ("ms", 1e3 * median(heard)), "housekeeping": ("ms", keeping),
    }  # fmt: skip


def _get(request: urllib.request.Request) -> None:
    with urllib.request.urlopen(request) as answer:
        answer.read()


def _median(work: Callable[[], object]) -> float:
    """Milliseconds."""
    return 1e3 * median([timed(work)[0] for _ in range(ROUNDS + 1)][1:])  # the first one warms up


def _ask(url: str, statement: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        [(number,)] = connection.execute(statement.encode()).fetchall()
    return int(number)


def _run(url: str, statement: str, *values: object) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode(), values or None)
