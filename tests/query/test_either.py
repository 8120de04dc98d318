"""One box for the languages of /c and OData: who reads a text, whose error is told, and where both would differ."""

from __future__ import annotations

from itertools import combinations

import pytest

from app.database.catalog import Catalog
from app.errors import QueryError
from app.query.check.either import read
from app.query.check.options import EXPORT, parse_query
from app.query.check.print_odata import filter_text
from app.query.check.query import Query
from app.query.check.tree import Expression
from app.query.sql import statements as sql_statements
from tests.query.conftest import Company

READ = [
    ("price >= 10 and category = 'code:T'", False, "price ge 10 and category/code eq 'T'"),
    ("PRICE > 1 AND Name ILIKE 'a%'", False, "price gt 1 and startswith(tolower(name),tolower('a'))"),
    ("barcode not in ('x')", False, "not (barcode in ('x')) and barcode ne null"),
    ("price ge 10 and category/code eq 'T'", True, "price ge 10 and category/code eq 'T'"),
    ("contains(name,'a')", True, "contains(name,'a')"),
    ("barcode ne 'x'", True, "barcode ne 'x'"),
    ("barcode eq null or not (barcode in ('x'))", True, "barcode eq null or not (barcode in ('x'))"),
    # both accept these
    ("price in (1,2.5) and (name in ('a') or active in (true))", False, "price in (1,2.5) and (name in ('a') or active in (true))"),
    ("not (name in ('a','b'))", False, "not (name in ('a','b'))"),
    ("barcode in ('x',null)", False, "barcode in ('x') or barcode eq null"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "is_odata", "meaning"), READ)
def test_a_text_is_read_by_the_language_that_accepts_it(catalog: Catalog, text: str, is_odata: bool, meaning: str) -> None:
    products = catalog["products"]
    found = read(catalog, products, text)
    assert found is not None and found.is_odata is is_odata
    assert filter_text(found.condition(catalog, products)) == meaning
    exported = parse_query(catalog, products, [("$filter", text)], takes=EXPORT).filter
    assert exported is not None and filter_text(exported) == meaning


@pytest.mark.parametrize(
    ("text", "said", "exported"),
    [
        ("prise = 1", "products has no field prise (at character 1)", "expected"),
        ("prise gt 1", "; in OData: products has no field prise (at character 1)", "products has no field prise (at character 1)"),
        ("prise gt 1", "or an operator (= != < <= > >= LIKE", "products has no field prise (at character 1)"),
        ("price >", "the end (at character 8)", "got '>' (at character 7)"),
        ("not (barcode in ('x'))", "rows without a value match in OData and not in /c", None),
        ("active in (true) and not (barcode in ('x') and price in (1))", "rows without a value", None),
    ],
)
def test_else_the_error_is_that_of_c_and_in_an_export_that_of_odata(
    catalog: Catalog, text: str, said: str, exported: str | None
) -> None:
    with pytest.raises(QueryError) as raised:
        read(catalog, catalog["products"], text)
    assert said in raised.value.message
    assert ("in OData: " in raised.value.message) is (" gt " in text), "what OData says is beside that if the text is evidently its"
    if exported is None:  # where both languages accept a text, an export reads OData
        assert parse_query(catalog, catalog["products"], [("$filter", text)], takes=EXPORT).filter is not None
        return
    with pytest.raises(QueryError) as raised:
        parse_query(catalog, catalog["products"], [("$filter", text)], takes=EXPORT)
    assert exported in raised.value.message


ATOMS = ("barcode in ('4001','4003')", "barcode in ('4004',null)", "name in ('Drill')", "price in (0,12.5)", "active in (true)")
SHARED = [*ATOMS, *(f"not ({each})" for each in ATOMS)]
SHARED += [f"{left} {word} {right}" for left, right in combinations(SHARED, 2) for word in ("and", "or")]
SHARED += [f"not ({each})" for each in SHARED[10:]]


def test_a_text_that_both_accept_matches_the_same_rows_in_both_or_is_refused(acme: Company) -> None:
    def codes(condition: Expression) -> list[str]:
        query = Query(acme.catalog, products, filter=condition, select=(products.fields["code"],))
        return [row for (row,) in acme.run(sql_statements.rows(query, "acme"))]

    products, read_by_both = acme.catalog["products"], 0
    for text in SHARED:
        try:
            found = read(acme.catalog, products, text)
        except QueryError as error:
            assert "not in" in error.message, text
            continue
        assert found is not None and not found.is_odata
        read_by_both += 1
        assert codes(found.condition(acme.catalog, products)) == codes(acme.query("products", filter=text).filter), text
    assert read_by_both > len(SHARED) / 4


def test_an_empty_text_is_no_condition_and_odata_itself_has_one_language(catalog: Catalog) -> None:
    assert read(catalog, catalog["products"], " ") is None
    with pytest.raises(QueryError):
        parse_query(catalog, catalog["products"], [("$filter", "price > 1")])
