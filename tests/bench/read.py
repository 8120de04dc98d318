"""How fast rows come out over HTTP: a whole collection, a row by its key, and the answer that nothing has changed."""

from __future__ import annotations

import base64
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import psycopg

from app import db
from app.catalog import Catalog
from app.language import sql
from app.language.query import ROW, parse_query
from tests.bench.documents import write_basis, write_products
from tests.bench.place import COMPANY, Place, Service, load, pgbench, service, session, settle, tool
from tests.bench.table import Result, rate, rates, say

ROUNDS = 5
CLIENTS = 16
DURATION = 5  # seconds of a round of small requests
BUFFER = 1 << 20
KEY = "1"  # in the compiled statement it gives way to random ones
TARGET_SPEED, TARGET_MEMORY = 0.6, 100


def measure(place: Place, rows: int) -> Iterator[Result]:
    """MB/s, seconds to the first byte, MB, requests a second."""
    with place.database(COMPANY) as url:
        say(f"read: loading {rows:,} products")
        for document in (write_basis(place.directory), write_products(place.directory, rows).path):
            load(url, document)
        settle(url, vacuum=True)
        with db.connect(url) as connection:
            catalog = db.read_catalog(connection)
        with service(url, place.directory) as running:
            yield from _collection(url, running, catalog, rows)
        with service(url, place.directory) as running:
            yield from _keys(url, running, catalog, place.directory)


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


# One row --------------------------------------------------------------------------------------------------------------------------


def _keys(url: str, running: Service, catalog: Catalog, directory: Path) -> Iterator[Result]:
    first, last = _ids(url)
    query = parse_query(catalog, catalog["products"], (), key=KEY, takes=ROW)
    row, position = directory / "row.sql", directory / "position.sql"
    row.write_text(_script(sql.page(query, COMPANY)))
    position.write_text(_script(sql.position(query, COMPANY)))
    for name, script, mode in (("read, row by key", row, "rows"), ("read, 304", position, "unchanged")):
        say(name)
        ours, floor = [], []
        for _ in range(3):
            ours.append(_requests(running, mode, first, last))
            floor.append(pgbench(url, script, "bds_reader", CLIENTS, DURATION, first=first, last=last))
        yield rates(name, "requests/s", ours, floor, f"{CLIENTS} connections; floor: the same SQL by pgbench, prepared")


def _ids(url: str) -> tuple[int, int]:
    """The first and the last id.  Raises RuntimeError if some between are missing."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "select min(id), max(id), count(*) from data.products where company_id = %s", (COMPANY,)
        ).fetchone()
    assert row is not None
    if row[1] - row[0] + 1 != row[2]:
        raise RuntimeError(f"products have ids with gaps: {row}")
    return row[0], row[1]


def _requests(running: Service, mode: str, first: int, last: int) -> float:
    """Requests a second, sent by a process of its own."""
    arguments = [running.host, str(running.port), running.key, COMPANY, mode, str(first), str(last), str(CLIENTS), str(DURATION)]
    run = subprocess.run([sys.executable, "-m", "tests.bench.client", *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return float(run.stdout)


def _script(statement: sql.Statement) -> str:
    r"""A compiled statement for pgbench: a random id is its key, every other parameter a literal.

    pgbench takes a colon before a letter for a variable even inside a literal, so those are written as \x3a.
    """
    text = re.sub(r"'[^']*'", lambda literal: "e" + literal[0].replace(":", r"\x3a"), statement.text.as_string())
    for name, value in statement.parameters.items():
        shown = "'{" + ",".join(value) + "}'" if isinstance(value, list) else ":id" if value == KEY else f"'{value}'"
        text = text.replace(f"%({name})s", shown)
    return "\\set id random(:first, :last)\n" + text.replace("%%", "%") + ";\n"
