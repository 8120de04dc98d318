"""Outages of the database, lost connections, and clients that leave: requests fail soon, or are served after the outage."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
import uvloop
from psycopg.conninfo import make_conninfo

from app.config import Config
from app.database.pool.pools import Pool
from app.database.pool.pulse import Pulse
from tests.auth.client import ask
from tests.servers import Own, own_server
from tests.service.serving import PATIENCE, Reply, running, wait_until

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def own() -> Iterator[Own]:
    """A PostgreSQL of its own, which tests may stop."""
    with own_server() as server:
        yield server


def test_readiness_follows_the_database_and_waiting_requests_are_served_after_an_outage(own: Own) -> None:
    with running(own.url) as service:
        assert service.ask("/readyz", authorization=None).status == 200
        assert (service.ask("/c/demo/units").status, service.ask("/c/demo/hooks").status) == (200, 200)
        own.stop()
        began = time.monotonic()
        away = service.ask("/readyz", authorization=None)
        assert (away.status, away.headers["Retry-After"], away.json["code"]) == (503, "1", "busy")
        assert time.monotonic() - began < PATIENCE / 2, "at once, not after a timeout"
        assert service.ask("/healthz", authorization=None).status == 200, "the process lives"
        assert b"\nbds_database_up 0.0\n" in service.ask("/metrics", authorization=None).body

        statuses: list[int] = []
        paths = (
            "/c/demo/units",
            "/api/odata/demo/units",
            "/api/odata/demo/units/$count",
            "/c/demo/hooks",
            "/api/demo/units?format=json&export=true",
        ) * 3
        askers = [threading.Thread(target=lambda path=path: statuses.append(service.ask(path).status)) for path in paths]
        for asker in askers:
            asker.start()
        own.start()
        wait_until(lambda: service.ask("/readyz", authorization=None).status == 200)
        assert {service.ask(path).status for path in paths} == {200}, "ready means ready"
        for asker in askers:
            asker.join()
        assert set(statuses) <= {200, 503}


def test_connections_that_the_server_has_ended_are_replaced_before_use(own: Own) -> None:
    with running(own.url, company=None) as service:
        assert service.ask("/c/demo/units").status == 200
        service.operator.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        wait_until(lambda: service.ask("/readyz", authorization=None).status == 200)
        assert [service.ask("/c/demo/units").status for _ in range(20)] == [200] * 20


def test_small_imports_do_not_use_sessions_that_were_ended_while_idle(database_url: str) -> None:
    with running(database_url) as service:

        def write(code: str) -> int:
            sent = {"units": [{"code": code, "name": code}]}
            return ask(service, "/api/demo/import", "POST", {"X-API-Key": service.key}, sent).status

        assert write("A") == 200
        ended = service.operator.rows(
            "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = current_database() "
            "and pid <> pg_backend_pid() and state = 'idle'"
        )
        wait_until(lambda: service.ask("/readyz", authorization=None).status == 200)
        assert ended and write("B") == 200


def test_a_write_on_a_server_in_recovery_is_to_be_tried_again(database_url: str) -> None:
    with running(database_url) as service:
        [(name,)] = service.operator.rows("select current_database()")

        def recover(is_recovering: str) -> None:
            service.operator.connection.execute(
                f"alter database {name} set default_transaction_read_only = {is_recovering}".encode()
            )
            service.operator.rows(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            )
            wait_until(lambda: service.ask("/readyz", authorization=None).status == 200)

        def write() -> Reply:
            return ask(service, "/api/demo/import", "POST", {"X-API-Key": service.key}, {"units": []})

        recover("on")
        refused = write()
        assert (refused.status, refused.json["code"], refused.headers["Retry-After"]) == (503, "busy", "5"), refused.body
        recover("off")
        wait_until(lambda: write().status == 200)


def test_requests_during_an_outage_fail_within_seconds(own: Own) -> None:
    with running(own.url, company=None) as service:
        own.stop()
        try:
            wait_until(lambda: service.ask("/readyz", authorization=None).status == 503)
            refused = service.ask("/c/demo/units")
            assert (refused.status, refused.headers["Retry-After"]) == (503, "5")
        finally:
            own.start()


async def _hand_over(url: str) -> bool:
    """Whether a waiting request gets the connection of a request that is cancelled while it returns it."""
    pool = Pool(Config(database_url=url), url, "bds_reader", 1)
    await pool.open(wait=True)
    holds = asyncio.Event()
    may_end = asyncio.Event()

    async def first() -> None:
        async with pool.take():
            holds.set()
            await may_end.wait()

    async def second() -> bool:
        async with pool.take() as connection:
            return (await (await connection.execute("select true")).fetchone()) == (True,)

    leaving = asyncio.create_task(first())
    await holds.wait()
    waiting = asyncio.create_task(second())
    while not pool.stats()["requests_waiting"]:
        await asyncio.sleep(0)
    async with pool._pool._lock:  # so that returning the connection has to wait
        may_end.set()
        for _ in range(5):
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.sleep(0)
    try:
        async with asyncio.timeout(PATIENCE):
            return await waiting
    except TimeoutError:
        return False
    finally:
        await asyncio.gather(leaving, return_exceptions=True)
        await pool.close()


def test_a_request_cancelled_while_it_returns_its_connection_loses_no_connection(database_url: str) -> None:
    assert asyncio.run(_hand_over(database_url))


async def _read_after_loss(url: str) -> set[str]:
    """The results of reads through a pool whose three sessions were ended while idle."""
    pool = Pool(Config(database_url=url), url, "bds_reader", 3)
    await pool.open(wait=True)
    async with contextlib.AsyncExitStack() as held:
        taken = [await held.enter_async_context(pool.take()) for _ in range(3)]
        ended = [connection.info.backend_pid for connection in taken]
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as operator:
        await operator.execute("select pg_terminate_backend(pid, 60000) from unnest(%s::int[]) as p (pid)", (ended,))
    met = set()
    for _ in range(6):
        async with pool.take() as connection:
            try:
                await connection.execute("select 1")
                met.add("an answer")
            except psycopg.OperationalError as error:
                met.add(type(error).__name__)
    await pool.close()
    return met


def test_sessions_that_were_ended_while_idle_are_not_used(database_url: str) -> None:
    assert asyncio.run(_read_after_loss(database_url)) == {"an answer"}


def test_connections_have_timeouts_unless_the_connection_string_sets_them(database_url: str) -> None:
    from app.database.pool.pools import parameters

    assert parameters(database_url)["connect_timeout"] == 10
    own = make_conninfo(database_url, connect_timeout=3, application_name="mine")
    assert "connect_timeout" not in parameters(own) and "application_name" not in parameters(own), "the connection string sets them"
    with psycopg.connect(own, **parameters(own)) as connection:
        assert connection.execute("show application_name").fetchone() == ("mine",)


async def _stop_while_asking(url: str) -> None:
    """Stop a health check, and cancel a caller of it, while it runs."""
    for _ in range(20):
        pulse = Pulse("the database", url)
        await pulse.start()
        asking = [asyncio.create_task(pulse.ask()) for _ in range(3)]
        await asyncio.sleep(0)
        asking[0].cancel()
        await pulse.stop()
        await asyncio.gather(*asking, return_exceptions=True)


def test_a_stopped_health_check_leaves_no_socket_in_the_event_loop(database_url: str) -> None:
    for _ in range(3):
        uvloop.run(_stop_while_asking(database_url))
        gc.collect()


async def _hung(url: str) -> tuple[bool, float, bool]:
    """The result and duration of a health check of a stopped server process, and the result after the process continues."""
    pulse = Pulse("the database", url)
    await pulse.start()
    with psycopg.connect(url, autocommit=True) as operator:
        row = operator.execute(
            "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and application_name = 'bds'"
        ).fetchone()
        assert row
        os.kill(row[0], signal.SIGSTOP)
        try:
            began = time.monotonic()
            answers = await pulse.ask()
            took = time.monotonic() - began
        finally:
            os.kill(row[0], signal.SIGCONT)
    while not pulse.is_up:
        await asyncio.sleep(0.05)
    again = await pulse.ask()
    await pulse.stop()
    return answers, took, again


def test_a_hanging_server_and_its_return_are_noticed(database_url: str) -> None:
    answers, took, again = asyncio.run(_hung(database_url))
    assert (answers, again) == (False, True) and took < PATIENCE
