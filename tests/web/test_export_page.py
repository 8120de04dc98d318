"""The export form redirects to an export of the API, or shows its URL."""

from __future__ import annotations

import shlex
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from app import extras
from app.formats import FORMATS
from tests.auth.client import ask
from tests.export.conftest import put_mapper
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
        ({"format": "custom"}, "Mapper: Choose a mapper", ""),
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
        "/export?" + urlencode({"company": "second", "entity": "units", "format": "custom", "mapper": "codes", "do": "download"})
    )
    assert page.location is not None
    assert ask(service, page.location, headers=anna.headers).body == b"X;"


def test_a_template_leads_to_an_export_with_it(anna: Visitor) -> None:
    text = "type template text/plain\n{{ rows }}"
    assert anna.post("/mappers/_new?company=second", {"do": "save", "name": "linked", "text": text}).status == 303
    page = anna.get(anna.get("/mappers?company=second").one("//tr[th='linked']//a[.='Export with it']/@href"))
    assert page.status == 200 and page.typed("mapper") == "linked"
    assert page.one("//input[@name='format'][@checked]/@value") == "custom"


@pytest.mark.parametrize(("given", "chosen"), [("XLSX", "excel"), ("ndjson", "jsonl"), ("Csv", "csv"), ("", "csv")])
def test_a_format_is_named_in_any_case_and_by_its_other_name(anna: Visitor, given: str, chosen: str) -> None:
    page = choose(anna, "url", format=given)
    assert page.status == 200 and page.one("//input[@name='format'][@checked]/@value") == chosen
    assert f"format={chosen}" in page.one("//input[@id='url']/@value")


def test_every_version_is_exported_where_it_is_asked_for(anna: Visitor) -> None:
    for given, is_checked in (("true", True), ("false", False)):
        page = choose(anna, "url", since="0", versions=given)
        assert page.status == 200 and f"versions={given}" in page.one("//input[@id='url']/@value")
        assert bool(page.all("//input[@name='versions'][@checked]")) == is_checked
    assert choose(anna, "url", since="0", versions="maybe").problems == ["Versions: expected true or false, got 'maybe'"]


def test_the_preview_of_the_past_leads_to_now_with_the_whole_form(anna: Visitor) -> None:
    given: dict[str, str | list[str]] = {
        "entity": "units", "format": "custom", "mapper": "linked", "columns": ["code", "name"], "filter": "code ne 'Y'", "top": "3"
    }  # fmt: skip
    past = form_of(anna, company="second", asof="0", **given)
    [now] = past.all("//section[@aria-label='The past']//a[.='Now']/@href")
    assert parse_qs(urlsplit(now).query) == {
        "company": ["second"],
        **{name: each if isinstance(each, list) else [each] for name, each in given.items()},
    }


def form_of(anna: Visitor, **fields: str | list[str]) -> Page:
    return anna.get("/export?" + urlencode({"company": "demo", **fields}, doseq=True))


def test_the_first_rows_are_shown_as_the_file_has_them(anna: Visitor, service: Service) -> None:
    insert = (
        "insert into data.categories (code, name) select 'B' || lpad(n::text, 2, '0'), 'brand, ' || n from generate_series(1, 12) n"
    )
    service.operator.write("demo", insert)
    page = form_of(anna, entity="categories", columns=["code", "name"], orderby="code desc")
    assert page.all("//table/thead//th") == ["code", "name"]
    assert page.all("//table/tbody/tr") == [f"B{n:02} brand, {n}" for n in range(12, 2, -1)]
    assert "The first 10 of 12 rows" in page.text
    shown = form_of(anna, entity="categories", columns=["code"], filter="code gt 'B10'", top="1")
    assert shown.all("//table/tbody/tr") == ["B11"] and "1 row, as CSV has it." in shown.text


def test_values_are_shown_whole_whatever_they_are(anna: Visitor, service: Service) -> None:
    texts = {"A1": "x" * 200_000, "A2": '"a", b\n\x01\x02\\', "A3": "=1+1", "A4": ""}
    for code, text in texts.items():
        service.operator.write("demo", "insert into data.customers (code, name, phone) values (%s, %s, null)", (code, text))
    page = form_of(anna, entity="customers", columns=["code", "name", "phone", "active"], orderby="code")
    assert page.status == 200 and page.all("//table/thead//th") == ["code", "name", "phone", "active"]
    cells = [[cell.text or "" for cell in row] for row in page.tree.xpath("//table/tbody/tr")]
    assert cells == [
        ["A1", texts["A1"], "", "true"], ["A2", texts["A2"], "", "true"], ["A3", "'=1+1", "", "true"], ["A4", "", "", "true"]
    ]  # fmt: skip


def test_columns_of_another_entity_are_named_and_not_lost_silently(anna: Visitor) -> None:
    page = form_of(anna, entity="products", columns=["code", "symbol"], filter="code ne 'X'")
    assert page.status == 200
    assert page.all("//input[@name='columns'][@checked]/@value") == ["code"] and page.typed("filter") == "code ne 'X'"
    assert page.one("//fieldset[@id='columns']//p[@role='status']") == "products has no symbol: this column is no longer selected."
    wrong = form_of(anna, entity="units", filter="price gt 1")
    assert wrong.status == 400 and wrong.typed("filter") == "price gt 1" and wrong.problems[0].startswith("Filter: ")


def test_another_company_is_chosen_without_losing_the_form(anna: Visitor) -> None:
    page = form_of(anna, entity="products", columns=["code"], top="3")
    assert page.all("//*[@name='company']/@form") == ["choice"], "the company above is a field of the form"
    lost = form_of(anna, company="second", entity="units", format="custom", mapper="gone")
    assert lost.status == 400 and lost.problems == ["Mapper: second has no mapper gone"]


def test_the_rows_of_an_entity_lead_to_their_export(anna: Visitor) -> None:
    shown = anna.get("/data/products?company=demo&columns=code&columns=category&sort=-category&filter=id%3E0")
    page = anna.get(shown.one("//a[.='Export…']/@href"))
    assert page.status == 200 and page.typed("entity") == "products" and page.typed("orderby") == "categoryId desc"
    assert page.all("//input[@name='columns'][@checked]/@value") == ["code", "category"]
    assert page.typed("filter") == "id gt 0"


def test_an_unknown_format_stands_at_its_field(anna: Visitor) -> None:
    page = anna.get("/export?company=demo&entity=units&format=nope")
    assert page.status == 400 and page.problems == [f"Format: Expected one of {', '.join(FORMATS)}, got nope"]


def test_what_is_not_installed_cannot_be_chosen_and_is_a_501_with_the_command_that_installs_it(
    anna: Visitor, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_mapper(service, "letter", "type template application/pdf\n<p>{{ entity }}</p>")
    monkeypatch.setattr(extras, "is_installed", lambda name: name not in ("pdf", "docs"))
    form = choose(anna, format="pdf")
    assert form.all("//input[@name='format' and @disabled]/@value") == ["pdf"] and form.problems
    for asked in ("format=pdf", "mapper=letter"):
        reply = service.ask(f"/api/demo/units?export=true&{asked}")
        assert (reply.status, reply.json["code"], reply.json["extra"]) == (501, "not_installed", "pdf")
    docs = anna.get("/docs?company=demo")
    assert docs.status == 501 and extras.EXTRAS["docs"].command in docs.text
