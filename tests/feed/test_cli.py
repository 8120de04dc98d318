"""`bds import`: the report on standard output, errors on standard error, an exit code for each outcome."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli import command, main
from app.database.caller import COMMAND
from tests.feed.conftest import Feed

pytestmark = pytest.mark.processes

Command = Callable[..., tuple[int, str, str]]

USER = pwd.getpwuid(os.geteuid()).pw_name
GOOD = b'{"units": [{"code": "A", "name": "a"}]}'
BAD = b'{"@atomic": false, "units": [{"code": "A", "name": "a"}, {"code": "B"}]}'


@pytest.fixture
def bds(feed: Feed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `bds import` on a document; returns (exit code, standard output, standard error)."""
    monkeypatch.setenv("BDS_DATABASE_URL", feed.url)

    def run(document: bytes, *options: str) -> tuple[int, str, str]:
        path = tmp_path / "feed.json"
        path.write_bytes(document)
        code = main.main(["import", str(path), "--company", feed.company, *options])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_the_report_is_a_table(bds: Command, feed: Feed) -> None:
    code, out, _ = bds(GOOD)
    assert code == 0
    assert out.splitlines()[:2] == [
        "entity  created  updated  deleted  unchanged  failed",
        "units         1        0        0          0       0",
    ]
    assert out.splitlines()[2].startswith("completed, import ")
    assert feed.rows("units", "code") == [("A",)]


def test_the_report_as_json(bds: Command) -> None:
    code, out, _ = bds(GOOD, "--json")
    report = json.loads(out)
    assert code == 0 and report["entities"]["units"]["created"] == 1
    assert (report["actor"], report["file"], report["mapper"]) == (USER, "feed.json", None)


def test_who_runs_a_command_is_the_actor_of_all_that_it_writes(bds: Command, feed: Feed, tmp_path: Path) -> None:
    _, out, _ = bds(GOOD, "--json")
    assert main.main(["import", "revert", json.loads(out)["importId"], "--company", feed.company]) == 0
    assert main.main(["key", "create", "--company", feed.company]) == 0
    assert feed.ask("select distinct actor, db_user from bds.changes where company_id = %s", feed.company) == [(USER, "postgres")]
    assert feed.ask("select distinct actor from bds.imports where company_id = %s", feed.company) == [(USER,)]
    assert feed.ask("select distinct actor from bds.audit where action = 'create' and object ~ '^key'") == [(USER,)]
    assert not COMMAND.get()


def test_a_dry_run_writes_nothing(bds: Command, feed: Feed) -> None:
    code, out, _ = bds(GOOD, "--dry-run")
    assert code == 0 and "completed, dry run: nothing was written, import " in out
    assert not feed.log()


def test_a_partial_import_has_its_own_exit_code(bds: Command) -> None:
    code, out, _ = bds(BAD)
    assert code == command.PARTIAL
    assert "units[1].name (code:B): required: name is required" in out
    assert "\npartial, import " in out


@pytest.mark.parametrize(("document", "says"), [
    (b'{"units": [}', "bds: line 1, column 12 (byte 11): "), (b'{"planets": []}', "bds: no such entity: 'planets'"), (b"", "bds: line 1, column 1 (byte 0): "),
])  # fmt: skip
def test_a_malformed_document_fails(bds: Command, feed: Feed, document: bytes, says: str) -> None:
    code, out, err = bds(document)
    assert (code, out) == (command.FAILED, "")
    assert says in err
    assert feed.ask("select state from bds.imports where company_id = %s", feed.company) == [("failed",)]


def test_a_batch_is_a_line_above_its_errors_and_no_error_itself(bds: Command, feed: Feed) -> None:
    units = [{"code": f"U{n}"} for n in range(25)]
    products = [{"code": "A", "name": "a"}, {"code": "B", "name": "b", "unit": "code:U1"}]
    code, out, _ = bds(json.dumps({"units": [*units, {"code": "OK", "name": "ok"}], "products": products}).encode())
    lines = out.splitlines()[3:]
    assert code == command.FAILED and lines[0] == "the batch units[0..25] was not written, because of 25 records in it that failed"
    assert lines[1] == "units[0].name (code:U0): required: name is required" and len([x for x in lines if "batch" in x]) == 1
    assert lines[21] == "... and 6 more errors" and lines[22].startswith("failed, ")
    code, out, _ = bds(json.dumps({"@atomic": "batch", "units": [{"code": "U", "name": "u"}], "products": products}).encode())
    assert (code, out.splitlines()[3:5]) == (command.PARTIAL, [
        "the batch products[0..1] was not written, because of a record in it that failed",
        "products[1].unit (code:B): lookup_not_found: units has no row code:U1",
    ])  # fmt: skip


