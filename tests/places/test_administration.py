"""Places at the command line, and what stops a move: another one, a drained place, a lost slot, a target that cannot take the rows."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from app.cli.main import main
from app.database import connections, embedded
from app.database.servers.directory import HOME
from app.errors import ServiceError
from app.places import administration, balance, cluster, replication
from app.places.move import Move
from tests.auth.client import ask, bearer, make_user
from tests.conftest import TEMPLATE
from tests.places.conftest import COMPANY, Places, interrupt
from tests.service.serving import running, wait_until
from tests.service.standbys import standby_of
from tests.service.test_replicas import uri_of
from tests.web.test_access import PAGES
from tests.web.visitor import visitor

pytestmark = [pytest.mark.processes, pytest.mark.slow]

UNITS = "insert into data.units (code, name) select 'U' || n, 'unit' from generate_series(1, 100) n"


@pytest.fixture
def bds(pair: Places, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command; returns its exit code, its output and its messages."""
    monkeypatch.setenv("BDS_DATABASE_URL", pair.urls[HOME])

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(words)
        written = capsys.readouterr()
        return code, written.out, written.err

    return run


def test_a_company_is_created_used_and_deleted_at_a_place(pair: Places, bds: Any, tmp_path: Any) -> None:
    assert bds("company", "create", "acme", "--place", "west")[0] == 0
    assert pair.directory("acme") == ("west", None) and pair.writable("acme") == ["west"]
    assert bds("company", "create", "acme", "--place", "home")[0] == 1
    assert bds("company", "create", "beta", "--place", "east")[:2] == (1, "")
    file = tmp_path / "feed.json"
    file.write_text('{"units": [{"code": "A", "name": "a"}]}')
    assert bds("import", str(file), "--company", "acme")[0] == 0
    assert pair.west.rows("select code from data.units") == [("A",)]
    assert '"code":"A"' in bds("export", "units", "--company", "acme", "--format", "json")[1].replace(" ", "")
    assert bds("hook", "create", "https://93.184.215.14/", "--company", "acme", "--entity", "units")[0] == 0
    hook = str(pair.west.rows("select id from bds.hooks")[0][0])
    assert bds("hook", "disable", hook)[0] == 0
    assert bds("company", "dump", "acme", "--output", str(tmp_path / "acme.dump"))[0] == 0
    both = [json.loads(line) for line in bds("audit", "acme", "--limit", "5", "--json")[1].splitlines()]
    assert [(each["companyId"], each["action"], each["object"]) for each in both] == [
        ("", "dump", "company acme"), ("acme", "update", f"hook {hook}"), ("acme", "create", f"hook {hook}"),
        ("", "create", "company acme"), ("", "create", "place west"),
    ]  # fmt: skip
    assert both[3]["detail"]["new"]["place"] == "west"
    assert "acme" in bds("company", "list")[1] and "west" in bds("company", "list")[1]
    assert bds("query", "select code from data.units")[1].split() == ["code", "A"]
    code, out, _ = bds("place", "list")
    assert code == 0 and [line.split()[0] for line in out.splitlines()] == ["name", "home", "west"] and "serves" in out
    assert bds("company", "delete", "acme", "--yes")[0] == 0
    assert pair.west.rows("select from bds.companies") == pair.home.rows("select from bds.companies") == []
    assert bds("audit", "acme", "--limit", "1")[1].splitlines()[1].split()[3:6] == ["delete", "company", "acme"]
    assert bds("company", "create", "acme", "--place", "home")[0] == 0


