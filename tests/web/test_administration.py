"""The pages of companies and users, for administrators."""

from __future__ import annotations

import re

import pytest

from app.cli.main import main
from tests.auth.client import ask, bearer, login, make_user, sign_in
from tests.service.serving import Service
from tests.web.visitor import Page, Visitor, visitor

BOSS = "boss@example.com"


@pytest.fixture(scope="module")
def boss(service: Service) -> Visitor:
    make_user(service, BOSS, "demo")
    service.operator.rows("select bds.set_access(%s, '{demo}', true)", (BOSS,))
    return visitor(service, BOSS)


def id_of(service: Service, email: str) -> str:
    [(id,)] = service.operator.rows("select id::text from bds.users where email = %s", (email,))
    return str(id)


ACTIONS = ("/companies", "/companies/second/delete", "/users", "/users/{anna}", "/users/{anna}/password", "/users/{anna}/delete")


def test_users_who_are_no_administrators_neither_see_nor_use_them(anna: Visitor, service: Service) -> None:
    paths = [path.format(anna=id_of(service, "anna@example.com")) for path in ACTIONS]
    assert not {"Companies", "Users", "Audit"} & set(anna.get("/changes?company=demo").all("//nav[@aria-label='Pages']//a"))
    before = service.operator.rows("select email, companies, is_administrator from bds.users order by 1")
    for path in paths:
        assert anna.post(f"{path}?company=demo", {"confirm": "second", "administrator": "yes"}).status == 403
    for path in ("/companies", "/users", "/audit", paths[3]):
        page = anna.get(f"{path}?company=demo")
        assert (page.status, page.one("//h1")) == (403, "You have no access")
        assert "Data" in page.all("//nav[@aria-label='Pages']//a"), "an error keeps the navigation"
    assert service.operator.rows("select email, companies, is_administrator from bds.users order by 1") == before


def test_an_administrator_needs_the_csrf_token(boss: Visitor, service: Service) -> None:
    for path in ACTIONS:
        reply = Visitor(service, boss.headers, "").post(path.format(anna=id_of(service, "anna@example.com")), {"id": "forged"})
        assert reply.status == 403
    assert service.operator.rows("select count(*) from bds.companies where id = 'forged'") == [(0,)]


def test_a_company_is_created_and_deleted_after_its_id_was_typed(boss: Visitor, service: Service) -> None:
    page = boss.follow(boss.post("/companies?company=demo", {"id": "fresh", "tenant": "t9", "mine": "yes"}))
    assert "Company created." in page.text
    assert page.typed("switch-company") == "fresh", "it is the company of the page"
    service.operator.write("fresh", "insert into data.units (company_id, code, name) values ('fresh', 'X', 'x')")
    listed = boss.get("/companies?company=demo").one("//tbody/tr[th//a='fresh']")
    assert re.match(r"fresh t9 1 1 ", listed)
    refused = boss.post("/companies/fresh/delete?company=fresh", {"confirm": "frehs"})
    assert refused.status == 400 and refused.problems == ["Fresh was not deleted: type its id, fresh, to delete it"]
    assert boss.get("/data/units?company=fresh").status == 200
    page = boss.follow(boss.post("/companies/fresh/delete?company=fresh", {"confirm": "fresh"}))
    assert "Company deleted." in page.text
    assert service.operator.rows("select count(*) from data.units where company_id = 'fresh'") == [(0,)]
    assert boss.get("/data?company=fresh").status == 403


@pytest.mark.parametrize(("id", "status", "problem"), [
    ("", 400, "Id: Enter an id"), ("demo", 409, "Id: company 'demo' already exists"), ("A B", 400, "Id: 'A B' is not a valid company id"),
    ("odata", 400, "Id: company id 'odata' is taken"),
])  # fmt: skip
def test_a_problem_of_a_company_is_shown_at_its_field(boss: Visitor, id: str, status: int, problem: str) -> None:
    page = boss.post("/companies?company=demo", {"id": id, "tenant": "t1"})
    assert page.status == status and page.problems[0].startswith(problem)
    assert page.typed("tenant") == "t1"