@pytest.mark.parametrize(("name", "document", "code", "says"), [
    ("units.csv", b"code,name\nA,a\n", 0, ""), ("units (1).jsonl", b'{"code": "A", "name": "a"}', 0, ""), ("units-2026.XML", b"<units><unit><code>A</code><name>a</name></unit></units>", 0, ""),
    ("catalog.csv", b"code,name\nA,a\n", 2, "catalog.csv: expected --entity or --mapper, or the name of an entity at its start; no such entity: catalog"),
    ("2026.csv", b"code,name\nA,a\n", 2, "2026.csv: expected --entity or --mapper for a file of CSV"), ("units.json", b"code,name", 1, "expected a JSON object"),
    ("notes.txt", b"code,name", 1, "expected a file of JSON (.json), XML (.xml), CSV (.csv), Excel (.xlsx) or JSON Lines (.jsonl), or a mapper that reads notes.txt"),
    ("notes", b'{"units": [{"code": "A", "name": "a"}]}', 0, ""), ("units.csv.gz", b"", 2, "units.csv.gz: expected a file that is not compressed"),
])  # fmt: skip
def test_the_name_of_a_file_chooses_format_and_entity(feed: Feed, tmp_path: Path, name: str, document: bytes, code: int, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setenv("BDS_DATABASE_URL", feed.url)
    (tmp_path / name).write_bytes(document)
    try:
        ended = main.main(["import", str(tmp_path / name), "--company", feed.company])
    except SystemExit as wrong:
        ended = wrong.code
    assert ended == code and says in capsys.readouterr().err
    assert feed.rows("units", "code") == [("A",)] * (code == 0)


@pytest.mark.parametrize(
    ("name", "content", "code", "says"),
    [
        ("units.jsonl", b"", 0, ""),
        ("rows", b" \n", 0, ""),
        ("units.csv", b"", 1, "expected a header"),
        ("units.xml", b"\n", 1, "Start tag expected"),
        ("units.xlsx", b"", 1, "expected an Excel workbook"),
    ],
)
def test_a_file_without_anything_is_an_export_of_no_rows_as_json_lines_alone(
    feed: Feed,
    tmp_path: Path,
    name: str,
    content: bytes,
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BDS_DATABASE_URL", feed.url)
    (tmp_path / name).write_bytes(content)
    assert main.main(["import", str(tmp_path / name), "--company", feed.company, "--entity", "units"]) == code
    assert says in capsys.readouterr().err
    assert (
        main.main(["export", "units", "--company", feed.company, "--format", "jsonl", "--output", str(tmp_path / "x.jsonl")]) == 0
    )
    assert (tmp_path / "x.jsonl").read_bytes() == b""


def test_an_import_without_a_good_record_fails(bds: Command) -> None:
    code, out, _ = bds(b'{"units": [{"code": "B"}]}')
    assert code == command.FAILED and "\nfailed, import " in out


def test_a_document_from_standard_input(feed: Feed) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "app.cli", "import", "-", "--company", feed.company, "--json"],
        input=GOOD, capture_output=True, env={"BDS_DATABASE_URL": feed.url, "PYTHONPATH": "."}, timeout=60,
    )  # fmt: skip
    assert ended.returncode == 0 and json.loads(ended.stdout)["state"] == "completed"


def test_a_missing_file(feed: Feed, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing.json"
    assert main.main(["import", str(missing), "--company", feed.company]) == command.FAILED
    assert capsys.readouterr().err == f"bds: {missing}: no such file or directory\n"
    assert not feed.ask("select from bds.imports where company_id = %s", feed.company)
