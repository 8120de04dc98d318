"""`bds follow`: changes on standard output as they commit; how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import psycopg
import pytest

from app.cli.follow import Follower
from tests.changes.test_stream import add
from tests.changes.test_stream_outages import KILL, own  # noqa: F401
from tests.cli.test_commands import BDS, ROOT, bds
from tests.conftest import Operator
from tests.servers import Own
from tests.service.serving import unused_port, wait_until

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def template(of_products: str) -> str:
    return of_products


@pytest.fixture
def environment(database_url: str, operator: Operator) -> dict[str, str]:
    operator.company("demo")
    operator.company("other")
    return {**os.environ, "BDS_DATABASE_URL": database_url}


@dataclass
class Follow:
    """A running command and the records that it has printed."""

    process: subprocess.Popen[str]
    records: list[dict[str, Any]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return [record["id"] for record in self.records]

    def wait(self, count: int) -> None:
        wait_until(lambda: len(self.records) >= count or self.process.poll() is not None)
        assert len(self.records) == count, self.messages


@contextlib.contextmanager
def following(environment: dict[str, str], *arguments: str) -> Iterator[Follow]:
    """Run `bds follow demo` for the block, from when it has begun."""
    process = subprocess.Popen(
        [*BDS, "follow", "demo", *arguments], env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    follow = Follow(process)

    def read(stream: IO[str], into: list[Any], convert: Any) -> None:
        into.extend(map(convert, stream))

    assert process.stdout and process.stderr
    threads = [
        threading.Thread(target=read, args=(process.stdout, follow.records, json.loads)),
        threading.Thread(target=read, args=(process.stderr, follow.messages, str)),
    ]
    for thread in threads:
        thread.start()
    try:
        with psycopg.connect(environment["BDS_DATABASE_URL"], autocommit=True) as connection:
            wait_until(lambda: has_begun(connection) or process.poll() is not None)
            yield follow
    finally:
        process.kill()
        process.wait()
        for thread in threads:
            thread.join()


def has_begun(connection: psycopg.Connection[Any]) -> bool:
    """Whether it listens, and has read once."""
    query = (
        "select from pg_stat_activity where application_name = 'bds follow' and state = 'idle' and query like '%%first_change%%'"
    )
    listens = "select from pg_stat_activity where application_name = 'bds listen'"
    return connection.execute(query).fetchone() is not None and connection.execute(listens).fetchone() is not None


def test_each_change_is_a_line_as_soon_as_it_commits(operator: Operator, environment: dict[str, str]) -> None:
    add(operator, 3)
    with following(environment) as follow:
        for count in range(1, 6):
            add(operator, 1)
            add(operator, 1, "other")
            follow.wait(count)
        assert follow.ids == [4, 5, 6, 7, 8]
        assert set(follow.records[0]) == {"id", "entity", "rowId", "operation", "changeSetId", "createdAt"}
        assert not follow.messages


def test_after_and_entity_choose(operator: Operator, environment: dict[str, str]) -> None:
    add(operator, 1200)
    add(operator, 2, table="categories")
    with following(environment, "--after", "600", "--entity", "categories") as follow:
        follow.wait(2)
        add(operator, 1)
        add(operator, 1, table="categories")
        follow.wait(3)
        assert follow.ids == [1201, 1202, 1204]
    with following(environment, "--after", "0") as follow:
        follow.wait(1204)
        assert follow.ids == list(range(1, 1205))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(operator: Operator, environment: dict[str, str], number: signal.Signals) -> None:
    with following(environment) as follow:
        add(operator, 1)
        follow.wait(1)
        follow.process.send_signal(number)
        assert follow.process.wait(30) == 0
    assert not follow.messages


def test_a_signal_ends_it_while_nobody_takes_what_it_writes(operator: Operator, environment: dict[str, str]) -> None:
    add(operator, 5000)
    command = [*BDS, "follow", "demo", "--after", "0"]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        wait_until(lambda: waiting_bytes(process.stdout) > 60_000)  # it is full
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def waiting_bytes(pipe: IO[bytes] | None) -> int:
    """How many bytes can be read."""
    assert pipe is not None
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
    return int(count)


def test_it_ends_when_its_reader_has_ended(operator: Operator, environment: dict[str, str]) -> None:
    add(operator, 5000)
    for after in ("0", "5000"):  # with much to write, and with nothing
        command = [*BDS, "follow", "demo", "--after", after]
        with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stderr is not None
            if after == "0":
                process.stdout.readline()
            process.stdout.close()
            assert process.wait(30) == 0
            assert process.stderr.read() == b""


def test_it_survives_lost_connections(operator: Operator, environment: dict[str, str]) -> None:
    with following(environment) as follow:
        for number in range(1, 6):
            operator.rows(KILL, ("bds follow",))
            operator.rows(KILL, ("bds listen",))
            add(operator, 10)
            follow.wait(10 * number)
        assert follow.ids == list(range(1, 51))


def test_it_survives_a_restart_of_the_database(own: Own) -> None:  # noqa: F811
    with psycopg.connect(own.url, autocommit=True) as connection:
        Operator(connection).company("demo")
    with following({**os.environ, "BDS_DATABASE_URL": own.url}) as follow:
        own.stop()
        wait_until(lambda: bool(follow.messages))
        own.start()
        with psycopg.connect(own.url, autocommit=True) as connection:
            add(Operator(connection), 10)
        follow.wait(10)
        assert follow.ids == list(range(1, 11))


def test_it_fails_when_the_company_is_deleted(operator: Operator, environment: dict[str, str]) -> None:
    with following(environment) as follow:
        add(operator, 3)
        follow.wait(3)
        with operator.connection.transaction():
            operator.rows("select bds.delete_company('demo')")
            operator.company("demo")
            add(operator, 5)
        assert follow.process.wait(30) == 1
    assert follow.ids == [1, 2, 3]
    assert follow.messages == ["bds: the log of demo does not go on after 3: it was deleted or restored\n"]


def test_a_database_that_is_away_is_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without BDS_DATABASE_URL to resolve the database would start it, which may have been stopped on purpose."""
    monkeypatch.setattr("app.database.embedded.start", lambda *_: pytest.fail("started"))
    away = f"postgresql://nobody@127.0.0.1:{unused_port()}/bds"
    asyncio.run(Follower(away, away, None, "demo")._look_elsewhere())


REFUSED = [
    (("nowhere",), 1, "bds: no such company: 'nowhere'\n"),
    (("demo", "--entity", "nope"), 1, "bds: no such entity: nope, expected one of "),
    (("demo", "--after", "7"), 1, "bds: there is no change 7: the last one is 0\n"),
    (("demo", "--after", "-1"), 2, "expected the id of a change such as 17 or 2:17, or 0, got '-1'"),
    (("demo", "--after", "x"), 2, "expected the id of a change such as 17 or 2:17, or 0, got 'x'"),
    ((), 2, "the following arguments are required: COMPANY"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), REFUSED)
def test_what_it_refuses(environment: dict[str, str], arguments: tuple[str, ...], code: int, message: str) -> None:
    done = bds(environment, "follow", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
