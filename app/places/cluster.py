"""A Citus cluster behind places: each worker is a place, and the partitions of its tables are shards (sql/02_shards).

The coordinator is home.  A worker is migrated like any place, except that its tables are divided: Citus does not know them, but has
tables of its own with the same columns in schema shards, whose shards it places and moves (app/places/rebalance.py).  A company
is served by the worker that has its shard, which the directory says, as it does for any place.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from app.database import migrate
from app.database.connections import connect, one_value
from app.database.directory import HOME
from app.errors import ServiceError

SHARDS = 32  # into which the tables of a new cluster are divided, a power of 2
OLDEST = 14  # version of Citus that the tests run with

LOCK_TIMEOUT: LiteralString = "200ms"  # less than deadlock_timeout
LOCK_PAUSE = 0.2  # seconds between two tries
LOCK_TRIES = 300

BECOME: LiteralString = "select bds_operation.become_place(%s)"  # at the place
ADD: LiteralString = "select bds_operation.add_place(%s, %s, %s)"  # at home

VERSION: LiteralString = "select split_part(extversion, '.', 1)::int from pg_extension where extname = 'citus'"
NODES: LiteralString = """
    select n.groupid, n.nodename, n.nodeport from pg_dist_node n
    where n.noderole = 'primary' and n.isactive and n.groupid > 0
    order by n.groupid
"""
COORDINATOR: LiteralString = "select nodename from pg_dist_node where groupid = 0 and nodename <> 'localhost'"
# each node is migrated by itself
NO_PROPAGATION: LiteralString = """
    set citus.enable_ddl_propagation = off;
    do $$ begin execute format('alter database %I set citus.enable_ddl_propagation = off', current_database()); end $$
"""
# sessions may still read the copy at the source: bds node rebalance drops it, and not Citus after 15 s
KEEPS_SOURCES: LiteralString = "select current_setting('citus.defer_shard_delete_interval') = '-1'"
KEEP_SOURCES: LiteralString = "alter system set citus.defer_shard_delete_interval = -1"
NUMBER: LiteralString = "select count(*) from pg_dist_shard where logicalrelid = to_regclass('shards.bds_clocks')"
# tables with rows of companies that Citus does not have yet, that of the clocks first
UNKNOWN: LiteralString = """
    select t.name, bds_shards.store_of(t.table_name), bds_shards.company_column(t.table_name), array_to_string(c.reloptions, ', '),
        exists (
            select from pg_attribute a
            where a.attrelid = t.table_name and a.attname = bds_shards.company_column(t.table_name)
                and (a.atttypid, a.attcollation) = ('text'::regtype, 'pg_catalog."C"'::regcollation)
        )
    from bds_operation.company_tables() t
    join pg_class c on c.oid = t.table_name
    where (t.table_name in (select bds_shards.whole_tables()) or bds_shards.is_divided(t.table_name))
        and to_regclass('shards.' || quote_ident(bds_shards.store_of(t.table_name))) is null
    order by t.name <> 'bds.clocks', t.n
"""
COLUMNS: LiteralString = "create table {} (like {} including generated including indexes including storage including compression)"
DISTRIBUTE: LiteralString = "select create_distributed_table(%s::regclass, %s, colocate_with => %s, shard_count => %s)"
NODE_OF: LiteralString = """
    select n.nodename, n.nodeport
    from pg_dist_placement p join pg_dist_node n on n.groupid = p.groupid and n.noderole = 'primary'
    where p.shardid = get_shard_id_for_distribution_column('shards.bds_clocks', %s::text)
"""
ATTACH: LiteralString = """
    select count(bds_shards.attach(s.divided, s.shard, s.number)::text)
    from unnest(%s::regclass[], %s::text[], %s::bigint[]) s (divided, shard, number)
"""
# companies of workers that are not where the directory has them, or whose move was interrupted
FOLLOW: LiteralString = """
    with nodes (name, groupid) as (select * from unnest(%s::text[], %s::int[])),
    placed as (
        select d.company_id, n.name, d.place, d.phase
        from bds.directory d
        join pg_dist_placement p on p.shardid = get_shard_id_for_distribution_column('shards.bds_clocks', d.company_id)
        join nodes n on n.groupid = p.groupid
        where d.place in (select name from nodes) and (d.phase is null or d.target in (select name from nodes))
    )
    select count(bds_operation.note_place(company_id, name)::text) from placed where place <> name or phase is not null
