"""Reads under /c: rows with their children, pages, cursors, the change log."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import uuid
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from app.changes.log import read_changes
from app.changes.rows import Answer, read_row, read_rows
from app.config import Config
from app.database.database import Database
from app.errors import QueryError
from tests.conftest import Operator

pytestmark = pytest.mark.slow

Ask = Callable[[Callable[[Database], Coroutine[Any, Any, Answer]]], Answer]


@pytest.fixture
def ask(database_url: str, operator: Operator) -> Iterator[Ask]:
    """Runs a read in a database in which the company acme has some rows."""
    operator.company("acme")
    operator.write("acme", "insert into data.categories (company_id, id, code, name) values ('acme', 7, 'C', 'Cats')")
    operator.write(
        "acme",
        "insert into data.products (company_id, id, code, name, price, category_id)"
        " select 'acme', n, 'P' || n, 'Product', n, 7 from generate_series(1, 5) n",
    )
    operator.write(
        "acme",
        "insert into data.product_variants (company_id, id, code, product_id) values ('acme', 2, 'b', 1), ('acme', 1, 'a', 1)",
    )
    with asyncio.Runner() as runner:
        database = runner.run(Database.open(Config(database_url=database_url)))
        yield lambda question: runner.run(question(database))
        runner.run(database.close())


def rows(ask: Ask, entity: str = "products", **params: str) -> dict[str, Any]:
    async def question(database: Database) -> Answer:
        return await read_rows(database, "acme", database.catalog[entity], list(params.items()))

    body = ask(question).body
    assert body is not None
    answer: dict[str, Any] = json.loads(body)
    assert list(answer) == ["data", "hasMore"]
    return answer


def changes(ask: Ask, **params: str) -> dict[str, Any]:
    body = ask(lambda database: read_changes(database, "acme", list(params.items()))).body
    assert body is not None
    answer: dict[str, Any] = json.loads(body)
    return answer


def codes(answer: dict[str, Any]) -> list[str]:
    return [row["code"] for row in answer["data"]]


def test_a_row_has_its_fields_and_its_children(ask: Ask) -> None:
    answer = ask(lambda database: read_row(database, "acme", database.catalog["products"], "1"))
    assert answer.body is not None
    row = json.loads(answer.body)
    variants = row.pop("variants")
    assert [(variant["id"], variant["code"], variant["productId"]) for variant in variants] == [("1", "a", "1"), ("2", "b", "1")]
    assert row.pop("updatedAt").endswith("Z")
    assert row == {
        "id": "1",
        "code": "P1",
        "name": "Product",
        "description": None,
        "barcode": None,
        "price": 1,
        "active": True,
        "categoryId": "7",
        "unitId": None,
    }
    assert b'"price":1.0000' in answer.body
    assert int(str(answer.position).rsplit(".", 1)[-1]) > 0


@pytest.mark.parametrize("id", ["99", "0", "01", "x", "-1", "1.0", "9" * 30, "", "९"])
def test_a_row_that_does_not_exist_is_none(id: str, ask: Ask) -> None:
    assert ask(lambda database: read_row(database, "acme", database.catalog["products"], id)).body is None


def test_a_collection_is_paged_by_limit(ask: Ask) -> None:
    assert codes(rows(ask)) == ["P1", "P2", "P3", "P4", "P5"]
    assert [variant["code"] for variant in rows(ask, limit="1")["data"][0]["variants"]] == ["a", "b"]
    first = rows(ask, limit="4", sort="-price")
    assert (codes(first), first["hasMore"]) == (["P5", "P4", "P3", "P2"], True)
    rest = rows(ask, limit="4", sort="price desc", filter="price < 2")
    assert (codes(rest), rest["hasMore"]) == (["P1"], False)
    assert rows(ask, filter="price > 5") == {"data": [], "hasMore": False}


def test_references_are_filtered_by_lookup(ask: Ask) -> None:
    assert len(rows(ask, filter="category = 'code:C' and price in (1, 2)")["data"]) == 2
    assert rows(ask, filter="category = 'code:c'")["data"] == []
    assert rows(ask, filter="category is null or category != 'code:C'")["data"] == []
    assert codes(rows(ask, "productVariants", filter="product = 'code:P1'", sort="-code")) == ["b", "a"]


def test_a_referenced_row_without_the_value_of_a_lookup_is_another_row(ask: Ask, operator: Operator) -> None:
    operator.write("acme", "insert into data.customers (id, code, name, email) values (1, 'A', 'a', 'a@b'), (2, 'B', 'b', null)")
    operator.write(
        "acme",
        "insert into data.orders (code, order_date, customer_id) values ('named', '2026-01-01', 1), ('other', '2026-01-01', 2),"
        " ('none', '2026-01-01', null)",
    )
    filters = (
        ("customer = 'email:a@b'", ["named"]),
        ("customer in ('email:a@b')", ["named"]),
        ("not customer != 'email:a@b'", ["named"]),
        ("not not customer = 'email:a@b'", ["named"]),
        ("customer != 'email:a@b'", ["other"]),
        ("customer != 'email:x'", ["named", "other"]),
        ("customer not in ('email:a@b', 'email:x')", ["other"]),
        ("customer not in ('email:a@b', null)", ["other"]),
        ("customer not in ('email:x', 1)", ["other"]),
        ("not customer = 'email:a@b'", ["other"]),
        ("not not customer != 'email:a@b'", ["other"]),
        ("not (customer = 'email:a@b' or code = 'x')", ["other"]),
        ("not (customer = 'email:a@b' and code != 'x')", ["other"]),
        ("customer != 1", ["other"]),
        ("customer is null or customer != 'email:a@b'", ["none", "other"]),
    )
    for filter, found in filters:
        assert codes(rows(ask, "orders", filter=filter, sort="code")) == found, filter


def test_ilike_ignores_case_in_all_of_unicode(ask: Ask, operator: Operator) -> None:
    operator.write("acme", "update data.products set name = 'Äpfel 10%%' where code = 'P3'")
    for filter, found in {
        "name ilike 'äP%'": ["P3"],
        "name like 'äp%'": [],
        r"name like '%10\%'": ["P3"],
        "name like '_pf%'": ["P3"],
    }.items():
        assert codes(rows(ask, filter=filter)) == found


def test_rows_of_one_timestamp_are_never_split(ask: Ask, operator: Operator) -> None:
    with operator.connection.transaction():
        operator.connection.execute("set local session_replication_role = replica")
        operator.connection.execute("update data.products set updated_at = '2020-01-01Z' where id in (1, 2, 3)")
        operator.connection.execute("update data.products set updated_at = '2020-01-02Z' where id in (4, 5)")
    first = rows(ask, sort="updatedAt", limit="1")
    assert (codes(first), first["hasMore"]) == (["P1", "P2", "P3"], True)
    second = rows(ask, sort="updatedAt", limit="2", filter=f"updatedAt > '{first['data'][-1]['updatedAt']}'")
    assert (codes(second), second["hasMore"]) == (["P4", "P5"], False)
    assert codes(rows(ask, sort="updatedAt,-code", limit="1")) == ["P3", "P2", "P1"]
    assert codes(rows(ask, sort="-updatedAt", limit="1")) == ["P4"]


def test_a_reader_by_updated_at_gets_each_row_once(ask: Ask) -> None:
    seen: list[str] = []
    cursor, more = "2000-01-01", True
    while more:
        page = rows(ask, sort="updatedAt", limit="2", filter=f"updatedAt > '{cursor}'")
        seen += codes(page)
        cursor, more = page["data"][-1]["updatedAt"], page["hasMore"]
    assert sorted(seen) == ["P1", "P2", "P3", "P4", "P5"]


def test_the_change_log_has_six_fields_and_is_read_by_id(ask: Ask) -> None:
    page = changes(ask, limit="3")
    assert [change["id"] for change in page["data"]] == [1, 2, 3]
    assert page["hasMore"]
    created = page["data"][0]
    assert created.pop("createdAt").endswith("Z")
    assert created == {"id": 1, "entity": "categories", "rowId": "7", "operation": "create", "changeSetId": None}
    rest = changes(ask, filter="(entity = 'products' OR entity = 'units') and id > 3", sort="id")
    assert {change["entity"] for change in rest["data"]} == {"products"}
    assert not rest["hasMore"]
    every = [change["id"] for change in changes(ask)["data"]]
    assert every == list(range(1, len(every) + 1))
    assert [change["id"] for change in changes(ask, sort="-id", limit="2")["data"]] == every[:-3:-1]


def test_pages_by_entity_and_operation_have_the_changes_of_that_kind_counted_or_not(ask: Ask, operator: Operator) -> None:
    chance = random.Random(5)
    sets = [str(uuid.UUID(int=chance.getrandbits(128))) for _ in range(2)]
    for number in range(60):
        statement = chance.choice(
            (
                f"insert into data.units (code, name) values ('u{number}', 'x')",
                f"update data.products set price = price + {number} where id %% 3 = {number % 3}",
                f"delete from data.units where id %% 4 = {number % 4}",
                f"insert into data.products (company_id, id, code, name) values ('acme', {number + 100}, 'n{number}', 'x'); delete from data.products where code = 'n{number - 9}'",
            )
        )
        operator.write("acme", statement, change_set=chance.choice([None, None, *sets]))
        if number == 40:
            while operator.rows("select bds_change_log.count_change_sets()") != [(0,)]:
                pass
    log = operator.rows("select id, entity, operation from bds.changes where company_id = 'acme' order by id")
    last = log[-1][0]
    for entities, operations in itertools.product(([], ["units"], ["products", "units"]), ([], ["delete"], ["create", "update"])):
        parts = [
            f"{name} in ({', '.join(map(repr, values))})" if len(values) > 1 else f"{name} = {values[0]!r}"
            for name, values in (("entity", entities), ("operation", operations))
            if values
        ]
        wanted = [
            id for id, entity, operation in log if entity in (entities or [entity]) and operation in (operations or [operation])
        ]
        for bound, least, most in (
            ("id > 0", 1, last),
            ("id > 25", 26, last),
            (f"id <= {last - 9} and id >= 9", 9, last - 9),
            ("id > 999", 1000, 0),
        ):
            for sort, limit in (("id", 3), ("-id", 4), ("-id", 1000)):
                ids = [id for id in wanted if least <= id <= most][:: -1 if sort == "-id" else 1]
                page = changes(ask, filter=" and ".join([bound, *parts]), sort=sort, limit=str(limit))
                assert ([each["id"] for each in page["data"]], page["hasMore"]) == (ids[:limit], len(ids) > limit)
    assert not changes(ask, filter="entity = 'units' and entity = 'products'")["data"]


KINDS = ("", " and operation = 'create'", " and entity in ('products', 'categories')")


@pytest.mark.parametrize("sort", ["id", "-id", "rowId"])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_may_lie_outside_of_the_log_and_exclude_each_other(ask: Ask, kind: str, sort: str) -> None:
    every = {change["id"] for change in changes(ask, filter="id > 0" + kind)["data"]}
    for bound in (f"id > {-(2**63)}", "id > -2", "id >= -1", "id > -1e300", "id > -0.5", f"id < {2**63 - 1}", f"id <= {2**63}"):
        for limit in (1, 2, 10_000):
            page = changes(ask, filter=bound + kind, sort=sort, limit=str(limit))
            assert (len(page["data"]), page["hasMore"]) == (min(limit, len(every)), limit < len(every)), bound
    for bound in (
        *("id > 100 and id < 50", "id >= 3 and id <= 2", "id > 3 and id < 4", "id > 3 and id < 3", "id = 2 and id = 4"),
        *(f"id > {2**63 - 1}", f"id >= {2**63 - 1}", f"id > {2**63}", "id > 1e300", "id < -1e300", "id < 1", "id < -5", "id <= 0"),
        *("id = 1.5", "id > 1e300 and id < -1e300", f"id < {-(2**63)}"),
    ):
        assert changes(ask, filter=bound + kind, sort=sort) == {"data": [], "hasMore": False}, bound


def test_the_position_rises_with_every_change(ask: Ask, operator: Operator) -> None:
    def positions() -> tuple[int, int, int]:
        """Of rows, after the time at which the company was created."""
        return (
            int(
                str(ask(lambda database: read_rows(database, "acme", database.catalog["products"], [])).position).rsplit(".", 1)[-1]
            ),
            int(str(ask(lambda database: read_rows(database, "acme", database.catalog["units"], [])).position).rsplit(".", 1)[-1]),
            int(ask(lambda database: read_changes(database, "acme", [])).position),
        )

    before = positions()
    operator.write("acme", "update data.product_variants set name = 'x' where company_id = 'acme' and id = 1")
    after = positions()
    assert after[0] > before[0]
    assert after[1] == before[1] == 0
    assert after[2] > before[2]


def test_errors_name_the_parameter(ask: Ask) -> None:
    with pytest.raises(QueryError) as raised:
        rows(ask, filter="nope = 1")
    assert (raised.value.target, raised.value.position) == ("filter", 1)


@pytest.mark.parametrize("name", ["offset", "Filter", "$filter", "fields", ""])
def test_an_unknown_parameter_is_an_error(name: str, ask: Ask) -> None:
    expected = {rows: "filter, sort, limit, version, at, generation or since", changes: "filter, sort or limit"}
    for read, names in expected.items():
        with pytest.raises(QueryError) as raised:
            read(ask, **{name: "1"})
        assert (raised.value.target, raised.value.message) == (name, f"expected {names}, got {name}")


@pytest.mark.parametrize(
    ("filter", "position", "known"),
    [
        ("entity = 'product'", 10, "products"),
        ("entity = 'Products'", 10, "products"),
        ("id > 3 and entity != 'nope'", 22, "units"),
        ("entity in ('units', 'unit')", 21, "units"),
        ("not (entity = 'units' or ENTITY = 'x')", 35, "orders"),
        ("operation = 'DELETE'", 13, "create, update, delete"),
        ("operation in ('insert')", 15, "create, update, delete"),
    ],
)
def test_an_entity_or_operation_that_does_not_exist_is_an_error(ask: Ask, filter: str, position: int, known: str) -> None:
    """It would match nothing for ever."""
    with pytest.raises(QueryError, match=known) as raised:
        changes(ask, filter=filter)
    assert (raised.value.target, raised.value.position, raised.value.status) == ("filter", position, 400)


def test_other_comparisons_of_entity_and_operation_stay_free(ask: Ask) -> None:
    for filter in (
        "entity like 'prod%'",
        "entity > 'p'",
        "entity is not null",
        "entity between 'o' and 'q'",
        "operation <> 'delete'",
    ):
        assert changes(ask, filter=filter)["data"], filter
    assert changes(ask, filter="operation = null")["data"] == []
