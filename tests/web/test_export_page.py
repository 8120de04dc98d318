"""The export form redirects to an export of the API, or shows its URL."""

from __future__ import annotations

import shlex
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.auth.client import ask
from tests.service.serving import Service
from tests.web.visitor import Page, Visitor


def choose(anna: Visitor, do: str = "download", **fields: str | list[str]) -> Page:
    return anna.get("/export?" + urlencode({"company": "demo", "entity": "units", "format": "csv", "do": do, **fields}, doseq=True))


def test_a_download_redirects_to_the_api(anna: Visitor, service: Service) -> None:
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


def test_the_curl_command_is_safe_to_paste_into_a_shell(anna: Visitor) -> None:
    """Even if the link to the page was made by an attacker."""
    page = choose(anna, "url", filter="code eq '$(touch x)' or code eq 'B'")
    words = shlex.split(page.one("//code[starts-with(., 'curl')]"))
    assert words[:4] == ["curl", "-OJ", "-H", "X-API-Key: …"] and len(words) == 5
    assert parse_qs(urlsplit(words[4]).query)["$filter"] == ["code eq '$(touch x)' or code eq 'B'"]
    assert "'" not in words[4]


@pytest.mark.parametrize(
    ("fields", "problem", "named"),
    [
        ({"filter": "prise gt 1"}, "Filter: ", "prise (at character 1)"),
        ({"filter": "code eq"}, "Filter: ", "character 8"),
        ({"orderby": "prise"}, "Sort by: ", "prise"),
        ({"top": "many"}, "Maximum rows: ", "a whole number"),
        ({"columns": ["prise"]}, "Columns: ", "prise"),
        ({"format": "doc"}, "Format: ", "doc"),
        ({"format": "mapper"}, "Mapper: Choose a mapper", ""),
        ({"entity": "<b>"}, "Entity: No such entity: <b>", ""),
    ],
)
def test_a_problem_is_shown_at_its_field_and_typed_values_stay(
    anna: Visitor, fields: dict[str, str], problem: str, named: str
) -> None:
    page = choose(anna, **fields)
    assert page.status == 400
    assert len(page.problems) == 1 and page.problems[0].startswith(problem) and named in page.problems[0]
    for name in ("filter", "orderby", "top"):
        assert page.typed(name) == fields.get(name, "")


def test_the_form_has_the_columns_of_the_entity(anna: Visitor) -> None:
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


def test_an_export_by_a_mapper(anna: Visitor, service: Service) -> None:
    template = "type template text/plain\n{% for row in rows %}{{ row.code }};{% endfor %}"
    assert anna.post("/mappers/_new?company=second", {"do": "save", "name": "codes", "text": template}).status == 303
    service.operator.write("second", "insert into data.units (company_id, code, name) values ('second', 'X', 'x')")
    page = anna.get(
        "/export?" + urlencode({"company": "second", "entity": "units", "format": "mapper", "mapper": "codes", "do": "download"})
    )
    assert page.location is not None
    assert ask(service, page.location, headers=anna.headers).body == b"X;"
