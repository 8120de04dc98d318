"""The ways back on the pages: buttons of changes, change sets and histories, differences, and names of versions."""

from __future__ import annotations

from typing import Any

import pytest

from app.web import difference, undo
from tests.conftest import Operator
from tests.service.serving import Service, wait_until
from tests.web.test_imports_page import report
from tests.web.visitor import Page, Visitor, words

SET = "3f0c6a52-9d2e-4c1b-8a57-6f1f0a4f9d11"
STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("insert into data.units (company_id, id, code, name) select 'demo', n, 'U' || n, 'unit' from generate_series(1, 3) n", {}),
    # 4, 5: a product and its variant in one transaction
    (
        "with p as (insert into data.products (company_id, id, code, name, price, unit_id)"
        " values ('demo', 7, 'P', 'Pan', 12345678901234.5678, 1) returning id)"
        " insert into data.product_variants (company_id, id, code, product_id) values ('demo', 1, 'P-S', 7)",
        {"actor": "anna"},
    ),
    ("update data.products set price = 0.1 where id = 7", {"actor": "ben", "change_set": SET}),
    ("update data.units set name = 'later' where id = 2", {"actor": "anna"}),
    ("update data.products set name = 'Pot' where id = 7", {"actor": "anna"}),
)


@pytest.fixture(scope="module")
def log(service: Service) -> list[int]:
    """The last change of each step."""
    operator: Operator = service.operator
    ends = []
    for statement, context in STEPS:
        operator.write("demo", statement, **context)
        ends.append(operator.rows("select last_id from bds.clocks where company_id = 'demo'")[0][0])
    return ends


def content(service: Service) -> list[tuple[Any, ...]]:
    return service.operator.rows(
        "select 'unit', code, name, null from data.units where company_id = 'demo' union all"
        " select 'product', code, name, price::text from data.products where company_id = 'demo' union all"
        " select 'variant', code, name, null from data.product_variants where company_id = 'demo' order by 1, 2"
    )


def press(anna: Visitor, page: Page, label: str, within: str = "") -> Page:
    """Press the button of a form that is the only one with that label; returns the report."""
    forms = page.tree.xpath(f"{within}//form[.//button[normalize-space()='{label}']]")
    assert len(forms) == 1, [each.text_content() for each in forms]
    fields: dict[str, str | list[str]] = {
        each.get("name"): each.get("value") for each in forms[0].xpath(".//input[@type='hidden']")
    }
    return report(anna, anna.post(forms[0].get("action"), fields))


def changed(page: Page) -> list[tuple[str, list[str]]]:
    """The rows of a table of differences: their head and their fields."""
    found = []
    for body in page.tree.xpath("//table[contains(@class, 'changed')]/tbody"):
        head, *fields = [words(row) for row in body.xpath("./tr")]
        found.append((head, fields))
    return found


def line(first: int, last: int) -> str:
    return f"//tr[@data-id='{first}-{last}']" if first != last else f"//tr[@data-id='{first}-{last}' or @data-id='{first}']"


def test_the_company_goes_back_to_before_a_change_after_a_look_at_its_rows(anna: Visitor, service: Service, log: list[int]) -> None:
    before = content(service)
    page = anna.get("/changes?company=demo")
    dry = press(anna, page, "Back to before this", line(log[1] + 1, log[2]))
    assert dry.one("//h1") == f"Back to version {log[1]}" and content(service) == before
    assert sorted(changed(dry)) == [
        ("update products P Pot", ["name Pot Pan", "price 0.10 12345678901234.5678"]),
        ("update units U2 later", ["name later unit"]),
    ]
    assert "of 2 rows" not in dry.text and anna.get(dry.one("//a[.='products P']/@href")).one("//h1") == "P Pot"
    done = press(anna, dry, "Go back now")
    assert "Everything was undone." in done.text and done.one("//h1") == f"Back to version {log[1]}"
    assert ("product", "P", "Pan", "12345678901234.5678") in content(service) and ("unit", "U2", "unit", None) in content(service)
    again = press(anna, press(anna, done, "Undo"), "Undo now")
    assert "Everything was undone." in again.text and content(service) == before
    listed = anna.get("/imports?company=demo").all("//tbody/tr/td[@data-label='File']")
    assert sum(f"Back to version {log[1]}" in each for each in listed) == 2