def test_a_company_without_access_is_listed_but_cannot_be_opened(boss: Visitor) -> None:
    assert "you have no access" in boss.get("/companies?company=demo").one("//tbody/tr[starts-with(th, 'third')]")
    assert boss.get("/data?company=third").status == 403


def test_an_administrator_without_a_company_begins_with_the_companies(boss: Visitor, service: Service) -> None:
    make_user(service, "only@example.com", "demo")
    service.operator.rows("select bds.set_access('only@example.com', '{}', true)")
    only = visitor(service, "only@example.com")
    page = only.follow(only.get("/"))
    assert page.one("//h1") == "Companies" and page.all("//nav[@aria-label='Pages']//a") == [
        "API keys",
        "Companies",
        "Users",
        "Audit",
    ]
    assert "company third" in only.get("/audit").text, "what is done at home, whichever companies it is about"
    assert only.get("/?company=demo").status == 403 and only.get("/data").location == "/companies"
    page = only.follow(only.post("/companies", {"id": "first", "tenant": "", "mine": "yes"}))
    assert "Company created." in page.text
    assert only.get("/").one("//h1") == "Overview of first"
    assert not page.tree.xpath("//*[@id='place']"), "there is no other place"


def test_long_lists_of_companies_are_cut_and_chosen_ones_stand_first(boss: Visitor, service: Service) -> None:
    companies = [service.operator.company(f"many-{n}") for n in range(9)]
    make_user(service, "many@example.com", *companies)
    listed = boss.get("/users?company=demo").one("//tbody/tr[th/a='many@example.com']/td[1]")
    assert listed == "many-0, many-1, many-2, many-3 and 5 more"
    user = boss.get(f"/users/{id_of(service, 'many@example.com')}?company=demo")
    assert user.all("//fieldset[@id='companies']//input/@value")[:9] == companies
    assert boss.get("/users?company=demo").all("//fieldset[@id='companies']//input/@value")[0] == "demo"


def create(boss: Visitor, email: str, *companies: str, **fields: str) -> Page:
    return boss.post("/users?company=demo", {"email": email, "companies": list(companies), **fields})


def test_a_user_is_created_with_a_password_that_is_shown_once(boss: Visitor, service: Service) -> None:
    page = create(boss, "New@Example.com", "demo", "second")
    assert page.status == 201
    password = page.typed("password")
    assert login(service, "new@example.com", password).status == 200
    assert password not in boss.get("/users?company=demo").text
    assert service.operator.rows("select companies, is_administrator from bds.users where email = 'new@example.com'") == [
        (["demo", "second"], False)
    ]


@pytest.mark.parametrize(("email", "companies", "problem"), [
    ("", ["demo"], "Email: Enter an email address"), ("nobody", ["demo"], "Email: 'nobody' is not a valid email address"),
    ("x@example.com", [], "Companies: Choose one company or more"),
    ("x@example.com", ["demo", "gone"], "Companies: No such company: gone"),
    ("anna@example.com", ["demo"], "Email: user 'anna@example.com' already exists"),
])  # fmt: skip
def test_a_problem_of_a_user_is_shown_at_its_field(boss: Visitor, email: str, companies: list[str], problem: str) -> None:
    page = create(boss, email, *companies)
    assert page.status in (400, 409) and page.problems == [problem]


def test_access_takes_effect_at_the_next_request(boss: Visitor, service: Service) -> None:
    make_user(service, "carl@example.com", "demo")
    carl, path = visitor(service, "carl@example.com"), f"/users/{id_of(service, 'carl@example.com')}"
    assert carl.get("/data?company=second").status == 403
    assert "User saved." in boss.follow(boss.post(f"{path}?company=demo", {"companies": "second"})).text
    assert carl.get("/data?company=second").status == 200 and carl.get("/data?company=demo").status == 403
    assert boss.post(f"{path}?company=demo", {}).problems == ["Companies: Choose one company or more, or delete the user"]
    boss.post(f"{path}?company=demo", {"administrator": "yes"})
    assert carl.get("/users").status == 200, "an administrator needs no company"
    boss.post(f"{path}?company=demo", {"companies": "demo"})
    assert carl.get("/users?company=demo").status == 403


