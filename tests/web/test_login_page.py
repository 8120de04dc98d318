"""Login, logout and change of password by form."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from app.auth.login import wrong_login
from tests.auth.client import EMAIL, PASSWORD, ask, fresh_address, login, make_user
from tests.service.serving import Reply, Service
from tests.web.visitor import FORM, Page, Visitor, anonymous, visitor

pytestmark = pytest.mark.slow


def form_of(service: Service, query: str = "") -> tuple[str, Page]:
    """The login form's CSRF token, and the page."""
    page = anonymous(service).get("/login" + query)
    assert page.one("//input[@name='csrf']/@value") in page.reply.headers["Set-Cookie"]
    return page.one("//input[@name='csrf']/@value"), page


def send(service: Service, token: str, cookie: str | None = None, source: str = "127.0.0.1", **fields: str) -> Page:
    given = {"csrf": token, "email": EMAIL, "password": PASSWORD, **fields}
    headers = {"Content-Type": FORM, "Cookie": f"sign-in={token if cookie is None else cookie}"}
    return Page(ask(service, "/login", "POST", headers, urlencode(given), source))


def cookies(reply: Reply) -> dict[str, str]:
    pairs = (each.partition(";")[0].partition("=") for each in reply.headers.get_all("Set-Cookie", []))
    return {name: value for name, _, value in pairs}


def test_the_correct_password_begins_a_session(service: Service) -> None:
    token, page = form_of(service)
    assert page.all("//input[@autocomplete]/@autocomplete") == ["username", "current-password"]
    answer = send(service, token)
    assert (answer.status, answer.location) == (303, "/")
    session = next(each for each in answer.reply.headers.get_all("Set-Cookie", []) if each.startswith("session="))
    assert "HttpOnly" in session and "SameSite=Lax" in session
    opened = Visitor(service, {"Cookie": f"session={cookies(answer.reply)['session']}"}, "").get("/")
    assert opened.status == 200 and EMAIL in opened.text


def test_a_wrong_password_is_refused_and_the_typed_address_stays(service: Service) -> None:
    token, _ = form_of(service)
    answer = send(service, token, source=fresh_address(), password="wrong <b>", email="Anna+<x>@example.com")
    assert answer.status == 401
    assert answer.problems == [wrong_login().message.capitalize()]
    assert answer.typed("email") == "Anna+<x>@example.com"
    assert b"wrong &lt;b&gt;" not in answer.reply.body and b"wrong <b>" not in answer.reply.body
    assert "session" not in cookies(answer.reply)


def test_empty_fields_are_named(service: Service) -> None:
    token, _ = form_of(service)
    answer = send(service, token, email="", password="")
    assert answer.status == 400
    assert answer.problems == ["Email address: Enter your email address", "Password: Enter your password"]
    assert answer.all("//input[@aria-invalid='true']/@id") == ["email", "password"]
    assert answer.all("//div[@role='alert']//a/@href") == ["#email", "#password"]


@pytest.mark.parametrize("cookie", ["", "another", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"])
def test_a_login_form_of_another_site_is_refused(service: Service, cookie: str) -> None:
    token, _ = form_of(service)
    answer = send(service, token, cookie)
    assert answer.status == 403
    assert "session" not in cookies(answer.reply)
    again = answer.one("//input[@name='csrf']/@value")
    assert send(service, again, cookies(answer.reply)["sign-in"]).status == 303, "the page with the problem works"


def test_too_many_guesses_are_429_with_retry_after(service: Service) -> None:
    token, _ = form_of(service)
    source = fresh_address()
    for _ in range(20):
        assert send(service, token, source=source, email="x", password="y").status == 401
    answer = send(service, token, source=source)
    assert answer.status == 429
    assert int(answer.reply.headers["Retry-After"]) > 0
    assert "Too many wrong credentials" in answer.problems[0]


LOCAL = ["/changes", "/changes?company=demo&filter=id%20%3E%201", "/changes/products/1", "/export?columns=a&columns=b"]
ELSEWHERE = [
    "//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example/", "javascript:alert(1)", "evil", "/%5c/../\\evil",
    "/\t/evil.example", "/ /evil", "/\r\nX: y", "/é", "", "/login?next=/", "/logout", "///evil.example", "/" + "a" * 3000, "/changes\\..",
]  # fmt: skip


@pytest.mark.parametrize("url", LOCAL)
def test_a_login_leads_back_to_the_requested_page(service: Service, url: str) -> None:
    token, page = form_of(service, "?next=" + quote(url, safe=""))
    assert page.one("//input[@name='next']/@value") == url
    assert send(service, token, next=url).location == url


@pytest.mark.parametrize("url", ELSEWHERE)
def test_a_login_never_leads_to_another_site(service: Service, url: str) -> None:
    token, page = form_of(service, "?next=" + quote(url, safe=""))
    assert page.one("//input[@name='next']/@value") == "/"
    assert send(service, token, next=url).location == "/"


@pytest.mark.parametrize(
    ("query", "said"),
    [("?next=/data&next=/keys", "next is given twice"), ("?to=/data", "this page has no parameter to: expected next")],
)
def test_parameters_that_are_unknown_or_given_twice_are_refused(service: Service, query: str, said: str) -> None:
    page = anonymous(service).get("/login" + query)
    assert page.status == 400 and said in page.text.replace("Next is", "next is").replace("This page", "this page")


def test_the_login_page_redirects_with_a_session(service: Service) -> None:
    page = visitor(service).get("/login?next=%2Fhooks")
    assert (page.status, page.location) == (303, "/hooks")


def test_a_logout_ends_the_session(service: Service) -> None:
    browser = visitor(service)
    assert browser.post("/logout", csrf="wrong").status == 403
    assert browser.get("/").status == 200
    page = browser.post("/logout")
    assert page.location == "/login?flash=signed-out"
    assert cookies(page.reply)["session"] == '""'
    assert browser.get("/").status == 303
    assert "You are signed out." in anonymous(service).get("/login?flash=signed-out").text


def test_a_new_password_ends_every_session(service: Service) -> None:
    make_user(service, "carla@example.com", "demo")
    carla, elsewhere = visitor(service, "carla@example.com"), visitor(service, "carla@example.com")
    new = "another horse <b>"
    for fields, problem in (
        ({"old": PASSWORD, "new": new, "again": "x"}, "Confirm new password: The passwords do not match"),
        ({"old": "wrong", "new": new, "again": new}, "Current password: The current password is wrong"),
        ({"old": PASSWORD, "new": "short", "again": "short"}, "New password: the password has 5 characters, expected 8 to 1,000"),
    ):
        page = carla.post("/account?company=demo", fields)
        assert (page.status, page.problems) == (400, [problem])
        assert new.encode() not in page.reply.body and PASSWORD.encode() not in page.reply.body
    page = carla.post("/account", {"old": PASSWORD, "new": new, "again": new})
    assert page.location == "/login?flash=new-password"
    assert (carla.get("/").status, elsewhere.get("/").status) == (303, 303)
    assert login(service, "carla@example.com", new).status == 200


@pytest.mark.parametrize("body", [b"\xff\xfe=1", b"csrf=%ff&email=a", b"csrf=%00", b"csrf=%zz", b"%" * 10])
def test_a_body_that_is_not_a_form_is_refused_by_a_page(service: Service, body: bytes) -> None:
    for path, headers in (("/login", {}), ("/keys", visitor(service).headers)):
        page = Page(ask(service, path, "POST", {"Content-Type": FORM, **headers}, body.decode("latin-1")))
        assert page.status in (400, 403), page.reply.body
        assert page.all("//h1")