def test_a_change_set_is_undone_with_force_where_rows_conflict(anna: Visitor, service: Service, log: list[int]) -> None:
    before = content(service)
    for page in (anna.get("/changes?company=demo"), anna.get(f"/changes?company=demo&changeSet={SET}")):
        within = "" if "Change by change" not in page.text else line(log[2], log[2])
        dry = press(anna, page, "Undo this change set", within or "//div[@class='ways']")
        assert dry.one("//h1") == f"Undo of change set {SET[:8]}…"
    service.operator.write("demo", "update data.products set price = 5 where id = 7")
    dry = press(anna, anna.get(f"/changes?company=demo&changeSet={SET}"), "Undo this change set", "//div[@class='ways']")
    assert dry.all("//table[.//th='Where']/tbody/tr/td[@data-label='Code']") == ["conflict"]
    assert not dry.tree.xpath("//button[.='Undo now']") and not changed(dry)
    forced = press(anna, dry, "Preview with later changes overwritten")
    assert changed(forced) == [("update products P Pot", ["price 5.00 12345678901234.5678"])]
    assert "later changes of its rows included" in forced.text
    assert "Everything was undone." in press(anna, forced, "Undo now").text
    assert ("product", "P", "Pot", "12345678901234.5678") in content(service)
    service.operator.write("demo", "update data.products set price = 0.1 where id = 7")
    assert content(service) == before


def test_changes_are_undone_from_one_on_all_or_those_of_an_actor(anna: Visitor, service: Service, log: list[int]) -> None:
    page = anna.get("/changes?company=demo&view=single")
    after = "//button[.='Back to after this']"
    assert page.tree.xpath(f"{line(log[3], log[3])}{after}") and not page.tree.xpath(f"//tbody/tr[1]{after}")
    assert not anna.get("/changes?company=demo").tree.xpath(f"//tbody/tr[1]{after}"), "after the newest one nothing has changed"
    [(last,)] = service.operator.rows("select last_id from bds.clocks where company_id = 'demo'")
    dry = press(anna, page, "Undo from here on", line(log[3], log[3]))
    assert dry.one("//h1") == f"Undo of the changes after version {log[2]} up to version {last}"
    dry = press(anna, page, "Undo from here on what anna did", line(log[3], log[3]))
    assert dry.one("//h1") == f"Undo of the changes after version {log[2]} up to version {last} by anna"
    assert [head for head, _ in changed(dry)] == ["update units U2 later", "update products P Pot"], "none of ben's"
    one = press(anna, page, "Undo this change", line(log[3], log[3]))
    assert one.one("//h1") == f"Undo of the changes after version {log[2]} up to version {log[3]}"
    assert changed(one) == [("update units U2 later", ["name later unit"])]
    assert "restored and changed as shown below. This can" in one.text, "of a range, later changes conflict"
    done = press(anna, one, "Undo now")
    assert done.one("//h1") == one.one("//h1") and ("unit", "U2", "unit", None) in content(service)
    service.operator.write("demo", "update data.units set name = 'later' where id = 2")


