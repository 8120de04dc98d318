"""Reading over HTTP: envelopes, context URLs, entity tags, formats."""

from __future__ import annotations

import base64
import gzip
import json

import pytest

from tests.service.serving import Service


@pytest.fixture(scope="module", autouse=True)
def _units(service: Service) -> None:
    service.operator.company("other")
    service.operator.write(
        "demo",
        "insert into data.units (company_id, code, name) select 'demo', 'U' || g, 'unit ' || g from generate_series(1, 500) g",
    )
    service.operator.write(
        "demo",
        "insert into data.products (company_id, code, name, price) values ('demo', 'P1', 'a \"quoted\" ü', 1.23)",
    )
    service.operator.write("other", "insert into data.units (company_id, code, name) values ('other', 'secret', 'secret')")


def product_id(service: Service) -> int:
    return service.odata("/products?$select=id").json["value"][0]["id"]


def test_a_collection_is_an_envelope_of_rows(service: Service) -> None:
    reply = service.odata("/units")
    root = f"http://{service.host}:{service.port}/api/odata/demo/"
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json;odata.metadata=minimal"
    assert reply.json["@odata.context"] == f"{root}$metadata#units"
    assert next(iter(reply.json)) == "@odata.context"
    assert [row["code"] for row in reply.json["value"]] == [f"U{n}" for n in range(1, 501)]


CONTEXTS = [
    ("/units", "#units"),
    ("/units?$top=1", "#units"),
    ("/units?$select=code,name", "#units(code,name)"),
    ("/products(code='P1')", "#products/$entity"),
    ("/products(code='P1')?$select=code", "#products(code)/$entity"),
    ("/units?$filter=code eq 'none'".replace(" ", "%20"), "#units"),
]


@pytest.mark.parametrize(("path", "fragment"), CONTEXTS)
def test_context_urls(service: Service, path: str, fragment: str) -> None:
    assert service.odata(path).json["@odata.context"].endswith("/api/odata/demo/$metadata" + fragment)
    assert b"@odata.context" not in service.odata(path, Accept="application/json;odata.metadata=none").body


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 200, 201, 499, 500, 501])
def test_pages_of_every_size_are_whole(service: Service, size: int) -> None:
    reply = service.odata(f"/units?$top={size}&$count=true&$select=code")
    assert reply.json["@odata.count"] == 500
    assert [row["code"] for row in reply.json["value"]] == [f"U{n}" for n in range(1, min(size, 500) + 1)]


def test_a_row_is_read_by_any_of_its_keys(service: Service) -> None:
    number = product_id(service)
    for key in (str(number), f"id={number}", "code='P1'", "code=%27P1%27"):
        row = service.odata(f"/products({key})").json
        assert (row["id"], row["code"], row["name"]) == (number, "P1", 'a "quoted" ü')
        assert next(iter(row)) == "@odata.context"
    assert service.odata("/products(0)").status == 404
    assert service.odata("/products(code='none')").status == 404
    assert service.odata("/products(x)").status == 400


def test_counts_are_text(service: Service) -> None:
    for path, expected in (("/units/$count", b"500"), ("/units/$count?$filter=code%20eq%20'U7'", b"1")):
        reply = service.odata(path, Accept="application/xml")
        assert (reply.status, reply.headers["Content-Type"], reply.body) == (200, "text/plain", expected)
    assert service.odata("/units/$count?$top=1").status == 400


def test_numbers_keep_their_digits(service: Service) -> None:
    assert b'"price":1.2300' in service.odata("/products").body
    reply = service.odata("/products", Accept="application/json;IEEE754Compatible=true")
    assert reply.headers["Content-Type"].endswith(";IEEE754Compatible=true")
    row = reply.json["value"][0]
    assert (row["price"], row["id"]) == ("1.2300", str(product_id(service)))


def test_the_count_follows_ieee754compatible(service: Service) -> None:
    strings = "application/json;IEEE754Compatible=true"
    for path in ("/units?$count=true", "/units?$count=true&$top=1", "/units?$count=true&$apply=groupby((code))"):
        assert service.odata(path).json["@odata.count"] == 500
        assert service.odata(path, Accept=strings).json["@odata.count"] == "500"


def test_full_metadata_names_types_and_links(service: Service) -> None:
    reply = service.odata("/products", Accept="application/json;odata.metadata=full")
    assert reply.headers["Content-Type"] == "application/json;odata.metadata=full"
    row = reply.json["value"][0]
    assert row["@odata.type"] == "#bds.product"
    assert row["@odata.id"].endswith(f"products({row['id']})")
    assert row["price@odata.type"] == "#Decimal"


PATHS = ["", "/$metadata", "/units", "/units?$top=2", "/products(code='P1')", "/units/$count"]


@pytest.mark.parametrize("path", PATHS)
def test_a_matching_tag_is_a_304(service: Service, path: str) -> None:
    first = service.odata(path)
    for tag in (first.headers["ETag"], first.headers["ETag"].removeprefix("W/"), f'"x", {first.headers["ETag"]}', "*"):
        reply = service.odata(path, If_None_Match=tag)
        assert (reply.status, reply.body, reply.headers["ETag"]) == (304, b"", first.headers["ETag"])
        assert reply.headers["OData-Version"] == "4.0"
    assert service.odata(path, If_None_Match='W/"x"').status == 200
    assert service.odata(path, If_Match='"x"').status == 200
    head = service.odata(path, method="HEAD")
    assert (head.status, head.body, head.headers["ETag"]) == (200, b"", first.headers["ETag"])
    assert head.headers["Content-Type"] == first.headers["Content-Type"]


