"""Moves of shards: when companies depart, who else may move them, writers with older snapshots, keys of shards that have come."""

from __future__ import annotations

import time
from typing import Any

import psycopg
import pytest

from app.cli import doctor
from app.database import connections
from app.database.connections import one_value
from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places import cluster, rebalance
from app.places.move import Move
from tests.citus.conftest import COMPANY, Cluster, made
from tests.citus.test_cluster import interrupt_move, move

pytestmark = [pytest.mark.processes, pytest.mark.slow]

# each phase of the company that has been noted
PHASES = """
    create table public.phases (n bigint generated always as identity, phase text, is_switched bool);
    create function public.note_phase() returns trigger language plpgsql as $$
    begin
        insert into public.phases (phase, is_switched) values (new.phase, (
            select replace(n.nodename, '.', '-') || '-' || n.nodeport <> new.source
            from pg_dist_placement p join pg_dist_node n on n.groupid = p.groupid and n.noderole = 'primary'
            where p.shardid = get_shard_id_for_distribution_column('shards.bds_clocks', new.company_id)
        ));
        return null;
    end $$;
    create trigger note after update on bds.directory for each row execute function public.note_phase();
"""


def test_companies_depart_when_citus_switches(pair: Cluster) -> None:
    """Not while it copies: imports that begin would wait."""
    pair.company()
    with psycopg.connect(pair.url, autocommit=True) as home:
        home.execute("set citus.enable_ddl_propagation = off")
        home.execute(PHASES.encode())
    move(pair)
    assert pair.rows(HOME, "select phase, is_switched from public.phases order by n") == [
        ("copying", False),
        ("departing", False),
        ("clearing", True),
        (None, None),
    ]


def test_a_move_takes_longer_than_a_transaction_may_be_idle(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_TIMEOUT", connections.IDLE_TIMEOUT.replace("5min", "100ms"))
    source = pair.company()
    assert pair.place() == source
    target = move(pair)
    assert pair.place() == target != source


def test_a_writer_with_an_older_snapshot_than_the_move_is_refused(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would find the placement of its snapshot, and write what nobody reads."""
    source = pair.company()
    run, refused = rebalance._run, list[str | None]()

    with psycopg.connect(pair.urls[source], autocommit=True) as writer:
        writer.execute("begin isolation level repeatable read")
        writer.execute("select bds.set_context(%s)", (COMPANY,))

        def write_first(url: str, statement: Any) -> None:
            if not refused:  # Citus has switched; the clock is not marked yet
                with pytest.raises(psycopg.Error) as error:
                    writer.execute("insert into data.units (code, name) values ('A', 'a')")
                refused.append(error.value.sqlstate)
                writer.execute("rollback")
            run(url, statement)

        monkeypatch.setattr(rebalance, "_run", write_first)
        move(pair)
    assert refused == ["40001"]


def test_one_process_at_a_time_moves_shards(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "TURN", 0.0)
    with psycopg.connect(pair.url, autocommit=True) as first:
        assert one_value(first, rebalance.TAKE)
        with pytest.raises(ServiceError, match="another process is moving shards"):
            rebalance.rebalance(pair.urls, lambda _: None)


def test_a_move_of_citus_is_neither_resumed_nor_aborted_as_one_of_replication(
    pair: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = pair.company()
    pair.write(source, "insert into data.units (code, name) values ('KG', 'kilogram')")
    interrupt_move(pair, monkeypatch)
    with Move.of(pair.urls, COMPANY, lambda _: None) as other:
        for mend in (other.resume, other.abort):
            with pytest.raises(ServiceError, match="expected bds node rebalance"):
                mend()
    rebalance.rebalance(pair.urls, lambda _: None)
    assert pair.write(pair.place(), "update data.units set name = 'Kilogram' returning code") == [("KG",)]


def test_readers_keep_the_rows_of_a_move_that_was_interrupted(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Citus drops what has moved after 15 s otherwise, and the directory still leads readers there."""
    source = pair.company()
    pair.write(source, "insert into data.units (code, name) values ('KG', 'kilogram')")
    interrupt_move(pair, monkeypatch)
    time.sleep(20)
    assert pair.rows(source, "select code from data.units") == [("KG",)]
    rebalance.rebalance(pair.urls, lambda _: None)
    place = pair.place()  # maybe the source again: rebalancing goes on after what was interrupted
    assert pair.rows(place, "select code from data.units") == [("KG",)]
    assert all(pair.rows(name, "select code from data.units") == [] for name in pair.names if name != place)


def test_shards_that_have_come_have_the_keys_of_their_tables(pair: Cluster) -> None:
    source = pair.company()
    pair.write(source, "insert into data.categories (code, name) values ('A', 'a')")
    pair.write(source, "insert into data.products (code, name, category_id) select 'P', 'p', id from data.categories")
    target = move(pair)
    own = "select count(*) from pg_constraint k join pg_inherits i on i.inhrelid = k.conrelid where k.contype = 'f' and k.conparentid = 0"
    assert pair.rows(target, own) == [(0,)]
    less = """
        select k.conname from pg_constraint k join pg_inherits i on i.inhrelid = k.conrelid
        where not k.convalidated and not exists (
            select from pg_constraint p where p.conrelid = i.inhparent and p.conname = k.conname and not p.convalidated
        )
    """
    assert pair.rows(target, less) == [], "they are checked as those of the table"
    for refused in ("update data.products set category_id = 99", "delete from data.categories"):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            pair.write(target, refused)
    with pytest.raises(psycopg.errors.CheckViolation):
        pair.write(target, "update data.products set price = 'NaN'")
    assert doctor.examine(pair.urls, deep=True)[0] == []


def test_a_node_that_is_something_else_is_refused() -> None:
    with made(1) as there:
        there.arrange()
        url = cluster._url(there.url, *there.workers[1])
        cluster.migrate.migrate(url)
        with pytest.raises(ServiceError, match="tables that are not divided"):
            list(cluster.add_node(there.url, *there.workers[1]))
        with psycopg.connect(url, autocommit=True) as worker:
            worker.execute("update bds.settings set shards = 8, place = 'west'")
        with pytest.raises(ServiceError, match="the place 'west', with 8 shards"):
            list(cluster.add_node(there.url, *there.workers[1]))
        with pytest.raises(ServiceError, match="cannot be reached"):
            list(cluster.add_node(there.url, "127.0.0.1", 1))
        assert list(there.urls) == [HOME, there.names[0]]
