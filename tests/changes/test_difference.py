"""The difference of two versions under /c: records, filters for both ends, pages, errors in their order."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from app.changes.difference import read_counts, read_difference
from app.changes.rows import Answer, read_rows
from app.config import Config
from app.database import past
from app.database.database import Database
from app.database.servers.reads import READS, Reads
from app.errors import QueryError, ServiceError
from tests.conftest import Operator

pytestmark = pytest.mark.slow

Ask = Callable[[Callable[[Database], Coroutine[Any, Any, Answer]]], Any]
STEPS = (
    # 1 to 5
    "insert into data.categories (company_id, id, code, name) values ('acme', 7, 'C', 'Cats'), ('acme', 8, 'D', 'Dogs')",
    "insert into data.products (company_id, id, code, name, price, category_id)"
    " select 'acme', n, 'P' || n, 'Product', n, 7 from generate_series(1, 3) n",
    "update data.products set price = 2.50 where id = 1",  # 6
    "update data.products set category_id = 8 where id = 2",  # 7
    "delete from data.products where id = 3",  # 8
    "insert into data.products (company_id, id, code, name, price, category_id) values ('acme', 4, 'P4', 'Late', 4, 8)",  # 9
    "update data.categories set code = 'E' where id = 8",  # 10
    "insert into data.product_variants (company_id, id, code, product_id) values ('acme', 1, 'a', 1)",  # 11, 12: of the product, too
)


@pytest.fixture
def ask(database_url: str, operator: Operator) -> Iterator[Ask]:
    operator.company("acme")
    for step in STEPS:
        operator.write("acme", step)
    with asyncio.Runner() as runner:
        database = runner.run(Database.open(Config(database_url=database_url)))

        def question(read: Callable[[Database], Coroutine[Any, Any, Answer]]) -> Any:
            async def request() -> Answer:
                READS.set(Reads())
                return await read(database)

            body = runner.run(request()).body
            assert body is not None
            return json.loads(body)

        yield question
        runner.run(database.close())


def difference(ask: Ask, entity: str = "products", **params: str) -> Any:
    return ask(lambda database: read_difference(database, "acme", database.catalog[entity], list(params.items())))


def brief(answer: Any) -> list[tuple[Any, ...]]:
    return [(each["rowId"], each["operation"], each["old"], each["new"]) for each in answer["data"]]


def test_a_record_has_what_differs_and_a_row_that_came_or_went_is_whole(ask: Ask) -> None:
    answer = difference(ask, since="5")
    assert {key: answer[key] for key in ("since", "version", "generation", "hasMore")} == {
        **{"since": 5, "version": 12, "generation": 1, "hasMore": False}
    }
    one, two, three, four = sorted(answer["data"], key=lambda each: each["rowId"])
    assert one == {
        **{"rowId": "1", "operation": "update", "columns": ["price"], "old": {"price": 1}, "new": {"price": 2.5}, "version": 12}
    }
    assert (two["columns"], two["old"], two["new"]) == (["categoryId"], {"categoryId": "7"}, {"categoryId": "8"})
    then = ask(lambda database: read_rows(database, "acme", database.catalog["products"], [("version", "5")]))
    [gone] = [row for row in then["data"] if row["id"] == "3"]
    del gone["variants"]
    assert (three["operation"], three["old"], three["new"]) == ("delete", gone, None)
    now = ask(lambda database: read_rows(database, "acme", database.catalog["products"], []))
    [late] = [row for row in now["data"] if row["id"] == "4"]
    del late["variants"]
    assert (four["operation"], four["old"], four["new"]) == ("create", None, late)
    assert four["columns"] == list(late)
    assert [each["version"] for each in answer["data"]] == [7, 8, 9, 12]
    assert brief(difference(ask, since="12")) == []
    assert brief(difference(ask, since="9", version="12")) == [], "a change of its children is none of the product"


def test_a_filter_compares_the_rows_that_match_at_each_end(ask: Ask) -> None:
    assert [(row, operation) for row, operation, *_ in brief(difference(ask, since="5", filter="price < 2.5", sort="rowId"))] == [
        ("1", "delete"),
        ("2", "update"),
    ]
    # E is the code of category 8 at the later end, D was it before
    assert [each[:2] for each in brief(difference(ask, since="5", filter="category = 'code:E'", sort="rowId"))] == [
        ("2", "create"),
        ("4", "create"),
    ]
    assert brief(difference(ask, since="5", filter="category = 'code:D'")) == []
    assert [each[:2] for each in brief(difference(ask, since="5", version="9", filter="category = 'code:D'", sort="rowId"))] == [
        ("2", "create"),
        ("4", "create"),
    ]
    assert [each[:2] for each in brief(difference(ask, since="5", filter="id = 'code:P1'"))] == [("1", "update")]
    assert [
        each[:2] for each in brief(difference(ask, since="5", filter="category IN ('code:C', 'id:8') AND id <= 2", sort="rowId"))
    ] == [
        ("1", "update"),
        ("2", "update"),
    ]


def test_a_lookup_that_names_nothing_matches_no_row_whatever_its_id(ask: Ask, operator: Operator) -> None:
    operator.write("acme", "insert into data.categories (id, code, name) values (-1, 'M', 'Minus')")
    operator.write(
        "acme",
        "insert into data.products (id, code, name, category_id) values (-1, 'E', 'e', -1), (-2, 'C', 'c', 7), (-3, 'X', 'x', null)",
    )
    for filter, codes in (
        ("id = 'code:NONE'", ""),
        ("id != 'code:NONE'", "ECX"),
        ("id IN ('code:NONE', 'code:E')", "E"),
        ("category = 'code:NONE'", ""),
        ("category != 'code:NONE'", "EC"),
        ("NOT category = 'code:NONE'", "EC"),
        ("category IN ('code:NONE', 'code:M')", "E"),
        ("category NOT IN ('code:NONE', 'code:M')", "C"),
        ("category = 'code:M'", "E"),
    ):
        found = [new["code"] for *_, new in brief(difference(ask, since="13", filter=filter))]
        assert "".join(found) == codes, filter
        rows = ask(
            lambda database, filter=filter: read_rows(  # type: ignore[misc]
                database, "acme", database.catalog["products"], [("filter", f"id < 0 and ({filter})"), ("sort", "-id")]
            )
        )
        assert "".join(row["code"] for row in rows["data"]) == codes, filter


def test_ends_are_ids_times_and_names(ask: Ask, operator: Operator) -> None:
    operator.connection.execute("select bds.name_version('acme', 'before', 5)")
    [(at,)] = operator.rows("select bds_service.api_time(created_at) from bds.changes where company_id = 'acme' and id = 7")
    whole = difference(ask, since="5", version="7")
    assert difference(ask, since="before", at=at) == difference(ask, since="before", version=at) == whole
    assert whole["version"] == 7
    assert difference(ask, since="before", generation="1")["since"] == 5


def test_counts_are_those_of_the_records(ask: Ask) -> None:
    answer = ask(lambda database: read_counts(database, "acme", [("since", "5")]))
    assert {name: counts for name, counts in answer["entities"].items() if any(counts.values())} == {
        "products": {"created": 1, "updated": 2, "deleted": 1},
        "categories": {"created": 0, "updated": 1, "deleted": 0},
        "productVariants": {"created": 1, "updated": 0, "deleted": 0},
    }
    assert (answer["since"], answer["version"], answer["generation"], answer["notices"]) == (5, 12, 1, [])


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("sort", ["version", "rowId"])
def test_a_walk_by_pages_has_each_record_once_while_others_write(
    ask: Ask, operator: Operator, monkeypatch: pytest.MonkeyPatch, sort: str, is_wide: bool
) -> None:
    chance = random.Random(3)
    operator.write(
        "acme",
        "insert into data.products (company_id, id, code, name, price, category_id)"
        " select 'acme', 100 + n, 'Q' || n, 'Product', n, 7 from generate_series(1, 40) n",
    )
    for _ in range(30):
        operator.write("acme", f"update data.products set price = {chance.randrange(9)} where id %% 7 = {chance.randrange(7)}")
    whole = difference(ask, since="20", sort=sort)
    if is_wide:  # as if there were many more changes: most are not gone through
        monkeypatch.setattr(past, "FEW", 0)
        monkeypatch.setattr(past, "WINDOW", 1)
        monkeypatch.setattr(past, "SHARE", 1_000)
        assert difference(ask, since="20", sort=sort) == whole
    walked, page = [], difference(ask, since="20", sort=sort, limit="3" if is_wide else "7")
    version = page["version"]
    while True:
        walked += page["data"]
        if not page["hasMore"]:
            break
        operator.write("acme", "update data.products set price = price + 1")
        page = difference(
            ask, since="20", sort=sort, limit="3" if is_wide else "7", version=str(version), after=str(page["data"][-1][sort])
        )
    assert walked == whole["data"]
    assert len({each["rowId"] for each in walked}) == len(walked) > 20


@pytest.mark.parametrize(
    ("params", "status", "target"),
    [
        ({"since": ""}, 400, "since"),
        ({"since": "-1"}, 400, "since"),
        ({"since": "1.5"}, 400, "since"),
        ({"since": "x y", "version": "99"}, 400, "since"),
        ({"since": "1", "version": "2", "at": "2026-01-01"}, 400, "at"),
        ({"since": "1", "at": "3"}, 400, "at"),
        ({"since": "1", "limit": "0"}, 400, "limit"),
        ({"since": "1", "sort": "price"}, 400, "sort"),
        ({"since": "1", "after": "x"}, 400, "after"),
        ({"since": "1", "after": "--5"}, 400, "after"),
        ({"since": "1", "offset": "2"}, 400, "offset"),
        ({"since": "1", "filter": "updatedAt > '2026-01-01'"}, 400, "filter"),
        ({"since": "1", "filter": "prize > 1"}, 400, "filter"),
        ({"since": "99"}, 404, "since"),
        ({"since": "nobody"}, 404, "since"),
        ({"since": "2999-01-01"}, 404, "since"),
        ({"since": "9", "version": "nobody"}, 404, "version"),
        ({"since": "9", "version": "99"}, 404, "version"),
        ({"since": "1", "generation": "2"}, 404, "generation"),
        ({"since": "9", "version": "5"}, 400, "since"),
    ],
)
def test_bad_ends_are_told(ask: Ask, params: dict[str, str], status: int, target: str) -> None:
    with pytest.raises((QueryError, ServiceError)) as caught:
        difference(ask, **params)
    assert caught.value.status == status
    assert caught.value.target == target
