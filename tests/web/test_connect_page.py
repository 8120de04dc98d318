"""The page that tells programs how to connect, and the files that Power BI and Excel open."""

from __future__ import annotations

import json
import re

from lxml import etree

from tests.auth.client import ask, basic
from tests.service.serving import Service
from tests.web.visitor import Visitor


def test_the_address_answers(anna: Visitor, service: Service) -> None:
    page = anna.get("/connect?company=demo")
    [address] = page.all("//input[@id='odata']/@value")
    assert service.ask(address.partition(f":{service.port}")[2]).status == 200


def test_power_bi_opens_the_file(anna: Visitor, service: Service) -> None:
    reply = anna.get("/connect/pbids?company=demo").reply
    assert reply.headers["Content-Disposition"] == 'attachment; filename="demo.pbids"'
    [connection] = json.loads(reply.body)["connections"]
    assert connection["details"]["protocol"] == "odata"
    assert connection["details"]["address"]["url"].endswith("/api/odata/demo")


def test_excel_opens_the_file(anna: Visitor) -> None:
    reply = anna.get("/connect/odc?company=demo").reply
    assert reply.headers["Content-Type"].startswith("text/x-ms-odc")
    connection = re.search(rb"<odc:OfficeDataConnection.*</odc:OfficeDataConnection>", reply.body, re.DOTALL)
    assert connection is not None
    found = {element.tag.rpartition("}")[2]: element.text for element in etree.fromstring(connection[0]).iter()}
    assert "/api/odata/demo;" in (found["ConnectionString"] or "") and '"products"' in (found["CommandText"] or "")


def test_no_file_holds_a_key(anna: Visitor, service: Service) -> None:
    for path in ("/connect", "/connect/pbids", "/connect/odc"):
        assert b"bds_" not in anna.get(path + "?company=demo").reply.body


def test_other_files_and_companies_are_refused(anna: Visitor) -> None:
    assert anna.get("/connect/exe?company=demo").status == 404
    assert anna.get("/connect/pbids?company=third").status == 403


def test_a_key_is_made_in_place_that_reads_this_company_alone(anna: Visitor, service: Service) -> None:
    page = anna.post("/connect?company=demo", {"name": "excel", "expires": "30d"})
    assert page.status == 201 and page.typed("user") == "api"
    key = page.typed("new-key")
    [row] = service.operator.rows(
        "select companies, scopes, expires_at < now() + interval '31 days' from bds.api_keys where name = 'excel'"
    )
    assert row == (["demo"], ["read"], True)
    assert ask(service, "/api/odata/demo/units", headers=basic("api", key)).status == 200
    assert ask(service, "/api/odata/second/units", headers=basic("api", key)).status == 403
    for path in ("/connect", "/connect/pbids", "/connect/odc", "/keys"):
        assert key.encode() not in anna.get(path + "?company=demo").reply.body


def test_a_problem_of_the_key_is_shown_at_its_field_and_no_key_is_made(anna: Visitor, service: Service) -> None:
    before = service.operator.rows("select count(*) from bds.api_keys")
    assert anna.post("/connect?company=demo", {"name": " ", "expires": ""}).problems[0].startswith("Name: expected a name")
    assert anna.post("/connect?company=third", {"name": "x", "expires": ""}).status == 403
    assert anna.post("/connect?company=demo", {"name": "x", "expires": ""}, csrf="").status == 403
    reader = Visitor(service, {"X-API-Key": service.operator.key("demo", scopes=("read",))}, "")
    assert not reader.get("/connect?company=demo").all("//form[@method='post']")
    assert reader.post("/connect?company=demo", {"name": "x", "expires": ""}).status == 403
    assert service.operator.rows("select count(*) - 1 from bds.api_keys") == before
