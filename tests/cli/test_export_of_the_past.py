"""`bds export --at` and `--version`."""

from __future__ import annotations

import io

import pytest

from app.cli import exports, parser
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
    assert lines(version="1") == lines(at=at) == ["name", "First"]
    assert lines(version="0") == ["name"]
    with pytest.raises(ServiceError, match="version 3 is yet to come"):
        lines(version="3")


def test_the_command_takes_a_version_or_a_time() -> None:
    options = parser.parser().parse_args(
        ["export", "units", "--company", "acme", "--format", "csv", "--at", "2026-01-01", "--version", "7"]
    )
    assert (options.at, options.of_version, options.version) == ("2026-01-01", "7", False)
