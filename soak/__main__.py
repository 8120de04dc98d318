"""Run the soak: figures and findings on standard output, progress on standard error, exit 1 on a finding."""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable

import psycopg

from soak import audit, faults, imports, proof, readers, receiver, schema, writers
from soak.ledger import Ledger
from soak.world import COMPANIES, World, world

START = 15.0  # seconds of the given time for start, final checks and proof, at least
SHARE = 0.2  # of the time for final checks and proof
MOST_CHANGES = 400_000  # of a company; then the soak stops early


def main() -> None:
    options = parser().parse_args()
    ledger, rng, began = Ledger(), random.Random(options.seed), time.monotonic()
    audit.say(f"soak: seed {options.seed}, {options.seconds} s")
    with world() as place, receiver.receiving(ledger, random.Random(rng.random())) as port:
        receiver.register(place, ledger, port, COMPANIES)
        writers.prepare(place)
        imports.prepare(place, COMPANIES)
        audit.say(f"started after {time.monotonic() - began:.1f} s")
        threads = start(actors(place, ledger, rng), ledger)
        until = began + max(options.seconds - max(START, SHARE * options.seconds), 5)
        while time.monotonic() < until and not ledger.stop.wait(1) and longest(ledger) < MOST_CHANGES:
            pass
        ledger.stop.set()
        results = audit.audit(place, ledger, threads)
        results += proof.prove(place, ledger)
    failed = audit.report(ledger, results, options.seed, time.monotonic() - began)
    sys.exit(1 if failed else 0)


def longest(ledger: Ledger) -> int:
    return max((len(followed) for followed in ledger.followed.values()), default=0)


def actors(place: World, ledger: Ledger, rng: random.Random) -> list[tuple[str, Callable[[], None]]]:
    """Everything that works at once, each with a random number generator of its own."""

    def own() -> random.Random:
        return random.Random(rng.random())

    alpha, beta = COMPANIES
    found: list[tuple[str, Callable[[], None]]] = [
        ("writer a", writers.Writer(place, ledger, "wa", own(), companies=(alpha,)).run),
        ("writer b", writers.Writer(place, ledger, "wb", own(), companies=(alpha, beta)).run),
        ("writer c", writers.Writer(place, ledger, "wc", own(), companies=(beta,), pause=0.05).run),
        ("undeclared writer", writers.Writer(place, ledger, "wd", own(), declared=False, companies=(alpha,), pause=0.05).run),
        (
            "undeclared writer of two",
            writers.Writer(place, ledger, "we", own(), declared=False, companies=COMPANIES, pause=0.1).run,
        ),
        ("faults", faults.Faults(place, ledger, own(), quiet=1.5).run),
        ("maintenance", lambda: faults.maintain(place, ledger, random.Random(0))),
        ("schema", schema.Schema(place, ledger, own()).run),
    ]
    for n, company in enumerate(COMPANIES):
        found += [
            (f"importer of {company}", imports.Importer(place, ledger, f"i{n}", company, own()).run),
            (f"second importer of {company}", imports.Importer(place, ledger, f"j{n}", company, own()).run),
            (f"tags of {company}", readers.Tags(place, ledger, "tags", company, own()).run),
            (f"past of {company}", readers.Past(place, ledger, "past", company, own()).run),
            *[
                (f"{name} of {company}", kind(place, ledger, name, company, own()).run)
                for name, kind in (("sql", readers.Sql), ("pages", readers.Pages), ("stream", readers.Stream))
            ],
            (f"updated of {company}", readers.Updated(place, ledger, "updated", company, own()).run),
        ]
    return found


def start(found: list[tuple[str, Callable[[], None]]], ledger: Ledger) -> list[threading.Thread]:
    def guarded(name: str, run: Callable[[], None]) -> None:
        try:
            run()
        except (Exception, psycopg.Error) as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            ledger.find(f"{name} ended: {type(error).__name__}: {error} ({where.filename}:{where.lineno})")
            traceback.print_exc()

    threads = [threading.Thread(target=guarded, args=each, name=each[0], daemon=True) for each in found]
    for thread in threads:
        thread.start()
    return threads


def parser() -> argparse.ArgumentParser:
    each = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    each.add_argument("--seconds", type=float, default=600, help="for everything, start and checks included (%(default)s)")
    each.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="of all random choices (random)")
    return each


if __name__ == "__main__":
    main()
