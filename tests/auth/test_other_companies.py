"""Every route with the credentials of another company: refused, with the same answer whether the thing exists or not."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator

import pytest

from app.service.routes import ROUTES
from tests.auth.client import ask, basic, bearer, fresh_address, make_user, sign_in
from tests.service.serving import Service

FOREIGN = "foreign"  # a company without access for demo's credentials
BODIES = {
    "POST": ("application/json", "{}"),
    "PUT": ("text/plain", "type json\nunits = '$.u[*]' {\n code = 'c'\n}\n"),
    "PATCH": ("application/json", "{}"),
}
PUBLIC = {"/healthz", "/readyz", "/metrics", "/auth/login"}  # without credentials
SCOPES = {"hooks": "hooks", "deliveries": "hooks", "import": "import", "imports": "import", "mappers": "import", "revert": "import"}
SCOPES["audit"] = "administrator"  # that no key has
# routes of the scope `propose`, which `import` includes; those that begin something are a 403 for it without dryRun
PROPOSED = {
    ("POST", "/api/{companyId}/import"), ("POST", "/api/{companyId}/imports/{id}/revert"), ("GET", "/api/{companyId}/imports"),
    ("GET", "/api/{companyId}/imports/{id}"), ("GET", "/api/{companyId}/imports/{id}/errors"),
}  # fmt: skip


@pytest.fixture(scope="module")
def owned(service: Service) -> dict[str, str]:
    """Ids of things of the foreign company, by the names of path variables."""
    service.operator.company(FOREIGN)
    key = service.operator.key(FOREIGN)
    hook = ask(
        service, f"/c/{FOREIGN}/hooks", "POST", bearer(key), {"entity": "units", "url": "https://example.com/", "action": "webhook"}
    )
    report = ask(service, f"/api/{FOREIGN}/import", "POST", bearer(key), {"units": [{"code": "theirs", "name": "theirs"}]})
    text = {**bearer(key), "Content-Type": "text/plain"}
    assert ask(service, f"/api/{FOREIGN}/mappers/theirs", "PUT", text, BODIES["PUT"][1]).status == 201
    delivery = ask(service, f"/c/{FOREIGN}/hooks/{hook.json['id']}/test", "POST", bearer(key))
    return {"hook": hook.json["id"], "import": report.json["importId"], "delivery": delivery.json["deliveryId"]}


def routes() -> Iterator[tuple[str, str]]:
    """Method and path of every route with a company."""
    for method, path, _ in ROUTES:
        if "{companyId}" in path:
            yield method, re.sub(r"\{(\w+)(?::(?:[^{}]|\{[^{}]*\})*)?\}", r"{\1}", path)
    for path in ("", "/", "/$metadata", "/units", "/units(1)", "/units(1)/code", "/units/$count", "/none", "/units?$filter=wrong"):
        yield "GET", "/api/odata/{companyId}" + path
    yield "GET", "/api/units?format=json&export=true&companyId={companyId}"


def filled(path: str, company: str, owned: dict[str, str]) -> str:
    """The path with the ids of the foreign company's things."""
    id = owned["hook"] if "/hooks/" in path else owned["import"] if "/imports/" in path else "1"
    return path.format(companyId=company, entity="units", id=id, deliveryId=owned["delivery"], name="theirs")


def send(service: Service, method: str, path: str, headers: dict[str, str], source: str = "127.0.0.1"):
    media_type, body = BODIES.get(method, ("", None))
    if path.endswith("/stream"):
        path += "?after=x"  # a stream that begins does not end
    return ask(service, path, method, {**headers, **({"Content-Type": media_type} if body else {})}, body, source=source)


CREDENTIALS: list[tuple[str, Callable[[Service], dict[str, str]]]] = [
    ("key", lambda s: bearer(s.key)),
    ("X-API-Key", lambda s: {"X-API-Key": s.key}),
    ("Basic", lambda s: basic("api", s.key)),
    ("token", lambda s: bearer(sign_in(s, "demo-user@example.com").token)),
    ("cookie", lambda s: sign_in(s, "demo-user@example.com").browser),
]


@pytest.fixture(scope="module")
def _user(service: Service) -> None:
    make_user(service, "demo-user@example.com", "demo")


@pytest.mark.usefixtures("_user")
@pytest.mark.parametrize("make", [each[1] for each in CREDENTIALS], ids=[each[0] for each in CREDENTIALS])
def test_no_route_gives_access_to_another_company(
    service: Service, owned: dict[str, str], make: Callable[[Service], dict[str, str]]
) -> None:
    before = contents(service)
    headers = make(service)
    for method, path in routes():
        is_odata = path.startswith("/api/odata")
        allowed = 403 if not is_odata or headers.get("Authorization", "").startswith("Basic") else 401
        existing = send(service, method, filled(path, FOREIGN, owned), headers)
        missing = send(service, method, filled(path, "nowhere", owned), headers)
        assert (existing.status, missing.status) == (allowed, allowed), (method, path, existing.body)
        assert existing.body.replace(FOREIGN.encode(), b"X") == missing.body.replace(b"nowhere", b"X"), (method, path)
        assert b"theirs" not in existing.body
    assert contents(service) == before


