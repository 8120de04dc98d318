"""The page of API keys: create, list and revoke, never beyond the user's own companies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.auth.client import ask, bearer, make_user
from tests.service.serving import Service
from tests.web.visitor import Page, Visitor, visitor

ALL = {"name": "power-bi", "scopes": ["read", "import", "hooks"], "companies": ["demo"], "expires": ""}


def create(visitor: Visitor, **fields: Any) -> Page:
    return visitor.post("/keys?company=demo", {**ALL, **fields})


def key_of(page: Page) -> str:
    assert page.status == 201, page.text
    return page.one("//input[@id='new-key']/@value")


def test_a_key_is_shown_once_and_works(anna: Visitor, service: Service) -> None:
    page = create(anna, name="once", scopes=["read"])
    key = key_of(page)
    assert page.reply.headers["Cache-Control"] == "no-store"
    assert ask(service, "/c/demo/products", headers=bearer(key)).status == 200
    assert ask(service, "/c/demo/hooks", headers=bearer(key)).status == 403
    assert ask(service, "/c/second/products", headers=bearer(key)).status == 403
    listed = anna.get("/keys")
    assert key.encode() not in listed.reply.body
    (row,) = [each for each in listed.all("//tbody/tr") if each.startswith("once")]
    assert "valid read demo" in row and "by user anna@example.com" in row


def test_a_key_is_revoked_at_once(anna: Visitor, service: Service) -> None:
    key = key_of(create(anna, name="short-lived"))
    assert ask(service, "/c/demo/products", headers=bearer(key)).status == 200
    (form,) = anna.get("/keys").tree.xpath("//tr[contains(., 'short-lived')]//form")
    assert anna.post(form.get("action"), csrf="").status == 403
    done = anna.follow(anna.post(form.get("action")))
    assert "API key revoked." in done.one("//p[@role='status']")
    assert "revoked" in next(each for each in done.all("//tbody/tr") if each.startswith("short-lived"))
    assert ask(service, "/c/demo/products", headers=bearer(key)).status == 401


@pytest.mark.parametrize(
    ("fields", "problem", "field"),
    [
        ({"name": " "}, "Name: expected a name of 1 to 100 printable characters", "name"),
        ({"name": "x" * 101}, "Name: expected a name of 1 to 100 printable characters", "name"),
        ({"name": "a\nb"}, "Name: expected a name of 1 to 100 printable characters", "name"),
        ({"scopes": []}, "Permissions: choose one or more of read, propose, import, hooks", "scopes"),
        ({"scopes": ["write"]}, "Permissions: choose one or more of read, propose, import, hooks", "scopes"),
        ({"companies": []}, "Companies: choose one company or more", "companies"),
        ({"expires": "date", "day": "tomorrow"}, "Last day: Enter a date such as 2027-01-31", "day"),
        ({"expires": "date", "day": "2020-01-31"}, "Last day: Enter today's date or a later one", "day"),
    ],
)
def test_a_problem_is_shown_at_its_field_and_typed_values_stay(
    anna: Visitor, fields: dict[str, Any], problem: str, field: str
) -> None:
    page = create(anna, **{"name": "<kept>", **fields})
    assert page.status == 400
    assert page.problems == [problem]
    assert page.one(f"//*[@id='{field}-wrong']") == problem.partition(": ")[2]
    assert page.typed("name") == fields.get("name", "<kept>")
    chosen = page.all("//input[@name='scopes'][@checked]/@value")
    assert chosen == [each for each in fields.get("scopes", ALL["scopes"]) if each != "write"]


def test_a_key_expires_after_its_last_day(anna: Visitor, service: Service) -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date()
    key_of(create(anna, name="dated", expires="date", day=tomorrow.isoformat()))
    key_of(create(anna, name="ninety", expires="90d"))
    found = dict(service.operator.rows("select name, expires_at from bds.api_keys where name in ('dated', 'ninety')"))
    assert found["dated"] == datetime(tomorrow.year, tomorrow.month, tomorrow.day, tzinfo=UTC) + timedelta(days=1)
    assert timedelta(days=89) < found["ninety"] - datetime.now(UTC) <= timedelta(days=90)


def test_a_company_or_scope_that_is_given_twice_is_kept_once(anna: Visitor, service: Service) -> None:
    create(anna, name="twice", companies=["demo", "demo"], scopes=["read", "read"])
    assert service.operator.rows("select companies, scopes from bds.api_keys where name = 'twice'") == [(["demo"], ["read"])]


def test_a_key_cannot_be_created_for_a_company_without_access(anna: Visitor, service: Service) -> None:
    service.operator.company("rest", "t2")
    service.operator.company("more", "t2")
    for companies in (["third"], ["demo", "third"], ["nowhere"], ["tenant:t2"], ["tenant:nowhere"]):
        page = create(anna, name="too much", companies=companies)
        assert page.status == 403, companies
    assert service.operator.rows("select count(*) from bds.api_keys where name = 'too much'") == [(0,)]


def test_a_user_with_all_companies_of_a_tenant_may_create_a_key_for_it(anna: Visitor, service: Service) -> None:
    assert anna.get("/keys").all("//input[starts-with(@value, 'tenant:')]/@value") == ["tenant:t1"]
    key = key_of(create(anna, name="whole", companies=["tenant:t1"]))
    assert ask(service, "/c/second/products", headers=bearer(key)).status == 200
    service.operator.company("later", "t1")
    shared = service.operator.key(tenant="t1")
    row = next(each for each in anna.get("/keys").all("//tbody/tr") if each.startswith("whole"))
    assert "second and 1 other" in row and "later" not in row, "the key now has a company that she may not see"
    assert shared
    service.operator.connection.execute("update bds.companies set tenant_id = null where id = 'later'")


def test_a_key_for_a_tenant_leaves_out_nothing_that_was_chosen_beside_it(service: Service) -> None:
    for company, tenant in (("a1", "ta"), ("a2", "ta"), ("b1", "tb")):
        service.operator.company(company, tenant)
    make_user(service, "eve@example.com", "demo", "a1", "a2", "b1")
    eve = visitor(service, "eve@example.com")
    for chosen, problem in [
        (["tenant:ta", "demo", "a1", "b1"], "Companies: tenant ta does not have b1 and demo: "),
        (["tenant:ta", "tenant:tb"], "Companies: Choose one tenant, "),
    ]:
        page = create(eve, name="half", companies=chosen)
        assert page.status == 400 and len(page.problems) == 1 and page.problems[0].startswith(problem)
        assert set(page.all("//input[@name='companies'][@checked]/@value")) == set(chosen)
    key_of(create(eve, name="half", companies=["tenant:ta", "a1"]))
    assert service.operator.rows("select tenant_id, companies from bds.api_keys where name = 'half'") == [("ta", None)]


def test_keys_of_other_companies_are_hidden_and_shared_keys_cannot_be_revoked(anna: Visitor, service: Service) -> None:
    make_user(service, "third@example.com", "third")
    third = visitor(service, "third@example.com")
    key_of(third.post("/keys?company=third", {**ALL, "name": "not-hers", "companies": ["third"]}))
    service.operator.key("demo", "third")
    service.operator.connection.execute("update bds.api_keys set name = 'shared' where companies = '{demo,third}'")
    page = anna.get("/keys")
    assert "not-hers" not in page.text
    row = next(each for each in page.all("//tbody/tr") if each.startswith("shared"))
    assert "demo and 1 other" in row and "third" not in row and "Revoke" not in row
    ids = dict(service.operator.rows("select name, id::text from bds.api_keys where name in ('shared', 'not-hers')"))
    for key_id in (*ids.values(), "5d4f5fd4-5bd6-4a5c-bb6c-9d7b7b2a9b3f", "x"):
        assert anna.post(f"/keys/{key_id}/revoke").status == 404
    assert service.operator.rows(
        "select count(*) from bds.api_keys where name in ('shared', 'not-hers') and revoked_at is null"
    ) == [(2,)]


def test_the_form_offers_the_least(anna: Visitor) -> None:
    form = anna.get("/keys?company=demo")
    assert form.all("//input[@name='scopes'][@checked]/@value") == ["read"] and form.typed("name") == ""
    assert form.all("//input[@name='companies'][@checked]/@value") == ["demo"]
