"""Killed processes leave nothing half written; simultaneous imports all finish."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from app.errors import ServiceError
from app.feed import heartbeat
from app.feed.run import Import
from tests.feed.conftest import Feed
from tests.service.serving import wait_until

pytestmark = pytest.mark.processes

LARGE = 9 << 20  # bytes: more than one block of staging


def units(first: int, last: int) -> bytes:
    return ", ".join(json.dumps({"code": f"U{n}", "name": "x" * 1000}) for n in range(first, last)).encode()


@contextmanager
def command(feed: Feed) -> Iterator[subprocess.Popen[bytes]]:
    """`bds import` in a process of its own, which reads from a pipe; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "import", "-", "--company", feed.company],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "BDS_DATABASE_URL": feed.url},
        preexec_fn=_default_signals,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _default_signals() -> None:
    """Undo ignored signals: a suite that runs in the background or under nohup passes them on to its children."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def state(feed: Feed) -> str | None:
    rows = feed.ask("select state from bds.imports where company_id = %s order by number desc limit 1", feed.company)
    return str(rows[0][0]) if rows else None


def blocked(feed: Feed, imports: int = 1) -> bool:
    """Whether statements of so many imports wait for a lock."""
    return len(feed.operator.rows(
        "select from pg_stat_activity where datname = current_database() and application_name like 'bds%%' and wait_event_type = 'Lock'"
    )) >= imports  # fmt: skip


def reaped(feed: Feed) -> bool:
    feed.operator.connection.execute("select bds.reap_imports('1 millisecond')")
    return state(feed) == "failed"


@contextmanager
def holding(feed: Feed, *statements: str) -> Iterator[None]:
    """Keep a transaction of another session open that has run the statements."""
    with psycopg.connect(feed.url) as other:
        for statement in statements:
            other.execute(statement.encode())
        yield
        other.rollback()


PHASES = ["receiving", "staging", "comparing", "writing", "noting"]
SETS = "select s.change_set_id, s.first_id, s.last_id, s.entities from bds.change_sets s where s.company_id = %s order by s.last_id"


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_import_leaves_nothing(feed: Feed, phase: str) -> None:
    feed.good(units=[{"code": "U0", "name": "before"}], customers=[{"code": "C", "name": "c"}])
    before, log, sets = feed.stored(), feed.log(), feed.ask(SETS, feed.company)
    with command(feed) as process:
        assert process.stdin is not None
        process.stdin.write(b'{"units": [' + units(0, LARGE // 1000))
        process.stdin.flush()
        running = "select from bds.imports where company_id = %s and finished_at is null"
        if phase == "receiving":  # before the first block is staged
            wait_until(lambda: bool(feed.ask(running, feed.company)))
            process.kill()
        else:
            wait_until(lambda: bool(feed.ask(running + " and bytes > 0", feed.company)))
        number = feed.operator.rows("select max(number) from bds.imports")[0][0]
        if phase == "staging":
            with holding(feed, f"lock table staging.i{number}_units in access exclusive mode"):
                feeder = threading.Thread(target=_write, args=(process, b", " + units(LARGE // 1000, 3 * LARGE // 1000)))
                feeder.start()
                wait_until(lambda: blocked(feed))
                process.kill()
                feeder.join()
        elif phase != "receiving":
            lock = {
                "comparing": f"select bds.set_context('{feed.company}'), bds.lock_company('{feed.company}')",
                "writing": f"select from data.units where company_id = '{feed.company}' for update",
                "noting": "lock table bds.counted_change_sets in share mode",  # all is written, the counts are not
            }[phase]
            with holding(feed, lock):
                process.stdin.write(b"]}")
                process.stdin.close()
                process.stdin = None
                wait_until(lambda: blocked(feed))
                process.kill()
                wait_until(lambda: not blocked(feed))
        process.wait()
    wait_until(lambda: reaped(feed))
    assert feed.staged() == 0
    assert (feed.stored(), feed.log(), feed.ask(SETS, feed.company)) == (before, log, sets)
    assert feed.good(units=[{"code": "U0", "name": "after"}]) == {"units": {"updated": 1}}
    assert feed.ask(SETS, feed.company)[1][1:] == (3, 3, {"units": {"created": 0, "updated": 1, "deleted": 0}})


def stopped_at_rest(feed: Feed, process: subprocess.Popen[bytes]) -> bool:
    """Stop the process, unless one of its sessions is in a transaction: while it copies rows, its tables cannot be dropped."""
    process.send_signal(signal.SIGSTOP)
    busy = "select from pg_stat_activity where datname = current_database() and application_name like 'bds%%' and state <> 'idle'"
    if feed.operator.rows(busy):
        process.send_signal(signal.SIGCONT)
        return False
    return True


def test_an_import_that_was_stopped_and_taken_for_dead_writes_nothing(feed: Feed) -> None:
    """SIGSTOP for longer than its signs of life may be missing; then it goes on, with the rest of its document."""
    feed.good(units=[{"code": "U0", "name": "before"}])
    before, log = feed.stored(), feed.log()
    with command(feed) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b'{"units": [' + units(0, LARGE // 1000))
        process.stdin.flush()
        wait_until(lambda: bool(feed.ask("select from bds.imports where company_id = %s and bytes > 0", feed.company)))
        wait_until(lambda: stopped_at_rest(feed, process))
        wait_until(lambda: reaped(feed))
        process.send_signal(signal.SIGCONT)
        with suppress(BrokenPipeError):
            process.stdin.write(b"]}")
            process.stdin.close()
        process.stdin = None
        assert process.wait(timeout=60) == 1
        assert re.search(
            "^bds: (the )?import .*(is failed, |has ended)", process.stderr.read().decode()
        )  # as it staged rows, or after that
    assert (state(feed), feed.staged(), feed.stored(), feed.log()) == ("failed", 0, before, log)
    assert feed.good(units=[{"code": "U0", "name": "after"}]) == {"units": {"updated": 1}}


def test_an_import_that_is_stopped_while_it_runs_is_written_as_a_whole_when_it_wakes(feed: Feed) -> None:
    """Its session works on, and has the turn until the process commits; it is not dead."""
    waits = (
        "select from pg_stat_activity a join bds.turns t using (pid) where t.company_id = %s and a.state = 'idle in transaction'"
    )
    with command(feed) as process:
        assert process.stdin is not None
        with holding(feed, f"select bds.set_context('{feed.company}'), bds.lock_company('{feed.company}')"):
            process.stdin.write(b'{"units": [' + units(0, LARGE // 1000) + b"]}")
            process.stdin.close()
            process.stdin = None
            wait_until(lambda: blocked(feed))
            process.send_signal(signal.SIGSTOP)
        wait_until(lambda: bool(feed.operator.rows(waits, (feed.company,))))
        assert not reaped(feed) and not feed.log()
        process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=60) == 0
    assert (state(feed), feed.staged(), len(feed.log())) == ("completed", 0, LARGE // 1000)


@pytest.mark.parametrize(
    ("phase", "number"),
    [(phase, number) for phase in ("receiving", "comparing") for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
)
def test_an_interrupted_import_reports_it_and_leaves_nothing(feed: Feed, phase: str, number: signal.Signals) -> None:
    with command(feed) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b'{"units": [' + units(0, LARGE // 1000))
        process.stdin.flush()
        wait_until(lambda: bool(feed.ask("select from bds.imports where company_id = %s and bytes > 0", feed.company)))
        with holding(feed, f"select bds.set_context('{feed.company}'), bds.lock_company('{feed.company}')"):
            if phase == "comparing":
                process.stdin.write(b"]}")
                process.stdin.close()
                process.stdin = None
                wait_until(lambda: blocked(feed))
            process.send_signal(number)
            process.wait(timeout=30)
        assert process.stderr.read().decode().splitlines()[-1] == "bds: interrupted"
    assert state(feed) == "failed" and feed.staged() == 0 and not feed.log()
    message = "select e.code, e.message from bds.import_errors e join bds.imports i on i.id = e.import_id where i.company_id = %s"
    assert feed.ask(message, feed.company) == [("aborted", "the import was interrupted at the command line")]


def test_a_staging_table_that_is_being_made_is_dropped_with_the_others(feed: Feed) -> None:
    importing = feed.begin()
    importing._heartbeat.stop()  # as if the process had died
    stage = f"select bds.import_stage('{feed.company}', '{importing.id}', 'units')"
    with psycopg.connect(feed.url) as dying:
        dying.execute("select bds.set_context(%s)", (feed.company,))
        dying.execute(stage.encode())
        assert not reaped(feed)  # that table is not visible yet
    assert reaped(feed)
    assert feed.staged() == 0
    with pytest.raises(psycopg.Error, match="is failed, not receiving"):
        feed.write(stage)


def _write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # the process was killed
        process.stdin.write(data)
        process.stdin.flush()


STAGED = "select oid::regclass::text from pg_class where relnamespace = 'staging'::regnamespace and relkind = 'r'"


def test_an_import_that_the_database_does_not_have_any_more_is_to_be_sent_again(feed: Feed) -> None:
    """A failover to a standby that was behind loses what had begun: the client is not told that there is no such import."""

    def lost(document: bytes) -> Import:
        importing = feed.begin()
        importing.receive(document)
        feed.operator.rows("delete from bds.imports where id = %s returning 1", (importing.id,))
        for (table,) in feed.operator.rows(STAGED):
            feed.operator.connection.execute(f"drop table if exists {table}".encode())
        return importing

    for document in (b'{"units": [{"code": "A", "name": "a"}]}', b'{"units": [' + units(0, LARGE // 1000) + b"]}"):
        importing = lost(document)
        with pytest.raises(ServiceError) as refused:
            importing.run()
        assert (refused.value.code, refused.value.headers) == ("busy", {"Retry-After": "1"})
        importing.fail(refused.value)
    lost(b"{").fail(psycopg.OperationalError("the connection is lost"))
    assert feed.staged() == 0 and not feed.log()


def test_a_waiting_import_shows_signs_of_life(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "HEARTBEAT", 0.01)

    def beats() -> None:
        query = "select heartbeat_at, state from bds.imports where company_id = %s order by number desc limit 1"
        seen = feed.ask(query, feed.company)
        wait_until(lambda: feed.ask(query, feed.company)[0][0] > seen[0][0])

    importing = feed.begin()
    beats()
    importing.receive(b'{"units": [{"code": "A", "name": "a"}]}')
    results: list[dict[str, Any]] = []
    with holding(feed, f"select bds.set_context('{feed.company}'), bds.lock_company('{feed.company}')"):
        worker = threading.Thread(target=lambda: results.append(importing.run()))
        worker.start()
        wait_until(lambda: blocked(feed))
        beats()
        feed.operator.connection.execute("select bds.reap_imports()")
        assert state(feed) == "running"
    worker.join()
    assert results[0]["state"] == "completed"


def test_staged_rows_lost_in_a_crash_of_the_database_are_noticed(feed: Feed) -> None:
    """Staging tables are unlogged: after a crash they exist and are empty."""
    importing = feed.begin()
    importing.receive(b'{"units": [' + units(0, LARGE // 1000))
    [(number,)] = feed.ask("select number from bds.imports where id = %s", importing.id)
    table = f"staging.i{number}_units"
    has_rows = "select from pg_class where oid = to_regclass(%s) and pg_relation_size(oid) > 0"
    wait_until(lambda: bool(feed.operator.rows(has_rows, (table,))))
    feed.operator.connection.execute(f"truncate {table}".encode())
    importing.receive(b"," + units(LARGE // 1000, LARGE // 1000 + 10) + b"]}")
    with pytest.raises(psycopg.Error) as failed:
        importing.run()
    importing.fail()
    assert failed.value.sqlstate == "BD003"
    assert state(feed) == "failed" and not feed.log()


def test_imports_into_one_company_take_turns(feed: Feed) -> None:
    documents = [
        {"units": [{"code": f"{n % 300}", "name": f"{which}"} for n in range(which * 100, which * 100 + 200)],
         "customers": [{"code": "C", "name": f"{which}"}]}
        for which in range(4)
    ]  # fmt: skip
    reports = _together([partial(feed.send, document) for document in documents])
    assert [report["state"] for report in reports] == ["completed"] * 4
    ids = [change[0] for change in feed.log()]
    assert ids == list(range(1, len(ids) + 1))
    sets = feed.ask("select change_set_id from bds.changes where company_id = %s order by id", feed.company)
    assert len([1 for a, b in pairwise(sets) if a != b]) < 4, "the changes of one import are consecutive"
    assert len(feed.rows("units", "id")) == 300


def test_imports_of_different_companies_run_in_parallel(feed: Feed, companies: Callable[[], Feed]) -> None:
    other = companies()
    results: list[dict[str, Any]] = []
    with holding(feed, f"select bds.set_context('{feed.company}'), bds.lock_company('{feed.company}')"):
        worker = threading.Thread(target=lambda: results.append(feed.send(units=[{"code": "A", "name": "a"}])))
        worker.start()
        wait_until(lambda: blocked(feed))
        assert other.good(units=[{"code": "A", "name": "a"}]) == {"units": {"created": 1}}
    worker.join()
    assert results[0]["state"] == "completed"


def _together(calls: list[Callable[[], Any]]) -> list[Any]:
    results: list[Any] = [None] * len(calls)

    def call(n: int) -> None:
        results[n] = calls[n]()

    workers = [threading.Thread(target=call, args=(n,)) for n in range(len(calls))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results
