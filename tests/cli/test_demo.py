"""The demo company: the same at every call, and varied enough to group, filter and chart."""

from __future__ import annotations

from collections import Counter
from datetime import date
from typing import Any

from app.cli import demo


def made() -> dict[str, list[dict[str, Any]]]:
    return {name: list(records) for name, records in demo.document()}


def test_it_is_the_same_at_every_call() -> None:
    assert made() == made()


def test_statuses_currencies_and_dates_vary() -> None:
    company = made()
    orders, invoices = {order["code"]: order for order in company["orders"]}, company["invoices"]
    assert set(Counter(order["status"] for order in orders.values())) == {"closed", "delivered", "confirmed", "cancelled", "draft"}
    assert set(Counter(invoice["status"] for invoice in invoices)) == {"paid", "posted", "overdue"}
    assert min(Counter(order["currency"] for order in orders.values()).values()) > 50
    countries = {customer["code"]: customer["country"] for customer in company["customers"]}
    currencies = {countries[order["customer"].removeprefix("code:")]: order["currency"] for order in orders.values()}
    assert (currencies["Switzerland"], currencies["Poland"], currencies["Italy"]) == ("CHF", "PLN", "EUR")
    for invoice in invoices:
        order = orders[invoice["order"].removeprefix("code:")]
        assert invoice["currency"] == order["currency"] and order["status"] in ("closed", "delivered")
    months = Counter(date.fromisoformat(order["orderDate"]).strftime("%Y-%m") for order in orders.values())
    assert len(months) >= 24 and max(months.values()) < 3 * len(orders) / len(months)
