"""Requests for exports: parameters, permissions, and the headers of the response."""

from __future__ import annotations

import json

import pytest
from lxml import etree

from app.errors import ERRORS
from app.export.response import content_disposition
from app.formats import CUSTOM, FORMATS, SCHEMA
from tests.export.conftest import Shop
from tests.export.exported import UNMAPPED
from tests.export.test_round_trip import ENTITIES

KINDS = {
    name: (each.media_type, f"products.{each.extension}")
    for each in (*FORMATS.values(), SCHEMA)
    if each is not CUSTOM
    for name in (each.name, each.name.title(), *each.aliases, *map(str.upper, each.aliases))
}
# path, status, code, target, part of the detail
BAD = [
    ("/api/demo/products?format=json", 400, "malformed_request", "export", "expected export=true"),
    ("/api/demo/products?format=json&export=false", 400, "malformed_request", "export", "export=true, got 'false'"),
    ("/api/demo/products?format=json&export=TRUE", 400, "malformed_request", "export", "export=true, got 'TRUE'"),
    ("/api/demo/products?export=true", 400, "malformed_request", "format", f"missing: expected one of {', '.join(FORMATS)}"),
    ("/api/demo/products?export=true&format=doc", 400, "malformed_request", "format", "got 'doc'"),
    ("/api/demo/products?export=true&format=", 400, "malformed_request", "format", "got ''"),
    ("/api/demo/products?export=true&format=custom", 400, "malformed_request", "mapper", "needs a mapper"),
    ("/api/demo/products?export=true&format=custom&mapper=", 400, "malformed_request", "mapper", "name of a mapper"),
    ("/api/demo/products?export=true&format=json&ids=no", 400, "malformed_request", "ids", "expected true or false, got 'no'"),
    ("/api/demo/orderItems?export=true&format=csv&ids=false&$select=id", 400, "malformed_request", "ids", "leaves no field"),
    ("/api/demo/orderItems?export=true&format=json&ids=false&$select=id", 400, "malformed_request", "ids", "leaves no field"),
    ("/api/demo/products?export=true&format=json&format=xml", 400, "malformed_request", "format", "given twice"),
    ("/api/demo/products?export=true&format=json&filter=x", 400, "malformed_request", "filter", "no such parameter: filter"),
    ("/api/demo/products?export=true&format=json&companyId=other", 400, "malformed_request", "companyId", "company of the path"),
    ("/api/demo/products?export=true&format=json&$filter=nope eq 1", 400, "malformed_query", "$filter", "no field nope (at character 1)"),
    ("/api/demo/products?export=true&format=json&$select=variants", 400, "malformed_query", "$select", "navigation property"),
    ("/api/demo/products?export=true&format=json&$expand=nope", 400, "malformed_query", "$expand", "not a navigation property"),
    ("/api/demo/products?export=true&format=jsonl&$expand=variants,unit", 400, "malformed_query", "$expand", "expected children: jsonl has one record a line, got unit"),
    ("/api/demo/products?export=true&format=json&$top=-1", 400, "malformed_query", "$top", "whole number"),
    ("/api/demo/products?export=true&format=json&$skip=x", 400, "malformed_query", "$skip", "whole number"),
    ("/api/demo/products?export=true&format=json&$orderby=name up", 400, "malformed_query", "$orderby", "character"),
    ("/api/demo/products?export=true&format=json&$count=true", 400, "malformed_query", "$count", "cannot be given here"),
    ("/api/demo/products?export=true&format=json&$apply=aggregate($count as n)", 400, "malformed_query", "$apply", "cannot be given"),
    ("/api/demo/products?export=true&format=json&$Filter=x", 400, "malformed_query", "$Filter", "expected $filter"),
    ("/api/demo/diff?since=0&format=json", 400, "malformed_request", "export", "expected export=true"),
    ("/api/demo/diff?since=0&format=csv&export=true", 400, "malformed_request", "format", "is json or xml, got csv"),
    ("/api/demo/diff?format=json&export=true", 400, "malformed_query", "since", "since is missing"),
    ("/api/demo/products?since=0&export=true&format=csv&$select=code", 400, "malformed_request", "$select", "csv takes $filter alone"),
    ("/api/demo/products?since=9999999&export=true&format=csv", 404, "not_found", "since", "yet to come"),
    ("/api/other/diff?since=0&export=true&format=json", 403, "forbidden", None, "no read access"),
    ("/api/demo/products?export=true&format=xlxs", 400, "malformed_request", "format", "got 'xlxs', did you mean xlsx?"),
    ("/api/demo/poducts?export=true&format=json", 404, "not_found", None, "no such entity: poducts, did you mean products?"),
    ("/api/demo/nothing?export=true&format=json", 404, "not_found", None, "no such entity: nothing"),
    ("/api/demo/products?export=true&format=json&$filter=%zz", 400, "malformed_request", None, "hexadecimal"),
    ("/api/other/products?export=true&format=json", 403, "forbidden", None, "no read access"),
    ("/api/products?export=true&format=json&companyId=other", 403, "forbidden", None, "no read access"),
    ("/api/products?export=true&format=json&companyId=nowhere", 403, "forbidden", None, "no read access"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "status", "code", "target", "expected"), BAD, ids=[each[0].partition("?")[2][-40:] for each in BAD]
)
def test_a_wrong_parameter_is_an_error_with_its_target(
    shop: Shop, path: str, status: int, code: str, target: str | None, expected: str
) -> None:
    reply = shop.service.ask(path.replace(" ", "%20"))
    assert (reply.status, reply.json["code"], reply.json.get("target")) == (status, code, target), reply.body
    assert reply.headers["Content-Type"] == "application/problem+json" and ERRORS[code][0] == status
    assert expected in reply.json["detail"]


