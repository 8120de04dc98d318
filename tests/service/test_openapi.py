"""The description for programs: valid, complete, true of what is answered, and a client that is made from it works."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from app.export.request import PARAMETERS
from app.query.check.options import EXPORT
from app.service.routes import ROUTES
from app.wire.target import ODATA
from tests.conftest import Operator
from tests.database.aging import maintain
from tests.service.serving import Service, running

PATTERN = re.compile(r"{(\w+):[^{}]*(?:\{[^{}]*\}[^{}]*)*}")


def send(service: Service, method: str, path: str, body: object) -> Any:
    connection = http.client.HTTPConnection(service.host, service.port, timeout=60)
    connection.request(method, path, json.dumps(body), {"X-API-Key": service.key, "Content-Type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, webhook_allow_private=True) as service:
        service.operator.write("demo", "insert into data.units (code, name) values ('PCS', 'Piece'), ('KG', 'Kilogram')")
        service.operator.write("demo", "insert into data.products (code, name, price) values ('A', 'Apple', 1.5)")
        service.operator.write("demo", "insert into data.product_variants (product_id, code) select id, 'A1' from data.products")
        for document in ({"units": [{"code": "M", "name": "Metre"}]}, {"units": [{"code": "X"}]}):
            send(service, "POST", "/api/demo/import", document)
        send(service, "POST", "/c/demo/hooks", {"entity": None, "url": "http://127.0.0.1:9/", "disabled": True})
        yield service


@pytest.fixture(scope="module")
def description(service: Service) -> dict[str, Any]:
    reply = service.ask("/openapi.json")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
    found: dict[str, Any] = reply.json
    return found


def test_the_description_is_valid(description: dict[str, Any]) -> None:
    OpenAPIV31SpecValidator(description).validate()
    assert description["openapi"].startswith("3.1")


def test_routes_and_paths_are_the_same(description: dict[str, Any]) -> None:
    entities = service_entities(description)
    routes = set()
    for method, path, _ in ROUTES:
        if path.startswith(ODATA):  # which describes itself
            continue
        path = re.sub(r"{entity:.*}", "{entity}", path)
        # under a company each entity has paths of its own
        named = entities if "/{entity}" in path.removeprefix("/api/{entity}") else ["{entity}"]
        routes |= {(method, path.replace("{entity}", each)) for each in named}
    assert len(entities) == 9
    assert routes == {(method.upper(), path) for path, methods in description["paths"].items() for method in methods}


def service_entities(description: dict[str, Any]) -> list[str]:
    [parameter] = [each for each in description["paths"]["/api/{entity}"]["get"]["parameters"] if each["in"] == "path"]
    found: list[str] = parameter["schema"]["enum"]
    return found


def test_parameters_of_exports_are_those_that_are_read(description: dict[str, Any]) -> None:
    for path, more in (("/api/{entity}", {"companyId"}), ("/api/{company}/products", set())):
        described = {each["name"] for each in description["paths"][path]["get"]["parameters"] if each["in"] == "query"}
        assert described == {*PARAMETERS, *EXPORT} - {"companyId"} | more


def test_every_operation_has_an_id_of_its_own(description: dict[str, Any]) -> None:
    ids = [operation["operationId"] for methods in description["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("path", "described"),
    [
        ("/c/demo", "/c/{company}"),
        ("/c/demo/units", "/c/{company}/units"),
        ("/c/demo/products", "/c/{company}/products"),
        ("/c/demo/products/1", "/c/{company}/products/{id}"),
        ("/c/demo/changes", "/c/{company}/changes"),
        ("/c/demo/hooks", "/c/{company}/hooks"),
        ("/api/demo/imports", "/api/{company}/imports"),
        ("/api/demo/mappers", "/api/{company}/mappers"),
        ("/healthz", "/healthz"),
    ],
)
def test_answers_fit_the_description(service: Service, description: dict[str, Any], path: str, described: str) -> None:
    reply = service.ask(path)
    assert reply.status == 200
    schema = description["paths"][described]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": description["components"]}).validate(reply.json)


def test_errors_and_changes_of_hooks_fit_the_description(service: Service, description: dict[str, Any]) -> None:
    def check(name: str, value: object) -> None:
        schemas = {"components": description["components"], "$ref": f"#/components/schemas/{name}"}
        Draft202012Validator(schemas).validate(value)

    hook = send(service, "POST", "/c/demo/hooks", {"entity": "units", "url": "http://127.0.0.1:9/x", "action": "webhook"})
    check("Hook", hook)
    send(service, "POST", f"/c/demo/hooks/{hook['id']}/test", {})
    [delivery] = service.ask(f"/c/demo/hooks/{hook['id']}/deliveries").json["data"]
    check("Delivery", delivery)
    check("ImportReport", send(service, "POST", "/api/demo/import", {"units": [{"code": "L"}]}))
    check("Problem", service.ask("/c/demo/nothing").json)


def test_a_new_entity_is_described_at_once(service: Service, operator: Operator) -> None:
    service.operator.connection.execute(
        "create table data.shelves (id bigint generated by default as identity, company_id text not null references bds.companies,"
        " code text not null, updated_at timestamptz not null, primary key (company_id, id), unique (company_id, code))"
    )
    service.operator.connection.execute("select bds.register('data.shelves', 'shelves', singular => 'shelf')")
    from tests.service.serving import wait_until

    wait_until(lambda: "/c/{company}/shelves" in service.ask("/openapi.json").json["paths"])


def test_the_index_lists_what_answers(service: Service) -> None:
    index = service.ask("/c/demo").json
    [(last,)] = service.operator.rows("select coalesce(max(last_id), 0) from bds.positions where company_id = 'demo'")
    assert (index["version"], index["generation"], index["position"]) == (last, 1, str(last))
    assert index["head"] is None
    maintain(service.operator, "seal_age => '0'")
    head = service.ask("/c/demo").json["head"]
    assert service.operator.rows("select encode(hash, 'hex') from bds.log_head('demo')") == [(head["hash"],)]
    assert head["version"] == last and head["sealedAt"].endswith("Z")
    assert {"name": "products", "url": "/c/demo/products"} in index["entities"]
    for each in index["entities"]:
        assert service.ask(each["url"]).status == 200
    for name, url in index["links"].items():
        assert service.ask(url).status == {"import": 405}.get(name, 200), url


@pytest.mark.parametrize("path", ["/openapi.json", "/c/demo", "/docs"])
def test_credentials_are_needed(service: Service, path: str) -> None:
    assert service.ask(path, authorization=None).status in (401, 303)


def test_the_index_of_another_company_is_forbidden(service: Service) -> None:
    service.operator.company("other")
    for company in ("other", "missing"):
        reply = service.ask(f"/c/{company}")
        assert (reply.status, reply.json["code"]) == (403, "forbidden")


@pytest.mark.processes
@pytest.mark.slow
def test_a_client_made_from_the_description_works(service: Service, description: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(description))
    generator = [sys.executable, "-m", "openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none"]
    made = subprocess.run([*generator, "--output-path", "generated"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stdout + made.stderr
    left_out = re.findall(r"parsing (\w+ \S+) .*will not be generated", made.stdout + made.stderr)
    assert left_out == ["PUT /api/{company}/mappers/{name}"], "the generator knows no body of text/plain"
    (tmp_path / "use.py").write_text(
        "from generated import AuthenticatedClient\n"
        "from generated.api.import_ import list_imports\n"
        "from generated.api.rows import list_products, get_unit\n"
        f"client = AuthenticatedClient(base_url='http://{service.host}:{service.port}', token='{service.key}')\n"
        "page = list_products.sync(client=client, company='demo', filter_=\"code = 'A'\")\n"
        "print(page.data[0].code, page.data[0].price, page.data[0].variants[0].code, page.has_more)\n"
        "unit = get_unit.sync(client=client, company='demo', id='1')\n"
        "print(unit.code)\n"
        "print([each.state.value for each in list_imports.sync(client=client, company='demo').data[-2:]])\n"
    )
    used = subprocess.run([sys.executable, "use.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert used.stdout.splitlines() == ["A 1.5 A1 False", "PCS", "['failed', 'completed']"], used.stderr
