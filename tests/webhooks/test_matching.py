"""Which changes concern which hooks: entity, filter on the row as the change left it, columns, change sets, children."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.chance import seeds
from tests.conftest import TEMPLATE
from tests.webhooks.conftest import DAY, Queue

pytestmark = pytest.mark.slow

SET = "00000000-0000-0000-0000-000000000001"


@pytest.fixture(scope="module")
def template() -> str:
    return TEMPLATE


def test_a_hook_matches_its_entity_or_all_entities(queue: Queue) -> None:
    products, units, every = queue.hook("products"), queue.hook("units"), queue.hook(None)
    queue.products("A")
    queue.write("insert into data.units (code, name) values ('u', 'u')")
    assert queue.matched(products) == [("products", "create")]
    assert queue.matched(units) == [("units", "create")]
    assert queue.matched(every) == [("products", "create"), ("units", "create")]


def test_only_changes_committed_after_the_hook_was_created_match(queue: Queue) -> None:
    queue.products("A")
    first = queue.hook()
    queue.products("B")
    second = queue.hook()
    queue.products("C")
    queue.route(DAY)
    assert (queue.queued(first), queue.queued(second)) == ([2, 3], [3])


def test_an_uncommitted_change_matches_a_hook_created_before_its_commit(queue: Queue, connect: Any) -> None:
    other = connect()
    with other.transaction():
        other.execute("select bds.set_context('acme')")
        other.execute("insert into data.products (code, name) values ('A', 'a')")
        hook = queue.hook()
        assert queue.matched(hook) == []
    assert queue.matched(hook) == [("products", "create")]


def test_uncommitted_and_rolled_back_changes_never_match(queue: Queue, connect: Any) -> None:
    hook = queue.hook()
    other = connect()
    with other.transaction(force_rollback=True):
        other.execute("select bds.set_context('acme')")
        other.execute("insert into data.products (code, name) values ('A', 'a')")
        assert queue.matched(hook) == []
    assert queue.matched(hook) == []
    queue.products("B")
    assert queue.matched(hook) == [("products", "create")]


FOUND = {
    "price > 10": {"dear"},
    "price <= 10 AND active = true": {"cheap"},
    "category = 'code:tools'": {"cheap"},
    "category != 'code:tools' or category is null": {"dear", "none"},
    "categoryId = 1": {"cheap"},
    "category in ('code:tools', 2)": {"cheap", "dear"},
    "CODE LIKE '%e%' and not code = 'dear'": {"cheap", "none"},
    "name ilike 'ÄPFEL'": {"none"},
    "price is null": {"none"},
    "code in ('none', 'it''s', 'a\\b\"{},')": {"none"},
    "updatedAt > '2020-01-01'": {"cheap", "dear", "none"},
    "price between 5 and 50": {"cheap"},
}


def test_a_filter_selects_rows(queue: Queue) -> None:
    queue.write("insert into data.categories (id, code, name) values (1, 'tools', 't'), (2, 'toys', 't')")
    hooks = {filter: queue.hook(filter=filter) for filter in FOUND}
    queue.write(
        "insert into data.products (id, code, name, price, category_id)"
        " values (1, 'cheap', 'c', 5, 1), (2, 'dear', 'd', 50.5, 2), (3, 'none', 'äpfel', null, null)"
    )
    queue.route(DAY)
    named = {1: "cheap", 2: "dear", 3: "none"}
    query = "select row_id from bds.hook_queue where hook_id = %s"
    assert {filter: {named[row[0]] for row in queue.rows(query, (hook,))} for filter, hook in hooks.items()} == FOUND


TRUE = ("price > 0", "active = true", "name != ''", "barcode is null", "id > 0", "description is null", "updatedAt > '2020-01-01'")


def test_hooks_of_many_shapes_are_matched_as_those_of_one(queue: Queue) -> None:
    """More shapes than one statement can match, several hooks of each."""
    hooks = {}
    for chosen in range(2 ** len(TRUE)):
        filter = " and ".join(["code = '{}'", *(each for n, each in enumerate(TRUE) if chosen >> n & 1)])
        hooks |= {(chosen, code): queue.hook(filter=filter.format(code)) for code in ("A", "B")}
    [(shapes,)] = queue.rows("select count(distinct (joins, condition, types)) from bds.hook_filters")
    assert shapes == 128
    queue.products("A", "B", "C")
    queue.route(DAY)
    assert {key: queue.queued(hook) for key, hook in hooks.items()} == {(n, c): [1 if c == "A" else 2] for n, c in hooks}


def test_statements_are_prepared_once_in_a_session(queue: Queue) -> None:
    """One for the filters that are evaluated, one that queues."""
    planned = "select generic_plans, custom_plans from pg_prepared_statements where name like 'bds\\_%%' order by 1 desc"
    hook = queue.hook(filter="price > 0 and name = 'A'")
    for code in "AB":
        queue.products(code)
        queue.route(DAY)
    assert queue.rows(planned) == [(2, 0), (2, 0)]
    other = queue.hook(filter="name like 'C%'")
    queue.products("C")
    queue.route(DAY)
    assert queue.rows(planned) == [(3, 0), (2, 0), (1, 0)]
    assert (queue.queued(hook), queue.queued(other)) == ([1], [3])


def test_the_prepared_statements_of_a_session_are_bounded(queue: Queue) -> None:
    for number in range(60):
        queue.operator.rows("select bds_webhooks.prepare_once(%s, '{text}')", (f"select {number} as {'x' * 40}" + " " * 20_000,))
    kept = "select count(*), sum(length(statement)), bool_or(statement like '%%select 59 %%') from pg_prepared_statements where name like 'bds\\_%%'"
    [(statements, characters, newest)] = queue.operator.rows(kept)
    assert statements > 20 and characters <= 520_000 and newest


FILTERS = (
    "price > 3",
    "name = 'b'",
    "active = true and price < 4",
    "category = 'code:C1'",
    "description is null",
    "not name = 'a'",
)
IN_SQL = {"category = 'code:C1'": "\"categoryId\" in (select id from api.categories where code = 'C1')"}
EDITS = {
    "price": "(random() * 6)::int",
    "name": "chr(97 + (random() * 2)::int)",
    "active": "not active",
    "description": "case when description is null then 'd' end",
    "category_id": "1 + floor(random() * 2)::int",
}


@pytest.mark.parametrize("seed", seeds(2))
def test_a_filter_is_evaluated_on_the_row_as_each_change_left_it(queue: Queue, seed: int) -> None:
    """Random edits, many of one row, also of rows created again; then all are matched, in steps of any size."""
    chosen = random.Random(seed)
    queue.operator.connection.execute(f"select setseed(0.{seed + 1})".encode())
    queue.write("insert into data.categories (id, code, name) values (1, 'C1', ''), (2, 'C2', '')")
    hooks = {filter: queue.hook(filter=filter) for filter in FILTERS}
    expected: dict[str, list[int]] = {filter: [] for filter in FILTERS}

    def now(row: int) -> list[str]:
        """The filters that match the row now, each in a query of its own."""
        with queue.operator.connection.transaction():
            queue.operator.connection.execute("select set_config('bds.company', 'acme', true)")
            return [
                filter
                for filter in FILTERS
                if queue.operator.rows(f"select from api.products where id = {row} and {IN_SQL.get(filter, filter)}")
            ]

    last = 2  # the categories
    for _ in range(100):
        row = chosen.randrange(1, 5)
        there = bool(queue.operator.rows("select from data.products where id = %s", (row,)))
        matching = now(row)
        if not there:
            queue.write("insert into data.products (id, code, name, price) values (%s, %s, 'a', 3)", (row, f"P{row}"))
            matching = now(row)
        elif chosen.random() < 0.15:
            queue.write("delete from data.products where id = %s", (row,))
        else:
            edits = chosen.sample(sorted(EDITS), chosen.randrange(1, 4))
            queue.write(f"update data.products set {', '.join(f'{c} = {EDITS[c]}' for c in edits)} where id = {row}")
            matching = now(row)
        before, last = last, queue.rows("select last_id from bds.clocks where company_id = 'acme'")[0][0]
        for filter in matching if last > before else []:  # an update without effect has no change record
            expected[filter].append(last)
    while queue.route(DAY, most=chosen.choice((1, 7, 1000)))[1]:
        import subprocess

        print(subprocess.run(["gdb", "-p", str(matching), "-batch", "-ex", "bt 60"], capture_output=True, text=True).stdout[-6000:])
    assert {filter: queue.queued(hook) for filter, hook in hooks.items()} == expected


@pytest.mark.parametrize("name", ["category", "categoryId"])
def test_a_hook_with_columns_matches_changes_of_these_columns(queue: Queue, name: str) -> None:
    queue.write("insert into data.categories (id, code, name) values (1, 'a', ''), (2, 'b', '')")
    hook = queue.hook(columns=[name, "price"])
    queue.products("A")
    queue.write("update data.products set name = 'other'")
    queue.write("update data.products set category_id = 2")
    queue.write("update data.products set price = 7, name = 'x'")
    queue.write("update data.products set description = 'x'")
    queue.write("delete from data.products")
    assert queue.matched(hook) == [("products", "create"), ("products", "update"), ("products", "update"), ("products", "delete")]


def test_an_entity_without_the_columns_never_matches(queue: Queue) -> None:
    hook = queue.hook(None, columns=["symbol", "dueDate"])
    queue.products("A")
    queue.write("insert into data.units (code, name) values ('u', 'u')")
    queue.write("update data.units set name = 'v'")
    queue.write("update data.units set symbol = 's'")
    queue.write("delete from data.units")
    assert queue.matched(hook) == [("units", "create"), ("units", "update"), ("units", "delete")]


def test_filter_and_columns_must_both_match(queue: Queue) -> None:
    hook = queue.hook(filter="price > 10", columns=["name"])
    queue.write("insert into data.products (code, name, price) values ('A', 'a', 20), ('B', 'b', 5)")
    queue.write("update data.products set name = name || '.'")
    queue.write("update data.products set price = price + 100")
    queue.route(DAY)
    assert queue.queued(hook) == [1, 3]


def test_a_filter_for_all_entities_matches_entities_that_have_its_fields(queue: Queue) -> None:
    hook = queue.hook(None, filter="symbol = 'kg'")
    queue.products("A")
    queue.write("insert into data.units (code, name, symbol) values ('kg', 'k', 'kg'), ('g', 'g', 'g')")
    assert queue.matched(hook) == [("units", "create")]


def test_changes_in_change_sets_match_only_if_allowed(queue: Queue) -> None:
    without, with_sets = queue.hook(), queue.hook(allow_in_change_set=True)
    queue.products("A")
    queue.products("B", change_set=SET)
    queue.route(DAY)
    assert (queue.queued(without), queue.queued(with_sets)) == ([1], [1, 2])


def test_a_change_of_a_child_is_a_change_of_its_parent(queue: Queue) -> None:
    queue.write("insert into data.invoices (id, code, invoice_date) values (1, 'I', '2026-01-01')")
    parents = queue.hook("invoices")
    contents = queue.hook("invoices", columns=["items"])
    heads = queue.hook("invoices", columns=["note"])
    children = queue.hook("invoiceItems", filter="quantity > 1")
    queue.write("insert into data.invoice_items (invoice_id, quantity) values (1, 1), (1, 5)")
    queue.write("update data.invoices set note = 'n'")
    assert queue.matched(children) == [("invoiceItems", "create")]
    assert queue.matched(parents) == [("invoices", "update"), ("invoices", "update")]
    assert len(queue.matched(contents)) == len(queue.matched(heads)) == 1


def test_a_hook_matches_only_its_own_company(queue: Queue) -> None:
    queue.operator.company("beta")
    hook = queue.hook()
    queue.operator.write("beta", "insert into data.products (code, name) values ('B', 'b')")
    assert queue.rows("select * from bds_service.companies_behind()") == []
    queue.products("A")
    assert queue.rows("select * from bds_service.companies_behind(array['beta', 'acme'])") == [("acme",)]
    assert queue.matched(hook) == [("products", "create")]
    assert queue.rows("select distinct company_id from bds.hook_queue") == [("acme",)]


def test_a_newly_registered_table_has_hooks(queue: Queue) -> None:
    every = queue.hook(None)
    queue.operator.connection.execute(
        'create table data.places (company_id text collate "C" not null, id bigint not null generated by default as identity,'
        " city text, updated_at timestamptz not null, primary key (company_id, id))"
    )
    queue.operator.connection.execute("select bds.register('data.places')")
    hook = queue.hook("places", filter="city like 'W%'", columns=["city"])
    queue.write("insert into data.places (city) values ('Wien'), ('Graz')")
    assert queue.matched(hook) == [("places", "create")]
    assert queue.matched(every) == [("places", "create")] * 2


def test_two_workers_match_each_change_once(queue: Queue, connect: Any) -> None:
    hook = queue.hook()
    queue.products(*(f"P{n}" for n in range(2_000)))
    workers = [connect("bds_worker") for _ in range(4)]

    def route(worker: psycopg.Connection[Any]) -> None:
        while worker.execute("select behind from bds_service.route_changes('acme', '1 day', 50)").fetchone() == (True,):
            pass

    threads = [threading.Thread(target=route, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queue.queued(hook) == list(range(1, 2_001))


def test_changes_that_another_worker_is_matching_are_reported_as_remaining(queue: Queue, connect: Any) -> None:
    queue.hook()
    queue.products("A")
    other = connect("bds_worker")
    with other.transaction():
        other.execute("select from bds_service.route_changes('acme')")
        assert queue.route() == (0, True)
    assert queue.route() == (0, False)


def test_rows_that_are_written_while_they_are_matched_are_matched_as_their_changes_left_them(queue: Queue, connect: Any) -> None:
    hook = queue.hook(filter="price > 10")
    queue.products("A")  # 1
    writer = connect()
    writer.execute("select bds.set_context('acme')")

    def write() -> None:
        for number in range(1_500):
            writer.execute("update data.products set price = %s where code = 'A'", (20 - number % 2 * 15,))

    with ThreadPoolExecutor() as threads:
        written = threads.submit(write)
        while not written.done():
            queue.route(DAY)
        written.result()
    queue.route(DAY)
    assert queue.queued(hook) == list(range(2, 1_502, 2))
