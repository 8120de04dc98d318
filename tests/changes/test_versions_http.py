"""Differences, names of versions and change sets over HTTP: routes, scopes, statuses, headers; and the same at the command line."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.query.check.moments import absolute
from tests.conftest import not_divided
from tests.service.serving import Service, running, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        service.operator.write("demo", "insert into data.units (code, name) values ('PCS', 'Piece'), ('KG', 'Kilo')")
        service.operator.write("demo", "update data.units set name = 'Kilogram' where code = 'KG'")
        yield service


def send(service: Service, method: str, path: str, body: str = "") -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection(service.host, service.port, timeout=60)
    connection.request(method, path, body, {"X-API-Key": service.key, **({"Content-Type": "application/json"} if body else {})})
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    return reply.status, json.loads(text) if text else None, reply.headers


def test_a_difference_is_answered_with_a_tag_and_the_generation(service: Service) -> None:
    reply = service.ask("/c/demo/units?since=2")
    assert (reply.status, reply.headers["X-BDS-Generation"]) == (200, "1")
    [record] = reply.json["data"]
    assert (record["old"], record["new"], record["columns"]) == ({"name": "Kilo"}, {"name": "Kilogram"}, ["name"])
    assert service.ask("/c/demo/units?since=2", If_None_Match=reply.headers["ETag"]).status == 304
    assert service.ask("/c/demo/diff?since=0").json["entities"]["units"] == {"created": 2, "updated": 0, "deleted": 0}
    for path, status in (
        ("/c/demo/units?since=3&version=2", 400),
        ("/c/demo/units?since=x%20y&version=99", 400),
        ("/c/demo/units?since=99", 404),
        ("/c/demo/diff", 400),
        ("/c/demo/diff?since=1&entity=units", 400),
        ("/c/demo/diff?since=3&version=2", 400),
        ("/c/demo/diff?since=1&version=2&at=2026-01-01", 400),
        ("/c/demo/diff?since=1&version=99", 404),
        ("/c/demo/diff?since=nobody", 404),
        ("/c/demo/diff?since=2999-01-01", 404),
        ("/c/demo/diff?since=1&generation=2", 404),
        ("/c/demo/units?version=nobody", 404),
        ("/c/demo/units?version=1&generation=2", 404),
        ("/api/odata/demo@nobody/units", 404),
        ("/api/odata/demo@1.5/units", 400),
    ):
        assert service.ask(path).status == status, path
    assert service.ask("/c/demo/units/1?version=1&generation=1").status == 200


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("[]", 400),
        ("{}", 400),
        ('{"to": 1, "when": 2}', 400),
        ('{"to": 1.5}', 400),
        ('{"to": "x y"}', 400),
        ('{"to": 1, "actor": "ann"}', 400),
        ('{"from": 3, "to": 2}', 400),
        ('{"from": null, "to": 3, "dryRun": true}', 400),
        ('{"to": 3, "dryRun": null}', 400),
        ('{"to": 3, "dryRun": true, "rows": null}', 400),
        ('{"to": 3, "dryRun": true, "generation": null}', 400),
        ('{"to": 1, "rows": ["units"]}', 400),
        ('{"to": 99}', 404),
        ('{"to": "nobody"}', 404),
        ('{"to": "2999-01-01"}', 404),
        ('{"to": 1, "generation": 2}', 404),
        ('{"to": 1, "entities": ["things"]}', 404),
        ('{"to": 1, "rows": ["units/code:NONE"]}', 404),
        ('{"changeSet": "7d0b6e0e-6a52-4f8a-9d0e-3f0f0f0f0f0f"}', 404),
    ],
)
def test_a_wrong_way_back_is_told(service: Service, selection: str, expected: int) -> None:
    assert send(service, "POST", "/api/demo/revert", selection)[0] == expected


def test_change_sets_are_listed_page_by_page(service: Service) -> None:
    change_set = "3f0c6a52-9d2e-4c1b-8a57-6f1f0a4f9d11"
    company = service.operator.company("sets")
    service.operator.write(company, "insert into data.units (code, name) values ('A', 'a')", actor="ann", change_set=change_set)
    service.operator.write(company, "insert into data.units (code, name) values ('B', 'b'), ('C', 'c')", actor="ben")
    service.operator.write(company, "delete from data.units where code = 'A'", actor="ben", change_set=change_set)
    times = dict(service.operator.rows("select id, bds_service.api_time(created_at) from bds.changes where company_id = 'sets'"))
    authorization = "Bearer " + service.operator.key(company, scopes=("read",))
    expected = [
        {"changeSetId": id, "kind": "session", "actor": "ben", "firstId": first, "lastId": last, "firstAt": times[first],
         "lastAt": times[last], "entities": {"units": {"created": created, "updated": 0, "deleted": deleted}}}
        for id, first, last, created, deleted in ((change_set, 1, 4, 1, 1), (None, 2, 3, 2, 0))
    ]  # fmt: skip
    path = "/c/sets/changesets"
    for counted in (False, True):
        reply = service.ask(path, authorization=authorization)
        assert (reply.status, reply.json) == (200, {"data": expected, "hasMore": False}), counted
        assert reply.headers["X-BDS-Generation"] == "1"
        assert service.ask(path, authorization=authorization, If_None_Match=reply.headers["ETag"]).status == 304
        first = service.ask(f"{path}?limit=1", authorization=authorization)
        assert first.json == {"data": expected[:1], "hasMore": True} and first.headers["ETag"] != reply.headers["ETag"]
        assert service.ask(f"{path}?before=4&limit=1&generation=1", authorization=authorization).json["data"] == expected[1:]
        assert service.ask(f"{path}?before=3", authorization=authorization).json == {"data": [], "hasMore": False}
        service.operator.rows("select bds_change_log.count_change_sets()")
    for query, target in (
        ("limit=0", "limit"),
        ("limit=10001", "limit"),
        ("limit=ten", "limit"),
        ("before=0", "before"),
        ("before=-1", "before"),
        ("before=9223372036854775808", "before"),
        ("before=%D9%A1", "before"),
        ("before=1&before=2", "before"),
        ("offset=1", "offset"),
    ):
        refused = service.ask(f"{path}?{query}", authorization=authorization)
        assert (refused.status, refused.json["target"]) == (400, target), query
    assert service.ask(f"{path}?generation=2", authorization=authorization).status == 404
    assert service.ask("/c/demo/changesets", authorization=authorization).status == 403


def test_a_name_is_given_moved_listed_and_taken(service: Service) -> None:
    path = "/api/demo/versions/year-end"
    status, item, headers = send(service, "PUT", path, '{"version": 2}')
    assert (status, headers["Location"]) == (201, path)
    assert (item["name"], item["version"], item["actor"].startswith("key")) == ("year-end", 2, True), item
    [(at,)] = service.operator.rows("select bds_service.api_time(created_at) from bds.changes where company_id = 'demo' and id = 2")
    assert item["at"] == at
    assert send(service, "GET", path)[:2] == (200, item)
    assert service.ask("/c/demo/units?since=year-end").json["since"] == 2
    assert len(service.ask("/c/demo/units?version=year-end").json["data"]) == 2
    assert len(service.ask("/api/odata/demo@year-end/units").json["value"]) == 2
    assert "Kilogram" not in service.ask("/api/demo/units?format=csv&export=true&version=year-end").body.decode()
    status, moved, _ = send(service, "PUT", path, json.dumps({"at": at}))
    assert (status, moved["version"]) == (200, 2)
    assert send(service, "PUT", path)[1]["version"] == 3
    assert send(service, "PUT", "/api/demo/versions/first", '{"version": "year-end"}')[1]["version"] == 3
    names = send(service, "GET", "/api/demo/versions?limit=1")[1]
    assert ([each["name"] for each in names["data"]], names["hasMore"]) == (["first"], True)
    assert send(service, "DELETE", path)[0] == 204
    assert [send(service, method, path)[0] for method in ("GET", "DELETE")] == [404, 404]
    for name, body, expected in (
        ("today", "", 400),
        ("2026", "", 400),
        ("a%20b", "", 400),
        ("x", "[]", 400),
        ("x", '{"version": true}', 400),
        ("x", '{"version": 1, "at": "2026-01-01"}', 400),
        ("x", '{"at": 3}', 400),
        ("x", '{"until": 3}', 400),
        ("x", '{"version": 99}', 404),
        ("x", '{"version": "nobody"}', 404),
    ):
        assert send(service, "PUT", f"/api/demo/versions/{name}", body)[0] == expected, (name, body)


@pytest.fixture
def run(module_database_url: str) -> Callable[..., str]:
    """Runs a command; returns what it has printed."""

    def run(*words: str) -> str:
        environment = {"BDS_DATABASE_URL": module_database_url, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [sys.executable, "-m", "app.cli", *words], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_names_and_differences_at_the_command_line(run: Callable[..., str], service: Service) -> None:
    run("version", "put", "demo", "second", "--when", "2")
    assert run("version", "list", "demo").splitlines()[1].split()[:2] == ["second", "2"]
    assert run("diff", "demo", "units", "--since", "second") == 'update 2  name: "Kilo" -> "Kilogram"\n'
    assert json.loads(run("diff", "demo", "units", "--since", "2", "--json"))["new"] == {"name": "Kilogram"}
    assert run("diff", "demo", "--since", "-1h").splitlines()[0] == "from version 0 to 3"
    assert run("diff", "demo", "--since", "now").splitlines()[1] == "nothing differs"
    run("version", "delete", "demo", "second")


def test_the_rows_that_differ_are_at_the_command_line_as_over_http(run: Callable[..., str], service: Service) -> None:
    service.operator.company("typed")
    with service.operator.connection.transaction():
        service.operator.connection.execute("select bds.set_context('typed')")
        service.operator.connection.execute("insert into data.categories (code, name) values ('C', 'c')")
        service.operator.connection.execute(
            "insert into data.products (code, name, price, category_id) select 'P', 'pä', 1.5000, id from data.categories"
            " where company_id = 'typed'"
        )
    service.operator.write("typed", "update data.products set category_id = null, price = 1.50 where company_id = 'typed'")
    key = service.operator.key("typed")
    for since in (0, 2):
        data = service.ask(f"/c/typed/products?since={since}", authorization=f"Bearer {key}").json["data"]
        lines = run("diff", "typed", "products", "--since", str(since), "--json").splitlines()
        assert [json.loads(line) for line in lines] == data and len(data) == 1
    assert data[0]["old"]["categoryId"] == "1"


@not_divided("a table that has rows before it is registered")
def test_the_difference_of_all_entities_is_at_the_command_line_as_over_http(run: Callable[..., str], service: Service) -> None:
    service.operator.connection.execute(
        "create table data.shelves (id bigint generated by default as identity, company_id text not null references bds.companies,"
        " code text not null, updated_at timestamptz not null, primary key (company_id, id), unique (company_id, code))"
    )
    service.operator.connection.execute("insert into data.shelves (company_id, code, updated_at) values ('demo', 'A', now())")
    service.operator.connection.execute("select bds.register('data.shelves', 'shelves', singular => 'shelf')")
    wait_until(lambda: len(service.ask("/c/demo/diff?since=1").json["notices"]) == 1)
    assert json.loads(run("diff", "demo", "--since", "1", "--json")) == service.ask("/c/demo/diff?since=1").json


def test_a_moment_of_a_person_is_a_time() -> None:
    assert [absolute(text) for text in ("17", "year-end", "2026-01-01")] == ["17", "year-end", "2026-01-01"]
    times = [absolute(text) for text in ("-2d", "yesterday", "-23h", "today", "-0h")]
    assert times[3].endswith("T00:00:00.000000Z") and times[0] < times[1] < times[4] and times[0] < times[2] < times[4]
