"""What a database has set changes no answer: the service says how values are written, in which encoding, and that policies apply."""

from __future__ import annotations

import json
import urllib.request
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from app.database import connections, migrate
from tests.conftest import Operator
from tests.service.serving import Service, running

HOSTILE = {
    "client_encoding": "WIN1252",
    "row_security": "off",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "quote_all_identifiers": "on",
    "datestyle": "SQL, DMY",
    "intervalstyle": "postgres_verbose",
    "timezone": "Pacific/Apia",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "xmloption": "document",
    "default_transaction_isolation": "serializable",
    "search_path": "pg_catalog",
}
CODE = "Ä€ß中"
UNITS = {"units": [{"code": CODE, "name": "Straße"}, {"code": "ß", "name": "łódź"}]}
PATHS = (
    "/api/odata/demo/units",
    f"/api/odata/demo/units(code='{CODE}')",
    f"/api/odata/demo/units?$filter=code eq '{CODE}'",
    "/api/odata/demo@1/units",
    "/c/demo/units",
    f"/c/demo/units/code:{CODE}",
    f"/c/demo/units?filter=code = '{CODE}'",
    "/c/demo/units?since=0",
    "/c/demo/changes",
    "/api/demo/units?export=true&format=csv",
    "/api/demo/units?export=true&format=xml",
)


@pytest.fixture
def template(of_units: str) -> str:
    return of_units


def test_a_database_with_settings_of_its_own_gives_the_same_answers(
    operator: Operator, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(database_url) as service:
        assert counts(service) == {"created": 2}
        usual = answers(service)
    [(name,)] = operator.rows("select current_database()")
    for setting, value in HOSTILE.items():
        operator.connection.execute(f"alter database {name} set {setting} = '{value}'".encode())
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with running(database_url, company=None) as service:
        assert answers(service) == usual
        assert counts(service) == {"unchanged": 2}
    with connections.connect(database_url) as command:
        assert command.execute("select code from data.units order by id limit 1").fetchone() == (CODE,)
    migrate.migrate(database_url)
    with psycopg.connect(database_url, client_encoding="UTF8") as connection:
        assert connection.execute("select kind, object from bds.problems").fetchall() == []


def answers(service: Service) -> dict[str, str]:
    """What is answered to PATHS, without the service's address."""
    found = {path: service.ask(quote(path, safe="/?=&()'@:$")) for path in PATHS}
    assert {path: reply.status for path, reply in found.items()} == dict.fromkeys(PATHS, 200)
    return {path: reply.body.decode().replace(f":{service.port}", "") for path, reply in found.items()}


def counts(service: Service) -> Any:
    """What an import of UNITS does."""
    url = f"http://{service.host}:{service.port}/api/demo/import"
    headers = {"Authorization": service.basic, "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(UNITS).encode(), headers)) as reply:
        counted = json.loads(reply.read())["entities"]["units"]
    return {outcome: count for outcome, count in counted.items() if count}
