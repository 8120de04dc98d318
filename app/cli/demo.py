"""Generated data of a demo company: a hardware shop with two years of trade, the same at every call."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, BinaryIO

from app.types import exact_json

COMPANY = "demo"
USER = "demo@example.com"

UNITS = (("PCE", "piece", "pc"), ("BOX", "box", None), ("MTR", "metre", "m"), ("KGM", "kilogram", "kg"), ("LTR", "litre", "l"))
SECTIONS = {
    "Tools": ("Hammers", "Saws", "Drills", "Screwdrivers", "Measuring"),
    "Fixings": ("Screws", "Nails", "Anchors", "Hinges"),
    "Paint": ("Wall paint", "Varnish", "Brushes"),
    "Electrical": ("Cable", "Switches", "Lamps"),
    "Garden": ("Hoses", "Spades", "Seeds"),
}
SIZES = ("S", "M", "L", "XL")
QUALITIES = ("basic", "solid", "professional", "light", "long", "short", "steel", "oak", "brass", "copper")
FIRST = ("Anna", "Bruno", "Chiara", "Dmitri", "Elif", "Femke", "Goran", "Hana", "Igor", "Jana", "Karim", "Luca", "Mira")
LAST = ("Berger", "Costa", "Dvořák", "Eriksen", "Fischer", "García", "Horvat", "Ivanova", "Jansen", "Kowalski", "Lefèvre")
PLACES = (
    ("Germany", "Köln", "EUR"),
    ("Austria", "Wien", "EUR"),
    ("Switzerland", "Bern", "CHF"),
    ("France", "Lyon", "EUR"),
    ("Italy", "Trieste", "EUR"),
    ("Poland", "Kraków", "PLN"),
)
START = date(2024, 11, 1)
PRODUCTS, CUSTOMERS, ORDERS = 240, 80, 600
UNPAID, NEW = 60, 24  # of the last orders: not paid yet, not confirmed yet if not invoiced


def document() -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
    """The collections of the import document, each with its records."""
    chance = random.Random(20241101)
    prices = [Decimal(chance.randrange(99, 19999)) / 100 for _ in range(PRODUCTS)]
    orders = list(_orders(chance, prices))
    yield "units", ({"code": code, "name": name, "symbol": symbol} for code, name, symbol in UNITS)
    yield "categories", _categories()
    yield "products", _products(chance, prices)
    yield "customers", _customers(chance)
    yield "orders", ({**order, "status": _status(number)} for number, order in enumerate(orders))
    yield "invoices", _invoices(orders)


def _categories() -> Iterator[dict[str, Any]]:
    for section, shelves in SECTIONS.items():
        yield {"code": section.lower(), "name": section}
        for shelf in shelves:
            yield {"code": shelf.lower().replace(" ", "-"), "name": shelf, "parent": f"code:{section.lower()}"}


def _products(chance: random.Random, prices: list[Decimal]) -> Iterator[dict[str, Any]]:
    shelves = [shelf for each in SECTIONS.values() for shelf in each]
    for number, price in enumerate(prices):
        shelf, quality = shelves[number % len(shelves)], QUALITIES[number // len(shelves) % len(QUALITIES)]
        record: dict[str, Any] = {
            "code": f"A{number + 1:04}",
            "name": f"{shelf}, {quality}",
            "description": f"{quality.capitalize()} {shelf.lower()} of our own make." if number % 3 else None,
            "barcode": f"4{chance.randrange(10**11):011}{number % 10}",
            "price": str(price),
            "active": number % 17 != 0,
            "category": f"code:{shelf.lower().replace(' ', '-')}",
            "unit": f"code:{UNITS[number % len(UNITS)][0]}",
        }
        if number % 5 == 0:
            record["variants"] = [{"code": f"A{number + 1:04}-{size}", "name": size, "price": str(price)} for size in SIZES]
        yield record


def _customers(chance: random.Random) -> Iterator[dict[str, Any]]:
    for number in range(CUSTOMERS):
        country, city, _ = PLACES[number % len(PLACES)]
        yield {
            "code": f"C{number + 1:03}",
            "name": f"{FIRST[number % len(FIRST)]} {LAST[number % len(LAST)]}",
            "email": f"c{number + 1:03}@example.com",
            "country": country,
            "city": city,
            "postalCode": f"{chance.randrange(10000, 99999)}",
        }


def _orders(chance: random.Random, prices: list[Decimal]) -> Iterator[dict[str, Any]]:
    for number in range(ORDERS):
        products = chance.sample(range(PRODUCTS), chance.randrange(1, 9))
        lines = [(product, chance.randrange(1, 12)) for product in products]
        customer = chance.randrange(CUSTOMERS)
        yield {
            "code": f"SO-{number + 1:05}",
            "customer": f"code:C{customer + 1:03}",
            "currency": PLACES[customer % len(PLACES)][2],
            "orderDate": (START + timedelta(days=number * 740 // ORDERS)).isoformat(),
            "total": str(sum(prices[product] * quantity for product, quantity in lines)),
            "items": [
                {"product": f"code:A{product + 1:04}", "quantity": quantity, "price": str(prices[product])}
                for product, quantity in lines
            ],
        }


def _is_invoiced(number: int) -> bool:
    return number % 8 != 7


def _status(number: int) -> str:
    """The status of an order."""
    if _is_invoiced(number):
        return "closed" if number < ORDERS - UNPAID else "delivered"
    return "draft" if number >= ORDERS - NEW else "cancelled" if number % 24 == 7 else "confirmed"


def _invoices(orders: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for number, order in enumerate(orders):
        if not _is_invoiced(number):
            continue
        day = date.fromisoformat(order["orderDate"]) + timedelta(days=3)
        yield {
            "code": order["code"].replace("SO", "INV"),
            "customer": order["customer"],
            "order": f"code:{order['code']}",
            "invoiceDate": day.isoformat(),
            "dueDate": (day + timedelta(days=30)).isoformat(),
            "status": "posted" if number >= ORDERS - UNPAID else "paid" if number % 31 else "overdue",
            "currency": order["currency"],
            "total": order["total"],
            "items": order["items"],
        }


def open_document() -> BinaryIO:
    """The import document as a file to read."""
    return io.BytesIO(exact_json.dumps({name: list(records) for name, records in document()}, ensure_ascii=False).encode())
