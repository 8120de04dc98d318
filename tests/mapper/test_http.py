"""Mappers over HTTP: store, list, preview and import; errors have the line of the source; companies are separate."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.service.serving import PATIENCE, Reply, Service, running

UNITS = "type csv\nunits = 'row' { code = 'c'  name = 'n' }  # é"
CATALOGUE = "type xml\n@atomic = 'false'\nproducts = '//p' { id[code] = '@c'  name = 'n'  price = number('v', \"de\")  category[code] = 'g' }"
MAPPERS = "/api/demo/mappers"


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, import_max=1 << 20) as service:
        service.operator.company("other")
        yield service


def send(service: Service, method: str, path: str, body: str | bytes = b"", key: str | None = None, **headers: str) -> Reply:
    connection = http.client.HTTPConnection(service.host, service.port, timeout=PATIENCE)
    sent = {"X-API-Key": key or service.key} | {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body.encode() if isinstance(body, str) else body, sent)
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


def put(service: Service, name: str, text: str, **options: Any) -> Reply:
    return send(service, "PUT", f"{MAPPERS}/{name}", text, Content_Type="text/plain", **options)


@pytest.fixture
def units(service: Service) -> str:
    assert put(service, "units", UNITS).status in (201, 204)
    return "units"


def test_a_mapper_is_stored_read_replaced_and_deleted(service: Service) -> None:
    made = put(service, "a.B-1_x", UNITS)
    assert (made.status, made.headers["Location"], made.body) == (201, f"{MAPPERS}/a.B-1_x", b"")
    read = send(service, "GET", f"{MAPPERS}/a.B-1_x")
    assert (read.status, read.headers["Content-Type"], read.body.decode()) == (200, "text/plain; charset=utf-8", UNITS)
    assert put(service, "a.B-1_x", CATALOGUE).status == 204
    assert send(service, "GET", f"{MAPPERS}/a.B-1_x").body.decode() == CATALOGUE
    listed = send(service, "GET", MAPPERS).json["data"][0]
    assert (listed["name"], listed["type"]) == ("a.B-1_x", "xml")
    assert listed["createdAt"] < listed["updatedAt"]
    assert send(service, "DELETE", f"{MAPPERS}/a.B-1_x").status == 204
    for method in ("GET", "DELETE"):
        assert send(service, method, f"{MAPPERS}/a.B-1_x").status == 404
    assert send(service, "POST", f"{MAPPERS}/a.B-1_x/preview", "c,n\n").status == 404


def test_the_list_has_pages(service: Service) -> None:
    for n in range(3):
        put(service, f"page{n}", UNITS)
    page = send(service, "GET", f"{MAPPERS}?limit=2").json
    assert ([each["name"] for each in page["data"]], page["hasMore"]) == (["page2", "page1"], True)
    assert [each["name"] for each in send(service, "GET", f"{MAPPERS}?limit=1&offset=2").json["data"]] == ["page0"]
    assert send(service, "GET", f"{MAPPERS}?limit=0").status == 400


def test_a_template_is_stored_but_cannot_import(service: Service) -> None:
    assert put(service, "page", "type template text/html\n<h1>{{ entity }}</h1>").status == 201
    refused = send(service, "POST", "/api/demo/import?mapper=page", "c,n\n", Content_Type="text/csv")
    assert (refused.status, refused.json["code"]) == (400, "invalid_mapper")
    assert "is a template and cannot read a source" in refused.json["detail"]
    assert put(service, "page", "type template text/html\n\n{{ x").json["line"] == 3


WRONG = [
    # path, body, content type, status, code, part of the message
    ("/bad", "type csv\nunits = 'row' { cod = 'c' }", "text/plain", 400, "invalid_mapper", "line 2, column 17: units has no field cod, expected one of id, code"),
    ("/bad", b"type csv\nunits = '\xff'", "text/plain", 400, "invalid_mapper", "line 2, column 10: expected UTF-8"),
    ("/bad", "type csv\n\0", "text/plain", 400, "invalid_mapper", "line 2, column 1: the character U+0000 is not allowed"),
    ("/bad", UNITS, "application/json", 415, "unsupported_media_type", "expected text/plain, got application/json"),
    ("/-bad", UNITS, "text/plain", 400, "malformed_request", "-bad"),
    ("/" + "x" * 64, UNITS, "text/plain", 400, "malformed_request", "x" * 64),
    ("/bad", "type csv" + " " * 300_000, "text/plain", 413, "too_large", "a mapper has at most 262,144 characters"),
    ("/bad", "type csv" + " " * 2_000_000, "text/plain", 413, "too_large", "too large"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "type", "status", "code", "message"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_mapper_is_not_stored(
    service: Service, path: str, body: str | bytes, type: str, status: int, code: str, message: str
) -> None:
    reply = send(service, "PUT", MAPPERS + path, body, Content_Type=type)
    assert (reply.status, reply.json["code"]) == (status, code)
    assert message in reply.json["detail"]
    assert send(service, "GET", MAPPERS + path).status == 404


def test_an_import_through_a_mapper(service: Service, units: str) -> None:
    source = "c;n\r\nA;Ä\r\nB;b\r\n".encode("windows-1252")
    for body, coding in ((source, "identity"), (gzip.compress(source), "gzip")):
        reply = send(service, "POST", "/api/demo/import?mapper=units", body, Content_Type="text/csv", Content_Encoding=coding)
        assert (reply.status, reply.json["state"]) == (200, "completed")
    assert reply.json["entities"]["units"]["unchanged"] == 2
    assert reply.json["progress"]["bytes"] == len(source), "bytes of the source"
    assert service.operator.rows("select code, name from data.units order by code") == [("A", "Ä"), ("B", "b")]
    dry = send(service, "POST", "/api/demo/import?mapper=units&dryRun=true", "c,n\nC,c\n", Content_Type="text/csv; charset=utf-8")
    assert (dry.json["dryRun"], dry.json["entities"]["units"]["created"]) == (True, 1)
    assert len(service.operator.rows("select from data.units")) == 2


def test_errors_have_the_line_of_the_source(service: Service) -> None:
    assert put(service, "catalogue", CATALOGUE).status in (201, 204)
    source = "<r>\n<p c='1'><n>a</n><v>1,5</v></p>\n<p c='2'>\n<n>b</n><v>1.5</v></p>\n<p c='3'><n/></p><p c='4'><n>d</n><g>none</g></p></r>"
    report = send(service, "POST", "/api/demo/import?mapper=catalogue", source, Content_Type="text/xml").json
    assert (report["state"], report["atomic"], report["entities"]["products"]["created"]) == ("partial", False, 1)
    expected = [
        ("products[1].price", "code:2", "invalid_value", "line 3: expected a number"),
        ("products[2].name", "code:3", "required", "line 5: "),
        ("products[3].category", "code:4", "lookup_not_found", "line 5: "),
    ]
    assert [(e["path"], e["record"], e["code"]) for e in report["errors"]] == [each[:3] for each in expected]
    assert all(e["message"].startswith(each[3]) for e, each in zip(report["errors"], expected, strict=True)), report["errors"]
    assert "de" in report["errors"][0]["message"] and "1234,5, got '1.5'" in report["errors"][0]["message"]
    kept = service.ask(f"/api/demo/imports/{report['importId']}").json
    assert kept["errors"] == report["errors"]
    assert service.ask(f"/api/demo/imports/{report['importId']}/errors").json["data"] == report["errors"]


def test_errors_of_children_have_their_own_line(service: Service) -> None:
    text = (
        "type csv\ninvoices = 'row' { code = 'c' invoiceDate = \"2026-11-20\" items = '.' { quantity = 'q' product[code] = 'p' } }"
    )
    assert put(service, "lines", text).status in (201, 204)
    report = send(service, "POST", "/api/demo/import?mapper=lines", "c,q,p\nX,1,\nX,x,\nX,3,none\n", Content_Type="text/csv").json
    assert [(e["path"], e["message"].partition(":")[0]) for e in report["errors"] if e["code"] != "batch_failed"] == [
        ("invoices[0].items[1].quantity", "line 3"), ("invoices[0].items[2].product", "line 4"),
    ]  # fmt: skip


def test_errors_of_json_have_the_number_of_the_element(service: Service) -> None:
    put(service, "json", "type json\nunits = '$.a[?@.k]' { code = 'c' name = 'n' }")
    source = json.dumps({"a": [{"c": "x"}, {"k": 1, "c": "J1", "n": "a"}, {"k": 1, "c": "J2"}]})
    report = send(service, "POST", "/api/demo/import?mapper=json", source, Content_Type="application/json").json
    found = [(e["path"], e["code"], e["message"].partition(":")[0]) for e in report["errors"] if e["code"] != "batch_failed"]
    assert found == [("units[1].name", "required", "record 3")]


def test_operations_and_conditions_of_a_source_touch_no_other_rows(service: Service) -> None:
    """A null condition, an unknown operation and a malformed condition fail their record; none means all rows."""
    service.operator.company("swept")
    key = service.operator.key("swept")
    columns = "insert into data.units (company_id, code, name) values"
    service.operator.write("swept", f"{columns} ('swept', 'A', 'a'), ('swept', 'B', 'b'), ('swept', 'C', 'c')")
    text = "type csv\n@atomic = 'false'\nunits = 'row' { @operation = 'op' @where = 'w' name = 'n' }"
    sent = send(service, "PUT", "/api/swept/mappers/sweep", text, key=key, Content_Type="text/plain")
    assert sent.status == 201
    source = "op,w,n\ndelete,,\nupdate,,x\npurge,code = 'A',x\nupdate,code =,x\nupdate,code = 'B',y\ndelete,code = 'C',\n"
    report = send(service, "POST", "/api/swept/import?mapper=sweep", source, key=key, Content_Type="text/csv").json
    assert [(each["path"], each["code"], each["message"].partition(":")[0]) for each in report["errors"]] == [
        ("units[0].@where", "required", "line 2"), ("units[1].@where", "required", "line 3"),
        *((f"units[2].{name}", "invalid_directive", "line 4") for name in ("@operation", "@where")), ("units[3].@where", "invalid_directive", "line 5"),
    ]  # fmt: skip
    assert service.operator.rows("select code, name from data.units where company_id = 'swept' order by 1") == [
        ("A", "a"), ("B", "y"),
    ]  # fmt: skip


REFUSED = [
    # query, body, content type, status, code
    ("mapper=none", "c,n\n", "text/csv", 404, "not_found"),
    ("mapper=units", "c,n\n", "application/json", 415, "unsupported_media_type"),
    ("mapper=units", "c,n\n", "application/xml", 415, "unsupported_media_type"),
    ("mapper=units", "a,b\n1,2\n", "text/csv", 400, "invalid_document"),
    ("mapper=units", "", "text/csv", 400, "malformed_document"),
    ("mapper=units", 'c,n\n1,"2\n', "text/csv", 400, "malformed_document"),
    ("mapper=units", "c,n\n" + "x,y\n" * (1 << 18), "text/csv", 413, "too_large"),
    ("mapper=units&other=1", "c,n\n", "text/csv", 400, "malformed_request"),
]


@pytest.mark.parametrize(("query", "body", "type", "status", "code"), REFUSED, ids=range(len(REFUSED)))
def test_an_unreadable_import_writes_nothing(
    service: Service, units: str, query: str, body: str, type: str, status: int, code: str
) -> None:
    before = service.operator.rows("select count(*) from data.units")
    reply = send(service, "POST", f"/api/demo/import?{query}", body, Content_Type=type)
    assert (reply.status, reply.json["code"]) == (status, code), reply.json
    assert service.operator.rows("select count(*) from data.units") == before
    assert service.operator.rows("select count(*) from pg_class where relnamespace = 'staging'::regnamespace") == [(0,)]


@pytest.mark.parametrize("type", ["text/csv", "application/octet-stream", "text/plain", "application/x-www-form-urlencoded"])
def test_generic_content_types_are_accepted(service: Service, units: str, type: str) -> None:
    assert send(service, "POST", "/api/demo/mappers/units/preview", "c,n\n1,a\n", Content_Type=type).status == 200


def test_a_preview_is_an_import_document(service: Service, units: str) -> None:
    source = "c,n\n" + "".join(f"{n},{n}\n" for n in range(20))
    shown = send(service, "POST", f"{MAPPERS}/units/preview", source, Content_Type="text/csv")
    assert (shown.status, shown.headers["Content-Type"]) == (200, "application/json")
    assert shown.json == {"units": [{"code": str(n), "name": str(n)} for n in range(10)]}
    assert len(send(service, "POST", f"{MAPPERS}/units/preview?limit=3", source, Content_Type="text/csv").json["units"]) == 3
    assert len(send(service, "POST", f"{MAPPERS}/units/preview?limit=30", source, Content_Type="text/csv").json["units"]) == 20
    for limit in ("0", "x", "1001", ""):
        assert send(service, "POST", f"{MAPPERS}/units/preview?limit={limit}", source, Content_Type="text/csv").status == 400


def test_a_preview_shows_invalid_values(service: Service) -> None:
    put(service, "catalogue", CATALOGUE)
    shown = send(
        service, "POST", f"{MAPPERS}/catalogue/preview", "<r><p c='1'><v>1.5</v></p></r>", Content_Type="application/xml"
    ).json
    assert shown["@atomic"] is False
    (product,) = shown["products"]
    assert product == {"id": "code:1", "price": {"@invalid": product["price"]["@invalid"]}}
    assert product["price"]["@invalid"].endswith("1234,5, got '1.5'")
    assert send(service, "POST", f"{MAPPERS}/catalogue/preview", "<r><p></r>", Content_Type="application/xml").status == 400


def test_a_preview_reads_only_as_far_as_needed(service: Service, units: str) -> None:
    shown = send(
        service, "POST", f"{MAPPERS}/units/preview?limit=1", "c,n\n1,a\n2,b,c,d\n" + 'x,"y\n' * 100_000, Content_Type="text/csv"
    )
    assert shown.json == {"units": [{"code": "1", "name": "a"}]}


def test_companies_have_separate_mappers(service: Service, units: str) -> None:
    other = service.operator.key("other")
    assert send(service, "GET", f"{MAPPERS}/units", key=other).status == 403
    assert send(service, "GET", "/api/other/mappers/units", key=other).status == 404
    assert send(service, "GET", "/api/other/mappers", key=other).json == {"data": [], "hasMore": False}
    assert (
        send(
            service,
            "PUT",
            "/api/other/mappers/units",
            "type csv products = 'row' { code = 'c' }",
            key=other,
            Content_Type="text/plain",
        ).status
        == 201
    )
    assert send(service, "GET", f"{MAPPERS}/units").body.decode() == UNITS
    assert send(service, "DELETE", "/api/other/mappers/units", key=other).status == 204
    assert send(service, "GET", f"{MAPPERS}/units").status == 200


@pytest.mark.parametrize(
    ("method", "path"), [("GET", ""), ("GET", "/units"), ("PUT", "/units"), ("DELETE", "/units"), ("POST", "/units/preview")]
)
def test_mappers_need_the_import_scope(service: Service, units: str, method: str, path: str) -> None:
    reader = service.operator.key("demo", scopes=("read", "hooks"))
    assert send(service, method, MAPPERS + path, UNITS, key=reader, Content_Type="text/plain").status == 403
    assert send(service, method, MAPPERS + path, UNITS, key="bds_" + "x" * 43, Content_Type="text/plain").status == 401
    assert send(service, "GET", f"{MAPPERS}/units").status == 200


def test_other_methods_are_not_allowed(service: Service, units: str) -> None:
    refused = send(service, "POST", f"{MAPPERS}/units", UNITS, Content_Type="text/plain")
    assert (refused.status, refused.headers["Allow"]) == (405, "DELETE,GET,HEAD,PUT")
    assert send(service, "GET", f"{MAPPERS}/units/preview").status == 405
