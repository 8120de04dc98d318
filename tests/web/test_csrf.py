"""Every form is refused with a wrong CSRF token and without one."""

from __future__ import annotations

import pytest

from app.web.routes import PAGES
from tests.auth.client import ask, bearer
from tests.service.serving import Service
from tests.web.visitor import FORM, Visitor

ID = "5d4f5fd4-5bd6-4a5c-bb6c-9d7b7b2a9b3f"
POSTS = [path for method, path, _, _ in PAGES if method == "POST"]


@pytest.mark.parametrize("path", POSTS)
@pytest.mark.parametrize("sent", [{}, {"csrf": ""}, {"csrf": "wrong"}, {"csrf": "é"}])
def test_a_form_without_its_csrf_token_is_refused(anna: Visitor, service: Service, path: str, sent: dict[str, str]) -> None:
    url = path.replace("{id}", ID).replace("{deliveryId}", ID).replace("{name}", "some")
    body = "&".join(f"{name}={value}" for name, value in sent.items()).replace("é", "%C3%A9")
    reply = ask(service, url + "?company=demo", "POST", {**anna.headers, "Content-Type": FORM}, body)
    assert reply.status == 403
    assert b"Nothing was changed" in reply.body
    assert service.operator.rows("select count(*) from bds.imports") == [(0,)]


@pytest.mark.parametrize("path", ["/hooks", "/mappers/_new", "/keys"])
@pytest.mark.parametrize("content_type", ["text/plain", "application/json", "multipart/form-data; boundary=x", ""])
def test_a_form_of_another_media_type_is_refused(anna: Visitor, service: Service, path: str, content_type: str) -> None:
    reply = ask(service, path, "POST", {**anna.headers, "Content-Type": content_type}, f"csrf={anna.csrf}")
    assert reply.status == 403


def test_a_request_with_an_api_key_needs_no_csrf_token(service: Service) -> None:
    headers = {**bearer(service.key), "Content-Type": FORM}
    reply = ask(service, "/hooks?company=demo", "POST", headers, "url=http%3A%2F%2F127.0.0.1%3A1%2F&entity=")
    assert reply.status == 201
