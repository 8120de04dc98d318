"""Signing in and out by form."""

from __future__ import annotations

from urllib.parse import quote, urlencode

import pytest

from tests.auth.client import EMAIL, PASSWORD, ask, fresh_address, login, make_user
from tests.service.serving import Reply, Service
from tests.web.visitor import FORM, Page, Visitor, stranger, visitor


def form_of(service: Service, query: str = "") -> tuple[str, Page]:
    """The form's proof, and the page."""
    page = stranger(service).get("/login" + query)
    assert page.one("//input[@name='csrf']/@value") in page.reply.headers["Set-Cookie"]
    return page.one("//input[@name='csrf']/@value"), page


def send(service: Service, proof: str, cookie: str | None = None, source: str = "127.0.0.1", **fields: str) -> Page:
    given = {"csrf": proof, "email": EMAIL, "password": PASSWORD, **fields}
    headers = {"Content-Type": FORM, "Cookie": f"sign-in={proof if cookie is None else cookie}"}
    return Page(ask(service, "/login", "POST", headers, urlencode(given), source))


def cookies(reply: Reply) -> dict[str, str]:
    pairs = (each.partition(";")[0].partition("=") for each in reply.headers.get_all("Set-Cookie", []))
    return {name: value for name, _, value in pairs}


def test_the_right_password_begins_a_session(service: Service) -> None:
    proof, page = form_of(service)
    assert page.all("//input[@autocomplete]/@autocomplete") == ["username", "current-password"]
    answer = send(service, proof)
    assert (answer.status, answer.location) == (303, "/")
    session = next(each for each in answer.reply.headers.get_all("Set-Cookie", []) if each.startswith("session="))
    assert "HttpOnly" in session and "SameSite=Lax" in session
    opened = Visitor(service, {"Cookie": f"session={cookies(answer.reply)['session']}"}, "").get("/")
    assert opened.status == 200 and EMAIL in opened.text


def test_wrong_ones_are_refused_and_what_was_typed_stays(service: Service) -> None:
    proof, _ = form_of(service)
    answer = send(service, proof, source=fresh_address(), password="wrong <b>", email="Anna+<x>@example.com")
    assert answer.status == 401
    assert answer.problems == ["the email address or the password is wrong"]
    assert answer.typed("email") == "Anna+<x>@example.com"
    assert b"wrong &lt;b&gt;" not in answer.reply.body and b"wrong <b>" not in answer.reply.body
    assert "session" not in cookies(answer.reply)


def test_empty_fields_are_named(service: Service) -> None:
    proof, _ = form_of(service)
    answer = send(service, proof, email="", password="")
    assert answer.status == 400
    assert answer.problems == ["Email address: Enter your email address", "Password: Enter your password"]
    assert answer.all("//input[@aria-invalid='true']/@id") == ["email", "password"]
    assert answer.all("//div[@role='alert']//a/@href") == ["#email", "#password"]


@pytest.mark.parametrize("cookie", ["", "another", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"])
def test_a_form_from_elsewhere_signs_nobody_in(service: Service, cookie: str) -> None:
    proof, _ = form_of(service)
    answer = send(service, proof, cookie)
    assert answer.status == 403
    assert "session" not in cookies(answer.reply)
    again = answer.one("//input[@name='csrf']/@value")
    assert send(service, again, cookies(answer.reply)["sign-in"]).status == 303, "the page that says so works"


def test_too_many_guesses_are_told_to_wait(service: Service) -> None:
    proof, _ = form_of(service)
    source = fresh_address()
    for _ in range(20):
        assert send(service, proof, source=source, email="x", password="y").status == 401
    answer = send(service, proof, source=source)
    assert answer.status == 429
    assert int(answer.reply.headers["Retry-After"]) > 0
    assert "too many wrong credentials" in answer.problems[0]


LOCAL = ["/changes", "/changes?company=demo&filter=id%20%3E%201", "/changes/products/1", "/export?columns=a&columns=b"]
ELSEWHERE = [
    "//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example/", "javascript:alert(1)", "evil", "/%5c/../\\evil",
    "/\t/evil.example", "/ /evil", "/\r\nX: y", "/é", "", "/login?next=/", "/logout", "///evil.example", "/" + "a" * 3000, "/changes\\..",
]  # fmt: skip


@pytest.mark.parametrize("url", LOCAL)
def test_one_goes_on_to_where_one_was(service: Service, url: str) -> None:
    proof, page = form_of(service, "?next=" + quote(url, safe=""))
    assert page.one("//input[@name='next']/@value") == url
    assert send(service, proof, next=url).location == url


@pytest.mark.parametrize("url", ELSEWHERE)
def test_and_never_to_another_site(service: Service, url: str) -> None:
    proof, page = form_of(service, "?next=" + quote(url, safe=""))
    assert page.one("//input[@name='next']/@value") == "/"
    assert send(service, proof, next=url).location == "/"


def test_whoever_has_signed_in_is_not_asked_again(service: Service) -> None:
    page = visitor(service).get("/login?next=%2Fhooks")
    assert (page.status, page.location) == (303, "/hooks")


def test_signing_out_ends_the_session(service: Service) -> None:
    somebody = visitor(service)
    assert somebody.post("/logout", csrf="wrong").status == 403
    assert somebody.get("/").status == 200
    page = somebody.post("/logout")
    assert page.location == "/login?said=signed-out"
    assert cookies(page.reply)["session"] == '""'
    assert somebody.get("/").status == 303
    assert "You are signed out." in stranger(service).get("/login?said=signed-out").text


def test_another_password_ends_every_session(service: Service) -> None:
    make_user(service, "carla@example.com", "demo")
    carla, elsewhere = visitor(service, "carla@example.com"), visitor(service, "carla@example.com")
    new = "another horse <b>"
    for fields, problem in (
        ({"old": PASSWORD, "new": new, "again": "x"}, "New password again: This is not the same"),
        ({"old": "wrong", "new": new, "again": new}, "Password so far: This is not your password"),
        ({"old": PASSWORD, "new": "short", "again": "short"}, "New password: a password has 8 to 1,000 characters, this one has 5"),
    ):
        page = carla.post("/account?company=demo", fields)
        assert (page.status, page.problems) == (400, [problem])
        assert new.encode() not in page.reply.body and PASSWORD.encode() not in page.reply.body
    page = carla.post("/account", {"old": PASSWORD, "new": new, "again": new})
    assert page.location == "/login?said=new-password"
    assert (carla.get("/").status, elsewhere.get("/").status) == (303, 303)
    assert login(service, "carla@example.com", new).status == 200


@pytest.mark.parametrize("body", [b"\xff\xfe=1", b"csrf=%ff&email=a", b"csrf=%00", b"csrf=%zz", b"%" * 10])
def test_a_body_that_is_no_form_is_refused_by_a_page(service: Service, body: bytes) -> None:
    for path, headers in (("/login", {}), ("/keys", visitor(service).headers)):
        page = Page(ask(service, path, "POST", {"Content-Type": FORM, **headers}, body.decode("latin-1")))
        assert page.status in (400, 403), page.reply.body
        assert page.all("//h1")
