"""Reads from a replica: a standby made by pg_basebackup, whose replay is paused, which is stopped, killed, started and promoted."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from app import metrics
from app.config import Config
from app.database.pool import pulse
from app.database.servers.replicas import History
from tests.service.serving import Reply, Service, running, wait_until
from tests.service.standbys import Standby, migrated, standby_of

pytestmark = [pytest.mark.processes, pytest.mark.slow]

FAR = 3_600.0  # seconds of lag that no test reaches


@dataclass
class Pair:
    """A primary with its standby."""

    primary: str
    standby: Standby

    def wait_for_replay(self) -> None:
        """Wait until the standby shows what the primary has committed."""
        with psycopg.connect(self.primary) as connection:
            row = connection.execute("select pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        wait_until(lambda: bool(self.standby.query(f"select pg_last_wal_replay_lsn() >= '{row[0]}'::pg_lsn")))


@pytest.fixture(scope="module")
def primary() -> Iterator[str]:
    with migrated() as url:
        yield url


@pytest.fixture(scope="module")
def pair(primary: str) -> Iterator[Pair]:
    with standby_of(primary, "one") as standby:
        yield Pair(primary, standby)


@contextmanager
def served(pair: Pair, *, max_lag: float = FAR, replicas: str | None = None, **settings: Any) -> Iterator[Service]:
    """The service with the replica, once it uses it."""
    uri = replicas or uri_of(pair.standby)
    with running(pair.primary, company=None, read_database_url=uri, read_max_lag=max_lag, **settings) as service:
        pair.wait_for_replay()
        yield service


def uri_of(standby: Standby) -> str:
    with psycopg.connect(standby.url) as connection:
        info = connection.info
        return f"postgresql://{info.user}@/{info.dbname}?host={standby.directory.parent}&port={info.port}"


def send(service: Service, document: dict[str, Any], *, code: int = 200, query: str = "", **headers: str) -> Reply:
    """Import a document."""
    import http.client

    connection = http.client.HTTPConnection(service.host, service.port, timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        named |= {"X-API-Key": service.key, "Content-Type": "application/json"}
        connection.request("POST", f"/api/demo/import{query}", body=json.dumps(document), headers=named)
        response = connection.getresponse()
        reply = Reply(response.status, response.headers, response.read())
    finally:
        connection.close()
    assert reply.status == code, reply.body
    return reply


def codes(service: Service, **headers: str) -> set[str]:
    reply = service.ask("/c/demo/units", **headers)
    assert reply.status == 200, reply.body
    return {row["code"] for row in reply.json["data"]}


def metric(service: Service, name: str, directory: Path) -> float:
    """A metric of the replica whose socket is in `directory`."""
    lines = service.ask("/metrics").body.decode().splitlines()
    starts = tuple(f'{name}{{replica="{directory}{end}' for end in (":", '"'))  # with a port or without one
    return float(next(line for line in lines if line.startswith(starts)).rpartition(" ")[2])


def test_reads_come_from_the_replica_and_position_brings_what_was_written(pair: Pair) -> None:
    with served(pair) as service, pair.standby.paused():
        report = send(service, {"units": [{"code": "p1", "name": "P"}]}).json
        wait_until(lambda: "p1" not in codes(service))  # a busy replica is asked again
        assert service.odata("/units?$filter=code eq 'p1'".replace(" ", "%20")).json["value"] == []
        assert "p1" not in service.ask("/api/demo/units?format=csv&export=true").body.decode()
        position = report["position"]
        assert "p1" in codes(service, X_BDS_Position=position)
        assert service.odata("/units(code='p1')", X_BDS_Position=position).status == 200
        assert "p1" in service.ask("/api/demo/units?format=csv&export=true", X_BDS_Position=position).body.decode()
        last = service.ask("/c/demo/changes?sort=-id&limit=1", X_BDS_Position=position).json["data"][0]
        assert str(last["id"]) == position
    with served(pair) as service:
        wait_until(lambda: "p1" in codes(service))


def test_what_a_client_has_made_is_read_from_the_primary(pair: Pair) -> None:
    with served(pair) as service, pair.standby.paused():
        accepted = send(service, {"units": [{"code": "a1", "name": "A"}]}, code=202, Prefer="respond-async")
        assert service.ask(accepted.headers["Location"]).status == 200
        id = accepted.json["importId"]
        assert id in [each["importId"] for each in service.ask("/api/demo/imports").json["data"]]
        wait_until(lambda: service.ask(accepted.headers["Location"]).json["state"] == "completed")
        assert service.ask("/c/demo/hooks").status == 200


def test_a_model_that_is_newer_than_the_replica_is_read_from_the_primary(pair: Pair) -> None:
    with served(pair) as service, pair.standby.paused(), psycopg.connect(pair.primary, autocommit=True) as connection:
        connection.execute("alter table data.units add column if not exists weight numeric(9,3)")
        connection.execute("select bds.register('data.units', 'units')")
        wait_until(lambda: "weight" in service.odata("/$metadata").body.decode())
        for path in ("/c/demo/units", "/api/odata/demo/units", "/api/odata/demo/units?$filter=weight%20gt%201"):
            assert service.ask(path).status == 200, path
        assert all("weight" in row for row in service.ask("/c/demo/units").json["data"])


def test_a_replica_that_is_away_costs_nothing_and_comes_back(pair: Pair) -> None:
    with served(pair) as service:
        assert metric(service, "bds_replica_up", pair.standby.directory.parent) == 1
        pair.standby.stop()
        send(service, {"units": [{"code": "d1", "name": "D"}]})
        assert "d1" in codes(service)
        assert service.odata("/units(code='d1')").status == 200
        assert service.ask("/readyz", authorization=None).status == 200
        wait_until(lambda: metric(service, "bds_replica_up", pair.standby.directory.parent) == 0)
        pair.standby.start()
        wait_until(lambda: metric(service, "bds_replica_up", pair.standby.directory.parent) == 1)
        pair.wait_for_replay()
        with pair.standby.paused():
            send(service, {"units": [{"code": "d2", "name": "D"}]})
            wait_until(lambda: "d2" not in codes(service))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_reads_that_run_on_a_lost_replica_or_wait_for_it_are_answered_by_the_primary(
    pair: Pair, how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some reads wait for a lock that the standby has replayed, others for their connections, when the standby is lost.

    One that is killed is noticed without a check; one that stands still, as after a loss of power, with the next check.
    """
    if how is signal.SIGKILL:
        monkeypatch.setattr(pulse, "INTERVAL", FAR)
    paths = ("/c/demo/units", "/api/odata/demo/units(code='k1')", "/api/odata/demo/units") * 4
    with (
        served(pair, pool_size=2) as service,
        ThreadPoolExecutor(len(paths)) as threads,
        psycopg.connect(pair.primary) as connection,
    ):
        send(service, {"units": [{"code": "k1", "name": "K"}]})
        wait_until(lambda: metric(service, "bds_replica_lag_seconds", pair.standby.directory.parent) < FAR)
        connection.execute("lock table data.units in access exclusive mode")
        connection.execute("select pg_current_xact_id(), pg_switch_wal()")
        pair.wait_for_replay()
        replies = [threads.submit(service.ask, path) for path in paths]
        waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and backend_type = 'client backend'"
        wait_until(lambda: pair.standby.query(waiting) == 2 and metrics.http.in_progress == len(paths))
        with pair.standby.lost(how):
            connection.rollback()
            lost = time.monotonic()
            assert {reply.result().status for reply in replies} == {200}
            assert time.monotonic() - lost < 5 - 1, "seconds, far below those that a request waits for a connection"
            assert metric(service, "bds_replica_up", pair.standby.directory.parent) == 0


