"""What the difference of two versions costs, against reading all rows; a walk by pages; lists of changes; the way back.

Reads are the service's own, without HTTP and without a request's parsing.  Each floor is measured in turns with what it is for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from app.changes.change_sets import list_change_sets
from app.changes.difference import read_difference
from app.changes.log import read_changes
from app.config import Config
from app.database.connections import connect, read_catalog
from app.database.database import Database
from app.query.check.options import parse_query
from app.query.sql import statements
from bench.place import COMPANY, Place, load, settle
from bench.table import Result, rate, say, timed

ROUNDS = 5
PAGE = 1_000  # records
PAGES = 200  # rounds of one page
ROWS = (
    "insert into data.products (code, name, description, barcode, price)"
    " select 'p' || n, 'Product ' || n, 'A description ' || n, 'b' || n, n %% 1000 + 0.25 from generate_series(1, %s) n"
)
CHANGE = "update data.products set price = price + 1 where id %% %s = 0"
DELETE = "delete from data.products where id %% %s = 3"
DIFF = "select count(d) from bds.diff(%s, 'products', %s, %s) d"
ROWS_AT = "select count(r) from bds.rows_at(%s, 'products', %s) r"

Read = Callable[[], Any]


class Reader:
    """The service's reads of one company."""

    def __init__(self, runner: asyncio.Runner, database: Database) -> None:
        self._runner, self._database = runner, database
        self._entity = database.catalog["products"]

    def page(self, **params: object) -> dict[str, Any]:
        """A page of the difference."""
        given = [(name, str(value)) for name, value in params.items()]
        answer = self._runner.run(read_difference(self._database, COMPANY, self._entity, given))
        page: dict[str, Any] = json.loads(answer.body or b"")
        return page

    def walk(self, since: int, version: int) -> int:
        """Read a difference page by page; returns the number of its records."""
        ends = {"since": since, "version": version, "limit": PAGE}
        page = self.page(**ends)
        count = len(page["data"])
        while page["hasMore"]:
            page = self.page(**ends, after=page["data"][-1]["version"])
            count += len(page["data"])
        return count

    def changes(self, *filter: tuple[str, str]) -> None:
        """The first page of what the page /changes shows."""
        self._runner.run(read_changes(self._database, COMPANY, [*filter, ("sort", "-id"), ("limit", "100")]))

    def deletes(self) -> None:
        """The first page of deletes, which few changes are."""
        self.changes(("filter", "operation = 'delete'"))

    def change_sets(self) -> None:
        """The first page of change sets."""
        self._runner.run(list_change_sets(self._database, COMPANY, []))


