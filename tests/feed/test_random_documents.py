"""Random documents: the report matches the database, and the same document again changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.feed.conftest import Feed, counts

pytestmark = pytest.mark.slow

CODES = st.sampled_from(["A", "B", "C", "D"])
LOOKUPS: st.SearchStrategy[Any] = st.one_of(
    CODES.map("code:{}".format), st.sampled_from([None, "", "x", "code:", 1, "id:1", 999999999, {}, "barcode:1"])
)
NAMES = st.sampled_from(["n", "", None, "\0", "\x01", 7, True])
NUMBERS = st.sampled_from([1, "2", "x", None, 1e300, "0.00005", "NaN"])


def record(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(required, optional=optional)


VARIANTS = record({"code": CODES}, {"name": NAMES, "price": NUMBERS, "id": LOOKUPS, "nothing": NAMES})
PRODUCTS = record(
    {"name": st.just("n")},
    {
        "code": CODES, "id": LOOKUPS, "price": NUMBERS, "barcode": st.sampled_from(["1", "2", None]), "category": LOOKUPS,
        "variants": st.lists(VARIANTS, max_size=3) | st.none(), "variants@removeAll": st.booleans(),
    },
)  # fmt: skip
CATEGORIES = record({"code": CODES}, {"name": NAMES, "parent": LOOKUPS, "id": LOOKUPS})
ITEMS = record(
    {}, {"product": LOOKUPS, "quantity": NUMBERS, "price": NUMBERS, "description": NAMES, "id": st.sampled_from([None, 1, "id:2"])}
)
ORDERS = record({"code": CODES, "orderDate": st.just("2024-01-01")}, {"items": st.lists(ITEMS, max_size=4), "note": NAMES})
DOCUMENTS = st.fixed_dictionaries(
    {"@atomic": st.sampled_from([False, False, True, "batch"])},
    optional={
        "products": st.lists(PRODUCTS, max_size=4), "categories": st.lists(CATEGORIES, max_size=4), "orders": st.lists(ORDERS, max_size=3),
        "productVariants": st.lists(VARIANTS, max_size=2),
    },
)  # fmt: skip


@settings(max_examples=15)
@given(DOCUMENTS)
def test_the_report_of_a_random_document_is_true(feed: Feed, document: dict[str, Any]) -> None:
    before, log = feed.stored(), len(feed.log())
    tried = feed.send(document, dry_run=True)
    assert (feed.stored(), len(feed.log())) == (before, log)
    report = feed.send(document)
    assert [report[k] for k in ("state", "entities", "errors")] == [tried[k] for k in ("state", "entities", "errors")]
    assert all(error["path"] and error["message"] for error in report["errors"])
    after = feed.stored()
    for entity, each in report["entities"].items():
        assert len(after[entity]) - len(before[entity]) == each["created"] - each["deleted"]
    wrote = sum(n for each in counts(report).values() for kind, n in each.items() if kind in ("created", "updated", "deleted"))
    assert (len(feed.log()) > log) == (wrote > 0) and len(feed.log()) - log <= 3 * wrote
    if report["state"] == "completed":
        again = feed.send(document)
        assert again["state"] == "completed", again
        assert all(each.keys() <= {"unchanged"} for each in counts(again).values()), again
        assert feed.stored() == after
