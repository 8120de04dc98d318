"""A JSON export is an import document that changes nothing when it is imported; XML has the same values."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from lxml import etree

from tests.export.conftest import TEXTS, Shop, allow_all
from tests.export.exported import UNMAPPED, send
from tests.feed.conftest import Feed, counts

pytestmark = pytest.mark.slow

ENTITIES = ("units", "categories", "products", "productVariants", "customers", "orders", "orderItems", "invoices", "invoiceItems")
XSI = "{http://www.w3.org/2001/XMLSchema-instance}"


def load(body: bytes) -> Any:
    return json.loads(body, parse_float=Decimal)


@pytest.mark.parametrize("entity", ENTITIES)
def test_importing_an_export_changes_nothing(shop: Shop, entity: str) -> None:
    before = shop.feed.stored(), shop.feed.log()
    body = shop.good(entity, "json")
    changes = counts(shop.feed.send(body))
    assert all(set(each) == {"unchanged"} for each in changes.values()), changes
    assert sum(each["unchanged"] for each in changes.values()) >= len(load(body)[entity])
    assert (shop.feed.stored(), shop.feed.log()) == before


def test_importing_an_export_into_another_company_creates_the_same_rows(shop: Shop) -> None:
    company = shop.service.operator.company("copy")
    other = type(shop.feed)(shop.feed.url, shop.feed.catalog, company, shop.feed.operator)
    for entity in ("units", "categories", "products"):
        other.good(shop.good(entity, "json"))
    fields = ("code", "name", "description", "price", "active")
    assert other.rows("products", *fields, order="code") == shop.feed.rows("products", *fields, order="code")


@pytest.mark.parametrize("format", ["json", "xml", "jsonl"])
def test_without_ids_an_export_restores_after_a_delete_and_in_another_company(shop: Shop, format: str) -> None:
    line = {"product": "code:P0", "quantity": 2, "price": "0.1"}
    invoice = {
        "code": "R1",
        "invoiceDate": "2026-11-20",
        "customer": "code:C1",
        "order": "code:O1",
        "items": [line, line, {"description": "="}],
    }
    shop.feed.good(invoices=[invoice])
    expand = "items" if format == "jsonl" else "items,customer,order"
    body = shop.good("invoices", format, ids="false", expand=expand, filter="code eq 'R1'")
    assert b'"id"' not in body and b"<id>" not in body
    query = """select p.code, i.description, i.quantity, i.price from api."invoices" v join api."invoiceItems" i on i."invoiceId" = v.id
        left join api.products p on p.id = i."productId" where v.code = 'R1' order by i.id"""
    before = shop.feed.ask(query)
    shop.feed.good(invoices=[{"@operation": "delete", "code": "R1"}])
    assert shop.feed.ask(query) == []
    report = again(shop.feed, body, format)
    assert (report["state"], counts(report)["invoiceItems"]) == ("completed", {"created": 3})
    assert shop.feed.ask(query) == before
    assert all(set(each) == {"unchanged"} for each in counts(again(shop.feed, body, format)).values())
    other = Feed(shop.feed.url, shop.feed.catalog, shop.service.operator.company(f"restored-{format}"), shop.feed.operator)
    other.good(products=[{"code": "P0", "name": "p"}])
    if format == "jsonl":  # the other formats bring them along
        other.good(customers=[{"code": "C1", "name": "c"}], orders=[{"code": "O1", "orderDate": "2026-01-01"}])
    report = again(other, body, format)
    assert (report["state"], report["errors"]) == ("completed", []) and other.ask(query) == before
    shop.feed.good(invoices=[{"@operation": "delete", "code": "R1"}])


def again(feed: Feed, body: bytes, format: str) -> dict[str, Any]:
    """Import an export of invoices; return the report."""
    return feed.send(body) if format == "json" else send(feed, "invoices", body)


def test_without_ids_a_flat_export_creates_the_rows_of_another_company(shop: Shop) -> None:
    other = Feed(shop.feed.url, shop.feed.catalog, shop.service.operator.company("flat"), shop.feed.operator)
    for entity in ("units", "categories", "customers"):
        body = shop.good(entity, "csv", ids="false")
        assert not body.decode("utf-8-sig").startswith("id,")
        assert set(counts(send(other, entity, body))[entity]) == {"created"}
    fields = ("code", "name", "email")
    assert other.rows("customers", *fields, order="code") == shop.feed.rows("customers", *fields, order="code")


def test_texts_are_exported_unchanged(shop: Shop) -> None:
    records = load(shop.good("products", "json"))["products"]
    assert [record["name"] for record in records] == list(TEXTS)
    assert [record["description"] for record in records] == list(TEXTS)


def test_records_contain_lookups_and_children_and_an_id_only_without_a_code(shop: Shop) -> None:
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


def test_records_without_their_code_contain_their_id(shop: Shop) -> None:
    record = load(shop.good("products", "json", select="name,category", top=2, orderby="id"))["products"][1]
    assert list(record) == ["id", "name", "category"]
    assert record["category"] == 'code:a:b, "c" <d>'


def test_expanded_references_are_collections_of_their_own(shop: Shop) -> None:
    body = shop.good("invoices", "json", expand="customer,order", filter="code eq 'I1'", select="code")
    document = load(body)
    assert {name: [record["code"] for record in records] for name, records in document.items()} == {
        "invoices": ["I1"], "customers": ["C1"], "orders": ["O1"],
    }  # fmt: skip
    assert set(counts(shop.feed.send(body))["customers"]) == {"unchanged"}


def test_expanded_rows_of_the_same_collection_are_not_repeated(shop: Shop) -> None:
    body = shop.good("categories", "json", expand="parent,children", filter="code ne 'tools'")
    report = shop.feed.send(body)
    assert counts(report) == {"categories": {"unchanged": 2}}


def test_values_that_cannot_be_imported_are_left_out(shop: Shop) -> None:
    write = shop.service.operator.write
    allow_all(shop.service.operator, "orders")
    write("demo", "update data.orders set order_date = '-infinity', total = 'NaN' where code = 'O2'")
    try:
        record = load(shop.good("orders", "json", filter="code eq 'O2'"))["orders"][0]
        assert "orderDate" not in record and "total" not in record
        assert counts(shop.feed.send(shop.good("orders", "json"))) == {"orders": {"unchanged": 2}}
        assert b"-infinity" in shop.good("orders", "csv") and b"NaN" in shop.good("orders", "xml")
        valid(shop, "orders", shop.good("orders", "xml"))
        for format in UNMAPPED:
            shop.good("orders", format)
    finally:
        write("demo", "update data.orders set order_date = '1899-12-31', total = null where code = 'O2'")


def test_an_empty_collection_is_a_document(shop: Shop) -> None:
    assert load(shop.good("products", "json", filter="false")) == {"products": []}
    assert len(etree.fromstring(shop.good("products", "xml", filter="false"))) == 0


# XML ------------------------------------------------------------------------------------------------------------------------------


def valid(shop: Shop, entity: str, body: bytes, **options: Any) -> etree._Element:
    """Parse a document and validate it against its schema."""
    root = etree.fromstring(body, etree.XMLParser(huge_tree=True))
    schema = etree.XMLSchema(etree.fromstring(shop.good(entity, "xsd", **options)))
    schema.assertValid(root)
    return root


def content(element: etree._Element) -> Any:
    """Return the content of an element as JSON would have it, with texts for values."""
    if element.get(f"{XSI}nil") == "true":
        return None
    if len(element) or element.tag in ("variants", "items"):
        children = [(child.tag, content(child)) for child in element]
        return [value for _, value in children] if element.tag in ("variants", "items") else dict(children)
    return element.text or ""


@pytest.mark.parametrize("entity", ENTITIES)
def test_xml_has_the_same_values_as_json(shop: Shop, entity: str) -> None:
    root = valid(shop, entity, shop.good(entity, "xml"))
    assert root.tag == entity
    assert [content(record) for record in root] == [as_text(record) for record in load(shop.good(entity, "json"))[entity]]


def as_text(value: Any) -> Any:
    """Return a JSON value with the texts that XML has for its values: U+FFFD for characters that XML cannot hold."""
    if isinstance(value, dict):
        return {name: as_text(each) for name, each in value.items()}
    if isinstance(value, list):
        return [as_text(each) for each in value]
    if value is None or value is True or value is False:
        return {None: None, True: "true", False: "false"}[value]
    return "".join(c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in str(value))


def test_an_xml_record_has_the_singular_name_of_its_collection(shop: Shop) -> None:
    root = etree.fromstring(shop.good("products", "xml", expand="variants", select="code", filter="code eq 'P0'"))
    assert etree.tostring(root[0]).decode().split(">", 1)[1].strip() == (
        "<code>P0</code><variants><variant><code>P0-S</code><name>small</name>"
        '<barcode xsi:nil="true"/><price>1.0000</price></variant><variant><code>P0-L</code><name>large</name>'
        '<barcode xsi:nil="true"/><price xsi:nil="true"/></variant></variants></product>'
    )


def test_xml_names_the_url_of_its_schema(shop: Shop) -> None:
    options = {"select": "code", "expand": "category,variants"}
    body = shop.good("products", "xml", **options)
    root = valid(shop, "products", body, **options)
    assert root.tag == "document" and [each.tag for each in root] == ["products", "categories"]
    url = root.get(f"{XSI}noNamespaceSchemaLocation") or ""
    reply = shop.service.ask(url[url.index("/api/") :])
    assert reply.status == 200
    etree.XMLSchema(etree.fromstring(reply.body)).assertValid(root)