def measure(place: Place, rows: int) -> Iterator[Result]:
    """Reads, changes or lists a second."""
    with place.database(COMPANY) as url, asyncio.Runner() as runner:
        say(f"difference: {rows:,} products")
        versions = fill(url, rows)
        database = runner.run(Database.open(Config(database_url=url)))
        reader = Reader(runner, database)
        yield from differences(url, reader, rows, versions)
        yield from lists(url, place.directory, reader, rows // 2)
        runner.run(database.close())
        yield restored(url, place.directory, rows // 10)


def fill(url: str, rows: int) -> tuple[int, int, int]:
    """Rows; then one in a thousand changes, then one in ten.  Returns the versions between."""
    versions = [_write(url, ROWS, rows), *(_write(url, CHANGE, each) for each in (1_000, 10))]
    settle(url, vacuum=True)
    return versions[0], versions[1], versions[2]


def _write(url: str, statement: str, *values: Any) -> int:
    """Run a statement as a transaction of a session; returns the version after it."""
    with psycopg.connect(url, autocommit=True) as connection:
        with connection.transaction():
            connection.execute("select bds.set_context(%s, 'bench')", (COMPANY,))
            connection.execute(statement.encode(), values)
        [(version,)] = connection.execute("select max(last_id) from bds.positions").fetchall()
    return int(version)


def _rounds(ours: Read, floor: Read, rounds: int = ROUNDS) -> tuple[list[float], list[float]]:
    ours(), floor()
    times = [(timed(ours)[0], timed(floor)[0]) for _ in range(rounds)]
    return [each for each, _ in times], [each for _, each in times]


def differences(url: str, reader: Reader, rows: int, versions: tuple[int, int, int]) -> Iterator[Result]:
    """Few changes against the collection, many against one statement, and one statement against all rows of a version."""
    first, second, third = versions
    few, many = second - first, third - second
    with connect(url, "bds_reader") as connection, psycopg.RawCursor(connection) as cursor:
        catalog = read_catalog(connection)
        connection.execute("select set_config('bds.company', %s, false)", (COMPANY,))
        collection = statements.rows(parse_query(catalog, catalog["products"], []), COMPANY)

        def all_rows() -> None:
            cursor.execute(collection.text, collection.values, prepare=False)
            cursor.fetchall()

        def diff() -> None:
            connection.execute(DIFF, (COMPANY, second, third)).fetchall()

        def rows_at() -> None:
            connection.execute(ROWS_AT, (COMPANY, third)).fetchall()

        say("difference: few changes")
        ours, floor = _rounds(lambda: reader.walk(first, second), all_rows)
        note = f"{few:,} changes in {rows:,} rows; floor: every row as it is now; target 10"
        yield rate("difference, few changes", "reads/s", 1, ours, floor, note)
        say("difference: a walk")
        ours, floor = _rounds(lambda: reader.walk(second, third), diff, 3)
        yield rate("difference, a walk", "changes/s", many, ours, floor, f"pages of {PAGE:,}; floor: one bds.diff; target 0.33")
        ours, floor = _rounds(diff, rows_at, 3)
        yield rate("difference, bds.diff", "reads/s", 1, ours, floor, f"{many:,} changes; floor: bds.rows_at of {rows:,} rows")


def lists(url: str, directory: Path, reader: Reader, changes: int) -> Iterator[Result]:
    """The pages of changes and change sets after a large import, against before."""
    say(f"difference: lists, and an import of {changes:,} changes")
    reads = {"changes": reader.changes, "change sets": reader.change_sets}
    _write(url, DELETE, changes // 10)
    with psycopg.connect(url, autocommit=True) as connection:  # as bds.maintain does
        while connection.execute("select bds_change_log.count_change_sets()").fetchone() != (0,):
            pass
    reader.changes(), reader.change_sets()
    before = {name: [timed(read)[0] for _ in range(PAGES)] for name, read in reads.items()}
    load(url, _document(directory, ({"code": f"i{n}", "name": f"Imported {n}"} for n in range(changes))))
    settle(url, vacuum=True)
    for name, read in reads.items():
        after = [timed(read)[0] for _ in range(PAGES)]
        yield rate(
            f"difference, {name} listed", "pages/s", 1, sorted(after), sorted(before[name]),
            f"after an import of {changes:,} changes; floor: before it; target 0.67",
        )  # fmt: skip
    ours, floor = _rounds(reader.deletes, reader.changes, PAGES)
    yield rate("difference, deletes listed", "pages/s", 1, ours, floor, "the few deletes of all changes; floor: the newest changes")


def restored(url: str, directory: Path, rows: int) -> Result:
    """The way back to a version, against the import of the rows that differ."""
    say(f"difference: {rows:,} rows restored")
    with psycopg.connect(url, autocommit=True) as connection:
        products = connection.execute("select code, price from data.products where id % 10 = 1 and code ^@ 'p' order by id")
        document = _document(directory, ({"code": code, "price": str(price)} for code, price in products))
    change = CHANGE.replace("= 0", "= 1") + " and code ^@ 'p'"
    _write(url, change, 10)
    settle(url, vacuum=True)
    floor, counts = timed(load, url, document)
    with psycopg.connect(url, autocommit=True) as connection:
        [(version,)] = connection.execute("select max(last_id) from bds.positions").fetchall()
    _write(url, change, 10)
    settle(url, vacuum=True)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("set temp_buffers = '128MB'")  # as the service does
        ours, [(report,)] = timed(lambda: connection.execute("select bds.restore(%s, %s)", (COMPANY, version)).fetchall())
    if report["state"] != "completed" or report["entities"]["products"]["updated"] != counts["products"]["updated"]:
        raise RuntimeError(f"{counts}, {report}")
    number = counts["products"]["updated"]
    note = f"{number:,} rows; floor: the import of these; target 1.0"
    return rate("difference, restored", "changes/s", number, [ours], [floor], note)


def _document(directory: Path, products: Iterator[dict[str, str]]) -> Path:
    path = directory / "difference.json"
    with path.open("w", encoding="utf-8") as out:
        json.dump({"products": list(products)}, out)
    return path
