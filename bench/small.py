"""How many small OData questions are answered in a second: each beside the best SQL for it through a bare protocol (bench.bare), and
beside PostgREST (bench.postgrest) and CAP (bench.cap).

They take turns; the same client asks all of them, on 16 connections.  Each has a processor of its own while it is asked.  Rows by
key are asked for on more connections, too: how many, and the time within which 99 of 100 are answered.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

import psycopg

from bench.cap import ROOT, cap
from bench.documents import write_basis, write_invoices, write_products
from bench.place import COMPANY, Place, Service, apart, load, service, settle
from bench.postgrest import postgrest
from bench.table import Result, rates, say

ROUNDS = 3
CLIENTS = 16
DURATION = 1.5  # seconds of a round
MANY = (200, 1_000)  # connections
TARGET_MANY = 0.8  # of the rate on CLIENTS connections
PEER_PORT, CAP_PORT = 47_821, 47_822


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the paths for the same answer of floor and PostgREST, and the least shares of their speeds that ours must have.

    in_cap: whether CAP can answer it, under the same path as ours.  saving: how many times as fast the answer must be that nothing has changed.
    """

    name: str
    ours: str
    floor: str
    target: float
    peer: str | None = None
    peer_target: float = 1.0
    in_cap: bool = True
    saving: float | None = None


KEY = Question("by key", "products({})", "/key?id={}", 0.55, "/products?id=eq.{}", 1.8, saving=1.3)
PAGE = Question(
    "filter, order, top 50",
    "products?$filter=price gt 50 and contains(name,'METAL')&$orderby=price desc&$top=50",
    "/page?price=50&name=%25METAL%25",
    0.98,
    "/products?price=gt.50&name=like.*METAL*&order=price.desc.nullslast,id&limit=50",
    saving=5.0,
)
QUESTIONS = (
    KEY,
    PAGE,
    Question(
        "any() and $expand, top 20",
        "invoices?$filter=items/any(i:i/quantity gt 11)&$select=id,code&$expand=items&$top=20",
        "/any?quantity=11",
        0.9,
        "/invoices?select=id,code,items:invoiceItems(*),found:invoiceItems!inner()&found.quantity=gt.11&order=id&limit=20",
        1.5,
    ),
    Question(
        "groupby",
        "invoiceItems?$apply=groupby((product/category/name),aggregate(quantity mul price with sum as amount))",
        "/groups",
        0.98,
        in_cap=False,
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
        ids = ids_of(url)
        with (
            apart(place) as alone,
            service(url, directory) as running,
            _bare(url) as (bare, port),
            postgrest(url, CLIENTS, PEER_PORT) as peer,
            cap(url, CAP_PORT) as other,
        ):
            for process in (running.pid, bare, *filter(None, (peer, other))):
                alone(process)
            for question in QUESTIONS:
                yield from _compare(question, running, port, ids, has_peer=peer is not None, has_cap=other is not None)
            yield from _many(running, ids, has_peer=peer is not None)
            yield Result("small, memory", "MB", running.memory(), note="of the service")


def _compare(
    question: Question, running: Service, port: int, ids: tuple[int, int], *, has_peer: bool, has_cap: bool
) -> Iterator[Result]:
    say(f"small: {question.name}")
    ours, floor, peer, other, saved = [], [], [], [], []
    for _ in range(ROUNDS):
        ours.append(ask(running, question.ours, ids))
        floor.append(_run("127.0.0.1", port, "none", question.floor, "rows", ids))
        if has_peer and question.peer:
            peer.append(_run("127.0.0.1", PEER_PORT, "none", question.peer, "rows", ids))
        if has_cap and question.in_cap:
            other.append(_run("127.0.0.1", CAP_PORT, "none", ROOT + _quoted(question.ours), "rows", ids))
        if question.saving:
            saved.append(ask(running, question.ours, ids, "unchanged"))
    name, note = f"small, {question.name}", f"{CLIENTS} connections; "
    yield rates_of(name, ours, floor, f"{note}target >= {question.target}")
    if peer:
        yield rates_of(f"{name} (PostgREST)", ours, peer, f"{note}floor: PostgREST; target >= {question.peer_target}")
    if other:
        yield rates_of(f"{name} (CAP)", ours, other, f"{note}floor: CAP")
    if peer and question is KEY:
        yield _waits(f"{name}, 99th percentile", ours, peer, note)
    if saved:
        yield rates_of(f"{name}, 304", saved, ours, f"{note}floor: ours with a body; target >= {question.saving}")


def _many(running: Service, ids: tuple[int, int], *, has_peer: bool) -> Iterator[Result]:
    """Rows by key on many connections: the 99th percentile beside PostgREST's, the rate beside that on few connections."""
    assert KEY.peer is not None
    for clients in MANY:
        say(f"small: {clients} connections")
        ours, few, peer = [], [], []
        for _ in range(ROUNDS):
            few.append(ask(running, KEY.ours, ids))
            ours.append(ask(running, KEY.ours, ids, clients=clients))
            if has_peer:
                peer.append(_run("127.0.0.1", PEER_PORT, "none", KEY.peer, "rows", ids, clients))
        name, note = f"small, by key, {clients} connections", f"floor: on {CLIENTS} connections; target >= {TARGET_MANY}"
        yield rates_of(name, ours, few, note)
        if peer:
            yield rates_of(f"{name} (PostgREST)", ours, peer, "floor: PostgREST")
            yield _waits(f"{name}, 99th percentile", ours, peer, "")


class Speed(NamedTuple):
    """Requests a second, and the milliseconds within which 99 of 100 are answered."""

    rate: float
    slow: float


def rates_of(name: str, ours: list[Speed], floor: list[Speed], note: str) -> Result:
    return rates(name, "requests/s", [each.rate for each in ours], [each.rate for each in floor], note)


def _waits(name: str, ours: list[Speed], peer: list[Speed], note: str) -> Result:
    return rates(name, "ms", [each.slow for each in ours], [each.slow for each in peer], f"{note}floor: PostgREST; target <= 1")


def ask(running: Service, path: str, ids: tuple[int, int], mode: str = "rows", clients: int = CLIENTS) -> Speed:
    path = f"/api/odata/{COMPANY}/" + _quoted(path)
    return _run(running.host, running.port, running.basic, path, mode, ids, clients)


def _quoted(path: str) -> str:
    return quote(path, safe="/?&=$(){}',:")


def _run(host: str, port: int, authorization: str, path: str, mode: str, ids: tuple[int, int], clients: int = CLIENTS) -> Speed:
    """Ask for a while, from a process of its own."""
    words = (host, port, authorization, path, mode, *ids, clients, DURATION)
    command = [sys.executable, "-m", "bench.client", *map(str, words)]
    return Speed(*map(float, subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()))


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


def ids_of(url: str) -> tuple[int, int]:
    """The first and the last id.  Raises RuntimeError if some between are missing."""
    query = "select min(id), max(id), count(*) from data.products where company_id = %s"
    with psycopg.connect(url) as connection:
        row = connection.execute(query, (COMPANY,)).fetchone()
    assert row is not None
    if row[1] - row[0] + 1 != row[2]:
        raise RuntimeError(f"products have ids with gaps: {row}")
    return row[0], row[1]
