"""The description for programs: valid, complete, true of what is answered, and a client that is made from it works."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from app.export.request import PARAMETERS
from app.query.check.options import EXPORT
from app.service.routes import ROUTES
from app.wire.target import ODATA
from tests.auth.client import EMAIL, ask, make_user, sign_in
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
    for path, more in (("/api/{entity}", {"companyId"}), ("/api/{companyId}/products", set())):
        described = {each["name"] for each in description["paths"][path]["get"]["parameters"] if each["in"] == "query"}
        assert described == {*PARAMETERS, *EXPORT} - {"companyId"} | more


def test_every_operation_has_an_id_of_its_own(description: dict[str, Any]) -> None:
    ids = [operation["operationId"] for methods in description["paths"].values() for operation in methods.values()]
    assert len(ids) == len(set(ids))


@pytest.fixture(scope="module")
def made(service: Service) -> dict[str, str]:
    """What stands in the place of parameters of paths."""
    hook = send(service, "POST", "/c/demo/hooks", {"entity": "units", "url": "http://127.0.0.1:9/made", "disabled": True})
    delivery = send(service, "POST", f"/c/demo/hooks/{hook['id']}/test", {})["deliveryId"]
    service.operator.connection.execute("update bds.hooks set problem = 'column x is gone' where id = %s", (hook["id"],))
    failed = send(service, "POST", "/api/demo/import", {"units": [{"code": "Y"}]})["importId"]
    send(service, "PUT", "/api/demo/versions/some", {"version": 1, "generation": 1})
    mapper = "type csv\nunits = 'row' { code = 'Code' name = 'Name' }\n"
    assert (
        ask(service, "/api/demo/mappers/some", "PUT", {"X-API-Key": service.key, "Content-Type": "text/plain"}, mapper).status
        == 201
    )
    return {"hooks": hook["id"], "deliveryId": delivery, "imports": failed, "name": "some"}


@pytest.fixture(scope="module")
def administrator(service: Service) -> str:
    make_user(service)
    service.operator.rows("select bds.set_access(%s, array['demo'], true)", (EMAIL,))
    return f"Bearer {sign_in(service).token}"


def filled(path: str, made: dict[str, str]) -> str:
    """A path of the description with what its parameters name."""
    kind = [*path.split("/"), ""][3]  # hooks, imports or an entity
    return path.format(**{**made, "companyId": "demo", "entity": "units", "id": made.get(kind, "1")})


def reads(description: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The paths of companies and exports that are read, each entity's once, with their operations."""
    others = tuple(f"/{each}" for each in service_entities(description) if each != "units")
    for path, methods in description["paths"].items():
        if "get" in methods and path.startswith(("/c/", "/api/")) and not any(f"{each}/" in f"{path}/" for each in others):
            yield path, methods["get"]


