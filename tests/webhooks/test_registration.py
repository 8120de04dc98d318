"""Hooks over HTTP: register in every shape, refusals with their target, read, change, delete, test and retry."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.conftest import TEMPLATE
from tests.service.serving import PATIENCE, Reply, Service, running, wait_until
from tests.webhooks.conftest import working
from tests.webhooks.receiving import Receiver

URL = "https://93.184.215.14/hook"
UNTRIED = {"state": "ok", "reason": None, "failures": 0, "lastStatus": None, "lastAt": None, "queued": 0, "restsUntil": None}


@pytest.fixture(scope="module")
def template() -> str:
    return TEMPLATE


@dataclass(frozen=True)
class Client:
    """Sends requests about hooks of company demo."""

    service: Service

    def ask(self, method: str, path: str = "", body: Any = None, key: str | None = None, **headers: str) -> Reply:
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        named = {"X-API-Key": key or self.service.key, "Content-Type": "application/json"}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.service.host, self.service.port, timeout=PATIENCE)
        try:
            connection.request(method, path if path.startswith("/c/") else f"/c/demo/hooks{path}", data, named)
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()

    def create(self, **members: Any) -> dict[str, Any]:
        reply = self.ask("POST", body={"entity": "products", "url": URL, "action": "webhook", **members})
        assert reply.status == 201, reply.json
        hook: dict[str, Any] = reply.json
        return hook

    def refused(self, **members: Any) -> dict[str, Any]:
        reply = self.ask("POST", body={"entity": "products", "url": URL, **members})
        assert (reply.status, reply.headers["Content-Type"]) == (400, "application/problem+json"), reply.body
        problem: dict[str, Any] = reply.json
        return problem


@pytest.fixture(scope="module")
def client(module_database_url: str) -> Iterator[Client]:
    with running(module_database_url) as service:
        yield Client(service)


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"entity": None},
        {"filter": "price > 100 AND name = 'it''s'"},
        {"columns": ["price", "category", "variants"]},
        {"filter": "price > 100 or category = 'code:X'", "columns": ["categoryId"]},
        {"entity": None, "filter": "status = 'paid'", "columns": ["status", "total"]},
        {"allowInChangeSet": True, "disabled": True},
        {"url": "HTTPS://XN--BCHER-KVA.example.:8443/h?a=%2F"},  # a name in another script, a dot at its end
    ],
)
def test_every_shape_is_stored_as_given(client: Client, members: dict[str, Any]) -> None:
    hook = client.create(**members)
    UUID(hook["id"])
    secret = hook.pop("secret")
    assert secret.startswith("whsec_") and len(base64.b64decode(secret[6:])) == 32
    assert hook["createdAt"] == hook["updatedAt"] and hook["createdAt"].endswith("Z")
    given = {"entity": "products", "url": URL, "action": "webhook", **members}
    defaults = {"filter": None, "columns": None, "allowInChangeSet": False, "disabled": False}
    assert hook.pop("health") == UNTRIED | ({"state": "disabled"} if members.get("disabled") else {})
    notices = hook.pop("notices")
    assert notices == [] if members.get("allowInChangeSet") else ["import" in notice for notice in notices] == [True]
    assert hook == {**defaults, **given, **{name: hook[name] for name in ("id", "createdAt", "updatedAt")}}
    for shown in (client.ask("GET", f"/{hook['id']}").json, client.ask("GET").json["data"][0]):
        assert shown.pop("health") and shown.pop("notices") == notices
        assert shown == hook, "the secret is shown once"


def test_the_answer_has_the_location_of_the_hook(client: Client) -> None:
    reply = client.ask("POST", body={"entity": "products", "url": URL})
    assert reply.headers["Location"] == f"/c/demo/hooks/{reply.json['id']}"
    assert reply.headers["Cache-Control"] == "no-store", "it has the secret"
    rotated = client.ask("POST", f"/{reply.json['id']}/secret")
    assert (rotated.status, rotated.headers["Cache-Control"]) == (200, "no-store")
    assert client.ask("GET", reply.headers["Location"]).status == 200


def test_empty_filter_and_columns_become_null(client: Client) -> None:
    assert client.create(filter=" ", columns=[]).items() >= {"filter": None, "columns": None}.items()


@pytest.mark.parametrize(
    ("members", "target", "says"),
    [
        ({"entity": "nope"}, "entity", "no such entity: nope"),
        ({"entity": 5}, "entity", "entity: expected text"),
        ({"url": "ftp://x/"}, "url", "expected an http or https address"),
        ({"url": "/hook"}, "url", "expected an http or https address"),
        ({"url": "https://"}, "url", ""),
        ({"url": "https://x:99999/"}, "url", ""),
        ({"url": "https://x:0/"}, "url", ""),
        ({"url": "https://a b/"}, "url", ""),
        ({"url": "https://x/\r\nX: y"}, "url", ""),
        ({"url": "https://[::1/"}, "url", ""),
        ({"url": "https://u:p@x/"}, "url", "credentials"),
        ({"url": "https://@example.com/"}, "url", "credentials"),
        ({"url": "https://:@example.com/"}, "url", "credentials"),
        ({"url": "http://example.com@127.0.0.1/"}, "url", "credentials"),
        ({"url": "http://localhost./"}, "url", "localhost is not a public address"),
        ({"url": "HTTP://LOCALHOST.:80/"}, "url", "localhost is not a public address"),
        ({"url": "http://api.localhost/"}, "url", "api.localhost is not a public address"),
        ({"url": "http://a.LocalHost./"}, "url", "a.localhost is not a public address"),
        ({"url": "http://localhost../"}, "url", "neither a name nor an IP address"),
        ({"url": "http://127.0.0.1./"}, "url", "neither a name nor an IP address"),
        ({"url": "http://127.1/"}, "url", "neither a name nor an IP address"),
        ({"url": "http://0177.0.0.1/"}, "url", "neither a name nor an IP address"),
        ({"url": "http://0/"}, "url", "neither a name nor an IP address"),
        ({"url": "http://%6cocalhost/"}, "url", "neither a name nor an IP address"),
        ({"url": "http://\uff4cocalhost/"}, "url", "percent-encoded"),
        ({"url": "http://[::ffff:7f00:1]/"}, "url", "not a public address"),
        ({"url": "http://[0:0:0:0:0:0:0:1]/"}, "url", "not a public address"),
        ({"url": "http://10.0.0.1/"}, "url", "the operator may allow it: BDS_WEBHOOK_ALLOW_PRIVATE=true"),
        ({"url": "https://x/#f"}, "url", "fragment"),
        ({"url": "https://x/" + "y" * 3000}, "url", "at most 2,048"),
        ({"url": None}, "url", "url: expected text"),
        ({"url": "http://127.0.0.1/"}, "url", "127.0.0.1 is not a public address"),
        ({"url": "http://localhost:80/"}, "url", "not a public address"),
        ({"url": "http://[::ffff:10.0.0.1]/"}, "url", "not a public address"),
        ({"url": "http://169.254.169.254/latest/meta-data"}, "url", "not a public address"),
        ({"url": "http://2130706433/"}, "url", "the host 2130706433 is neither a name nor an IP address"),
        ({"url": "http://0x7f.1/"}, "url", "neither a name nor an IP address"),
        ({"url": "http://256.256.256.256/"}, "url", "neither a name nor an IP address"),
        ({"url": "http://127%2e0.0.1/"}, "url", "neither a name nor an IP address"),
        ({"url": "http://[fe80::1%25eth0]/"}, "url", "neither a name nor an IP address"),
        ({"url": "http://a..b/"}, "url", "neither a name nor an IP address"),
        ({"url": f"http://{'a' * 64}.com/"}, "url", "neither a name nor an IP address"),
        ({"url": "http://-a.com/"}, "url", "neither a name nor an IP address"),
        ({"url": "https://example.com/%zz"}, "url", "two hexadecimal digits"),
        ({"url": "https://example.com/{id}"}, "url", "percent-encoded"),
        ({"url": "https://example.com/#"}, "url", "fragment"),
        ({"action": "email"}, "action", "expected webhook"),
        ({"filter": "price >"}, "filter", "at character"),
        ({"filter": "nope = 1"}, "filter", "products has no field nope (at character 1)"),
        ({"filter": "price > 'x'"}, "filter", "price"),
        ({"filter": "price > 1; drop table x"}, "filter", "at character"),
        ({"filter": "lower(name) = 'x'"}, "filter", "at character"),
        ({"filter": 5}, "filter", "filter: expected text"),
        ({"filter": "a" * 20_000}, "filter", "at most 10,000"),
        ({"entity": None, "filter": "nope = 1"}, "filter", "has no field nope"),
        ({"columns": "price"}, "columns", "expected an array"),
        ({"columns": ["nope"]}, "columns", "products has no column nope"),
        ({"columns": ["price", 5]}, "columns", "expected an array"),
        ({"entity": None, "columns": ["nope"]}, "columns", "no entity has a column nope"),
        ({"allowInChangeSet": "yes"}, "allowInChangeSet", "expected true or false"),
        ({"disabled": 1}, "disabled", "expected true or false"),
        ({"secret": "mine"}, "secret", "secret is not a member that can be set"),
        ({"url": "https://x/\ud800"}, "url", "Unicode"),
    ],
)
def test_an_invalid_member_is_refused_with_its_name(client: Client, members: dict[str, Any], target: str, says: str) -> None:
    problem = client.refused(**members)
    assert problem["target"] == target
    assert says in problem["detail"]


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not well-formed JSON"),
        (b"{", 400, "not well-formed JSON"),
        (b"[" * 50_000, 400, "not well-formed JSON"),
        (b"\xff", 400, "not well-formed JSON"),
        (b"[]", 400, "expected a JSON object"),
        (b"{}", 400, "entity is missing"),
        (b'{"entity": null}', 400, "url is missing"),
        (b'{"entity": null, "url": "https://a.com", "url": "https://b.com"}', 400, "url is given twice"),
        (b" " * 70_000, 413, "expected at most 65,536 bytes"),
    ],
)
def test_a_body_that_is_not_a_hook_is_refused(client: Client, body: bytes, status: int, says: str) -> None:
    reply = client.ask("POST", body=body)
    assert (reply.status, reply.headers["Content-Type"]) == (status, "application/problem+json")
    assert says in reply.json["detail"]


def test_other_media_types_and_methods_are_refused(client: Client) -> None:
    assert client.ask("POST", body=b"{}", Content_Type="text/plain").status == 415
    assert client.ask("POST", body=b"{}", Content_Encoding="gzip").status == 415
    assert client.ask("PUT", body=b"{}").status == 405
    assert client.ask("PUT", f"/{uuid4()}", b"{}").status == 405


def test_keys_need_the_scope_and_the_company(client: Client) -> None:
    operator = client.service.operator
    reading = operator.key("demo", scopes=("read",))
    for method, path in (("GET", ""), ("POST", ""), ("DELETE", f"/{uuid4()}"), ("POST", f"/{uuid4()}/test")):
        assert client.ask(method, path, {}, key=reading).status == 403
        assert client.ask(method, path, {}, key="nobody").status == 401
    assert client.ask("GET", "/c/nowhere/hooks").status == 403


def test_a_hook_is_changed_member_by_member(client: Client) -> None:
    hook = client.create(filter="price > 1", columns=["price"])
    del hook["secret"]
    changed = client.ask("PATCH", f"/{hook['id']}", {"columns": ["name"], "disabled": True}).json
    assert changed.pop("updatedAt") > hook.pop("updatedAt")
    assert changed == {**hook, "columns": ["name"], "disabled": True, "health": UNTRIED | {"state": "disabled"}}
    changed = client.ask("PATCH", f"/{hook['id']}", {"filter": None, "columns": None, "entity": None, "url": URL + "2"}).json
    assert changed.items() >= {"filter": None, "columns": None, "entity": None, "url": URL + "2", "disabled": True}.items()
    assert client.service.operator.rows("select from bds.hook_filters where hook_id = %s", (hook["id"],)) == []


@pytest.mark.parametrize(
    ("change", "target"),
    [({"entity": "units"}, "filter"), ({"filter": "x"}, "filter"), ({"url": "http://10.0.0.1/"}, "url"), ({"id": "x"}, "id"), ({"entity": "orders", "filter": None}, "columns")],
)  # fmt: skip
def test_a_change_that_does_not_fit_is_refused_and_nothing_changes(client: Client, change: dict[str, Any], target: str) -> None:
    hook = client.create(filter="price > 1", columns=["price"])
    reply = client.ask("PATCH", f"/{hook['id']}", change)
    if change.get("entity") == "units":
        assert reply.json["target"] in ("columns", "filter")
    else:
        assert (reply.status, reply.json["target"]) == (400, target)
    del hook["secret"]
    assert client.ask("GET", f"/{hook['id']}").json == hook


def test_a_deleted_hook_is_not_found(client: Client) -> None:
    hook = client.create()
    path = f"/{hook['id']}"
    gone = client.ask("DELETE", path)
    assert (gone.status, gone.body) == (204, b"")
    for method, rest in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/test"), ("GET", "/deliveries")):
        assert client.ask(method, path + rest, {} if method in ("PATCH", "POST") else None).status == 404
    assert hook["id"] not in [each["id"] for each in client.ask("GET", "?limit=1000").json["data"]]


@pytest.mark.parametrize("path", ["/x", "/9399ab76-540b-414b-a43b-73e31e03a8a6", "/0", "/%2e%2e"])
def test_an_unknown_hook_is_not_found(client: Client, path: str) -> None:
    assert client.ask("GET", path).status == 404
    assert client.ask("POST", f"{path}/deliveries/{uuid4()}/retry").status == 404


def test_lists_are_paged_newest_first(client: Client) -> None:
    made = [client.create()["id"] for _ in range(3)][::-1]
    first = client.ask("GET", "?limit=2").json
    assert ([hook["id"] for hook in first["data"]], first["hasMore"]) == (made[:2], True)
    assert client.ask("GET", "?limit=1&offset=2").json["data"][0]["id"] == made[2]
    assert not client.ask("GET", "?limit=10000").json["hasMore"]
    for query in ("limit=0", "limit=x", "offset=-1", "sort=id", "limit=10001", "limit=1&limit=2"):
        assert client.ask("GET", f"?{query}").status == 400


def test_unexpected_parameters_are_refused(client: Client) -> None:
    hook = client.create()
    path = f"/{hook['id']}"
    asked = [
        ("POST", "", {"entity": None, "url": URL}),
        ("GET", path, None),
        ("GET", f"{path}/deliveries/{uuid4()}", None),
        ("PATCH", path, {"disabled": True}),
        ("DELETE", path, None),
    ]
    for method, where, body in [*asked, ("POST", f"{path}/test", None), ("POST", f"{path}/deliveries/{uuid4()}/retry", None)]:
        reply = client.ask(method, f"{where}?filter=x", body)
        assert (reply.status, reply.json["target"]) == (400, "filter")
    assert not client.ask("GET", f"/{hook['id']}").json["disabled"]


def test_reading_a_hook_does_not_wait_for_a_session_that_changes_it(client: Client, module_database_url: str) -> None:
    hook = client.create()
    with psycopg.connect(module_database_url) as changing:
        changing.execute("select bds.update_hook('demo', %s, null, %s, null, null, false, false)", (hook["id"], URL))
        assert client.ask("GET", f"/{hook['id']}").json["entity"] == "products"
        assert client.ask("GET", f"/{hook['id']}/deliveries").json == {"data": [], "hasMore": False}
        changing.rollback()


def test_deliveries_are_shown_tested_and_retried(database_url: str, receiver: Receiver) -> None:
    with running(database_url, webhook_allow_private=True) as service, working(database_url, BDS_WEBHOOK_RETRY="60"):
        client = Client(service)
        hook = client.create(url=receiver.url(), filter="price > 5")
        path = f"/{hook['id']}/deliveries"

        def latest() -> dict[str, Any]:
            delivery: dict[str, Any] = client.ask("GET", f"{path}?limit=1").json["data"][0]
            return delivery

        tested = client.ask("POST", f"/{hook['id']}/test")
        assert tested.status == 202
        [request] = receiver.wait("/ok", 1)
        assert request.changes == [0] and request.headers["webhook-id"] == tested.json["deliveryId"]

        service.operator.write("demo", "insert into data.products (code, name, price) values ('A', 'a', 9), ('B', 'b', 1)")
        assert receiver.wait("/ok", 2)[1].changes == [1]
        wait_until(lambda: latest()["state"] == "delivered")
        delivery = latest()
        assert list(delivery) == [
            "id",
            "hookId",
            "state",
            "changeSetId",
            "changes",
            "createdAt",
            "nextAttemptAt",
            "finishedAt",
            "attempts",
        ]
        assert (delivery["changes"], delivery["hookId"], delivery["changeSetId"]) == (1, hook["id"], None)
        [tried] = delivery["attempts"]
        assert list(tried) == ["at", "status", "durationMs", "error", "reply"]
        assert (tried["status"], tried["error"], tried["reply"]) == (200, None, "thanks")
        shown = client.ask("GET", f"{path}/{delivery['id']}").json
        assert shown == {**delivery, "body": receiver.of("/ok")[1].json}
        assert [(change["entity"], change["rowId"]) for change in shown["body"]["changes"]] == [("products", "1")]
        assert client.ask("GET", f"/{hook['id']}").json["health"].items() >= {"state": "ok", "lastStatus": 200}.items()
        assert client.ask("GET", f"{path}?limit=1").json["hasMore"]

        receiver.answers["/ok"] = [200, 503]
        retried = client.ask("POST", f"{path}/{delivery['id']}/retry")
        assert (retried.status, retried.json) == (202, {"deliveryId": delivery["id"]})
        first, again = receiver.wait("/ok", 3)[1:]
        assert (again.body, again.headers["webhook-id"]) == (first.body, first.headers["webhook-id"])
        service.operator.write("demo", "insert into data.products (code, name, price) values ('C', 'c', 9)")
        wait_until(lambda: latest()["state"] == "waiting")
        receiver.answers["/ok"] = [200]
        assert client.ask("POST", f"{path}/{latest()['id']}/retry").status == 202
        wait_until(lambda: latest()["state"] == "delivered")  # long before the minute of the schedule
        assert client.ask("PATCH", f"/{hook['id']}", {"disabled": True}).status == 200
        refused = client.ask("POST", f"{path}/{latest()['id']}/retry")
        assert refused.status == 409 and "disabled" in refused.json["detail"]


def test_a_delivery_is_shown_to_its_company_and_hook_alone(client: Client) -> None:
    hook, other = client.create(), client.create()
    delivery = client.ask("POST", f"/{hook['id']}/test").json["deliveryId"]
    shown = client.ask("GET", f"/{hook['id']}/deliveries/{delivery}")
    assert (shown.status, shown.json["body"]["hookId"], shown.json["changes"]) == (200, hook["id"], 1)
    for path in (f"/{other['id']}/deliveries/{delivery}", f"/{hook['id']}/deliveries/{uuid4()}", f"/{hook['id']}/deliveries/x"):
        assert client.ask("GET", path).status == 404


def test_a_rest_is_ended_over_http(client: Client) -> None:
    path = f"/{client.create()['id']}"
    refused = client.ask("DELETE", f"{path}/rest")
    assert (refused.status, refused.json["detail"]) == (409, f"hook {path[1:]} does not rest")
    client.service.operator.connection.execute(
        "update bds.hook_states set rests_until = now() + interval '1 h' where hook_id = %s", (path[1:],)
    )
    assert client.ask("GET", path).json["health"]["state"] == "resting"
    ended = client.ask("DELETE", f"{path}/rest")
    assert (ended.status, ended.body) == (204, b"")
    assert client.ask("GET", path).json["health"] == UNTRIED
    assert client.ask("DELETE", f"/{uuid4()}/rest").status == 404


def test_a_secret_is_rotated_over_http(client: Client) -> None:
    hook = client.create()
    path = f"/{hook['id']}/secret"

    def secrets() -> list[str | None]:
        query = "select array[secret, previous] from bds.hook_secrets where hook_id = %s"
        found: list[str | None] = client.service.operator.rows(query, (hook["id"],))[0][0]
        return found

    second = client.ask("POST", path)
    assert (second.status, list(second.json)) == (200, ["secret"])
    assert secrets() == [second.json["secret"], hook["secret"]] and len({*secrets()}) == 2
    third = client.ask("POST", path + "?revoke=false").json["secret"]
    assert secrets() == [third, second.json["secret"]], "the oldest is dropped"
    fourth = client.ask("POST", path + "?revoke=true").json["secret"]
    assert secrets() == [fourth, None]
    for query in ("revoke=1", "revoke=", "revoke=true&revoke=true", "keep=true", "revoke=true&x=1"):
        assert client.ask("POST", f"{path}?{query}").status == 400, query
    assert secrets() == [fourth, None]
    assert client.ask("POST", f"/{uuid4()}/secret").status == 404
    assert client.ask("GET", path).status == 405
    assert client.ask("POST", path, key=client.service.operator.key("demo", scopes=("read", "import"))).status == 403
    assert fourth not in client.ask("GET", f"/{hook['id']}").body.decode()