def test_a_form_changes_what_was_changed_in_it(boss: Visitor, service: Service) -> None:
    make_user(service, "cora@example.com", "demo")
    cora, path = visitor(service, "cora@example.com"), f"/users/{id_of(service, 'cora@example.com')}?company=demo"
    boss.post(path, {"companies": ["demo", "second"], "administrator": "yes"})  # another administrator, after the form was opened
    boss.post(path, {"shown": "demo", "was_administrator": ""})
    assert cora.get("/data?company=demo").status == 403 and cora.get("/data?company=second").status == 200
    assert cora.get("/users").status == 200
    boss.post(path, {"shown": "second", "companies": "second", "was_administrator": "yes"})
    assert cora.get("/data?company=second").status == 200 and cora.get("/users?company=second").status == 403
    assert b'name="shown" value="second"' in boss.get(path).reply.body


def test_a_reset_password_ends_sessions_and_is_shown_once(boss: Visitor, service: Service) -> None:
    make_user(service, "dina@example.com", "demo")
    dina, path = visitor(service, "dina@example.com"), f"/users/{id_of(service, 'dina@example.com')}"
    password = boss.post(f"{path}/password?company=demo").typed("password")
    assert dina.get("/data?company=demo").status == 303
    assert login(service, "dina@example.com", password).status == 200
    assert password not in boss.get(f"{path}?company=demo").text


def test_a_user_is_deleted(boss: Visitor, service: Service) -> None:
    make_user(service, "emil@example.com", "demo")
    emil, path = visitor(service, "emil@example.com"), f"/users/{id_of(service, 'emil@example.com')}"
    assert "User deleted." in boss.follow(boss.post(f"{path}/delete?company=demo")).text
    assert emil.get("/data?company=demo").status == 303
    assert boss.get(f"{path}?company=demo").status == 404 and boss.get("/users/none?company=demo").status == 404


def test_administrators_do_not_lock_themselves_out(boss: Visitor, service: Service) -> None:
    path = f"/users/{id_of(service, BOSS)}"
    assert boss.post(f"{path}?company=demo", {"companies": "demo"}).problems[0].startswith("Administration: you cannot end")
    assert boss.post(f"{path}/delete?company=demo").problems[0].startswith("You cannot delete yourself")
    assert boss.post(f"{path}/password?company=demo").problems[0].startswith("Change your own password")
    assert boss.get("/users?company=demo").status == 200


def test_the_audit_tells_an_administrator_who_did_what_in_which_request(boss: Visitor, service: Service) -> None:
    token = bearer(sign_in(service, BOSS).token)
    sent = {**token, "Content-Type": "text/plain", "X-Request-Id": "audited"}
    mapper = "type csv\nunits = 'row' {\n    code = 'Code'\n}\n"
    assert ask(service, "/api/demo/mappers/audited", "PUT", sent, mapper).status == 201
    key = bearer(service.operator.key("demo"))
    hook = ask(
        service, "/c/demo/hooks", "POST", {**key, "X-Request-Id": "hooked"}, {"entity": "units", "url": "http://127.0.0.1:1/"}
    )
    caller = {"address": "127.0.0.1", "requestId": "audited", "user": BOSS}
    [newest, _, made] = ask(service, "/c/demo/audit?limit=3", headers=token).json["data"]
    assert newest["object"] == f"hook {hook.json['id']}" and newest["detail"]["caller"]["requestId"] == "hooked"
    assert newest["actor"] == f"key {newest['detail']['caller']['key']}"
    values = {"format": "csv", "text": mapper, "actor": f"user {BOSS}", "created_at": made["detail"]["new"]["created_at"]}
    assert made | {"id": 0, "at": ""} == {
        "companyId": "demo", "id": 0, "at": "", "actor": f"user {BOSS}", "user": made["user"], "action": "create",
        "object": "mapper audited", "detail": {"new": values, "caller": caller},
    }  # fmt: skip
    boss.post("/companies?company=demo", {"id": "audited", "tenant": "", "mine": "yes"})
    boss.post("/companies/audited/delete?company=demo", {"confirm": "audited"})
    found = ask(service, "/c/audited/audit?limit=4", headers=token).json["data"]
    assert [(each["action"], each["object"], each["actor"], each["detail"]["caller"]["user"]) for each in found] == [
        (action, object, f"user {BOSS}", BOSS)
        for action, object in [
            ("update", f"user {BOSS}"), ("delete", "company audited"), ("update", f"user {BOSS}"), ("create", "company audited")
        ]
    ]  # fmt: skip
    page = boss.get("/audit?company=demo")
    assert "mapper audited" in page.text and "127.0.0.1, request audited" in page.text
    older = page.all("//a[@rel='next']/@href")
    assert not older or boss.get(older[0]).status == 200