"""
LEFTOVER: LiteralString = "select place, shards from bds.settings"  # of a node that has been migrated before
OF_NODE = {
    "citus.enable_ddl_propagation": "off",
    "citus.enable_manual_changes_to_shards": "on",
    "citus.override_table_visibility": "off",
    "idle_in_transaction_session_timeout": "0",  # locks are held while Citus copies
}

Node = tuple[int, str, int]  # Citus' number of it, host, port


def is_coordinator(home_url: str) -> bool:
    """Whether home is the coordinator of a cluster.  Raises ServiceError if it is a worker, or Citus is too old."""
    with connect(home_url) as home:
        found = version(home)
        if found is None:
            return False
        if found < OLDEST:
            raise ServiceError("conflict", f"expected Citus {OLDEST} or newer, this is {found}")
        # citus_is_coordinator() is false before a node is added
        if one_value(home, "select groupid from pg_dist_local_group") != 0:
            raise ServiceError("conflict", "this database is a worker of Citus: expected BDS_DATABASE_URL to name the coordinator")
        return True


def require(home_url: str) -> None:
    """Raise ServiceError unless home is the coordinator of a cluster."""
    if not is_coordinator(home_url):
        raise ServiceError("conflict", "this database has no Citus: expected create extension citus")


def version(connection: psycopg.Connection[Any]) -> int | None:
    """The version of Citus in the database, None without it."""
    return one_value(connection, VERSION)  # type: ignore[no-any-return]


def find_nodes(home: psycopg.Connection[Any]) -> dict[str, Node]:
    """The workers, by the names of the places that they are."""
    return {place_name(host, port): (group, host, port) for group, host, port in home.execute(NODES).fetchall()}


def place_name(host: str, port: int) -> str:
    """The name of the place that a worker is."""
    return re.sub("[^a-z0-9_-]", "-", (host if port == 5432 else f"{host}-{port}").lower())[:63]


def place_of(home: psycopg.Connection[Any], company: str) -> str | None:
    """The place where Citus has the shard of a company; None without Citus."""
    if version(home) is None or one_value(home, "select to_regclass('shards.bds_clocks')") is None:
        return None
    host, port = home.execute(NODE_OF, (company,)).fetchone() or ("", 0)
    return place_name(host, port)


def require_elsewhere(home_url: str, company: str, source: str) -> None:
    """Raise ServiceError if a place that a company leaves is a worker, which Citus moves it from."""
    with connect(home_url) as home:
        if version(home) is not None and source in find_nodes(home):
            raise ServiceError(
                "conflict", f"{company} is where Citus has its shard: expected bds node rebalance or bds place drain"
            )


def require_placement(home_url: str, company: str, place: str) -> None:
    """Raise ServiceError if a place is a worker on which Citus does not have the shard of a company."""
    with connect(home_url) as home:
        if version(home) is not None and place in find_nodes(home) and (other := place_of(home, company)) != place:
            raise ServiceError(
                "conflict", f"Citus has the shard of {company} at {other}: expected {other}, not {place}", target="place"
            )


def add_node(home_url: str, host: str, port: int) -> Iterator[str]:
    """Migrate home, add a worker to the cluster, make it a place; yields what was done.  Raises ServiceError, psycopg.Error."""
    name, url = place_name(host, port), _url(home_url, host, port)
    yield from (f"sql/{step}" for step in migrate_for(name, home_url, where=f"at {HOME}"))
    with connect(home_url) as home:
        if name not in find_nodes(home):
            _name_coordinator(home)
            # first, because Citus makes there what its tables refer to
            yield from (f"{name}: {step}" for step in _prepare(home, name, url))
            home.execute("set citus.enable_ddl_propagation = on")
            home.execute("select citus_add_node(%s, %s)", (host, port))
    yield from arrange(home_url)


def _name_coordinator(home: psycopg.Connection[Any]) -> None:
    """Tell Citus the coordinator's address, unless it was told."""
    if one_value(home, COORDINATOR):
        return
    host = home.info.host
    if host.startswith("/") or host in ("localhost", "::1"):
        raise ServiceError("conflict", f"workers cannot reach the coordinator at {host}: expected its address in BDS_DATABASE_URL")
    home.execute("select citus_set_coordinator_host(%s, %s)", (host, home.info.port))


