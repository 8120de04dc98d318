"""The export form: what is chosen becomes a URL of the API, which the browser then asks for with the same session."""

from __future__ import annotations

import shlex
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.auth.client import ask
from tests.service.serving import Service
from tests.web.visitor import Page, Visitor


def choose(anna: Visitor, do: str = "download", **fields: str | list[str]) -> Page:
    return anna.get("/export?" + urlencode({"company": "demo", "entity": "units", "format": "csv", "do": do, **fields}, doseq=True))


def test_a_file_comes_from_the_api(anna: Visitor, service: Service) -> None:
    service.operator.write(
        "demo", "insert into data.units (company_id, code, name) values ('demo', 'A', 'a, b & c'), ('demo', 'B', 'é+''#?')"
    )
    page = choose(anna, columns=["code", "name"], filter="name ne 'a, b & c' or code eq 'A'", orderby="code desc", top="1")
    assert page.status == 303 and page.location is not None
    reply = ask(service, page.location, headers=anna.headers)
    assert reply.status == 200 and reply.headers["Content-Disposition"] == 'attachment; filename="units.csv"'
    assert reply.body.decode("utf-8-sig").split() == ["code,name", "B,é+'#?"]


def test_the_url_is_shown_for_programs(anna: Visitor, service: Service) -> None:
    page = choose(anna, "url", filter="code eq 'A'")
    url = urlsplit(page.one("//input[@id='url']/@value"))
    assert url.path == "/api/demo/units"
    assert parse_qs(url.query) == {"format": ["csv"], "export": ["true"], "$filter": ["code eq 'A'"]}
    assert service.ask(f"{url.path}?{url.query}").status == 200


def test_the_command_that_is_shown_can_be_pasted(anna: Visitor) -> None:
    """Whoever has made the link to the page, and whatever its filter holds."""
    page = choose(anna, "url", filter="code eq '$(touch x)' or code eq 'B'")
    words = shlex.split(page.one("//code[starts-with(., 'curl')]"))
    assert words[:4] == ["curl", "-OJ", "-H", "X-API-Key: …"] and len(words) == 5
    assert parse_qs(urlsplit(words[4]).query)["$filter"] == ["code eq '$(touch x)' or code eq 'B'"]
    assert "'" not in words[4]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"filter": "prise gt 1"}, "Filter: units has no field prise (at character 1)"),
        ({"filter": "code eq"}, "Filter: "),
        ({"orderby": "prise"}, "Order: "),
        ({"top": "many"}, "At most: "),
        ({"columns": ["prise"]}, "Columns: "),
        ({"format": "doc"}, "Format: "),
        ({"format": "mapper"}, "Mapper: Choose a mapper"),
        ({"entity": "<b>"}, "Entity: There is no entity <b>"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_what_was_typed_stays(anna: Visitor, fields: dict[str, str], problem: str) -> None:
    page = choose(anna, **fields)
    assert page.status == 400
    assert len(page.problems) == 1 and page.problems[0].startswith(problem)
    for name in ("filter", "orderby", "top"):
        assert page.typed(name) == fields.get(name, "")


def test_the_columns_are_those_of_the_entity(anna: Visitor) -> None:
    page = anna.get("/export?company=demo&entity=invoiceItems")
    assert page.all("//input[@name='columns']/@value") == [
        "id",
        "description",
        "quantity",
        "price",
        "invoice",
        "product",
        "updatedAt",
    ]


def test_a_mapper_can_be_chosen(anna: Visitor, service: Service) -> None:
    template = "type template text/plain\n{% for row in rows %}{{ row.code }};{% endfor %}"
    assert anna.post("/mappers/_new?company=second", {"do": "save", "name": "codes", "text": template}).status == 303
    service.operator.write("second", "insert into data.units (company_id, code, name) values ('second', 'X', 'x')")
    page = anna.get(
        "/export?" + urlencode({"company": "second", "entity": "units", "format": "mapper", "mapper": "codes", "do": "download"})
    )
    assert page.location is not None
    assert ask(service, page.location, headers=anna.headers).body == b"X;"
