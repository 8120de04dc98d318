"""Plans of large and small imports: parallel workers give the same result, few records are looked up by index."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.conftest import Operator, not_divided, parts_of
from tests.feed.conftest import SESSIONS, Feed, errors
from tests.service.serving import wait_until

pytestmark = pytest.mark.slow

MANY = 3000
DOCUMENT: dict[str, Any] = {
    "@atomic": False,
    "units": [{"code": f"U{n}", "name": "u"} for n in range(20)],
    "categories": [{"code": f"C{n}", "name": "c", "parent": f"code:C{n // 2}" if n else None} for n in range(100)],
    "products": [
        {
            "code": f"P{n}", "name": f"n{n}", "description": f"\x01{n}" if n % 7 else None, "price": "x" if n == 11 else str(n), "active": n % 2 == 0,
            "category": "code:nowhere" if n == 12 else f"code:C{n % 100}", "unit": f"code:U{n % 20}" if n % 3 else None,
            "variants": [{"code": f"P{n}-{size}", "name": size, "price": n} for size in "SM"[: n % 3]],
        }
        for n in range(MANY)
    ] + [{"code": "P20", "name": "twice"}, {"@operation": "update", "@where": "startswith(code,'P29')", "description": "new"}],
    "productVariants": [{"code": "P1-S", "product": "code:P1"}, {"code": "P4-X", "name": "x", "product": "code:P5"}],
}  # fmt: skip
AGAIN: dict[str, Any] = {
    "@atomic": False,
    "categories": [*DOCUMENT["categories"][:50], {"code": "C7", "parent": "code:C1"}],
    "products": [
        {
            **each,
            "price": str(n + (n % 100 == 0)),
            "category": f"code:C{n % 100}",
            "variants": [{"code": f"P{n + (n % 500 == 2)}-S"}],
        }
        for n, each in enumerate(DOCUMENT["products"][:MANY])
    ],
}


@contextlib.contextmanager
def in_parallel(operator: Operator, workers: int) -> Iterator[None]:
    """Within the block the planner uses so many parallel workers for every table."""
    name = sql.Identifier(operator.connection.info.dbname)
    for setting, value in (("min_parallel_table_scan_size", 0), ("max_parallel_workers_per_gather", workers)):
        operator.connection.execute(sql.SQL("alter database {} set {} = {}").format(name, sql.Identifier(setting), value))
    for setting in ("parallel_setup_cost", "parallel_tuple_cost"):
        operator.connection.execute(sql.SQL("alter database {} set {} = 0").format(name, sql.Identifier(setting)))
    yield
    operator.connection.execute(sql.SQL("alter database {} reset all").format(name))


def outcome(feed: Feed, document: dict[str, Any]) -> tuple[Any, ...]:
    report = feed.send(document)
    categories = feed.ask(
        'select c.code, p.code from api.categories c left join api.categories p on p.id = c."parentId" order by 1'
    )
    products = feed.ask(
        "select p.code, p.name, p.description, p.price, p.active, c.code, u.code from api.products p"
        ' left join api.categories c on c.id = p."categoryId" left join api.units u on u.id = p."unitId" order by 1'
    )
    variants = feed.ask(
        'select v.code, v.price, p.code from api."productVariants" v join api.products p on p.id = v."productId" order by 1'
    )
    return report["state"], report["entities"], sorted(errors(report)), categories, products, variants, len(feed.log())


def test_an_import_with_parallel_workers_gives_the_same(companies: Callable[[], Feed]) -> None:
    outcomes, helpers = [], []
    for workers in (0, 2):
        feed = companies()
        with in_parallel(feed.operator, workers):
            outcomes.append([outcome(feed, document) for document in (DOCUMENT, AGAIN, AGAIN)])
        helpers.append(launched(feed.operator))
        assert feed.staged() == 0
    first, second, _ = outcomes[0]
    assert first[0] == second[0] == "partial" and first[1]["products"]["failed"] and second[1]["productVariants"]["deleted"]
    assert outcomes[1] == outcomes[0]
    if helpers[0] is not None:
        wait_until(lambda: launched(feed.operator) != helpers[0])


READ = f"""
    select sum(t.seq_tup_read)::bigint, sum(t.n_tup_upd + t.n_tup_del)::bigint,
        (select sum(i.idx_tup_read)::bigint from pg_stat_user_indexes i where i.relid in {parts_of("data.products")}), sum(t.n_tup_ins)
    from pg_stat_user_tables t where t.relid in {parts_of("data.products")}
