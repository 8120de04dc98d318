"""How many small OData questions are answered in a second: each beside the best SQL for it through a bare handler (bench.bare).

Ours and the floor take turns; the same client asks both, on 16 connections.  Each has a processor of its own while it is asked.
"""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote

import psycopg

from bench.documents import write_basis, write_invoices, write_products
from bench.place import COMPANY, Place, Service, apart, load, service, settle
from bench.table import Result, rates, say

ROUNDS = 3
CLIENTS = 16
DURATION = 4  # seconds of a round


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the floor's path for the same answer, and the least share of the floor's speed that ours must have."""

    name: str
    ours: str
    floor: str
    target: float


KEY = Question("by key", "products({})", "/key?id={}", 0.6)
PAGE = Question(
    "filter, order, top 50",
    "products?$filter=price gt 50 and contains(name,'METAL')&$orderby=price desc&$top=50",
    "/page?price=50&name=%25METAL%25",
    0.9,
)
QUESTIONS = (
    KEY,
    PAGE,
    Question(
        "any() and $expand, top 20",
        "invoices?$filter=items/any(i:i/quantity gt 11)&$select=id,code&$expand=items&$top=20",
        "/any?quantity=11",
        0.9,
    ),
    Question(
        "groupby",
        "invoiceItems?$apply=groupby((product/category/name),aggregate(quantity mul price with sum as amount))",
        "/groups",
        0.9,
    ),
)


def measure(place: Place, rows: int, items: int) -> Iterator[Result]:
    """Requests a second, as shares of their floors."""
    with place.database(COMPANY) as url:
        say(f"small: loading {rows:,} products and {items:,} items")
        directory = place.directory
        for document in (write_basis(directory), write_products(directory, rows).path, write_invoices(directory, items, rows).path):
            load(url, document)
        settle(url, vacuum=True)
        ids = _ids(url)
        with apart(place) as alone, service(url, directory) as running, _bare(url) as (bare, port):
            alone(running.pid)
            alone(bare)
            for question in QUESTIONS:
                yield _compare(question, running, port, ids)
            yield from _unchanged(running, ids)


def _compare(question: Question, running: Service, port: int, ids: tuple[int, int]) -> Result:
    say(f"small: {question.name}")
    ours, floor = [], []
    for _ in range(ROUNDS):
        ours.append(_ask(running, question.ours, ids))
        floor.append(_rate("127.0.0.1", port, "none", question.floor, "rows", ids))
    return rates(f"small, {question.name}", "requests/s", ours, floor, f"{CLIENTS} connections; target >= {question.target}")


def _unchanged(running: Service, ids: tuple[int, int]) -> Iterator[Result]:
    """A 304 against a row by key, and against the page that it stands for."""
    say("small: 304")
    for question, target in ((KEY, 1.0), (PAGE, 5.0)):
        saved, read = [], []
        for _ in range(ROUNDS):
            saved.append(_ask(running, question.ours, ids, "unchanged"))
            read.append(_ask(running, question.ours, ids))
        yield rates(f"small, 304 ({question.name})", "requests/s", saved, read, f"floor: ours with a body; target >= {target}")
    yield Result("small, memory", "MB", running.memory(), note="of the service")


def _ask(running: Service, path: str, ids: tuple[int, int], mode: str = "rows") -> float:
    authorization = "Basic " + base64.b64encode(f"api:{running.key}".encode()).decode()
    path = f"/api/odata/{COMPANY}/" + quote(path, safe="/?&=$(){}',:")
    return _rate(running.host, running.port, authorization, path, mode, ids)


def _rate(host: str, port: int, authorization: str, path: str, mode: str, ids: tuple[int, int]) -> float:
    """Requests a second, sent by a process of its own."""
    words = (host, port, authorization, path, mode, *ids, CLIENTS, DURATION)
    command = [sys.executable, "-m", "bench.client", *map(str, words)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[0])


@contextlib.contextmanager
def _bare(url: str) -> Iterator[tuple[int, int]]:
    """The floor's process and its port."""
    process = subprocess.Popen([sys.executable, "-m", "bench.bare", url], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


def _ids(url: str) -> tuple[int, int]:
    """The first and the last id.  Raises RuntimeError if some between are missing."""
    query = "select min(id), max(id), count(*) from data.products where company_id = %s"
    with psycopg.connect(url) as connection:
        row = connection.execute(query, (COMPANY,)).fetchone()
    assert row is not None
    if row[1] - row[0] + 1 != row[2]:
        raise RuntimeError(f"products have ids with gaps: {row}")
    return row[0], row[1]
