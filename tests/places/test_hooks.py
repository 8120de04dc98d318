"""Hooks of a company that moves: each change is sent once for each hook, from one place, however long the move takes."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places.move import Move
from tests.places.conftest import COMPANY, Places
from tests.service.serving import wait_until
from tests.webhooks.conftest import working
from tests.webhooks.receiving import Receiver, receiving

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PATHS = ("/all", "/some", "/retried")
WRITE = "insert into data.units (code, name) values ('U' || gen_random_uuid(), 'x')"


@contextmanager
def writing(pair: Places) -> Iterator[None]:
    """Write to the company wherever it lives, row by row, during the block."""
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.01):
            for url in pair.urls.values():
                with psycopg.connect(url) as connection:
                    try:
                        connection.execute("select bds.set_context(%s)", (COMPANY,))
                        connection.execute(WRITE)
                    except psycopg.Error as error:
                        assert error.sqlstate == "BD002"
                        connection.rollback()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def webhook_ids(receiver: Receiver) -> dict[tuple[str, int], set[str]]:
    """The webhook-ids under which each change was sent to each hook."""
    found: dict[tuple[str, int], set[str]] = defaultdict(set)
    for path in PATHS:
        for request in receiver.of(path):
            for change in request.changes:
                found[path, change].add(request.headers["webhook-id"])
    return found


@pytest.mark.parametrize("ends", ["moves", "stays"])
def test_each_change_is_sent_under_one_id_while_a_company(pair: Places, ends: str) -> None:
    pair.company(HOME)
    with receiving() as receiver, working(pair.urls[HOME], BDS_WEBHOOK_WINDOW="0.2"), contextlib.ExitStack() as stack:
        receiver.answers["/retried"] = [*[500, 200] * 10, 200]
        for path, filter in (("/all", None), ("/some", "code like 'U%'"), ("/retried", None)):
            pair.home.write(COMPANY, "select bds.create_hook(%s, 'units', %s, %s)", (COMPANY, receiver.url(path), filter))
        stack.enter_context(writing(pair))

        def go_on(windows: int = 4) -> None:
            """Wait until several windows have ended."""
            before = {path: len(receiver.of(path)) for path in PATHS}
            wait_until(lambda: all(len(receiver.of(path)) >= before[path] + windows for path in PATHS))

        def say(step: str) -> None:
            if step == "copied":
                with psycopg.connect(pair.urls["west"]) as west:
                    west.execute("lock table data.units in share mode")  # the target has hooks and queues as they were, for long
                    go_on()
                    pair.west.connection.execute("notify bds_hooks")  # its worker would find them due by itself within five seconds
                    go_on()
            if step == "caught up" and ends == "stays":
                raise KeyboardInterrupt

        go_on()
        if ends == "moves":
            pair.move("west", say=say)
        else:
            with pytest.raises(KeyboardInterrupt):
                pair.move("west", say=say)
            with Move.of(pair.urls, COMPANY, lambda _: None) as move:
                move.abort()
        go_on()
        place = "west" if ends == "moves" else HOME
        assert pair.writable() == [place]
        log = "select id from bds.change_log where company_id = 'demo'"
        written = {id for (id,) in pair.at(place).rows(log)}
        wait_until(lambda: {(path, id) for path in PATHS for id in written} <= webhook_ids(receiver).keys())
        sent = webhook_ids(receiver)
    assert {pair: ids for pair, ids in sent.items() if len(ids) > 1} == {}


def stop_after_arrival(pair: Places) -> None:
    def fail(step: str) -> None:
        if step == "arrived":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pair.move("west", say=fail)
    assert pair.writable() == ["west"]


def test_a_company_whose_hooks_may_have_been_sent_from_the_target_is_not_taken_back(pair: Places) -> None:
    pair.company(HOME)
    pair.home.write(COMPANY, "select bds.create_hook(%s, 'units', 'http://127.0.0.1:9/')", (COMPANY,))
    stop_after_arrival(pair)
    with (
        Move.of(pair.urls, COMPANY, lambda _: None) as move,
        pytest.raises(ServiceError, match="may have sent webhooks") as refused,
    ):
        move.abort()
    assert refused.value.code == "conflict"
    assert pair.writable() == ["west"] and pair.directory() == (HOME, "departing")
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.resume()
    assert pair.writable() == ["west"] and pair.directory() == ("west", None)


def test_a_write_at_the_target_in_the_moment_of_an_abort_is_kept(pair: Places) -> None:
    pair.company(HOME)
    stop_after_arrival(pair)
    refused: list[ServiceError] = []

    def abort() -> None:
        with Move.of(pair.urls, COMPANY, lambda _: None) as move:
            try:
                move.abort()
            except ServiceError as error:
                refused.append(error)

    waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and %s = any (pg_blocking_pids(pid))"
    with psycopg.connect(pair.urls["west"]) as writer:
        writer.execute("select bds.set_context(%s)", (COMPANY,))
        writer.execute(WRITE)
        thread = threading.Thread(target=abort)
        thread.start()
        wait_until(lambda: bool(pair.west.rows(waits, (writer.info.backend_pid,))))
    thread.join()
    assert [error.code for error in refused] == ["conflict"]
    assert pair.writable() == ["west"]
    assert pair.west.rows("select count(*) from data.units") == [(1,)]
