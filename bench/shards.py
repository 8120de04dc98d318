"""Reads by key, one-row writes and imports over tables that are divided into shards, beside whole tables of the same server.

`divided` takes the server of the benchmarks.  `citus` takes the coordinator that BDS_TEST_CITUS_URL names, as a node that has all
shards: a company's statements run on one node, so that is what they cost at a worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from app.database import migrate
from app.places import cluster
from bench import rebalance
from bench.company import PRODUCTS
from bench.place import COMPANY, Place, load, settle
from bench.table import Result, rate, say, timed

ROUNDS = 5
ROWS = 30_000  # products that are there
READS, WRITES, RECORDS = 2_000, 300, 10_000  # in a round
READ = "select * from api.products where id = %s"
WRITE = "update data.products set price = coalesce(price, 0) + 1 where company_id = %s and id = %s"


def measure_divided(where: Place) -> Iterator[Result]:
    """Statements and records a second."""
    for shards in (cluster.SHARDS, 4 * cluster.SHARDS):
        with _database(where.url, None) as whole, _database(where.url, shards) as divided:
            yield from _compare(f"divided into {shards}", divided, whole)


def measure_citus(_: Place) -> Iterator[Result]:
    """Statements and records a second, and how long writers wait for moves; nothing without a cluster."""
    url = os.environ.get("BDS_TEST_CITUS_URL")
    if not url:
        say("citus: skipped, because BDS_TEST_CITUS_URL names no cluster")
        return
    with _database(url, None) as whole, _database(url, cluster.SHARDS, of_citus=True) as placed:
        yield from _compare(f"citus, {cluster.SHARDS} shards", placed, whole)
    yield from rebalance.measure(url)


def _compare(name: str, ours: str, floor: str) -> Iterator[Result]:
    works: dict[str, tuple[int, Callable[[str, int], None]]] = {
        "read by key": (READS, _read),
        "one-row write": (WRITES, _write),
        "import": (RECORDS, _import),
    }
    for work, (amount, run) in works.items():
        say(f"{name}: {work}")
        times: tuple[list[float], list[float]] = ([], [])
        for round in range(ROUNDS + 1):  # the first one warms up
            for taken, url in zip(times, (ours, floor), strict=True):
                took = timed(run, url, round)[0]
                if round:
                    taken.append(took)
        note = f"{ROWS:,} products; floor: whole tables of the same server"
        yield rate(f"{name}, {work}", "1/s", amount, *times, note)


def _read(url: str, _: int) -> None:
    with _session(url, "bds_reader") as connection:
        for n in range(READS):
            connection.execute(READ, (n + 1,), prepare=True).fetchone()


def _write(url: str, _: int) -> None:
    with _session(url, "bds_writer") as connection:
        for n in range(WRITES):
            with connection.transaction():
                connection.execute("select bds.set_context(%s, 'bench')", (COMPANY,))
                connection.execute(WRITE, (COMPANY, n + 1))


def _import(url: str, round: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        document = Path(directory) / "feed.json"
        products = [{"code": f"R{round}-{n}", "name": f"Product {n}", "price": n} for n in range(RECORDS)]
        document.write_text(json.dumps({"products": products}))
        load(url, document)


@contextlib.contextmanager
def _session(url: str, role: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True, options=f"-c role={role} -c bds.company={COMPANY}") as connection:
        yield connection


@contextlib.contextmanager
def _database(server: str, shards: int | None, *, of_citus: bool = False) -> Iterator[str]:
    """A database with a company of ROWS products.  shards: into which its tables are divided."""
    name = f"bench_{time.monotonic_ns()}"
    with psycopg.connect(make_conninfo(server, dbname="postgres"), autocommit=True) as connection:
        connection.execute(f"create database {name} template template0 encoding 'UTF8' locale 'C.UTF-8'".encode())
    url = make_conninfo(server, dbname=name)
    try:
        if of_citus:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("create extension citus")
                host = connection.info.host
                connection.execute("select citus_set_coordinator_host(%s, inet_server_port())", (host,))
                connection.execute("select citus_set_node_property(%s, inet_server_port(), 'shouldhaveshards', true)", (host,))
        migrate.migrate(url, shards)
        if of_citus:
            with psycopg.connect(url, autocommit=True) as connection:
                list(cluster.distribute(connection))
            cluster.attach(url)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("select bds.create_company(%s)", (COMPANY,))
            with connection.transaction():
                connection.execute("select bds.set_context(%s, 'bench')", (COMPANY,))
                connection.execute(PRODUCTS, (ROWS,))
        settle(url, vacuum=True)
        yield url
    finally:
        with psycopg.connect(make_conninfo(server, dbname="postgres"), autocommit=True) as connection:
            connection.execute(f"drop database {name} with (force)".encode())
