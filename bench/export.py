"""How fast exports come out over HTTP, against psql's COPY of the same columns in the same form and order, and the memory they take."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from statistics import median

from bench.documents import write_basis, write_products
from bench.place import COMPANY, Place, Service, load, service, session, settle, tool
from bench.table import Result, rate, say

ROUNDS = 5
BUFFER = 1 << 20
TARGET_SPEED, TARGET_EXCEL, TARGET_MEMORY = 0.6, 15_000, 150
PDF_ROWS = 10_000

JOINS = (
    f"left join api.categories c on c.company_id = '{COMPANY}' and c.id = p.\"categoryId\""
    f" left join api.units u on u.company_id = '{COMPANY}' and u.id = p.\"unitId\" where p.company_id = '{COMPANY}' order by p.id"
)
FLOORS = {
    "csv": (
        "select p.id, p.code, p.name, p.description, p.barcode, p.price, p.active, c.code as category, u.code as unit,"
        f' p."updatedAt" from api.products p {JOINS}',
        "(format csv, header)",
    ),
    "json": (
        "select row_to_json(t) from (select p.code, p.name, p.description, p.barcode, p.price, p.active,"
        " 'code:' || c.code as category, 'code:' || u.code as unit, (select json_agg(v) from (select v.code, v.name, v.barcode, v.price"
        f' from api."productVariants" v where v.company_id = \'{COMPANY}\' and v."productId" = p.id order by v.id) v) as variants'
        f" from api.products p {JOINS}) t",
        "",
    ),
}


def measure(place: Place, rows: int) -> Iterator[Result]:
    """MB/s, rows a second, seconds, MB."""
    with place.database(COMPANY) as url:
        say(f"export: loading {rows:,} products")
        for document in (write_basis(place.directory), write_products(place.directory, rows).path):
            load(url, document)
        settle(url, vacuum=True)
        with service(url, place.directory) as running:
            idle = running.memory()
            for format in FLOORS:
                yield _against_copy(url, running, format, rows)
            for format in ("xml", "html", "excel", "parquet"):
                yield _alone(running, format, rows)
            note = f"of the service, all formats so far; idle {idle:.0f}; target < {TARGET_MEMORY}"
            yield Result("export, memory", "MB", running.memory(), note=note)
            took = median([_read(running, "pdf", f"&$top={PDF_ROWS}")[0] for _ in range(3)])
            yield Result("export, pdf", "s", took, note=f"{min(rows, PDF_ROWS):,} rows")


def _against_copy(url: str, running: Service, format: str, rows: int) -> Result:
    say(f"export: {format}")
    ours, floor, size = [], [], 0
    for _ in range(ROUNDS):
        took, size = _read(running, format)
        ours.append(took)
        floor.append(_copy(url, *FLOORS[format]))
    note = f"{rows:,} rows, {size / 1e6:.0f} MB; floor: psql copy, the same order; target >= {TARGET_SPEED}"
    return rate(f"export, {format}", "MB/s", size / 1e6, ours, floor, note)


def _alone(running: Service, format: str, rows: int) -> Result:
    say(f"export: {format}")
    took, size = min(_read(running, format) for _ in range(3))
    note = f"{size / 1e6:.0f} MB" + (f"; target >= {TARGET_EXCEL:,}" if format == "excel" else "")
    return Result(f"export, {format}", "rows/s", rows / took, note=note)


def _read(running: Service, format: str, options: str = "") -> tuple[float, int]:
    """Seconds, and bytes of the answer.  Raises RuntimeError unless it is whole."""
    path = f"/api/{COMPANY}/products?format={format}&export=true{options}"
    head = f"GET {path} HTTP/1.1\r\nHost: bench\r\nX-API-Key: {running.key}\r\nConnection: close\r\n\r\n"
    buffer = memoryview(bytearray(BUFFER))
    with socket.create_connection((running.host, running.port)) as connection:
        started = time.perf_counter()
        connection.sendall(head.encode())
        count = size = connection.recv_into(buffer)
        good, chunked, tail = bytes(buffer[:15]) == b"HTTP/1.1 200 OK", b"chunked" in bytes(buffer[:2000]), b""
        while count:
            tail = (tail + bytes(buffer[max(0, count - 5) : count]))[-5:]
            count = connection.recv_into(buffer)
            size += count
        took = time.perf_counter() - started
    if not good or (chunked and tail != b"0\r\n\r\n"):
        raise RuntimeError(f"half an answer, ending in {tail!r}")
    return took, size


def _copy(url: str, query: str, options: str) -> float:
    """Seconds that psql takes for the same rows, without its start."""
    command = [tool("psql"), url, "-X", "-c", r"\timing on", "-c", rf"\copy ({query}) to '/dev/null' {options}"]
    run = subprocess.run(command, env=session("bds_reader"), stdout=subprocess.PIPE, text=True, check=True)
    return float(re.findall(r"Time: ([0-9.]+) ms", run.stdout)[0]) / 1e3
