"""Who sees which page: sessions, companies, scopes; and what a page is sent with."""

from __future__ import annotations

import re

import pytest

from tests.auth.client import ask, bearer
from tests.service.serving import Service
from tests.web.visitor import Page, Visitor, stranger

PAGES = ["/", "/changes", "/imports", "/mappers", "/mappers/_new", "/export", "/hooks", "/keys", "/account"]


@pytest.mark.parametrize("path", [*PAGES, "/login"])
def test_a_page_brings_everything_along_from_here_and_runs_nothing_of_its_own(anna: Visitor, service: Service, path: str) -> None:
    page = (stranger(service) if path == "/login" else anna).get(path)
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


@pytest.mark.parametrize("path", PAGES)
def test_head_is_a_get_without_its_body(anna: Visitor, service: Service, path: str) -> None:
    reply = ask(service, path, "HEAD", anna.headers)
    assert (reply.status, reply.body, reply.headers["Content-Type"]) == (200, b"", "text/html; charset=utf-8")


@pytest.mark.parametrize("path", [*(path for path in PAGES if path != "/"), "/changes/products/1?company=demo", "/imports/x"])
def test_whoever_has_not_signed_in_signs_in_first_and_comes_back(service: Service, path: str) -> None:
    page = stranger(service).get(path)
    assert page.status == 303
    assert page.location is not None and page.location.startswith("/login?next=%2F")
    login = stranger(service).get(page.location)
    assert login.one("//input[@name='next']/@value") == path


def test_the_overview_needs_no_next(service: Service) -> None:
    assert stranger(service).get("/").location == "/login"


def test_a_session_that_has_ended_leads_to_the_login_and_its_cookie_is_dropped(service: Service) -> None:
    ended = Visitor(service, {"Cookie": "session=nonsense"}, "")
    page = ended.get("/changes?company=demo")
    assert (page.status, page.location) == (303, "/login?next=%2Fchanges%3Fcompany%3Ddemo")
    assert 'session=""' in page.reply.headers["Set-Cookie"] and "Max-Age=0" in page.reply.headers["Set-Cookie"]


def test_a_form_of_a_session_that_has_ended_leads_to_the_login_and_back_to_its_page(service: Service) -> None:
    page = stranger(service).post("/keys/5d4f5fd4-5bd6-4a5c-bb6c-9d7b7b2a9b3f/revoke")
    assert (page.status, page.location) == (303, "/login?next=%2Fkeys")


@pytest.mark.parametrize("company", ["third", "nowhere", "'", "<b>"])
@pytest.mark.parametrize("path", PAGES)
def test_another_company_is_refused_existing_or_not(anna: Visitor, path: str, company: str) -> None:
    page = anna.get(f"{path}?company={company}")
    assert page.status == 403
    assert page.one("//h1") == "This is not open to you"
    assert "third" not in page.text.replace(f"company={company}", "")


def test_a_visitor_chooses_among_their_companies(anna: Visitor) -> None:
    page = anna.get("/changes?company=second")
    assert page.all("//select[@id='switch-company']/option") == ["demo", "second"]
    assert page.typed("switch-company") == "second"
    links = page.all("//nav[@aria-label='Pages']//a/@href")
    assert links == [f"{path}?company=second" for path in ("/", "/changes", "/imports", "/mappers", "/export", "/hooks", "/keys")]
    assert page.all("//nav//a[@aria-current='page']") == ["Changes"]


def with_key(service: Service, *scopes: str) -> Visitor:
    return Visitor(service, bearer(service.operator.key("demo", scopes=scopes)), "")


def test_a_page_shows_what_its_reader_may_do(service: Service) -> None:
    assert with_key(service, "read").get("/").all("//nav[@aria-label='Pages']//a") == ["Overview", "Changes", "Export"]
    assert with_key(service, "hooks", "import").get("/hooks").all("//nav[@aria-label='Pages']//a") == [
        "Imports",
        "Mappers",
        "Hooks",
    ]


@pytest.mark.parametrize(
    ("scope", "open_pages"),
    [("read", {"/", "/changes", "/export"}), ("import", {"/imports", "/mappers", "/mappers/_new"}), ("hooks", {"/hooks"})],
)
def test_a_scope_opens_its_pages_and_no_others(service: Service, scope: str, open_pages: set[str]) -> None:
    reader = with_key(service, scope)
    assert {path for path in PAGES if reader.get(path).status == 200} == open_pages
    assert {reader.get(path).status for path in PAGES if path not in open_pages} == {403}


def test_a_key_manages_no_keys(service: Service) -> None:
    page = with_key(service, "read", "import", "hooks").post("/keys", {"name": "more", "scopes": "read", "companies": "demo"})
    assert page.status == 403
    assert service.operator.rows("select count(*) from bds.api_keys where name = 'more'") == [(0,)]


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/nothing", 404, "There is nothing here"),
        ("/imports/not-an-id", 404, "There is no import not-an-id."),
        ("/hooks/not-an-id", 404, "There is no hook not-an-id."),
        ("/mappers/none", 404, "There is no mapper none."),
        ("/changes/nothing/1", 404, "There is no entity nothing."),
        ("/changes/products/x", 404, "There is no row x."),
        ("/changes/products/99999999999999999999", 404, "There is no row 99999999999999999999."),
        ("/changes/products/987654321", 404, "There never was a row 987654321 of products"),
        ("/changes?before=x", 400, "Before: expected the id of a change, got 'x'."),
        ("/imports?offset=-1", 400, "Offset: expected a whole number from 0"),
        ("/?span=week", 400, "Span: expected one of day, month, year."),
        ("/keys?company=%zz", 400, "expected two hexadecimal digits after %"),
        ("/keys?company=%00", 400, "the character U+0000 is not allowed"),
        ("/static/none.js", 404, "There is no file none.js."),
    ],
)
def test_what_fails_is_a_page_that_says_why(anna: Visitor, path: str, status: int, says: str) -> None:
    page = anna.get(path)
    assert (page.status, says in page.text) == (status, True), page.text
    assert page.all("//main//a[contains(., 'overview')]")


def test_a_method_that_a_page_has_not_is_refused_by_a_page(anna: Visitor) -> None:
    page = anna.post("/changes")
    assert page.status == 405
    assert page.reply.headers["Allow"] == "GET,HEAD"
    assert page.one("//h1") == "The method is not allowed here"


def test_programs_still_get_problems_where_no_page_is(service: Service) -> None:
    reply = service.ask("/nothing")
    assert (reply.status, reply.headers["Content-Type"]) == (404, "application/problem+json")


def test_a_static_file_is_kept_for_ever_under_the_url_of_its_version(service: Service) -> None:
    page = stranger(service).get("/login")
    urls = [url for url in page.all("//@src | //@href") if url.startswith("/static/")]
    assert {re.sub(r"\?v=[0-9a-f]{12}$", "", url) for url in urls} == {"/static/pages.css", "/static/pages.js", "/static/icon.svg"}
    for url in urls:
        reply = ask(service, url)
        assert (reply.status, reply.headers["Cache-Control"]) == (200, "public, max-age=31536000, immutable")
        assert ask(service, url, headers={"If-None-Match": reply.headers["ETag"]}).status == 304
        assert ask(service, url.partition("?")[0]).headers["Cache-Control"] == "no-cache"


def test_an_answer_of_the_api_to_a_browser_stays_what_it_is(anna: Visitor) -> None:
    page: Page = anna.get("/c/demo/nothing")
    assert (page.status, page.reply.headers["Content-Type"]) == (404, "application/problem+json")
