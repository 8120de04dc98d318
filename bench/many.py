"""How services with one process and with two stand a thousand connections: rows by key, beside the rate on few connections.  And how
many times as fast the answer is that nothing has changed.

Nothing is bound to a processor.  Where there are two, the service shares them with the client and PostgreSQL, so that a second
process takes as much from these as it gives, and what PostgreSQL need not do is time for others.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.documents import write_basis, write_products
from bench.place import COMPANY, Place, load, service, settle
from bench.small import CLIENTS, KEY, ROUNDS, Speed, ask, ids_of, rates_of
from bench.table import Result, rates, say

MANY = 1_000  # connections
TARGET = 0.8


def measure(place: Place, rows: int) -> Iterator[Result]:
    """Requests a second, and milliseconds within which 99 of 100 are answered."""
    with place.database(COMPANY) as url:
        say(f"many: loading {rows:,} products")
        for document in (write_basis(place.directory), write_products(place.directory, rows).path):
            load(url, document)
        settle(url, vacuum=True)
        ids = ids_of(url)
        speeds: dict[tuple[int, int], list[Speed]] = {
            (processes, clients): [] for processes in (1, 2) for clients in (CLIENTS, MANY)
        }
        saved: list[Speed] = []
        with service(url, place.directory) as one, service(url, place.directory, "--processes", "2") as two:
            for _ in range(ROUNDS):
                saved.append(ask(one, KEY.ours, ids, "unchanged"))
                for processes, running in ((1, one), (2, two)):
                    for clients in (CLIENTS, MANY):
                        say(f"many: {processes} processes, {clients} connections")
                        speeds[processes, clients].append(ask(running, KEY.ours, ids, clients=clients))
    note = f"{CLIENTS} connections; floor: with a body; target >= {KEY.saving}"
    yield rates_of("many, by key, 304", saved, speeds[1, CLIENTS], note)
    for processes in (1, 2):
        name, note = f"many, by key, {processes} processes", f"{MANY} connections; floor: on {CLIENTS}; target >= {TARGET}"
        many, few = speeds[processes, MANY], speeds[processes, CLIENTS]
        yield rates_of(name, many, few, note)
        yield rates(f"{name}, 99th percentile", "ms", [each.slow for each in many], [each.slow for each in few], "the same")
    for clients in (CLIENTS, MANY):
        note = f"{clients} connections; floor: one process; target >= 1"
        yield rates_of(f"many, by key, two processes, {clients}", speeds[2, clients], speeds[1, clients], note)
