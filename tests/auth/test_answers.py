"""Security headers of every answer, and credentials that must not be logged."""

from __future__ import annotations

import logging

import pytest

from app.config import Config
from tests.auth.client import PASSWORD, ask, basic, bearer, fresh_address, login, sign_in
from tests.service.serving import Service

PATHS = ("/api/odata/demo", "/api/odata/demo/products", "/c/demo/products", "/c/demo/none", "/nothing", "/healthz", "/c/%zz/x")


@pytest.mark.parametrize("path", PATHS)
def test_answers_of_the_api_forbid_being_used_as_pages(service: Service, path: str) -> None:
    for headers in (basic("api", service.key), {}):
        answer = ask(service, path, headers=headers)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "Strict-Transport-Security" not in answer.headers, "plain HTTP"
        assert "Access-Control-Allow-Origin" not in answer.headers


def test_an_unparsable_request_is_answered_with_these_headers_too(service: Service) -> None:
    assert service.raw(b"GET /\x01 HTTP/1.1\r\n\r\n").headers["X-Content-Type-Options"] == "nosniff"


def test_an_export_keeps_its_own_policy(service: Service) -> None:
    answer = ask(service, "/api/demo/products?format=html&export=true", headers=bearer(service.key))
    assert answer.headers.get_all("Content-Security-Policy") != ["default-src 'none'; frame-ancestors 'none'"]
    assert len(answer.headers.get_all("Content-Security-Policy") or []) == 1


def test_no_credentials_are_logged(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    guess, source = "bds_" + "G" * 43, fresh_address()
    with caplog.at_level(logging.DEBUG):
        signed_in = sign_in(service)
        for headers in (bearer(service.key), basic("api", guess), bearer(signed_in.token), signed_in.browser, {"X-API-Key": guess}):
            ask(service, "/c/demo/products", headers=headers, source=source)
        login(service, password="a wrong guess", source=source)
        ask(service, "/auth/login", "POST", {"Content-Type": "application/json"}, '{"password": "half a guess', source=source)
        for _ in range(21):
            ask(service, "/c/demo/products", headers=bearer(guess), source=source)
    logged = "\n".join(record.getMessage() + str(record.exc_info or "") for record in caplog.records if record.name != "asyncio")
    assert '"path": "/auth/login"' in logged
    (secret,) = service.operator.rows("select value from bds.secrets where name = 'tokens'")[0]
    for each in (service.key, guess, signed_in.token, signed_in.cookie, signed_in.csrf, PASSWORD, "guess", secret):
        assert each not in logged


def test_the_configuration_shows_no_secret() -> None:
    secret = "hush-hush" * 4
    config = Config.load(
        {"BDS_SECRET": secret, "BDS_DATABASE_URL": "postgresql://u:hush-hush@h/d", "BDS_TRUSTED_PROXIES": "10.0.0.0/8, ::1"}
    )
    assert config.secret == secret and "hush-hush" not in repr(config)
    assert [str(each) for each in config.trusted_proxies] == ["10.0.0.0/8", "::1/128"]
    with pytest.raises(ValueError, match="BDS_TRUSTED_PROXIES='proxy'"):
        Config.load({"BDS_TRUSTED_PROXIES": "proxy"})
