"""How well items without an identifier are recognised: precision and recall on invoices whose truth is known.

As in real invoices, one item in 42 is of a product that its invoice has already.  Of the items a tenth comes back altered, of the
invoices a fifth with an item added or removed.  The usual set alters one of quantity, price, description and product; the hard one
alters two of them, and puts the items of a third of the invoices into another order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.place import COMPANY, Place, load
from bench.table import Result, say

PRODUCTS = 2_000
TWICE = 1 / 42  # items of a product that the invoice has already: 676 of 28,492
ALTERED = 0.1
CHANGED_INVOICES = 0.2
FIELDS = ("quantity", "price", "description", "product")
SIZES = (1, 2, 3, 5, 8, 13, 21, 34, 55)  # items of an invoice
STORED = """
select i.id, p.code, i.quantity, i.price, i.description
from data.invoice_items i join data.products p on p.company_id = i.company_id and p.id = i.product_id
where i.company_id = %s
"""

Item = dict[str, Any]
Document = dict[str, Any]
Content = tuple[str, float, float, str]


@dataclass(frozen=True, slots=True)
class Changes:
    """What becomes of the invoices: fields of an altered item that are, and the share of invoices in another order."""

    fields: int
    reordered: float
    target: float  # precision and recall to be reached


USUAL = Changes(fields=1, reordered=0, target=0.99)
HARD = Changes(fields=2, reordered=1 / 3, target=0.97)


@dataclass(frozen=True, slots=True)
class Score:
    """precision: links that are right, of those made; recall: of those that there are."""

    precision: float
    recall: float
    links: int


def measure(place: Place, items: int) -> Iterator[Result]:
    """Precision and recall, with the weights that are built in."""
    for name, changes in (("linkage", USUAL), ("linkage, hard", HARD)):
        say(f"{name}: about {items:,} items")
        with place.database(COMPANY) as url:

            def send(document: Document, url: str = url) -> dict[str, Any]:
                path = Path(place.directory) / "linkage.json"
                path.write_text(json.dumps(document))
                return load(url, path)

            with psycopg.connect(url, autocommit=True) as connection:
                score = judge(send, lambda: connection.execute(STORED, (COMPANY,)).fetchall(), items, changes)
        note = f"{score.links:,} links; target: {changes.target}"
        yield Result(f"{name}, precision", "", score.precision, note=note)
        yield Result(f"{name}, recall", "", score.recall, note=note)


def judge(
    send: Callable[[Document], dict[str, Any]],
    stored: Callable[[], list[tuple[Any, ...]]],
    items: int,
    changes: Changes = USUAL,
    seed: int = 1,
) -> Score:
    """Send invoices, then the same altered; compare what became of each item with the truth.

    send: imports a document and returns the counts by entity; stored: (id, product, quantity, price, description) of every item.
    """
    chance = random.Random(seed)
    before = list(_invoices(chance, items))
    send({"products": [{"code": f"P{n}", "name": _name(n)} for n in range(PRODUCTS)], "invoices": before})
    ids = _ids(before, stored())
    after, truth = [], []
    for number, invoice in enumerate(before):
        kept = [(item, ids[number, place]) for place, item in enumerate(invoice["items"])]
        altered = _altered(chance, kept, changes)
        truth += [(id, _content(item)) for item, id in altered if id is not None]
        after.append({**invoice, "items": [item for item, _ in altered]})
    counts = send({"invoices": after})["invoiceItems"]
    now = {id: tuple(content) for id, *content in ((row[0], row[1], float(row[2]), float(row[3]), row[4]) for row in stored())}
    right = sum(now.get(id) == content for id, content in truth)
    links = sum(len(invoice["items"]) for invoice in after) - counts["created"]
    return Score(right / links, right / len(truth), links)


def _invoices(chance: random.Random, items: int) -> Iterator[Document]:
    number = made = 0
    while made < items:
        size = chance.choice(SIZES)
        yield {"code": f"I{number}", "invoiceDate": "2026-01-01", "items": list(_items(chance, size))}
        number, made = number + 1, made + size


def _items(chance: random.Random, size: int) -> Iterator[Item]:
    known: list[Item] = []
    for _ in range(size):
        item = (
            {**chance.choice(known), "quantity": chance.choice((1, 2, 3, 6, 12, 24))}
            if known and chance.random() < TWICE
            else _item(chance)
        )
        known.append(item)
        yield item


def _item(chance: random.Random) -> Item:
    n = chance.randrange(PRODUCTS)
    return {
        "product": f"code:P{n}",
        "quantity": chance.choice((1, 2, 3, 4, 6, 8, 10, 12, 24)),
        "price": _price(n),
        "description": _name(n),
    }


def _altered(chance: random.Random, items: list[tuple[Item, int]], changes: Changes) -> list[tuple[Item, int | None]]:
    """The items as they come back, each with the id of the row that it is, None if it is new."""
    back: list[tuple[Item, int | None]] = [
        (_edited(chance, item, changes.fields) if chance.random() < ALTERED else item, id) for item, id in items
    ]
    if chance.random() < CHANGED_INVOICES:
        if chance.random() < 0.5:
            back.insert(chance.randrange(len(back) + 1), (_item(chance), None))
        elif len(back) > 1:
            back.pop(chance.randrange(len(back)))
    if chance.random() < changes.reordered:
        chance.shuffle(back)
    return back


def _edited(chance: random.Random, item: Item, fields: int) -> Item:
    other = _item(chance)
    edited = {
        "quantity": item["quantity"] + chance.randrange(1, 5),
        "price": round(item["price"] * 1.1 + 0.01, 2),
        "description": item["description"] + ", boxed",
        "product": other["product"],
    }
    return {**item, **{name: edited[name] for name in chance.sample(FIELDS, fields)}}


def _ids(invoices: list[Document], rows: list[tuple[Any, ...]]) -> dict[tuple[int, int], int]:
    """The ids of new items follow the document."""
    places = [(number, place) for number, invoice in enumerate(invoices) for place in range(len(invoice["items"]))]
    return dict(zip(places, sorted(row[0] for row in rows), strict=True))


def _content(item: Item) -> Content:
    return (item["product"].removeprefix("code:"), float(item["quantity"]), float(item["price"]), item["description"])


def _name(n: int) -> str:
    return f"{('RED', 'BLUE', 'WHITE', 'RETRO')[n % 4]} {('MUG', 'LANTERN', 'BAG', 'CLOCK', 'TIN')[n % 5]} {n}"


def _price(n: int) -> float:
    return (0.42, 0.85, 1.25, 1.65, 2.1, 2.95, 4.25, 7.95)[n % 8]
