"""What is exported as an import document changes nothing when it is imported, and says the same in XML."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from lxml import etree

from tests.export.conftest import TEXTS, Shop, allow_all
from tests.feed.conftest import counts

ENTITIES = ("units", "categories", "products", "productVariants", "customers", "orders", "orderItems", "invoices", "invoiceItems")
XSI = "{http://www.w3.org/2001/XMLSchema-instance}"


def load(body: bytes) -> Any:
    return json.loads(body, parse_float=Decimal)


@pytest.mark.parametrize("entity", ENTITIES)
def test_what_is_exported_and_imported_again_changes_nothing(shop: Shop, entity: str) -> None:
    before = shop.feed.stored(), shop.feed.log()
    body = shop.good(entity, "json")
    changes = counts(shop.feed.send(body))
    assert all(set(each) == {"unchanged"} for each in changes.values()), changes
    assert sum(each["unchanged"] for each in changes.values()) >= len(load(body)[entity])
    assert (shop.feed.stored(), shop.feed.log()) == before


def test_an_export_makes_the_same_rows_in_another_company(shop: Shop) -> None:
    company = shop.service.operator.company("copy")
    other = type(shop.feed)(shop.feed.url, shop.feed.catalog, company, shop.feed.operator)
    for entity in ("units", "categories", "products"):
        other.good(shop.good(entity, "json"))
    fields = ("code", "name", "description", "price", "active")
    assert other.rows("products", *fields, order="code") == shop.feed.rows("products", *fields, order="code")


def test_texts_come_out_as_they_went_in(shop: Shop) -> None:
    records = load(shop.good("products", "json"))["products"]
    assert [record["name"] for record in records] == list(TEXTS)
    assert [record["description"] for record in records] == list(TEXTS)


def test_records_hold_lookups_children_and_no_id_where_a_code_will_do(shop: Shop) -> None:
    first, second = load(shop.good("invoices", "json"))["invoices"]
    assert list(first) == [
        "code", "invoiceDate", "dueDate", "status", "currency", "total", "note", "customer", "order", "items",
    ]  # fmt: skip
    assert (first["customer"], first["order"], second["customer"], second["items"]) == ("code:C1", "code:O1", None, [])
    assert [(item["product"], item["quantity"], item["price"]) for item in first["items"]] == [
        ("code:P0", Decimal("2.000000"), Decimal("0.1000")),
        ("code:P0", Decimal("2.000000"), Decimal("0.1000")),
        (None, Decimal("0.000001"), None),
    ]
    assert all(isinstance(item["id"], int) and "invoice" not in item for item in first["items"])


def test_decimals_keep_every_digit(shop: Shop) -> None:
    assert b'"total":123456789012345.6789' in shop.good("orders", "json")


def test_a_selection_that_leaves_out_the_code_carries_the_id(shop: Shop) -> None:
    record = load(shop.good("products", "json", select="name,category", top=2, orderby="id"))["products"][1]
    assert list(record) == ["id", "name", "category"]
    assert record["category"] == 'code:a:b, "c" <d>'


def test_what_is_expanded_comes_as_a_collection_of_its_own(shop: Shop) -> None:
    body = shop.good("invoices", "json", expand="customer,order", filter="code eq 'I1'", select="code")
    document = load(body)
    assert {name: [record["code"] for record in records] for name, records in document.items()} == {
        "invoices": ["I1"], "customers": ["C1"], "orders": ["O1"],
    }  # fmt: skip
    assert set(counts(shop.feed.send(body))["customers"]) == {"unchanged"}


def test_rows_that_lead_to_rows_of_the_same_collection_are_not_repeated(shop: Shop) -> None:
    body = shop.good("categories", "json", expand="parent,children", filter="code ne 'tools'")
    report = shop.feed.send(body)
    assert counts(report) == {"categories": {"unchanged": 2}}


def test_values_that_no_import_takes_are_left_alone(shop: Shop) -> None:
    write = shop.service.operator.write
    allow_all(shop.service.operator, "orders")
    write("demo", "update data.orders set order_date = '-infinity', total = 'NaN' where code = 'O2'")
    try:
        record = load(shop.good("orders", "json", filter="code eq 'O2'"))["orders"][0]
        assert "orderDate" not in record and "total" not in record
        assert counts(shop.feed.send(shop.good("orders", "json"))) == {"orders": {"unchanged": 2}}
        assert b"-infinity" in shop.good("orders", "csv") and b"NaN" in shop.good("orders", "xml")
        valid(shop, "orders", shop.good("orders", "xml"))
        for format in ("excel", "html", "pdf"):
            shop.good("orders", format)
    finally:
        write("demo", "update data.orders set order_date = '1899-12-31', total = null where code = 'O2'")


def test_an_empty_collection_is_a_document_too(shop: Shop) -> None:
    assert load(shop.good("products", "json", filter="false")) == {"products": []}
    assert len(etree.fromstring(shop.good("products", "xml", filter="false"))) == 0


# XML ------------------------------------------------------------------------------------------------------------------------------


def valid(shop: Shop, entity: str, body: bytes, **options: Any) -> etree._Element:
    """The document, valid against its stated schema."""
    root = etree.fromstring(body, etree.XMLParser(huge_tree=True))
    schema = etree.XMLSchema(etree.fromstring(shop.good(entity, "xsd", **options)))
    schema.assertValid(root)
    return root


def content(element: etree._Element) -> Any:
    """What an element says, in the words of JSON."""
    if element.get(f"{XSI}nil") == "true":
        return None
    if len(element) or element.tag in ("variants", "items"):
        children = [(child.tag, content(child)) for child in element]
        return [value for _, value in children] if element.tag in ("variants", "items") else dict(children)
    return element.text or ""


@pytest.mark.parametrize("entity", ENTITIES)
def test_xml_says_what_json_says(shop: Shop, entity: str) -> None:
    root = valid(shop, entity, shop.good(entity, "xml"))
    assert root.tag == entity
    assert [content(record) for record in root] == [said(record) for record in load(shop.good(entity, "json"))[entity]]


def said(value: Any) -> Any:
    """A JSON value as an element's text; what XML cannot hold is U+FFFD."""
    if isinstance(value, dict):
        return {name: said(each) for name, each in value.items()}
    if isinstance(value, list):
        return [said(each) for each in value]
    if value is None or value is True or value is False:
        return {None: None, True: "true", False: "false"}[value]
    return "".join(c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in str(value))


def test_xml_names_records_by_what_one_of_them_is_called(shop: Shop) -> None:
    root = etree.fromstring(shop.good("products", "xml", expand="variants", select="code", filter="code eq 'P0'"))
    assert etree.tostring(root[0]).decode().split(">", 1)[1].strip() == (
        "<code>P0</code><variants><variant><code>P0-S</code><name>small</name>"
        '<barcode xsi:nil="true"/><price>1.0000</price></variant><variant><code>P0-L</code><name>large</name>'
        '<barcode xsi:nil="true"/><price xsi:nil="true"/></variant></variants></product>'
    )


def test_xml_states_its_schema_by_a_url_that_gives_it(shop: Shop) -> None:
    options = {"select": "code", "expand": "category,variants"}
    body = shop.good("products", "xml", **options)
    root = valid(shop, "products", body, **options)
    assert root.tag == "document" and [each.tag for each in root] == ["products", "categories"]
    url = root.get(f"{XSI}noNamespaceSchemaLocation") or ""
    reply = shop.service.ask(url[url.index("/api/") :])
    assert reply.status == 200
    etree.XMLSchema(etree.fromstring(reply.body)).assertValid(root)
