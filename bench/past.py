"""What reading a past state costs, against reading the present; and undoing an import, against the import.

The state is of before a tenth of the rows changed, and of before each row changed several times.  Reads are the service's statements,
planned each time; those of single rows and pages also go over HTTP, where the service plans once.  Memory is measured over HTTP.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg

from app.database import connections
from app.database.catalog import Catalog
from app.database.past import NAME_VERSION, Moment, model_of, parameters
from app.query.check.options import parse_query
from app.query.sql import statements as sql_statements
from bench.documents import write_basis, write_products
from bench.memory import watched
from bench.place import COMPANY, Place, Service, load, service, settle
from bench.table import Result, rate, say, timed

ROUNDS = 5
ITEMS = 5  # of an order
READ = 1 << 20  # bytes read at once from a response

ROWS = (
    "insert into data.products (code, name, description, barcode, price)"
    " select 'p' || n, 'Product ' || n, 'A description ' || n, 'b' || n, n %% 1000 + 0.25 from generate_series(1, %(rows)s) n",
    "insert into data.orders (code, order_date, total) select 'o' || n, date '2026-01-01' + n %% 300, n %% 500"
    " from generate_series(1, %(rows)s / 10) n",
    "insert into data.order_items (order_id, product_id, quantity, price) select o.id, o.id * 7 %% %(rows)s + n, n, n * 2"
    f" from data.orders o cross join generate_series(1, {ITEMS}) n where o.company_id = '{COMPANY}'",
)
# Of both: updates, deletes, and rows that are new.
CHANGES = (
    f"update data.products set price = price + 1 where company_id = '{COMPANY}' and id %% 12 = 0",
    f"delete from data.products p where company_id = '{COMPANY}' and id %% 101 = 0"
    " and not exists (select from data.order_items i where i.company_id = p.company_id and i.product_id = p.id)",
    "insert into data.products (code, name) select 'n' || n, 'New' from generate_series(1, %(rows)s / 100) n",
    f"update data.order_items set quantity = quantity + 1 where company_id = '{COMPANY}' and id %% 10 = 0",
    f"delete from data.order_items where company_id = '{COMPANY}' and id %% 33 = 0",
)
ROWS_AT = "select count(r) from bds.rows_at(%s, 'products', %s) r"
ROWS_NOW = (
    "select count(json_object('id' : id, 'code' : code, 'name' : name, 'description' : description, 'barcode' : barcode, 'price' : price,"
    " 'active' : active, 'categoryId' : \"categoryId\", 'unitId' : \"unitId\", 'updatedAt' : \"updatedAt\" returning json)::jsonb)"
    " from api.products"
)
READS = {
    "by id": ("products", "$filter=id eq 77&$top=1"),
    "by code": ("products", "$filter=code eq 'p77'&$top=1"),
    "20 orders with items": ("orders", "$top=20&$expand=items"),
    "every order with items": ("orders", "$expand=items"),
    "filter by items/$count": ("orders", "$filter=items/$count gt 4&$select=id"),
    "every product": ("products", ""),
}
DEEP = (1, 5, 19)  # updates of each row
DEEP_READS = {
    "a page of 100": ("products", "$top=100"),
    "a page in the middle": ("products", "$filter=id gt {middle}&$top=100"),
    "by code": ("products", "$filter=code eq 'p77'&$top=1"),
    "$count": ("products", "$count=true&$top=1"),
    "a filter of all rows": ("products", "$filter=price eq 7&$count=true&$top=10"),
    "every product": ("products", ""),
}
# Paths, now and of a version
OVER_HTTP = {
    "a page of 100": ("/api/odata/{company}/products?$top=100", "/api/odata/{company}@{version}/products?$top=100"),
    "a page in the middle": (
        "/api/odata/{company}/products?$filter=id%20gt%20{middle}&$top=100",
        "/api/odata/{company}@{version}/products?$filter=id%20gt%20{middle}&$top=100",
    ),
    "a row by id": ("/api/odata/{company}/products(77)", "/api/odata/{company}@{version}/products(77)"),
    "a row by code": ("/api/odata/{company}/products(code='p77')", "/api/odata/{company}@{version}/products(code='p77')"),
    "$count": ("/api/odata/{company}/products/$count", "/api/odata/{company}@{version}/products/$count"),
    "/c, a page of 100": ("/c/{company}/products?limit=100", "/c/{company}/products?limit=100&version={version}"),
    "/c, a row by id": ("/c/{company}/products/77", "/c/{company}/products/77?version={version}"),
}
REQUESTS = 20  # of a round


def measure(place: Place, rows: int) -> Iterator[Result]:
    """Reads a second of a past state; rows a second of a revert."""
    with place.database(COMPANY) as url:
        say(f"past: {rows:,} products, {rows // 10 * ITEMS:,} items")
        version = fill(url, rows)
        for name, (ours, floor) in read(url, version).items():
            yield rate(f"past, {name}", "reads/s", 1, ours, floor, f"{rows:,} products, a tenth changed; floor: now")
        with service(url, place.directory) as served, watched(place) as session:
            size = sum(fetch(served, f"{COMPANY}@{version}/{path}") for path in ("products", "orders?$expand=items"))
            most = served.memory()
        note = f"every product, every order with items, {size / 1e6:,.0f} MB; ours: a session of the server; the service held {most:.0f} MB"
        yield Result("past, memory of reads", "MB", session[0], note=note)
    yield from deep(place, rows)
    yield from undo(place, rows)


def deep(place: Place, rows: int) -> Iterator[Result]:
    """Reads a second of the state before each row changed some times, in statements of all rows."""
    with place.database(COMPANY) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            _write(connection, ROWS[:1], rows)
            [(version,)] = connection.execute("select max(last_id) from bds.positions").fetchall()
        done = 0
        for times in DEEP:
            say(f"past: {times} changes of each of {rows:,} rows")
            with psycopg.connect(url, autocommit=True) as connection:
                _write(connection, ("update data.products set price = price + 1",) * (times - done), rows)
                while connection.execute("select bds_change_log.count_change_sets()").fetchone() != (0,):
                    pass
            done = times
            settle(url, vacuum=True)
            reads = {name: (entity, options.format(middle=rows // 2)) for name, (entity, options) in DEEP_READS.items()}
            for name, (ours, floor) in read(url, version, reads).items():
                note = f"{rows:,} rows; floor: now; target >= 0.2 but for filters and all rows"
                yield rate(f"past behind {times} changes a row, {name}", "reads/s", 1, ours, floor, note)
            with service(url, place.directory) as served:
                for name, (ours, floor) in read_over_http(served, version, rows).items():
                    note = f"{rows:,} rows; floor: now; target >= 0.2"
                    yield rate(f"past behind {times} changes a row, over HTTP, {name}", "reads/s", REQUESTS, ours, floor, note)


def fill(url: str, rows: int) -> int:
    """The version before the changes."""
    with psycopg.connect(url, autocommit=True) as connection:
        _write(connection, ROWS, rows)
        [(version,)] = connection.execute("select max(last_id) from bds.positions").fetchall()
        _write(connection, CHANGES, rows)
    settle(url, vacuum=True)
    return int(version)


def _write(connection: psycopg.Connection[Any], statements: tuple[str, ...], rows: int) -> None:
    for statement in statements:
        with connection.transaction():
            connection.execute("select bds.set_context(%s, 'bench')", (COMPANY,))
            connection.execute(statement.encode(), {"rows": rows})


def read(url: str, version: int, reads: Mapping[str, tuple[str, str]] = READS) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of each read, of the past state and of now."""
    with connections.connect(url, "bds_reader") as reader:
        now = connections.read_catalog(reader)
        reader.execute("set jit = off")
        reader.execute("select set_config('bds.company', %s, false)", (COMPANY,))
        reader.execute(NAME_VERSION, parameters(COMPANY, Moment(version=version), local=False))
        work = {
            "rows_at": (
                lambda: reader.execute(ROWS_AT, (COMPANY, version)).fetchall(),
                lambda: reader.execute(ROWS_NOW).fetchall(),
            )
        } | {name: (_reading(reader, model_of(now), *query), _reading(reader, now, *query)) for name, query in reads.items()}
        times = {}
        for name, (ours, floor) in work.items():
            say(f"past: {name}")
            rounds = [(timed(ours)[0], timed(floor)[0]) for _ in range(ROUNDS)]
            times[name] = ([each for each, _ in rounds], [each for _, each in rounds])
        return times


