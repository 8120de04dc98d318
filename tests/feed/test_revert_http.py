"""Reverts over HTTP and at the command line: answers, the queue, killed processes, hooks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from app.cli import main
from tests.changes.test_versions_http import send as put
from tests.database.aging import age, maintain
from tests.feed.conftest import Feed
from tests.feed.test_crash import blocked, holding, reaped, state
from tests.feed.test_http import send
from tests.feed.test_revert import content
from tests.service.serving import Reply, Service, running, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        yield service


def imported(service: Service, document: dict[str, Any]) -> str:
    reply = send(service, json.dumps(document).encode())
    assert reply.status == 200, reply.json
    return str(reply.json["importId"])


def undo(service: Service, change_set: str, query: str = "", **headers: str) -> Reply:
    return send(service, b"", f"/api/demo/imports/{change_set}/revert{query}", **headers)


def codes(service: Service) -> set[str]:
    return {code for (code,) in service.operator.rows("select code from data.units where company_id = 'demo'")}


def test_the_answer_is_a_report_of_an_import_of_its_own(service: Service) -> None:
    change_set = imported(service, {"units": [{"code": "A", "name": "a"}]})
    dry = undo(service, change_set, "?dryRun=true")
    assert (dry.status, dry.json["dryRun"], dry.json["entities"]["units"]["deleted"], codes(service)) == (200, True, 1, {"A"})
    reply = undo(service, change_set)
    report = reply.json
    assert (reply.status, reply.headers["Location"]) == (200, f"/api/demo/imports/{report['importId']}")
    assert (report["state"], report["reverts"], report["changeSetId"]) == ("completed", change_set, report["importId"])
    assert codes(service) == set()
    assert service.ask(f"/api/demo/imports/{report['importId']}").json == report
    assert service.ask("/api/demo/imports?limit=1").json["data"][0]["importId"] == report["importId"]
    (actor,) = service.operator.rows("select actor from bds.changes where change_set_id = %s", (report["importId"],))[0]
    assert actor.startswith("key ")


def test_numbers_are_shown_with_all_their_digits(
    service: Service, module_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    price = '"price": 123456789012345.6789'  # as a double 123456789012345.67
    imported(service, {"products": [{"code": "D", "name": "d", "price": "123456789012345.6789"}]})
    change_set = imported(service, {"products": [{"code": "D", "price": 1}]})
    first, again = (undo(service, change_set, "?dryRun=true", **{"Idempotency-Key": "digits"}) for _ in range(2))
    shown = service.ask(f"/api/demo/imports/{first.json['importId']}")
    assert [price.encode() in reply.body for reply in (first, again, shown)] == [True] * 3, first.body
    monkeypatch.setenv("BDS_DATABASE_URL", module_database_url)
    monkeypatch.setenv("BDS_KEY", service.key)
    [(last,)] = service.operator.rows("select max(last_id) from bds.positions where company_id = 'demo'")
    query = ("query", "select jsonb_build_object('price', 123456789012345.6789)")
    show = ("import", "show", first.json["importId"], "--company", "demo", "--json")
    for words in (
        show,
        (*show, "--url", f"http://{service.host}:{service.port}"),
        ("diff", "demo", "products", "--since", str(last - 1), "--json"),
        query,
        (*query, "--json"),
    ):
        assert main.main(words) == 0
        assert price in capsys.readouterr().out, words


def test_conflicts_are_a_partial_report_or_a_422(service: Service) -> None:
    change_set = imported(service, {"units": [{"code": "B", "name": "b"}, {"code": "C", "name": "c"}]})
    imported(service, {"units": [{"code": "B", "name": "later"}]})
    reply = undo(service, change_set)
    assert (reply.status, reply.json["state"], codes(service)) == (200, "partial", {"B"})
    errors = service.ask(f"/api/demo/imports/{reply.json['importId']}/errors").json["data"]
    assert [(e["record"], e["code"]) for e in errors] == [("code:B", "conflict")]
    other = imported(service, {"units": [{"code": "B", "name": "new"}]})
    imported(service, {"units": [{"code": "B", "name": "newest"}]})
    reply = undo(service, other)
    assert (reply.status, reply.json["state"]) == (422, "failed")
    assert undo(service, other, "?force=true").status == 200
    assert undo(service, change_set, "?force=true").status == 200
    assert codes(service) == set()


def test_what_cannot_be_reverted(service: Service, module_database_url: str) -> None:
    assert undo(service, str(uuid4())).status == 404
    assert undo(service, "nonsense").status == 404
    change_set = imported(service, {"units": [{"code": "A", "name": "a"}]})
    assert undo(service, change_set, "?dryrun=true").status == 400
    assert undo(service, change_set, "?force=maybe").status == 400
    reply = send(service, b'{"dryRun": true}', f"/api/demo/imports/{change_set}/revert")
    assert (reply.status, reply.json["code"], codes(service)) == (400, "malformed_request", {"A"})
    with psycopg.connect(module_database_url, autocommit=True) as other:
        other.execute("select bds.set_context('demo')")
        other.execute("select set_config('bds.company', 'demo', false)")
        (begun,) = other.execute("select bds.import_begin('demo')").fetchone() or ("",)
        reply = undo(service, str(begun))
        assert (reply.status, reply.headers["Content-Type"]) == (409, "application/problem+json")
        other.execute("select bds.import_cancel('demo', %s), bds.import_fail('demo', %s, 'cancelled')", (begun, begun))
    other_key = service.operator.key("demo", scopes=("read",))
    assert undo(service, change_set, Authorization=f"Bearer {other_key}").status == 403
    assert undo(service, change_set).status == 200


def test_an_answer_at_once_and_a_revert_that_waits_is_shown_and_cancelled(service: Service, module_database_url: str) -> None:
    change_set = imported(service, {"units": [{"code": "A", "name": "a"}]})
    with psycopg.connect(module_database_url) as holder:
        holder.execute("select bds.set_context('demo', 'anna'), bds.lock_company('demo')")
        reply = undo(service, change_set, Prefer="respond-async")
        assert (reply.status, reply.json["state"]) == (202, "running")
        path = f"/api/demo/imports/{reply.json['importId']}"
        wait_until(lambda: "anna" in (service.ask(path).json["progress"].get("waitingFor") or ""))
        assert service.ask(path, method="DELETE").status == 204
        assert service.ask(path).json["state"] == "cancelled"
        holder.rollback()
    assert codes(service) == {"A"}
    assert undo(service, change_set).status == 200


def test_two_reverts_at_once_undo_it_once(service: Service) -> None:
    imported(service, {"units": [{"code": "Z", "name": "z"}]})
    change_set = imported(service, {"units": [{"code": "Y", "name": "y"}, {"code": "Z", "name": "changed"}]})
    with ThreadPoolExecutor(2) as threads:
        replies = list(threads.map(lambda _: undo(service, change_set), range(2)))
    assert [reply.status for reply in replies] == [200, 200]
    found = sorted(
        (each["entities"]["units"]["deleted"], each["entities"]["units"]["unchanged"]) for each in (r.json for r in replies)
    )
    assert found == [(0, 2), (1, 0)]
    assert service.operator.rows("select code, name from data.units where company_id = 'demo'") == [("Z", "z")]


def test_hooks_hear_of_it_as_of_any_change_set(service: Service) -> None:
    change_set = imported(service, {"customers": [{"code": "H", "name": "h"}]})
    service.operator.write(
        "demo", "select bds.create_hook('demo', 'customers', 'https://example.com/hook', allow_in_change_set => true)"
    )
    report = undo(service, change_set).json
    service.operator.rows("select * from bds_service.route_changes('demo', '0 s')")
    assert service.operator.rows("select change_set_id::text from bds.hook_queue where company_id = 'demo'") == [
        (report["importId"],)
    ]


# At the command line -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bds(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.setenv("BDS_DATABASE_URL", feed.url)
    return lambda *words: main.main(["import", "revert", *words, "--company", feed.company])


def test_an_import_whose_changes_are_no_longer_kept_is_gone(database_url: str) -> None:
    with running(database_url) as service:
        lost = imported(service, {"units": [{"code": "A", "name": "a"}]})
        kept = imported(service, {"units": [{"code": "B", "name": "b"}]})
        age(service.operator, "2001_01", "id = 1")
        service.operator.connection.execute("select bds.set_retention('1 year')")
        maintain(service.operator)
        for query in ("", "?dryRun=true", "?force=true"):
            reply = undo(service, lost, query)
            assert (reply.status, reply.json["code"], reply.json["firstId"]) == (410, "gone", 2)
        for selection in ({"to": 0}, {"from": "0", "to": 2}, {"changeSet": lost}):
            body = json.dumps(selection).encode()
            replies = [send(service, body, "/api/demo/revert", Idempotency_Key=body.hex()) for _ in range(2)]
            assert [(each.status, each.json["firstId"]) for each in replies] == [(410, 2)] * 2, (selection, replies[0].json)
        for path in ("/c/demo/units?since=0", "/c/demo/diff?since=0", "/c/demo/units?since=2001-01-01"):
            reply = service.ask(path)
            assert (reply.status, reply.json["firstId"], reply.json["target"]) == (410, 2, "since"), (path, reply.json)
        assert put(service, "PUT", "/api/demo/versions/old", '{"version": 0}')[0] == 410
        assert codes(service) == {"A", "B"}
        assert (undo(service, kept).status, codes(service)) == (200, {"A"})


def test_the_command_reverts(feed: Feed, bds: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    change_set = feed.send(units=[{"code": "U", "name": "u"}, {"code": "V", "name": "v"}])["importId"]
    feed.good(units=[{"code": "V", "name": "w"}])
    assert bds(change_set, "--dry-run") == 3
    assert "partial, dry run: nothing was written" in capsys.readouterr().out
    assert bds(change_set) == 3
    assert "(code:V): conflict: changed later, by change 3 of " in capsys.readouterr().out
    assert bds(change_set) == 3
    capsys.readouterr()
    assert bds(change_set, "--force", "--json") == 0
    assert json.loads(capsys.readouterr().out)["entities"]["units"]["deleted"] == 1
    assert feed.rows("units", "code") == []
    assert bds(str(uuid4())) == 1


@contextmanager
def command(feed: Feed, change_set: str) -> Iterator[subprocess.Popen[bytes]]:
    """`bds import revert` in a process of its own, killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "import", "revert", change_set, "--company", feed.company],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "BDS_DATABASE_URL": feed.url},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.processes
def test_a_killed_revert_leaves_nothing_half_undone_and_fails(feed: Feed) -> None:
    feed.good(units=[{"code": "A", "name": "a"}, {"code": "B", "name": "b"}])
    change_set = feed.send(products=[{"code": "P", "name": "p"}], units=[{"code": "A", "name": "x"}, {"code": "B", "name": "x"}])[
        "importId"
    ]
    before, log = content(feed), feed.log()
    # units come first: they are written when the process waits for the product
    with (
        holding(feed, f"select from data.products where company_id = '{feed.company}' for update"),
        command(feed, change_set) as process,
    ):
        wait_until(lambda: blocked(feed))
        process.kill()
        process.wait()
        wait_until(lambda: not blocked(feed))
    wait_until(lambda: reaped(feed))
    assert (content(feed), feed.log(), state(feed)) == (before, log, "failed")