@pytest.mark.parametrize("format", KINDS)
def test_an_export_is_sent_as_a_file(shop: Shop, format: str) -> None:
    media_type, name = KINDS[format]
    reply = shop.get("products", format, top=2)
    assert reply.status == 200
    assert reply.headers["Content-Type"] == media_type
    assert reply.headers["Content-Disposition"] == f'attachment; filename="{name}"'
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Content-Security-Policy"].startswith("sandbox;")
    assert int(reply.headers["Content-Length"]) == len(reply.body), "what is short is sent whole"
    head = shop.service.ask(f"/api/demo/products?export=true&format={format}", "HEAD")
    assert (head.status, head.headers["Content-Type"], head.body) == (200, media_type, b"")


def test_the_company_is_the_one_of_the_key_or_of_the_path_or_a_parameter(shop: Shop) -> None:
    of_the_path = shop.service.ask("/api/demo/units?export=true&format=csv").body
    for path in ("/api/units?export=true&format=csv", "/api/units?export=true&format=csv&companyId=demo"):
        assert shop.service.ask(path).body == of_the_path
    assert shop.service.ask("/api/demo/units?export=true&format=csv&companyId=demo").body == of_the_path


def test_a_key_of_several_companies_must_name_one(shop: Shop) -> None:
    shop.service.operator.company("second")
    key = f"Bearer {shop.service.operator.key('demo', 'second')}"
    reply = shop.service.ask("/api/units?export=true&format=json", authorization=key)
    assert (reply.status, reply.json["target"]) == (400, "companyId")
    empty = shop.service.ask("/api/units?export=true&format=json&companyId=second", authorization=key)
    assert empty.json == {"units": []}


def test_an_export_needs_the_scope_read(shop: Shop) -> None:
    path = "/api/demo/units?export=true&format=json"
    assert shop.service.ask(path, authorization=None).status == 401
    assert shop.service.ask(path, authorization=f"Bearer {shop.service.operator.key('demo', scopes=('import',))}").status == 403
    assert shop.service.ask("/api/units?export=true&format=json", authorization=None).status == 401
    importer = f"Bearer {shop.service.operator.key('demo', scopes=('import',))}"
    assert shop.service.ask("/api/units?export=true&format=json", authorization=importer).status == 403


def test_an_unknown_mapper_is_not_found(shop: Shop) -> None:
    reply = shop.get("products", "custom", mapper="any")
    assert (reply.status, reply.json["code"]) == (404, "not_found")


def test_other_methods_are_refused(shop: Shop) -> None:
    reply = shop.service.ask("/api/demo/units?export=true&format=json", "POST")
    assert (reply.status, set(reply.headers["Allow"].split(","))) == (405, {"GET", "HEAD"})


def test_an_export_contains_no_rows_of_another_company(shop: Shop) -> None:
    shop.service.operator.company("rival")
    shop.service.operator.write("rival", "insert into data.units (company_id, code, name) values ('rival', 'X', 'secret')")
    for format in UNMAPPED:
        assert b"secret" not in shop.good("units", format)


def test_filter_order_and_page_work_as_in_odata(shop: Shop) -> None:
    body = shop.good(
        "products", "json", filter="category/parent/code eq 'tools' and price gt 1", orderby="price desc", top=2, skip=1
    )
    options = "$filter=category/parent/code%20eq%20'tools'%20and%20price%20gt%201&$orderby=price%20desc&$top=2&$skip=1&$select=code"
    expected = [row["code"] for row in shop.service.odata(f"/products?{options}").json["value"]]

    assert [record["code"] for record in json.loads(body)["products"]] == expected and len(expected) == 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.csv", 'attachment; filename="a.csv"'),
        ('a"b.csv', "attachment; filename=\"a_b.csv\"; filename*=UTF-8''a%22b.csv"),
        ("Grüße.csv", "attachment; filename=\"Gr__e.csv\"; filename*=UTF-8''Gr%C3%BC%C3%9Fe.csv"),
        ("a\r\nb.csv", "attachment; filename=\"a__b.csv\"; filename*=UTF-8''a%0D%0Ab.csv"),
    ],
)
def test_file_names_are_written_as_in_rfc_6266(name: str, expected: str) -> None:
    assert content_disposition(name) == expected


@pytest.mark.parametrize("entity", ["diff", "invoices"])
def test_what_changed_is_sent_as_a_file_with_its_schema(shop: Shop, entity: str) -> None:
    path = f"/api/demo/{entity}?since=3&export=true&format="
    reply = shop.service.ask(path + "xml")
    assert (reply.status, reply.headers["Content-Disposition"]) == (200, f'attachment; filename="{entity}.xml"')
    assert reply.headers["X-BDS-Generation"] == "1"
    root = etree.fromstring(reply.body)
    [location] = root.xpath("@*[local-name() = 'noNamespaceSchemaLocation']")
    schema = shop.service.ask(location.partition(f":{shop.service.port}")[2])
    etree.XMLSchema(etree.fromstring(schema.body)).assertValid(root)
    document = shop.service.ask(path + "json").json
    assert document.keys() == (
        {"invoices"} if entity == "invoices" else set(ENTITIES) - {"productVariants", "orderItems", "invoiceItems"}
    )
    assert shop.service.ask(path + "json", method="HEAD").status == 200
