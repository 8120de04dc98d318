"""The README tells of every setting, every error and every command; a newcomer finds nothing undocumented."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from app.cli import main, parser
from app.config import Config
from app.errors import ERRORS, SQLSTATES

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [each.metadata["name"] for each in fields(Config)])
def test_a_setting_is_documented(name: str) -> None:
    assert f"`{name}`" in README


@pytest.mark.parametrize("code", ERRORS)
def test_an_error_code_is_documented(code: str) -> None:
    assert f"`{code}`" in README
    assert str(ERRORS[code][0]) in README


def test_what_the_database_raises_has_an_error_code() -> None:
    sql = Path(__file__).resolve().parents[2] / "sql"
    raised = {
        word
        for path in sql.rglob("*.sql")
        for word in path.read_text().replace("'", " ").split()
        if word[:2] == "BD" and word[2:].isdigit()
    }
    assert raised - {"BD000"} <= set(SQLSTATES), "BD000 never leaves the database: it undoes a dry run"
    assert set(SQLSTATES.values()) <= set(ERRORS)


def commands_of(parser: argparse.ArgumentParser, path: str = "") -> Iterator[str]:
    inner = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in inner:
        for name, each in action.choices.items():
            yield from commands_of(each, f"{path} {name}".strip())
    if not inner:
        yield path


@pytest.mark.parametrize("command", list(commands_of(parser.parser())))
def test_a_command_is_documented_and_helps(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"bds {command}" in README or f"`{command}" in README
    with pytest.raises(SystemExit) as ended:
        main.main([*command.split(), "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "usage: bds" in said
    assert f"bds {command}" in said.partition("example:\n")[2], "how it is used"


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["--help"])
    said = capsys.readouterr().out
    for command in commands_of(parser.parser()):
        assert f"    {command.partition(' ')[0]} " in said
    assert "Exit codes" in said and "BDS_DATABASE_URL" in said


FILES = (
    "README.md",
    "deploy/bds.env",
    "deploy/bds.service",
    "deploy/nginx.conf",
    "deploy/Dockerfile",
    "docs/threat-model.md",
    "docs/security.md",
)
OF_THE_UNIT = {"BDS_HOST", "BDS_PORT", "BDS_PROCESSES"}  # which the systemd unit gives to the command


@pytest.mark.parametrize("path", FILES)
def test_a_setting_that_is_written_of_exists(path: str) -> None:
    text = (Path(__file__).resolve().parents[2] / path).read_text(encoding="utf-8")
    named = set(re.findall(r"\bBDS_[A-Z_]*[A-Z]\b", text))
    assert named <= {each.metadata["name"] for each in fields(Config)} | OF_THE_UNIT


def test_the_table_of_settings_has_a_row_for_each() -> None:
    rows = re.findall(r"^\| `(BDS_[A-Z_]+)` \| ([^|]+) \| ([^|]+) \|$", README, re.MULTILINE)
    assert [name for name, _, _ in rows] == sorted({name for name, _, _ in rows}, key=[name for name, _, _ in rows].index)
    assert {name for name, _, _ in rows} == {each.metadata["name"] for each in fields(Config)}


def test_a_setting_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ValueError, match="BDS_POOL_SIZE='many': expected a whole number"):
        Config.load({"BDS_POOL_SIZE": "many"})