def arrange(home_url: str) -> Iterator[str]:
    """Make workers places, and distribute tables that Citus does not have; yields what was done.

    Raises ServiceError, psycopg.Error; may be repeated, and then does what is left.
    """
    urls = {}
    with connect(home_url) as home:
        home.execute(NO_PROPAGATION)
        nodes = find_nodes(home)
        for name, (_, host, port) in nodes.items():
            urls[name] = _url(home_url, host, port)
            yield from (f"{name}: {step}" for step in _make_place(home, name, urls[name]))
        if nodes:
            if not one_value(home, KEEPS_SOURCES):
                home.execute(KEEP_SOURCES)
                home.execute("select pg_reload_conf()")
            yield from (f"distributed {table}" for table in distribute(home))
        for name, url in ({HOME: home_url} | urls).items():
            number, changes = attach(url)
            if number:
                yield f"{name}: {number} shards attached"
            if changes:
                yield f"{name}: {changes} columns of shards changed"
        follow(home, nodes)


def plan(home_url: str) -> Iterator[str]:
    """Yield which nodes `arrange` would make places, and which tables of now it would distribute."""
    with connect(home_url) as home:
        is_known = one_value(home, "select to_regclass('bds.places')") is not None
        places = {name for (name,) in home.execute("select name from bds.places")} if is_known else set()
        yield from (f"{name}: becomes a place" for name in find_nodes(home) if name not in places)
        if one_value(home, "select to_regnamespace('bds_shards')") is not None:
            yield from (f"distributed {name}" for name, *_ in home.execute(UNKNOWN))


def _make_place(home: psycopg.Connection[Any], name: str, url: str) -> Iterator[str]:
    """Make a worker a place, unless it is one."""
    if one_value(home, "select 1 from bds.places where name = %s", name):
        return
    yield from _prepare(home, name, url)
    with connect(url) as place:
        secret = one_value(place, BECOME, name)
    home.execute(ADD, (name, url, secret))


def _prepare(home: psycopg.Connection[Any], name: str, url: str) -> Iterator[str]:
    """Migrate a worker, with tables that are divided."""
    number = one_value(home, NUMBER) or SHARDS
    try:
        with connect(url) as place:
            _require_suitable(place, name, version(home), number)
            place.execute(NO_PROPAGATION)
    except psycopg.OperationalError as error:
        raise ServiceError("conflict", f"{name} cannot be reached with {url}: {error}") from error
    yield from (f"sql/{step}" for step in migrate_for(name, url, number))


def migrate_for(name: str, url: str, shards: int | None = None, *, where: str = "in its database") -> list[str]:
    """Migrate a database for a place that is being added.  Raises ServiceError if entities are not up to date there."""
    try:
        return migrate.migrate(url, shards)
    except migrate.BrokenEntities as error:
        raise ServiceError("conflict", f"{name} was not added: {where} {error}") from error


def _require_suitable(place: psycopg.Connection[Any], name: str, of_home: int | None, number: int) -> None:
    """Raise ServiceError unless a node can become a worker of this cluster, whose tables have so many shards."""
    found = version(place)
    if found is None:
        raise ServiceError("conflict", f"{name} has no Citus: expected create extension citus in its database")
    if found != of_home:
        raise ServiceError("conflict", f"{name} has Citus {found}: expected {of_home}, as on the coordinator")
    if one_value(place, "select to_regnamespace('bds') is null"):
        return
    if one_value(place, "select to_regclass('public.bds_migrations') is null"):
        message = f"{name} has a schema bds that bds migrate has not made: expected a new database, and bds node add"
        raise ServiceError("conflict", f"{message} instead of citus_add_node (undone by citus_remove_node)")
    if one_value(place, "select to_regnamespace('bds_shards') is null"):
        return  # an earlier attempt was interrupted
    called, shards = place.execute(LEFTOVER).fetchone() or (HOME, None)
    if called not in (HOME, name) or shards != number:
        what = f"{shards} shards" if shards else "tables that are not divided"
        raise ServiceError("conflict", f"{name} has a database that is the place {called!r}, with {what}: expected a new database")


