"""Moving companies between the workers of a Citus cluster, while they are read and written.

Citus moves a shard together with those of the same companies in all other tables: it copies them, replicates what is written
meanwhile, and lets writers wait for the last moment.  It waits for a transaction that has written (shards.hold); one that writes
afterwards at the source is refused with BD002, so the service looks into the directory, and waits there until the target has
attached the shards.  The source keeps its copy, for reads, until every process has read the directory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, LiteralString

import psycopg

from app.database.connections import connect, one_value
from app.database.directory import HOME
from app.errors import ServiceError
from app.places import administration, cluster
from app.places.move import GRACE

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
        home.execute("set citus.enable_ddl_propagation = on; set client_min_messages = warning")
        _mend(urls, home, nodes)
        plan = home.execute(PLAN).fetchall()
        for shard, *ends in plan:
            source, target = cluster.place_name(*ends[:2]), cluster.place_name(*ends[2:])
            began = time.monotonic()
            companies = move(urls, home, shard, source, target, tuple(ends))
            say(f"shard {shard}, {companies} companies: {source} to {target}, {time.monotonic() - began:.1f} s")
        return len(plan)


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
        _drop_departed(urls[name])


def move(urls: dict[str, str], home: psycopg.Connection[Any], shard: int, source: str, target: str, ends: tuple[Any, ...]) -> int:
    """Move a shard with those of the same companies; returns the number of companies."""
    names = {"shard": shard, "of": source, "place": source, "source": source, "target": target, "phase": "departing"}
    companies = int(one_value(home, NOTE_SHARD, **names))
    with cluster.of_node(urls[source]) as keeper, keeper.transaction():
        for (name,) in keeper.execute(SHARDS, (shard,)).fetchall():
            keeper.execute(f"lock table {name} in access share mode".encode())  # Citus drops a table that no session reads
        try:
            home.execute(MOVE, (shard, *ends))
        except psycopg.Error:
            home.execute(NOTE_SHARD, {**names, "source": None, "target": None, "phase": None})
            raise
        _run(urls[source], "select bds_shards.note_departed()")
        cluster.attach(urls[target])
        home.execute(NOTE_SHARD, {**names, "place": target, "phase": "clearing"})
        if companies:
            time.sleep(GRACE)
    _drop_departed(urls[source])
    home.execute(NOTE_SHARD, {**names, "of": target, "place": target, "source": None, "target": None, "phase": None})
    home.execute("call citus_cleanup_orphaned_resources()")
    return companies


def _drop_departed(url: str) -> None:
    _run(url, "select bds_shards.empty_departed()")
    _run(url, "select bds_shards.drop_departed()")


def _run(url: str, statement: LiteralString) -> None:
    with cluster.of_node(url) as place:
        cluster.briefly(place, statement)
