"""Linkage of 240 orders in each mode: what became of each line is known, and each line of the document is judged.

A label names the stored row that a sent line means, or none for a new line.  In merge mode what changed is sent, with some of the
other lines.  An added line has a product or a text that no stored line of its order has: otherwise the document does not tell
whether it is added.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.feed.conftest import Feed

pytestmark = pytest.mark.slow

ORDERS = 240
Line = dict[str, Any]
Content = tuple[Any, ...]
Labelled = tuple[int | None, Line]  # the number of the stored line that is meant, and the line as sent
Case = Callable[[random.Random, list[Line]], list[Labelled]]

STORED = """
select i.order_id, i.id, p.code, i.quantity, i.price, i.description from data.order_items i
left join data.products p on p.company_id = i.company_id and p.id = i.product_id where i.company_id = %s order by i.id
"""


def a_product(chance: random.Random, n: int) -> Line:
    product = chance.randrange(50) * 10 + n  # no two lines of an order have one
    return {
        "product": f"code:P{product}",
        "quantity": chance.choice((1, 1, 1, 2, 3, 6, 12)),
        "price": chance.choice((10, 25)) if chance.random() < 0.3 else chance.randrange(100, 10_000) / 100,
        "description": f"Article {product}",
    }


def a_text(chance: random.Random, n: int, **values: Any) -> Line:
    what = ("Delivery", "Discount", "Packing", "Insurance", "Customs", "Assembly", "Training", "Storage", "Travel", "Tax")[n]
    return {"product": None, "quantity": 1, "price": chance.randrange(100, 90_000) / 100, "description": what, **values}


def products(chance: random.Random) -> list[Line]:
    return [a_product(chance, n) for n in range(chance.randint(1, 8))]


def texts(chance: random.Random) -> list[Line]:
    return [a_text(chance, n) for n in range(chance.randint(1, 8))]


def both(chance: random.Random) -> list[Line]:
    return chance.sample(lines := products(chance) + texts(chance), len(lines))


def twins(chance: random.Random) -> list[Line]:
    return [line for line in products(chance) for _ in range(2)]


def near_twins(chance: random.Random) -> list[Line]:
    """Lines of one product that differ in quantity, price and text."""
    return [{**line, "product": "code:P1"} for line in products(chance)]


def same(chance: random.Random, lines: list[Line]) -> list[Labelled]:
    return list(enumerate(lines))


def edited(*fields: str) -> Case:
    """One line with new values of these fields."""

    def case(chance: random.Random, lines: list[Line]) -> list[Labelled]:
        at = chance.randrange(len(lines))
        new = {"quantity": lines[at]["quantity"] + chance.randint(1, 9), "price": round(lines[at]["price"] * 1.07 + 0.01, 2)}
        new |= {"description": f"{lines[at]['description']}, boxed", "product": a_product(chance, 9)["product"]}
        return [(n, {**line, **{f: new[f] for f in fields}} if n == at else line) for n, line in enumerate(lines)]

    return case


def added(make: Callable[..., Line], **values: Any) -> Case:
    def case(chance: random.Random, lines: list[Line]) -> list[Labelled]:
        labelled = same(chance, lines)
        labelled.insert(chance.randint(0, len(lines)), (None, {**make(chance, 9), **values}))
        return labelled

    return case


def added_like_another(chance: random.Random, lines: list[Line]) -> list[Labelled]:
    """A new line has the quantity and the price of a stored one."""
    other = chance.choice(lines)
    return added(a_product, quantity=other["quantity"], price=other["price"])(chance, lines)


def deleted(chance: random.Random, lines: list[Line]) -> list[Labelled]:
    return chance.sample(same(chance, lines), len(lines) - 1)


def moved(case: Case) -> Case:
    return lambda chance, lines: chance.sample(labelled := case(chance, lines), len(labelled))


def swapped(chance: random.Random, lines: list[Line]) -> list[Labelled]:
    """Two lines exchange quantity and price."""
    one, other = chance.sample(range(len(lines)), 2) if len(lines) > 1 else (0, 0)
    from_ = {one: lines[other], other: lines[one]}
    return [
        (n, {**line, "quantity": from_.get(n, line)["quantity"], "price": from_.get(n, line)["price"]})
        for n, line in enumerate(lines)
    ]


KINDS: list[tuple[Callable[[random.Random], list[Line]], Case]] = [
    *[(stored, case) for stored in (both, twins, near_twins) for case in (same, moved(same), deleted, edited("quantity"))],
    *[(stored, case) for stored in (products, texts) for case in (added(a_product), added(a_text), added_like_another, swapped)],
    *[(products, edited(*fields)) for fields in (["price"], ["product"], ["description"], ["quantity", "price", "description"])],
    *[(texts, edited(*fields)) for fields in (["quantity"], ["price"], ["quantity", "price"])],
    (texts, added(a_text, quantity=1, price=10)),
    (both, moved(edited("quantity", "price"))),
    (products, edited("product", "description")),  # in its place: only where rows go that no line takes does it mean the stored one
]


def content(line: Line) -> Content:
    product = line["product"]
    return (product and product.removeprefix("code:"), float(line["quantity"]), float(line["price"]), line["description"])


def as_merged(chance: random.Random, labelled: list[Labelled], lines: list[Line]) -> list[Labelled]:
    """What changed, and some of the others; a line with another product and another text is another line."""
    some = [(n, line) for n, line in labelled if n is None or line != lines[n] or chance.random() < 0.3]
    return [
        (None if n is not None and all(line[f] != lines[n][f] for f in ("product", "description")) else n, line) for n, line in some
    ]


def stored(feed: Feed) -> dict[int, dict[int, Content]]:
    """The lines of each order by their ids."""
    lines: dict[int, dict[int, Content]] = {}
    for order, id, product, quantity, price, text in feed.ask(STORED, feed.company):
        lines.setdefault(order, {})[id] = (product, float(quantity), float(price), text)
    return lines


def judge(labelled: list[Labelled], before: dict[int, Content], after: dict[int, Content], mode: str) -> tuple[int, int, int]:
    """(links made, links that were meant, links made as they were meant) in an order; equal stored lines may change places."""
    ids = list(before)
    right = 0
    for twins in {line: [n for n, id in enumerate(ids) if before[id] == line] for line in before.values()}.values():
        wanted = Counter(content(line) for n, line in labelled if n in twins)
        unsent = Counter([before[ids[twins[0]]] if mode == "merge" else None] * (len(twins) - wanted.total()))
        right += ((Counter(after.get(ids[n]) for n in twins) - unsent) & wanted).total()
    created = len(after.keys() - before.keys())
    return len(labelled) - created, sum(n is not None for n, _ in labelled), right


@pytest.mark.parametrize(("mode", "least"), [("array", 0.988), ("merge", 1)])
def test_lines_are_linked_as_they_were_meant(feed: Feed, mode: str, least: float) -> None:
    chance = random.Random(20)
    feed.good(products=[{"code": f"P{n}", "name": "p"} for n in range(500)])
    kinds = [KINDS[n % len(KINDS)] for n in range(ORDERS)]
    lines = [make(chance) for make, _ in kinds]
    feed.good(orders=[{"code": f"O{n}", "orderDate": "2026-01-01", "items": each} for n, each in enumerate(lines)])
    before = stored(feed)
    sent = [case(chance, each) for (_, case), each in zip(kinds, lines, strict=True)]
    if mode == "merge":
        sent = [as_merged(chance, labelled, each) for labelled, each in zip(sent, lines, strict=True)]
    document = {"@mode": mode, "orders": [{"code": f"O{n}", "items": [line for _, line in each]} for n, each in enumerate(sent)]}
    feed.good(document)
    after = stored(feed)
    orders = [id for id, _ in feed.rows("orders", "id", "code")]
    judged = [judge(labelled, before[id], after.get(id, {}), mode) for labelled, id in zip(sent, orders, strict=True)]
    made, meant, right = (sum(each) for each in zip(*judged, strict=True))
    missed = [(before[id], after.get(id), labelled) for labelled, id, (_, n, r) in zip(sent, orders, judged, strict=True) if r < n]
    assert right / made == 1, (right, made, missed)
    assert right / meant >= least, (right, meant, missed)
    rows, log = feed.stored(), feed.log()
    feed.good(document)
    assert (feed.stored(), feed.log()) == (rows, log)
