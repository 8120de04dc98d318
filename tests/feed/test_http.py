"""Imports over HTTP: permissions, answers, cancel, and clients that leave."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from app.feed import background, receive, reports
from app.wire.coding import zstd
from tests.service.serving import PATIENCE, Reply, Service, running, wait_until

pytestmark = pytest.mark.slow

GOOD = b'{"units": [{"code": "A", "name": "a"}]}'
BAD = b'{"units": [{"code": "B"}]}'


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, import_max=1 << 20) as service:
        service.operator.company("other")
        yield service


@pytest.fixture(autouse=True)
def _nothing_stays(service: Service) -> Iterator[None]:
    yield
    assert service.operator.rows("select count(*) from pg_class where relnamespace = 'staging'::regnamespace") == [(0,)]
    assert service.operator.rows("select count(*) from bds.imports where finished_at is null") == [(0,)]


def send(service: Service, body: bytes, path: str = "/api/demo/import", **headers: str) -> Reply:
    connection = http.client.HTTPConnection(service.host, service.port, timeout=PATIENCE)
    sent = {"Authorization": f"Bearer {service.key}", "Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request("POST", path, body, sent)
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())
    finally:
        connection.close()


def units(service: Service) -> set[str]:
    return {code for (code,) in service.operator.rows("select code from data.units where company_id = 'demo'")}


def latest(service: Service) -> dict[str, Any]:
    listed: dict[str, Any] = service.ask("/api/demo/imports?limit=1").json["data"][0]
    return listed


def test_the_answer_is_the_report(service: Service) -> None:
    reply = send(service, b'{"@atomic": false, "units": [{"code": "R", "name": "r"}, {"code": "S"}]}')
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
    report = reply.json
    assert report.keys() == {
        "importId", "changeSetId", "state", "atomic", "dryRun", "actor", "file", "mapper", "startedAt", "finishedAt", "position", "progress", "entities",
        "errorCount", "errors",
    }  # fmt: skip
    assert report["state"] == "partial" and report["atomic"] is False
    assert report["progress"] == {"bytes": 72, "records": 2, "done": 2, "phase": None, "waitingFor": None}
    assert report["entities"] == {"units": {"created": 1, "updated": 0, "deleted": 0, "unchanged": 0, "failed": 1}}
    assert report["errors"] == [{"path": "units[1].name", "record": "code:S", "code": "required", "message": "name is required"}]
    assert service.ask(f"/api/demo/imports/{report['importId']}").json == report
    assert service.ask(f"/api/demo/imports/{report['importId']}/errors").json == {"data": report["errors"], "hasMore": False}
    changes = service.operator.rows("select actor from bds.changes where change_set_id = %s", (report["importId"],))
    key = service.operator.rows("select id from bds.api_keys where companies = '{demo}' order by created_at limit 1")[0][0]
    assert changes == [(f"key {key}",)] and report["actor"] == f"key {key}"


FILE_NAMES = [
    # Content-Disposition, the file's name in the report
    ('attachment; filename="stock 1.json"', "stock 1.json"),
    ("attachment; filename*=UTF-8''b%C3%A9ton.json", "b\u00e9ton.json"),
    (r'attachment; filename="C:\\\\feeds\\\\stock.json"', "stock.json"),
    ("attachment; filename*=UTF-8''..%2Fa%00b%0A%1b.json", "ab.json"),
    (f'attachment; filename="{"x" * 300}"', "x" * 255),
    ("attachment", None),
    ('attachment; filename="', None),
    ("attachment; filename*=UTF-8''%ff", None),
    ("attachment; filename*=latin-99''%ff", None),
    ('attachment; filename="/"', None),
]


@pytest.mark.parametrize(("header", "name"), FILE_NAMES)
def test_the_report_names_the_file(service: Service, header: str, name: str | None) -> None:
    for prefer in ("", "respond-async"):
        reply = send(service, GOOD, Content_Disposition=header, Prefer=prefer)
        assert reply.status in (200, 202) and (reply.json["file"], reply.json["mapper"]) == (name, None)
        assert latest(service)["file"] == name
    assert (
        send(service, b"x", Content_Disposition=header).status == 400
    )  # an import that could not be read has its file's name, too
    assert latest(service)["file"] == name


def test_the_report_names_the_mapper(service: Service) -> None:
    put = "select bds.put_mapper('demo', 'stock', 'csv', %s)"
    service.operator.write("demo", put, ("type csv units = 'row' { code = 'c' name = 'c' }",))
    report = send(service, b"c\nM1\n", "/api/demo/import?mapper=stock", Content_Type="text/csv").json
    assert (report["state"], report["mapper"], report["file"]) == ("completed", "stock", None)
    assert latest(service)["mapper"] == "stock"


ANSWERS: list[tuple[bytes, dict[str, str], int, str | None]] = [
    # body, headers, status, code (None: a report)
    (GOOD, {}, 200, None),
    (gzip.compress(GOOD), {"Content_Encoding": "gzip"}, 200, None),
    (gzip.compress(GOOD[:10]) + gzip.compress(GOOD[10:]), {"Content_Encoding": "gzip"}, 200, None),
    (b"{}", {}, 200, None),
    (b"\xef\xbb\xbf" + GOOD, {}, 200, None),
    (BAD, {}, 422, None),
    (b'{"@atomic": true, "units": [{"code": "T", "name": "t"}, {"code": "B"}]}', {}, 422, None),
    (b"", {}, 400, "malformed_document"),
    (GOOD[:-1], {}, 400, "malformed_document"),
    (GOOD + b"x", {}, 400, "malformed_document"),
    (b"\xff", {}, 400, "malformed_document"),
    (gzip.compress(GOOD)[:-9], {"Content_Encoding": "gzip"}, 400, "malformed_document"),
    (gzip.compress(GOOD) + b"junk", {"Content_Encoding": "gzip"}, 400, "malformed_document"),
    (GOOD, {"Content_Encoding": "gzip"}, 400, "malformed_document"),
    (zstd.compress(GOOD), {"Content_Encoding": "zstd"}, 200, None),
    (zstd.compress(GOOD[:10]) + zstd.compress(GOOD[10:]), {"Content_Encoding": "ZSTD"}, 200, None),
    (zstd.compress(GOOD)[:-3], {"Content_Encoding": "zstd"}, 400, "malformed_document"),
    (zstd.compress(GOOD) + b"junk", {"Content_Encoding": "zstd"}, 400, "malformed_document"),
    (GOOD, {"Content_Encoding": "zstd"}, 400, "malformed_document"),
    (b"", {"Content_Encoding": "zstd"}, 400, "malformed_document"),
    (zstd.compress(b'{"units": [' + b" " * (16 << 20) + b"]}"), {"Content_Encoding": "zstd"}, 413, "too_large"),
    (b"", {"Content_Encoding": "gzip"}, 400, "malformed_document"),
    (b'{"planets": []}', {}, 400, "unknown_entity"),
    (b'{"units": [], "pla\\u0000nets": []}', {}, 400, "unknown_entity"),
    (b'{"@ato\\u0000mic": 1}', {}, 400, "invalid_directive"),
    (b'{"units": [{"code": "T", "name": "t"}], "planets": [{}]}', {}, 400, "unknown_entity"),
    (b'{"units": [{"code": "T", "name": "t"}, 7]}', {}, 400, "invalid_document"),
    (b'{"units": [{"code": "T", "name": "t"}], "@atomic": "yes"}', {}, 400, "invalid_directive"),
    (b'{"units": [' + b" " * (1 << 20) + b"]}", {}, 413, "too_large"),
    (gzip.compress(b'{"units": [' + b" " * (16 << 20) + b"]}"), {"Content_Encoding": "gzip"}, 413, "too_large"),
]


@pytest.mark.parametrize(("body", "headers", "status", "code"), ANSWERS, ids=range(len(ANSWERS)))
def test_the_answer_to_a_body(service: Service, body: bytes, headers: dict[str, str], status: int, code: str | None) -> None:
    before = units(service)
    reply = send(service, body, **headers)
    assert reply.status == status
    if code is None:
        assert reply.json["state"] == ("completed" if status == 200 else "failed")
    else:
        problem = reply.json
        assert reply.headers["Content-Type"] == "application/problem+json"
        assert (problem["code"], problem["status"]) == (code, status)
        assert ("line" in problem and "offset" in problem) or code != "malformed_document" or "Content_Encoding" in headers
        kept = service.ask(f"/api/demo/imports/{problem['importId']}").json
        assert kept["state"] == "failed" and [(e["code"], e["message"]) for e in kept["errors"]] == [(code, problem["detail"])]
        assert latest(service)["importId"] == problem["importId"]
    assert units(service) - before <= ({"A"} if status == 200 else set())


REFUSALS = [
    # path, headers, status
    ("/api/demo/import", {"Authorization": ""}, 401),
    ("/api/demo/import", {"Authorization": "Bearer nonsense"}, 401),
    ("/api/other/import", {}, 403),
    ("/api/nowhere/import", {}, 403),
    ("/api/demo/import", {"Content_Type": "text/csv"}, 415),
    ("/api/demo/import", {"Content_Type": "application/json; charset=latin-1"}, 415),
    ("/api/demo/import", {"Content_Type": "application/json; charset=utf-16"}, 415),
    ("/api/demo/import", {"Content_Encoding": "br"}, 415),
    ("/api/demo/import?mapper=x", {}, 404),
    ("/api/demo/import?dryRun=maybe", {}, 400),
    ("/api/demo/import?nothing=1", {}, 400),
    ("/api/demo/import?entity=units", {}, 415),
    ("/api/demo/import?entity=planets", {"Content_Type": "text/csv"}, 400),
    ("/api/demo/import?entity=units&mapper=x", {"Content_Type": "text/csv"}, 400),
]


@pytest.mark.parametrize(("path", "headers", "status"), REFUSALS)
def test_a_refused_request_begins_no_import(service: Service, path: str, headers: dict[str, str], status: int) -> None:
    before = service.operator.rows("select count(*) from bds.imports")
    reply = send(service, GOOD, path, **headers)
    assert (reply.status, reply.headers["Content-Type"]) == (status, "application/problem+json")
    assert service.operator.rows("select count(*) from bds.imports") == before


@pytest.mark.parametrize("type", ["text/csv", "application/xml", "application/octet-stream"])
def test_another_type_names_what_would_read_it(service: Service, type: str) -> None:
    detail = send(service, b"", Content_Type=type).json["detail"]
    assert (
        detail.startswith(f"expected application/json, got {type}; add entity=<entity> for XML, CSV") and "mapper=<name>" in detail
    )


@pytest.mark.parametrize(("format", "type"), [
    ("csv", "text/csv; charset=utf-8; header=present"),
    ("xml", "application/xml"),
    ("excel", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
])  # fmt: skip
def test_an_export_comes_back_with_the_name_of_its_entity(service: Service, format: str, type: str) -> None:
    send(service, GOOD)
    exported = service.ask(f"/api/demo/units?export=true&format={format}")
    reply = send(service, exported.body, "/api/demo/import?entity=units", Content_Type=type)
    assert (reply.status, reply.json["state"]) == (200, "completed")
    assert reply.json["entities"] == {
        "units": {"created": 0, "updated": 0, "deleted": 0, "unchanged": len(units(service)), "failed": 0}
    }
    assert reply.json["progress"]["bytes"] == len(exported.body)


def test_a_lookup_where_a_code_is_expected_is_named(service: Service) -> None:
    reply = send(service, b"code,name,category\nX,x,code:nix\n", "/api/demo/import?entity=products", Content_Type="text/csv")
    error = reply.json["errors"][0]  # the batch fails with it
    assert error["code"] == "lookup_not_found"
    assert error["message"].endswith("categories has no row code:code:nix: expected the code alone, without 'code:'")


@pytest.mark.parametrize("charset", ["utf-8", "UTF8", "us-ascii"])
def test_json_may_be_declared_as_utf_8(service: Service, charset: str) -> None:
    assert send(service, GOOD, Content_Type=f"application/json; charset={charset}").status == 200


def test_a_key_to_read_may_not_import(service: Service) -> None:
    reader = service.operator.key("demo", scopes=("read",))
    assert send(service, GOOD, Authorization=f"Bearer {reader}").status == 403
    assert send(service, GOOD, Authorization=f"Bearer {service.operator.key('demo', scopes=('import',))}").status == 200


def test_a_dry_run_writes_nothing(service: Service) -> None:
    reply = send(service, b'{"units": [{"code": "dry", "name": "d"}]}', "/api/demo/import?dryRun=true")
    assert (reply.status, reply.json["dryRun"], reply.json["entities"]["units"]["created"]) == (200, True, 1)
    assert send(service, BAD, "/api/demo/import?dryRun=true").status == 422
    assert "dry" not in units(service)


def test_pages_of_imports_and_errors(service: Service) -> None:
    records = [{"code": f"{n}"} for n in range(1_005)]
    report = send(service, json.dumps({"@atomic": False, "units": records}).encode()).json
    assert (report["errorCount"], len(report["errors"])) == (1_005, 1_000)
    path = f"/api/demo/imports/{report['importId']}/errors"
    pages = [service.ask(f"{path}?limit=500&offset={offset}").json for offset in (0, 500, 1_000)]
    assert [(len(page["data"]), page["hasMore"]) for page in pages] == [(500, True), (500, True), (5, False)]
    assert [e["path"] for page in pages for e in page["data"]] == [f"units[{n}].name" for n in range(1_005)]
    listed = service.ask("/api/demo/imports?limit=2").json
    assert (len(listed["data"]), listed["hasMore"], listed["data"][0]["importId"]) == (2, True, report["importId"])
    assert listed["data"][0]["errorCount"] == 1_005 and "errors" not in listed["data"][0]
    for wrong, status in [("?limit=0", 400), ("?limit=x", 400), ("?offset=-1", 400)]:
        assert service.ask(path + wrong).status == status
    assert service.ask("/api/demo/imports/nothing").status == 404
    assert service.ask("/api/other/imports").status == 403
    assert service.ask(f"/api/other/imports/{report['importId']}").status == 403


def begin(service: Service, length: int, body: bytes, **headers: str) -> socket.socket:
    """Send the head of an import of `length` bytes, and the first bytes."""
    client = service.connect()
    given = {"Host": "x", "Authorization": f"Bearer {service.key}", "Content-Type": "application/json", "Content-Length": length}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    client.sendall(f"POST /api/demo/import HTTP/1.1\r\n{head}\r\n".encode() + body)
    return client


def test_a_client_that_leaves_during_the_body_fails_its_import(service: Service) -> None:
    before = units(service)
    client = begin(service, 1 << 19, b'{"units": [{"code": "gone", "name": "g"},' + b" " * 70_000)
    wait_until(lambda: bool(service.operator.rows("select from bds.imports where finished_at is null")))
    client.close()
    wait_until(lambda: not service.operator.rows("select from bds.imports where finished_at is null"))
    assert latest(service)["state"] == "failed"
    assert service.ask(f"/api/demo/imports/{latest(service)['importId']}").json["errors"][0]["code"] == "aborted"
    assert units(service) == before


def test_a_client_that_leaves_after_the_body_does_not_end_its_import(service: Service) -> None:
    body = b'{"units": [{"code": "left", "name": "l"}]}'
    begin(service, len(body), body).close()
    wait_until(lambda: "left" in units(service))
    wait_until(lambda: latest(service)["state"] == "completed")


def test_a_body_in_small_chunks(service: Service) -> None:
    body = json.dumps({"units": [{"code": f"p{n}", "name": "},{"} for n in range(50)]}).encode()
    with begin(service, len(body), b"") as client:
        for at in range(0, len(body), 97):
            client.sendall(body[at : at + 97])
        response = http.client.HTTPResponse(client)
        response.begin()
        assert json.loads(response.read())["entities"]["units"]["created"] == 50


@contextmanager
def held(service: Service) -> Iterator[None]:
    """Another session holds the company's turn."""
    with psycopg.connect(service.operator.connection.info.dsn) as other:
        other.execute("select bds.set_context('demo'), bds.lock_company('demo')")
        yield
        other.rollback()