def test_what_has_changed_since_the_dry_run_of_an_undo_from_a_change_on_is_not_undone(
    anna: Visitor, service: Service, log: list[int]
) -> None:
    before = content(service)
    service.operator.write("demo", "update data.units set name = 'shown' where id in (1, 3)")
    [(last,)] = service.operator.rows("select last_id from bds.clocks where company_id = 'demo'")
    dry = press(anna, anna.get("/changes?company=demo&view=single"), "Undo from here on", line(last - 1, last - 1))
    assert sorted(head for head, _ in changed(dry)) == ["update units U1 shown", "update units U3 shown"]
    service.operator.write("demo", "update data.units set name = 'unseen' where id in (2, 3)")
    done = press(anna, dry, "Undo now")
    assert done.all("//table[.//th='Where']/tbody/tr/td[@data-label='Code']") == ["conflict"], "of a range, later changes conflict"
    assert [row[2] for row in content(service) if row[0] == "unit"] == ["unit", "unseen", "unseen"]
    back = report(anna, anna.post("/changes/revert?company=demo", {"to": str(last - 2), "dryRun": "false"}))
    assert "Everything was undone." in back.text and content(service) == before


def test_a_row_goes_back_with_its_children_from_its_history(anna: Visitor, service: Service, log: list[int]) -> None:
    service.operator.write("demo", "delete from data.product_variants where company_id = 'demo' and id = 1")
    service.operator.write("demo", "update data.units set name = 'other' where id = 3")
    page = anna.get("/changes/products/7?company=demo")
    assert len(page.all("//button[.='Back to here']")) == len(page.all("//section[contains(@class, 'version')]")) - 1
    dry = press(anna, page, "Back to here", "//section[.//h2/span[.='create']]")
    assert dry.one("//h1") == f"Back to version {log[1]}: products P", "the end of its transaction, in which its child came"
    assert [head for head, _ in changed(dry)] == ["update products P Pot", "create productVariants P-S"]
    done = press(anna, dry, "Go back now")
    assert [each for each in content(service) if each[0] != "unit"] == [
        ("product", "P", "Pan", "12345678901234.5678"),
        ("variant", "P-S", None, None),
    ]
    assert ("unit", "U3", "other", None) in content(service), "of these rows alone"
    press(anna, press(anna, done, "Undo"), "Undo now")


def test_a_preview_has_so_many_rows_and_tells_of_the_others(
    anna: Visitor, service: Service, log: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo, "SHOWN", 1)
    dry = report(anna, anna.post("/changes/revert?company=demo", {"to": "0", "entities": "units", "dryRun": "true"}))
    assert dry.one("//h1") == "Back to version 0: units"
    assert len(changed(dry)) == 1 and "These are the first 1 of 2 rows." in dry.text
    every = anna.get(dry.one("//a[.='Show all 2']/@href"))
    assert len(changed(every)) == 2 and "These are the first" not in every.text
    assert anna.get(dry.one("//a[.='Show all 2']/@href").replace("=all", "=some")).status == 400


@pytest.mark.parametrize(
    ("fields", "status", "named"),
    [
        ({}, 400, "expected changeSet, or to"),
        ({"to": "99999"}, 404, "yet to come"),
        ({"to": "no-such-name"}, 404, "no-such-name"),
        ({"to": "2026-13-01"}, 400, "to: "),
        ({"from": "2", "to": "1"}, 400, "comes after"),
        ({"to": "1", "actor": "anna"}, 400, "expected no actor"),
        ({"to": "1", "rows": "products/code:NONE"}, 404, "products/code:NONE"),
        ({"to": "1", "entities": "nothing"}, 404, "nothing"),
        ({"to": "1", "dryRun": "maybe"}, 400, "dryRun: expected true or false"),
        ({"to": "1", "price": "2"}, 400, "got price"),
        ({"changeSet": "x"}, 400, "expected a UUID"),
        ({"changeSet": "00000000-0000-4000-8000-000000000000"}, 404, "has no change set"),
        ({"after": "x", "rows": "products/7"}, 400, "after: expected the id of a change"),
        ({"after": "99999", "rows": "products/7"}, 404, "no change 99999"),
    ],
)
def test_a_wrong_selection_is_refused(
    anna: Visitor, service: Service, log: list[int], fields: dict[str, str | list[str]], status: int, named: str
) -> None:
    before = content(service)
    page = anna.post("/changes/revert?company=demo", {"dryRun": "false", **fields})
    assert (page.status, named.lower() in page.text.lower()) == (status, True), page.text
    assert content(service) == before


