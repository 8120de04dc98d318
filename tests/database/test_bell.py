"""The bell: NOTIFY bds_changes follows every commit, though writers do not notify while the keeper relays."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from app.database.servers import bell
from tests.conftest import Operator
from tests.service.serving import wait_until

pytestmark = pytest.mark.slow

Connect = Callable[..., "psycopg.Connection"]
INSERT = "insert into data.units (code, name) values (%s, 'unit')"
KEEPER = "import asyncio, sys; from app.database.servers import bell; asyncio.run(bell.keep(sys.argv[1]))"
PATIENCE = 20.0  # seconds after which a bell counts as missing


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


@pytest.fixture
def acme(operator: Operator) -> Operator:
    operator.company("acme"), operator.company("beta")
    return operator


@pytest.fixture
def listener(connect: Connect) -> psycopg.Connection:
    connection = connect()
    connection.execute("listen bds_changes")
    return connection


@contextmanager
def keeping(url: str) -> Iterator[None]:
    """A keeper in a thread."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(bell.keep(url))

    def run() -> None:
        with pytest.raises(asyncio.CancelledError):
            loop.run_until_complete(task)
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()


def until_asleep(operator: Operator) -> None:
    """Wait until there is a keeper and it waits to be rung; 1 while a writer that was silent has its transaction open."""
    wait_until(lambda: operator.rows("select last_value, is_called from bds.bell") in ([(0, True)], [(1, True)]))


def set_awake(operator: Operator, milliseconds: int = 900) -> None:
    """Set the bell as an awake keeper does."""
    operator.rows("select setval('bds.bell', (extract(epoch from clock_timestamp()) * 1000)::bigint + %s)", (milliseconds,))


def is_awake(operator: Operator) -> bool:
    return operator.rows("select last_value > extract(epoch from clock_timestamp()) * 1000 from bds.bell") == [(True,)]


def heard(operator: Operator, listener: psycopg.Connection) -> list[str]:
    """The payloads up to now."""
    operator.rows("select pg_notify('bds_changes', 'the end')")
    payloads = []
    for notify in listener.notifies(timeout=PATIENCE):
        if notify.payload == "the end":
            return payloads
        payloads.append(notify.payload)
    raise AssertionError("no notification came")


def hears(listener: psycopg.Connection, company: str) -> bool:
    """Whether a notification of the company comes, after any others: a company may be notified of twice."""
    return any(notify.payload == company for notify in listener.notifies(timeout=PATIENCE))


def test_without_a_keeper_every_writer_rings(acme: Operator, listener: psycopg.Connection) -> None:
    for n in range(3):
        acme.write("acme", INSERT, (f"a{n}",))
    assert heard(acme, listener) == ["acme"] * 3


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(900, []), (0, ["acme"]), (-5000, ["acme"]), (3_600_000, ["acme"])],
    ids=["awake", "over", "long over", "the machine's clock went back"],
)
def test_a_writer_is_silent_only_while_the_keeper_is_awake(
    acme: Operator, listener: psycopg.Connection, milliseconds: int, expected: list[str]
) -> None:
    with acme.connection.transaction():
        set_awake(acme, milliseconds)
        acme.write("acme", INSERT, ("a",))
        still = milliseconds != 900 or is_awake(acme)
    if still:  # else the machine was slower than the lease
        assert heard(acme, listener) == expected


def test_a_sleeping_keeper_lets_the_writer_ring_and_adds_nothing(
    acme: Operator, listener: psycopg.Connection, database_url: str
) -> None:
    with keeping(database_url):
        # one that is about to sleep relays what has rung, too
        wait_until(lambda: acme.rows("select last_value, is_called from bds.bell") == [(0, True)])
        acme.write("acme", INSERT, ("a",))
        wait_until(lambda: is_awake(acme))
        until_asleep(acme)
        assert heard(acme, listener) == ["acme"]


def test_changes_of_all_companies_are_heard_while_the_keeper_is_busy(
    acme: Operator, listener: psycopg.Connection, database_url: str
) -> None:
    """Each wave is silent or rings, and the last commit of each company is heard after it."""
    with keeping(database_url):
        until_asleep(acme)
        for n in range(30):
            for company in ("acme", "beta"):
                acme.write(company, INSERT, (f"a{n}",))
                assert hears(listener, company)


@pytest.fixture
def silent_writer(acme: Operator, connect: Connect) -> psycopg.Connection:
    """A session that has written to acme, which nobody else does, with the bell awake, and has not committed."""
    writer = connect()
    while True:
        writer.execute("begin")
        writer.execute("select bds.set_context('acme')")
        set_awake(acme)
        writer.execute(INSERT, ("a",))
        if is_awake(acme):
            return writer
        writer.execute("rollback")


