"""Imports during a crash and restart of PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import psycopg
import pytest

from app.database import connections
from app.feed.run import Import
from tests.conftest import Operator
from tests.servers import Own, own_server
from tests.service.serving import wait_until

pytestmark = pytest.mark.processes

LARGE = b", ".join(b'{"code": "U%d", "name": "%s"}' % (n, b"x" * 900) for n in range(12_000))  # more than a block of staging


@dataclass(frozen=True)
class Importing(Own):
    """A server that crashes while it imports."""

    def begin(self) -> Import:
        with connections.connect(self.url, "bds_reader") as reader:
            feed = Import(self.url, connections.read_catalog(reader), "acme")
        feed.begin()
        return feed

    def state(self) -> str:
        return str(self.rows("select state from bds.imports order by number desc limit 1")[0][0])

    def staged(self) -> int:
        return int(self.rows("select count(*) from pg_class where relnamespace = 'staging'::regnamespace and relkind = 'r'")[0][0])


@pytest.fixture(scope="module")
def own() -> Iterator[Importing]:
    with own_server(folder="/tmp") as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            Operator(connection).company("acme")
        yield Importing(server.directory, server.url)


def test_a_half_staged_document_must_be_sent_again(own: Importing) -> None:
    feed = own.begin()
    feed.receive(b'{"units": [' + LARGE)
    wait_until(lambda: bool(own.rows("select from bds.imports where records > 0")))
    assert own.staged() == 2
    own.crash()
    feed.receive(b"]}")
    with pytest.raises(psycopg.Error) as refused:
        feed.run()
    feed.fail()
    assert refused.value.sqlstate == "BD003"
    assert (own.state(), own.staged(), own.rows("select count(*) from data.units")) == ("failed", 0, [(0,)])


def test_a_running_import_writes_nothing_and_holds_nothing(own: Importing) -> None:
    feed = own.begin()
    feed.receive(b'{"units": [{"code": "A", "name": "a"}]}')
    with suppress(psycopg.OperationalError), psycopg.connect(own.url) as other:  # the crash ends this session
        other.execute("select bds.set_context('acme'), bds.lock_company('acme')")
        failures: list[BaseException] = []

        def run() -> None:
            try:
                feed.run()
            except psycopg.Error as error:
                failures.append(error)

        worker = threading.Thread(target=run)
        worker.start()
        wait_until(lambda: bool(own.rows("select from pg_locks where not granted")))
        own.crash()
        worker.join()
    assert failures
    feed.fail()
    assert (own.state(), own.staged(), own.rows("select count(*) from data.units")) == ("failed", 0, [(0,)])
    again = own.begin()
    again.receive(b'{"units": [{"code": "A", "name": "a"}]}')
    assert again.run()["entities"]["units"]["created"] == 1


def test_an_import_whose_process_died_with_the_server_is_reaped(own: Importing) -> None:
    feed = own.begin()
    feed.receive(b'{"units": [{"code": "B", "name": "b"}]}')
    feed.received()
    feed._heartbeat.stop()  # as if the process had died
    own.crash()
    own.rows("update bds.imports set heartbeat_at = heartbeat_at - interval '1 minute' where finished_at is null returning 1")
    assert own.rows("select bds.reap_imports()") == [(1,)]
    assert (own.state(), own.staged()) == ("failed", 0)


def test_an_import_staged_before_a_crash_removes_nothing(own: Importing) -> None:
    first = own.begin()
    first.receive(b'{"units": [{"code": "K1", "name": "k"}, {"code": "K2", "name": "k"}]}')
    first.run()
    before = own.rows("select count(*) from data.units")
    feed = own.begin()
    feed.receive(b'{"units@removeAll": true, "units": [{"code": "K1", "name": "k"}, {"code": "K2", "name": "k"}]}')
    feed.received()
    own.crash()
    with pytest.raises(psycopg.Error) as refused:
        feed.run()
    feed.fail(refused.value)
    assert refused.value.sqlstate == "BD003" and own.state() == "failed"
    assert own.rows("select count(*) from data.units") == before
