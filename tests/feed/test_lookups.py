"""References to records before and after, to the record itself, and to stored rows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.feed.conftest import Feed, errors


def test_a_lookup_finds_records_and_rows_anywhere(feed: Feed) -> None:
    feed.good(categories=[{"code": "old", "name": "o"}])
    (old,) = feed.rows("categories", "id")[0]
    assert feed.good({
        "products": [{"code": "P", "name": "p", "barcode": "b", "category": "code:after"}, {"code": "Q", "name": "q", "category": old}],
        "orders": [{"code": "O", "orderDate": "2024-01-01", "customer": "email:e@x", "items": [{"product": "barcode:b"}, {"product": "code:Q"}]}],
        "invoices": [{"code": "I", "invoiceDate": "2024-01-01", "order": "code:O"}],
        "categories": [
            {"code": "self", "name": "s", "parent": "code:self"}, {"code": "before", "name": "b", "parent": "code:after"},
            {"code": "after", "name": "a", "parent": "code:old"}, {"code": "old", "parent": "code:before"},  # a cycle
        ],
        "customers": [{"code": "C", "name": "c", "email": "e@x"}],
    }) == {
        "categories": {"created": 3, "updated": 1}, "products": {"created": 2}, "customers": {"created": 1}, "orders": {"created": 1},
        "orderItems": {"created": 2}, "invoices": {"created": 1},
    }  # fmt: skip
    parents = feed.ask('select c.code, p.code from api.categories c left join api.categories p on p.id = c."parentId" order by 1')
    assert parents == [("after", "old"), ("before", "after"), ("old", "before"), ("self", "self")]
    assert feed.ask('select p.code, c.code from api.products p join api.categories c on c.id = p."categoryId" order by 1') == [
        ("P", "after"),
        ("Q", "old"),
    ]
    assert feed.ask('select p.code from api."orderItems" i join api.products p on p.id = i."productId" order by 1') == [
        ("P",),
        ("Q",),
    ]
    assert feed.ask(
        'select count(*) from api.invoices i join api.orders o on o.id = i."orderId" join api.customers c on c.id = o."customerId"'
    ) == [(1,)]


def test_a_lookup_finds_a_row_by_its_new_name(feed: Feed) -> None:
    """Lookups refer to the state after the import."""
    feed.good(categories=[{"code": "A", "name": "a"}, {"code": "B", "name": "b"}])
    ids = dict(feed.rows("categories", "code", "id"))
    feed.good(products=[{"code": "P", "name": "p", "category": "code:C"}], categories=[{"id": "code:A", "code": "C"}])
    assert feed.rows("products", "categoryId") == [(ids["A"],)]


@pytest.mark.parametrize("id", [-5, 1234567890123456789, -9223372036854775807, 9223372036854775807])
def test_any_id_is_a_lookup(feed: Feed, id: int) -> None:
    feed.write("insert into data.units (company_id, id, code, name) values (%s, %s, 'U', 'u')", feed.company, id)
    for n, lookup in enumerate((id, str(id), f"id:{id}")):
        feed.good(units=[{"id": lookup, "name": f"n{n}"}], products=[{"code": f"P{n}", "name": "p", "unit": lookup}])
        assert feed.rows("units", "id", "name") == [(id, f"n{n}")]
    assert feed.rows("products", "unitId") == [(id,)] * 3
    assert feed.good(units=[{"@operation": "update", "@where": f"id = {id}", "name": "w"}]) == {"units": {"updated": 1}}
    feed.good(products=[], **{"products@removeAll": True})
    assert feed.good(units=[{"@operation": "delete", "id": id}]) == {"units": {"deleted": 1}}


@pytest.mark.parametrize("id", ["9223372036854775808", "-9223372036854775809", "id:12345678901234567890", "--5", "-"])
def test_what_is_no_id_names_nothing(feed: Feed, id: str) -> None:
    report = feed.send(
        {"@atomic": False, "units": [{"id": id, "name": "n"}], "categories": [{"code": "C", "name": "c", "parent": id}]}
    )
    kind = "not_found" if id.strip("-id:") else "invalid_value"
    kind = "invalid_value" if id in ("--5", "-") else kind
    assert errors(report) == [("units[0].id", kind), ("categories[0].parent", "lookup_not_found" if kind == "not_found" else kind)]


CASCADES: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    # document, (path, code) of its errors
    ({"categories": [{"code": "A"}], "products": [{"code": "P", "name": "p", "category": "code:A"}]},
     [("categories[0].name", "required"), ("products[0].category", "lookup_not_found")]),
    ({"categories": [{"code": "A"}, {"code": "B", "name": "b", "parent": "code:A"}, {"code": "C", "name": "c", "parent": "code:B"},
                     {"code": "D", "name": "d"}]},
     [("categories[0].name", "required"), ("categories[1].parent", "lookup_not_found"), ("categories[2].parent", "lookup_not_found")]),
    ({"categories": [{"code": "C", "name": "c", "parent": "code:B"}, {"code": "B", "name": "b", "parent": "code:A"}, {"code": "A"}]},
     [("categories[0].parent", "lookup_not_found"), ("categories[1].parent", "lookup_not_found"), ("categories[2].name", "required")]),
    ({"products": [{"code": "P", "name": "p", "variants": [{"code": "V", "price": "x"}]}],
      "orders": [{"code": "O", "orderDate": "2024-01-01", "items": [{"product": "code:P"}]}],
      "invoices": [{"code": "I", "invoiceDate": "2024-01-01", "order": "code:O"}]},
     [("products[0].variants[0].price", "invalid_value"), ("orders[0].items[0].product", "lookup_not_found"),
      ("invoices[0].order", "lookup_not_found")]),
    ({"categories": [{"code": "A", "name": "1"}, {"code": "A", "name": "2"}], "products": [{"code": "P", "name": "p", "category": "code:A"}]},
     [("categories[1].code", "duplicate_record")]),
]  # fmt: skip


@pytest.mark.parametrize(("document", "wrong"), CASCADES, ids=range(len(CASCADES)))
def test_a_reference_to_a_failed_new_record_fails(feed: Feed, document: dict[str, Any], wrong: list[tuple[str, str]]) -> None:
    report = feed.send({"@atomic": False, **document})
    assert errors(report) == wrong
    total = sum(len(records) for records in document.values())
    assert sum(c["created"] for name, c in report["entities"].items() if name in document) == total - len(
        {path.partition(".")[0] for path, _ in wrong}
    )


def test_a_reference_to_a_stored_row_with_a_failed_record_succeeds(feed: Feed) -> None:
    feed.good(categories=[{"code": "A", "name": "a"}])
    report = feed.send(
        {"@atomic": False, "categories": [{"code": "A", "name": None}, {"code": "B", "name": "b", "parent": "code:A"}]}
    )
    assert errors(report) == [("categories[0].name", "required")]
    assert feed.rows("categories", "code", "name") == [("A", "a"), ("B", "b")]
