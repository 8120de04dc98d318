"""Hostile input in the extended profile: every answer follows the protocol, comes in time, and has no data of another company."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.odata.test_fuzz import BOUNDED, EXPRESSIONS, POISON, WORDS, check, joined
from tests.service.serving import Service, running

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, odata_extended=True) as service:
        service.operator.company("neighbour")
        service.operator.write("neighbour", POISON)
        service.operator.write("demo", "insert into data.categories (company_id, id, code, name) values ('demo', 1, 'T', 'Tools')")
        service.operator.write(
            "demo",
            "insert into data.products (company_id, code, name, price, category_id) select 'demo', 'P' || n, 'Hammer', n, 1 from generate_series(1, 3) n",
        )
        yield service


OPTIONS = st.one_of(
    joined(st.just("$filter="), EXPRESSIONS),
    joined(st.just("$orderby="), EXPRESSIONS),
    st.sampled_from(
        ("$select=code", "$select=*", "$top=1", "$top=x", "$skip=1", "$count=true", "$levels=1", "", "$top", "$search=a")
    ),
)
NAVIGATIONS = st.sampled_from(("category", "variants", "products", "parent", "orderItems", "order", "*", "nothing", "name"))
EXPANSIONS = st.recursive(
    NAVIGATIONS,
    lambda inner: st.one_of(
        joined(inner, st.just(","), inner),
        joined(NAVIGATIONS, st.just("($expand="), inner, st.just(";"), OPTIONS, st.just(")")),
        joined(NAVIGATIONS, st.just("("), OPTIONS, st.just(";$expand="), inner, st.just(")")),
    ),
    max_leaves=8,
)


@BOUNDED
@given(EXPANSIONS)
def test_random_expansions_are_answered(service: Service, expansion: str) -> None:
    check(service, f"/products?$top=5&$expand={quote(expansion, safe='')}")


@BOUNDED
@given(st.lists(st.sampled_from((*WORDS, "category(", "variants(", "$expand=", "$filter=", "$select=", ");", ",")), max_size=16))
def test_words_in_any_order_inside_of_expand_are_answered(service: Service, words: list[str]) -> None:
    check(service, f"/products?$top=5&$expand=category({quote(''.join(words), safe='')})")


@BOUNDED
@given(EXPRESSIONS, EXPRESSIONS)
def test_random_aliases_and_filters_of_apply_are_answered(service: Service, first: str, second: str) -> None:
    check(service, f"/products?$filter=name%20eq%20@a%20or%20id%20in%20@a&@a={quote(first, safe='')}")
    check(
        service,
        f"/products?$apply=filter({quote(first, safe='')})/groupby((name),aggregate({quote(second, safe='')}%20with%20max%20as%20m))",
    )


@BOUNDED
@given(
    st.integers(-1, 1001), st.lists(st.one_of(st.none(), st.text(max_size=8), st.integers(), st.sampled_from(WORDS)), max_size=4)
)
def test_random_tokens_are_answered(service: Service, size: int, values: list[object]) -> None:
    token = base64.urlsafe_b64encode(str(size).encode() + json.dumps(values).encode()).decode().rstrip("=")
    for order in ("", "&$orderby=price%20desc,updatedAt", "&$orderby=name,active"):
        check(service, f"/products?$skiptoken={token}{order}")


BOMBS = [
    *("category(" * depth + "$top=1" + ")" * depth for depth in (99, 101, 6_000)),
    *("category($expand=" * depth + "parent" + ")" * depth for depth in (4, 5, 3_000)),
    ",".join(["*"] * 5_000),
    "products(" + ";" * 15_000 + ")",
    "variants($filter=" + "'" * 15_001 + ")",
    "variants($filter=" + " or ".join(["price gt 1"] * 1_300) + ")",
    "category($expand=*),variants($expand=*),orderItems($expand=*),invoiceItems($expand=*),unit($expand=*)",
    "category($expand=products($expand=*),children($expand=*),parent($expand=products($expand=*)))",
    "category($expand=products($expand=category($expand=products($expand=variants,orderItems,invoiceItems))))",
]


@pytest.mark.parametrize("text", BOMBS, ids=range(len(BOMBS)))
def test_expensive_expansions_are_refused_or_answered_in_time(service: Service, text: str) -> None:
    check(service, f"/products?$top=1&$expand={quote(text, safe='')}"[:60_000])
    assert service.odata("/products?$top=1").status == 200
