"""Linkage: items without an identity are matched with rows by their values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from bench.linkage import HARD, STORED, USUAL, Changes, judge
from tests.chance import seeds
from tests.feed.conftest import Feed

pytestmark = pytest.mark.slow

Items = list[dict[str, Any]]


@pytest.fixture
def invoice(feed: Feed) -> Callable[[Items], dict[str, int]]:
    """Sends the items of an invoice; returns their counts."""
    feed.good(products=[{"code": code, "name": code} for code in "ABCD"])

    def send(items: Items) -> dict[str, int]:
        counted: dict[str, dict[str, int]] = feed.good(invoices=[{"code": "I", "invoiceDate": "2024-01-01", "items": items}])
        return counted.get("invoiceItems", {})

    return send


def item(text: str) -> dict[str, Any]:
    """'A2' is two of product A; 'A2@5' at the price 5."""
    what, _, price = text.partition("@")
    return {"product": f"code:{what[0]}", "quantity": what[1:], **({"price": price} if price else {})}


CHANGES: list[tuple[str, str, dict[str, int]]] = [
    # items before, items afterwards, counts
    ("A1 B2 C3", "A1 B2 C3", {"unchanged": 3}),
    ("A1 B2 C3", "C3 A1 B2", {"unchanged": 3}),
    ("A1 B2 C3", "A1 B5 C3", {"updated": 1, "unchanged": 2}),
    ("A1 B2 C3", "C3 B5 A1", {"updated": 1, "unchanged": 2}),
    ("A1 A1 A1", "A1 A1 A1", {"unchanged": 3}),
    ("A1 A1 A1", "A1 A2 A1", {"updated": 1, "unchanged": 2}),
    ("A1 A1 A1", "A1 A1", {"deleted": 1, "unchanged": 2}),
    ("A1 A1", "A1 A1 A1", {"created": 1, "unchanged": 2}),
    ("A1 A1 B2", "A1 A2 B2", {"updated": 1, "unchanged": 2}),
    ("A1 A2 A3", "A3 A1 A7", {"updated": 1, "unchanged": 2}),
    ("A1@1 B1@1", "A1@1 B1@9", {"updated": 1, "unchanged": 1}),
    ("A1 B2", "A1 B2 C3", {"created": 1, "unchanged": 2}),
    ("A1 B2", "", {"deleted": 2}),
    ("A1@3", "D9@8", {"created": 1, "deleted": 1}),
    ("", "A1", {"created": 1}),
]


@pytest.mark.parametrize(("before", "then", "counted"), CHANGES)
def test_items_are_matched(
    feed: Feed, invoice: Callable[[Items], dict[str, int]], before: str, then: str, counted: dict[str, int]
) -> None:
    invoice([item(text) for text in before.split()])
    ids = {id for (id,) in feed.rows("invoiceItems", "id")}
    assert invoice([item(text) for text in then.split()]) == counted
    kept = {id for (id,) in feed.rows("invoiceItems", "id")} & ids
    assert len(kept) == counted.get("updated", 0) + counted.get("unchanged", 0)
    log, stored = feed.log(), feed.stored()
    assert invoice([item(text) for text in then.split()]).keys() <= {"unchanged"}
    assert (feed.log(), feed.stored()) == (log, stored)


def test_one_changed_quantity_changes_one_item(feed: Feed, invoice: Callable[[Items], dict[str, int]]) -> None:
    """Also among duplicates: the others keep their rows and their updatedAt."""
    items = [{"product": "code:A", "quantity": 1, "price": 2}] * 5 + [{"product": "code:B", "quantity": 1, "price": 2}] * 5
    invoice(items)
    before = dict(feed.rows("invoiceItems", "id", "updatedAt"))
    assert invoice([*items[:2], {**items[2], "quantity": 7}, *items[3:]]) == {"updated": 1, "unchanged": 9}
    after = dict(feed.rows("invoiceItems", "id", "updatedAt"))
    assert after.keys() == before.keys()
    assert sum(after[id] != before[id] for id in before) == 1
    assert [(e, o, c) for _, e, o, c in feed.log()[-2:]] == [
        ("invoiceItems", "update", ["quantity"]),
        ("invoices", "update", ["items"]),
    ]


def test_an_item_with_fewer_fields_keeps_the_others(feed: Feed, invoice: Callable[[Items], dict[str, int]]) -> None:
    invoice(
        [
            {"product": "code:A", "quantity": 1, "price": 2, "description": "a"},
            {"product": "code:A", "quantity": 1, "price": 2, "description": "b"},
        ]
    )
    assert invoice([{"description": "b"}, {"description": "a"}]) == {"unchanged": 2}
    assert invoice([{"product": "code:A"}, {"product": "code:A", "description": "a", "price": None}]) == {
        "unchanged": 1,
        "updated": 1,
    }
    assert feed.rows("invoiceItems", "description", "price", "quantity") == [("a", None, 1), ("b", 2, 1)]
    assert invoice([{}, {}]) == {"unchanged": 2}
    assert invoice([{"description": "a"}, {}, {}]) == {"created": 1, "unchanged": 2}


def test_null_matches_null(invoice: Callable[[Items], dict[str, int]]) -> None:
    items: Items = [{"product": None, "quantity": 1, "description": None}, {"product": "code:A", "quantity": None, "price": None}]
    assert invoice(items) == {"created": 2}
    assert invoice(items) == {"unchanged": 2}


def test_items_are_matched_within_their_parent(feed: Feed) -> None:
    orders = [{"code": str(n), "orderDate": "2024-01-01", "items": [{"quantity": 1, "description": "same"}] * 2} for n in range(3)]
    assert feed.good(orders=orders)["orderItems"] == {"created": 6}
    ids = feed.rows("orderItems", "id", "orderId")
    assert feed.good(orders=[orders[2], {**orders[0], "items": []}, orders[1]])["orderItems"] == {"unchanged": 4, "deleted": 2}
    assert set(feed.rows("orderItems", "id", "orderId")) < set(ids)


def test_top_level_items_are_matched_within_the_parent_that_they_name(feed: Feed) -> None:
    feed.good(
        products=[{"code": "A", "name": "a"}],
        orders=[{"code": "O", "orderDate": "2024-01-01", "items": [{"product": "code:A", "quantity": 1}]}],
    )
    document = {
        "orderItems": [
            {"order": "code:O", "product": "code:A", "quantity": 4},
            {"order": "code:O", "description": "x", "quantity": 1},
        ]
    }
    assert feed.good(document) == {"orderItems": {"created": 1, "updated": 1}}
    assert feed.good(document) == {"orderItems": {"unchanged": 2}}


def test_the_weights_are_a_table(feed: Feed, invoice: Callable[[Items], dict[str, int]]) -> None:
    """With a high weight of the quantity, another product is a change and not another item."""
    invoice([item("A1"), item("B2")])
    weights = feed.operator.connection
    weights.execute(
        "insert into bds.linkage_weights values ('invoiceItems', 'product', 0.6, 0.4), ('invoiceItems', 'quantity', 0.99, 0.01)"
    )
    try:
        assert invoice([item("D1"), item("C2")]) == {"updated": 2}
    finally:
        weights.execute("delete from bds.linkage_weights where entity = 'invoiceItems'")
    assert invoice([item("A1"), item("B2")]) == {"created": 2, "deleted": 2}


@pytest.mark.parametrize("changes", [USUAL, HARD])
def test_nearly_every_item_is_matched(feed: Feed, changes: Changes) -> None:
    score = judge(lambda document: feed.send(document)["entities"], lambda: feed.ask(STORED, feed.company), 4_000, changes)
    assert min(score.precision, score.recall) >= changes.target, score


@pytest.mark.parametrize("others", ["", "B2@9 C3@8", "B1@1 C2@2 D3@3"])
def test_the_only_line_of_its_product_is_the_same_line(feed: Feed, invoice: Callable[[Items], dict[str, int]], others: str) -> None:
    """Although its quantity, price and description change: among the parent's items the product is rare."""
    beside = [{**item(text), "description": text} for text in others.split()]
    invoice([{**item("A1@5"), "description": "old"}, *beside])
    ids = feed.rows("invoiceItems", "id")
    assert invoice([*beside, {**item("A7@6"), "description": "new"}]).get("updated") == 1
    assert feed.rows("invoiceItems", "id") == ids


