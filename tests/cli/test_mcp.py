"""`bds mcp` as an assistant uses it: the package's own client, over standard input and output, against a running service."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app import extras
from app.cli import main, tools
from app.cli.remote import Remote
from app.errors import ServiceError
from app.resources import version
from tests.cli.test_commands import BDS, ROOT
from tests.feed.test_http import send
from tests.service.serving import Service, running, unused_port

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.processes

TOOLS = ["describe", "read", "history", "difference", "aggregate", "try_import"]
TEXT = "ä" * 40_000  # larger than an answer
Call = Callable[..., Awaitable[tuple[Any, bool]]]


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        service.operator.company("other")
        units = [{"code": f"U{n:03}", "name": f"unit {n}"} for n in range(250)]
        customers = [{"code": "C", "name": "c", "country": "AT"}, {"code": "D", "name": "d", "address": TEXT}]
        lines = [{"description": str(n), "price": n} for n in range(300)]
        orders = [
            {"code": f"O{n}", "orderDate": "2026-01-31", "customer": "code:C", "total": total} for n, total in enumerate(TOTALS)
        ]
        document = {"units": units, "customers": customers, "orders": [{**orders[0], "items": lines}, *orders[1:]]}
        assert send(service, json.dumps(document).encode()).status == 200
        assert send(service, b'{"units": [{"code": "U000", "name": "renamed"}]}').status == 200
        yield service


TOTALS = ("123456789012345.6789", "0.0001")


def ask(service: Service, key: str, work: Callable[[Call, Client], Awaitable[None]], *words: str) -> None:
    """Do the work with a server of its own, which has the key."""
    from mcp import Client, StdioServerParameters, stdio_client  # imported late: every process of pytest collects this file

    async def run() -> None:
        arguments = [*BDS[1:], "mcp", "--url", f"http://{service.host}:{service.port}", *words]
        server = StdioServerParameters(command=BDS[0], args=arguments, env={"BDS_KEY": key}, cwd=ROOT)
        async with Client(stdio_client(server)) as client:

            async def call(tool: str, **arguments: Any) -> tuple[Any, bool]:
                result = await client.call_tool(tool, arguments)
                (content,) = result.content
                assert len(content.text.encode()) <= 64_000 and result.structured_content is None
                return json.loads(content.text, parse_float=Decimal), result.is_error

            await work(call, client)

    asyncio.run(asyncio.wait_for(run(), 120))


def test_the_tools_answer_as_the_service_does(service: Service) -> None:
    async def work(call: Call, client: Client) -> None:
        assert client.server_info.version == version()
        page, is_error = await call("read", company="", entity="units", id="", version="", limit=1)
        assert len(page["data"]) == 1 and not is_error, "an empty text counts as none"
        listed = (await client.list_tools()).tools
        assert [each.name for each in listed] == TOOLS and all(each.description for each in listed)
        overview, _ = await call("describe")
        assert len(json.dumps(overview, ensure_ascii=False).encode()) <= 4_000 and len(overview["entities"]) == 9
        assert {
            "name": "units",
            "description": "Units of measure",
            "fields": ["id", "code", "name", "symbol", "updatedAt"],
        } in overview["entities"]
        orders, _ = await call("describe", entity="orders")
        assert orders["navigation"]["items"] == "orderItems" and orders["type"]["total"]["$Type"] == "Edm.Decimal"

        page, _ = await call("read", entity="units", filter="code >= 'U100'", sort="-code", limit=2)
        assert ([each["code"] for each in page["data"]], page["hasMore"], "truncated" in page) == (["U249", "U248"], True, False)
        row, _ = await call("read", entity="units", id="code:U000")
        assert row["row"]["name"] == "renamed"
        then, _ = await call("read", entity="units", id="code:U000", version=0)
        assert then["code"] == "not_found"
        history, _ = await call("history", entity="units", id=row["row"]["id"])
        assert [(each["operation"], each["old"]) for each in history["data"]] == [("update", {"name": "unit 0"}), ("create", None)]
        last = history["data"][0]["version"]
        before, _ = await call("read", entity="units", id="code:U000", version=last - 1)
        assert before["row"]["name"] == "unit 0"
        changed, _ = await call("difference", since=last - 1, entity="units")
        assert [(each["operation"], each["new"]) for each in changed["data"]] == [("update", {"name": "renamed"})]
        counts, _ = await call("difference", since="yesterday", version="now")
        assert counts["entities"]["units"] == {"created": 250, "updated": 0, "deleted": 0}
        nothing, _ = await call("difference", since="now", entity="units")
        assert (nothing["data"], nothing["since"]) == ([], counts["version"])
        sums, _ = await call("aggregate", entity="orders", apply="groupby((customer/country),aggregate(total with sum as amount))")
        assert sums["value"] == [{"customer": {"country": "AT"}, "amount": sum(map(Decimal, TOTALS))}], "to the last digit"
        then, _ = await call("aggregate", entity="orders", apply="aggregate($count as n)", version=0)
        assert then["value"] == [{"n": 0}]

    ask(service, service.operator.key("demo", scopes=("read",)), work, "--company", "demo")


def test_answers_are_bounded(service: Service) -> None:
    async def work(call: Call, _client: Client) -> None:
        for limit in ({}, {"limit": 201}, {"limit": "10000"}):
            page, _ = await call("read", entity="units", **limit)
            assert (len(page["data"]), page["hasMore"], page["truncated"]) == (200, True, True)
        page, _ = await call("read", entity="units", limit=200)
        assert (len(page["data"]), page["hasMore"], "truncated" in page) == (200, True, False)
        groups, _ = await call("aggregate", entity="units", apply="groupby((code))")
        assert (len(groups["value"]), groups["truncated"]) == (200, True)
        customers, _ = await call("read", entity="customers")
        assert ([each["code"] for each in customers["data"]], customers["hasMore"], customers["truncated"]) == (["C"], True, True)
        one, _ = await call("read", entity="customers", id="code:D")
        assert one["truncated"] and TEXT.startswith(one["row"]["address"].rstrip("…")) and len(one["row"]["address"]) > 20_000
        order, _ = await call("read", entity="orders", id="code:O0")
        assert order["truncated"] and len(order["row"]["items"]) == 200
        report, _ = await call("try_import", document={"units": [{"code": f"E{n}"} for n in range(300)], "@atomic": False})
        assert (report["errorCount"], len(report["errors"]), report["truncated"]) == (300, 200, True)

    ask(service, service.key, work, "--company", "demo")
    many = {"entities": [{"name": f"entity{n}", "description": "d" * 50, "fields": ["f"] * 20} for n in range(150)]}
    told = json.loads(overview := tools._fit_overview(many))
    assert (
        len(overview) <= 4_000
        and [each["name"] for each in told["entities"]] == [f"entity{n}" for n in range(150)]
        and told["truncated"]
    )
    assert json.loads(tools.fit({"row": {str(n): "x" for n in range(20_000)}})) == {"truncated": True}


def test_errors_are_those_of_the_service(service: Service) -> None:
    async def work(call: Call, _client: Client) -> None:
        wrong = []
        for tool, arguments, status, code, more in (
            ("read", {"entity": "units", "filter": "code ="}, 400, "malformed_query", {"target": "filter", "position": 7}),
            ("read", {"entity": "units", "limit": 0}, 400, "malformed_query", {"target": "limit"}),
            ("read", {"entity": "units", "limt": 1}, 400, "malformed_request", {"target": "limt"}),
            ("read", {"entity": "units", "limit": True}, 400, "malformed_request", {"target": "limit"}),
            ("read", {}, 400, "malformed_request", {"target": "entity"}),
            ("read", {"entity": ""}, 400, "malformed_request", {"target": "entity"}),
            ("history", {"entity": "units", "id": ""}, 400, "malformed_request", {"target": "id"}),
            ("describe", {"entity": "unts"}, 404, "not_found", {"detail": "no such entity: unts, did you mean units?"}),
            ("read", {"entity": "unts"}, 404, "not_found", {"detail": "no such entity: unts, did you mean units?"}),
            ("read", {"entity": "none"}, 404, "not_found", {}),
            ("read", {"entity": "units", "version": 1, "at": "2026-01-01"}, 400, "malformed_query", {}),
            ("read", {"entity": "units", "version": 10**9}, 404, "not_found", {}),
            ("read", {"entity": "changes", "id": "stream"}, 406, "not_acceptable", {}),
            ("describe", {"entity": "none"}, 404, "not_found", {}),
            ("history", {"entity": "units", "id": "code:none"}, 404, "not_found", {}),
            ("difference", {"since": "nothing"}, 404, "not_found", {}),
            ("difference", {"since": 0, "filter": "code = 'A'"}, 400, "malformed_query", {"target": "filter"}),
            ("aggregate", {"entity": "units", "apply": "group"}, 400, "malformed_query", {"target": "$apply"}),
            ("try_import", {"document": '{"units": ['}, 400, "malformed_document", {"line": 1, "column": 12}),
            ("try_import", {"document": {"nones": []}}, 400, "unknown_entity", {}),
            ("try_import", {"document": {"units": []}, "dryRun": "false"}, 400, "malformed_request", {"target": "dryRun"}),
            ("read", {"entity": "units", "company": "other"}, 403, "forbidden", {}),
            ("read", {"entity": "units", "company": "../x?y"}, 403, "forbidden", {}),
            ("write", {}, 404, "not_found", {}),
        ):
            told, is_error = await call(tool, **arguments)
            if not is_error or (told["status"], told["code"]) != (status, code) or not told.items() >= more.items():
                wrong.append((tool, arguments, told))
        assert not wrong

    ask(service, service.key, work, "--company", "demo")


def test_a_key_of_each_scope(service: Service) -> None:
    reading = {
        "describe": {},
        "read": {"entity": "units", "limit": 1},
        "history": {"entity": "units", "id": "code:U000"},
        "difference": {"since": 0},
    }
    calls = {
        **reading,
        "aggregate": {"entity": "units", "apply": "aggregate($count as n)"},
        "try_import": {"document": {"units": [{"code": "T", "name": "t"}]}},
    }
    for scope, allowed in (("read", {*TOOLS[:-1]}), ("propose", {"try_import"}), ("import", {"try_import"}), ("hooks", set())):

        async def work(call: Call, _client: Client, allowed: set[str] = allowed) -> None:
            told = {tool: await call(tool, company="demo", **arguments) for tool, arguments in calls.items()}
            assert {tool for tool, (_, is_error) in told.items() if not is_error} == allowed
            assert {answer["code"] for answer, is_error in told.values() if is_error} == {"forbidden"}
            if "try_import" in allowed:
                report = told["try_import"][0]
                assert (report["dryRun"], report["state"], report["entities"]["units"]["created"]) == (True, "completed", 1)
            without, is_error = await call("describe")
            assert is_error and without["target"] == "company"

        ask(service, service.operator.key("demo", scopes=(scope,)), work)
    assert service.operator.rows("select from data.units where code = 'T'") == []


def test_it_ends_with_standard_input_and_prints_nothing_else(service: Service, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{service.key}\n")
    words = [*BDS, "mcp", "--url", f"http://127.0.0.1:{unused_port()}", "--key-file", str(tmp_path / "key")]
    ended = subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, b"")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("BDS_KEY", "bds_k")
    monkeypatch.setattr(extras, "is_installed", lambda name: name != "mcp")
    with pytest.raises(SystemExit) as ended:
        main.main(["mcp"])
    assert ended.value.code == 2 and "expected --url URL" in capsys.readouterr().err
    assert main.main(["mcp", "--url", "http://127.0.0.1"]) == 2
    assert "pip install --find-links dist 'business-data-service[mcp]'" in capsys.readouterr().err


def test_what_cannot_be_sent_or_read_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Remote, "read", lambda *_, **__: b"<html>")
    for text, code in (("\ud800", "malformed_request"), ("units", "internal")):
        with pytest.raises(ServiceError) as refused:
            tools.run(Remote("http://127.0.0.1", "k"), "demo", "read", {"entity": text})
        assert refused.value.code == code
