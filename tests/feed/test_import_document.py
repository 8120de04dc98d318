"""bds.import_document: what it reports and stores is what an import of the same document by the program does."""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from tests.feed.conftest import Feed
from tests.feed.test_random_documents import CATEGORIES, CODES, LOOKUPS, NAMES, ORDERS, PRODUCTS, VARIANTS, record

pytestmark = pytest.mark.slow

ROWS = """
    select p.code, p.name, p.barcode, p.price, c.code from api.products p left join api.categories c on c.id = p."categoryId" order by 1;
    select v.code, v.name, v.price, p.code from api."productVariants" v join api.products p on p.id = v."productId" order by 1;
    select c.code, c.name, p.code from api.categories c left join api.categories p on p.id = c."parentId" order by 1;
    select o.code, o."orderDate", o.status, o.note from api.orders o order by 1;
    select o.code, p.code, i.quantity, i.price, i.description from api."orderItems" i join api.orders o on o.id = i."orderId"
        left join api.products p on p.id = i."productId" order by 1, 2, 3, 4, 5
"""


# ids of new rows, and numbers as they are written: jsonb has 1e3 as 1000
DIFFERENT = re.compile(r"(?<=\brow )\d+|(?<=, got ').*(?='$)")


def stored(connection: psycopg.Connection[Any]) -> list[list[tuple[Any, ...]]]:
    """The company's rows, without their ids."""
    return [connection.execute(query.encode()).fetchall() for query in ROWS.split(";")]


def essence(report: dict[str, Any]) -> list[Any]:
    """What is the same in two imports of one document."""
    errors = [(e["path"], e["record"], e["code"], DIFFERENT.sub("", e["message"])) for e in report["errors"]]
    return [
        report["state"],
        report["atomic"],
        report["entities"],
        report["errorCount"],
        sorted(errors, key=repr),
        report["progress"]["records"],
    ]


def in_sql(feed: Feed, document: Any) -> tuple[dict[str, Any], list[list[tuple[Any, ...]]]]:
    """(report, rows) of an import in a transaction that is rolled back."""
    with psycopg.connect(feed.url) as connection:
        connection.execute("set role bds_writer")
        connection.execute("select bds.set_context(%s, 'me')", (feed.company,))
        row = connection.execute("select bds.import_document(%s, %s)", (feed.company, Jsonb(document))).fetchone()
        rows = stored(connection)
        connection.rollback()
    assert row
    return row[0], rows


def by_the_program(feed: Feed, document: Any) -> tuple[dict[str, Any], list[list[tuple[Any, ...]]]]:
    report = feed.send(document)
    with psycopg.connect(feed.url) as connection:
        connection.execute("select bds.set_context(%s)", (feed.company,))
        return report, stored(connection)


def same(feed: Feed, document: Any) -> dict[str, Any]:
    """Import a document in both ways, from the same state; returns the report."""
    first, rows = in_sql(feed, document)
    second, expected = by_the_program(feed, document)
    assert essence(first) == essence(second)
    assert rows == expected
    return second


BASIS: dict[str, Any] = {
    "categories": [{"code": "K", "name": "k"}, {"code": "L", "name": "l", "parent": "code:K"}],
    "products": [
        {"code": "A", "name": "a", "price": 1, "category": "code:K", "variants": [{"code": "A1", "price": "2.5"}, {"code": "A2"}]},
        {"code": "B", "name": "b", "barcode": "77", "active": False}, {"code": "C", "name": "c", "category": "code:L"},
    ],
    "orders": [{"code": "O", "orderDate": "2024-01-01", "items": [{"product": "code:A", "quantity": 2}, {"product": "code:B"}]}],
}  # fmt: skip

