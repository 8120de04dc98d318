"""The log of a service as an operator starts it: complete lines without secrets; and who may read the metrics."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
from typing import Any

import psycopg
import pytest

from app import logs
from app.config import Config
from tests.auth.client import PASSWORD, ask, basic, bearer, fresh_address, login, make_user, sign_in
from tests.conftest import Operator
from tests.service.serving import Service, running
from tests.service.test_processes import serve, wait_until

GUESS = "bds_" + "G" * 43
LITERAL = "hush-hush-literal"


class Address:
    """A service in the form that tests.auth.client takes."""

    def __init__(self, port: int, key: str, operator: Operator) -> None:
        self.host, self.port, self.key, self.operator = "127.0.0.1", port, key, operator


@pytest.mark.slow
@pytest.mark.parametrize("format", ["json", "text"])
def test_the_log_has_no_secrets(database_url: str, operator: Operator, format: str) -> None:
    operator.company("acme")
    key = operator.key("acme")
    settings = {
        "BDS_LOG_FORMAT": format,
        "BDS_LOG_LEVEL": "debug",
        "BDS_SECRET": "s" * 40,
        "BDS_METRICS_TOKEN": "metrics-token-123",
    }
    with serve(database_url, key, **settings) as served:
        service: Any = Address(served.port, key, operator)
        make_user(service, "anna@example.com", "acme")
        signed_in = sign_in(service)
        source = fresh_address()
        for headers in (
            bearer(key), basic("api", key), basic("api", GUESS), bearer(GUESS), {"X-API-Key": GUESS}, bearer(signed_in.token),
            bearer(signed_in.token + "x"), signed_in.browser, {"Cookie": f"session={signed_in.cookie}x"}, basic(GUESS, PASSWORD), {},
        ):  # fmt: skip
            for path in (
                "/c/acme/products", f"/c/acme/products/{key}", f"/c/acme/products?filter=name='{LITERAL}'&key={key}", "/c/none/products",
                f"/api/odata/acme/products(code='{LITERAL}')", f"/api/odata/acme/products(code=%27{LITERAL}%27)?$filter=code eq '{LITERAL}'",
                f"/nothing/{signed_in.token}", f"/api/acme/products?format=csv&export=true&$filter=name eq '{LITERAL}'",
            ):  # fmt: skip
                ask(service, path.replace(" ", "%20"), headers=headers, source=source)
        login(service, password="a wrong guess", source=source)
        ask(service, "/auth/login", "POST", {"Content-Type": "application/json"}, '{"password": "half a guess', source=source)
        for body in (
            f'{{"units": [{{"code": "{LITERAL}", "name": 1, "wrong": "{LITERAL}"}}]}}',
            f'{{"units": [{{"code": "{LITERAL}"',
        ):
            ask(service, "/api/acme/import", "POST", {**bearer(key), "Content-Type": "application/json"}, body)
        hook = {"entity": "units", "url": "https://example.com/", "action": "webhook", "filter": f"name = '{LITERAL}'"}
        made = ask(service, "/c/acme/hooks", "POST", signed_in.browser, hook)
        secret = made.json["secret"]
        assert secret.startswith("whsec_")
        ask(service, "/metrics", headers=bearer("metrics-token-123"))
        ask(service, "/metrics", headers=bearer("metrics-token-999"))
        ask(service, "/auth/logout", "POST", signed_in.browser)
        wait_until(lambda: any("/auth/logout" in line for line in served.log))
        assert served.stop() == 0
        text = "".join(served.log)
    assert "/auth/login" in text and "/api/acme/import" in text and len(served.log) > 80
    (stored,) = operator.rows("select coalesce((select value from bds.secrets where name = 'tokens'), 'none-is-stored')")[0]
    secrets = (
        key,
        GUESS,
        signed_in.token,
        signed_in.cookie,
        signed_in.csrf,
        secret,
        PASSWORD,
        "guess",
        LITERAL,
        "s" * 40,
        "metrics-token",
        stored,
    )
    for each in secrets:
        assert each not in text, [line for line in served.log if each in line][:1]
    assert '"actor": "user anna@example.com"' in text and '"company": "acme"' in text
    if format == "json":
        lines = [json.loads(line) for line in served.log if line.startswith("{")]
        assert len(lines) >= len(served.log) - 1, "all lines except `serving on`"
        assert all({"time", "level", "logger"} <= line.keys() for line in lines)
        accesses = [line for line in lines if line["logger"] == "bds.access"]
        assert {line["status"] for line in accesses} >= {200, 401, 403, 404, 429}
        assert all(
            {"id", "remote", "method", "path", "company", "actor", "status", "bytes", "ms"} <= line.keys() for line in accesses
        )
        imported = next(line for line in lines if line["logger"] == "bds.feed")
        assert imported["request"] in {line["id"] for line in accesses}, "lines logged during a request have its id"


def formatted(formatter: logging.Formatter, message: str, *arguments: Any, error: BaseException | None = None) -> str:
    """The line that a handler writes for one event."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    record = logging.LogRecord(
        "bds.x", logging.ERROR, __file__, 1, message, arguments, (type(error), error, None) if error else None
    )
    handler.handle(record)
    return out.getvalue()


