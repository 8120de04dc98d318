"""`bds import`: the report on standard output, errors on standard error, an exit code for each outcome."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli import command, main
from tests.feed.conftest import Feed

pytestmark = pytest.mark.processes

Command = Callable[..., tuple[int, str, str]]

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
    assert (report["actor"], report["file"], report["mapper"]) == ("postgres", "feed.json", None)


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
