"""What the table of deprecations lists is told by headers, the description, notices of SQL and warnings of commands."""

from __future__ import annotations

import json
import re
from datetime import date
from pathlib import Path

import psycopg
import pytest

from app import deprecations
from app.cli import main
from app.cli.parser import COMMANDS
from app.config import unknown_settings
from app.database import migrate, units
from app.deprecations import DEPRECATED, Deprecation
from app.service import openapi
from app.service.routes import ROUTES
from tests.service.serving import Service

ROOT = Path(__file__).resolve().parents[2]
DATES = {"version": "1.1.0", "since": date(2027, 1, 1), "until": date(2027, 12, 31), "instead": "it's successor"}
ENTRIES = tuple(
    Deprecation(what, **DATES)  # type: ignore[arg-type]
    for what in ("GET /c/{companyId}/{entity}", "POST /auth/login", "bds.old", "BDS_LOG_LEVEL", "bds completion")
)
MESSAGE = "{} is deprecated since version 1.1.0 and ends on 2027-12-31: use it's successor"


def test_an_entry_keeps_the_rule_and_names_something_that_exists() -> None:
    with pytest.raises(ValueError, match=r"bds\.old: expected 183 days or more from 2027-01-01 to its end, got 2027-06-30"):
        Deprecation("bds.old", "1.1.0", date(2027, 1, 1), date(2027, 6, 30), "bds.new")
    routes = {f"{method} {path}" for method, path, _ in ROUTES}
    told = {name for file in (ROOT / "sql").rglob("*.sql") for name in re.findall(r"tell_deprecated\('(.+?)'\)", file.read_text())}
    named = {each.what for each in DEPRECATED}
    assert {each for each in named if each.startswith("bds.")} == told
    known = routes | told | {f"bds {command.name}" for command in COMMANDS}
    assert {each for each in named if not each.startswith("BDS_")} <= known


def test_headers_and_the_description_tell(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    before = service.ask("/c/demo/units")
    assert "Deprecation" not in before.headers and '"deprecated"' not in service.ask("/openapi.json").body.decode()
    monkeypatch.setattr(deprecations, "DEPRECATED", ENTRIES)
    openapi._made.clear()
    for path, method in (
        ("/c/demo/units", "GET"),
        ("/c/demo/units", "HEAD"),
        ("/c/demo/units?limit=x", "GET"),
        ("/auth/login", "POST"),
    ):
        reply = service.ask(path, method)
        assert (reply.headers["Deprecation"], reply.headers["Sunset"]) == ("@1798761600", "Fri, 31 Dec 2027 00:00:00 GMT"), path
    for path in ("/c/demo/units/1", "/c/demo/changes", "/api/odata/demo/units"):
        assert "Deprecation" not in service.ask(path).headers
    paths = json.loads(service.ask("/openapi.json").body)["paths"]
    found = {f"{method} {path}" for path, methods in paths.items() for method, each in methods.items() if each.get("deprecated")}
    assert {"get /c/{companyId}/units", "post /auth/login"} <= found and "get /c/{companyId}/units/{id}" not in found
    assert MESSAGE.format("GET /c/{companyId}/{entity}") in paths["/c/{companyId}/units"]["get"]["description"]
    openapi._made.clear()


def test_functions_of_sql_and_commands_tell(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notices: list[tuple[str | None, str | None]] = []
    assert migrate.is_current(database_url)
    monkeypatch.setattr(deprecations, "DEPRECATED", ENTRIES)
    assert units.INTERNALS in migrate.migrate(database_url)
    with psycopg.connect(database_url, autocommit=True) as owner:
        owner.add_notice_handler(lambda each: notices.append((each.sqlstate, each.message_primary)))
        owner.execute("select bds_impl.tell_deprecated('bds.old'), bds_impl.tell_deprecated('bds.other')")
    assert notices == [("01P01", MESSAGE.format("bds.old"))]
    monkeypatch.setenv("BDS_LOG_LEVEL", "info")
    assert unknown_settings() == [] and main.main(["completion", "bash"]) == 0
    told = capsys.readouterr().err
    assert MESSAGE.format("BDS_LOG_LEVEL") in told and MESSAGE.format("bds completion") in told