LEAKS = [
    # logged text, secret part of it
    (f"key {GUESS}", GUESS),
    ("whsec_c2VjcmV0c2VjcmV0", "c2VjcmV0"),
    ("eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
    ("postgresql://bds:pass-word@db/bds", "pass-word"),
    ("host=db password=pass-word user=x", "pass-word"),
    ("Authorization: Basic YXBpOnBhc3M=", "YXBpOnBhc3M"),
]


@pytest.mark.parametrize("formatter", [logs.JsonFormatter(), logs.TextFormatter()], ids=["json", "text"])
@pytest.mark.parametrize(("message", "secret"), LEAKS)
def test_secrets_are_masked_in_every_line(formatter: logging.Formatter, message: str, secret: str) -> None:
    line = formatted(formatter, "it was %s", message)
    assert secret not in line and "***" in line


@pytest.mark.parametrize("formatter", [logs.JsonFormatter(), logs.TextFormatter()], ids=["json", "text"])
def test_exceptions_are_logged_with_their_stack_and_without_values(database_url: str, formatter: logging.Formatter) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in (
            f"select '{LITERAL}'::int",
            f"select 'a\"{LITERAL}\"'::int",
            f"select 'it''s\n\"{LITERAL}\n''s'::int",
            f"insert into bds.tenants (id) values ('{LITERAL}'), ('{LITERAL}')",
            f"do $$ begin raise 'no credit for {LITERAL}'; end $$",
            f"do $$ begin raise 'no credit for {LITERAL}' using errcode = 'KK001'; end $$",
        ):
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(statement.encode())
            line = formatted(formatter, "it failed", error=caught.value)
            assert LITERAL not in line and str(caught.value.sqlstate) in line and "test_logs.py" in line
        with pytest.raises(psycopg.Error) as caught:
            connection.execute("select nothing from nowhere")
        assert "nowhere" in formatted(formatter, "it failed", error=caught.value), "names of the schema are logged"
    for text in (LITERAL, f"a'{LITERAL}\"", f"'\"{LITERAL}'\""):
        with pytest.raises(ValueError) as wrong:
            int(text)
        line = formatted(formatter, "it failed", error=wrong.value)
        assert LITERAL not in line and "ValueError" in line


def test_wrong_choices_are_refused() -> None:
    for name in ("BDS_LOG_LEVEL", "BDS_LOG_FORMAT", "BDS_POOLER", "BDS_PREPARED_STATEMENTS"):
        with pytest.raises(ValueError, match=f"{name}='loud': expected "):
            Config.load({name: "loud"})
    assert Config.load({"BDS_LOG_FORMAT": "JSON", "BDS_LOG_LEVEL": "warning"}).log_format == "json"


@pytest.mark.parametrize(
    ("headers", "status"),
    [({}, 200), ({"X-Forwarded-For": "203.0.113.9"}, 403), ({"Forwarded": "for=203.0.113.9"}, 403), ({"Via": "1.1 proxy"}, 403)],
)
def test_metrics_without_a_token_are_for_local_clients_without_a_proxy(
    service: Service, headers: dict[str, str], status: int
) -> None:
    answer = ask(service, "/metrics", headers=headers)
    assert answer.status == status
    if status == 200:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        assert b"\nbds_database_up 1.0\n" in answer.body
        assert b"demo" not in answer.body, "companies are not named"


def test_metrics_with_a_token_are_for_clients_with_the_token(module_database_url: str, service: Service) -> None:
    token = "a-token-of-the-tests"
    with running(module_database_url, company=None, metrics_token=token) as guarded:
        for headers in ({}, bearer("another"), basic("api", token), bearer(service.key), {"Authorization": "Bearer"}):
            refused = ask(guarded, "/metrics", headers=headers)
            assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, 'Bearer realm="metrics"')
            assert b"bds_" not in refused.body
        through_a_proxy = {**bearer(token), "X-Forwarded-For": "203.0.113.9"}
        answer = ask(guarded, "/metrics", headers={**through_a_proxy, "Accept": "application/openmetrics-text; version=1.0.0"})
        assert answer.status == 200 and answer.headers["Content-Type"].startswith("application/openmetrics-text")
        assert answer.body.endswith(b"# EOF\n") and b"bds_http_requests_total" in answer.body


def test_labels_hold_no_values_of_clients(service: Service) -> None:
    for method, path in (
        ("GET", "/c/demo/none-such"),
        ("BREW", "/c/demo/products"),
        ("GET", "/secret-word/x"),
        ("GET", "/api/odata/x/y"),
    ):
        service.raw(f"{method} {path} HTTP/1.1\r\nHost: x\r\nX-API-Key: {service.key}\r\nConnection: close\r\n\r\n".encode())
    body = ask(service, "/metrics").body.decode()
    assert "none-such" not in body and "secret-word" not in body and "BREW" not in body
    areas = set(re.findall(r'bds_http_requests_total\{area="(\w+)",', body))
    assert areas <= {"odata", "changes", "stream", "hooks", "import", "mappers", "export", "auth", "operation", "pages", "none"}
    assert {"changes", "none", "odata"} <= areas


def test_a_closed_log_raises_no_error() -> None:
    stream = io.StringIO()
    lines = logs.LogHandler(stream)
    lines.setFormatter(logs.JsonFormatter())

    async def write(*statuses: int) -> None:
        for status in statuses:
            lines.add(logs.AccessRecord(1.5, "a", "::1", "GET", "/c/demo/units", "changes", "demo", None, status, 3, 7, 0.002))
        await asyncio.sleep(logs.DELAY * 2)

    asyncio.run(write(200, 304))
    written = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["status"] for line in written] == [200, 304]
    assert written[0] | {"status": 0} == {
        **{
            "time": "1970-01-01T00:00:01.500Z",
            "level": "info",
            "logger": "bds.access",
            "id": "a",
            "remote": "::1",
            "method": "GET",
        },
        **{"path": "/c/demo/units", "company": "demo", "actor": None, "status": 0, "rows": 3, "bytes": 7, "ms": 2.0},
    }
    stream.close()
    asyncio.run(write(200))
