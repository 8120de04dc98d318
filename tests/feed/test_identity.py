"""Which row a record identifies."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.feed.conftest import Feed, counts, errors

pytestmark = pytest.mark.slow


@pytest.fixture
def pair(feed: Feed) -> tuple[int, int]:
    """Ids of two customers, A and B."""
    feed.good(customers=[{"code": "A", "name": "Ann", "email": "a@x"}, {"code": "B", "name": "Bob", "email": "b@x"}])
    (a,), (b,) = feed.rows("customers", "id", order="code")
    return a, b


def named(pair: tuple[int, int], record: dict[str, Any]) -> dict[str, Any]:
    """The record with {a} and {b} in its id replaced by the ids."""
    if isinstance(record.get("id"), str):
        record = {**record, "id": record["id"].format(a=pair[0], b=pair[1])}
    return record


@pytest.mark.parametrize("record", [
    {"code": "A"}, {"email": "a@x"}, {"code": "A", "email": "a@x"}, {"id": "code:A"}, {"id": "email:a@x"}, {"id": "{a}"}, {"id": "id:{a}"},
    {"id": "code:A", "code": "A"}, {"id": "{a}", "code": "A", "email": "a@x"}, {"id": None, "code": "A"},
])  # fmt: skip
def test_a_record_identifies_its_row(feed: Feed, pair: tuple[int, int], record: dict[str, Any]) -> None:
    assert feed.good(customers=[named(pair, record) | {"name": "Anna"}]) == {"customers": {"updated": 1}}
    assert feed.rows("customers", "code", "name", "email", order="code") == [("A", "Anna", "a@x"), ("B", "Bob", "b@x")]


def test_an_id_may_be_a_number(feed: Feed, pair: tuple[int, int]) -> None:
    assert feed.good(customers=[{"id": pair[0], "name": "Anna"}, {"id": pair[1], "code": "C"}]) == {"customers": {"updated": 2}}
    assert feed.rows("customers", "id", "code", "name", order="code") == [(pair[0], "A", "Anna"), (pair[1], "C", "Bob")]


def test_a_lookup_renames_its_row(feed: Feed, pair: tuple[int, int]) -> None:
    document = {
        "orders": [
            {"code": "O", "orderDate": "2024-01-01", "customer": "code:NEW"},
            {"code": "P", "orderDate": "2024-01-01", "customer": "code:A"},
        ],
        "customers": [{"id": "code:A", "code": "NEW", "email": None}],
    }
    assert feed.good(document) == {"customers": {"updated": 1}, "orders": {"created": 2}}
    assert feed.rows("customers", "id", "code", "email", order="code") == [(pair[1], "B", "b@x"), (pair[0], "NEW", None)]
    assert feed.rows("orders", "customerId") == [(pair[0],), (pair[0],)]


@pytest.mark.parametrize("lookup", ["email:a@x", "code:A", "{a}"])
def test_null_clears_a_field_that_the_own_lookup_may_use(feed: Feed, pair: tuple[int, int], lookup: str) -> None:
    order = {"code": "O", "orderDate": "2024-01-01", "customer": "email:a@x"}
    record = named(pair, {"id": lookup, "email": None})
    assert feed.good(customers=[record], orders=[order]) == {"customers": {"updated": 1}, "orders": {"created": 1}}
    assert feed.rows("customers", "code", "email", order="code") == [("A", None), ("B", "b@x")]
    assert feed.rows("orders", "customerId") == [(pair[0],)]


def test_the_lookup_of_a_new_row_sets_its_field(feed: Feed) -> None:
    assert feed.good(customers=[{"id": "code:X:Y", "name": "x"}, {"id": "email:e@x", "code": "E", "name": "e"}]) == {
        "customers": {"created": 2}
    }
    assert feed.rows("customers", "code", "email", order="code") == [("E", "e@x"), ("X:Y", None)]


WRONG: list[tuple[list[dict[str, Any]], list[tuple[str, str]]]] = [
    # records, (path, code) of their errors
    ([{"id": 999999999, "name": "x"}], [("customers[0].id", "not_found")]),
    ([{"id": "999999999999999999999999", "name": "x"}], [("customers[0].id", "not_found")]),
    ([{"id": "id:999999999", "name": "x"}], [("customers[0].id", "not_found")]),
    ([{"id": "id:A", "name": "x"}], [("customers[0].id", "not_found")]),
    ([{"id": "name:Ann", "code": "C", "name": "x"}], [("customers[0].id", "invalid_value")]),
    ([{"id": "A", "code": "C", "name": "x"}], [("customers[0].id", "invalid_value")]),
    ([{"id": "", "code": "C", "name": "x"}], [("customers[0].id", "invalid_value")]),
    ([{"id": True, "code": "A"}], [("customers[0].id", "invalid_value")]),
    ([{"code": "A", "email": "b@x"}], [("customers[0]", "lookup_ambiguous")]),
    ([{"id": "code:A", "email": "b@x"}], [("customers[0].email", "already_exists")]),
    ([{"id": "code:A", "code": "B"}], [("customers[0].code", "already_exists")]),
    ([{"id": "code:NEW", "code": "OTHER", "name": "n"}], [("customers[0].code", "invalid_value")]),
    ([{"id": "email:new@x", "code": "N", "email": "other@x", "name": "n"}], [("customers[0].email", "invalid_value")]),
    ([{"id": "email:new@x", "code": "N", "email": None, "name": "n"}], [("customers[0].email", "invalid_value")]),
    ([{"id": "code:A", "code": None}], [("customers[0].code", "required")]),
    ([{"id": "code:NEW", "code": None, "name": "n"}], [("customers[0].code", "required")]),
    ([{"id": "email:a@x", "email": None}, {"email": "a@x"}], [("customers[1]", "duplicate_record")]),
    ([{"id": "code:NEW", "code": "B", "name": "n"}], [("customers[0].code", "already_exists")]),
    ([{"id": "code:NEW", "name": "n", "email": "b@x"}], [("customers[0].email", "already_exists")]),
    ([{"code": "A", "name": "1"}, {"code": "A", "name": "2"}, {"code": "A", "name": "3"}],
     [("customers[1]", "duplicate_record"), ("customers[2]", "duplicate_record")]),
    ([{"code": "A"}, {"email": "a@x"}], [("customers[1]", "duplicate_record")]),
    ([{"id": "{a}"}, {"code": "A"}], [("customers[1]", "duplicate_record")]),
    ([{"id": "{a}"}, {"id": "{a}"}], [("customers[1]", "duplicate_record")]),
    ([{"code": "N", "name": "1"}, {"id": "code:N", "name": "2"}], [("customers[1].code", "duplicate_record")]),
    ([{"code": "N", "name": "1", "email": "n@x"}, {"code": "M", "name": "2", "email": "n@x"}], [("customers[1].email", "duplicate_record")]),
    ([{"code": "N", "@operation": "delete"}, {"code": "N", "name": "2"}], [("customers[1].code", "duplicate_record")]),
    ([{"id": "code:N", "@operation": "delete"}, {"code": "N", "name": "2"}], [("customers[1].code", "duplicate_record")]),
    ([{"code": "N", "name": "1"}, {"id": "code:N", "@operation": "delete"}], [("customers[1].code", "duplicate_record")]),
    ([{"id": "code:N", "code": "M", "@operation": "delete"}, {"id": "code:N", "@operation": "delete"}],
     [("customers[1].code", "duplicate_record")]),
    ([{"id": 999999999, "@operation": "delete"}, {"id": "id:999999999", "@operation": "delete"}],
     [("customers[1]", "duplicate_record")]),
    ([{"id": "code:A", "code": "N"}, {"code": "N", "name": "2"}], [("customers[1].code", "duplicate_record")]),
    ([{"id": "code:A", "code": "N"}, {"code": "A", "name": "2"}], [("customers[1]", "duplicate_record")]),
]  # fmt: skip


@pytest.mark.parametrize(("records", "wrong"), WRONG, ids=range(len(WRONG)))
def test_a_record_that_does_not_identify_one_row_is_refused(
    feed: Feed, pair: tuple[int, int], records: list[dict[str, Any]], wrong: list[tuple[str, str]]
) -> None:
    report = feed.send({"@atomic": False, "customers": [named(pair, record) for record in records]})
    assert errors(report) == wrong, report["errors"]
    assert report["state"] == ("failed" if len(wrong) == len(records) else "partial")
    assert report["entities"]["customers"]["failed"] == len(wrong)


@pytest.mark.parametrize("gone", [{"id": "code:Z"}, {"id": "code:Z", "code": "Y"}, {"id": "code:Z", "code": None}, {"code": "Z"}])
def test_a_delete_claims_the_identity_that_it_names_and_no_other(feed: Feed, gone: dict[str, Any]) -> None:
    feed.good(units=[{"code": "X", "name": "x"}])
    created = [{"code": "Z", "name": "z"}, {"code": "Y", "name": "y"}]
    product = {"code": "P", "name": "p", "unit": "code:Y"}
    report = feed.send({"@atomic": False, "units": [{**gone, "@operation": "delete"}, *created], "products": [product]})
    assert errors(report) == [("units[1].code", "duplicate_record")]
    assert counts(report)["units"] == {"created": 1, "unchanged": 1, "failed": 1}
    (y,) = [row for row, code in feed.rows("units", "id", "code") if code == "Y"]
    assert feed.rows("products", "unitId") == [(y,)]


def test_rows_of_another_company_do_not_exist(feed: Feed, companies: Any) -> None:
    other = companies()
    other.good(
        categories=[{"code": "C", "name": "c"}],
        products=[{"code": "P", "name": "p", "variants": [{"code": "V"}]}],
        orders=[{"code": "O", "orderDate": "2024-01-01", "items": [{"product": "code:P"}]}],
    )
    before = other.stored()
    ids = {
        entity: other.rows(entity, "id")[0][0] for entity in ("categories", "products", "productVariants", "orders", "orderItems")
    }
    report = feed.send(
        {
            "@atomic": False,
            **{entity: [{"id": row, "code": "mine"} if entity != "orderItems" else {"id": row}] for entity, row in ids.items()},
        }
    )
    assert sorted(errors(report)) == sorted((f"{entity}[0].id", "not_found") for entity in ids)
    report = feed.send(
        {
            "@atomic": False,
            "products": [
                {"code": "1", "name": "x", "category": ids["categories"]},
                {"code": "2", "name": "x", "category": f"id:{ids['categories']}"},
                {"code": "3", "name": "x", "category": "code:C"},
            ],
        }
    )
    assert errors(report) == [(f"products[{n}].category", "lookup_not_found") for n in range(3)]
    assert other.stored() == before
    assert feed.good(products=[{"code": "P", "name": "mine", "variants": [{"code": "V"}]}]) == {
        "products": {"created": 1},
        "productVariants": {"created": 1},
    }
    assert other.stored() == before


GOING: list[dict[str, Any]] = [
    {"price": "a lot"}, {"name": None}, {"price": 1e30, "active": "perhaps"}, {"category": "code:GONE"}, {"category": "nothing"}, {"unit": 999_999},
]  # fmt: skip


@pytest.mark.parametrize("others", [0, 1_100])  # many rows are compared by another plan
@pytest.mark.parametrize("record", GOING)
def test_a_delete_uses_only_the_identity(feed: Feed, record: dict[str, Any], others: int) -> None:
    rest = [{"code": f"R{n}", "name": "r", "price": "1.5"} for n in range(others)]
    feed.good(products=[{"code": "A", "name": "a"}, {"code": "B", "name": "b"}, *rest])
    gone = {"@operation": "delete", "code": "A", **record}
    found = feed.good(products=[gone, {"code": "B", "name": "b", "price": "2.5"}, *rest])
    assert found == {"products": {"deleted": 1, "updated": 1} | ({"unchanged": others} if others else {})}
    assert feed.rows("products", "code", "price", order="code")[0] == ("B", Decimal("2.5"))


@pytest.mark.parametrize(("record", "error"), [
    ({"id": "nothing:A"}, ("products[0].id", "invalid_value")),
    ({}, ("products[0]", "required")), ({"code": "A", "colour": "red"}, ("products[0].colour", "unknown_field")),
])  # fmt: skip
def test_the_identity_of_a_delete_is_checked(feed: Feed, record: dict[str, Any], error: tuple[str, str]) -> None:
    feed.good(products=[{"code": "A", "name": "a"}])
    report = feed.send(products=[{"@operation": "delete", **record}])
    assert report["state"] == "failed"
    assert error in errors(report)
    assert feed.rows("products", "code") == [("A",)]


def test_a_delete_of_an_item_uses_only_its_id(feed: Feed) -> None:
    feed.good(orders=[{"code": "O", "orderDate": "2026-01-01", "items": [{"quantity": 1}, {"quantity": 2}]}])
    [(first,), (second,)] = feed.rows("orderItems", "id")
    wrong = {"@operation": "delete", "price": "zz", "product": "code:none", "order": "code:none"}
    assert feed.good(orderItems=[{"id": first, **wrong}]) == {"orderItems": {"deleted": 1}}
    report = feed.send(orderItems=[wrong])  # without an id, its values identify it
    assert ("orderItems[0].price", "invalid_value") in errors(report)
    assert feed.rows("orderItems", "id") == [(second,)]


def test_the_values_of_an_update_are_checked_although_a_delete_has_the_same_row(feed: Feed) -> None:
    feed.good(products=[{"code": "A", "name": "a"}])
    report = feed.send(
        products=[{"@operation": "update", "code": "A", "price": "a lot"}, {"@operation": "delete", "code": "A", "price": "a lot"}]
    )
    assert errors(report)[:2] == [("products[0].price", "invalid_value"), ("products[1]", "duplicate_record")]


@pytest.mark.parametrize("operation", ["upsert", "create", "delete"])
@pytest.mark.parametrize("path", ["small", "large"])
def test_an_id_that_cannot_be_stored_is_the_only_error_of_its_record(feed: Feed, operation: str, path: str) -> None:
    record = {"@operation": operation, "id": "code:A\0", "name": "a"}
    feed.good(units=[{"code": "A", "name": "a"}])
    others = [{"code": f"U{n}", "name": "u"} for n in range(2000 if path == "large" else 1)]
    report = feed.send({"@atomic": False, "units": [record, *others]})
    assert errors(report) == [("units[0].id", "invalid_value")]
    assert report["errors"][0]["record"] == "code:A\N{REPLACEMENT CHARACTER}"
    assert report["entities"]["units"]["failed"] == 1