def test_a_replica_that_is_too_far_behind_is_not_read(pair: Pair) -> None:
    with served(pair, max_lag=0.5) as service, pair.standby.paused():
        send(service, {"units": [{"code": "l1", "name": "L"}]})
        wait_until(lambda: metric(service, "bds_replica_lag_seconds", pair.standby.directory.parent) > 0.5)
        assert "l1" in codes(service)
    with served(pair, max_lag=0.5) as service:
        wait_until(lambda: metric(service, "bds_replica_lag_seconds", pair.standby.directory.parent) == 0)


def test_of_several_replicas_a_client_keeps_to_one_until_it_is_away_or_promoted(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    with standby_of(pair.primary, "two") as other:
        gone = f"postgresql://postgres@/bds?host={other.directory}&port=1"
        with served(pair, replicas=f"{uri_of(pair.standby)} {gone} {uri_of(other)}") as service, pair.standby.paused():
            send(service, {"units": [{"code": "s1", "name": "S"}]})
            wait_until(lambda: other.query("select count(*) from data.units where code = 's1'") == 1)
            seen = {"s1" in codes(service) for _ in range(20)}
            assert len(seen) == 1, "the client's answers come from both replicas"
            other.stop("immediate")
            assert "s1" not in codes(service)
            other.start()
            wait_until(lambda: metric(service, "bds_replica_up", other.directory.parent) == 1)
            other.query("select pg_promote()")
            wait_until(lambda: metric(service, "bds_replica_up", other.directory.parent) == 0)
            assert "it was promoted" in caplog.text


def test_a_server_that_replays_nothing_is_no_replica(pair: Pair) -> None:
    with served(pair, replicas=pair.primary) as service:
        assert metric(service, "bds_replica_up", Path(conninfo_to_dict(pair.primary)["host"])) == 0
        send(service, {"units": [{"code": "n1", "name": "N"}]})
        assert "n1" in codes(service)


@pytest.mark.parametrize("text", ["-1", "x", "1.0", "²", "0:1", "1:", "2:1:1"])
def test_a_position_that_is_no_change_id_is_refused(pair: Pair, text: str) -> None:
    with served(pair) as service:
        reply = service.ask("/c/demo/units", X_BDS_Position=text.encode().decode("latin-1"))
        assert (reply.status, reply.json["code"]) == (400, "malformed_request")


def test_replicas_are_separated_by_spaces() -> None:
    found = Config.load({"BDS_READ_DATABASE_URL": " postgresql://a/x  postgres://b/x "}).read_database_urls
    assert found == ["postgresql://a/x", "postgres://b/x"]
    assert Config.load({"BDS_READ_DATABASE_URL": "host=a dbname=x"}).read_database_urls == ["host=a dbname=x"]
    assert Config.load({}).read_database_urls == []


def test_a_lag_is_the_age_of_what_has_not_been_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    history, now = History(), [100.0]
    monkeypatch.setattr("app.database.servers.replicas.time.monotonic", lambda: now[0])
    assert history.lag(5, 7.0) == 7.0, "without samples the replica's own estimate"
    for at, written in ((100.0, 10), (101.0, 20), (102.0, 20), (103.0, 30)):
        history._samples.append((at, written))
    now[0] = 110.0
    assert history.lag(30, 99.0) == 0, "an idle primary does not make a replica old"
    assert history.lag(20, 99.0) == 7
    assert history.lag(12, 99.0) == 9
    assert history.lag(9, 99.0) == 99.0
