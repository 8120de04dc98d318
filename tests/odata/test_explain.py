"""`bds explain`: the statement of a request, its values and PostgreSQL's plan."""

from __future__ import annotations

import pytest

from app.cli.explain import explain
from app.config import Config
from app.errors import ServiceError


def test_explain_prints_the_statement_its_values_and_the_plan(module_database_url: str) -> None:
    filter = "price%20gt%20100%20and%20contains(name,'50%25')"
    printed = explain(Config(database_url=module_database_url), f"/api/odata/acme/products?$filter={filter}&$top=5")
    statement, values, plan = printed.split("\n\n")
    assert all(f"${number} " in statement for number in range(1, 5)) and "$5" not in statement
    assert values.split("\n") == ["  $1 = 'acme'", "  $2 = '100'", r"  $3 = '%50\\%%'", "  $4 = '5'"]
    assert "products" in plan


def test_a_document_has_no_statement(module_database_url: str) -> None:
    with pytest.raises(ServiceError, match="no SQL"):
        explain(Config(database_url=module_database_url), "/api/odata/acme/$metadata")


def test_a_past_state_is_explained_as_of_its_version(module_database_url: str) -> None:
    printed = explain(Config(database_url=module_database_url), "/api/odata/acme@0/products?$top=5")
    assert "past.products_unchanged" in printed and "api.products" not in printed and "change_log" in printed
    with pytest.raises(ServiceError, match="version 7 is yet to come"):
        explain(Config(database_url=module_database_url), "/api/odata/acme@7/products")