def test_a_commit_that_was_silent_is_heard_though_the_keeper_has_gone_to_sleep(
    acme: Operator, listener: psycopg.Connection, database_url: str, silent_writer: psycopg.Connection
) -> None:
    with keeping(database_url):
        until_asleep(acme)
        heard(acme, listener)  # of every company, because no keeper has put the bell to sleep before
        silent_writer.execute("commit")
        assert hears(listener, "acme")


def test_a_commit_that_was_silent_is_heard_though_its_keeper_ended_before_it(
    acme: Operator, listener: psycopg.Connection, database_url: str, silent_writer: psycopg.Connection
) -> None:
    """The keeper knows of the open transaction, and the next one begins after its commit."""
    with keeping(database_url):
        until_asleep(acme)
    heard(acme, listener)
    silent_writer.execute("commit")
    assert heard(acme, listener) == []
    with keeping(database_url):
        assert hears(listener, "acme")


def test_a_commit_long_after_the_last_change_of_its_transaction_is_heard_though_the_keeper_was_killed(
    acme: Operator, listener: psycopg.Connection, database_url: str, silent_writer: psycopg.Connection
) -> None:
    set_awake(acme, 3_600_000)  # a keeper has been awake for an hour since the change, and was killed
    silent_writer.execute("commit")
    with keeping(database_url):
        assert hears(listener, "acme")


def test_a_keeper_that_is_killed_leaves_the_bell_to_the_writers(
    acme: Operator, listener: psycopg.Connection, database_url: str
) -> None:
    process = subprocess.Popen([sys.executable, "-c", KEEPER, database_url])
    try:
        until_asleep(acme)
        acme.write("acme", INSERT, ("a",))
        wait_until(lambda: is_awake(acme))
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    wait_until(lambda: not is_awake(acme))
    heard(acme, listener)
    acme.write("beta", INSERT, ("b",))
    assert hears(listener, "beta")


def test_a_keeper_that_is_stopped_leaves_the_bell_to_the_writers_and_goes_on_when_it_wakes(
    acme: Operator, listener: psycopg.Connection, database_url: str
) -> None:
    process = subprocess.Popen([sys.executable, "-c", KEEPER, database_url])
    try:
        until_asleep(acme)
        acme.write("acme", INSERT, ("a",))
        wait_until(lambda: is_awake(acme))
        os.kill(process.pid, signal.SIGSTOP)
        acme.write("beta", INSERT, ("silent, perhaps",))
        wait_until(lambda: not is_awake(acme))
        acme.write("acme", INSERT, ("b",))
        while heard(acme, listener)[-1:] != ["acme"]:
            pass
        os.kill(process.pid, signal.SIGCONT)
        until_asleep(acme)
        for n in range(5):
            for company in ("acme", "beta"):
                acme.write(company, INSERT, (f"c{n}",))
                assert hears(listener, company)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def test_a_new_keeper_relays_what_a_dead_one_may_have_missed(
    acme: Operator, listener: psycopg.Connection, database_url: str
) -> None:
    set_awake(acme, 900)
    acme.write("acme", INSERT, ("a",))
    with keeping(database_url):
        assert hears(listener, "acme")


def test_one_of_several_processes_keeps_the_bell_until_it_ends(acme: Operator, database_url: str) -> None:
    keepers = "select count(*)::int from pg_locks where locktype = 'advisory' and granted"
    with keeping(database_url):
        wait_until(lambda: acme.rows(keepers) == [(1,)])
        with keeping(database_url):
            until_asleep(acme)
            assert acme.rows(keepers) == [(1,)]
    wait_until(lambda: acme.rows(keepers) == [(0,)])
    assert acme.rows("select last_value < 2 from bds.bell") == [(True,)]


def test_a_stranger_who_holds_the_keepers_lock_leaves_the_bell_to_the_writers(
    acme: Operator, listener: psycopg.Connection, database_url: str, connect: Connect
) -> None:
    stranger = connect()
    stranger.execute("select pg_advisory_lock(hashtextextended('bds.bell', 0))")
    with keeping(database_url):
        waiting = "select count(*)::int from pg_stat_activity where application_name = 'bds bell' and datname = current_database()"
        wait_until(lambda: acme.rows(waiting) == [(1,)])
        acme.write("acme", INSERT, ("a",))
        assert hears(listener, "acme")


def test_a_writer_with_an_old_snapshot_sees_the_bell_of_now(acme: Operator, listener: psycopg.Connection, connect: Connect) -> None:
    set_awake(acme, 900)
    writer = connect()
    writer.execute("begin isolation level repeatable read")
    writer.execute("select bds.set_context('acme')")
    acme.rows("select setval('bds.bell', 0)")
    writer.execute(INSERT, ("a",))
    writer.execute("commit")
    assert heard(acme, listener) == ["acme"]


def test_a_role_that_writes_cannot_silence_the_bell(acme: Operator, connect: Connect) -> None:
    for role in ("bds_writer", "bds_service", "bds_reader", "bds_operator", "bds_importer", "bds_dispatcher"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connect(role).execute("select setval('bds.bell', 1)")