def test_a_difference_is_counted_and_shown_row_by_row(
    anna: Visitor, log: list[int], service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = anna.get(f"/diff?company=demo&since={log[0]}&until={log[4]}")
    counts = dict(each.split(" ", 1) for each in page.all("//table[.//th='Entity']/tbody/tr"))
    assert (counts["units"], counts["products"], counts["productVariants"]) == ("0 1 0", "1 0 0", "1 0 0")
    assert f"/c/demo/diff?since={log[0]}&version={log[4]}" in page.one("//input[@id='address-rows']/@value")
    rows = anna.get(page.one("//a[.='products']/@href"))
    assert changed(rows) == [
        ("create products P Pot", ["id – 7", "code – P", "name – Pot", "price – 0.10", "active – true", "unitId – units U1 unit"])
    ]
    assert f"/c/demo/products?since={log[0]}&version={log[4]}" in rows.one("//input[@id='address-curl']/@value")
    back = press(anna, anna.get(f"/diff/units?company=demo&since={log[0]}"), f"units back to version {log[0]}")
    assert back.one("//h1") == f"Back to version {log[0]}: units"
    monkeypatch.setattr(difference, "PAGE", 2)
    first = anna.get(f"/diff/units?company=demo&since=0&until={log[4]}")
    second = anna.get(first.one("//a[@rel='next']/@href"))
    assert (len(changed(first)), len(changed(second))) == (2, 1) and not second.all("//a[@rel='next']")
    assert changed(anna.get(second.one("//a[@rel='first']/@href"))) == changed(first)
    assert "No row differs." in anna.get(f"/diff/units?company=demo&since={log[4]}&until={log[4]}").text
    relative = anna.get("/diff?company=demo&since=-7d")
    assert relative.all("//table[.//th='Entity']/tbody/tr[1]") == ["units 3 0 0"], "of the present rows, from none on"


@pytest.mark.parametrize(
    ("query", "status", "problem"),
    [
        ("since=no-such", 404, "Since: no version is called 'no-such'"),
        ("since=2026-13-01", 400, "Since: expected a version"),
        ("since=1&until=99999", 404, "Until: version 99999 is yet to come"),
        ("since=1&until=x%20y", 400, "Until: "),
        ("since=3&until=1", 400, "Since: version 3 comes after"),
    ],
)
@pytest.mark.parametrize("path", ["/diff", "/diff/units"])
def test_a_wrong_end_of_a_difference_is_a_problem_of_its_field(
    anna: Visitor, log: list[int], path: str, query: str, status: int, problem: str
) -> None:
    page = anna.get(f"{path}?company=demo&{query}")
    assert page.status == status and [each.startswith(problem) for each in page.problems] == [True], page.problems


def test_other_wrong_requests_for_a_difference(anna: Visitor, log: list[int]) -> None:
    assert anna.get("/diff/units?company=demo").problems == ["Since: Enter a time, a version or its name"]
    assert anna.get("/diff/nothing?company=demo&since=1").status == 404
    assert anna.get("/diff/units?company=demo&since=1&after=x").status == 400
    assert anna.get("/diff?company=demo&since=1&version=2").status == 400


def test_a_version_is_named_moved_used_and_its_name_deleted(anna: Visitor, service: Service, log: list[int]) -> None:
    def named() -> list[str]:
        return [each.split(" ")[0] for each in anna.get("/diff?company=demo").all("//section[@aria-labelledby='names']//tbody/tr")]

    page = anna.get("/changes?company=demo")
    [form] = page.tree.xpath(f"{line(log[2], log[2])}//form[.//button='Name']")
    fields = {each.get("name"): each.get("value") for each in form.xpath(".//input[@type='hidden']")}
    assert fields["version"] == str(log[2])
    made = anna.follow(anna.post(form.get("action"), {**fields, "name": "cheap"}))
    assert "Version named." in made.text and named() == ["cheap"]
    assert anna.get("/diff?company=demo&since=cheap").status == 200
    assert anna.get("/data/products?company=demo&asof=cheap").status == 200
    dry = report(anna, anna.post("/changes/revert?company=demo", {"to": "cheap", "dryRun": "true"}))
    assert dry.one("//h1") == f"Back to cheap (version {log[2]})"
    moved = anna.follow(anna.post("/diff?company=demo", {"do": "name", "name": "cheap", "version": ""}))
    assert "has moved" in moved.text and named() == ["cheap"]
    assert anna.follow(press_name(anna, moved)).status == 200 and named() == []


def press_name(anna: Visitor, page: Page) -> Page:
    [form] = page.tree.xpath("//form[.//button='Delete name']")
    return anna.post(form.get("action"), {each.get("name"): each.get("value") for each in form.xpath(".//input[@type='hidden']")})


@pytest.mark.parametrize(
    ("fields", "status", "problem"),
    [
        ({"do": "name", "name": ""}, 400, "Name: Enter a name"),
        ({"do": "name", "name": "1st"}, 400, "'1st'"),
        ({"do": "name", "name": "yesterday"}, 400, "yesterday"),
        ({"do": "name", "name": "n", "version": "99999"}, 404, "As of: "),
        ({"do": "name", "name": "n", "version": "2026-13-01"}, 400, "As of: "),
        ({"do": "name", "name": "n", "version": "no-such"}, 404, "As of: no version is called"),
        ({"do": "rename", "name": "n"}, 400, "expected name or delete, got 'rename'"),
    ],
)
def test_a_wrong_name_is_a_problem_of_the_form(
    anna: Visitor, log: list[int], fields: dict[str, str | list[str]], status: int, problem: str
) -> None:
    page = anna.post("/diff?company=demo", fields)
    assert page.status == status and len(page.problems) == 1 and problem in page.problems[0], page.problems
    assert page.typed("name") == fields["name"]


def test_a_name_that_there_is_not_cannot_be_deleted(anna: Visitor) -> None:
    assert anna.post("/diff?company=demo", {"do": "delete", "name": "none"}).status == 404


def test_a_reader_has_no_ways_back(service: Service, log: list[int]) -> None:
    reader = Visitor(service, {"Authorization": f"Bearer {service.operator.key('demo', scopes=('read',))}"}, "")
    for path in ("/changes", "/changes?view=single", "/changes/products/7", "/diff?since=1", "/diff/products?since=1"):
        page = reader.get(path)
        assert page.status == 200 and not page.tree.xpath("//form[@method='post']"), path
    assert reader.post("/changes/revert", {"to": "1"}).status == 403
    assert reader.post("/diff", {"do": "name", "name": "n"}).status == 403


TABLE = """
create table data.shops (
    company_id text collate "C" not null, id bigint not null generated by default as identity, updated_at timestamptz not null,
    code text not null, primary key (company_id, id), unique (company_id, code)
);
insert into data.shops (company_id, updated_at, code) values ('demo', now(), 'S');
select bds.register('data.shops')
"""


def test_an_entity_that_was_registered_later_is_named_in_notices(anna: Visitor, service: Service, log: list[int]) -> None:
    for statement in TABLE.split(";\n"):
        service.operator.connection.execute(statement.encode())
    wait_until(lambda: anna.get("/data/shops?company=demo").status == 200)
    assert anna.get("/diff?company=demo&since=1").all("//p[@class='note']") == ["Shops was not registered at version 1."]
    assert "Since: shops was not registered" in anna.get("/diff/shops?company=demo&since=1").problems[0]
    dry = report(anna, anna.post("/changes/revert?company=demo", {"to": str(log[3]), "dryRun": "true"}))
    assert dry.all("//p[@class='note']") == [f"Shops was registered after version {log[3]}: its rows stay as they are."]
