"""A key with the scope `propose`: dry runs of bounded size and time, the reports of its own, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from app.feed import proposal
from tests.feed.test_http import send
from tests.service.serving import Reply, Service, running

pytestmark = pytest.mark.slow

DOCUMENT = {"units": [{"code": "P", "name": "p"}, {"code": "S", "name": "changed"}]}


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        assert send(service, b'{"units": [{"code": "S", "name": "stored"}]}').status == 200
        yield service


@pytest.fixture(scope="module")
def proposer(service: Service) -> str:
    return f"Bearer {service.operator.key('demo', scopes=('propose',))}"


@pytest.fixture(autouse=True)
def _nothing_is_written(service: Service) -> Iterator[None]:
    yield
    assert service.operator.rows("select code, name from data.units where company_id = 'demo'") == [("S", "stored")]


def propose(service: Service, key: str, document: Any, path: str = "import?dryRun=true", **headers: str) -> Reply:
    return send(service, json.dumps(document).encode(), f"/api/demo/{path}", Authorization=key, **headers)


def test_it_gives_dry_runs_of_imports_and_reverts_alone(service: Service, proposer: str) -> None:
    (first,) = service.operator.rows("select id::text from bds.imports where not dry_run")[0]
    for path, body in (
        ("import?dryRun=true", DOCUMENT), ("revert", {"to": 0, "dryRun": True}),
        (f"imports/{first}/revert?dryRun=true", {}),
    ):  # fmt: skip
        reply = propose(service, proposer, body, path)
        assert (reply.status, reply.json["state"], reply.json["dryRun"]) == (200, "completed", True), (path, reply.json)
    for path, body in (
        ("import", DOCUMENT), ("import?dryRun=false", DOCUMENT), ("revert", {"to": 0}), ("revert", {"to": 0, "dryRun": False}),
        (f"imports/{first}/revert", {}), (f"imports/{first}/revert?force=true", {}),
    ):  # fmt: skip
        for headers in ({}, {"Idempotency_Key": "once"}, {"Prefer": "respond-async"}):
            reply = propose(service, proposer, body, path, **headers)
            assert (reply.status, reply.json["code"]) == (403, "forbidden") and "dryRun" in reply.json["detail"], (path, reply.json)
    assert propose(service, proposer, {"to": 0, "dryRun": "yes"}, "revert").status == 400
    assert propose(service, proposer, DOCUMENT, "import?dryRun=TRUE").status == 400, "as export=TRUE"
    assert propose(service, proposer, {"units": [{"code": "S"}, {"code": "new"}]}).status == 422
    once = [propose(service, proposer, DOCUMENT, Idempotency_Key="once") for _ in range(2)]
    assert once[0].json == once[1].json and once[1].headers["Idempotency-Replayed"] == "true"


def test_it_sees_the_reports_of_what_it_began(service: Service, proposer: str) -> None:
    other = f"Bearer {service.operator.key('demo', scopes=('propose',))}"
    began = propose(service, other, {"units": [{"code": "mine"}]})
    id = began.json["importId"]
    assert service.ask(f"/api/demo/imports/{id}", authorization=other).json == began.json
    assert service.ask(f"/api/demo/imports/{id}/errors", authorization=other).json["data"] == began.json["errors"]
    assert [each["importId"] for each in service.ask("/api/demo/imports", authorization=other).json["data"]] == [id]
    assert len(service.ask("/api/demo/imports").json["data"]) > 1, "the scope import shows all"
    assert service.ask("/api/demo/imports?limit=0", authorization=other).status == 400
    for path in (f"/api/demo/imports/{id}", f"/api/demo/imports/{id}/errors"):
        hidden = service.ask(path, authorization=proposer)
        missing = service.ask(path.replace(id, id[::-1][:8] + id[8:]), authorization=proposer)
        assert (hidden.status, missing.status) == (404, 404)
        assert hidden.json.keys() == missing.json.keys() and hidden.json["detail"] == f"company demo has no import {id}"
    assert service.ask(f"/api/demo/imports/{id}", "DELETE", authorization=other).status == 403


def test_it_gives_no_values_of_rows(service: Service, proposer: str) -> None:
    with_read = f"Bearer {service.operator.key('demo', scopes=('read', 'propose'))}"
    for key, shown in ((proposer, False), (with_read, True), (f"Bearer {service.key}", True)):
        report = propose(service, key, {"to": 0, "dryRun": True}, "revert").json
        again = service.ask(f"/api/demo/imports/{report['importId']}", authorization=key).json
        assert report["entities"]["units"]["deleted"] == again["entities"]["units"]["deleted"] == 1
        assert ("rows" in report, "rows" in again, "stored" in json.dumps([report, again])) == (shown, shown, shown)


def test_a_dry_run_has_at_most_10_mb(service: Service, proposer: str) -> None:
    body = json.dumps(DOCUMENT).encode()
    full = body + b" " * (10_000_000 - len(body))
    for headers in ({}, {"Idempotency_Key": "large"}):
        assert send(service, full, "/api/demo/import?dryRun=true", Authorization=proposer, **headers).status == 200
        reply = send(service, full + b" ", "/api/demo/import?dryRun=true", Authorization=proposer, **headers)
        assert (reply.status, reply.json["code"]) == (413, "too_large"), reply.json
    assert send(service, full + b" ", "/api/demo/import?dryRun=true").status == 200, "the scope import has no such bound"
    lines = b"code,name\nP," + b"p" * 10_000_000
    reply = send(service, lines, "/api/demo/import?dryRun=true&entity=units", Authorization=proposer, Content_Type="text/csv")
    assert reply.status == 413


@pytest.mark.parametrize("path", ["import?dryRun=true", "revert"])
def test_a_dry_run_has_the_turn_for_a_bounded_time(
    service: Service, module_database_url: str, proposer: str, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    assert proposal.TURN == 10
    monkeypatch.setattr(proposal, "TURN", 0.2)
    body = DOCUMENT if path.startswith("import") else {"to": 0, "dryRun": True}
    with psycopg.connect(module_database_url) as other:
        other.execute("select from data.units where company_id = 'demo' for update")
        reply = propose(service, proposer, body, path)
        assert (reply.status, reply.json["code"]) == (503, "busy") and "turn" in reply.json["detail"], reply.json
        assert service.operator.rows("select count(*) from bds.turns where company_id = 'demo'") == [(0,)]
        report = service.ask(f"/api/demo/imports/{reply.json['importId']}", authorization=proposer).json
        assert (report["state"], report["errors"][0]["code"]) == ("failed", "busy")
    assert service.operator.rows("select count(*) from pg_class where relnamespace = 'staging'::regnamespace") == [(0,)]
