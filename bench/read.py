"""How fast a whole collection comes out over HTTP, how soon, and in how much memory."""

from __future__ import annotations

import base64
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from statistics import median

from app.database import connections
from app.database.catalog import Catalog
from bench.documents import write_basis, write_products
from bench.place import COMPANY, Place, Service, load, service, session, settle, tool
from bench.table import Result, rate, say

ROUNDS = 5
BUFFER = 1 << 20
TARGET_SPEED, TARGET_MEMORY = 0.8, 100


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
    query = "select {} from api.products where company_id = '{}'".format(
        ", ".join(f'"{name}"' for name in catalog["products"].fields), COMPANY
    )
    ours, floor, ordered, firsts, size = [], [], [], [], 0
    for _ in range(ROUNDS):
        first, took, size = _read(running)
        firsts.append(first)
        ours.append(took)
        floor.append(_copy(url, query))
        ordered.append(_copy(url, f"{query} order by id"))
    megabytes = size / 1e6
    note = f"{rows:,} rows, {megabytes:.0f} MB; floor: psql copy (select row_to_json ...); target >= {TARGET_SPEED}"
    yield rate("read, collection", "MB/s", megabytes, ours, floor, note)
    yield rate("read, collection (in order of id)", "MB/s", megabytes, ours, ordered, "floor: the same, order by id")
    yield Result("read, first byte", "ms", median(firsts) * 1e3, note="of a whole collection")
    yield Result("read, memory", "MB", running.memory(), note=f"of the service; idle {idle:.0f}; target < {TARGET_MEMORY}")


def _read(running: Service) -> tuple[float, float, int]:
    """Seconds to the first byte and to the last, bytes of the answer.  Raises RuntimeError unless it is whole."""
    credentials = base64.b64encode(f"api:{running.key}".encode()).decode()
    headers = f"Host: bench\r\nAuthorization: Basic {credentials}\r\nConnection: close\r\n\r\n"
    buffer = memoryview(bytearray(BUFFER))
    with socket.create_connection((running.host, running.port)) as connection:
        started = time.perf_counter()
        connection.sendall(f"GET /api/odata/{COMPANY}/products HTTP/1.1\r\n{headers}".encode())
        count = size = connection.recv_into(buffer)
        first = time.perf_counter() - started
        good, tail = bytes(buffer[:15]) == b"HTTP/1.1 200 OK", b""
        while count:
            tail = (tail + bytes(buffer[max(0, count - 9) : count]))[-9:]
            count = connection.recv_into(buffer)
            size += count
        took = time.perf_counter() - started
    if not good or tail != b"]}\r\n0\r\n\r\n":
        raise RuntimeError(f"half an answer, ending in {tail!r}")
    return first, took, size


def _copy(url: str, query: str) -> float:
    """Seconds that psql takes for the same rows, without its start."""
    copy = rf"\copy (select row_to_json(t) from ({query}) t) to '/dev/null'"
    command = [tool("psql"), url, "-X", "-c", r"\timing on", "-c", copy]
    run = subprocess.run(command, env=session("bds_reader"), stdout=subprocess.PIPE, text=True, check=True)
    return float(re.findall(r"Time: ([0-9.]+) ms", run.stdout)[0]) / 1e3
