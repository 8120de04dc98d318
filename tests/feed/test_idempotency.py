"""Requests with an Idempotency-Key: done once, answered as often as they are sent."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from app.cli import main
from app.feed.run import Import, stopped
from tests.conftest import Operator
from tests.database.aging import maintain
from tests.feed.test_http import begin, held, send
from tests.service.serving import ANSWER, Reply, Service, running, wait_until
from tests.service.test_processes import serve

pytestmark = pytest.mark.slow

IMPORT = "/api/demo/import"
AGED = "update bds.import_keys set claimed_at = claimed_at - %s::interval where company_id = 'demo' and key = %s"


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, import_max=1 << 20) as service:
        service.operator.company("other")
        yield service


@pytest.fixture
def key() -> str:
    return str(uuid4())


def unit(code: str, **fields: Any) -> bytes:
    return json.dumps({"units": [{"code": code, "name": code.lower()} | fields]}).encode()


def same(first: Reply, second: Reply) -> bool:
    """Whether the second answer is the first one again."""
    assert first.headers["Idempotency-Replayed"] is None and second.headers["Idempotency-Replayed"] == "true"
    names = ("Content-Type", "Location", "ETag")
    assert [first.headers[name] for name in names] == [second.headers[name] for name in names]
    return (first.status, first.json) == (second.status, second.json)


def imports(service: Service) -> int:
    return int(service.operator.rows("select count(*) from bds.imports")[0][0])


# document or path, status, code
ANSWERS: list[tuple[str, str, bytes, int, str | None]] = [
    ("completed", "", unit("A1"), 200, None),
    ("partial", "", b'{"@atomic": false, "units": [{"code": "A2", "name": "a"}, {"code": "A3"}]}', 200, None),
    ("failed", "", b'{"units": [{"code": "A4"}]}', 422, None),
    ("dry run", "?dryRun=true", unit("A5"), 200, None),
    ("malformed", "", b'{"units": [{"code": "A6", "name": }]}', 400, "malformed_document"),
    ("no entity", "", b'{"nonsense": []}', 400, "unknown_entity"),
    ("malformed early", "", b'{"units": [nonsense' + b" " * 300_000 + b"]}", 400, "malformed_document"),
    ("large", "", b'{"units": [{"code": "A7", "name": "a"}' + b" " * 300_000 + b"]}", 200, None),
]


@pytest.mark.parametrize(("query", "body", "status", "code"), [each[1:] for each in ANSWERS], ids=[each[0] for each in ANSWERS])
def test_the_same_request_has_the_same_answer(
    service: Service, key: str, query: str, body: bytes, status: int, code: str | None
) -> None:
    first = send(service, body, IMPORT + query, Idempotency_Key=key)
    assert (first.status, first.json.get("code")) == (status, code)
    listed, log = imports(service), service.operator.rows("select count(*) from bds.changes")
    assert same(first, send(service, body, IMPORT + query, Idempotency_Key=key))
    # neither the coding nor other headers are part of the request
    zipped = send(service, gzip.compress(body), IMPORT + query, Idempotency_Key=key, Content_Encoding="gzip", X_Request_Id="again")
    assert same(first, zipped)
    assert (imports(service), service.operator.rows("select count(*) from bds.changes")) == (listed, log)


def test_a_key_may_be_sent_with_other_credentials(service: Service, key: str) -> None:
    first = send(service, unit("B1"), Idempotency_Key=key)
    other = service.operator.key("demo")
    again = send(service, unit("B1"), Idempotency_Key=key, Authorization=f"Bearer {other}")
    assert same(first, again)
    reader = service.operator.key("demo", scopes=("read",))
    assert send(service, unit("B1"), Idempotency_Key=key, Authorization=f"Bearer {reader}").status == 403


def test_a_key_of_another_request_is_refused(service: Service, key: str) -> None:
    assert send(service, unit("C1"), Idempotency_Key=key).status == 200
    change_set = send(service, unit("C2")).json["importId"]
    for path, body in [
        (IMPORT, unit("C3")),
        (IMPORT, unit("C1") + b" "),
        (f"{IMPORT}?dryRun=true", unit("C1")),
        (f"/api/demo/imports/{change_set}/revert", unit("C1")),
        ("/api/demo/revert", b'{"to": 1}'),
    ]:
        reply = send(service, body, path, Idempotency_Key=key)
        assert (reply.status, reply.json["code"], reply.headers["Idempotency-Replayed"]) == (422, "key_reused", None)
    for code in ("C1", "C2", "C3"):
        found = service.operator.rows("select count(*) from data.units where company_id = 'demo' and code = %s", (code,))
        assert found == [(int(code != "C3"),)]


def test_each_company_has_its_own_keys_and_each_key_its_own_answer(service: Service, key: str) -> None:
    both = service.operator.key("demo", "other")
    first = send(service, unit("D1"), Idempotency_Key=key, Authorization=f"Bearer {both}")
    for path, of in [("/api/other/import", key), (IMPORT, key + "x"), (IMPORT, key.upper() + "!")]:
        reply = send(service, unit("D1"), path, Idempotency_Key=of, Authorization=f"Bearer {both}")
        assert (reply.status, reply.headers["Idempotency-Replayed"]) == (200, None)
        assert reply.json["importId"] != first.json["importId"]


KEYS = [("x" * 254, 200), ("!~" * 100, 200), ("x" * 255, 400), ("two words", 400), ("caf\u00e9", 400), ("a\tb", 400)]


@pytest.mark.parametrize(("number", "path"), [(1, "import"), (2, "revert"), (3, "imports/{id}/revert")])
def test_keys_are_1_to_255_visible_ascii_characters(service: Service, number: int, path: str) -> None:
    report = send(service, unit("E")).json
    body = {"import": unit("E"), "revert": json.dumps({"from": report["position"]}).encode()}.get(path, b"")
    path = f"/api/demo/{path.replace('{id}', report['importId'])}"
    for rest, status in KEYS:
        reply = send(service, body, path, Idempotency_Key=f"{number}{rest}")
        assert (reply.status, reply.json.get("target")) == (status, "Idempotency-Key" if status == 400 else None)
    reply = send(service, body, path, Idempotency_Key="")
    assert (reply.status, reply.json["target"]) == (400, "Idempotency-Key")


def test_one_of_two_headers_is_refused(service: Service) -> None:
    head = f"POST {IMPORT} HTTP/1.1\r\nHost: x\r\nAuthorization: {service.basic}\r\nContent-Type: application/json\r\n"
    keys = "Idempotency-Key: a\r\nIdempotency-Key: b\r\n"
    reply = service.raw(f"{head}{keys}Connection: close\r\nContent-Length: 2\r\n\r\n{{}}".encode())
    assert (reply.status, reply.json["target"]) == (400, "Idempotency-Key")


def test_an_undo_is_done_once(service: Service, key: str) -> None:
    created = send(service, unit("F1")).json["importId"]
    path = f"/api/demo/imports/{created}/revert"
    first = send(service, b"", path, Idempotency_Key=key)
    assert (first.status, first.json["entities"]["units"]["deleted"]) == (200, 1)
    assert same(first, send(service, b"", path, Idempotency_Key=key))
    other = send(service, b"", f"{path}?dryRun=true", Idempotency_Key=key)
    assert (other.status, other.json["code"]) == (422, "key_reused")
    # without a key it is another undo
    assert send(service, b"", path).json["entities"].get("units", {"deleted": 0})["deleted"] == 0


def test_a_selection_is_undone_once_and_its_errors_are_kept(service: Service, key: str) -> None:
    position = send(service, unit("F2")).json["position"]
    send(service, unit("F3"))
    body = json.dumps({"to": position}).encode()
    first = send(service, body, "/api/demo/revert", Idempotency_Key=key)
    assert (first.status, first.json["entities"]["units"]["deleted"]) == (200, 1)
    send(service, unit("F3"))
    assert same(first, send(service, body, "/api/demo/revert", Idempotency_Key=key))
    for name, wrong in {
        "malformed": b"{",
        "unknown": b'{"to": 1, "what": 1}',
        "no such row": b'{"to": 1, "rows": ["units/code:no"]}',
    }.items():
        first = send(service, wrong, "/api/demo/revert", Idempotency_Key=f"{key} {name}".replace(" ", "-"))
        assert first.status in (400, 404)
        assert same(first, send(service, wrong, "/api/demo/revert", Idempotency_Key=f"{key} {name}".replace(" ", "-")))


def test_what_was_answered_before_the_body_was_read_leaves_the_key(service: Service, key: str) -> None:
    assert send(service, unit("G1"), Idempotency_Key=key, Content_Type="text/csv").status == 415
    assert send(service, unit("G1"), Idempotency_Key=key, Content_Encoding="br").status == 415
    assert send(service, unit("G1"), f"{IMPORT}?mapper=none", Idempotency_Key=key).status == 404
    assert send(service, b" " * (1 << 20) + unit("G1"), Idempotency_Key=key).status == 413
    assert send(service, unit("G1"), Idempotency_Key=key, Authorization="Bearer nonsense").status == 401
    reply = send(service, unit("G1"), Idempotency_Key=key)
    assert (reply.status, reply.headers["Idempotency-Replayed"]) == (200, None)


def test_two_at_once_write_once(service: Service) -> None:
    """Without the claim before the body, both are imported: the second one writes nothing, and so answers otherwise."""
    for n in range(8):
        key, before = str(uuid4()), imports(service)
        with ThreadPoolExecutor(4) as threads:
            replies = list(threads.map(lambda _, n=n, key=key: send(service, unit(f"H{n}"), Idempotency_Key=key), range(4)))
        assert imports(service) == before + 1
        firsts = [reply for reply in replies if reply.status == 200 and not reply.headers["Idempotency-Replayed"]]
        assert [reply.json["entities"]["units"]["created"] for reply in firsts] == [1]
        for reply in replies:
            if reply.status == 409:
                assert reply.headers["Retry-After"] == "1"
            else:
                assert (reply.status, reply.json) == (200, firsts[0].json)


def test_while_the_first_is_received_its_key_is_taken(service: Service, key: str) -> None:
    body = unit("I1") + b" " * 70_000
    before = imports(service)
    with begin(service, len(body), body[:-10], Idempotency_Key=key) as client:
        wait_until(lambda: bool(service.operator.rows("select from bds.import_keys where key = %s", (key,))))
        for sent in (body, unit("I2")):
            reply = send(service, sent, Idempotency_Key=key)
            assert (reply.status, reply.json["code"], reply.headers["Retry-After"]) == (409, "conflict", "1")
        client.sendall(body[-10:])
        wait_until(lambda: bool(service.operator.rows("select from bds.imports where state = 'completed' and bytes > 70000")))
    wait_until(lambda: send(service, body, Idempotency_Key=key).headers["Idempotency-Replayed"] == "true")
    assert imports(service) == before + 1


def test_while_the_first_runs_a_request_waits_and_an_asynchronous_one_is_answered(service: Service, key: str) -> None:
    before = imports(service)
    with ThreadPoolExecutor(2) as threads, held(service):
        first = threads.submit(send, service, unit("J1"), Idempotency_Key=key)
        wait_until(
            lambda: bool(service.operator.rows("select from bds.import_keys where key = %s and request is not null", (key,)))
        )
        second = threads.submit(send, service, unit("J1"), Idempotency_Key=key)
        third = send(service, unit("J1"), Idempotency_Key=key, Prefer="respond-async")
        assert (third.status, third.headers["Idempotency-Replayed"]) == (202, "true")
        assert third.json["state"] in ("receiving", "running")  # a small one is staged in its turn
        assert send(service, unit("J2"), Idempotency_Key=key).status == 422
        assert not first.done() and not second.done()
    assert same(first.result(), second.result())
    assert (
        third.json["importId"] == first.result().json["importId"]
        and third.headers["Location"] == first.result().headers["Location"]
    )
    assert imports(service) == before + 1
    # of a request that was answered with the report, so is an asynchronous one
    assert same(first.result(), send(service, unit("J1"), Idempotency_Key=key, Prefer="respond-async"))


def test_an_asynchronous_request_is_answered_again(service: Service, key: str) -> None:
    first = send(service, unit("K1"), Idempotency_Key=key, Prefer="respond-async")
    assert first.status == 202
    path = first.headers["Location"] or ""
    wait_until(lambda: service.ask(path).json["state"] == "completed")
    report = service.ask(path).json
    again = send(service, unit("K1"), Idempotency_Key=key, Prefer="respond-async")
    assert (again.status, again.json, again.headers["Location"], again.headers["Idempotency-Replayed"]) == (
        202,
        report,
        path,
        "true",
    )
    again = send(service, unit("K1"), Idempotency_Key=key)
    assert (again.status, again.json, again.headers["Idempotency-Replayed"]) == (200, report, "true")


def test_a_cancelled_import_stays_the_answer(service: Service, key: str) -> None:
    with held(service):
        path = send(service, unit("K2"), Idempotency_Key=key, Prefer="respond-async").headers["Location"] or ""
        assert service.ask(path, method="DELETE").status == 204
    wait_until(lambda: service.ask(path).json["state"] == "cancelled")
    again = send(service, unit("K2"), Idempotency_Key=key, Prefer="respond-async")
    assert (again.status, again.json["state"]) == (202, "cancelled")
    again = send(service, unit("K2"), Idempotency_Key=key)
    assert (again.status, again.json["code"], again.headers["Idempotency-Replayed"]) == (409, "cancelled", "true")


def test_a_body_that_did_not_arrive_as_a_whole_leaves_the_key(service: Service, key: str) -> None:
    body = unit("L1")
    with begin(service, len(body), body[:-5], Idempotency_Key=key):
        wait_until(lambda: bool(service.operator.rows("select from bds.import_keys where key = %s", (key,))))
    wait_until(lambda: not service.operator.rows("select from bds.import_keys where key = %s", (key,)))
    cut = send(service, gzip.compress(body)[:-5], Idempotency_Key=key, Content_Encoding="gzip")
    assert cut.status == 400
    reply = send(service, body, Idempotency_Key=key)
    assert (reply.status, reply.json["entities"]["units"]["created"], reply.headers["Idempotency-Replayed"]) == (200, 1, None)


def test_a_request_that_died_leaves_the_key(service: Service, key: str) -> None:
    """Of its process nothing is left but the claim, or an import that gives no sign of life."""
    claim = "insert into bds.import_keys (company_id, key, import_id) values ('demo', %s, %s)"
    id = uuid4()
    service.operator.write("demo", claim, (key, id))
    assert send(service, unit("M1"), Idempotency_Key=key).status == 409
    service.operator.write("demo", AGED, ("19 seconds", key))
    assert send(service, unit("M1"), Idempotency_Key=key).status == 409
    service.operator.write("demo", AGED, ("1 second", key))
    assert send(service, unit("M1"), Idempotency_Key=key).headers["Idempotency-Replayed"] is None
    key, id = str(uuid4()), uuid4()
    service.operator.write("demo", claim, (key, id))
    service.operator.write("demo", "select bds.import_begin('demo', claimed_id => %s)", (id,))
    service.operator.write("demo", AGED, ("1 hour", key))
    assert send(service, unit("M2"), Idempotency_Key=key).status == 409
    service.operator.write("demo", "update bds.imports set heartbeat_at = now() - interval '1 minute' where id = %s", (id,))
    service.operator.rows("select bds.reap_imports()")
    reply = send(service, unit("M2"), Idempotency_Key=key)
    assert (reply.status, reply.json["entities"]["units"]["created"]) == (200, 1)


def test_an_import_that_was_taken_for_dead_leaves_the_key(service: Service, key: str) -> None:
    """Its process was stopped and wakes: that it may not go on is no answer."""
    id = uuid4()
    service.operator.write("demo", "insert into bds.import_keys (company_id, key, import_id) values ('demo', %s, %s)", (key, id))
    service.operator.write("demo", "select bds.import_begin('demo', claimed_id => %s)", (id,))
    service.operator.write("demo", "select bds.import_fail('demo', %s, 'failed', 'aborted', 'dead')", (id,))
    late = "select bds.import_fail('demo', %s, 'failed', 'conflict'), bds_service.end_request('demo', %s, sha256(''), '{}')"
    service.operator.write("demo", late, (id, id))
    assert service.operator.rows("select from bds.import_keys where key = %s", (key,)) == []


def test_an_import_whose_claim_was_taken_writes_nothing(service: Service, key: str, module_database_url: str) -> None:
    with psycopg.connect(module_database_url, autocommit=True) as session:
        session.execute("select set_config('bds.company', 'demo', false)")
        for call in (
            'import_rows(\'demo\', \'{"units": [{"code": "N"}]}\', claimed_id => %s)',
            "import_begin('demo', claimed_id => %s)",
        ):
            with pytest.raises(psycopg.Error) as caught:
                session.execute(f"select bds.{call}".encode(), (uuid4(),))
            assert caught.value.sqlstate == "BD003"


def test_a_claim_is_kept_while_its_import_is_written(service: Service, key: str, module_database_url: str) -> None:
    """However long that takes: the transaction of a small import holds the claim until it is its answer."""
    id = uuid4()
    service.operator.write("demo", "insert into bds.import_keys (company_id, key, import_id) values ('demo', %s, %s)", (key, id))
    service.operator.write("demo", AGED, ("1 hour", key))
    with psycopg.connect(module_database_url) as session:
        session.execute("select set_config('bds.company', 'demo', false)")
        rows = json.dumps({"units": [{"@ordinal": 0, "code": "O", "name": "o"}]})
        session.execute("select bds.import_rows('demo', %s, claimed_id => %s)", (rows, id))
        with psycopg.connect(module_database_url, autocommit=True) as other:
            other.execute("select set_config('bds.company', 'demo', false)")
            assert other.execute("select bds_service.claim_request('demo', %s, %s)", (key, uuid4())).fetchone() == (False,)
    assert service.operator.write("demo", "select bds_service.claim_request('demo', %s, %s)", (key, uuid4())) == [(False,)]


def test_a_key_is_kept_a_day(service: Service, key: str) -> None:
    first = send(service, unit("P1"), Idempotency_Key=key)
    wrong = send(service, b"{", Idempotency_Key=key + "x")
    for each in (key, key + "x"):
        service.operator.write("demo", AGED, ("23 hours 59 minutes", each))
    maintain(service.operator)
    assert same(first, send(service, unit("P1"), Idempotency_Key=key))
    assert same(wrong, send(service, b"{", Idempotency_Key=key + "x"))
    service.operator.write("demo", AGED, ("1 minute", key))
    again = send(service, unit("P1"), Idempotency_Key=key)
    assert (again.status, again.headers["Idempotency-Replayed"]) == (200, None) and again.json["importId"] != first.json["importId"]
    service.operator.write("demo", AGED, ("1 minute", key + "x"))
    maintain(service.operator)
    assert service.operator.rows("select key from bds.import_keys where key like %s", (key + "%",)) == [(key,)]


def test_a_first_request_that_ends_by_503_leaves_the_key(service: Service, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: Import) -> None:
        raise stopped()

    with monkeypatch.context() as patch:
        patch.setattr(Import, "run", run)
        assert send(service, unit("Q1"), Idempotency_Key=key).status == 503
    reply = send(service, unit("Q1"), Idempotency_Key=key)
    assert (reply.status, reply.headers["Idempotency-Replayed"]) == (200, None)


def test_an_import_that_is_written_without_an_answer_keeps_its_key(service: Service, key: str) -> None:
    """As if its process were killed between the commit and the answer."""
    id, body = uuid4(), unit("R1")
    request = hashlib.sha256(IMPORT.encode() + b"\n" + body).digest()
    service.operator.write("demo", "insert into bds.import_keys (company_id, key, import_id) values ('demo', %s, %s)", (key, id))
    service.operator.write("demo", "select bds_service.note_request('demo', %s, %s, false)", (id, request))
    rows = json.dumps({"units": [{"@ordinal": 0, "code": "R1", "name": "r1"}]})
    service.operator.write("demo", "select bds.import_rows('demo', %s, claimed_id => %s)", (rows, id))
    service.operator.write("demo", AGED, ("1 hour", key))
    service.operator.write("demo", "select bds_service.end_request('demo', %s)", (id,))  # whose connection was lost
    reply = send(service, body, Idempotency_Key=key)
    assert (reply.status, reply.json["importId"], reply.headers["Idempotency-Replayed"]) == (200, str(id), "true")
    assert reply.json["entities"]["units"]["created"] == 1


def test_a_key_costs_two_statements_and_none_without(service: Service, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def listened(execute: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
            said.append(str(query))
            return execute(self, query, *arguments, **options)

        return run

    for kind in (psycopg.Connection, psycopg.AsyncConnection):
        monkeypatch.setattr(kind, "execute", listened(kind.execute))  # type: ignore[attr-defined]
    found = []
    for keys in [{}, {"Idempotency_Key": key}, {"Idempotency_Key": key}]:
        said.clear()
        assert send(service, unit("S1"), **keys).status == 200
        calls = [re.search(r"bds_service\.(\w+_request)\(|(import_\w+)\(", each) for each in said]
        found.append([call[1] or call[2] for call in calls if call])
    assert found == [["import_rows"], ["claim_request", "note_request", "import_rows"], ["claim_request", "answer_request"]]


def test_the_command_line_sends_a_key(service: Service, key: str, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, secret = tmp_path / "feed.json", tmp_path / "key"
    file.write_bytes(unit("T1"))
    secret.write_text(service.key)
    secret.chmod(0o600)
    url = f"http://{service.host}:{service.port}"
    command = ["import", str(file), "--company", "demo", "--json", "--idempotency-key", key]
    reports = []
    for _ in range(2):
        assert main.main([*command, "--url", url, "--key-file", str(secret)]) == 0
        reports.append(json.loads(capfd.readouterr().out))
    assert reports[0] == reports[1] and reports[0]["entities"]["units"]["created"] == 1
    for wrong, message in [(command, "expected --url"), ([*command[:-1], "two words", "--url", url], "visible ASCII")]:
        with pytest.raises(SystemExit) as caught:
            main.main(wrong)
        assert caught.value.code == 2 and message in capfd.readouterr().err


@pytest.mark.processes
@pytest.mark.parametrize("phase", ["receiving", "running"])
def test_the_key_of_a_killed_process(operator: Operator, database_url: str, key: str, phase: str) -> None:
    """It is free again, unless the database has ended its import nevertheless; all processes share it."""
    operator.company("acme")
    body = unit("U1") + b" " * 70_000
    with serve(database_url, operator.key("acme"), "--processes", "2") as served:

        def again() -> Reply:
            with suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=ANSWER)
                headers = {"X-API-Key": served.key, "Content-Type": "application/json", "Idempotency-Key": key}
                connection.request("POST", "/api/acme/import", body, headers)
                response = connection.getresponse()
                return Reply(response.status, response.headers, response.read())
            return Reply(0, http.client.HTTPMessage(), b"")

        with socket.create_connection(("127.0.0.1", served.port)) as client, psycopg.connect(database_url) as holder:
            holder.execute("select bds.set_context('acme'), bds.lock_company('acme')")
            names = f"Host: x\r\nX-API-Key: {served.key}\r\nContent-Type: application/json\r\nIdempotency-Key: {key}\r\n"
            head = f"POST /api/acme/import HTTP/1.1\r\n{names}Content-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body[: len(body) - (phase == "receiving")])
            wait_until(lambda: bool(operator.rows("select from bds.imports where state = %s", (phase,))))
            if phase == "receiving":
                assert again().status == 409
            for process in served.children("bds http"):
                os.kill(process, signal.SIGKILL)
        operator.connection.execute("update bds.imports set heartbeat_at = now() - interval '1 minute' where finished_at is null")
        replies: list[Reply] = []
        wait_until(lambda: replies.append(again()) is None and replies[-1].status not in (0, 409, 503))
    assert (replies[-1].status, replies[-1].json["entities"]["units"]["created"]) == (200, 1)
    ran = operator.rows("select id::text from bds.imports where position is not null")
    assert ran == [(replies[-1].json["importId"],)]
    assert operator.rows("select count(*) from bds.changes where entity = 'units'") == [(1,)]