def _reading(reader: psycopg.Connection[Any], catalog: Catalog, entity: str, options: str) -> Callable[[], None]:
    query = parse_query(catalog, catalog[entity], [(n, v) for n, _, v in (each.partition("=") for each in options.split("&")) if n])
    statement = (sql_statements.page if query.top else sql_statements.rows)(query, COMPANY)

    def work() -> None:
        with psycopg.RawCursor(reader) as cursor:
            cursor.execute(statement.text, statement.values, prepare=False)
            cursor.fetchall()

    return work


def read_over_http(served: Service, version: int, rows: int) -> dict[str, tuple[list[float], list[float]]]:
    """Seconds of some requests over one connection, of the past state and of now."""
    connection = http.client.HTTPConnection(served.host, served.port)
    times = {}
    for name, paths in OVER_HTTP.items():
        say(f"past: over HTTP, {name}")
        now, past = (path.format(company=COMPANY, version=version, middle=rows // 2) for path in paths)
        for path in (now, past):
            ask(served, path, connection)  # plans, and loads what is read
        rounds = [[timed(_ask_some, served, path, connection)[0] for path in (past, now)] for _ in range(ROUNDS)]
        times[name] = ([each for each, _ in rounds], [each for _, each in rounds])
    connection.close()
    return times


def fetch(served: Service, path: str) -> int:
    """Read a collection over a connection of its own; returns its size in bytes.  Raises RuntimeError unless the answer is 200."""
    return ask(served, f"/api/odata/{path}", http.client.HTTPConnection(served.host, served.port))


def _ask_some(served: Service, path: str, connection: http.client.HTTPConnection) -> None:
    for _ in range(REQUESTS):
        ask(served, path, connection)


def ask(served: Service, path: str, connection: http.client.HTTPConnection) -> int:
    """The size of an answer in bytes.  Raises RuntimeError unless it is a 200."""
    connection.request("GET", path, headers={"Authorization": served.basic})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(f"{path}: {response.status} {response.read(500)!r}")
    return sum(len(data) for data in iter(lambda: response.read(READ), b""))


def undo(place: Place, rows: int) -> Iterator[Result]:
    """An import of new products, one that changes them all, and one that removes them, each undone."""
    changed, none = (place.directory / f"past_{name}.json" for name in ("changed", "none"))
    products = write_products(place.directory, rows)
    document = json.loads(products.path.read_text())
    for product in document["products"]:
        product["name"] += "!"
    changed.write_text(json.dumps(document))
    none.write_text(json.dumps({"products@removeAll": True, "products": document["products"][:1]}))
    with place.database(COMPANY) as url:
        load(url, write_basis(place.directory))
        for name, path in (("creates", products.path), ("updates", changed), ("deletes", none)):
            if name == "updates":
                load(url, products.path)
            settle(url, vacuum=True)
            yield undone(place, url, name, path)


def undone(place: Place, url: str, name: str, path: Path) -> Result:
    """The revert of an import, against that import."""
    say(f"past: {name}, imported and undone")
    with watched(place) as importing:
        floor, counts = timed(load, url, path)
    changes = sum(each[kind] for each in counts.values() for kind in ("created", "updated", "deleted"))
    settle(url, vacuum=True)
    with psycopg.connect(url, autocommit=True) as connection, watched(place) as reverting:
        connection.execute("set temp_buffers = '128MB'")  # as the service does
        [(change_set,)] = connection.execute("select id from bds.imports order by started_at desc limit 1").fetchall()
        ours, [(report,)] = timed(lambda: connection.execute("select bds.revert(%s, %s)", (COMPANY, change_set)).fetchall())
    if report["state"] != "completed":
        raise RuntimeError(f"{name}: {report}")
    note = f"{changes:,} changes; floor: the import; the session of the server held {reverting[0]:.0f} MB, of the import {importing[0]:.0f} MB"
    return rate(f"past, {name} undone", "changes/s", changes, [ours], [floor], f"{note}; target 1.0")
