"""What an order costs that is sent alone, as an ERP sends each document when it is posted.

The floor is one call of a function, written by hand, that inserts the same order and item with triggers and log.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from http.client import HTTPConnection
from statistics import median
from typing import Any

import psutil
import psycopg

from app.auth.keys import hash_key, make_key
from app.database import connections
from bench.place import COMPANY, Place, Service, load, service, settle
from bench.table import Result, say

WARM, ROUNDS = 20, 200  # orders
STORED = 2_000  # orders that each company has before
DURATION = 5.0  # seconds of several clients
COMPANIES = [COMPANY, *(f"{COMPANY}{n}" for n in range(2, 9))]
WAL = "select (pg_current_wal_insert_lsn() - '0/0')::float8"
CATALOG = (
    "select sum(pg_stat_get_tuples_inserted(oid))::float8 from pg_class where relname in ('pg_class', 'pg_attribute', 'pg_type')"
)
# What somebody would write who needs no report, no audit trail and no other fields.
FUNCTION = """
create function data.take_order(company text, code text, order_date date, description text, quantity numeric, price numeric)
    returns bigint
    language plpgsql
as $$
declare
    taken bigint;
begin
    perform bds.set_context(company, 'bench');
    insert into data.orders (company_id, code, order_date) values (company, code, order_date) returning id into taken;
    insert into data.order_items (company_id, order_id, description, quantity, price)
        values (company, taken, description, quantity, price);
    return taken;
