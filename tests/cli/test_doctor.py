"""bds doctor: problems on standard output, in lines that fit the terminal, and the exit code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from app.cli import doctor, heads
from app.cli.main import main
from app.errors import ServiceError
from tests.conftest import Operator
from tests.database.test_compare_log import NOT_COMPARED, unlogged


@pytest.fixture
def bds(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    monkeypatch.setenv("BDS_DATABASE_URL", database_url)

    def run(*arguments: str, width: int = 80) -> tuple[int, str]:
        monkeypatch.setenv("COLUMNS", str(width))
        code = main(["doctor", *arguments])
        return code, capsys.readouterr().out

    return run


def test_a_sound_database_has_no_problems(bds: Callable[..., tuple[int, str]]) -> None:
    assert bds() == (0, "no problems; rows were never compared with the change log: bds doctor --deep\n")
    code, text = bds("--deep")
    assert code == 0 and text.startswith("no problems; rows were compared with the change log at 20")
    code, text = bds("--json")
    assert code == 0 and json.loads(text)["problems"] == []


def test_problems_fit_the_terminal_and_name_their_mend(operator: Operator, bds: Callable[..., tuple[int, str]]) -> None:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    operator.connection.execute("alter table data.units disable trigger bds_log_insert; alter table data.orders add column x int")
    unlogged(operator.connection, "update data.units set name = 'B'")
    code, text = bds()
    assert code == 1 and "2 problems" in text and "unlogged" not in text
    for width in (40, 80, 200):
        code, text = bds("--deep", width=width)
        assert code == 1 and "3 problems" in text
        assert all(len(line) <= width or " " not in line.strip() for line in text.splitlines()), width
        words = " ".join(text.split())
        assert "mend: alter table data.units enable trigger bds_log_insert;" in words, width
        assert "unlogged update: data.units (company acme, entity units)" in words, width
        assert "mend: select bds.compare_log('acme', 'units', record => true);" in words, width


def test_an_entity_that_cannot_be_compared_is_a_problem_beside_those_of_the_others(
    operator: Operator, bds: Callable[..., tuple[int, str]]
) -> None:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    operator.connection.execute(NOT_COMPARED.format("categories").encode())
    unlogged(operator.connection, "update data.units set name = 'B'")
    code, text = bds("--deep", "--json")
    found = [(problem["kind"], problem["object"]) for problem in json.loads(text)["problems"]]
    assert code == 1 and found == [
        ("not compared", "data.categories"),
        ("unknown trigger", "refuse on bds.log_comparisons"),
        ("unlogged update", "data.units"),
    ]


def test_problems_as_json(operator: Operator, bds: Callable[..., tuple[int, str]]) -> None:
    operator.connection.execute("alter table data.units disable trigger bds_log_insert")
    code, text = bds("--json")
    found: Any = json.loads(text)
    assert code == 1 and found["comparedAt"] is None
    assert found["problems"] == [
        {
            "place": "home",
            "kind": "disabled trigger",
            "companyId": None,
            "entity": "units",
            "object": "bds_log_insert on data.units",
            "detail": "writes are not logged as they should be",
            "mend": "alter table data.units enable trigger bds_log_insert",
        }
    ]


def test_the_time_in_json_is_that_of_every_interface() -> None:
    at = datetime(2026, 11, 22, 5, 0, tzinfo=timezone(timedelta(hours=2)))
    assert json.loads(doctor.as_json([], at)) == {"problems": [], "comparedAt": "2026-11-22T03:00:00.000000Z"}
    assert "at 2026-11-22 03:00Z" in doctor.as_text([], at)


def test_what_a_person_decides_has_no_mend_and_a_command_is_printed_as_it_is_typed() -> None:
    problem = {"place": "home", **dict.fromkeys(doctor.COLUMNS), "kind": "altered role", "object": "bds_reader", "detail": "d"}
    assert "mend" not in doctor.as_text([problem], None)
    assert "  mend: bds migrate\n" in doctor.as_text([{**problem, "mend": "bds migrate"}], None)


def test_control_characters_do_not_reach_the_terminal() -> None:
    problem = dict.fromkeys(("place", *doctor.COLUMNS), "x\x1b[31m")
    assert "\x1b" not in doctor.as_text([problem], None) and os.linesep in doctor.as_text([problem], None)


@pytest.mark.parametrize("options", [("--head", "heads.jsonl"), ("--head", ""), ("--deep",), ("--json",)])
def test_heads_are_printed_and_nothing_else_is_done(
    bds: Callable[..., tuple[int, str]], options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        bds("--print-heads", *options)
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert f"--print-heads: expected it alone, got {options[0]} beside it" in said.err


def test_a_file_of_heads_without_a_name_is_an_error(
    bds: Callable[..., tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert bds("--head", "")[0] == 1


def test_heads_that_are_kept_elsewhere_tell_whether_a_log_was_rebuilt(
    operator: Operator, bds: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    for company in ("acme", "beta"):
        operator.company(company)
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    operator.connection.execute("select bds.maintain(seal_age => '0')")
    code, text = bds("--print-heads")
    server, acme = (json.loads(line) for line in text.splitlines())
    [(hash,)] = operator.rows("select encode(hash, 'hex') from bds.log_head('acme')")
    assert code == 0 and acme == {"company": "acme", "version": 1, "hash": hash}
    assert server["company"] == "" and server["hash"] is None and server["audit"]["version"] == 2
    kept = tmp_path / "heads.jsonl"
    kept.write_text(text)
    operator.write("acme", "insert into data.units (code, name) values ('b', 'B')")
    operator.connection.execute("select bds.maintain(seal_age => '0')")
    assert bds("--head", str(kept))[0] == 0, "the chain has grown"
    operator.connection.execute("delete from bds.seals where company_id = 'acme'; delete from bds.seal_positions")
    operator.connection.execute("update bds.change_log set actor = 'x'; select bds.maintain(seal_age => '0')")
    assert operator.rows("select * from bds.verify_log('acme')") == []
    code, text = bds("--head", str(kept), "--json")
    [problem] = json.loads(text)["problems"]
    assert code == 1 and (problem["kind"], problem["companyId"]) == ("log altered", "acme")
    assert problem["object"] == "bds.changes 1-1" and hash[:16] in problem["detail"]
    operator.delete_company("acme")
    assert "no company of this id lives here" in " ".join(bds("--head", str(kept))[1].split())


# rebuilt with other ranges; the kept head's seal as it was, with another first id, or its hash alone
BACK = "insert into bds.seals select * from kept where first_id = 2"
FAKED = {
    "a seal that follows no other": BACK,
    "a seal with another first id": "delete from bds.seals where log = 'changes'; update kept set first_id = 1 where first_id = 2;"
    "insert into bds.seals select * from kept where first_id = 1 and last_id = 2",
    "a hash that is not of the seal": "update bds.seals s set hash = k.hash from kept k where s.last_id = 2 and k.last_id = 2",
}


@pytest.mark.parametrize("fake", FAKED)
def test_a_head_that_stands_outside_the_chain_is_not_contained(
    operator: Operator, bds: Callable[..., tuple[int, str]], tmp_path: Path, fake: str
) -> None:
    operator.company("acme")
    for code in ("a", "b"):
        operator.write("acme", "insert into data.units (code, name) values (%s, 'U')", (code,))
        operator.connection.execute("select bds.maintain(seal_age => '0')")
    kept = tmp_path / "heads.jsonl"
    kept.write_text(bds("--print-heads")[1])
    assert bds("--head", str(kept))[0] == 0
    operator.connection.execute(
        "create temp table kept as select * from bds.seals where log = 'changes'; delete from bds.seals where log = 'changes';"
        "delete from bds.seal_positions; select bds.maintain(seal_age => '0')"
    )
    operator.connection.execute(FAKED[fake].encode())
    [problem] = json.loads(bds("--head", str(kept), "--json")[1])["problems"]
    assert problem["object"] == "bds.changes 1-2" and "its log was rebuilt" in problem["detail"]


def test_a_company_without_its_clock_is_told(operator: Operator, bds: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    operator.connection.execute("select bds.maintain(seal_age => '0')")
    kept = tmp_path / "heads.jsonl"
    kept.write_text(bds("--print-heads")[1])
    operator.connection.execute("set session_replication_role = replica; delete from bds.clocks where company_id = 'acme'")
    [problem] = json.loads(bds("--deep", "--json")[1])["problems"]
    assert (problem["kind"], problem["companyId"], problem["object"]) == ("log altered", "acme", "bds.clocks")
    operator.connection.execute("delete from bds.seal_positions")
    clock, head = json.loads(bds("--head", str(kept), "--json")[1])["problems"]
    assert clock == problem and "no company of this id lives here" in head["detail"]


HEAD = json.dumps({"company": "acme", "version": 1, "hash": "0" * 64}).encode()
NO_HEADS: list[tuple[bytes, str]] = [
    (b"", "an object of JSON"),
    (b"acme", "an object of JSON"),
    (b"[]", "an object of JSON"),
    (b"null", "an object of JSON"),
    (HEAD + HEAD, "an object of JSON"),
    (b"[" * 200_000, "an object of JSON"),
    (b'{"company": ' * 200_000, "an object of JSON"),
    (HEAD.replace(b"1", b"1" * 5_000), "an object of JSON"),
    (HEAD.replace(b"acme", b"\xff"), "UTF-8"),
    (HEAD.decode().encode("utf-16"), "UTF-8"),
    (b"{}", "company"),
    (HEAD.replace(b'"acme"', b"1"), "company"),
    (HEAD.replace(b"acme", b"ac\\u0000me"), "company"),
    (HEAD.replace(b"acme", b"\\ud800"), "company"),
    (HEAD.replace(b"acme", b"acme\\n"), "company"),
    (HEAD.replace(b"acme", b"a" * 64), "company"),
    (HEAD[:-1] + b', "place": [1]}', "place"),
    (HEAD[:-1] + b', "place": {}}', "place"),
    (HEAD[:-1] + b', "place": null}', "place"),
    (HEAD[:-1] + b', "place": "\\ud800"}', "place"),
    (HEAD[:-1] + b', "more": 1}', "nothing else"),
    (b'{"company": "acme"}', "version"),
    (b'{"company": "acme", "version": null, "hash": null}', "version"),
    (HEAD.replace(b"0" * 64, b"00"), "hash"),
    (HEAD.replace(b"1", b"0"), "version"),
    (HEAD.replace(b"1", b"9223372036854775808"), "version"),
    (HEAD.replace(b"1", b"true"), "version"),
    (HEAD.replace(b"1", b'"1"'), "version"),
    (HEAD.replace(b"1", b"NaN"), "version"),
    (HEAD.replace(b"1", b"null"), "version"),
    (HEAD[:-1] + b', "audit": 1}', "audit"),
    (HEAD[:-1] + b', "audit": {"version": 1}}', "audit"),
    (HEAD[:-1] + b', "audit": {"versions": 1}}', "nothing else"),
]


@pytest.mark.parametrize(("line", "expected"), NO_HEADS, ids=[f"{n}-{line[:40]!r}" for n, (line, _) in enumerate(NO_HEADS)])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_that_is_no_head_is_named(line: bytes, expected: str, end: bytes) -> None:
    first = HEAD[:-1] + b', "audit": null}' + end
    with pytest.raises(ServiceError, match=rf"^heads.jsonl, line 2: expected .*{expected}.*, got ") as caught:
        heads.read_heads(first + line + end, "heads.jsonl")
    assert len(str(caught.value)) < 300 and str(caught.value).isprintable()


def test_heads_of_every_kind_are_read() -> None:
    audit = {"version": 2, "hash": "a" * 64}
    lines = [
        {"company": "acme", "version": 1, "hash": "0" * 64, "audit": audit},
        {"company": "", "version": None, "hash": None, "place": "north", "audit": audit},
    ]
    assert heads.read_heads("\r\n".join(map(json.dumps, lines)).encode(), "f") == [
        heads.Head(1, "home", "acme", "changes", 1, "0" * 64),
        heads.Head(1, "home", "acme", "audit", 2, "a" * 64),
        heads.Head(2, "north", "", "audit", 2, "a" * 64),
    ]


def test_a_file_without_heads_is_refused() -> None:
    with pytest.raises(ServiceError, match="f has no head"):
        heads.read_heads(b"", "f")


def test_deep_verifies_what_is_sealed(operator: Operator, bds: Callable[..., tuple[int, str]]) -> None:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    operator.connection.execute("select bds.maintain(seal_age => '0')")
    operator.connection.execute("update bds.change_log set actor = 'x'; update bds.server_audit set actor = 'x' where id = 1")
    assert bds()[0] == 0
    code, text = bds("--deep", width=200)
    assert code == 1 and "log altered: bds.changes 1-1 (company acme)" in text and "log altered: bds.audit 1-1\n" in text
