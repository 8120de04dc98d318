"""Child arrays: all children of their parent, unless @mode or @removeAll says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from tests.feed.conftest import Feed, errors

pytestmark = pytest.mark.slow


@pytest.fixture
def product(feed: Feed) -> Feed:
    """A company with a product P that has the variants A, B and C, and an empty product Q."""
    feed.write("""
        with p as (insert into data.products (code, name) values ('P', 'p'), ('Q', 'q') returning id, code)
        insert into data.product_variants (product_id, code, name)
            select id, upper(c), c from p, unnest('{a,b,c}'::text[]) c where p.code = 'P'
    """)
    return feed


def variants(feed: Feed) -> list[tuple[Any, ...]]:
    return feed.ask(
        'select p.code, v.code, v.name from api."productVariants" v join api.products p on p.id = v."productId" order by 1, 2'
    )


ARRAYS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    # record of P and @mode of the document, counts of the variants, codes of the remaining ones
    ({}, {}, "ABC"),
    ({"variants": [{"code": "A"}, {"code": "B"}]}, {"deleted": 1, "unchanged": 2}, "AB"),
    ({"variants": [{"code": "C"}, {"code": "D"}]}, {"created": 1, "deleted": 2, "unchanged": 1}, "CD"),
    ({"variants": []}, {"deleted": 3}, ""),
    ({"variants": None}, {"deleted": 3}, ""),
    ({"variants": {"code": "B"}}, {"deleted": 2, "unchanged": 1}, "B"),
    ({"variants": [{"code": "B"}], "variants@removeAll": True}, {"deleted": 2, "unchanged": 1}, "B"),
    ({"variants@removeAll": True, "variants": [{"code": "B"}]}, {"deleted": 2, "unchanged": 1}, "B"),
    ({"variants": [{"code": "D"}], "variants@removeAll": False}, {"created": 1}, "ABCD"),
    ({"variants@removeAll": False, "variants": [{"code": "D"}]}, {"created": 1}, "ABCD"),
    ({"variants": [{"code": "D"}], "variants@removeAll": None}, {"created": 1, "deleted": 3}, "D"),
    ({"variants": [], "variants@removeAll": False}, {}, "ABC"),
    ({"@mode": "merge", "variants": [{"code": "D"}]}, {"created": 1}, "ABCD"),
    ({"@mode": "merge", "variants": [{"code": "D"}], "variants@removeAll": True}, {"created": 1, "deleted": 3}, "D"),
    ({"@mode": "merge", "variants": [{"code": "D"}], "variants@removeAll": None}, {"created": 1}, "ABCD"),
    ({"@mode": "array", "variants": [{"code": "D"}]}, {"created": 1, "deleted": 3}, "D"),
]


@pytest.mark.parametrize(("record", "counted", "left"), ARRAYS, ids=range(len(ARRAYS)))
def test_a_child_array_is_the_whole_content(product: Feed, record: dict[str, Any], counted: dict[str, int], left: str) -> None:
    top = {"@mode": record["@mode"]} if "@mode" in record else {}
    record = {"code": "P", **{name: value for name, value in record.items() if name != "@mode"}}
    before, last = product.rows("products", "id", "name", order="code"), product.log()[-1][0]
    assert product.good({**top, "products": [record]}) == {
        "products": {"unchanged": 1}, **({"productVariants": counted} if counted else {})}  # fmt: skip
    assert "".join(code for _, code, _ in variants(product)) == left
    assert product.rows("products", "id", "name", order="code") == before
    changed = sum(n for kind, n in counted.items() if kind != "unchanged")
    expected = ["productVariants"] * changed + (["products"] if changed else [])
    assert sorted(entity for n, entity, _, _ in product.log() if n > last) == expected


def test_a_child_moves_to_another_parent(product: Feed) -> None:
    assert product.good(products=[{"code": "Q", "variants": [{"code": "B", "name": "moved"}]}]) == {
        "products": {"unchanged": 1}, "productVariants": {"updated": 1}}  # fmt: skip
    assert variants(product) == [("P", "A", "a"), ("P", "C", "c"), ("Q", "B", "moved")]
    touched = {columns[0] for _, entity, _, columns in product.log()[-3:] if entity == "products"}
    assert touched == {"variants"}


def test_children_exchange_their_parents(product: Feed) -> None:
    product.good(products=[{"code": "Q", "variants": [{"code": "A"}, {"code": "B"}]}, {"code": "P", "variants": [{"code": "C"}]}])
    assert [(p, v) for p, v, _ in variants(product)] == [("P", "C"), ("Q", "A"), ("Q", "B")]


def test_children_may_be_records_of_their_own(product: Feed) -> None:
    counted = product.good(
        productVariants=[{"code": "D", "product": "code:Q"}, {"code": "A", "name": "x"}],
        products=[{"code": "P", "variants": [{"code": "B"}]}],
    )
    assert counted == {"products": {"unchanged": 1}, "productVariants": {"created": 1, "updated": 1, "unchanged": 1, "deleted": 1}}
    assert variants(product) == [("P", "A", "x"), ("P", "B", "b"), ("Q", "D", None)]


def test_a_child_is_identified_by_its_id(feed: Feed) -> None:
    feed.good(
        orders=[
            {"code": "O", "orderDate": "2024-01-01", "items": [{"quantity": 1}, {"quantity": 2}]},
            {"code": "P", "orderDate": "2024-01-01"},
        ]
    )
    (one,), (two,) = feed.rows("orderItems", "id", order="quantity")
    assert feed.good(orders=[{"code": "O", "items": [{"id": two, "quantity": 1}, {"id": f"id:{one}", "quantity": 2}]}]) == {
        "orders": {"unchanged": 1}, "orderItems": {"updated": 2}}  # fmt: skip
    assert feed.rows("orderItems", "id", "quantity") == [(one, 2), (two, 1)]
    assert feed.good(orders=[{"code": "P", "items": [{"id": one}]}]) == {"orders": {"unchanged": 1}, "orderItems": {"updated": 1}}
    report = feed.send(orders=[{"code": "O", "items": [{"id": 999999999}, {"id": two}, {"id": two}, {"id": "code:x"}]}])
    assert errors(report) == [
        ("orders[0].items[0].id", "not_found"), ("orders[0].items[2]", "duplicate_record"), ("orders[0].items[3].id", "invalid_value"),
    ]  # fmt: skip


def test_a_failing_child_fails_its_record_and_removes_nothing(product: Feed) -> None:
    before = product.stored()
    report = product.send({"@atomic": False, "products": [
        {"code": "P", "name": "new", "variants": [{"code": "D"}, {"code": "B", "price": "x"}]},
        {"code": "Q", "variants": [{"code": "A", "nothing": 1}]},
        {"code": "R", "name": "r", "variants": [{"code": "E"}, "F"]},
    ]})  # fmt: skip
    assert errors(report) == [
        ("products[2].variants[1]", "invalid_value"), ("products[0].variants[1].price", "invalid_value"),
        ("products[1].variants[0].nothing", "unknown_field"),
    ]  # fmt: skip
    assert {e["path"]: e["record"] for e in report["errors"]} == {
        "products[2].variants[1]": "code:R", "products[0].variants[1].price": "code:B", "products[1].variants[0].nothing": "code:A"}  # fmt: skip
    assert report["entities"] == {
        "products": {"created": 0, "updated": 0, "deleted": 0, "unchanged": 0, "failed": 3},
        "productVariants": {"created": 0, "updated": 0, "deleted": 0, "unchanged": 0, "failed": 4},
    }
    assert product.stored() == before


def test_a_failed_child_protects_its_row(product: Feed) -> None:
    """The document names it, so it is not removed."""
    report = product.send(
        {
            "@atomic": False,
            "productVariants": [{"code": "B", "price": "x"}],
            "products": [{"code": "P", "variants": [{"code": "A"}]}],
        }
    )
    assert errors(report) == [("productVariants[0].price", "invalid_value")]
    assert [v for _, v, _ in variants(product)] == ["A", "B"]


@pytest.mark.parametrize(("record", "wrong"), [
    ({"variants@removeAll": True}, "products[0].variants@removeAll"),
    ({"variants@removeAll": "yes", "variants": []}, "products[0].variants@removeAll"),
    ({"variants@removeAll": 1, "variants": []}, "products[0].variants@removeAll"),
    ({"orderItems@removeAll": True}, "products[0].orderItems@removeAll"),
])  # fmt: skip
def test_an_invalid_directive_fails_its_record(product: Feed, record: dict[str, Any], wrong: str) -> None:
    assert errors(product.send(products=[{"code": "P", **record}])) == [(wrong, "invalid_directive")]
    assert len(variants(product)) == 3


def test_new_and_renamed_parents_have_children(product: Feed) -> None:
    assert product.good(products=[{"id": "code:P", "code": "N", "variants": [{"id": "code:A", "code": "Z"}]}, {"code": "S", "name": "s", "variants": {"code": "T"}}]) == {
        "products": {"created": 1, "updated": 1}, "productVariants": {"created": 1, "updated": 1, "deleted": 2}}  # fmt: skip
    assert variants(product) == [("N", "Z", "a"), ("S", "T", None)]


@pytest.mark.parametrize(("says", "wrong"), [
    ({"product": "code:P"}, False), ({"productId": "{id}"}, False), ({"product": "code:Q"}, True), ({"product": "code:NEW"}, True),
])  # fmt: skip
def test_a_child_may_name_only_the_parent_that_contains_it(product: Feed, says: dict[str, str], wrong: bool) -> None:
    [(row,)] = product.ask("select id from api.products where code = 'P'")
    says = {name: value.format(id=row) for name, value in says.items()}
    report = product.send({"@atomic": False, "@mode": "merge", "products": [
        {"code": "P", "variants": [{"code": "A", "name": "new", **says}]}, {"code": "Q", "name": "q"}, {"code": "NEW", "name": "n"},
    ]})  # fmt: skip
    assert errors(report) == ([("products[0].variants[0].product", "invalid_value")] if wrong else [])
    assert next(name for _, code, name in variants(product) if code == "A") == ("a" if wrong else "new")


def test_an_item_may_name_only_the_order_that_contains_it(feed: Feed) -> None:
    orders = [{"code": "O", "orderDate": "2026-01-01", "items": [{"order": "code:O", "quantity": 1}]},
              {"code": "R", "orderDate": "2026-01-01", "items": [{"order": "code:O", "quantity": 1}]}]  # fmt: skip
    assert errors(feed.send({"@atomic": False, "orders": orders})) == [("orders[1].items[0].order", "invalid_value")]