def test_an_export_of_a_company_at_a_place_reads_no_replica_of_home(
    pair: Places, bds: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pair.company("west")
    pair.west.write(COMPANY, "insert into data.units (code, name) values ('U1', 'unit')")
    words = ("export", "units", "--format", "csv", "--select", "code", "--output", str(tmp_path / "units.csv"), "--company")
    with standby_of(pair.urls[HOME], "exports") as replica:
        monkeypatch.setenv("BDS_READ_DATABASE_URL", uri_of(replica))
        monkeypatch.setenv("BDS_READ_MAX_LAG", "3600")
        assert bds(*words, COMPANY)[0] == 0
        assert (tmp_path / "units.csv").read_text(encoding="utf-8-sig").split() == ["code", "U1"]
        pair.company(HOME, "other")
        wait_until(lambda: replica.query("select count(*) from bds.clocks where company_id = 'other'") == 1)
        with replica.paused():
            pair.home.write("other", "insert into data.units (code, name) values ('U2', 'unit')")
            assert bds(*words, "other")[0] == 0
        assert (tmp_path / "units.csv").read_text(encoding="utf-8-sig").split() == ["code"], "companies of home are read there"


@pytest.mark.parametrize("step", ["departed", "unsubscribed"])
def test_a_snapshot_at_a_place_without_the_company_is_refused(pair: Places, step: str) -> None:
    """A company that is leaving is read where it was; once it has gone, its rows there are no empty company."""

    async def count(place: str) -> int:
        async with connections.snapshot(pair.urls[place], COMPANY) as (connection, _):
            cursor = await connection.execute("select count(*) from api.units")
            return int((await cursor.fetchone() or (0,))[0])

    pair.company(HOME)
    pair.home.write(COMPANY, UNITS)
    interrupt(pair, step)
    assert asyncio.run(count(HOME if step == "departed" else "west")) == 100
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.resume()
    with pytest.raises(psycopg.Error, match="at another place") as refused:
        asyncio.run(count(HOME))
    assert refused.value.sqlstate == "BD002"


def test_the_doctor_examines_every_place(pair: Places, bds: Any, tmp_path: Path) -> None:
    assert bds("doctor")[0] == 0
    pair.west.connection.execute("alter table data.units disable trigger bds_log_insert")
    code, out, _ = bds("doctor", "--json")
    assert code == 1
    [problem] = json.loads(out)["problems"]
    assert (problem["place"], problem["kind"], problem["entity"]) == ("west", "disabled trigger", "units")
    assert "(place west, entity units)" in " ".join(bds("doctor")[1].split())
    pair.west.connection.execute("alter table data.units enable trigger bds_log_insert")
    pair.home.connection.execute("insert into bds.places (name, url) values ('gone', 'postgresql://nobody@127.0.0.1:1/bds')")
    code, out, _ = bds("doctor", "--json")
    [problem] = json.loads(out)["problems"]
    assert code == 1 and (problem["place"], problem["kind"], problem["object"]) == ("gone", "place away", "gone")
    assert problem["mend"] is None, "a statement mends nothing here"
    pair.home.rows("select bds.maintain(seal_age => '0')"), pair.west.rows("select bds.maintain(seal_age => '0')")
    code, out, err = bds("doctor", "--print-heads")
    heads = [json.loads(line) for line in out.splitlines()]
    assert code == 1 and "gone cannot be reached" in err and [each.get("place") for each in heads] == [None, "west"]
    (tmp_path / "heads").write_text(out)
    assert len(json.loads(bds("doctor", "--json", "--head", str(tmp_path / "heads"))[1])["problems"]) == 1
    pair.west.connection.execute("delete from bds.seals")
    [_, problem] = json.loads(bds("doctor", "--json", "--head", str(tmp_path / "heads"))[1])["problems"]
    assert (problem["place"], problem["kind"]) == ("west", "log altered")


def test_an_administrator_creates_a_company_at_a_place_on_the_page(pair: Places) -> None:
    pair.company(HOME)
    with running(pair.urls[HOME], company=None) as service:
        make_user(service, "boss@example.com", COMPANY)
        pair.home.rows("select bds.set_access('boss@example.com', %s, true)", ([COMPANY],))
        boss = visitor(service, "boss@example.com")
        wait_until(lambda: len(boss.get("/companies").tree.xpath("//select[@id='place']/option")) == 3)
        refused = boss.post("/companies", {"id": "acme", "place": "east"})
        assert "no such place: 'east'" in refused.problems[0] and pair.writable("acme") == []
        pair.west.rows("select bds.create_company('acme', 'left')")  # by an attempt that did not get to home
        boss.post("/companies", {"id": "acme", "tenant": "t", "place": "west", "mine": "yes"})
        assert pair.directory("acme") == ("west", None) and pair.writable("acme") == ["west"]
        assert pair.west.rows("select tenant_id from bds.companies") == [("t",)]
        pair.west.write("acme", UNITS)
        wait_until(lambda: boss.get("/data/units?company=acme").status == 200)
        assert "U1" in boss.get("/data/units?company=acme").text
        [newest, _] = ask(service, "/c/acme/audit?limit=2", headers=boss.headers).json["data"]
        assert (newest["object"], newest["actor"]) == ("user boss@example.com", "user boss@example.com")
        mapper = "type csv\nunits = 'row' {\n    code = 'Code'\n}\n"
        sent = {**boss.headers, "X-CSRF-Token": boss.csrf, "Content-Type": "text/plain"}
        assert ask(service, "/api/acme/mappers/m", "PUT", sent, mapper).status == 201
        [newest, older] = ask(service, "/c/acme/audit?limit=2", headers=boss.headers).json["data"]
        assert (newest["companyId"], newest["object"], older["companyId"]) == ("acme", "mapper m", "")
        assert "acme t 1 at west" in boss.get("/companies").one("//tbody/tr[th/a='acme']")
        again = boss.post("/companies", {"id": "acme", "place": "west"})
        assert again.status == 409
        boss.post("/companies/acme/delete", {"confirm": "acme"})
        assert pair.west.rows("select from bds.companies") == pair.west.rows("select from data.units") == []
        assert pair.home.rows("select from bds.companies where id = 'acme'") == pair.home.rows("select from bds.directory") == []
        pair.home.rows("update bds.places set is_draining = true where name = 'west' returning name")
        assert not boss.get("/companies").tree.xpath("//select[@id='place']")


def test_a_company_that_is_created_again_begins_after_the_generations_of_those_before_at_any_place(pair: Places, bds: Any) -> None:
    generations = []
    for place in ("west", "home", "west", "west"):
        assert bds("company", "create", "acme", "--place", place)[0] == 0
        if not generations:
            pair.west.rows("select bds.after_restore()")
        generations += pair.at(place).rows("select generation from bds.company_positions where company_id = 'acme'")
        assert bds("company", "delete", "acme", "--yes")[0] == 0
    assert generations == [(2,), (3,), (4,), (5,)]


def test_the_service_deletes_a_company_at_a_place_when_an_administrator_at_home_does(pair: Places) -> None:
    pair.company("west", "acme")
    pair.company("west", "beta")
    [(seconds, seal)] = pair.home.rows(
        "select t.n, bds_operation.seal(p.secret, 'acme', t.n)"
        " from bds.places p, (select extract(epoch from now())::bigint) t (n) where p.name = 'west'"
    )
    forged = bytes.fromhex(seal)[::-1].hex()
    with psycopg.connect(pair.urls["west"], autocommit=True) as service:
        service.execute("set role bds_service")
        for company, release in (
            ("acme", None), ("acme", ""), ("acme", f"{seconds} {forged}"), ("acme", f"{seconds - 1000} {seal}"),
            ("beta", f"{seconds} {seal}"),
        ):  # fmt: skip
            service.execute("select set_config('bds.release', %s, false)", (release,))
            with pytest.raises(psycopg.Error) as refused:
                service.execute("select bds.delete_company(%s)", (company,))
            assert refused.value.sqlstate == "BD001", release
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            service.execute("select secret from bds.places")
        service.execute("select set_config('bds.release', %s, false)", (f"{seconds} {seal}",))
        service.execute("select bds.delete_company('acme')")
    assert pair.west.rows("select id from bds.companies") == [("beta",)]


def test_an_import_of_the_command_line_waits_while_its_company_is_between_two_places(
    pair: Places, bds: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.database.connections.DEPARTURE", 600.0)
    pair.company(HOME)
    interrupt(pair, "departed")
    file = tmp_path / "feed.json"
    file.write_text('{"units": [{"code": "A", "name": "a"}]}')
    with ThreadPoolExecutor(1) as pool:
        importing = pool.submit(bds, "import", str(file), "--company", COMPANY)
        looks = "select from pg_stat_activity where query ~ 'phase is not distinct from' and pid <> pg_backend_pid()"
        wait_until(lambda: bool(pair.home.rows(looks)))
        assert not importing.done()
        with Move.of(pair.urls, COMPANY, lambda _: None) as move:
            move.resume()
        assert importing.result()[0] == 0
    assert pair.writable() == ["west"] and pair.west.rows("select code from data.units") == [("A",)]
    monkeypatch.setattr("app.database.connections.DEPARTURE", 0.0)
    interrupt(pair, "departed", HOME)
    code, _, message = bds("import", str(file), "--company", COMPANY)
    assert code == 1 and "is being moved" in message
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.abort()


def test_a_company_that_is_being_moved_is_not_deleted(pair: Places, bds: Any) -> None:
    pair.company(HOME)
    interrupt(pair, "copied")
    code, _, message = bds("company", "delete", COMPANY, "--yes")
    assert code == 1 and "is being moved" in message and "--abort" in message
    assert pair.writable() == [HOME]
    assert bds("company", "move", COMPANY, "--abort")[0] == 0
    assert bds("company", "delete", COMPANY, "--yes")[0] == 0
    assert pair.home.rows("select from bds.companies") == []


def test_a_company_in_use_at_a_place_is_not_taken_by_another_attempt(pair: Places) -> None:
    pair.west.rows("select bds.create_company('acme')")
    pair.west.write("acme", UNITS)
    with pytest.raises(psycopg.Error) as raised:
        pair.company("west", "acme")
    assert raised.value.sqlstate == "BD004" and pair.home.rows("select from bds.companies") == []


def test_a_place_is_drained(pair: Places, bds: Any) -> None:
    for company in ("one", "two"):
        pair.company("west", company)
        pair.west.write(company, UNITS)
    code, _, messages = bds("place", "drain", "west")
    assert code == 1 and "no place but west and home" in messages, "home is left alone"
    assert "draining" not in bds("place", "list")[1], "nothing could move"
    with pytest.raises(SystemExit, match="2"):
        bds("place", "drain", "west", "--to", "east")
    code, _, messages = bds("place", "drain", "west", "--to", HOME)
    assert code == 0 and "one goes to home" in messages and "% of the rows" in messages
    assert pair.writable("one") == pair.writable("two") == [HOME]
    assert "draining" in bds("place", "list")[1]
    assert bds("company", "create", "three")[0] == 0
    assert pair.directory("three")[0] == HOME
    with pytest.raises(SystemExit, match="2"):
        bds("place", "drain", "west", "--end", "--to", HOME)
    assert bds("place", "drain", "west", "--end")[0] == 0
    assert "draining" not in bds("place", "list")[1]
    assert bds("place", "drain", "east", "--end")[0] == 1


def test_home_is_not_drained_while_it_is_the_only_place(pair: Places, bds: Any) -> None:
    pair.home.rows("delete from bds.places where name = 'west' returning name")
    assert bds("company", "create", "acme")[0] == 0
    code, _, messages = bds("place", "drain", HOME)
    assert code == 1 and "no place but home can take acme: add one" in messages and "goes to" not in messages
    assert "draining" not in bds("place", "list")[1]


def test_a_place_is_drained_of_companies_on_their_way_to_it(pair: Places, bds: Any) -> None:
    pair.company(HOME)
    pair.company(HOME, "other")
    interrupt(pair, "copied")
    interrupt(pair, "switched", company="other")
    code, _, messages = bds("place", "drain", "west", "--to", HOME)
    assert code == 0 and "demo stays at home" in messages and "other goes on" in messages and "other goes to home" in messages
    assert pair.writable() == pair.writable("other") == [HOME]
    assert pair.home.rows("select from bds.directory where phase is not null or target = 'west'") == []


def test_home_serves_when_all_companies_live_elsewhere(pair: Places, bds: Any) -> None:
    for company in (COMPANY, "other"):
        pair.company(HOME, company)
        pair.home.write(company, UNITS)
    assert bds("place", "drain", HOME)[0] == 0
    assert pair.home.rows("select from bds.residents") == [] and len(pair.west.rows("select from bds.residents")) == 2
    with running(pair.urls[HOME], company=None) as service:
        make_user(service, "boss@example.com", COMPANY)
        pair.home.rows("select bds.set_access('boss@example.com', %s, true)", ([COMPANY, "other"],))
        boss = visitor(service, "boss@example.com")
        for path in (*PAGES, "/companies", "/users", "/data/units/1", "/changes/units/1", "/diff?since=1"):
            page = boss.get(f"{path}{'&' if '?' in path else '?'}company={COMPANY}")
            assert page.status == 200, path
        assert "100" in boss.get("/").text and "U7" in boss.get(f"/data/units?company={COMPANY}").text
        assert boss.get("/").all("//table[.//th='Company']/tbody/tr") == ["demo at west –", "other at west –"]
        make_user(service, "anna@example.com", COMPANY)
        pair.home.connection.execute("update bds.problem_counts set counts = '{\"place away\": 1}'")
        said = ["bds doctor" in each.get("/").text for each in (boss, visitor(service, "anna@example.com"))]
        assert said == [True, False], "only a user of every company is told how many problems there are"
        for path in ("/api/odata/demo/units?$top=1", "/api/odata/demo/$metadata", "/c/demo", "/c/demo/units?limit=1", "/readyz",
            "/c/demo/units?since=1", "/c/demo/diff?since=1", "/c/demo/changesets", "/api/demo/units?export=true&format=csv",
            "/metrics", "/c/demo/hooks", "/api/demo/mappers", "/api/demo/versions"):  # fmt: skip
            assert service.ask(path).status == 200, path
        documents = {"units": [{"code": "new", "name": "new"}]}
        assert ask(service, "/api/demo/import", "POST", bearer(service.key), documents).json["state"] == "completed"
        boss.post("/companies", {"id": "acme", "tenant": "", "place": "", "mine": "yes"})
        assert pair.directory("acme") == ("west", None), "home is drained"
    steps = pair.home.rows("select step, problem from bds.maintain(compare_age => '0', seal_age => '0') where problem is not null")
    assert steps == [] and bds("doctor", "--deep")[0] == 0
    for words in (["company", "list"], ["key", "list"], ["query", "select count(*) from data.units"], ["audit", COMPANY],
        ["place", "rebalance", "--plan"], ["hook", "list", "--company", COMPANY], ["version", "list", COMPANY]):  # fmt: skip
        assert bds(*words)[0] == 0, words
    assert bds("query", "select count(*) from data.units")[1].split() == ["count", "201"]


def test_places_are_rebalanced_by_bytes_and_changes(pair: Places, bds: Any) -> None:
    for company, rows in (("large", 900), ("middle", 700), ("small", 200)):
        pair.company(HOME, company)
        for _ in range(rows // 100):
            pair.home.write(company, UNITS.replace("'U'", "gen_random_uuid()::text"))
    code, planned, _ = bds("place", "rebalance", "--plan")
    assert code == 0 and [line.split()[:3] for line in planned.splitlines()[1:]] == [["large", "home", "west"]]
    assert int(planned.split()[-1].replace(",", "")) == 900 and pair.writable("large") == [HOME]
    interrupt(pair, "copied", company="small")
    code, moved, messages = bds("place", "rebalance")
    assert code == 0 and "small goes on" in messages
    assert [pair.writable(company) for company in ("large", "middle", "small")] == [[HOME], ["west"], ["west"]]
    assert [line.split()[:3] for line in moved.splitlines()[1:]] == [["middle", "home", "west"]]
    code, planned, messages = bds("place", "rebalance", "--plan")
    assert (code, planned) == (0, "") and "every place has its share" in messages
    pair.home.connection.execute("insert into bds.places (name, url) values ('gone', 'postgresql://nobody@127.0.0.1:1/bds')")
    code, _, messages = bds("place", "rebalance", "--plan")
    assert code == 1 and "the place gone does not answer" in messages


@pytest.mark.parametrize(
    ("companies", "places", "expected"),
    [
        # name, place, bytes, changes
        ([("a", HOME, 10, 0), ("b", HOME, 10, 0)], [HOME], []),
        ([("a", "west", 10, 0), ("b", "west", 10, 0)], [HOME, "west"], []),  # home gets none
        ([("a", "west", 10, 0), ("b", "west", 10, 0)], ["east", "west"], [("a", "east")]),
        ([("a", "west", 90, 0), ("b", "west", 10, 0)], ["east", "west"], [("b", "east")]),
        ([("a", "west", 100, 0)], ["east", "west"], []),  # nothing is gained
        ([("a", "west", 50, 90), ("b", "west", 50, 5), ("c", "west", 50, 5)], ["east", "west"], [("a", "east")]),
        ([("a", "west", 10, 0), ("b", "old", 90, 0)], ["east", "west"], []),  # one that is drained is no other place's matter
        ([("a", HOME, 30, 0), ("b", HOME, 30, 0), ("c", HOME, 30, 0)], [HOME, "west", "east"], [("a", "west"), ("b", "east")]),
        ([], ["east", "west"], []),
    ],
)
def test_what_moves_makes_places_even(companies: list[Any], places: list[str], expected: list[tuple[str, str]]) -> None:
    steps = balance.choose([balance.Company(*each) for each in companies], places)
    assert [(step.company.name, step.target) for step in steps] == expected


def test_a_file_runs_at_every_place_and_an_error_names_the_place(pair: Places, bds: Any, tmp_path: Any) -> None:
    file = tmp_path / "tables.sql"
    file.write_text("create table data.extra (n int)")
    assert bds("sql", str(file))[0] == 0
    for operator in (pair.home, pair.west):
        assert operator.rows("select to_regclass('data.extra')::text") == [("data.extra",)]
    code, _, messages = bds("sql", str(file))
    assert code == 1 and "west" in messages and "extra" in messages


def test_a_database_is_a_place_once(pair: Places) -> None:
    with pytest.raises(ServiceError, match="place 'west' already"):
        administration.add(pair.urls[HOME], "east", pair.urls["west"])
    pair.company(HOME)
    with pytest.raises(ServiceError, match="without companies"):
        administration.add(pair.urls[HOME], "east", pair.urls[HOME])


def test_a_table_that_keeps_a_database_from_being_added_is_named_with_its_mend(
    pair: Places, bds: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, drop = "db-3", "alter table data.units drop column symbol cascade"
    reason = (
        "1 entity is not up to date:\n"
        "  units: column symbol was dropped; mend: select bds.register('data.units', entity => 'units', singular => 'unit')\n"
    )
    pair.west.connection.execute("create database another template " + TEMPLATE)
    another = make_conninfo(pair.urls["west"], dbname="another")
    with psycopg.connect(another, autocommit=True) as connection:
        connection.execute(drop)
    try:
        assert bds("place", "add", "north", another) == (1, "", f"bds: north was not added: in its database {reason}")
        # Citus is elsewhere (tests/citus)
        monkeypatch.setattr(cluster, "is_coordinator", lambda _: True)
        monkeypatch.setattr(cluster, "find_nodes", lambda _: {})
        monkeypatch.setattr(cluster, "_name_coordinator", lambda _: None)
        monkeypatch.setattr(cluster, "_require_suitable", lambda *_: None)
        monkeypatch.setattr(cluster, "_url", lambda *_: another)
        monkeypatch.setattr(cluster, "NUMBER", "select 0")
        assert bds("node", "add", host) == (1, "", f"bds: {host} was not added: in its database {reason}")
        pair.home.connection.execute(drop)
        assert bds("node", "add", host) == (1, "", f"bds: {host} was not added: at home {reason}")
    finally:
        pair.west.connection.execute("drop database another with (force)")


def test_two_moves_of_a_company_at_once(pair: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    pair.company(HOME)
    with Move.of(pair.urls, COMPANY, lambda _: None), monkeypatch.context() as hasty:
        hasty.setattr("app.places.move.TURN", 0.1)
        with pytest.raises(ServiceError, match="another process"), Move.of(pair.urls, COMPANY, lambda _: None):
            pass
    interrupt(pair, "copied")
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        with pytest.raises(ServiceError, match="--resume or --abort"):
            move.start("west")
        with pytest.raises(psycopg.Error):
            pass_through(pair)
        move.abort()
    assert pair.writable() == [HOME]


def pass_through(pair: Places) -> None:
    """Two clocks of one company: the target refuses to clear a company that lives there."""
    pair.home.rows("select bds_operation.clear_company(%s)", (COMPANY,))


def test_two_companies_move_at_once(pair: Places) -> None:
    companies = ("one", "two")
    for company in companies:
        pair.company(HOME, company)
        pair.home.write(company, UNITS)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda company: pair.move("west", company), companies))
    assert [pair.writable(company) for company in companies] == [["west"]] * 2
    assert pair.west.rows("select company_id, count(*) from data.units group by 1 order by 1") == [("one", 100), ("two", 100)]


def test_a_company_moves_to_no_place_of_another_version(pair: Places, bds: Any) -> None:
    pair.company(HOME)
    pair.west.connection.execute("update public.bds_migrations set checksum = md5(checksum)")
    with pytest.raises(ServiceError, match="another version"):
        pair.move("west")
    assert pair.writable() == [HOME] and pair.directory() == (HOME, None)
    assert "another version" in bds("place", "list")[1]


def test_the_share_of_copied_rows_is_below_all_of_them_until_the_end() -> None:
    expected = {"a": 900.0, "b": 100.0, "c": 0.0}
    for copied, share in (({}, 0), ({"a": 450}, 45), ({"a": None}, 90), ({"a": None, "b": 5_000}, 99), ({"c": None}, 0)):
        assert replication.share(expected, copied) == share
    assert replication.share({}, {}) == 0


def test_what_cannot_be_moved_is_refused_before_anything_is_noted(pair: Places) -> None:
    pair.company(HOME)
    for target, why in (("east", "no such place"), (HOME, "at home already")):
        with pytest.raises(ServiceError, match=why):
            pair.move(target)
    with pytest.raises(ServiceError, match="no such company"):
        pair.move("west", "nobody")
    with Move.of(pair.urls, COMPANY, lambda _: None) as move, pytest.raises(ServiceError, match="is not being moved"):
        move.resume()
    pair.west.connection.execute("alter table data.units add column extra text")
    with pytest.raises((ServiceError, psycopg.Error), match=r"units|entities"):
        pair.move("west")
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        if move.phase:
            move.abort()
    assert pair.writable() == [HOME]


def test_a_lost_slot_is_named_and_the_rows_are_copied_again(pair: Places) -> None:
    pair.company(HOME)
    pair.home.write(COMPANY, UNITS)
    interrupt(pair, "copied")
    [(name,)] = pair.home.rows("select slot_name from pg_replication_slots where database = current_database()")
    pair.west.connection.execute(sql.SQL("alter subscription {} disable").format(sql.Identifier(name)))
    pair.home.rows(
        "select pg_terminate_backend(active_pid, 5000) from pg_replication_slots where slot_name = %s and active", (name,)
    )
    pair.home.rows("select pg_drop_replication_slot(%s)", (name,))
    assert pair.writable() == [HOME]
    pair.home.write(COMPANY, "insert into data.units (code, name) values ('LATE', 'late')")
    pair.west.connection.execute(sql.SQL("alter subscription {} set (slot_name = none)").format(sql.Identifier(name)))
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.resume()
    assert pair.writable() == ["west"]
    assert pair.west.rows("select count(*) from data.units") == [(101,)]


def test_a_target_that_cannot_take_the_rows_leaves_the_company_where_it_is(pair: Places) -> None:
    pair.company(HOME)
    pair.home.write(COMPANY, UNITS)
    # as on a full disk: each row is refused with its SQLSTATE
    pair.west.connection.execute(
        "create function public.is_full() returns trigger language plpgsql as"
        " $$ begin raise disk_full using message = 'could not extend file: No space left on device'; end $$;"
        " create trigger is_full before insert on data.units for each row execute function public.is_full();"
        " alter table data.units enable always trigger is_full"
    )
    with pytest.raises(ServiceError, match="could not take the rows") as refused:
        pair.move("west")
    assert "--abort" in refused.value.message
    assert pair.writable() == [HOME] and pair.directory() == (HOME, "copying")
    pair.home.write(COMPANY, "insert into data.units (code, name) values ('LATE', 'late')")
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.abort()
    assert pair.writable() == [HOME] and pair.directory() == (HOME, None)
    pair.west.connection.execute("drop trigger is_full on data.units")
    pair.move("west")
    assert pair.west.rows("select count(*) from data.units") == [(101,)]


@pytest.fixture
def small_disk(pair: Places) -> Iterator[str]:
    """A tablespace at west on a disk of a megabyte."""
    directory, name = Path(tempfile.mkdtemp(prefix="bds-disk-")), f"small_{os.getpid()}"
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "none", directory], capture_output=True, check=False
    )
    try:
        if not mounted or mounted.returncode:
            pytest.skip("a file system cannot be mounted here")
        shutil.chown(directory, embedded._system_user())
        pair.west.connection.execute(sql.SQL("create tablespace {} location {}").format(sql.Identifier(name), str(directory)))
        yield name
        pair.west.connection.execute("alter table data.units set tablespace pg_default")
        pair.west.connection.execute(sql.SQL("drop tablespace {}").format(sql.Identifier(name)))
    finally:
        subprocess.run(["umount", directory], capture_output=True, check=False)
        directory.rmdir()


def test_a_full_disk_at_the_target_leaves_the_company_where_it_is(pair: Places, small_disk: str) -> None:
    pair.company(HOME)
    units = "insert into data.units (code, name) select 'U' || n, repeat('x', 200) from generate_series(1, 10000) n"
    pair.home.write(COMPANY, units)
    pair.west.connection.execute(sql.SQL("alter table data.units set tablespace {}").format(sql.Identifier(small_disk)))
    with pytest.raises(ServiceError, match="could not take the rows"):
        pair.move("west")
    assert pair.writable() == [HOME] and pair.directory() == (HOME, "copying")
    pair.home.write(COMPANY, "insert into data.units (code, name) values ('LATE', 'late')")
    pair.west.connection.execute("alter table data.units set tablespace pg_default")
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.resume()
    assert pair.writable() == ["west"]
    assert pair.west.rows("select count(*) from data.units") == [(10001,)]


def test_a_writer_in_its_turn_delays_the_departure(pair: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.places.move.LEAVE_TIMEOUT", 0.0)
    pair.company(HOME)
    with psycopg.connect(pair.urls[HOME]) as writer:

        def write(step: str = "copied", code: str = "A") -> None:
            if step == "copied":
                writer.execute("select bds.set_context(%s)", (COMPANY,))
                writer.execute("insert into data.units (code, name) values (%s, 'a')", (code,))

        with pytest.raises(ServiceError, match="a writer in its turn"):
            pair.move("west", say=write)
        assert pair.directory() == (HOME, "copying")
        writer.commit()
        write(code="B")
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.resume()
    assert pair.writable() == ["west"]
    assert pair.west.rows("select code from data.units order by code") == [("A",), ("B",)]


def test_an_import_under_way_delays_the_departure(pair: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.places.move.LEAVE_TIMEOUT", 0.0)
    pair.company(HOME)
    [(number,)] = pair.home.write(COMPANY, "select bds.import_begin(%s, 'me')", (COMPANY,))
    with pytest.raises(ServiceError, match="imports under way") as refused:
        pair.move("west")
    assert refused.value.code == "busy"
    assert pair.writable() == [HOME] and pair.directory() == (HOME, "copying")
    pair.home.write(COMPANY, "select bds.import_fail(%s, %s, 'failed', 'aborted', 'test')", (COMPANY, number))
    with Move.of(pair.urls, COMPANY, lambda _: None) as move:
        move.resume()
    assert pair.writable() == ["west"]
    assert pair.west.rows("select state from bds.imports") == [("failed",)]