def test_the_audit_shows_both_sides_of_a_value_that_was_set_or_removed(boss: Visitor, service: Service) -> None:
    key = bearer(service.operator.key("demo"))
    hook = ask(service, "/c/demo/hooks", "POST", key, {"entity": "units", "url": "http://127.0.0.1:1/", "columns": ["code"]}).json[
        "id"
    ]
    for columns in (None, ["name"]):
        assert ask(service, f"/c/demo/hooks/{hook}", "PATCH", key, {"columns": columns}).status == 200
    shown = boss.get("/audit?company=demo").all(f"//tr[td[@data-label='Object']='hook {hook}']//li[starts-with(., 'columns')]")
    assert shown == ['columns: empty → ["name"]', 'columns: ["code"] → empty', 'columns: ["code"]']


def test_numbers_of_the_audit_have_all_their_digits_at_every_door(
    boss: Visitor, service: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service.operator.rows(
        "insert into bds.column_history (entity, ordinal, since, column_name, type)"
        " select h.entity, 900.0007, h.since, h.column_name, h.type from bds.column_history h where h.entity = 'units' limit 1 returning 1"
    )
    monkeypatch.setenv("BDS_DATABASE_URL", service.operator.connection.info.dsn)
    assert main(["audit", "demo", "--limit", "1", "--json"]) == main(["audit", "demo", "--limit", "1"]) == 0
    token = bearer(sign_in(service, BOSS).token)
    said = capsys.readouterr()
    assert said.err.count("bds: there are more records than the newest 1;") == 2
    doors = [said.out, ask(service, "/c/demo/audit?limit=1", headers=token).body.decode(), boss.get("/audit").text]
    assert [each.count("900.0007") for each in doors] == [2, 1, 1], doors


def test_pages_of_the_audit_neither_repeat_nor_skip(service: Service) -> None:
    token = bearer(sign_in(service, BOSS).token)
    ids: list[tuple[str, int]] = []
    query, more = "", True
    while more:
        page = ask(service, f"/c/demo/audit?limit=3{query}", headers=token).json
        ids += [(each["companyId"], each["id"]) for each in page["data"]]
        query, more = f"&before={page['data'][-1]['at']}", page["hasMore"]
    assert ids == service.operator.rows("select company_id, id from bds_service.audit('demo', null, 1000)") and len(ids) > 6


@pytest.mark.parametrize("path", ["/c/demo/audit", "/c/third/audit", "/c/nope/audit"])
def test_keys_and_other_users_do_not_read_the_audit(anna: Visitor, service: Service, path: str) -> None:
    assert ask(service, path, headers=anna.headers).status == 403
    assert ask(service, path, headers=bearer(service.operator.key("demo"))).status == 403
    assert ask(service, path).status == 401


@pytest.mark.parametrize(("query", "target"), [
    ("limit=0", "limit"), ("limit=10001", "limit"), ("before=yesterday", "before"), ("before=1", "before"), ("offset=1", "offset")
])  # fmt: skip
def test_a_bad_parameter_of_the_audit_is_named(service: Service, query: str, target: str) -> None:
    reply = ask(service, f"/c/demo/audit?{query}", headers=bearer(sign_in(service, BOSS).token))
    assert (reply.status, reply.json["target"]) == (400, target)
