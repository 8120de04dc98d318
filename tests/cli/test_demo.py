"""The demo company: the same at every call, and varied enough to group, filter and chart."""

from __future__ import annotations

import os
import re
from collections import Counter
from datetime import date
from typing import Any

import pytest
from argon2 import PasswordHasher

from app.cli import demo
from tests.cli.test_commands import bds
from tests.conftest import Operator


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


@pytest.mark.slow
@pytest.mark.processes
def test_loading_the_demo_again_changes_nothing(database_url: str, operator: Operator) -> None:
    environment = {**os.environ, "BDS_DATABASE_URL": database_url}
    first = bds(environment, "demo")
    assert first.stdout.startswith("bds_") and first.returncode == 0, first.stderr
    sign_in = re.search(r"sign in as demo@example\.com with (\S+)", first.stderr)
    assert sign_in is not None
    [(hashed,)] = operator.rows("select password_hash from bds.users where email = 'demo@example.com' and companies = '{demo}'")
    assert PasswordHasher().verify(hashed, sign_in[1])
    before = operator.rows("select last_id from bds.clocks")
    assert bds(environment, "demo").returncode == 0
    assert operator.rows("select last_id from bds.clocks") == before
    assert operator.rows("select (select count(*) from data.products), (select count(*) from data.invoice_items) > 1000") == [
        (240, True)
    ]