"""


@contextlib.contextmanager
def counting(feed: Feed) -> Iterator[list[int]]:
    """The rows of products that the block reads by sequential scans, and by index scans; filled in at its end."""
    ((whole, written, probed, _),) = feed.operator.rows(READ)
    found: list[int] = []
    yield found
    SESSIONS.end()  # which report what they read
    wait_until(lambda: feed.operator.rows(READ)[0][1] > written)
    ((whole_now, _, probed_now, _),) = feed.operator.rows(READ)
    found += [whole_now - whole, probed_now - probed]


@pytest.fixture
def analysed_and_not(companies: Callable[[], Feed]) -> tuple[Feed, Feed]:
    """A company with 200,000 analysed products, and one with 3,000 that are not analysed: the planner expects one row of it."""
    known, unknown = companies(), companies()
    connection = known.operator.connection
    for feed, rows in ((known, 200_000), (unknown, 3000)):
        connection.execute("set session_replication_role = replica")  # without change records
        connection.execute(
            "insert into data.products (company_id, code, name, updated_at) "
            "select %s, 'P' || n, 'n', now() from generate_series(1, %s) n",
            [feed.company, rows],
        )
        connection.execute("reset session_replication_role")
        if feed is known:
            connection.execute("vacuum analyze data.products")
    wait_until(lambda: known.operator.rows(READ)[0][3] >= 203_000)
    return known, unknown


def test_few_records_are_looked_up_by_index(analysed_and_not: tuple[Feed, Feed]) -> None:
    for feed, many in zip(analysed_and_not, (3000, 900), strict=True):
        for changed in (1, many):
            records = [{"code": f"P{n}", "name": f"m{changed}" if n <= changed else "n"} for n in range(1, many + 1)]
            with counting(feed) as read:
                assert feed.good(products=records)["products"]["updated"] == changed
            assert read[0] == 0 and read[1] < 20 * many


def test_few_rows_are_deleted_by_index(analysed_and_not: tuple[Feed, Feed]) -> None:
    for feed, many in zip(analysed_and_not, (3000, 900), strict=True):
        with counting(feed) as read:
            records = [{"code": f"P{n}", "@operation": "delete"} for n in range(1, many + 1)]
            assert feed.good(products=records) == {"products": {"deleted": many}}
        assert read[0] == 0 and read[1] < 20 * many


def test_a_removal_reads_the_table_a_few_times(analysed_and_not: tuple[Feed, Feed]) -> None:
    _, feed = analysed_and_not
    with counting(feed) as read:
        records = [{"code": f"P{n}", "name": "n"} for n in range(1, 901)]
        assert feed.good({"products": records, "products@removeAll": True})["products"] == {"unchanged": 900, "deleted": 2100}
    assert sum(read) < 20 * 203_000


@not_divided("PostgreSQL writes the plan of a MERGE into several tables as JSON that is none")
def test_no_statement_joins_every_row_with_every_row(feed: Feed) -> None:
    """Checks every plan that takes two milliseconds or more, those of triggers included."""
    many, few = 1500, 900
    plans: list[str] = []

    def products(round: int) -> dict[str, Any]:
        return {
            "products": [
                {"code": f"P{n}", "name": f"n{round}", "variants": [{"code": f"P{n}-{round}", "name": "v"}]} for n in range(many)
            ]
        }

    feed.good(products(0))
    feed.write(
        "insert into data.products (company_id, code, name) select %s, 'Q' || n, 'n' from generate_series(1, 3000) n", feed.company
    )
    orders = {
        "orders": [
            {"code": f"O{n}", "orderDate": "2026-01-01", "items": [{"quantity": i + 1} for i in range(20)]} for n in range(few)
        ]
    }
    categories = {"categories": [{"code": f"C{n}", "name": "c", "parent": f"code:C{n // 2}" if n else None} for n in range(few)]}
    feed.good(orders | categories)
    for table in ("orders", "order_items", "categories"):
        feed.operator.connection.execute(f"vacuum analyze data.{table}".encode())
    for document in (
        products(1),
        products(2),
        {"products": [{"@operation": "delete", "code": f"P{n}"} for n in range(few, many)]},
        {"products": [{"@operation": "update", "@where": "code like 'Q%'", "description": "d"}]},
        orders,
        {"orders": [{"code": f"O{n}", "items": []} for n in range(few)]},
        {"categories": [{"@operation": "delete", "code": f"C{n}"} for n in range(few)]},
        {"productVariants": [{"@operation": "delete", "code": f"P{n}-2"} for n in range(few)]},
    ):
        plans += plans_of(feed, document)
    assert any("change_log" in plan for plan in plans)
    most = max((rows_seen(json.loads(plan)["Plan"]), plan) for plan in plans)
    assert most[0] < 20 * few * 10, most


def rows_seen(step: dict[str, Any]) -> float:
    """The most rows that one step of a plan has read, over all its loops."""
    met = sum(step.get(name, 0) for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter"))
    return max([float(met * step["Actual Loops"]), *map(rows_seen, step.get("Plans", []))])


def plans_of(feed: Feed, document: dict[str, Any]) -> list[str]:
    """The plans of an import's statements of two milliseconds or more, as JSON.  Skips the test without auto_explain."""
    messages: list[str] = []
    staged = feed.begin()
    staged.receive(json.dumps(document).encode())
    staged.received()
    with psycopg.connect(feed.url, autocommit=True) as connection:
        connection.add_notice_handler(lambda notice: messages.append(notice.message_primary or ""))
        try:
            connection.execute("load 'auto_explain'")
        except psycopg.errors.UndefinedFile:
            staged.fail()
            pytest.skip("this PostgreSQL has no auto_explain")
        for name, value in (
            ("log_min_duration", "2"),
            ("log_analyze", "on"),
            ("log_timing", "off"),
            ("log_format", "json"),
            ("log_nested_statements", "on"),
        ):
            connection.execute(sql.SQL("set {} = {}").format(sql.Identifier("auto_explain", name), value))
        connection.execute("set auto_explain.log_level = notice")
        report = connection.execute("select bds.import_run(%s, %s)", (feed.company, staged.id)).fetchone()
    staged.fail()  # no effect on the import, which has ended; stops the heartbeat
    assert report is not None and report[0]["state"] == "completed"
    return [message.partition("plan:")[2] for message in messages if "plan:" in message]


def launched(operator: Operator) -> int | None:
    """The parallel workers started so far, which PostgreSQL 18 counts."""
    known = "select from pg_attribute where attrelid = 'pg_stat_database'::regclass and attname = 'parallel_workers_launched'"
    if not operator.rows(known):
        return None
    return int(operator.rows("select parallel_workers_launched from pg_stat_database where datname = current_database()")[0][0])
