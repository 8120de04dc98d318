"""Measure everything in one run, on a PostgreSQL of its own: results on standard output, progress on standard error."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from bench import (
    companies,
    company,
    difference,
    export,
    feed,
    follow,
    history,
    linkage,
    log,
    many,
    mapper,
    memory,
    orders,
    overview,
    past,
    peer,
    places,
    read,
    retention,
    seals,
    shards,
    slow,
    small,
    start,
    webhooks,
    whole,
)
from bench.place import Place, place
from bench.table import Result, describe, print_json, print_table, say

SUBJECTS: dict[str, Callable[[Place, argparse.Namespace], Iterator[Result]]] = {
    "feed": lambda where, options: feed.measure(where, options.rows, options.items),
    "orders": lambda where, _: orders.measure(where),
    "whole": lambda where, options: whole.measure(where, options.scale),
    "linkage": lambda where, options: linkage.measure(where, options.items // 5),
    "dlt": lambda where, options: peer.measure(where, options.rows),
    "mapper": lambda where, options: mapper.measure(where, options.rows),
    "memory": lambda where, options: memory.measure(where, options.scale),
    "places": lambda where, _: places.measure(where),
    "companies": lambda where, _: companies.measure(where),
    "divided": lambda where, _: shards.measure_divided(where),
    "citus": lambda where, _: shards.measure_citus(where),
    "read": lambda where, options: read.measure(where, options.rows),
    "slow": lambda where, options: slow.measure(where, options.rows // 4),
    "small": lambda where, options: small.measure(where, options.rows // 2, options.items * 2),
    "many": lambda where, options: many.measure(where, options.rows // 10),
    "start": lambda where, _: start.measure(where),
    "log": lambda where, _: log.measure(where),
    "history": lambda where, options: history.measure(where, options.records),
    "retention": lambda where, options: retention.measure(where, options.records),
    "company": lambda where, options: company.measure(where, options.rows),
    "seals": lambda where, options: seals.measure(where, options.records),
    "past": lambda where, options: past.measure(where, options.rows),
    "difference": lambda where, options: difference.measure(where, options.rows * 5),
    "overview": lambda where, options: overview.measure(where, options.rows),
    "follow": lambda where, _: follow.measure(where),
    "webhooks": lambda where, _: webhooks.measure(where),
    "export": lambda where, options: export.measure(where, options.rows),
}


def main() -> None:
    options = parser().parse_args()
    results: list[Result] = []
    with place() as where:
        for name in options.only or SUBJECTS:
            for result in SUBJECTS[name](where, options):
                say(describe(result))
                results.append(result)
    (print_json if options.json else print_table)(results)


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    each = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    each.add_argument("--rows", type=int, default=200_000, help="products (%(default)s)")
    each.add_argument("--items", type=int, default=100_000, help="invoice items (%(default)s)")
    each.add_argument("--scale", type=int, default=40, help="size of the documents of everything (%(default)s)")
    each.add_argument("--records", type=int, default=20_000_000, help="records of the change log that is read (%(default)s)")
    each.add_argument("--only", action="append", choices=SUBJECTS, help="this subject; may be repeated (all)")
    each.add_argument("--json", action="store_true", help="JSON instead of a table")
    return each


if __name__ == "__main__":
    main()
