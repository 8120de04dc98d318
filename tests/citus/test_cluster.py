"""A Citus cluster behind places: migrated, with companies where Citus has their shards, with nodes added and drained, and moves under load."""

from __future__ import annotations

import http.client
import json
from dataclasses import replace

import psycopg
import pytest

from app.database.connections import one_value
from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places import administration, cluster, rebalance
from app.places.move import GRACE, Move
from tests.auth.client import make_user
from tests.citus.conftest import COMPANY, Cluster, made
from tests.conftest import Operator
from tests.places.test_service import Load, send
from tests.service.serving import running, wait_until
from tests.web.visitor import visitor
from tests.webhooks.conftest import working
from tests.webhooks.receiving import receiving

pytestmark = [pytest.mark.processes, pytest.mark.slow]

COLOCATED = """
    select count(*), count(distinct colocationid) from pg_dist_partition
    where logicalrelid::text like 'shards.%' and partmethod = 'h'
"""
WHOLE_LOG = "select count(*) = max(id) and count(*) = count(distinct id) from bds.change_log where company_id = '{}'"


def move(there: Cluster, company: str = COMPANY) -> str:
    """Move a company's shard to the other worker; returns that place."""
    source = there.place(company)
    [target] = [name for name in there.names if name != source]
    with psycopg.connect(there.url, autocommit=True) as home:
        nodes = cluster.find_nodes(home)
        shard = one_value(home, "select get_shard_id_for_distribution_column('shards.bds_clocks', %s::text)", company)
        rebalance.move(there.urls, home, shard, source, target, (*nodes[source][1:], *nodes[target][1:]))
    return target


