"""Moves of a shard between two workers of a Citus cluster, while companies are written: how long a writer waits at most.

Three writers: one of the company that moves, one of another company of the worker that it leaves, one of a company of the other
worker, whose tables are locked while the shard becomes part of them.  All rows are those of ROWS products for each company.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from statistics import median
from typing import LiteralString

import psycopg
from psycopg.conninfo import make_conninfo

from app.config import Config
from app.database import connections
from app.database.connections import one_value
from app.places import administration, cluster, rebalance
from bench.company import PRODUCTS
from bench.places import TARGET, writing
from bench.table import Result, say

MOVES = 4  # there and back
ROWS = int(os.environ.get("BENCH_MOVED_ROWS", 30_000))  # products, each with a change
SHARD: LiteralString = "select get_shard_id_for_distribution_column('shards.bds_clocks', %s::text)"


def measure(url: str) -> Iterator[Result]:
    """Seconds.  url: of the coordinator of a cluster with two workers."""
    with _cluster(url) as urls:
        say(f"citus: moves of {2 * ROWS:,} rows")
        moved, beside, there = _companies(urls)
        waits: dict[str, list[float]] = {moved: [], beside: [], there: []}
        for _ in range(MOVES):
            with contextlib.ExitStack() as stack:
                longest = {company: stack.enter_context(writing(urls, company)) for company in waits}
                _move(urls, moved)
                time.sleep(1)  # the writers go on
            for company, taken in longest.items():
                waits[company].append(taken[0])
    for company, who in ((moved, "the company"), (beside, "another one of its worker"), (there, "one of the other worker")):
        note = f"of {MOVES} moves of {2 * ROWS:,} rows; median {median(waits[company]):.2f} s; target < {TARGET}"
        yield Result(f"citus, longest wait of a writer, {who}", "s", max(waits[company]), note=note)


def _companies(urls: dict[str, str]) -> tuple[str, str, str]:
    """A company, one of another shard of its worker, and one of the other worker, with their rows."""
    found: dict[str, str] = {}
    with connections.connect(urls["home"]) as home:
        shards = {name: one_value(home, SHARD, name) for name in (f"c{n}" for n in range(100))}
    first = "c0"
    worker = administration.choose(urls, first)
    for name, shard in shards.items():
        place = administration.choose(urls, name)
        found.setdefault(place, name) if shard != shards[first] else None
        if len(found) == 2:
            break
    names = (first, found.pop(worker), *found.values())
    for name in names:
        place = administration.create_company(urls, name, None, administration.choose(urls, name))
        with psycopg.connect(urls[place], autocommit=True) as connection, connection.transaction():
            connection.execute("select bds.set_context(%s, 'bench')", (name,))
            connection.execute(PRODUCTS, (ROWS,))
    for url in urls.values():
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("vacuum analyze")
    return names  # type: ignore[return-value]


def _move(urls: dict[str, str], company: str) -> None:
    with connections.connect(urls["home"]) as home:
        nodes = cluster.find_nodes(home)
        row = home.execute("select place from bds.directory where company_id = %s", (company,)).fetchone()
        assert row is not None
        [target] = nodes.keys() - {row[0]}
        shard = one_value(home, SHARD, company)
        rebalance.move(urls, home, shard, row[0], target, (*nodes[row[0]][1:], *nodes[target][1:]))


@contextlib.contextmanager
def _cluster(url: str) -> Iterator[dict[str, str]]:
    """A database on all nodes; yields the connection strings of its places."""
    name = f"bench_{time.monotonic_ns()}"
    with psycopg.connect(url) as connection:
        nodes = [node[1:] for node in cluster.find_nodes(connection).values()]
        here = (connection.info.host, connection.info.port)
    servers = [make_conninfo(url, host=host, port=port) for host, port in (here, *nodes)]
    for server in servers:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"create database {name} template template0 encoding 'UTF8' locale 'C.UTF-8'".encode())
        with psycopg.connect(make_conninfo(server, dbname=name), autocommit=True) as connection:
            connection.execute("create extension citus")
    home = make_conninfo(servers[0], dbname=name)
    try:
        for node in nodes:
            list(cluster.add_node(home, *node))
        urls = connections.urls_of_places(Config(database_url=home))
        rebalance.rebalance(urls, say)
        yield urls
    finally:
        for server in servers:
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f"drop database {name} with (force)".encode())
