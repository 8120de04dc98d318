"""Streams over everything that fails: connections of clients, of the service, the LISTEN, the whole database."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import defaultdict
from collections.abc import Iterator

import psycopg
import pytest

from tests.changes.following import Refused, connect, cut, following
from tests.changes.test_stream import add, last
from tests.conftest import Operator
from tests.servers import Own, own_server
from tests.service.serving import Service, running, wait_until

pytestmark = pytest.mark.processes

WRITERS, TRANSACTIONS = 3, 60
ADDED = "insert into data.units (code, name) select gen_random_uuid(), 'x' from generate_series(1, %s)"
KILL = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = %s"


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        yield service


def write(url: str, seed: int) -> None:
    """Transactions of random sizes; every fifth one is rolled back."""
    chance = random.Random(seed)
    with psycopg.connect(url) as connection:
        for number in range(TRANSACTIONS):
            connection.execute("select bds.set_context('demo')")
            for _ in range(chance.randint(1, 3)):
                connection.execute(ADDED, (chance.choice((1, 1, 2, 40)),))
            connection.rollback() if number % 5 == 0 else connection.commit()


def follow_and_leave(service: Service, seed: int, end: list[int], filter: str, ids: list[int]) -> None:
    """Follow from the beginning until the end is known and reached, and come again at random moments with the last id."""
    chance = random.Random(seed)
    while not (end and ids and ids[-1] == end[0]):
        # 503 while the service has no connection
        with contextlib.suppress(Refused), following(service, last=ids[-1] if ids else 0, filter=filter) as client:
            some = chance.randint(1, 300)
            wait_until(lambda: len(client.events) >= some or client.has_ended or bool(end))  # noqa: B023
            if end:
                wait_until(lambda: client.has_ended or client.known == end[0])
            cut(client)
            client.wait_for_end()
            ids += client.ids


def test_nothing_is_skipped_and_nothing_comes_twice_while_writers_commit_and_connections_break(
    service: Service, module_database_url: str
) -> None:
    end: list[int] = []
    came: dict[str, list[list[int]]] = defaultdict(list)
    filters = ("", "", "operation = 'create'", "id > 10 and entity = 'units'")
    threads = []
    for number, filter in enumerate(filters):
        came[filter].append([])
        arguments = (service, number, end, filter, came[filter][-1])
        threads.append(threading.Thread(target=follow_and_leave, args=arguments))
    writers = [threading.Thread(target=write, args=(module_database_url, 100 + n)) for n in range(WRITERS)]
    for thread in (*threads, *writers):
        thread.start()
    while any(writer.is_alive() for writer in writers):
        for name in ("bds listen", "bds bell", "bds"):
            service.operator.rows(KILL, (name,))
            writers[0].join(0.15)
    end.append(last(service))
    for thread in threads:
        thread.join()
    for filter, clients in came.items():
        expected = list(range(11 if "id > 10" in filter else 1, end[0] + 1))
        for ids in clients:
            assert ids == expected, filter


def test_followers_share_one_listen_and_a_few_connections(service: Service) -> None:
    def connections(where: str) -> int:
        row: tuple[int] = service.operator.rows(
            f"select count(*) from pg_stat_activity where datname = current_database() and {where}"
        )[0]
        return row[0]

    before = connections("true")
    others = ["a", "b", "c"]
    keys = {company: {"X-API-Key": service.operator.key(service.operator.company(company))} for company in others}
    opened = [connect(service, company, headers=keys[company], after=0) for _ in range(20) for company in others]
    for company in others:
        with following(service, company, headers=keys[company]) as client:
            add(service.operator, 1, company)
            client.wait(1)
    assert connections("true") - before <= 4 + 16, (
        "a listener, three readers; and those of the pool, which looks at 60 keys at once"
    )
    assert connections("query = 'listen bds_hooks'") == 1
    for connection, _ in opened:
        connection.close()


@pytest.fixture(scope="module")
def own() -> Iterator[Own]:
    """A PostgreSQL of its own, which tests may stop."""
    with own_server() as server:
        yield server


def test_streams_survive_a_restart_of_the_database(own: Own) -> None:
    with running(own.url) as service:
        add(service.operator, 10)
        with following(service) as client, following(service, filter="id > 15") as filtered:
            add(service.operator, 10)
            client.wait(10)
            own.stop()
            own.start()
            with psycopg.connect(own.url, autocommit=True) as connection:
                add(Operator(connection), 10)  # before the service has its connections back
                client.wait(20)
                filtered.wait(15)
            assert client.ids == list(range(11, 31))
            assert filtered.ids == list(range(16, 31))
            assert not client.has_ended
