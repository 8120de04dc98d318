"""bds doctor: problems on standard output, in lines that fit the terminal, and the exit code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import doctor, heads
from app.cli.main import main
from app.errors import ServiceError
from tests.conftest import Operator
from tests.database.test_compare_log import unlogged


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


def test_problems_as_json(operator: Operator, bds: Callable[..., tuple[int, str]]) -> None:
    operator.connection.execute("alter table data.units disable trigger bds_log_insert")
    code, text = bds("--json")
    found: Any = json.loads(text)
    assert code == 1 and found["compared_at"] is None
    assert found["problems"] == [
        {
            "place": "home",
            "kind": "disabled trigger",
            "company_id": None,
            "entity": "units",
            "object": "bds_log_insert on data.units",
            "detail": "writes are not logged as they should be",
            "mend": "alter table data.units enable trigger bds_log_insert",
        }
    ]


def test_what_a_person_decides_has_no_mend_and_a_command_is_printed_as_it_is_typed() -> None:
    problem = {"place": "home", **dict.fromkeys(doctor.COLUMNS), "kind": "altered role", "object": "bds_reader", "detail": "d"}
    assert "mend" not in doctor.as_text([problem], None)
    assert "  mend: bds migrate\n" in doctor.as_text([{**problem, "mend": "bds migrate"}], None)


def test_control_characters_do_not_reach_the_terminal() -> None:
    problem = dict.fromkeys(("place", *doctor.COLUMNS), "x\x1b[31m")
    assert "\x1b" not in doctor.as_text([problem], None) and os.linesep in doctor.as_text([problem], None)


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
    assert code == 1 and (problem["kind"], problem["company_id"]) == ("log altered", "acme")
    assert problem["object"] == "bds.changes 1-1" and hash[:16] in problem["detail"]
    operator.delete_company("acme")
    assert "no company of this id lives here" in " ".join(bds("--head", str(kept))[1].split())


@pytest.mark.parametrize(
    "line",
    [
        "", "acme", "[]", "{}", "null", '{"company": "acme"}', '{"company": 1, "version": 1, "hash": "HASH"}',
        '{"company": "acme", "version": 1, "hash": "00"}', '{"company": "acme", "version": 0, "hash": "HASH"}',
        '{"company": "acme", "version": true, "hash": "HASH"}', '{"company": "acme", "version": "1", "hash": "HASH"}',
        '{"company": "acme", "version": 1, "hash": "HASH", "audit": 1}',
    ],
)  # fmt: skip
def test_a_line_that_is_no_head_is_named(line: str) -> None:
    good = json.dumps({"company": "acme", "version": 1, "hash": "0" * 64})
    with pytest.raises(ServiceError, match=r"heads.jsonl, line 2: expected a head"):
        heads.read_heads(f"{good}\n{line.replace('HASH', '0' * 64)}\n", "heads.jsonl")


def test_deep_verifies_what_is_sealed(operator: Operator, bds: Callable[..., tuple[int, str]]) -> None:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'A')")
    operator.connection.execute("select bds.maintain(seal_age => '0')")
    operator.connection.execute("update bds.change_log set actor = 'x'; update bds.server_audit set actor = 'x' where id = 1")
    assert bds()[0] == 0
    code, text = bds("--deep", width=200)
    assert code == 1 and "log altered: bds.changes 1-1 (company acme)" in text and "log altered: bds.audit 1-1\n" in text