def test_a_frequent_value_says_less(feed: Feed, invoice: Callable[[Items], dict[str, int]]) -> None:
    """A product that every line has does not make a line the same; the same changes with a rare one do."""
    same = [{**item(f"A{n}@{n}"), "description": f"{n}"} for n in range(1, 9)]
    invoice(same)
    new = {"product": "code:A", "quantity": 99, "price": 99, "description": "99"}
    assert invoice([new, *same[1:]]) == {"created": 1, "deleted": 1, "unchanged": 7}
    invoice([{**same[0], "product": "code:B"}, *same[1:]])
    assert invoice([{**new, "product": "code:B"}, *same[1:]]) == {"updated": 1, "unchanged": 7}


def test_many_changed_items_of_one_parent_are_matched(feed: Feed) -> None:
    """Without scoring all of the 16 million pairs."""
    items = [{"description": f"item {n}", "quantity": 1, "price": n % 7} for n in range(4_000)]
    feed.good(invoices=[{"code": "I", "invoiceDate": "2024-01-01", "items": items}])
    changed = [{**item, "quantity": 2} for item in reversed(items)]
    assert feed.good(invoices=[{"code": "I", "items": changed}]) == {
        "invoices": {"unchanged": 1},
        "invoiceItems": {"updated": 4_000},
    }