def test_an_asynchronous_import_is_answered_before_it_runs(service: Service) -> None:
    with held(service):
        reply = send(service, b'{"units": [{"code": "later", "name": "l"}]}', Prefer="wait=10, respond-async")
        assert reply.status == 202 and reply.headers["Location"] == f"/api/demo/imports/{reply.json['importId']}"
        assert reply.json["state"] == "running"
        assert service.ask(reply.headers["Location"]).json["state"] == "running"
    wait_until(lambda: service.ask(reply.headers["Location"]).json["state"] == "completed")
    assert "later" in units(service)


def test_a_failed_answer_names_the_import_which_goes_on(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(*_: object) -> None:
        raise psycopg.OperationalError("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(reports, "show", lost)
        reply = send(service, b'{"units": [{"code": "goes on", "name": "g"}]}', Prefer="respond-async")
    assert (reply.status, reply.json["code"]) == (503, "busy")
    path = f"/api/demo/imports/{reply.json['importId']}"
    wait_until(lambda: service.ask(path).json["state"] == "completed")


def test_a_malformed_document_is_answered_even_if_asynchronous(service: Service) -> None:
    reply = send(service, b'{"units": [', Prefer="respond-async")
    assert (reply.status, reply.json["code"]) == (400, "malformed_document")


def test_an_import_that_waits_for_its_turn_can_be_cancelled(service: Service) -> None:
    with held(service):
        reply = send(service, b'{"units": [{"code": "never", "name": "n"}]}', Prefer="respond-async")
        assert service.ask(reply.headers["Location"], "DELETE").status == 204
        wait_until(lambda: service.ask(reply.headers["Location"]).json["state"] == "cancelled")
    again = service.ask(reply.headers["Location"], "DELETE")
    assert (again.status, again.json["code"]) == (409, "conflict")
    assert "never" not in units(service)


def test_an_import_cancelled_before_its_turn_writes_nothing(service: Service) -> None:
    with ThreadPoolExecutor(1) as others:
        with held(service):
            path = send(service, b'{"units": [{"code": "late", "name": "n"}]}', Prefer="respond-async").headers["Location"]
            asked = others.submit(service.ask, path, "DELETE")
            wait_until(lambda: bool(service.operator.rows("select from bds.imports where is_cancelled and finished_at is null")))
        assert asked.result().status == 204
    report = service.ask(path).json
    assert (report["state"], report["errors"][0]["code"]) == ("cancelled", "cancelled")
    assert "late" not in units(service)


def test_an_import_can_be_cancelled_while_its_body_arrives(service: Service) -> None:
    with begin(service, 1 << 19, b'{"units": [{"code": "cut", "name": "g"},' + b" " * 70_000) as client:
        wait_until(lambda: bool(service.operator.rows("select from bds.imports where finished_at is null")))
        assert service.ask(f"/api/demo/imports/{latest(service)['importId']}", "DELETE").status == 204
        wait_until(lambda: bool(service.operator.rows("select from bds.imports where is_cancelled")))
        client.sendall(b" " * ((1 << 19) - 70_040))
        response = http.client.HTTPResponse(client)
        response.begin()
        assert (response.status, json.loads(response.read())["code"]) == (409, "cancelled")
    assert latest(service)["state"] == "cancelled"


def test_an_import_with_a_stalled_body_can_be_cancelled(service: Service) -> None:
    with begin(service, 1 << 19, b'{"units": [{"code": "idle", "name": "g"},' + b" " * 70_000) as client:
        wait_until(lambda: bool(service.operator.rows("select from bds.imports where finished_at is null")))
        path = f"/api/demo/imports/{latest(service)['importId']}"
        assert service.ask(path, "DELETE").status == 204
        wait_until(lambda: service.ask(path).json["state"] == "cancelled")
        response = http.client.HTTPResponse(client)
        response.begin()
        assert (response.status, json.loads(response.read())["code"]) == (409, "cancelled")


def test_a_queued_import_can_be_cancelled(service: Service) -> None:
    with held(service):
        first = send(service, b'{"units": [{"code": "first", "name": "n"}]}', Prefer="respond-async")
        second = send(service, b'{"units": [{"code": "second", "name": "n"}]}', Prefer="respond-async")
        assert service.ask(second.headers["Location"], "DELETE").status == 204
        wait_until(lambda: service.ask(second.headers["Location"]).json["state"] == "cancelled")
        assert service.ask(first.headers["Location"]).json["state"] == "running"
    wait_until(lambda: service.ask(first.headers["Location"]).json["state"] == "completed")
    assert "second" not in units(service)


def test_a_cancel_needs_no_import_thread(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ThreadPoolExecutor(1)
    monkeypatch.setattr(background, "_threads", executor)
    with held(service):
        first = send(service, b'{"units": [{"code": "busy", "name": "n"}]}', Prefer="respond-async").headers["Location"]
        wait_until(lambda: executor._work_queue.empty() and bool(service.operator.rows("select from pg_locks where not granted")))
        assert service.ask(first, "DELETE").status == 204
        assert service.ask(first).json["state"] == "cancelled"
    executor.shutdown()


def test_maintenance_goes_on_after_a_failed_step(service: Service) -> None:
    last = 'select max(p.name::text collate "C") from bds_change_log.partitions() p'
    [(month,)] = service.operator.rows(last)
    service.operator.connection.execute("alter function bds_change_log.count_change_sets() rename to renamed")
    try:
        service.operator.connection.execute(f"drop table bds.{month}".encode())
        wait_until(lambda: service.operator.rows(last) == [(month,)])
    finally:
        service.operator.connection.execute("alter function bds_change_log.renamed() rename to count_change_sets")


def test_dead_imports_are_ended_while_maintenance_is_busy(service: Service) -> None:
    """As it is for minutes with a month of a large company that expires; an import of a killed process ends meanwhile."""
    service.operator.write("demo", "select bds.import_begin('demo')")
    with psycopg.connect(service.operator.connection.info.dsn) as busy:
        while not busy.execute("select from bds.maintain()").fetchall():
            busy.rollback()  # the service's own is under way
        service.operator.connection.execute(
            "update bds.imports set heartbeat_at = heartbeat_at - interval '1 hour' where finished_at is null"
        )
        wait_until(lambda: latest(service)["state"] == "failed")


def test_cancelling_an_unknown_import_is_not_found(service: Service) -> None:
    for path in ("/api/demo/imports/x", "/api/demo/imports/00000000-0000-0000-0000-000000000000"):
        assert service.ask(path, "DELETE").status == 404


def test_a_stalled_body_is_cut_off(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive, "BODY_TIMEOUT", 0.2)
    with begin(service, 1000, b'{"units": [') as client:
        response = http.client.HTTPResponse(client)
        response.begin()
        assert (response.status, json.loads(response.read())["code"]) == (408, "request_timeout")
    assert latest(service)["state"] == "failed"