end
$$;
grant execute on function data.take_order to bds_writer;
"""
CALL = "select data.take_order(%s, %s, '2026-01-01', 'a line', 2, 3.5)"

_numbers = itertools.count()


def measure(place: Place) -> Iterator[Result]:
    """Milliseconds, WAL and catalog rows of one order; orders a second of eight clients."""
    with place.database(*COMPANIES) as url, psycopg.connect(url, autocommit=True) as operator:
        document = place.directory / "orders.json"
        document.write_bytes(_document(STORED))
        for company in COMPANIES:
            load(url, document, company)
        operator.execute(FUNCTION)
        settle(url, vacuum=True)
        with service(url, place.directory) as running:
            keys = {company: _key(operator, company) for company in COMPANIES}
            say("orders: one by one")
            ours, floor = _one_by_one(running, keys, url)
            note = f"floor: one call of a function; target 1/3; p99 {sorted(ours)[len(ours) * 99 // 100] * 1e3:.1f}"
            yield Result("orders, one", "ms", median(ours) * 1e3, median(floor) * 1e3, median(floor) / median(ours), note)
            yield from _traces(running, keys, operator)
            hundred = _times(running, keys, COMPANY, 20, 100)
            yield Result("orders, a hundred in a document", "ms", median(hundred) * 1e3, note="target <= 40")
            for companies in ([COMPANY], COMPANIES):
                say(f"orders: 8 clients, {len(companies)} companies")
                name, before = f"orders, 8 clients, {len(companies)} companies", _processor_time(place, running)
                rate = _side_by_side(companies, lambda company: _over_http(running, keys, company))
                program, database = (
                    (b - a) / (rate * DURATION) * 1e3 for a, b in zip(before, _processor_time(place, running), strict=True)
                )
                calls = _side_by_side(companies, lambda company: _by_calls(url, company))
                yield Result(name, "orders/s", rate, calls, rate / calls, "floor: calls of a function; target 0.5 in one company")
                yield Result(f"{name}, program", "ms", program, note="processor time of one order")
                yield Result(f"{name}, database", "ms", database, note="processor time of one order")


def _key(operator: psycopg.Connection[Any], company: str) -> str:
    key = make_key()
    operator.execute("select bds.create_key(%s, 'orders', %s, null, '{import}')", (hash_key(key), [company]))
    return key


def _document(orders: int) -> bytes:
    items = [{"description": "a line", "quantity": "2", "price": "3.5"}]
    numbers = itertools.islice(_numbers, orders)
    return json.dumps({"orders": [{"code": f"B{n}", "orderDate": "2026-01-01", "items": items} for n in numbers]}).encode()


def _send(connection: HTTPConnection, key: str, company: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "X-API-Key": key}
    connection.request("POST", f"/api/{company}/import", body, headers)
    answer = json.load(connection.getresponse())
    if answer.get("state") != "completed":
        raise RuntimeError(f"{answer}")


def _times(running: Service, keys: dict[str, str], company: str, rounds: int, orders: int = 1) -> list[float]:
    """Seconds of each of so many imports."""
    connection = HTTPConnection(running.host, running.port)
    found = []
    for n in range(WARM + rounds if orders == 1 else 3 + rounds):
        body = _document(orders)
        started = time.perf_counter()
        _send(connection, keys[company], company, body)
        if n >= (WARM if orders == 1 else 3):
            found.append(time.perf_counter() - started)
    connection.close()
    return found


def _one_by_one(running: Service, keys: dict[str, str], url: str) -> tuple[list[float], list[float]]:
    """Seconds of orders over HTTP, and of calls that write the same."""
    ours = _times(running, keys, COMPANY, ROUNDS)
    floor = []
    with _by_calls(url, COMPANY) as call:
        for n in range(WARM + ROUNDS):
            started = time.perf_counter()
            call()
            if n >= WARM:
                floor.append(time.perf_counter() - started)
    return ours, floor


@contextlib.contextmanager
def _over_http(running: Service, keys: dict[str, str], company: str) -> Iterator[Callable[[], None]]:
    """What imports an order, over a connection of its own."""
    with contextlib.closing(HTTPConnection(running.host, running.port)) as connection:
        yield lambda: _send(connection, keys[company], company, _document(1))


@contextlib.contextmanager
def _by_calls(url: str, company: str) -> Iterator[Callable[[], None]]:
    """What has the function write an order, in a session of its own."""
    with connections.connect(url, "bds_writer") as writer:

        def call() -> None:
            writer.execute(CALL, (company, f"F{next(_numbers)}"), prepare=True)

        yield call


def _traces(running: Service, keys: dict[str, str], operator: psycopg.Connection[Any]) -> Iterator[Result]:
    """What an order leaves in the WAL and in the catalog."""
    rounds = 50
    before = [_number(operator, query) for query in (WAL, CATALOG)]
    _times(running, keys, COMPANY, rounds)
    time.sleep(1.5)  # the sessions' counts come once in a second
    after = [_number(operator, query) for query in (WAL, CATALOG)]
    yield Result("orders, WAL of one", "kB", (after[0] - before[0]) / (WARM + rounds) / 1e3, note="target <= 40")
    yield Result("orders, catalog rows of one", "rows", (after[1] - before[1]) / (WARM + rounds), note="target 0")


def _processor_time(place: Place, running: Service) -> tuple[float, float]:
    """Seconds that the service and PostgreSQL have computed so far."""
    program = psutil.Process(running.pid)
    postmaster = psutil.Process(int((place.directory / "postgres" / "postmaster.pid").read_text().split()[0]))
    return (
        sum(sum(each.cpu_times()[:2]) for each in (program, *program.children(recursive=True))),
        sum(postmaster.cpu_times()[2:4]) + sum(sum(each.cpu_times()[:2]) for each in postmaster.children()),
    )


def _number(operator: psycopg.Connection[Any], query: str) -> float:
    row = operator.execute(query.encode()).fetchone()
    assert row is not None
    return float(row[0])


def _side_by_side(companies: Sequence[str], sender: Callable[[str], AbstractContextManager[Callable[[], None]]]) -> float:
    """Orders a second of eight clients, each with a sender of its own."""
    counts = [0] * 8
    end = time.monotonic() + DURATION

    def client(n: int) -> None:
        with sender(companies[n % len(companies)]) as send:
            while time.monotonic() < end:
                send()
                counts[n] += 1

    threads = [threading.Thread(target=client, args=(n,)) for n in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / DURATION