def test_a_few_changed_items_are_matched_behind_many_new_ones(feed: Feed) -> None:
    old = [{"description": f"item {n}", "quantity": 1, "price": n} for n in range(3)]
    feed.good(invoices=[{"code": "I", "invoiceDate": "2024-01-01", "items": old}])
    new = [{"description": f"new {n}", "quantity": 3, "price": 9 + n} for n in range(97)]
    assert feed.good(invoices=[{"code": "I", "items": [*new, *({**item, "quantity": 2} for item in old)]}]) == {
        "invoices": {"unchanged": 1},
        "invoiceItems": {"created": 97, "updated": 3},
    }


@pytest.mark.parametrize("items", [
    [{"product": "code:P1"}, {"quantity": 1, "price": None}], [{"quantity": 2}, {"description": None}],
    [{"quantity": 1, "price": 1}, {"quantity": 1, "description": None}], [{"quantity": 2}, {"price": None}],
    [{"quantity": None}], [{"quantity": None}, {"quantity": None, "price": 2}, {}], [{"quantity": None}, {"quantity": 1}],
])  # fmt: skip
def test_items_with_few_fields_are_matched_again(feed: Feed, items: Items) -> None:
    document = {"orders": [{"code": "O", "orderDate": "2026-01-01", "items": items}]}
    feed.good({"products": [{"code": "P1", "name": "p"}], **document})
    for _ in range(2):
        assert feed.good(document) == {"orders": {"unchanged": 1}, "orderItems": {"unchanged": len(items)}}


def test_random_orders_sent_again_change_nothing(feed: Feed) -> None:
    chance = random.Random(7)
    values = {"product": ["code:P1", "code:P2", None], "quantity": [1, 2, None], "price": [1, 2, None], "description": ["a", None]}

    def item() -> dict[str, Any]:
        return {name: chance.choice(values[name]) for name in chance.sample(list(values), chance.randint(0, 4))}

    def orders() -> list[dict[str, Any]]:
        return [
            {"code": f"O{n}", "orderDate": "2026-01-01", "items": [item() for _ in range(chance.randint(1, 7))]} for n in range(800)
        ]

    feed.good(products=[{"code": "P1", "name": "1"}, {"code": "P2", "name": "2"}])
    for sent in (orders(), orders(), orders()):  # first without stored items, then with others, some of them similar
        feed.good(orders=sent)
        stored = feed.stored()
        assert {name: list(each) for name, each in feed.good(orders=sent).items()} == {
            "orders": ["unchanged"],
            "orderItems": ["unchanged"],
        }
        assert feed.stored() == stored


@pytest.mark.parametrize("seed", seeds(4))
def test_random_ragged_orders_sent_again_change_nothing(feed: Feed, seed: int) -> None:
    """2,000 of them, each over the rows of another one; in another order, too, each item still finds a row that it fits."""
    chance = random.Random(seed)
    values = {
        "product": ["code:P1", "code:P2", None],
        "quantity": [1, 2, None],
        "price": [1, 2, 3, None],
        "description": ["a", "b", "", None],
    }

    def items(n: int) -> Items:
        give = chance.choice((0.3, 0.6, 0.9))
        return [{k: chance.choice(v) for k, v in values.items() if chance.random() < give} for _ in range(n)]

    def orders(*, longest: int) -> Items:
        return [{"code": f"O{n}", "orderDate": "2026-01-01", "items": items(chance.randint(1, longest))} for n in range(500)]

    feed.good(products=[{"code": "P1", "name": "1"}, {"code": "P2", "name": "2"}], orders=orders(longest=9))
    sent = orders(longest=9)
    for order in sent[::5]:  # of some orders no more than the order of the items and a few values change
        chance.shuffle(order["items"])
    feed.good(orders=sent)
    stored = feed.stored()
    shuffled = [{**order, "items": chance.sample(order["items"], len(order["items"]))} for order in sent]
    for document in (sent, shuffled, sent):
        assert feed.good(orders=document)["orderItems"].keys() == {"unchanged"}
        assert feed.stored() == stored