DOCUMENTS: list[Any] = [
    BASIS,
    {},
    {"products": {"code": "A", "name": "one"}},
    {"products": None, "orders": []},
    {"products": [{"code": "A", "name": None, "price": None, "barcode": "\x01x", "description": "\x01"}]},
    {"products": [{"code": "A", "price": 1.50, "active": "false"}, {"code": "B", "price": "0.00005", "active": True}, {"code": "N", "name": 7}]},
    {"@atomic": False, "products": [{"code": "A", "price": [1], "name": {}, "active": 7, "nothing": 1, "id": True}, {"code": "B", "name": True}]},
    {"@atomic": "true", "products": [{"code": "A", "name": "new"}, {"code": "N"}]},
    {"@atomic": None, "@mode": None, "products@removeAll": None, "products": [{"code": "A", "updatedAt": "x", "name": "new"}]},
    {"@atomic": False, "products": [{"@operation": op, "code": c, "name": "x"} for op in ("create", "update", "delete", "wrong") for c in "ABQ"]},
    {"@atomic": False, "products": [{"code": "A", "@operation": 7}, {"code": "B", "@operation": None, "@where": None, "@x": None}, {"code": "C", "@x": 1}]},
    {"products": [{"code": "A", "variants": [{"code": "A1"}]}]},
    {"@mode": "merge", "products": [{"code": "A", "variants": [{"code": "A3"}]}]},
    {"products@removeAll": True, "@mode": "merge", "products": [{"code": "A", "variants": [{"code": "A3"}]}]},
    {"@mode": "merge", "products": [{"code": "A", "variants": [{"code": "A3"}], "variants@removeAll": "true"}]},
    {"products": [{"code": "A", "variants": [], "variants@removeAll": False}]},
    {"products": [{"code": "A", "variants": None}]},
    {"products": [{"code": "A", "variants": {"code": "A9", "name": "one"}}]},
    {"@atomic": False, "products": [{"code": "A", "variants@removeAll": True}, {"code": "B", "variants": [], "variants@removeAll": 7}]},
    {"@atomic": False, "products": [{"code": "A", "variants": [7, {"code": "A1"}, None], "orders@removeAll": True}]},
    {"products": [{"@operation": "delete", "code": "C", "variants": [7], "nothing": 1}]},
    {"products@removeAll": "true", "products": [{"code": "A"}, {"code": "B"}]},
    {"@atomic": False, "products": [{"id": "code:A", "code": "Z"}, {"id": 12, "name": "x"}, {"id": None, "code": "N", "name": "n"}, {"code": "N"}]},
    {"@atomic": False, "products": [{"code": "A", "category": "code:none"}, {"code": "B", "category": "code:NEW"}], "categories": [{"code": "NEW", "name": "n"}]},
    {"products": [{"code": "A", "category": "code:K", "categoryId": None}]},
    {"orders": [{"code": "O", "items": [{"product": "code:A", "quantity": 3}, {"product": "code:B"}, {"product": "code:C"}]}]},
    {"productVariants": [{"code": "A1", "product": "code:B"}, {"code": "V", "product": "code:A"}]},
    {"products": [{"code": f"P{n}", "name": "p" * (n % 7), "variants": [{"code": f"P{n}v"}]} for n in range(1_200)]},
    {"products": [{"code": "A", "description": "x" * 20_000}]},
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(DOCUMENTS)))
def test_a_document_has_the_same_effect_in_sql(feed: Feed, number: int) -> None:
    feed.good(BASIS)
    same(feed, DOCUMENTS[number])


WITHOUT_NUL = NAMES.filter(lambda name: name != "\0")
OPERATIONS = st.sampled_from(["upsert", "create", "update", "delete", "x", None])
RANDOM = st.fixed_dictionaries(
    {"@atomic": st.sampled_from([False, False, True, "batch", None]), "@mode": st.sampled_from([None, "array", "merge"])},
    optional={
        "products": st.lists(PRODUCTS, max_size=4), "categories": st.lists(CATEGORIES, max_size=4),
        "orders": st.lists(ORDERS, max_size=3), "productVariants": st.lists(VARIANTS, max_size=2),
        "units": st.lists(record({"code": CODES}, {"name": WITHOUT_NUL, "@operation": OPERATIONS, "id": LOOKUPS}), max_size=5),
    },
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=20)
@given(RANDOM.filter(lambda document: "\\u0000" not in json.dumps(document)))
def test_random_documents_have_the_same_effect_in_sql(feed: Feed, document: dict[str, Any]) -> None:
    same(feed, dict(sorted(document.items(), key=lambda member: (len(member[0]), member[0]))))  # in the order of jsonb


