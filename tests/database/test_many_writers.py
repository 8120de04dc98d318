"""Sixteen sessions write and listen at once, with savepoints, rollbacks and killed ones among them: all is heard, in order, without a gap."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from tests.conftest import Operator
from tests.database.test_bell import keeping
from tests.database.test_turn import assert_gapless
from tests.service.serving import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.processes]

WRITERS, TRANSACTIONS = 16, 12
INSERT = "insert into data.units (company_id, code, name) select %s, gen_random_uuid()::text, 'unit' from generate_series(1, %s)"
# a writer of its own process: it says when it has written, and does not commit
UNFINISHED = """
import sys, psycopg
connection = psycopg.connect(sys.argv[1])
connection.execute("select bds.set_context(%s, 'killed')", (sys.argv[2],))
connection.execute("savepoint a")
connection.execute("insert into data.units (code, name) values (gen_random_uuid()::text, 'killed')")
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def template(of_units: str) -> str:
    return of_units


@dataclass
class Trial:
    url: str
    companies: tuple[str, ...]
    errors: list[BaseException] = field(default_factory=list)
    terminated: int = 0
    committed: Counter[str] = field(default_factory=Counter)  # rows
    lock: threading.Lock = field(default_factory=threading.Lock)
    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(WRITERS, timeout=60))

    def write(self, number: int) -> None:
        chance, done = random.Random(number), 0
        with self.noting():
            while done <= TRANSACTIONS:
                with contextlib.suppress(psycopg.errors.AdminShutdown), self.listening() as (connection, heard):
                    while done < TRANSACTIONS:
                        done += 1
                        self.transact(connection, chance.choice(self.companies), chance)
                    self.barrier.wait()
                    done += 1
                    self.transact(connection, self.companies[number % len(self.companies)])
                    wait_until(lambda: connection.execute("select 1").fetchone() == (1,) and set(self.companies) <= heard)

    @contextlib.contextmanager
    def listening(self) -> Iterator[tuple[psycopg.Connection[Any], set[str]]]:
        """A session, and what it has heard of when a statement ends."""
        heard: set[str] = set()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.add_notify_handler(lambda notify: heard.add(notify.payload))
            connection.execute("listen bds_changes")
            yield connection, heard

    def transact(self, connection: psycopg.Connection[Any], company: str, chance: random.Random | None = None) -> None:
        """Write some rows, or with chance none, in savepoints; with chance the session is ended before its commit."""
        rows, chosen = 0, chance or random.Random(0)
        try:
            with connection.transaction(force_rollback=chance is not None and chosen.random() < 0.2) as outer:
                connection.execute("select bds.set_context(%s, 'writer')", (company,))
                for _ in range(chosen.randint(1, 3)):
                    more = chosen.choice((1, 1, 2, 30))
                    with connection.transaction(force_rollback=chosen.random() < 0.3) as inner:
                        connection.execute(INSERT, (company, more))
                    rows += 0 if inner.force_rollback else more
                if chance and chosen.random() < 0.1:
                    connection.execute("select pg_terminate_backend(pg_backend_pid())")
            with self.lock:
                self.committed[company] += 0 if outer.force_rollback else rows
        except psycopg.errors.AdminShutdown:
            self.terminated += 1
            raise

    @contextlib.contextmanager
    def noting(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.errors.append(error)
            self.barrier.abort()


class Listener:
    """Reads what comes after the last id only when it hears of a company."""

    def __init__(self, url: str, companies: tuple[str, ...]) -> None:
        self.read: dict[str, list[tuple[int, str]]] = {company: [] for company in companies}
        self._heard: list[str] = []
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.add_notify_handler(lambda notify: self._heard.append(notify.payload))
        self._connection.execute("listen bds_changes")

    def listen(self) -> None:
        query = "select id, transaction_id::text from bds.changes where company_id = %s and id > %s order by id"
        self._connection.execute("select 1")  # receives notifications
        heard, self._heard[:] = set(self._heard), []
        for company in heard:
            seen = self.read[company]
            seen += self._connection.execute(query, (company, seen[-1][0] if seen else 0)).fetchall()

    def has(self, last: dict[str, int]) -> bool:
        self.listen()
        return {company: len(seen) for company, seen in self.read.items()} == last


@pytest.mark.parametrize(("companies", "kept"), [(("acme",), False), (("acme",), True), (("a", "b", "c", "d"), True)])
def test_what_many_sessions_commit_is_heard_in_order_without_a_gap(
    operator: Operator, database_url: str, companies: tuple[str, ...], kept: bool
) -> None:
    for company in companies:
        operator.company(company)
    listener, trial = Listener(database_url, companies), Trial(database_url, companies)
    with keeping(database_url) if kept else contextlib.nullcontext():
        threads = [threading.Thread(target=trial.write, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for company in companies * 2:
            kill_one(database_url, company)
        while any(thread.is_alive() for thread in threads):
            listener.listen()
            threads[0].join(0.01)
        assert not trial.errors
        last = dict(operator.rows("select company_id, last_id from bds.clocks"))
        wait_until(lambda: listener.has(last))
    assert trial.terminated > 5
    assert last == trial.committed
    assert_gapless(operator)
    for company, seen in listener.read.items():
        assert [id for id, _ in seen] == list(range(1, last[company] + 1)), company
        turns = [transaction for n, (_, transaction) in enumerate(seen) if not n or seen[n - 1][1] != transaction]
        assert len(turns) == len(set(turns)), "a transaction's changes follow one another"
    wait_until(lambda: operator.rows("select from bds.turns") == [])  # the server may be ending a session that was killed
    assert operator.rows("select from pg_locks where not granted") == []
    assert operator.rows("select from bds.compare_log()") == []


def kill_one(url: str, company: str) -> None:
    """Kill the client of a transaction that has the turn, which others wait for."""
    process = subprocess.Popen(
        [sys.executable, "-c", UNFINISHED, url, company], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
    finally:
        process.kill()
        process.communicate()
