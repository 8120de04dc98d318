"""The recipes that docs/changes.md prints: each runs as printed, against a service whose rows change, and ends up with its rows."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Operator
from tests.database.aging import age, maintain
from tests.docs.documents import examples
from tests.service.serving import Service, running

pytestmark = pytest.mark.processes

ENTITIES = ("units", "products", "orders", "orderItems")


@dataclass
class Kitchen:
    """A service, and a folder with the printed programs."""

    service: Service
    folder: Path

    def run(self, *words: str) -> str:
        environment = {**os.environ, "URL": f"http://{self.service.host}:{self.service.port}", "KEY": self.service.key}
        command = [sys.executable, *words]
        ended = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def copied(self, entity: str) -> list[dict[str, Any]]:
        connection = sqlite3.connect(self.folder / "copy.db")
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute(f'select * from "{entity}" order by cast(id as integer)')]
        connection.close()
        return rows

    def served(self, entity: str) -> list[dict[str, Any]]:
        reply = self.service.ask(f"/c/demo/{entity}?limit=10000")
        rows = json.loads(reply.body, parse_float=str)["data"]
        return [{name: value for name, value in row.items() if not isinstance(value, list)} for row in rows]


@pytest.fixture
def kitchen(database_url: str, tmp_path: Path) -> Iterator[Kitchen]:
    for example in examples("docs/changes.md"):
        for name, text in example.files().items():
            (tmp_path / name).write_text(text)
    with running(database_url) as service:
        write(service.operator, "insert into data.units (code, name) select n::text, 'x' from generate_series(1, 1500) n")
        write(
            service.operator,
            "insert into data.products (code, name, price) select 'P' || n, 'steel hammer ' || n, 123456789012.3456 from generate_series(1, 40) n",
        )
        write(
            service.operator,
            "insert into data.orders (code, order_date) select 'O' || n, '2026-11-22' from generate_series(1, 20) n",
        )
        write(
            service.operator,
            "insert into data.order_items (order_id, quantity) select id, 2 from data.orders where company_id = 'demo'",
        )
        yield Kitchen(service, tmp_path)


def write(operator: Operator, statement: str) -> None:
    operator.write("demo", statement)


def edit(operator: Operator, choose: random.Random) -> None:
    """Create, change or delete rows at random."""
    number = choose.randrange(40) + 1
    statements = (
        f"insert into data.units (code, name) values ('N{choose.random()}', 'new')",
        f"update data.products set name = 'saw {choose.random()}', price = {choose.random():.4f} where code = 'P{number}'",
        f"delete from data.products where code = 'P{number}'",
        f"delete from data.orders where code = 'O{number}'",
        f"update data.order_items set quantity = quantity + 1 where mod(id, 3) = {number % 3}",
        f"delete from data.units where code = '{number}'",
        f"insert into data.units (code, name) values ('{number}', 'again') on conflict do nothing",
    )
    write(operator, choose.choice(statements))


def test_the_copy_has_the_rows_of_the_service_after_each_round(kitchen: Kitchen) -> None:
    choose = random.Random(20261122)
    for _ in range(5):
        assert kitchen.run("copy_rows.py", *ENTITIES).startswith("as of change ")
        for entity in ENTITIES:
            assert kitchen.copied(entity) == kitchen.served(entity)
        for _ in range(30):
            edit(kitchen.service.operator, choose)
    assert kitchen.copied("products") != kitchen.served("products"), "nothing was changed"


def test_decimals_of_the_copy_are_exact(kitchen: Kitchen) -> None:
    kitchen.run("copy_rows.py", "products")
    assert {row["price"] for row in kitchen.copied("products")} == {"123456789012.3456"}


def test_a_copy_that_lost_its_place_is_made_anew(kitchen: Kitchen) -> None:
    kitchen.run("copy_rows.py", "units", "orders")
    operator = kitchen.service.operator
    write(operator, "delete from data.units where code = '7'")
    write(operator, "update data.units set name = 'late' where code = '8'")
    age(operator, "2020_01")
    write(operator, "update data.units set name = 'last' where code = '9'")
    operator.connection.execute("select bds.set_retention('1 year')")
    maintain(operator)
    assert kitchen.service.ask("/c/demo/changes?filter=id>0").status == 410
    kitchen.run("copy_rows.py", "units", "orders")
    for entity in ("units", "orders"):
        assert kitchen.copied(entity) == kitchen.served(entity)
    write(operator, "delete from data.units where code = '10'")
    kitchen.run("copy_rows.py", "units", "orders")
    assert kitchen.copied("units") == kitchen.served("units")


def test_a_copy_that_saw_changes_that_were_lost_is_made_anew(kitchen: Kitchen) -> None:
    kitchen.run("copy_rows.py", "units", "orders")
    operator = kitchen.service.operator
    assert operator.rows("select bds.after_restore()") == [(1,)]
    write(operator, "update data.units set name = 'after it' where code = '8'")
    kitchen.run("copy_rows.py", "units", "orders")
    assert kitchen.copied("units") == kitchen.served("units"), "what is in common is known"
    with sqlite3.connect(kitchen.folder / "copy.db") as copy:
        [(last,)] = copy.execute("select last from position").fetchall()
        assert last.startswith("2:")
        copy.execute("update position set last = replace(last, '2:', '1:')")  # a change of before that is lost
        copy.execute("update units set name = 'lost'")
    copy.close()
    kitchen.run("copy_rows.py", "units", "orders")
    assert kitchen.copied("units") == kitchen.served("units")


def test_the_search_finds_what_is_there_now(kitchen: Kitchen) -> None:
    assert len(kitchen.run("search.py", "hammer*").splitlines()) == 10
    write(kitchen.service.operator, "update data.products set name = 'wooden spoon' where code = 'P3'")
    write(kitchen.service.operator, "delete from data.products where code = 'P4'")
    assert kitchen.run("search.py", "spoon") == "P3 wooden spoon\n"
    assert kitchen.run("search.py", "P4 OR (P3 AND hammer)") == ""


CACHED = """
import sys
from cache import Cache
cache = Cache()
for line in sys.stdin:
    cache.refresh()
    row = cache.row("units", line.strip())
    print(row and row["name"], len(cache.rows), flush=True)
"""


def test_the_cache_is_never_stale(kitchen: Kitchen) -> None:
    ((id, other),) = kitchen.service.operator.rows("select min(id), max(id) from data.units")
    environment = {**os.environ, "URL": f"http://{kitchen.service.host}:{kitchen.service.port}", "KEY": kitchen.service.key}
    with subprocess.Popen(
        [sys.executable, "-c", CACHED],
        cwd=kitchen.folder,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def read(id: int) -> str:
            process.stdin.write(f"{id}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        assert (read(id), read(other), read(id)) == ("x 1", "x 2", "x 2"), "a row that nobody changed is kept"
        write(kitchen.service.operator, f"update data.units set name = 'y' where id = {id}")
        assert (read(id), read(other)) == ("y 2", "x 2")
        write(kitchen.service.operator, f"delete from data.units where id = {id}")
        assert read(id) == "None 2"
        process.stdin.close()
