"""Browsers of other origins: preflights, and the headers with which a page may read an answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.changes.following import connect
from tests.service.serving import Reply, Service, running

LISTED, OTHER = "https://app.example.com", "https://evil.example"
EXPOSED = {
    *("ETag", "OData-Version", "Warning", "Location", "Retry-After", "Preference-Applied", "Idempotency-Replayed"),
    *("Content-Disposition", "X-BDS-Generation", "X-Request-Id"),
}
PATHS = (
    "/api/odata/demo/products", "/api/odata/demo", "/c/demo/products", "/c/demo/changes", "/c/demo/hooks", "/api/demo/import",
    "/api/demo/imports", "/api/demo/mappers", "/api/demo/products", "/api/products",
)  # fmt: skip
STREAM = "/c/demo/changes/stream"


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, cors_origins=(LISTED, "http://localhost:5173")) as service:
        yield service


def ask_first(service: Service, path: str, origin: str, headers: str = "authorization") -> Reply:
    asked = {"Origin": origin, "Access_Control_Request_Method": "GET", "Access_Control_Request_Headers": headers}
    return service.ask(path, "OPTIONS", None, **asked)


def allowed(reply: Reply) -> list[str]:
    return [name for name in reply.headers if name.lower().startswith("access-control-")]


@pytest.mark.parametrize("path", [*PATHS, STREAM])
def test_a_preflight_of_a_listed_origin_is_answered_without_authentication(service: Service, path: str) -> None:
    reply = ask_first(
        service, path, LISTED, "authorization, odata-isolation, sap-cancel-on-close, x-sap-security-session, x-other, sapling"
    )
    assert (reply.status, reply.body) == (204, b"")
    assert reply.headers["Access-Control-Allow-Origin"] == LISTED and "Origin" in reply.headers.get_all("Vary")
    names = set(reply.headers["Access-Control-Allow-Headers"].lower().split(", "))
    assert names >= {"authorization", "x-api-key", "if-none-match", "prefer", "content-type", "odata-maxversion", "odata-isolation"}
    assert names >= {"accept", "content-encoding", "idempotency-key", "last-event-id", "x-bds-position"}
    assert names >= {"mime-version", "x-csrf-token", "sap-cancel-on-close", "x-sap-security-session"}, "which UI5 sends"
    assert not names & {"x-other", "sapling"}
    assert {"GET", "HEAD", "POST"} <= set(reply.headers["Access-Control-Allow-Methods"].split(", "))
    assert "Access-Control-Allow-Credentials" not in reply.headers


@pytest.mark.parametrize("path", PATHS)
def test_other_origins_get_nothing(service: Service, path: str) -> None:
    for origin in (OTHER, "null", LISTED + ".evil.example", LISTED.upper()):
        assert not allowed(ask_first(service, path, origin))
        assert not allowed(service.ask(path, Origin=origin))
    assert ask_first(service, path, OTHER).status == 405
    assert not allowed(service.ask(path))


@pytest.mark.parametrize(
    ("path", "authorization", "status"),
    [
        ("/api/odata/demo/units", "key", 200),
        ("/api/odata/demo/nothing", "key", 404),
        ("/api/odata/demo/units?$top=x", "key", 400),
        ("/api/odata/demo/units", None, 401),
        ("/api/odata/other/units", "key", 403),
        ("/c/demo/units", "key", 200),
        ("/c/demo/units", None, 401),
        ("/api/demo/units?format=csv&export=true", "key", 200),
        ("/api/demo/nothing/at/all", "key", 404),
    ],
)
def test_answers_and_errors_may_be_read(service: Service, path: str, authorization: str | None, status: int) -> None:
    reply = service.ask(path, authorization=authorization, Origin=LISTED)
    assert (reply.status, reply.headers["Access-Control-Allow-Origin"]) == (status, LISTED)
    assert set(reply.headers["Access-Control-Expose-Headers"].split(", ")) == EXPOSED
    assert "Access-Control-Allow-Credentials" not in reply.headers and "Origin" in reply.headers.get_all("Vary")


def test_a_304_and_a_long_stream_may_be_read(service: Service) -> None:
    tag = service.odata("/units").headers["ETag"]
    reply = service.odata("/units", If_None_Match=tag, Origin=LISTED)
    assert (reply.status, reply.headers["Access-Control-Allow-Origin"]) == (304, LISTED)
    service.operator.write(
        "demo", "insert into data.units (code, name) select n::text, repeat('x', 100) from generate_series(1, 2000) n"
    )
    for path in ("/api/odata/demo/units", "/api/demo/units?format=json&export=true"):
        reply = service.ask(path, Origin="http://localhost:5173")
        assert reply.headers["Transfer-Encoding"] == "chunked"
        assert reply.headers["Access-Control-Allow-Origin"] == "http://localhost:5173"


def test_the_stream_of_changes_may_be_read(service: Service) -> None:
    for origin, found in ((LISTED, [LISTED]), (OTHER, [])):
        connection, response = connect(service, headers={"Authorization": service.basic, "Origin": origin})
        connection.close()
        assert response.status == 200
        assert response.headers.get_all("Access-Control-Allow-Origin", []) == found
        assert ("Access-Control-Expose-Headers" in response.headers) == bool(found)
        assert ask_first(service, STREAM, origin).status == (204 if found else 405)


@pytest.mark.parametrize("path", ["/", "/login", "/auth/login", "/healthz", "/metrics", "/changes"])
def test_pages_and_logins_are_not_for_other_origins(service: Service, path: str) -> None:
    assert not allowed(service.ask(path, Origin=LISTED)) and not allowed(ask_first(service, path, LISTED))


def test_an_options_that_is_no_preflight_is_refused(service: Service) -> None:
    assert service.ask("/api/odata/demo/units", "OPTIONS", Origin=LISTED).status == 405


def test_without_the_setting_there_is_nothing(database_url: str) -> None:
    with running(database_url) as service:
        assert ask_first(service, "/api/odata/demo/units", LISTED).status == 405
        reply = service.odata("/units", Origin=LISTED)
        assert not allowed(reply) and "Origin" not in (reply.headers["Vary"] or "")