def strictly(schema: Any) -> Any:
    """The schema with every object closed that names its members."""
    if isinstance(schema, list):
        return [strictly(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strictly(each) for name, each in schema.items()}
    return {**found, "additionalProperties": False} if isinstance(schema.get("properties"), dict) else found


def test_answers_have_the_members_of_the_description_and_no_other(
    service: Service, description: dict[str, Any], made: dict[str, str], administrator: str
) -> None:
    components, checked = strictly(description["components"]), 0
    for path, operation in reads(description):
        content = operation["responses"]["200"].get("content", {})
        if set(content) == {"application/json"}:
            assert "Location" not in operation["responses"]["200"].get("headers", {}), path
            since = "?since=0" if path.endswith("/diff") else ""
            reply = service.ask(filled(path, made) + since, authorization=administrator)
            assert reply.status == 200, (path, reply.body)
            schema = {**strictly(content["application/json"]["schema"]), "components": components}
            wrong = [f"{each.json_path}: {each.message}" for each in Draft202012Validator(schema).iter_errors(reply.json)]
            assert not wrong, path
            assert reply.json.get("data", True), f"{path} has an item"
            checked += 1
    assert checked > 15


# method, path of the description, what is added to it, headers, body, status; in this order, on the hook and import of `made`
HOOK, IMPORT = "/c/{companyId}/hooks/{id}", "/api/{companyId}/imports/{id}"
REVERT = "/api/{companyId}/revert"
KEYED = {"Idempotency-Key": "one"}
WRITES: list[tuple[str, str, str, dict[str, str], Any, int]] = [
    ("GET", "/c/{companyId}/units", "?since=0", {}, None, 200),
    ("GET", "/c/{companyId}/units", "?filter=code%20=%20'none'", {}, None, 200),
    ("GET", HOOK + "/deliveries/{deliveryId}", "", {}, None, 200),
    ("PATCH", HOOK, "", {}, {"columns": ["code"], "disabled": False}, 200),
    ("POST", HOOK + "/test", "", {}, None, 202),
    ("POST", HOOK + "/secret", "?revoke=true", {}, None, 200),
    ("POST", HOOK + "/replay", "", {}, {"since": 0}, 202),
    ("POST", HOOK + "/deliveries/{deliveryId}/retry", "", {}, None, 202),
    ("DELETE", HOOK + "/rest", "", {}, None, 409),
    ("POST", "/c/{companyId}/hooks", "", {}, {"entity": "nothing", "url": "http://127.0.0.1:9/"}, 400),
    ("POST", "/api/{companyId}/import", "", KEYED, {"units": [{"code": "N", "name": "n"}]}, 200),
    ("POST", "/api/{companyId}/import", "", KEYED, {"units": [{"code": "O", "name": "o"}]}, 422),
    ("POST", "/api/{companyId}/import", "", {}, {"units": [{"code": "P"}]}, 422),
    ("POST", "/api/{companyId}/import", "", {"Prefer": "respond-async"}, {"units": [{"code": "Q", "name": "q"}]}, 202),
    ("POST", IMPORT + "/revert", "?dryRun=true", {"Idempotency-Key": "two"}, None, 200),
    ("POST", IMPORT + "/revert", "", {"Idempotency-Key": "two"}, None, 422),
    ("POST", REVERT, "", {"Idempotency-Key": "three"}, {"to": 1, "dryRun": True, "entities": ["units"]}, 200),
    ("POST", REVERT, "", {"Idempotency-Key": "three"}, {"to": 1, "dryRun": True}, 422),
    ("DELETE", IMPORT, "", {}, None, 409),
    ("PUT", "/api/{companyId}/versions/{name}", "", {}, {"version": 1, "generation": 1}, 200),
    ("POST", "/auth/password", "", {}, {"password": "wrong", "newPassword": "correct horse battery 2"}, 401),
    ("DELETE", HOOK, "", {}, None, 204),
]


def test_answers_to_writes_are_as_described(service: Service, description: dict[str, Any], administrator: str) -> None:
    hook = send(service, "POST", "/c/demo/hooks", {"entity": "units", "url": "http://127.0.0.1:9/w", "disabled": True})["id"]
    delivery = send(service, "POST", f"/c/demo/hooks/{hook}/test", {})["deliveryId"]
    done = send(service, "POST", "/api/demo/import", {"units": [{"code": "W", "name": "w"}]})["importId"]
    send(service, "PUT", "/api/demo/versions/written", {"version": 1, "generation": 1})
    made, components = (
        {"hooks": hook, "deliveryId": delivery, "imports": done, "name": "written"},
        strictly(description["components"]),
    )
    for method, path, more, headers, body, status in WRITES:
        reply = ask(service, filled(path, made) + more, method, {"Authorization": administrator, **headers}, body)
        assert reply.status == status, (method, path, reply.body)
        responses = description["paths"][path][method.lower()]["responses"]
        told = responses.get(str(status)) or description["components"]["responses"]["problem"]
        media_type = reply.headers.get("Content-Type", "").partition(";")[0]
        assert set(told.get("content", {})) >= ({media_type} if reply.body else set()), (method, path)
        if reply.body:
            # a problem may have members of its own
            schema = told["content"][media_type]["schema"]
            schema = {**(schema if status >= 400 else strictly(schema)), "components": components}
            if media_type == "application/problem+json":
                schema["components"] = description["components"]
            wrong = [f"{each.json_path}: {each.message}" for each in Draft202012Validator(schema).iter_errors(reply.json)]
            assert not wrong, (method, path)
        for name in told.get("headers", {}):
            assert name in reply.headers, (method, path, name)


@pytest.mark.parametrize(("method", "path", "body", "status"), [
    ("POST", "/c/{companyId}/hooks", {"url": "http://127.0.0.1:9/"}, 400),
    ("POST", "/c/{companyId}/hooks", {"entity": "units"}, 400),
    ("POST", "/c/{companyId}/hooks", {"entity": None, "url": "http://127.0.0.1:9/b"}, 201),
    ("PATCH", HOOK, {"url": "http://127.0.0.1:9/c"}, 200),
    ("POST", REVERT, {"to": 0, "dryRun": True, "entities": []}, 400),
    ("POST", REVERT, {"to": 0, "dryRun": True, "rows": []}, 400),
    ("POST", REVERT, {"to": 0, "dryRun": True, "entities": ["units"]}, 200),
])  # fmt: skip
def test_the_service_takes_the_bodies_that_the_description_allows(
    service: Service, description: dict[str, Any], made: dict[str, str], method: str, path: str, body: Any, status: int
) -> None:
    schema = description["paths"][path][method.lower()]["requestBody"]["content"]["application/json"]["schema"]
    fits = Draft202012Validator({**schema, "components": description["components"]}).is_valid(body)
    reply = ask(service, filled(path, made), method, {"X-API-Key": service.key}, body)
    assert (reply.status, fits) == (status, status < 400), reply.body


VALUES = {
    "filter": "id > 0", "sort": "id", "limit": "1", "offset": "0", "version": "some", "at": "now", "generation": "1", "since": "0",
    "after": "0", "before": "9", "format": "json", "export": "true", "$filter": "id gt 0", "$select": "code", "$orderby": "code",
    "$expand": "*", "$top": "1", "$skip": "0", "mapper": "some", "ids": "false", "versions": "false", "companyId": "demo",
}  # fmt: skip


def test_every_parameter_of_a_read_is_taken(
    service: Service, description: dict[str, Any], made: dict[str, str], administrator: str
) -> None:
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    sent = 0
    for path, operation in reads(description):
        names = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
        for name in names:
            needed = {each["name"] for each in operation["parameters"] if each["required"] and each["in"] == "query"}
            given = {each: VALUES[each] for each in needed | {name}}
            if "export" in names:
                given["format"] = "csv" if name == "mapper" else "json"
            if name == "after" and "since" in names:
                given["since"] = "0"
            given |= (
                {"at": now} if name == "at" else {"before": "2100-01-01"} if path.endswith("/audit") and name == "before" else {}
            )
            method = "HEAD" if path.endswith("/stream") else "GET"  # which has no end
            if method == "HEAD" and name == "filter":
                given["filter"] = "entity = 'units'"
            reply = service.ask(f"{filled(path, made)}?{urlencode(given)}", method, authorization=administrator)
            assert reply.status == 200, (path, name, reply.body)
            sent += 1
    assert sent > 60


def test_what_a_body_may_hold_and_whether_it_is_needed_is_described(service: Service, description: dict[str, Any]) -> None:
    operation = description["paths"]["/api/{companyId}/versions/{name}"]["put"]
    assert operation["requestBody"]["required"] is False
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    Draft202012Validator(strictly({**schema, "components": description["components"]})).validate({"version": 1, "generation": 1})
    assert send(service, "PUT", "/api/demo/versions/last", {"generation": 1})["version"] > 0
    assert "scope" not in description["paths"]["/openapi.json"]["get"].get("description", "")


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

    wait_until(lambda: "/c/{companyId}/shelves" in service.ask("/openapi.json").json["paths"])


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
    assert left_out == ["PUT /api/{companyId}/mappers/{name}"], "the generator knows no body of text/plain"
    (tmp_path / "use.py").write_text(
        "from generated import AuthenticatedClient\n"
        "from generated.api.import_ import list_imports\n"
        "from generated.api.rows import list_products, get_unit\n"
        f"client = AuthenticatedClient(base_url='http://{service.host}:{service.port}', token='{service.key}')\n"
        "page = list_products.sync(client=client, company_id='demo', filter_=\"code = 'A'\")\n"
        "print(page.data[0].code, page.data[0].price, page.data[0].variants[0].code, page.has_more)\n"
        "unit = get_unit.sync(client=client, company_id='demo', id='1')\n"
        "print(unit.code)\n"
        "print([each.state.value for each in list_imports.sync(client=client, company_id='demo').data[-2:]])\n"
    )
    used = subprocess.run([sys.executable, "use.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert used.stdout.splitlines() == ["A 1.5 A1 False", "PCS", "['failed', 'completed']"], used.stderr
