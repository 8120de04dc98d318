"""The names of failed records: a lookup never finds a row by a name that it would only have got."""

from __future__ import annotations

from typing import Any

import pytest

from tests.feed.conftest import Feed, errors

pytestmark = pytest.mark.slow

STORED: dict[str, Any] = {
    "products": [
        {"code": "P1", "name": "1", "barcode": "b1"},
        {"code": "P2", "name": "2", "barcode": "b2"},
        {"code": "P3", "name": "3"},
    ],
    "categories": [{"code": "c1", "name": "1"}, {"code": "c2", "name": "2"}],
}
PARENT = 'select v.code, p.barcode from api."productVariants" v join api.products p on p.id = v."productId" order by 1'


def variant(product: str) -> list[dict[str, Any]]:
    return [{"code": "V", "name": "v", "product": product}]


@pytest.mark.parametrize("atomic", [False, "batch"])
@pytest.mark.parametrize(
    ("products", "product", "barcode"),
    [
        ([{"id": "code:P2", "code": "P1"}], "code:P1", "b1"),
        ([{"id": "code:P2", "barcode": "b1"}], "barcode:b1", "b1"),
        ([{"code": "P1", "barcode": "b2"}], "barcode:b2", "b2"),
        ([{"id": "code:P2", "code": "P9", "price": "x"}], "code:P9", None),
        ([{"code": "P2", "barcode": "b9", "price": "x"}], "barcode:b9", None),
        ([{"id": "code:P2", "name": None}], "code:P2", "b2"),
        ([{"id": "code:P1", "code": "T"}, {"id": "code:P3", "code": "P1"}], "code:P1", "b1"),
    ],
)
def test_a_child_never_finds_its_parent_by_a_refused_name(
    feed: Feed, atomic: Any, products: list[dict[str, Any]], product: str, barcode: str | None
) -> None:
    feed.good(STORED)
    report = feed.send({"@atomic": atomic, "products": products, "productVariants": variant(product)})
    found = feed.ask(PARENT)
    assert errors(report), report
    assert found == ([("V", barcode)] if barcode else [])  # the row that has the name, or none
    assert (("productVariants[0].product", "lookup_not_found") in errors(report)) == (barcode is None)


def test_a_record_never_finds_another_of_its_entity_by_a_refused_name(feed: Feed) -> None:
    feed.good(STORED)
    report = feed.send(
        {"@atomic": False, "categories": [{"id": "code:c2", "code": "c1"}, {"code": "c3", "name": "3", "parent": "code:c1"}]}
    )
    assert errors(report) == [("categories[0].code", "already_exists")]
    parent = 'select p.code from api.categories c join api.categories p on p.id = c."parentId" where c.code = %s'
    assert feed.ask(parent, "c3") == [("c1",)]
    report = feed.send(
        {
            "@atomic": False,
            "categories": [{"id": "code:c1", "code": "k9", "name": None}, {"code": "k2", "name": "2", "parent": "code:k9"}],
        }
    )
    assert errors(report) == [("categories[0].name", "required"), ("categories[1].parent", "lookup_not_found")]


def test_texts_that_begin_with_the_character_of_null(feed: Feed) -> None:
    assert feed.good(units=[{"id": "code:\x01v", "code": "\x01v", "name": "c"}]) == {"units": {"created": 1}}
    report = feed.send(units=[{"id": "code:\x01", "code": "Q", "name": "c"}])
    assert errors(report) == [("units[0].code", "invalid_value")]
    report = feed.send(products=[{"code": "P", "name": "p", "price": "\x01", "category": "\x01x"}])
    assert {e["message"] for e in report["errors"] if e["code"] == "invalid_value"} == {
        "expected a number that fits numeric(19,4), got '\x01'",
        "expected a lookup (id:..., code:...), got '\x01x'",
    }


@pytest.mark.parametrize("atomic", [False, "batch"])
@pytest.mark.parametrize(
    "again", [{"code": "c2", "name": "n2"}, {"id": "code:c2", "name": "n2"}, {"code": "c2", "@operation": "delete"}]
)
def test_a_duplicate_record_of_a_renamed_row_does_not_affect_the_first(feed: Feed, atomic: Any, again: dict[str, Any]) -> None:
    feed.good(STORED)
    rename = {"id": "code:c2", "code": "c4", "parent": "code:c4" if again.get("name") is None else None}
    report = feed.send({"@atomic": atomic, "categories": [{"code": "c8", "name": "8", "parent": "code:c4"}, rename, again]})
    assert errors(report) == [("categories[2]", "duplicate_record")]
    written = atomic is False or "@operation" in again  # a delete is in another batch
    names = 'select c.code, p.code from api.categories c left join api.categories p on p.id = c."parentId" order by 1'
    assert feed.ask(names) == (
        [("c1", None), ("c4", "c4" if "@operation" in again else None), ("c8", "c4")] if written else [("c1", None), ("c2", None)]
    )


@pytest.mark.parametrize("refused", [
    {"id": "code:c2", "code": "c1"}, {"id": "code:c2", "code": "new", "parent": 7.5, "bogus": 1},
    {"id": "code:new", "code": "c1", "name": "n"}, {"id": "code:new", "code": "other", "name": "n", "bogus": 1},
])  # fmt: skip
def test_a_refused_new_name_is_free_for_others(feed: Feed, refused: dict[str, Any]) -> None:
    feed.good(STORED)
    report = feed.send({"@atomic": False, "categories": [refused, {"code": refused["code"], "name": "its own"}]})
    assert {path.split(".")[0] for path, _ in errors(report)} == {"categories[0]"}
    assert (refused["code"], "its own") in feed.rows("categories", "code", "name")
    assert ("c2", "2") in feed.rows("categories", "code", "name")


def test_children_of_a_renamed_row_may_name_it_although_it_has_a_duplicate(feed: Feed) -> None:
    feed.good(STORED)
    first = {"id": "code:P1", "code": "P9", "variants": [{"code": "V", "name": "v", "product": "code:P9"}]}
    report = feed.send({"@atomic": False, "products": [first, {"code": "P1", "name": "again"}]})
    assert errors(report) == [("products[1]", "duplicate_record")]
    assert feed.rows("products", "code", order="code") == [("P2",), ("P3",), ("P9",)]
    assert feed.rows("productVariants", "code") == [("V",)]


def test_a_refused_record_keeps_the_name_in_its_id(feed: Feed) -> None:
    records = [{"id": "code:new", "name": "n", "bogus": 1}, {"code": "new", "name": "again"}]
    report = feed.send({"@atomic": False, "categories": records})
    assert ("categories[1].code", "duplicate_record") in errors(report)
    assert report["entities"]["categories"]["failed"] == 2


@pytest.mark.parametrize("code", ["c1", "new"])
def test_other_names_in_a_delete_are_free_for_others(feed: Feed, code: str) -> None:
    feed.good(STORED)
    gone = {"id": "code:c2", "code": code, "@operation": "delete"}
    assert feed.good(categories=[gone, {"code": code, "name": "its own"}])["categories"]["deleted"] == 1
    named = dict(feed.rows("categories", "code", "name"))
    assert named[code] == "its own" and "c2" not in named
