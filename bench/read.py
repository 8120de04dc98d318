"""How fast a whole collection comes out over HTTP, how soon, and in how much memory."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from app.database import connections
from app.database.catalog import Catalog
from bench.documents import write_basis, write_products
from bench.place import COMPANY, Place, Service, load, service, session, settle, tool
from bench.postgrest import postgrest
from bench.table import Result, rate, say, timed

ROUNDS, ROUNDS_AT_ONCE = 5, 3
BUFFER = 1 << 20
TARGET_SPEED, TARGET_MEMORY, TARGET_FIRST = 0.95, 100, 20
PEER_PORT = 47_822
PEER_HEAD = f"GET /products?select={{}}&company_id=eq.{COMPANY}&order=id HTTP/1.1\r\nHost: bench"
AT_ONCE = 16  # readers of the whole collection
TIME = "to_char({} at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') as {}"  # as the service writes times


def measure(place: Place, rows: int) -> Iterator[Result]:
    """MB/s, seconds to the first byte, MB."""
    with place.database(COMPANY) as url:
        say(f"read: loading {rows:,} products")
        for document in (write_basis(place.directory), write_products(place.directory, rows).path):
            load(url, document)
        settle(url, vacuum=True)
        with connections.connect(url) as connection:
            catalog = connections.read_catalog(connection)
        with service(url, place.directory) as running:
            yield from _collection(url, running, catalog, rows)


# A whole collection ---------------------------------------------------------------------------------------------------------------


def _collection(url: str, running: Service, catalog: Catalog, rows: int) -> Iterator[Result]:
    say("read: a whole collection")
    idle = running.memory()
    fields = catalog["products"].fields.values()
    plain = ", ".join(f'"{field.name}"' for field in fields)
    times = ", ".join((TIME if field.type == "timestamptz" else "{}").format(*[f'"{field.name}"'] * 2) for field in fields)
    query = f"select {{}} from api.products where company_id = '{COMPANY}' order by id"
    ours, floor, utc, firsts, size = [], [], [], [], 0
    for _ in range(ROUNDS):
        first, took, size = _read(running)
        firsts.append(first)
        ours.append(took)
        floor.append(_copy(url, query.format(plain)))
        utc.append(_copy(url, query.format(times)))
    megabytes = size / 1e6
    note = f"{rows:,} rows, {megabytes:.0f} MB; floor: psql copy (select row_to_json ...)"
    yield rate("read, collection", "MB/s", megabytes, ours, floor, note)
    note = f"floor: the same with times that end in Z; target >= {TARGET_SPEED}"
    yield rate("read, collection (times ending in Z)", "MB/s", megabytes, ours, utc, note)
    yield Result("read, first byte", "ms", median(firsts) * 1e3, note=f"of a whole collection; target < {TARGET_FIRST}")
    yield from _at_once(url, running, rows, [field.name for field in fields])
    yield Result("read, memory", "MB", running.memory(), note=f"of the service; idle {idle:.0f}; target < {TARGET_MEMORY}")


def _at_once(url: str, running: Service, rows: int, columns: list[str]) -> Iterator[Result]:
    """The collection to many readers at once, beside the same columns from PostgREST."""
    say(f"read: {AT_ONCE} at once")
    peer_head = PEER_HEAD.format(",".join(columns))
    ours, theirs = [], []
    with postgrest(url, AT_ONCE, PEER_PORT) as peer, ThreadPoolExecutor(AT_ONCE) as pool:

        def seconds(ask: Callable[[], object]) -> float:
            return timed(lambda: list(pool.map(lambda _: ask(), range(AT_ONCE))))[0]

        for _ in range(ROUNDS_AT_ONCE):
            ours.append(seconds(lambda: _read(running)))
            if peer is not None:
                theirs.append(seconds(lambda: _ask("127.0.0.1", PEER_PORT, peer_head)))
    note = f"{AT_ONCE} readers; floor: PostgREST; target >= 1"
    if theirs:
        yield rate("read, collection, at once", "rows/s", AT_ONCE * rows, ours, theirs, note)
    else:
        yield Result("read, collection, at once", "rows/s", AT_ONCE * rows / median(ours), note=note)


def _read(running: Service) -> tuple[float, float, int]:
    """Seconds to the first byte and to the last, bytes of the answer.  Raises RuntimeError unless it is whole."""
    head = f"GET /api/odata/{COMPANY}/products HTTP/1.1\r\nHost: bench\r\nAuthorization: {running.basic}"
    first, took, size, tail = _ask(running.host, running.port, head)
    if tail != b"]}\r\n0\r\n\r\n":
        raise RuntimeError(f"half an answer, ending in {tail!r}")
    return first, took, size


def _ask(host: str, port: int, head: str) -> tuple[float, float, int, bytes]:
    """The same with the end of the answer, which is not looked at."""
    buffer = memoryview(bytearray(BUFFER))
    with socket.create_connection((host, port)) as connection:
        started = time.perf_counter()
        connection.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())
        count = size = connection.recv_into(buffer)
        first = time.perf_counter() - started
        good, tail = bytes(buffer[:12]) == b"HTTP/1.1 200", b""
        while count:
            tail = (tail + bytes(buffer[max(0, count - 9) : count]))[-9:]
            count = connection.recv_into(buffer)
            size += count
        took = time.perf_counter() - started
    if not good:
        raise RuntimeError(bytes(buffer[:200]).decode())
    return first, took, size, tail


def _copy(url: str, query: str) -> float:
    """Seconds that psql takes for the same rows, without its start."""
    copy = rf"\copy (select row_to_json(t) from ({query}) t) to '/dev/null'"
    command = [tool("psql"), url, "-X", "-c", r"\timing on", "-c", copy]
    run = subprocess.run(command, env=session("bds_reader"), stdout=subprocess.PIPE, text=True, check=True)
    return float(re.findall(r"Time: ([0-9.]+) ms", run.stdout)[0]) / 1e3
