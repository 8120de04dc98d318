"""Streams of `bds serve`: several processes, one that is killed, a stop with streams open; behind a transaction pooler."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest

from tests.changes.following import Client, Refused, following
from tests.changes.test_stream import add
from tests.conftest import Operator
from tests.service.serving import Service, wait_until
from tests.service.test_pooler import PGBOUNCER, pooled, serving
from tests.service.test_processes import Served, serve

pytestmark = pytest.mark.processes


def of(served: Served, operator: Operator) -> Service:
    return Service("127.0.0.1", served.port, served.key, operator, served.stop)


@pytest.fixture
def key(operator: Operator) -> str:
    operator.company("demo")
    return operator.key("demo")


def test_streams_of_several_processes_end_at_once_when_the_service_stops(database_url: str, key: str, operator: Operator) -> None:
    with serve(database_url, key, "--processes", "2") as served, contextlib.ExitStack() as stack:
        clients: list[Client] = [stack.enter_context(following(of(served, operator))) for _ in range(12)]
        add(operator, 5)
        for client in clients:
            client.wait(5)
        wait_until(lambda: served.metrics()["bds_followers"] == 12)
        wait_until(lambda: served.metrics()["bds_followed_changes_total"] == 60)
        began = time.monotonic()
        assert served.stop() == 0
        assert time.monotonic() - began < 15, "requests may take 30 seconds"
        for client in clients:
            client.wait_for_end()
            assert client.ids == [1, 2, 3, 4, 5]
    assert not [line for line in served.log if '"error"' in line]


def test_the_clients_of_a_killed_process_resume_at_another_one(database_url: str, key: str, operator: Operator) -> None:
    with serve(database_url, key, "--processes", "2") as served:
        service = of(served, operator)
        ids: list[list[int]] = []
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(following(service)) for _ in range(8)]
            add(operator, 10)
            for client in clients:
                client.wait(10)
            for pid in served.children("bds http"):
                os.kill(pid, signal.SIGKILL)
            for client in clients:
                client.wait_for_end()
            ids += [client.ids for client in clients]
        add(operator, 10)
        for each in ids:
            wait_until(lambda: served_again(service, each))  # noqa: B023
            assert each == list(range(1, 21))


def served_again(service: Service, ids: list[int]) -> bool:
    """Resume; whether a process has answered with all that is missing."""
    with contextlib.suppress(Refused, OSError), following(service, last=ids[-1]) as client:
        client.wait(10)
        ids += client.ids
        return True
    return False


@pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed (Debian: apt-get install pgbouncer)")
def test_streams_work_behind_a_transaction_pooler(database_url: str) -> None:
    with pooled(database_url, "transaction") as through, serving(database_url, through) as service:
        service.operator.company("other")
        other = {"X-API-Key": service.operator.key("other")}
        with following(service) as one, following(service, "other", headers=other, filter="operation = 'create'") as two:
            for _ in range(10):
                add(service.operator, 2)
                add(service.operator, 3, "other")
            one.wait(20)
            two.wait(30)
        with following(service, after=5) as client:
            client.wait(15)
            assert client.ids == list(range(6, 21))
