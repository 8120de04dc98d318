"""The page of changes: paging, filters, and a row's history."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from app.web import change_sets
from tests.auth.client import ask, bearer
from tests.conftest import Operator
from tests.service.serving import Service
from tests.web.visitor import Page, Visitor

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def filled(service: Service) -> Operator:
    """120 units created; one product created, changed and deleted."""
    operator = service.operator
    operator.write(
        "demo",
        "insert into data.units (company_id, code, name) select 'demo', 'U' || n, 'unit' from generate_series(1, 120) n",
        actor="postgres",
    )
    operator.write("demo", "insert into data.categories (company_id, code, name) values ('demo', 'c', 'C')")
    operator.write(
        "demo",
        "insert into data.products (company_id, id, code, name, price, category_id) select 'demo', 777, 'P', %s, 12345678901234.5678, id from data.categories",
        (HOSTILE,),
        actor=HOSTILE,
    )
    operator.write(
        "demo",
        "update data.products set price = 0.1, description = '' where code = 'P'",
        actor="ben",
        change_set="3f0c6a52-9d2e-4c1b-8a57-6f1f0a4f9d11",
    )
    operator.write("demo", "insert into data.product_variants (company_id, code, product_id) values ('demo', 'V', 777)")
    operator.write("demo", "delete from data.product_variants where code = 'V'")
    operator.write("demo", "delete from data.products where code = 'P'", actor="ben")
    return operator


def ids(page: Page) -> list[int]:
    return [int(each.replace(",", "")) for each in page.all("//tbody/tr/th")]


def test_links_to_older_and_newer_pages_reach_every_change(anna: Visitor, filled: Operator) -> None:
    pages = [anna.get("/changes?company=demo&view=single")]
    while older := pages[-1].all("//a[@rel='next']/@href"):
        pages.append(anna.get(older[0]))
    last = filled.rows("select last_id from bds.clocks where company_id = 'demo'")[0][0]
    assert [id for page in pages for id in ids(page)] == list(range(last, 0, -1))
    back = pages[-1]
    seen = []
    while newer := back.all("//a[@rel='prev']/@href"):
        back = anna.get(newer[0])
        seen = ids(back) + seen
    assert seen == [id for page in pages[:-1] for id in ids(page)]
    assert ids(back)[0] == last and not back.all("//a[@rel='prev']")


FILTERS = [
    ({"entity": "categories"}, 1),
    ({"operation": "delete"}, 2),
    ({"entity": "products", "row": "777"}, 5),
    ({"entity": "products", "operation": "update"}, 3),
    ({"changeSet": "3f0c6a52-9d2e-4c1b-8a57-6f1f0a4f9d11"}, 1),
    ({"filter": "id > 2 and id <= 5"}, 3),
    ({"filter": "entity = 'products' or entity = 'categories'", "operation": "create"}, 2),
    ({"entity": "units", "operation": "delete"}, 0),
]


@pytest.mark.parametrize(("filter", "count"), FILTERS)
def test_a_filter_shows_the_changes_that_match(
    anna: Visitor, service: Service, filled: Operator, filter: dict[str, str], count: int
) -> None:
    page = anna.get("/changes?" + urlencode({"company": "demo", **filter}))
    assert page.status == 200
    assert len(ids(page)) == count
    assert all(page.typed(name) == value for name, value in filter.items())
    method, path = page.one("//code[starts-with(., 'GET /c/')]").split(" ")
    data = ask(service, path, method, bearer(service.key)).json["data"]
    assert [each["id"] for each in data] == ids(page)
    assert not page.tree.xpath("//main//script")
    if not count:
        assert "No changes match." in page.text


@pytest.mark.parametrize(
    ("filter", "problem", "named"),
    [
        ({"entity": "o'really"}, "Entity: No such entity", "o'really"),
        ({"entity": HOSTILE}, "Entity: No such entity", HOSTILE),
        ({"operation": "delte"}, "Operation: No such operation: delte", ""),
        ({"row": "x"}, "Row: No row of demo has the code", ""),
        ({"row": "99999999999999999999"}, "Row: No row of demo has the code", ""),
        ({"changeSet": "x"}, "Change set: Enter the id of a change set", ""),
        ({"filter": "id >"}, "Condition: ", "character 5"),
        ({"filter": "prise = 1"}, "Condition: ", "prise (at character 1)"),
        ({"filter": "id = 1) or (id = 2"}, "Condition: ", "character 7"),
    ],
)
def test_a_problem_of_a_filter_is_shown_at_its_field(anna: Visitor, filter: dict[str, str], problem: str, named: str) -> None:
    page = anna.get("/changes?" + urlencode({"company": "demo", "operation": "update", **filter}))
    assert page.status == 400
    assert len(page.problems) == 1 and page.problems[0].startswith(problem) and named in page.problems[0]
    given = {"operation": "update", **filter}
    assert {name: page.typed(name) for name in given} == given


def test_a_rows_history_has_old_and_new_values_side_by_side(anna: Visitor, filled: Operator) -> None:
    page = anna.get("/changes/products/777?company=demo")
    sections = page.tree.xpath("//section[contains(@class, 'version')]")
    assert [" ".join(each.xpath(".//h2//span[contains(@class, 'badge')]/text()")) for each in sections] == [
        "delete",
        "update",
        "update",
        "update",
        "create",
    ]
    cells = [[" ".join(cell.text_content().split()) for cell in row.xpath("./*")] for row in sections[3].xpath(".//tbody/tr")]
    assert cells == [["description", "empty", "empty text"], ["price", "12345678901234.5678", "0.10"]]
    created = [[" ".join(cell.text_content().split()) for cell in row.xpath("./*")] for row in sections[4].xpath(".//tbody/tr")]
    assert ["name", "–", HOSTILE] in created and ["price", "–", "12345678901234.5678"] in created
    deleted = [[" ".join(cell.text_content().split()) for cell in row.xpath("./*")] for row in sections[0].xpath(".//tbody/tr")]
    assert ["name", HOSTILE, "–"] in deleted
    assert f"by {HOSTILE}" in " ".join(sections[4].text_content().split())
    assert not page.tree.xpath("//main//script")
    assert sections[4].xpath(".//a[.='categories c']/@href")[0].startswith("/changes/categories/")
    assert page.one("//h1") == f"products P {HOSTILE}" and "the row now" not in page.text, "a deleted row keeps its name"
    category = anna.get(sections[4].xpath(".//a[.='categories c']/@href")[0])
    assert category.one("//h1") == "categories c C" and "the row now" in category.text


@pytest.mark.parametrize("view", ["", "&view=single"])
def test_a_deleted_row_is_named_by_its_last_code_and_name(anna: Visitor, filled: Operator, view: str) -> None:
    page = anna.get(f"/changes?company=demo{view}")
    shown = page.all("//tbody//a[starts-with(@href, '/changes/products/777')]")
    assert shown and set(shown) == {"products P"}
    assert HOSTILE in page.text and not page.tree.xpath("//main//script")


def test_the_second_page_of_a_deleted_rows_history_has_no_link_to_the_row(anna: Visitor, filled: Operator) -> None:
    page = anna.get("/changes/products/777?company=demo&offset=2")
    assert page.one("//h1").startswith("products P") and "the row now" not in page.text
    assert "the row now" in anna.get("/changes/units/1?company=demo&offset=1").text


def test_a_row_of_another_company_has_no_history(anna: Visitor, filled: Operator) -> None:
    assert anna.get("/changes/products/777?company=second").status == 404


def test_a_page_of_changes_that_are_no_longer_kept_is_410(anna: Visitor, filled: Operator) -> None:
    filled.connection.execute("update bds.change_months set first_id = 3 where company_id = 'demo'")
    try:
        page = anna.get("/changes?" + urlencode({"company": "demo", "filter": "id > 1"}))
        assert page.status == 410
        assert "before 3" in page.text
    finally:
        filled.connection.execute("update bds.change_months set first_id = 1 where company_id = 'demo'")


def test_a_key_is_shown_by_its_name(anna: Visitor, service: Service, filled: Operator) -> None:
    (key_id,) = filled.rows("select id::text from bds.api_keys where name = 'test' limit 1")[0]
    filled.write(
        "second", "insert into data.units (company_id, code, name) values ('second', 'K', 'by a key')", actor=f"key {key_id}"
    )
    page = anna.get("/changes?company=second&view=single")
    assert page.all("//td[@data-label='Changed by']") == ["key test"]
    assert page.one("//td[@data-label='Changed by']/@title") == f"key {key_id}"


def sets(page: Page) -> list[str]:
    return [" ".join(each.split()) for each in page.all("//tbody/tr/td[@data-label='What']")]


def test_the_log_has_a_line_for_each_change_set(anna: Visitor, filled: Operator, service: Service) -> None:
    page = anna.get("/changes?company=demo")
    assert sets(page)[-2:] == ["create categories c C", "120 creates units"], (
        "one line for a transaction; a row that exists by code and name"
    )
    lines = [
        (what, int(count.replace(",", ""))) for what, count in zip(sets(page), page.all("//td[@data-label='Changes']"), strict=True)
    ]
    assert sum(count for _, count in lines) == filled.rows("select last_id from bds.clocks where company_id = 'demo'")[0][0]
    [leads] = page.tree.xpath("//tr[contains(., '120 creates')]//td[@data-label='What']//a/@href")
    assert len(ids(anna.get(leads))) == 50 and anna.get(leads).all("//a[@rel='next']")
    assert page.all("//a[.='Change by change']/@href") == ["/changes?company=demo&view=single"]


def test_pages_of_change_sets_reach_every_change(anna: Visitor, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_sets, "SETS", 2)
    page = anna.get("/changes?company=demo")
    found: list[str] = sets(page)
    while older := page.all("//a[@rel='next']/@href"):
        page = anna.get(older[0])
        found += sets(page)
        assert len(sets(page)) <= 2
    monkeypatch.undo()
    assert found == sets(anna.get("/changes?company=demo"))


def test_a_change_set_that_is_not_counted_yet_leads_to_its_changes(anna: Visitor, filled: Operator) -> None:
    [(text,)] = filled.rows("select pg_get_functiondef('bds_change_log.uncounted_sets'::regproc)")
    filled.connection.execute(text.replace("100000", "0").encode())
    try:
        filled.write(
            "second",
            "insert into data.units (company_id, code, name) select 'second', 'L' || n, 'long' from generate_series(1, 10001) n",
            change_set="3f0c6a52-9d2e-4c1b-8a57-6f1f0a4f9d12",
        )
        page = anna.get("/changes?company=second")
        assert sets(page)[0] == "not counted yet" and page.all("//td[@data-label='Changes']")[0] == "–"
        [leads] = page.tree.xpath("//a[.='not counted yet']/@href")
        assert len(ids(anna.get(leads))) == 50
    finally:
        filled.connection.execute(text.encode())
    assert sets(anna.get("/changes?company=second"))[0] == "10,001 creates units"


def test_a_row_is_found_by_its_code(anna: Visitor, filled: Operator) -> None:
    page = anna.get("/changes?" + urlencode({"company": "demo", "row": "U77"}))
    assert [" ".join(each.split()) for each in page.all("//td[@data-label='Row']")] == ["units U77 unit"]
    assert page.typed("row") == "U77"
    other = anna.get("/changes?" + urlencode({"company": "demo", "row": "U77", "entity": "products"}))
    assert other.problems == ["Row: No row of products has the code U77; a deleted row is found by its id"]
