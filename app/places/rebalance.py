"""Moving companies between the workers of a Citus cluster, while they are read and written.

Citus moves a shard together with those of the same companies in all other tables: it copies them, replicates what is written
meanwhile, and lets writers wait for the last moment.  That moment, in which the directory calls its companies departing, begins
with a lock that Citus waits for.  It waits for transactions that have written, too (shards.hold); one that writes afterwards at the
source is refused with BD002, so the service looks into the directory, and waits there until the target has attached the shards.
The source keeps its copy, for reads, until every process has read the directory.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, LiteralString

import psycopg

from app.database.connections import connect, one_value
from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places import administration, cluster
from app.places.move import GRACE, TURN

# Citus gives up copying when this process ends
SETTINGS: LiteralString = """
    set citus.enable_ddl_propagation = on; set client_min_messages = warning; set client_connection_check_interval = '1s'
"""
PLAN: LiteralString = """
    select shardid, sourcename, sourceport, targetname, targetport from get_rebalance_table_shards_plan('shards.bds_clocks')
    where table_name = 'shards.bds_clocks'::regclass
"""
TAKES_SHARDS: LiteralString = """
    select citus_set_node_property(nodename, nodeport, 'shouldhaveshards', %s) from pg_dist_node
    where nodename = %s and nodeport = %s
"""
NOTE_SHARD: LiteralString = """
    select count(bds_operation.note_place(d.company_id, %(place)s, %(source)s, %(target)s, %(phase)s)::text)
    from bds.directory d
    where d.place = %(of)s and get_shard_id_for_distribution_column('shards.bds_clocks', d.company_id) = %(shard)s
"""
# the partitions of the shard's companies
SHARDS: LiteralString = """
    select p.shard from bds_shards.placed() p
    where p.number = (select o.number from bds_shards.placed() o where o.shard = 'shards.bds_clocks_' || %s)
    order by p.n
"""
POLL = 0.03  # seconds between two looks whether Citus waits for the last moment
TAKE: LiteralString = "select pg_try_advisory_lock(hashtextextended('bds.rebalance', 0))"
# as a writer does (shards.hold), so that Citus waits before it switches; and whether it does
HOLD: LiteralString = "select lock_shard_metadata(5, array[%s::bigint])"
IS_AWAITED: LiteralString = """
    select exists (select from pg_locks l where not l.granted and pg_backend_pid() = any (pg_blocking_pids(l.pid)))
"""
MOVE: LiteralString = "select citus_move_shard_placement(%s, %s, %s, %s, %s, 'force_logical')"

Say = Callable[[str], None]


def rebalance(urls: dict[str, str], say: Say) -> int:
    """Give each worker its share of the shards; returns how many were moved.

    Raises ServiceError, psycopg.Error; may be repeated, and then finishes what was interrupted.
    """
    with connect(urls[HOME]) as home:
        nodes = cluster.find_nodes(home)
        if not nodes:
            raise ServiceError("conflict", "this database has no workers of Citus: expected bds node add first")
        _take(home)
        home.execute(SETTINGS)
        _mend(urls, home, nodes)
        plan = home.execute(PLAN).fetchall()
        for shard, *ends in plan:
            source, target = cluster.place_name(*ends[:2]), cluster.place_name(*ends[2:])
            began = time.monotonic()
            companies = move(urls, home, shard, source, target, tuple(ends))
            say(f"shard {shard}, {companies} companies: {source} to {target}, {time.monotonic() - began:.1f} s")
        return len(plan)


def _take(home: psycopg.Connection[Any]) -> None:
    """Keep other processes from moving shards while the session lasts.  Raises ServiceError if one does."""
    deadline = time.monotonic() + TURN
    while not one_value(home, TAKE):
        if time.monotonic() > deadline:
            raise ServiceError("conflict", "another process is moving shards: try again when it has ended")
        time.sleep(POLL)


def is_worker(urls: dict[str, str], name: str) -> bool:
    """Whether a place is a worker of Citus."""
    with connect(urls[HOME]) as home:
        return cluster.version(home) is not None and name in cluster.find_nodes(home)


def set_draining(urls: dict[str, str], name: str, is_draining: bool) -> None:
    """Note whether a worker gets no further shards; those that it has are moved by `rebalance`."""
    with connect(urls[HOME]) as home:
        home.execute("set citus.enable_ddl_propagation = on")
        home.execute(TAKES_SHARDS, (not is_draining, *cluster.find_nodes(home)[name][1:]))
    administration.set_draining(urls, name, is_draining)


def _mend(urls: dict[str, str], home: psycopg.Connection[Any], nodes: dict[str, cluster.Node]) -> None:
    """Finish what was interrupted: attach, follow, drop."""
    for name in nodes:
        cluster.attach(urls[name])
    cluster.follow(home, nodes)
    for name in nodes:
        _run(urls[name], "select bds_shards.note_departed()")
        cluster.drop_departed(urls[name])


def move(urls: dict[str, str], home: psycopg.Connection[Any], shard: int, source: str, target: str, ends: tuple[Any, ...]) -> int:
    """Move a shard with those of the same companies; returns the number of companies."""
    names = {"shard": shard, "of": source, "place": source, "source": source, "target": target}
    companies = int(one_value(home, NOTE_SHARD, **names, phase="copying"))
    with cluster.of_node(urls[source]) as keeper, keeper.transaction():
        for (name,) in keeper.execute(SHARDS, (shard,)).fetchall():
            keeper.execute(f"lock table {name} in access share mode".encode())  # Citus drops a table that no session reads
        try:
            _let_citus_move(urls, home, names, (shard, *ends))
        except psycopg.Error:
            home.execute(NOTE_SHARD, {**names, "source": None, "target": None, "phase": None})
            raise
        _run(urls[source], "select bds_shards.note_departed()")
        cluster.attach(urls[target])
        home.execute(NOTE_SHARD, {**names, "place": target, "phase": "clearing"})
        if companies:
            time.sleep(GRACE)
    with contextlib.suppress(ServiceError):  # a session has been reading for long: the next call drops them
        cluster.drop_departed(urls[source])
    home.execute(NOTE_SHARD, {**names, "of": target, "place": target, "source": None, "target": None, "phase": None})
    home.execute("call citus_cleanup_orphaned_resources()")
    return companies


def _let_citus_move(urls: dict[str, str], home: psycopg.Connection[Any], names: dict[str, Any], move: tuple[Any, ...]) -> None:
    """Let Citus copy a shard; before it switches, note that the companies depart."""
    with connect(urls[HOME]) as noting, cluster.of_node(urls[names["source"]]) as holder, ThreadPoolExecutor(1) as pool:
        with holder.transaction():
            holder.execute(HOLD, (names["shard"],))
            moving = pool.submit(home.execute, MOVE, move)
            try:
                while not (moving.done() or one_value(holder, IS_AWAITED)):
                    time.sleep(POLL)
            except BaseException:
                home.cancel_safe()
                raise
            noting.execute(NOTE_SHARD, {**names, "phase": "departing"})
        moving.result()


def _run(url: str, statement: LiteralString) -> None:
    with cluster.of_node(url) as place:
        cluster.briefly(place, statement)
