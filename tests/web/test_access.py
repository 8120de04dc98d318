"""Access to pages by session, company and scope; headers of pages; error pages."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote

import pytest

from app.web.routes import PARAMETERS
from tests.auth.client import ask, bearer
from tests.service.serving import Service
from tests.web.visitor import Page, Visitor, anonymous

PAGES = [
    "/",
    "/data",
    "/data/units",
    "/changes",
    "/diff",
    "/imports",
    "/mappers",
    "/mappers/_new",
    "/export",
    "/hooks",
    "/connect",
    "/keys",
    "/account",
]


@pytest.mark.parametrize("path", [*PAGES, "/login"])
def test_a_page_loads_only_resources_of_the_service_and_has_no_inline_code(anna: Visitor, service: Service, path: str) -> None:
    page = (anonymous(service) if path == "/login" else anna).get(path)
    headers = page.reply.headers
    assert page.status == 200
    policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src", "form-action")} == {"'self'"}
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["X-Request-Id"]
    tree = page.tree
    assert not tree.xpath("//style | //*[@style] | //script[not(@src)] | //@*[starts-with(name(), 'on')]")
    assert all(
        url.startswith("/") and not url.startswith("//")
        for url in tree.xpath("//@src | //@href[not(starts-with(., '#'))] | //@action")
    )
    assert tree.xpath("/html/@lang") == ["en"] and tree.xpath("count(//h1)") == 1.0
    unlabelled = "//input[not(@type='hidden')][not(@id=//label/@for)][not(ancestor::label)] | //select[not(@id=//label/@for)] | //textarea[not(@id=//label/@for)]"
    assert not tree.xpath(unlabelled)
    # what a form sends is what its page takes
    for form in tree.xpath("//form[not(@method) or @method='get']"):
        action = str(form.get("action") or path).partition("?")[0]
        taken = next(
            (PARAMETERS[each] for each in PARAMETERS if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each), action)), ""
        ).split()
        assert set(form.xpath(".//@name")) <= {*taken, "company"}, action


@pytest.mark.parametrize("path", PAGES)
def test_head_is_a_get_without_its_body(anna: Visitor, service: Service, path: str) -> None:
    reply = ask(service, path, "HEAD", anna.headers)
    assert (reply.status, reply.body, reply.headers["Content-Type"]) == (200, b"", "text/html; charset=utf-8")


@pytest.mark.parametrize("path", [*(path for path in PAGES if path != "/"), "/changes/products/1?company=demo", "/imports/x"])
def test_a_page_without_a_session_redirects_to_the_login_and_back(service: Service, path: str) -> None:
    page = anonymous(service).get(path)
    assert page.status == 303
    assert page.location is not None and page.location.startswith("/login?next=%2F")
    login_page = anonymous(service).get(page.location)
    assert login_page.one("//input[@name='next']/@value") == path


def test_the_redirect_from_the_overview_has_no_next(service: Service) -> None:
    assert anonymous(service).get("/").location == "/login"


def test_an_ended_session_redirects_to_the_login_and_drops_the_cookie(service: Service) -> None:
    ended = Visitor(service, {"Cookie": "session=nonsense"}, "")
    page = ended.get("/changes?company=demo")
    assert (page.status, page.location) == (303, "/login?next=%2Fchanges%3Fcompany%3Ddemo")
    assert 'session=""' in page.reply.headers["Set-Cookie"] and "Max-Age=0" in page.reply.headers["Set-Cookie"]


@pytest.mark.parametrize(
    ("action", "back"),
    [
        ("/keys/5d4f5fd4-5bd6-4a5c-bb6c-9d7b7b2a9b3f/revoke?company=second", "/keys?company=second"),
        (
            "/hooks/5d4f5fd4-5bd6-4a5c-bb6c-9d7b7b2a9b3f/switch?company=demo",
            "/hooks/5d4f5fd4-5bd6-4a5c-bb6c-9d7b7b2a9b3f?company=demo",
        ),
        ("/hooks?company=second", "/hooks?company=second"),
        ("/mappers/_new?company=second", "/mappers/_new?company=second"),
        ("/mappers/caf%C3%A9/delete?company=second", "/mappers/caf%C3%A9?company=second"),
        ("/imports?company=second", "/imports?company=second"),
        ("/changes/revert?company=second", "/changes?company=second"),
        ("/diff?company=second", "/diff?company=second"),
        ("/companies/x/delete?company=demo", "/companies?company=demo"),
        ("/keys", "/keys?"),
    ],
)
def test_a_form_of_an_ended_session_leads_over_the_login_back_to_its_page_and_company(
    service: Service, anna: Visitor, action: str, back: str
) -> None:
    page = anonymous(service).post(action)
    assert page.status == 303
    path, _, query = (page.location or "").partition("?")
    given = dict(parse_qsl(query))
    assert (path, given["next"]) == ("/login", f"{back}&flash=send-again".replace("?&", "?"))
    login = anonymous(service).get(page.location or "")
    assert "was not saved" in login.one("//p[@role='status']")
    assert login.one("//input[@name='next']/@value") == given["next"]
    if back.startswith(("/hooks?", "/mappers/_new", "/imports", "/keys")):
        again = anna.get(given["next"])
        assert again.status == 200 and "send it again" in again.one("//p[@class='flash']")


def test_parameters_that_a_page_does_not_have_are_refused(anna: Visitor) -> None:
    for path, name in (
        ("/data/products", "price"),
        ("/data", "filter"),
        ("/changes", "entities"),
        ("/imports", "limit"),
        ("/docs", "x"),
        ("/diff/units", "version"),
    ):
        page = anna.get(f"{path}?company=demo&{name}=1")
        assert page.status == 400 and f"no parameter {name}: expected " in page.text and "company" in page.text
    assert anna.get("/data/products?company=demo&columns=prize").problems == ["Columns: products has no column prize"]


@pytest.mark.parametrize("path", ["/export?entity=units&do=nope", "/changes?view=nope", "/changes?view=", "/imports/x?rows=some"])
def test_a_parameter_with_none_of_its_values_is_refused(anna: Visitor, path: str) -> None:
    page = anna.get(f"{path}&company=demo")
    assert page.status == 400 and ": expected " in page.text


def test_a_parameter_that_is_given_twice_is_refused(anna: Visitor) -> None:
    for path, name in (
        ("/?company=demo&company=second", "company"),
        ("/data/products?company=demo&filter=id%20=%201&filter=id%20=%202", "filter"),
        ("/changes?company=demo&entity=units&entity=products", "entity"),
        ("/export?company=demo&entity=units&format=csv&format=pdf", "format"),
        ("/connect/pbids?company=demo&company=second", "company"),
    ):
        page = anna.get(path)
        assert page.status == 400 and f"{name} is given twice" in page.text.lower(), path
    assert anna.get("/data/products?company=demo&columns=code&columns=name").status == 200


@pytest.mark.parametrize("company", ["third", "nowhere", "'", "<b>"])
@pytest.mark.parametrize("path", PAGES)
def test_another_company_is_refused_whether_it_exists_or_not(anna: Visitor, path: str, company: str) -> None:
    page = anna.get(f"{path}?company={company}")
    assert page.status == 403
    assert page.one("//h1") == "You have no access"
    assert "third" not in page.text.replace(f"company={company}", "")


def test_a_user_chooses_among_their_companies(anna: Visitor) -> None:
    page = anna.get("/changes?company=second")
    assert page.all("//select[@id='switch-company']/option") == ["demo", "second"]
    assert page.typed("switch-company") == "second"
    links = page.all("//nav[@aria-label='Pages']//a/@href")
    assert links == [
        f"{path}?company=second"
        for path in ("/", "/data", "/changes", "/imports", "/mappers", "/export", "/hooks", "/connect", "/keys")
    ]
    assert page.all("//nav//a[@aria-current='page']") == ["Changes"]


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/data/products?filter=id%20=%201&company=demo", "/data/products"),
        ("/data/products/4711?company=demo", "/data/products"),
        ("/data/nothing?company=demo", "/data"),
        ("/changes/products/4711?company=demo", "/changes"),
    ],
)
def test_another_company_is_chosen_for_the_same_entity(anna: Visitor, path: str, leads_to: str) -> None:
    assert anna.get(path).one("//form[@class='switch']/@action") == leads_to


def with_key(service: Service, *scopes: str) -> Visitor:
    return Visitor(service, bearer(service.operator.key("demo", scopes=scopes)), "")


def test_the_navigation_has_only_pages_with_access(service: Service) -> None:
    assert with_key(service, "read").get("/").all("//nav[@aria-label='Pages']//a") == [
        "Overview",
        "Data",
        "Changes",
        "Export",
        "Connect",
    ]
    assert with_key(service, "hooks", "import").get("/hooks").all("//nav[@aria-label='Pages']//a") == [
        "Imports",
        "Mappers",
        "Webhooks",
    ]


@pytest.mark.parametrize(
    ("scope", "open_pages"),
    [
        ("read", {"/", "/data", "/data/units", "/changes", "/diff", "/export", "/connect"}),
        ("import", {"/imports", "/mappers", "/mappers/_new"}),
        ("hooks", {"/hooks"}),
    ],
)
def test_a_scope_gives_access_to_its_pages_only(service: Service, scope: str, open_pages: set[str]) -> None:
    reader = with_key(service, scope)
    assert {path for path in PAGES if reader.get(path).status == 200} == open_pages
    assert {reader.get(path).status for path in PAGES if path not in open_pages} == {403}


def test_an_api_key_cannot_create_api_keys(service: Service) -> None:
    page = with_key(service, "read", "import", "hooks").post("/keys", {"name": "more", "scopes": "read", "companies": "demo"})
    assert page.status == 403
    assert service.operator.rows("select count(*) from bds.api_keys where name = 'more'") == [(0,)]


@pytest.mark.parametrize(
    ("path", "status", "named"),
    [
        ("/nothing", 404, "404"),
        ("/imports/not-an-id", 404, "import: not-an-id"),
        ("/hooks/not-an-id", 404, "hook: not-an-id"),
        ("/mappers/none", 404, "mapper: none"),
        ("/changes/nothing/1", 404, "entity: nothing"),
        ("/changes/products/x", 404, "row: x"),
        ("/changes/products/99999999999999999999", 404, "row: 99999999999999999999"),
        ("/changes/products/987654321", 404, "row 987654321"),
        ("/changes?before=x", 400, "Before: "),
        ("/imports?offset=-1", 400, "Offset: "),
        ("/?span=week", 400, "day, month, year"),
        ("/keys?company=%zz", 400, "two hexadecimal digits"),
        ("/keys?company=%00", 400, "U+0000"),
        ("/static/none.js", 404, "file: none.js"),
    ],
)
def test_an_error_is_a_page_that_names_the_wrong_value(anna: Visitor, path: str, status: int, named: str) -> None:
    page = anna.get(path)
    assert (page.status, page.one("//p[@class='status-code']"), named in page.text) == (status, str(status), True), page.text
    assert page.all("//main//a[contains(., 'overview')]")


@pytest.mark.parametrize("path", ["//c/demo/products", "//api/odata/demo/products", "//"])
def test_a_path_with_an_empty_segment_is_not_a_page(service: Service, path: str) -> None:
    answer = service.ask(path, Accept="application/json")
    assert (answer.status, answer.headers["Content-Type"]) == (404, "application/problem+json")


def test_a_method_that_is_not_allowed_is_answered_by_a_page(anna: Visitor) -> None:
    page = anna.post("/changes")
    assert page.status == 405
    assert page.reply.headers["Allow"] == "GET,HEAD"
    assert page.one("//p[@class='status-code']") == "405"


def test_programs_get_problem_json_for_an_unknown_path(service: Service) -> None:
    reply = service.ask("/nothing")
    assert (reply.status, reply.headers["Content-Type"]) == (404, "application/problem+json")


def test_a_static_file_is_cached_for_ever_under_its_versioned_url(service: Service) -> None:
    page = anonymous(service).get("/login")
    urls = [url for url in page.all("//@src | //@href") if url.startswith("/static/")]
    assert {re.sub(r"\?v=[0-9a-f]{12}$", "", url) for url in urls} == {"/static/pages.css", "/static/pages.js", "/static/icon.svg"}
    for url in urls:
        reply = ask(service, url)
        assert (reply.status, reply.headers["Cache-Control"]) == (200, "public, max-age=31536000, immutable")
        assert ask(service, url, headers={"If-None-Match": reply.headers["ETag"]}).status == 304
        assert ask(service, url.partition("?")[0]).headers["Cache-Control"] == "no-cache"


def test_an_error_of_the_api_stays_problem_json_for_a_browser(anna: Visitor) -> None:
    page: Page = anna.get("/c/demo/nothing")
    assert (page.status, page.reply.headers["Content-Type"]) == (404, "application/problem+json")


@pytest.mark.parametrize("form", ["{}", "urn:uuid:{}", "{{{}}}", "{}x"])
def test_an_id_is_read_in_any_form_of_a_uuid_everywhere(anna: Visitor, service: Service, form: str) -> None:
    key = {"Authorization": f"Bearer {service.key}", "Content-Type": "application/json"}
    done = ask(service, "/api/demo/import", "POST", key, {"units": [{"code": "ID"}]}).json["importId"]
    hook = ask(service, "/c/demo/hooks", "POST", key, {"entity": "units", "url": "http://127.0.0.1:1/"}).json["id"]
    sent = ask(service, f"/c/demo/hooks/{hook}/test", "POST", key).json["deliveryId"]
    done, hook, sent = (quote(form.format(each)) for each in (done, hook, sent))
    found = 404 if form.endswith("x") else 200
    for path in (f"/imports/{done}?company=demo", f"/imports/{done}/errors.csv?company=demo", f"/hooks/{hook}?company=demo",
        f"/hooks/{hook}/deliveries/{sent}?company=demo"):  # fmt: skip
        assert anna.get(path).status == found, path
    for path in (f"/api/demo/imports/{done}", f"/api/demo/imports/{done}/errors", f"/c/demo/hooks/{hook}",
        f"/c/demo/hooks/{hook}/deliveries", f"/c/demo/hooks/{hook}/deliveries/{sent}"):  # fmt: skip
        assert ask(service, path, headers=key).status == found, path
    for method, path, body, status in [
        ("PATCH", f"/c/demo/hooks/{hook}", {"filter": "code = 'ID'"}, 200),
        ("POST", f"/c/demo/hooks/{hook}/replay", {"since": 0}, 202),
        ("POST", f"/c/demo/hooks/{hook}/secret", None, 200),
        ("POST", f"/api/demo/imports/{done}/revert?dryRun=true", None, 200),
        ("DELETE", f"/api/demo/imports/{done}", None, 409),
        ("DELETE", f"/c/demo/hooks/{hook}", None, 204),
    ]:
        assert ask(service, path, method, key, body).status == (404 if found == 404 else status), (method, path)
    changes = {"changeSet": form.format("00000000-0000-4000-8000-000000000000"), "dryRun": True}
    assert ask(service, "/api/demo/revert", "POST", key, changes).status == (400 if found == 404 else 404)
