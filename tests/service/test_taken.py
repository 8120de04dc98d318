"""What a route does not take is refused, not ignored: parameters, bodies, other encodings; and what was seen is not sent again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from uuid import UUID

import pytest

from app.service.operations import OPERATIONS
from app.service.routes import ROUTES
from app.wire.target import ODATA
from tests.auth.client import EMAIL, PASSWORD, ask, make_user, sign_in
from tests.service.serving import Service, running

OPEN = ("/healthz", "/readyz", "/metrics")  # for probes, which may add what keeps a cache away
VALUES = {"companyId": "demo", "entity": "units", "id": str(UUID(int=1)), "deliveryId": str(UUID(int=2)), "name": "none"}


def paths(*, with_body: bool | None = None) -> list[tuple[str, str]]:
    """Methods and paths of all routes beside OData, filled; with_body: those that take a JSON body, or none."""
    found = []
    for method, path, _ in ROUTES:
        path = re.sub(r"{entity:.*}", "{entity}", path)
        operation = OPERATIONS.get((method, path))
        if path.startswith(ODATA) or path in OPEN:
            continue
        if with_body is not None:
            body = operation.body if operation else None
            if method == "GET" or (with_body and "application/json" not in (body or {})) or (not with_body and body):
                continue
        found.append((method, path.format(**VALUES)))
    return found


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        yield service


@pytest.fixture(scope="module")
def headers(service: Service) -> dict[str, str]:
    make_user(service)
    service.operator.rows("select bds.set_access(%s, array['demo'], true)", (EMAIL,))
    return {"Authorization": f"Bearer {sign_in(service).token}"}


@pytest.mark.parametrize(("method", "path"), paths())
def test_an_unknown_parameter_is_refused(service: Service, headers: dict[str, str], method: str, path: str) -> None:
    body = {} if method in ("POST", "PUT", "PATCH") else None
    media_type = {"Content-Type": "text/plain"} if "/mappers/" in path and method == "PUT" else {}
    reply = ask(service, f"{path}?nonsense=1", method, headers | media_type, body)
    assert (reply.status, reply.json["code"]) in ((400, "malformed_request"), (400, "malformed_query")), reply.body
    assert "nonsense" in reply.json["detail"]


@pytest.mark.parametrize(("method", "path"), paths(with_body=False))
def test_a_body_that_nothing_reads_is_refused(service: Service, headers: dict[str, str], method: str, path: str) -> None:
    reply = ask(service, path, method, headers, {"revoke": True})
    assert (reply.status, reply.json["code"]) == (400, "malformed_request"), reply.body
    assert reply.json["detail"].startswith("expected no body")
    if path != "/auth/logout":
        for nothing in ({}, "null", "{ }\n"):
            assert ask(service, path, method, headers, nothing).json["code"] == "not_found", "it asks for nothing"


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("method", "path", "field"),
    [
        ("POST", f"/api/demo/imports/{VALUES['id']}/revert", "dryRun=true"),
        ("POST", f"/c/demo/hooks/{VALUES['id']}/secret", "revoke=true"),
        ("PUT", "/api/demo/versions/form", "version=1"),
    ],
)
def test_a_form_may_have_its_csrf_token_alone(
    service: Service, headers: dict[str, str], method: str, path: str, field: str
) -> None:
    person = sign_in(service)
    for sent, body in ((person.cookies, f"csrf={person.csrf}"), (person.browser, f"csrf={person.csrf}")):
        assert ask(service, path, method, sent | FORM, body).status in (200, 201, 404)
        reply = ask(service, path, method, sent | FORM, f"{body}&{field}")
        assert reply.status == 400 and reply.json["detail"].startswith("expected no body"), reply.body


@pytest.mark.parametrize("path", ["import?dryRun=false&dryRun=true", f"imports/{VALUES['id']}/revert?force=true&force=false"])
def test_a_parameter_that_is_given_twice_is_refused(service: Service, headers: dict[str, str], path: str) -> None:
    reply = ask(service, f"/api/demo/{path}", "POST", headers, {})
    assert reply.status == 400 and reply.json["detail"].endswith("is given twice")


@pytest.mark.parametrize(
    ("method", "path", "media_type"),
    [
        *(
            (*each, "application/json") for each in paths(with_body=True) if not each[1].endswith("/preview")
        ),  # a file in any encoding
        ("PUT", "/api/demo/mappers/none", "text/plain"),
    ],
)
def test_a_body_in_another_encoding_is_refused(
    service: Service, headers: dict[str, str], method: str, path: str, media_type: str
) -> None:
    sent = headers | {"Content-Type": f"{media_type}; charset=iso-8859-1"}
    reply = ask(service, path, method, sent, "{}")
    assert (reply.status, reply.json["code"]) == (415, "unsupported_media_type"), reply.body
    assert "in UTF-8, got iso-8859-1" in reply.json["detail"]


@pytest.mark.parametrize("path", ["/api/demo/import?dryRun=TRUE", f"/c/demo/hooks/{VALUES['id']}/secret?revoke=True"])
def test_true_is_written_as_everywhere(service: Service, headers: dict[str, str], path: str) -> None:
    reply = ask(service, path, "POST", headers, {})
    assert reply.status == 400 and "expected true or false, got" in reply.json["detail"]


def test_a_refusal_names_what_is_taken(service: Service, headers: dict[str, str]) -> None:
    detail = service.ask("/c/demo/products?after=0").json["detail"]
    assert detail == "expected filter, sort, limit, version, at, generation or since, got after"
    hook = ask(service, "/c/demo/hooks", "POST", headers, {"entity": "prodcts", "url": "https://93.184.215.14/"}).json
    assert (hook["title"], hook["detail"]) == (
        "The request names an unknown entity", "no such entity: prodcts, did you mean products?",
    )  # fmt: skip


def test_the_old_password_is_no_new_one(service: Service, headers: dict[str, str]) -> None:
    body = {"password": PASSWORD, "newPassword": PASSWORD}
    reply = ask(service, "/auth/password", "POST", headers, body)
    assert (reply.status, reply.json["target"]) == (400, "newPassword")
    assert ask(service, "/auth/password", "POST", headers, {**body, "password": "another one"}).status == 401


@pytest.mark.parametrize("path", ["/c/demo", "/openapi.json"])
def test_what_has_not_changed_is_not_sent_again(service: Service, path: str) -> None:
    first = service.ask(path)
    again = service.ask(path, If_None_Match=first.headers["ETag"])
    assert (first.status, again.status, again.body) == (200, 304, b"")
    assert again.headers["ETag"] == first.headers["ETag"]
    assert service.ask(path, If_None_Match='W/"other"').status == 200


def test_the_audit_of_a_company_that_never_was_is_not_found(service: Service, headers: dict[str, str]) -> None:
    service.operator.company("former")
    service.operator.rows("select from bds.delete_company('former')")
    for company, status in (("demo", 200), ("former", 200), ("nosuch", 404)):
        reply = ask(service, f"/c/{company}/audit", headers=headers)
        assert reply.status == status, reply.body
    assert reply.json["detail"] == "no such company: 'nosuch'"


@pytest.mark.parametrize("selection", [{"entities": ["prodcts"]}, {"rows": ["prodcts/code:A"]}])
def test_an_undo_of_a_misspelt_entity_names_the_right_one(
    service: Service, headers: dict[str, str], selection: dict[str, list[str]]
) -> None:
    reply = ask(service, "/api/demo/revert", "POST", headers, {"to": 0} | selection)
    assert (reply.status, reply.json["detail"]) == (404, "no such entity: 'prodcts', did you mean products?")