def test_a_tag_depends_on_data_request_and_format(service: Service) -> None:
    tags = {
        service.odata(path).headers["ETag"] for path in ("/units", "/units?$top=5", "/units?$top=6", "/units?x", "/units/$count")
    }
    tags |= {
        service.odata("/units", Accept=f"application/json;{each}").headers["ETag"]
        for each in ("odata.metadata=none", "IEEE754Compatible=true")
    }
    assert len(tags) == 7
    before, products = service.odata("/units").headers["ETag"], service.odata("/products?$top=1").headers["ETag"]
    service.operator.write("demo", "update data.units set name = name || '!' where code = 'U1'")
    assert service.odata("/units", If_None_Match=before).status == 200
    assert service.odata("/products?$top=1", If_None_Match=products).status == 304


def test_a_tag_of_a_company_that_was_deleted_does_not_fit_the_next_one_of_its_id(service: Service) -> None:
    paths = (
        "/api/odata/twice/units",
        "/api/odata/twice@1/units",
        "/c/twice/units",
        "/c/twice/units?version=1",
        "/c/twice/changes",
    )
    tags = []
    for code in ("A", "B"):
        service.operator.company("twice")
        basic = "Basic " + base64.b64encode(f"api:{service.operator.key('twice')}".encode()).decode()
        service.operator.write("twice", "insert into data.units (code, name) values (%s, 'unit')", (code,))
        replies = [service.ask(path, authorization=basic) for path in paths]
        assert [reply.status for reply in replies] == [200] * len(paths)
        tags += [reply.headers["ETag"] for reply in replies]
        service.operator.delete_company("twice")
    assert len({*tags}) == 2 * len(paths)


def test_a_missing_row_is_never_a_304(service: Service) -> None:
    missing = service.odata("/products(0)")
    assert service.odata("/products(0)", If_None_Match=missing.headers["ETag"]).status == 404
    assert service.odata("/products(0)", If_None_Match="*").status == 404


def test_gzip_is_used_if_accepted(service: Service) -> None:
    for path in ("/units", "/units?$top=100", "/$metadata"):
        reply = service.odata(path, Accept_Encoding="gzip")
        assert reply.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(reply.body) == service.odata(path).body
    assert "Content-Encoding" not in service.odata("/units?$top=1", Accept_Encoding="gzip").headers


REFUSED = [
    ("/units?$filter=nothing%20eq%201", 400, "$filter"),
    ("/units?$filter=code%20eq", 400, "$filter"),
    ("/units?$top=x", 400, "$top"),
    ("/units?$top=1&$top=2", 400, "$top"),
    ("/units?$Top=1", 400, "$Top"),
    ("/units?$nothing=1", 400, "$nothing"),
    ("/units?$apply=filter(id%20gt%201)", 501, "$apply"),
    ("/units(1)?$top=1", 400, "$top"),
]


@pytest.mark.parametrize(("path", "status", "target"), REFUSED)
def test_errors_name_the_option(service: Service, path: str, status: int, target: str) -> None:
    reply = service.odata(path)
    assert (reply.status, reply.json["error"]["target"]) == (status, target)
    assert reply.headers["Content-Type"].startswith("application/json")
    assert reply.headers["ETag"] == service.odata(path).headers["ETag"]


def test_search_has_no_effect_and_a_warning(service: Service) -> None:
    reply = service.odata("/units?$search=x&$top=3")
    assert len(reply.json["value"]) == 3
    assert reply.headers["Warning"] == '299 - "$search has no effect"'


def test_a_plus_is_a_space_and_options_without_a_dollar_are_ignored(service: Service) -> None:
    assert service.odata("/units?$filter=code+eq+'U7'&x=1&x=2").json["value"][0]["code"] == "U7"


def test_rows_of_another_company_are_not_read(service: Service) -> None:
    for path in ("/units", "/units?$filter=code%20eq%20'secret'", "/units?$top=200&$skip=400"):
        assert b"secret" not in service.odata(path).body.replace(b"'secret'", b"")
    assert service.odata("/units(code='secret')").status == 404


def test_a_malformed_host_is_an_error(service: Service) -> None:
    request = f'GET /api/odata/demo HTTP/1.1\r\nHost: a"b\r\nAuthorization: {service.basic}\r\nConnection: close\r\n\r\n'
    reply = service.raw(request.encode())
    assert (reply.status, json.loads(reply.body)["error"]["target"]) == (400, "Host")


def test_an_http_1_0_client_reads_until_the_end(service: Service) -> None:
    request = f"GET /api/odata/demo/units HTTP/1.0\r\nAuthorization: {service.basic}\r\n\r\n"
    reply = service.raw(request.encode())
    assert "Transfer-Encoding" not in reply.headers
    assert len(reply.json["value"]) == 500
