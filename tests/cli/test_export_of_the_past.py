"""`bds export --at` and `--version`."""

from __future__ import annotations

import io
import re

import pytest

from app.cli import exports, main
from app.config import Config
from app.errors import ServiceError
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
    for given, read in (("7", "7"), ("year-end", "year-end"), ("2026-01-01", "2026-01-01"), ("now", TIME), ("-7d", TIME)):
        options = main._read([*command, option, given])
        assert re.fullmatch(read, getattr(options, member)), given
        assert options.version is False, "of bds itself"