def interrupt_move(there: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt a move of COMPANY's shard after Citus has switched, before the target attaches the shard."""

    def interrupt(_: str) -> tuple[int, int]:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr(cluster, "attach", interrupt)
        move(there)


def test_a_coordinator_is_migrated_with_its_workers() -> None:
    with made(2) as there:
        assert list(cluster.plan(there.url)) == [f"{name}: becomes a place" for name in there.names]
        done = there.arrange()
        assert {name for name in there.names if f"{name}: sql/02_shards" in done} == set(there.names)
        assert list(there.urls) == [HOME, *there.names]
        assert there.arrange() == [] and list(cluster.plan(there.url)) == []
        [(tables, groups)] = there.rows(HOME, COLOCATED)
        assert (tables, groups) == (len(there.rows(HOME, "select bds_shards.whole_tables()")), 1)
        for name in there.names:
            assert there.rows(name, "select bds_shards.whole_tables()") == []
        with pytest.raises(ServiceError, match="expected BDS_DATABASE_URL to name the coordinator"):
            cluster.is_coordinator(there.urls[there.names[0]])


def test_a_migration_that_was_interrupted_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    with made(2) as there:
        with monkeypatch.context() as broken, pytest.raises(psycopg.errors.DivisionByZero):
            broken.setattr(cluster, "DISTRIBUTE", "select 1 / 0 from (select %s::text, %s::text, %s::text, %s::int) x")
            there.arrange()
        there.arrange()
        assert there.company() in there.names


def test_a_company_lives_where_citus_has_its_shard(pair: Cluster) -> None:
    placed = {company: pair.company(company) for company in ("a", "b", "c", "d", "e", "f", "g", "h")}
    assert set(placed.values()) == set(pair.names)
    for company, place in placed.items():
        pair.write(place, "insert into data.units (code, name) values ('KG', 'kilogram')", company)
        pair.write(place, f"update data.units set name = 'Kilogram' where company_id = '{company}'", company)
        assert pair.rows(place, f"select id, operation::text from bds.change_log where company_id = '{company}' order by id") == [
            (1, "create"),
            (2, "update"),
        ]
        [other] = [name for name in pair.names if name != place]
        with psycopg.connect(pair.urls[other], autocommit=True) as connection, pytest.raises(psycopg.Error):
            connection.execute("select bds.create_company(%s)", (company,))
    # one statement of Citus over all companies
    assert pair.rows(HOME, "select company_id, count(*) from shards.data_units group by 1 order by 1") == [
        (company, 1) for company in placed
    ]


def test_an_administrator_creates_and_deletes_a_company_where_its_shard_is(pair: Cluster) -> None:
    pair.company()
    with running(pair.url, company=None) as service:
        make_user(service, "boss@example.com", COMPANY)
        with psycopg.connect(pair.url, autocommit=True) as home:
            home.execute("select bds.set_access('boss@example.com', %s, true)", ([COMPANY],))
        boss = visitor(service, "boss@example.com")
        wait_until(lambda: len(boss.get("/companies").tree.xpath("//select[@id='place']/option")) == 4)
        place = administration.choose(pair.urls, "acme")
        [other] = [name for name in pair.names if name != place]
        refused = boss.post("/companies", {"id": "acme", "place": other})
        assert f"expected {place}, not {other}" in refused.problems[0]
        assert boss.post("/companies", {"id": "acme", "place": ""}).status == 303
        assert pair.place("acme") == place
        assert pair.write(place, "insert into data.units (code, name) values ('KG', 'kilogram') returning id", "acme")
        assert boss.post("/companies/acme/delete", {"confirm": "acme"}).status == 303
        for query in ("select from bds.companies where id = 'acme'", "select from data.units"):
            assert pair.rows(place, query) == []
        assert pair.rows(HOME, "select from bds.directory where company_id = 'acme'") == []


def test_companies_move_between_workers_under_load(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "GRACE", GRACE)
    pair.company()
    with running(pair.url, company=None, webhook_window=0.1, webhook_allow_private=True) as service, receiving() as receiver:
        wait_until(lambda: all(state == "serves" for *_, state in administration.describe(pair.urls)))
        hook = send(service, "POST", f"/c/{COMPANY}/hooks", {"entity": "units", "url": receiver.url(), "allowInChangeSet": True})
        assert hook.status == 201, hook.body
        with working(pair.url):
            load = Load(service, pair.urls)
            with load.running():
                place = move(pair)
            assert load.refused == []
            assert pair.place() == place
            codes = {code for (code,) in pair.rows(place, "select code from data.units")}
            assert codes == {*load.imported, *load.written}
            assert pair.rows(place, WHOLE_LOG.format(COMPANY)) == [(True,)]
            while load.poll():
                pass
            assert load.ids == list(range(1, len(load.ids) + 1))
            expected = {id for (id,) in pair.rows(place, "select id from bds.change_log where entity = 'units'")}
            wait_until(lambda: expected <= set(receiver.changes("/ok")))
    [other] = [name for name in pair.names if name != place]
    assert pair.rows(other, "select count(*) from bds.change_log") == [(0,)]


def test_webhooks_of_other_companies_go_on_during_a_move(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when an attempt for the company that moves ends after it has left."""
    source, other = pair.company(), two_of_one_worker(pair)
    shown: list[int] = []
    with running(pair.url, company=None, webhook_allow_private=True) as service, receiving() as receiver, working(pair.url):
        receiver.answers["/hang"] = ["hang"]
        wait_until(lambda: all(state == "serves" for *_, state in administration.describe(pair.urls)))
        client = replace(service, key=service.operator.key(COMPANY, other))
        for company, path in ((COMPANY, "/hang"), (other, "/ok")):
            hook = send(client, "POST", f"/c/{company}/hooks", {"entity": "units", "url": receiver.url(path)})
            assert hook.status == 201, hook.body
        pair.write(source, "insert into data.units (code, name) values ('A', 'a')")
        receiver.wait("/hang", 1)
        attach = cluster.attach

        def attach_later(url: str) -> tuple[int, int]:
            receiver.released.set()
            wait_until(lambda: not receiver.under_way["/hang"])
            for n in range(1, 5):
                pair.write(source, f"insert into data.units (code, name) values ('{n}', 'b')", other)
                receiver.wait("/ok", n)
                shown.append(n)
            return attach(url)

        with monkeypatch.context() as later:
            later.setattr(cluster, "attach", attach_later)
            target = move(pair)
        assert shown == [1, 2, 3, 4]
        # the attempt that ended in between is made again at the target
        receiver.wait("/hang", 2)
        assert pair.rows(target, "select count(*) from bds.deliveries") == [(1,)]


def test_an_import_whose_document_is_being_received_is_ended_by_a_move(pair: Cluster) -> None:
    """Its client is told to send the document again, nothing stays behind, and no import of another company is touched."""
    source = pair.company()
    rows = [{"code": f"U{n}", "name": "x" * 1000} for n in range(20_000)]  # more than is collected in memory
    document = json.dumps({"units": rows}).encode()
    with running(pair.url, company=None) as service:
        wait_until(lambda: all(state == "serves" for *_, state in administration.describe(pair.urls)))
        connection = http.client.HTTPConnection(service.host, service.port)
        connection.putrequest("POST", f"/api/{COMPANY}/import")
        for name, value in {
            "X-API-Key": service.key,
            "Content-Type": "application/json",
            "Content-Length": str(len(document)),
        }.items():
            connection.putheader(name, value)
        connection.endheaders(document[: len(document) * 3 // 4])
        staged = "select relname from pg_class where relnamespace = 'staging'::regnamespace and relkind = 'r'"
        wait_until(lambda: bool(pair.rows(source, staged)))
        target = move(pair)
        assert pair.rows(source, staged) == []
        assert pair.rows(target, "select state from bds.imports") == [("failed",)]
        connection.send(document[len(document) * 3 // 4 :])
        answer = connection.getresponse()
        content = answer.read()
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1"), content
        assert b"send the document again" in content
        connection.close()
        again = send(service, "POST", f"/api/{COMPANY}/import", {"units": rows})
        assert again.json["entities"]["units"]["created"] == len(rows)
        assert {state for (state,) in pair.rows(target, "select state from bds.imports")} == {"failed", "completed"}
        assert pair.rows(source, "select number from bds.imports") == pair.rows(target, staged) == []


def two_of_one_worker(there: Cluster) -> str:
    """Create a company on the worker of COMPANY, in another shard."""
    with psycopg.connect(there.url) as home:
        shards = {
            name: one_value(home, "select get_shard_id_for_distribution_column('shards.bds_clocks', %s::text)", name)
            for name in (COMPANY, *(f"other-{n}" for n in range(40)))
        }
    for name, shard in shards.items():
        if shard != shards[COMPANY] and administration.choose(there.urls, name) == there.place():
            there.company(name)
            return name
    raise AssertionError(shards)


def test_a_writer_at_the_source_is_waited_for_or_refused(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    source = pair.company()
    attach = cluster.attach

    def write_late(url: str) -> tuple[int, int]:
        with pytest.raises(psycopg.Error) as late:
            pair.write(source, "insert into data.units (code, name) values ('late', 'late')")
        assert late.value.sqlstate == "BD002"
        assert pair.rows(source, "select code from data.units") == [("early",)]  # still there for readers
        return attach(url)

    pair.write(source, "insert into data.units (code, name) values ('early', 'early')")
    monkeypatch.setattr(cluster, "attach", write_late)
    target = move(pair)
    assert pair.write(target, "insert into data.units (code, name) values ('next', 'next') returning id") == [(2,)]


def test_a_move_that_was_interrupted_is_finished(pair: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    source = pair.company()
    pair.write(source, "insert into data.units (code, name) values ('KG', 'kilogram')")
    interrupt_move(pair, monkeypatch)
    assert pair.rows(HOME, "select phase from bds.directory") == [("departing",)]
    rebalance.rebalance(pair.urls, lambda _: None)
    place = pair.place()  # perhaps it was moved back, for the balance
    pair.write(place, "insert into data.units (code, name) values ('T', 'ton')")
    [other] = [name for name in pair.names if name != place]
    assert [pair.rows(name, "select count(*) from data.units") for name in (place, other)] == [[(2,)], [(0,)]]
    assert pair.rows(HOME, "select place from bds.directory where phase is not null") == []


def test_a_cluster_begins_with_a_database_that_has_no_nodes() -> None:
    with made(0) as there:
        for worker in there.workers:
            list(cluster.add_node(there.url, *worker))
        rebalance.rebalance(there.urls, lambda _: None)
        assert {there.company(f"c{n}") for n in range(8)} == set(there.names)


def test_a_node_is_added_and_drained() -> None:
    with made(1) as there:
        there.arrange()
        first, second = there.names
        companies = [f"c{n}" for n in range(8)]
        for company in companies:
            assert there.company(company) == first
            there.write(first, "insert into data.units (code, name) select 'U' || n, 'u' from generate_series(1, 20) n", company)
        assert f"{second}: sql/02_shards" in list(cluster.add_node(there.url, *there.workers[1]))
        assert rebalance.rebalance(there.urls, lambda _: None) == cluster.SHARDS // 2
        assert {there.place(company) for company in companies} == {first, second}
        rebalance.set_draining(there.urls, first, True)
        rebalance.rebalance(there.urls, lambda _: None)
        assert {there.place(company) for company in companies} == {second}
        assert there.company("new") == second
        for company in companies:
            assert there.write(second, "insert into data.units (code, name) values ('KG', 'kg') returning id", company) > [(20,)]
            assert there.rows(second, WHOLE_LOG.format(company)) == [(True,)]


def test_a_company_of_home_moves_to_the_worker_that_has_its_shard(pair: Cluster) -> None:
    with psycopg.connect(pair.url, autocommit=True) as home:
        operator = Operator(home)
        operator.write(operator.company(COMPANY), "insert into data.units (code, name) values ('KG', 'kilogram')")
    place = administration.choose(pair.urls, COMPANY)
    [other] = [name for name in pair.names if name != place]
    with Move.of(pair.urls, COMPANY, lambda _: None) as move, pytest.raises(ServiceError, match=f"expected {place}"):
        move.start(other)
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.start(place)
    assert pair.place() == place
    assert pair.write(place, "insert into data.units (code, name) values ('T', 'ton') returning id") == [(2,)]
    with Move.of(pair.urls, COMPANY, lambda _: None) as move, pytest.raises(ServiceError, match="bds node rebalance"):
        move.start(HOME)


PARTS = """
    create table if not exists data.parts (
        company_id text collate "C" not null, id bigint generated by default as identity, code text collate "C" not null,
        updated_at timestamptz not null, primary key (company_id, id), unique (company_id, code)
    );
    select bds.register('data.parts');
"""


def test_tables_and_columns_of_a_dba_are_distributed(pair: Cluster) -> None:
    place = pair.company()
    administration.run_file(pair.urls, PARTS)
    pair.write(place, "insert into data.parts (code) values ('A')")
    administration.run_file(pair.urls, "alter table data.parts add column weight numeric(9, 2) check (weight > 0); " + PARTS)
    pair.write(place, "update data.parts set weight = 1.5")
    place = move(pair)
    assert pair.rows(place, "select code, weight::text from data.parts") == [("A", "1.50")]
    with pytest.raises(psycopg.errors.CheckViolation):
        pair.write(place, "update data.parts set weight = -1")
    assert pair.rows(HOME, "select code, weight::text from shards.data_parts") == [("A", "1.50")]
    with pytest.raises(ServiceError, match="alter company_id type text collate"):
        administration.run_file(pair.urls, "create table data.notes (company_id text, note text)")