REFUSED: list[tuple[Any, str, str]] = [
    ([], "BD005", "expected an object with an array for each entity, got an array"),
    ({"product": []}, "BD002", "no such entity: 'product'"),
    ({"product@removeAll": True}, "BD002", "no such entity: 'product'"),
    ({"products": 7}, "BD005", "products: expected an array of records, got a number"),
    ({"products": [{}, "x"]}, "BD005", "products[1]: expected an object, got text"),
    ({"@atomic": 7}, "BD005", '@atomic: expected "batch", true or false, got 7'),
    ({"@mode": True}, "BD005", '@mode: expected "array" or "merge", got true'),
    ({"products@removeAll": 1, "products": []}, "BD005", "products@removeAll: expected true or false, got 1"),
    ({"products@removeAll": True}, "BD005", "products@removeAll: expected an array products in the document"),
    ({"@other": 1}, "BD005", "@other: no such directive, expected @atomic, @mode or <collection>@removeAll"),
    (
        {"products": [{"code": "A"}, {"@operation": "update", "@where": "code = 'A'"}]},
        "BD005",
        "products[1].@where: conditions are not read in SQL",
    ),
]


@pytest.mark.parametrize(("document", "state", "message"), REFUSED)
def test_what_is_not_a_document_is_raised(feed: Feed, document: Any, state: str, message: str) -> None:
    with pytest.raises(psycopg.Error) as raised:
        in_sql(feed, document)
    assert (raised.value.sqlstate, raised.value.diag.message_primary) == (state, message)


def test_it_is_part_of_the_transaction(feed: Feed) -> None:
    settings = "select current_setting('bds.actor'), current_setting('work_mem'), current_setting('random_page_cost')"
    with psycopg.connect(feed.url) as connection:
        connection.execute("set role bds_writer")
        connection.execute("select bds.set_context(%s, 'anna')", (feed.company,))
        before = connection.execute(settings).fetchone()
        connection.execute("insert into data.units (company_id, code, name) values (%s, 'U', 'before')", (feed.company,))
        row = connection.execute(
            "select bds.import_document(%s, %s, 'erp')", (feed.company, Jsonb({"units": [{"code": "U", "name": "x"}]}))
        ).fetchone()
        second = connection.execute(
            "select bds.import_document(%s, %s)", (feed.company, Jsonb({"units": [{"code": "V", "name": "v"}]}))
        ).fetchone()
        connection.execute("insert into data.units (company_id, code, name) values (%s, 'W', 'after')", (feed.company,))
        assert connection.execute(settings).fetchone() == before
        connection.commit()
    assert row and second and row[0]["entities"]["units"]["updated"] == 1 and second[0]["entities"]["units"]["created"] == 1
    assert feed.ask("select actor, change_set_id::text from bds.changes where company_id = %s order by id", feed.company) == [
        ("anna", None), ("erp", row[0]["importId"]), ("anna", second[0]["importId"]), ("anna", None),
    ]  # fmt: skip


def test_a_dry_run_writes_nothing_and_keeps_its_report(feed: Feed) -> None:
    feed.good(BASIS)
    log = feed.log()
    call = "select bds.import_document(%s, %s, dry_run => true)"
    [(report,)] = feed.write(call, feed.company, Jsonb({"units": [{"code": "U", "name": "u"}]}))
    assert report["dryRun"] and report["entities"]["units"]["created"] == 1 and feed.log() == log
    assert feed.ask("select state from bds.imports where id = %s", report["importId"]) == [("completed",)]


def test_a_failure_is_raised_if_a_script_asks_for_that(feed: Feed) -> None:
    document = Jsonb({"@atomic": False, "units": [{"code": "U", "name": "u"}, {"code": "V"}]})
    with pytest.raises(psycopg.Error, match=r"^the import failed at units\[1\]\.name: required: ") as raised:
        feed.write("select bds.import_document(%s, %s, raise_on_failure => true)", feed.company, document)
    assert raised.value.sqlstate == "BD008" and not feed.log()
    [(report,)] = feed.write("select bds.import_document(%s, %s)", feed.company, document)
    assert report["state"] == "partial" and feed.rows("units", "code") == [("U",)]


def test_another_company_is_refused(feed: Feed, companies: Any) -> None:
    other = companies()
    with psycopg.connect(feed.url) as connection:
        connection.execute("set role bds_writer")
        connection.execute("select bds.set_context(%s)", (feed.company,))
        with pytest.raises(psycopg.Error) as raised:
            connection.execute("select bds.import_document(%s, '{}')", (other.company,))
    assert raised.value.sqlstate == "BD001"
