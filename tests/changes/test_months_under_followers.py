"""Months of the log go and come back under followers: each gets every change once, or is told what is no longer kept."""

from __future__ import annotations

import json
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import quote

import psycopg
import pytest

from tests.changes.following import Refused, cut, following
from tests.changes.test_stream import add, last
from tests.conftest import NO_MONTHS
from tests.database.aging import age
from tests.service.serving import Reply, Service, running, wait_until

pytestmark = [pytest.mark.slow, NO_MONTHS]

EACH, NUMBER = 40, 8  # changes of a month, months
PAGE = 30  # less than a month has
DETACH = "alter table bds.change_log detach partition bds.change_log_2020_{:02}"
# as docs/sql.md tells: plans of readers see what is attached a little later than catalogs, unless readers wait for it
ATTACH = """
    begin; lock table only bds.change_log in access exclusive mode;
    alter table bds.change_log attach partition bds.change_log_2020_{:02} for values from ('2020-{:02}-01Z') to ('2020-{:02}-01Z');
    commit
"""
ARCHIVE = "select bds.set_retention(now() - (timestamptz '2020-{:02}-01Z' + interval '1 day'), archive => true)"


@pytest.fixture
def service(database_url: str) -> Iterator[Service]:
    """Each of demo's changes creates a unit, in one of the first months of 2020."""
    with running(database_url) as service:
        for month in range(1, NUMBER + 2):
            add(service.operator, EACH)
            age(service.operator, f"2020_{month:02}", f"id > {(month - 1) * EACH}")
        yield service


def patiently(connection: psycopg.Connection, statement: str) -> None:
    """Run a statement that needs a lock, as a DBA does beside readers."""
    while True:
        try:
            connection.execute(statement.encode())
            return
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            connection.rollback()
        except psycopg.errors.ObjectNotInPrerequisiteState:  # a concurrent detach waited too long for its second step
            statement = statement.replace(" concurrently", " finalize")


@dataclass
class Trial:
    """What moves months, and what follows them.  reads: how many each follower has done."""

    service: Service
    reads: Counter[str] = field(default_factory=Counter)
    is_over: bool = False
    errors: list[BaseException] = field(default_factory=list)

    def follow(self, read: Callable[[Service, int], int]) -> None:
        """From the beginning to the end, again and again."""
        after, end = 0, EACH * (NUMBER + 1)
        with self.noting():
            while not self.is_over or after < end:
                after = read(self.service, 0 if after >= end else after)
                self.reads[read.__name__] += 1

    def move(self, url: str, chance: random.Random) -> None:
        """Detach months and attach them again, each for a whole read of every follower at least; archive the older half at last."""
        with self.noting(), psycopg.connect(url, autocommit=True) as connection:
            connection.execute("set lock_timeout = '100ms'")
            for round in range(8):
                month = chance.randint(1, NUMBER)
                patiently(connection, DETACH.format(month) + (" concurrently" if round % 2 else ""))
                self.let_read()
                patiently(connection, ATTACH.format(month, month, month + 1))
                self.let_read()
            for month in range(2, NUMBER // 2 + 2):
                connection.execute(ARCHIVE.format(month).encode())
                while connection.execute("select bds.first_change('demo')").fetchone() != ((month - 1) * EACH + 1,):
                    connection.execute("select bds.maintain()")
        self.is_over = True

    def let_read(self) -> None:
        """Wait until each follower has begun and ended a read."""
        before = Counter(self.reads)
        wait_until(lambda: bool(self.errors) or all(self.reads[each.__name__] > before[each.__name__] + 1 for each in FOLLOWERS))

    @contextmanager
    def noting(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            self.errors.append(error)
            self.is_over = True


def gone(reply: Reply) -> int:
    assert reply.status == 410, reply.body
    return int(json.loads(reply.body)["firstId"])


def pages(service: Service, after: int) -> int:
    """Read a page of /changes after an id; returns the last id that it covers."""
    reply = service.ask(f"/c/demo/changes?filter={quote(f'id > {after}')}&sort=id&limit={PAGE}")
    if reply.status != 200:
        return gone(reply) - 1
    ids = [each["id"] for each in reply.json["data"]]
    assert ids == list(range(after + 1, after + 1 + len(ids)))
    return ids[-1] if ids else after


def sql(service: Service, after: int) -> int:
    """The same in SQL: what was read, and before and after it whether that is all."""
    with psycopg.connect(service.operator.connection.info.dsn) as connection:
        first = "select bds.first_change('demo')"
        [(before,)] = connection.execute(first).fetchall()
        rows = connection.execute(
            "select id from bds.changes where company_id = 'demo' and id > %s order by id limit %s", (after, PAGE)
        ).fetchall()
        [(still,)] = connection.execute(first).fetchall()
    ids = [id for (id,) in rows]
    if max(before, still) > after + 1:
        return int(max(before, still)) - 1
    assert ids == list(range(after + 1, after + 1 + len(ids)))
    return ids[-1] if ids else after


def past(service: Service, after: int) -> int:
    """The rows as of a version: as many as there were changes."""
    reply = service.odata(f"@{after + 1}/units?$count=true&$top=0")
    if reply.status != 200:
        assert reply.status == 410, reply.body
        return int(re.findall(r"[0-9]+", reply.json["error"]["message"])[0]) - 1
    assert reply.json["@odata.count"] == after + 1
    return after + PAGE


def stream(service: Service, after: int) -> int:
    """A stream from an id on, which is left after some events."""
    try:
        with following(service, last=after) as client:
            wait_until(lambda: len(client.events) >= PAGE or client.has_ended or client.known == last(service))
            cut(client)
            client.wait_for_end()
    except Refused as refused:
        return int(json.loads(refused.args[0])["firstId"]) - 1
    assert client.ids == list(range(after + 1, after + 1 + len(client.ids)))
    return client.ids[-1] if client.ids else after


FOLLOWERS: tuple[Callable[[Service, int], int], ...] = (pages, sql, past, stream)


def test_each_follower_gets_every_change_once_or_is_told_what_is_gone(service: Service, database_url: str) -> None:
    trial = Trial(service)
    threads = [threading.Thread(target=trial.follow, args=(read,)) for read in FOLLOWERS]
    threads.append(threading.Thread(target=trial.move, args=(database_url, random.Random(7))))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not trial.errors
    assert service.operator.rows("select bds.first_change('demo')") == [(EACH * NUMBER // 2 + 1,)]


def test_a_stream_ends_where_a_month_is_gone_before_its_changes_are_read(service: Service) -> None:
    """Changes, and the month of one of them, in one transaction: nothing that follows them is sent."""
    after = last(service)
    with following(service) as client, following(service, filter="entity = 'units'") as filtered:
        with service.operator.connection.transaction():
            service.operator.connection.execute("select bds.set_context('demo')")
            service.operator.connection.execute(
                "insert into data.units (code, name) select n::text, 'x' from generate_series(1, 5) n"
            )
            age(service.operator, "2020_10", f"id in ({after + 1}, {after + 2})")
            age(service.operator, "2020_11", f"id = {after + 3}")
            service.operator.connection.execute(DETACH.format(11).encode())
        for each in (client, filtered):
            each.wait_for_end()
            assert each.ids == [after + 1, after + 2][: len(each.ids)]
    with pytest.raises(Refused) as refused, following(service, last=after):
        pass
    assert json.loads(refused.value.args[0])["firstId"] == after + 4