def test_items_of_a_long_order_are_matched_by_some_of_their_fields(feed: Feed) -> None:
    """Each still fits the row that was made from it, although another item may be linked to that row first."""
    chance = random.Random(1)
    whole = [
        {
            "product": f"code:P{chance.randint(1, 3)}",
            **{name: chance.randint(1, 3) for name in ("quantity", "price", "description")},
        }
        for _ in range(600)
    ]
    parts = [{name: value for name, value in item.items() if chance.random() < 0.85} for item in whole]
    feed.good(products=[{"code": f"P{n}", "name": "p"} for n in (1, 2, 3)])
    feed.good(orders=[{"code": "O", "orderDate": "2026-01-01", "items": whole}])
    stored = feed.stored()
    for _ in range(2):
        assert feed.good(orders=[{"code": "O", "items": parts}])["orderItems"] == {"unchanged": len(parts)}
        chance.shuffle(parts)
    assert feed.stored() == stored


FREE = {"description": "Discount", "quantity": 1, "price": 90}
KEPT: list[tuple[str, Items, Items, dict[str, int]]] = [
    # what it shows, stored lines, lines that are merged into them, counts
    ("quantity alone agrees", [FREE], [{"description": "Delivery", "quantity": 1, "price": 10}], {"created": 1}),
    ("quantity and price agree", [FREE], [{**FREE, "description": "Delivery"}], {"created": 1}),
    ("another product", [{"product": "code:A", **FREE}], [{"product": "code:B", "quantity": 1, "price": 90}], {"created": 1}),
    ("another price", [FREE], [{"quantity": 1, "price": 91}], {"created": 1}),
    ("the text is equal", [FREE], [{**FREE, "quantity": 3}], {"updated": 1}),
    ("the product is equal", [{"product": "code:A", **FREE}], [{"product": "code:A", "description": "x", "price": 1}], {"updated": 1}),
    ("all that is given agrees", [FREE], [{"quantity": 1, "price": 90}], {"unchanged": 1}),
    ("null equals nothing", [{"quantity": 1, "price": 90}], [{"description": None, "quantity": 1, "price": 10}], {"created": 1}),
    ("nor does the empty text", [{**FREE, "description": ""}], [{**FREE, "description": "", "price": 10}], {"created": 1}),
    ("null agrees with null", [{"quantity": 1, "price": 90}], [{"description": None, "quantity": 1}], {"unchanged": 1}),
    ("a line of each", [FREE, FREE], [FREE, {**FREE, "price": 1}, {**FREE, "description": "x"}], {"unchanged": 1, "updated": 1, "created": 1}),
]  # fmt: skip


@pytest.mark.parametrize("way", ["merge", "not removed", "top level"])
@pytest.mark.parametrize(("before", "then", "counted"), [each[1:] for each in KEPT], ids=[each[0] for each in KEPT])
def test_where_lines_stay_a_line_is_taken_only_by_one_that_means_it(
    feed: Feed, way: str, before: Items, then: Items, counted: dict[str, int]
) -> None:
    feed.good(products=[{"code": code, "name": code} for code in "AB"])
    feed.good(orders=[{"code": "O", "orderDate": "2026-01-01", "items": before}])
    document = {
        "merge": {"@mode": "merge", "orders": [{"code": "O", "items": then}]},
        "not removed": {"orders": [{"code": "O", "items": then, "items@removeAll": False}]},
        "top level": {"orderItems": [{"order": "code:O", **line} for line in then]},
    }[way]
    assert feed.good(document)["orderItems"] == counted
    stored = feed.stored()
    assert feed.good(document)["orderItems"] == {"unchanged": len(then)}
    assert feed.stored() == stored


@pytest.mark.parametrize("way", ["array", "removed", "top level"])
def test_where_other_lines_go_a_line_may_get_another_text(feed: Feed, way: str) -> None:
    feed.good(orders=[{"code": "O", "orderDate": "2026-01-01", "items": [FREE]}])
    line = {**FREE, "description": "Delivery"}
    document = {
        "array": {"orders": [{"code": "O", "items": [line]}]},
        "removed": {"@mode": "merge", "orders": [{"code": "O", "items": [line], "items@removeAll": True}]},
        "top level": {"orderItems": [{"order": "code:O", **line}], "orderItems@removeAll": True},
    }[way]
    assert feed.good(document)["orderItems"] == {"updated": 1}