def contents(service: Service) -> list[object]:
    """Everything of the foreign company that a route could change."""
    return [
        service.operator.rows(f"select to_jsonb(t) from {table} t where company_id = %s order by 1::text", (FOREIGN,))
        for table in ("data.units", "bds.hooks", "bds.mappers", "bds.imports", "bds.deliveries")
    ]


def test_every_route_of_a_company_refuses_missing_and_wrong_credentials(service: Service, owned: dict[str, str]) -> None:
    for method, path in routes():
        source = fresh_address()
        for headers in ({}, bearer("bds_" + "w" * 43), {"Cookie": "session=a.b.c"}):
            reply = send(service, method, filled(path, "demo", owned), headers, source)
            assert reply.status == 401, (method, path)
            assert reply.headers["WWW-Authenticate"]


def test_every_other_route_is_listed_as_public_or_needs_credentials(service: Service) -> None:
    for method, path, _ in ROUTES:
        plain = re.sub(r"\{[^}]*\}", "x", path)
        if "{companyId}" in path or path.startswith("/api/odata") or path in PUBLIC or not path.startswith(("/api", "/auth", "/c")):
            continue
        assert send(service, method, plain, {}).status == 401, (method, path)


def test_a_route_needs_its_scope(service: Service, owned: dict[str, str]) -> None:
    keys = {scope: service.operator.key("demo", scopes=(scope,)) for scope in ("read", "propose", "import", "hooks")}
    for method, path in routes():
        words = set(re.split(r"[/?]", path))
        needed = next((scope for word, scope in SCOPES.items() if word in words), "read")
        if "versions" in words and method in ("PUT", "DELETE"):
            needed = "import"
        query = "?dryRun=true" if method == "POST" and (method, path) in PROPOSED else ""
        for scope, key in keys.items():
            credentials = basic("api", key) if path.startswith("/api/odata") else bearer(key)
            reply = send(service, method, filled(path, "demo", owned), credentials)
            if scope == "propose" and ((method, path) in PROPOSED or path.endswith("/revert")):
                dry = send(service, method, filled(path, "demo", owned) + query, credentials)
                assert dry.status != 403 and (reply.status == 403 or not query), (method, path, dry.status, reply.status)
                continue
            assert (reply.status == 403) == (scope != needed), (method, path, scope, reply.status, reply.body)


def test_things_of_another_company_are_not_found_in_ones_own(service: Service, owned: dict[str, str]) -> None:
    headers = bearer(service.key)
    for method, path in (
        ("GET", f"/c/demo/hooks/{owned['hook']}"), ("PATCH", f"/c/demo/hooks/{owned['hook']}"), ("DELETE", f"/c/demo/hooks/{owned['hook']}"),
        ("POST", f"/c/demo/hooks/{owned['hook']}/test"), ("DELETE", f"/c/demo/hooks/{owned['hook']}/rest"), ("GET", f"/c/demo/hooks/{owned['hook']}/deliveries"),
        ("POST", f"/c/demo/hooks/{owned['hook']}/secret"), ("GET", f"/c/demo/hooks/{owned['hook']}/deliveries/{owned['delivery']}"),
        ("POST", f"/c/demo/hooks/{owned['hook']}/deliveries/{owned['delivery']}/retry"), ("GET", f"/api/demo/imports/{owned['import']}"),
        ("DELETE", f"/api/demo/imports/{owned['import']}"), ("GET", f"/api/demo/imports/{owned['import']}/errors"),
        ("GET", "/api/demo/mappers/theirs"), ("DELETE", "/api/demo/mappers/theirs"), ("POST", "/api/demo/mappers/theirs/preview"),
        ("GET", f"/c/demo/hooks/{uuid.uuid4()}"),
    ):  # fmt: skip
        assert send(service, method, path, headers).status == 404, (method, path)


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


def test_every_method_on_every_kind_of_path(service: Service, owned: dict[str, str]) -> None:
    """A method that a path does not support is 405 with an Allow header."""
    patterns: dict[str, set[str]] = {}
    for method, path in routes():
        named = filled(path, "demo", owned).partition("?")[0]
        patterns.setdefault(named, set()).update(
            {"GET", "HEAD"} if method == "*" else {method, *(["HEAD"] if method == "GET" else [])}
        )
    for path, allowed in patterns.items():
        is_odata = path.startswith("/api/odata")
        credentials = basic("api", service.key) if is_odata else bearer(service.key)
        for method in METHODS:
            reply = send(service, method, path, credentials)
            if method in allowed or (is_odata and method in ("GET", "HEAD")):
                # a key, whatever its scopes, does not read the audit
                assert (reply.status == 403) == path.endswith("/audit") and reply.status not in (401, 405), (method, path)
            else:
                assert reply.status == 405, (method, path, reply.status)
                found = set(reply.headers["Allow"].replace(" ", "").split(","))
                assert method not in found and allowed <= found, (method, path, found)
    for method in METHODS:
        assert send(service, method, "/nothing/at/all", bearer(service.key)).status == 404