def distribute(home: psycopg.Connection[Any]) -> Iterator[str]:
    """Let Citus make and place shards of the tables that it does not have; yields their names."""
    home.execute(NO_PROPAGATION)
    home.execute("set client_min_messages = warning; set citus.enable_ddl_propagation = on; create schema if not exists shards")
    number = one_value(home, "select bds_shards.number_of_shards()") or SHARDS
    for table, store, column, options, is_suitable in home.execute(UNKNOWN).fetchall():
        if not is_suitable:
            mend = f'alter table {table} alter {column} type text collate "C"'
            raise ServiceError("conflict", f'{table}.{column} is not text collate "C", by which rows are distributed: {mend}')
        target = sql.Identifier("shards", store)
        with home.transaction():
            home.execute(sql.SQL(COLUMNS).format(target, sql.SQL(table)) + sql.SQL(f" with ({options})" if options else ""))
            if table == "bds.change_log" and not one_value(home, "select bds_shards.is_divided('bds.change_log')"):
                home.execute("alter table shards.bds_change_log add primary key (company_id, id)")  # each month has its own
            beside = ("none", number) if table == "bds.clocks" else ("shards.bds_clocks", None)
            home.execute(DISTRIBUTE, (target.as_string(home), column, *beside))
        yield table


def attach(url: str) -> tuple[int, int]:
    """Make the shards that Citus has placed on a node partitions; returns how many are new, and how many columns have changed."""
    with of_node(url) as place:
        arrived = place.execute("select step, divided, shard, number from bds_shards.arrived()").fetchall()
        for _, shards in groupby(arrived, itemgetter(0)):
            briefly(place, ATTACH, *map(list, zip(*(shard[1:] for shard in shards), strict=True)))
        return len(arrived), briefly(place, "select bds_shards.align()")


def drop_departed(url: str) -> None:
    """Drop the partitions whose shards Citus has moved to another node."""
    with of_node(url) as place:
        briefly(place, "select bds_shards.empty_departed()")
        for departed in place.execute("select divided, shard from bds_shards.departed()").fetchall():
            briefly(place, "select bds_shards.drop_departed(%s, %s)", *departed)


def briefly(connection: psycopg.Connection[Any], statement: LiteralString, *values: Any) -> Any:
    """Run a statement that locks tables which others use, and return its value: tried again rather than waiting for a lock.

    It gives up before others, which may wait for its locks, look for a deadlock.
    """
    for left in reversed(range(LOCK_TRIES)):
        try:
            with connection.transaction():
                connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
                return one_value(connection, statement, *values)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
            if not left:
                where = f"{connection.info.host}:{connection.info.port}"
                message = f"sessions at {where} held locks on tables in {LOCK_TRIES} tries: end them, then bds node rebalance"
                raise ServiceError("busy", f"{message}; {error}") from error
            time.sleep(LOCK_PAUSE)


def follow(home: psycopg.Connection[Any], nodes: dict[str, Node]) -> None:
    """Note in the directory at which workers Citus has their companies."""
    if nodes:
        home.execute(FOLLOW, (list(nodes), [group for group, _, _ in nodes.values()]))


def of_node(url: str) -> psycopg.Connection[Any]:
    """A connection to one node that sees its shards and may alter them."""
    connection = connect(url)
    for name, setting in OF_NODE.items():
        connection.execute(f"set {name} = {setting}".encode())
    return connection


def _url(home_url: str, host: str, port: int) -> str:
    """The connection string of a worker: that of home at another address, without its password."""
    words = {key: word for key, word in conninfo_to_dict(home_url).items() if key not in ("password", "host", "hostaddr", "port")}
    return make_conninfo("", host=host, port=port, **words)
