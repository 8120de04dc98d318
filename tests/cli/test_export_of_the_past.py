"""`bds export --at` and `--version`."""

from __future__ import annotations

import io
import json
import re
from datetime import datetime, timedelta, tzinfo

import pytest

from app.cli import exports, main
from app.config import Config
from app.errors import ServiceError
from app.query.check import moments
from tests.conftest import Operator


def test_an_export_has_the_rows_of_then(database_url: str, operator: Operator) -> None:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'First')")
    [(at,)] = operator.rows("select bds_service.api_time(clock_timestamp())")
    operator.write("acme", "update data.units set name = 'Second'")

    def lines(**given: str) -> list[str]:
        out = io.BytesIO()
        given |= {"format": "csv", "$select": "name"}
        exports.run(database_url, Config(database_url=database_url), "acme", "units", given, out, lambda *_: None)
        return out.getvalue().decode("utf-8-sig").split()

    assert lines() == ["name", "Second"]
    operator.connection.execute("select bds.name_version('acme', 'first', 1)")
    assert lines(version="1") == lines(version="first") == lines(version=at) == lines(at=at) == ["name", "First"]
    assert lines(version="0") == ["name"]
    with pytest.raises(ServiceError, match="version 3 is yet to come"):
        lines(version="3")


TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
EXPORT = ("export", "units", "--company", "acme", "--format", "csv")


@pytest.mark.parametrize(
    ("command", "option", "member"),
    [
        (EXPORT, "--version", "of_version"),
        (EXPORT, "--at", "at"),
        (EXPORT, "--since", "since"),
        (("diff", "acme", "--since", "1"), "--until", "until"),
        (("diff", "acme"), "--since", "since"),
        (("revert", "acme"), "--to", "to"),
        (("revert", "acme"), "--from", "since"),
        (("version", "put", "acme", "x"), "--when", "when"),
    ],
)
def test_a_version_is_an_id_a_name_a_time_or_a_relative_word(command: tuple[str, ...], option: str, member: str) -> None:
    for given, read in (("7", "7"), ("year-end", "year-end"), ("2026-01-01", "2026-01-01"), ("now", "now"), ("-7d", TIME)):
        options = main._read([*command, option, given])
        assert re.fullmatch(read, getattr(options, member)), given
        assert options.version is False, "of bds itself"


@pytest.mark.parametrize("skew", [timedelta(days=-1), timedelta(days=1)])
def test_now_is_the_last_version_whatever_the_clock_of_the_command(
    database_url: str, operator: Operator, skew: timedelta, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Skewed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Skewed:
            return cls.fromtimestamp((datetime.now(tz) + skew).timestamp(), tz)

    monkeypatch.setattr(moments, "datetime", Skewed)
    monkeypatch.setenv("BDS_DATABASE_URL", database_url)
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('a', 'First')")
    operator.write("acme", "update data.units set name = 'Second'")

    def run(*words: str) -> str:
        capsys.readouterr()
        code = main.main(words)
        written = capsys.readouterr()
        assert code == 0, written.err
        return written.out

    assert run("diff", "acme", "--since", "1").startswith("from version 1 to 2")
    assert run("diff", "acme", "--since", "1", "--until", "now") == run("diff", "acme", "--since", "1", "--until", "2")
    assert run("diff", "acme", "--since", "now").splitlines()[1] == "nothing differs"
    run("version", "put", "acme", "last")
    run("version", "put", "acme", "also", "--when", "now")
    assert operator.rows("select name, version from bds.versions order by name") == [("also", 2), ("last", 2)]
    present = run(*EXPORT)
    assert "Second" in present
    assert run(*EXPORT, "--version", "now") == run(*EXPORT, "--at", "now") == present
    assert "Second" in run(*EXPORT, "--since", "1", "--version", "now") and "Second" not in run(*EXPORT, "--since", "now")
    assert (
        json.loads(run("revert", "acme", "--from", "1", "--to", "now", "--dry-run", "--json"))["entities"]["units"]["updated"] == 1
    )
    for end in ("--to", "--from"):
        assert json.loads(run("revert", "acme", end, "now", "--dry-run", "--json"))["entities"] == {}
