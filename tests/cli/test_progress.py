"""Bars on a terminal, and reports that fit it."""

from __future__ import annotations

import json
import os
from io import BytesIO, StringIO
from pathlib import Path

import pytest
from psycopg.sql import SQL, Composed

from app.cli import exports, main, progress, stdio, tables
from app.config import Config
from app.export import content
from app.export.difference import compiled
from tests.cli.terminal import bars, on_terminal
from tests.conftest import Operator

COLUMNS = 50


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal on which every state is shown."""
    monkeypatch.setattr(progress, "REFRESH", 0)
    return Terminal()


def test_a_bar_never_goes_back(terminal: Terminal) -> None:
    shown = progress.Progress(terminal)
    for phase, share in (
        *(("receiving", progress.of_import("receiving", n / 10, None)) for n in range(11)),
        ("comparing", progress.of_import("comparing", 1.0, None)),
        *(("comparing", progress.of_import("comparing", 1.0, n / 10)) for n in (0, 3, 5, 2, 4)),
        *(("writing", progress.of_import("writing", 1.0, n / 10)) for n in (5, 9, 12)),
    ):
        shown.show(phase, share, "detail")
    seen = bars(terminal.getvalue())
    assert [percent for percent, _ in seen] == sorted(percent for percent, _ in seen)
    assert (seen[0], seen[10], seen[-1]) == ((0, "receiving"), (30, "receiving"), (100, "writing"))
    assert [phase for _, phase in seen][11:17] == ["comparing"] * 6


def test_a_new_phase_is_shown_at_once() -> None:
    out = Terminal()
    shown = progress.Progress(out)
    for phase in ("exporting", "exporting", "laying out pages", "laying out pages"):
        shown.show(phase, 1.0, "9 rows")
    assert [phase for _, phase in bars(out.getvalue())] == ["exporting", "laying out pages"]


def test_an_unknown_share_keeps_the_last_one(terminal: Terminal) -> None:
    shown = progress.Progress(terminal)
    shown.show("receiving", 0.5, "detail")
    shown.show("receiving", None, "detail")
    assert [percent for percent, _ in bars(terminal.getvalue())] == [50, 50]


def test_a_table_that_does_not_fit_is_shown_one_column_under_another(monkeypatch: pytest.MonkeyPatch) -> None:
    header, rows = ("entity", "created", "failed"), [("orders", "1,200", "3"), ("units", "0", "0")]
    for columns in (None, 23):
        monkeypatch.setattr(stdio, "columns", lambda columns=columns: columns)
        assert tables.table(header, rows).splitlines() == [
            "entity  created  failed",
            "orders    1,200       3",
            "units         0       0",
        ]
    monkeypatch.setattr(stdio, "columns", lambda: 22)
    assert tables.table(header, rows).splitlines() == [
        *("orders", "  created  1,200", "  failed   3", "units", "  created  0", "  failed   0"),
    ]
    assert tables.table(header, []) == "entity  created  failed\n"


@pytest.mark.processes
def test_an_import_on_a_narrow_terminal(database_url: str, operator: Operator, tmp_path: Path) -> None:
    operator.company("demo")
    document = {"@atomic": False, "units": [{"code": f"U{n}", "name": "n" if n % 1000 else None} for n in range(1, 3000)]}
    (tmp_path / "feed.json").write_text(json.dumps(document))
    environment = {**os.environ, "BDS_DATABASE_URL": database_url, "COLUMNS": ""}
    code, shown = on_terminal(environment, COLUMNS, "import", str(tmp_path / "feed.json"), "--company", "demo")
    seen = [percent for percent, _ in bars(shown)]
    assert code == 3 and seen == sorted(seen) and seen
    report = shown.rpartition("\x1b[K")[2]
    assert "units\n  created    2997\n" in report.replace("2,997", "2997") and "  failed     2\n" in report
    assert all(len(line) <= COLUMNS for line in report.splitlines())
    assert "units[999].name" in report and "\n    " in report, "a long error goes on in another line"


@pytest.mark.processes
def test_a_pdf_has_a_bar_too(database_url: str, operator: Operator, tmp_path: Path) -> None:
    operator.company("demo")
    operator.write("demo", "insert into data.units (company_id, code, name) select 'demo', n, 'u' from generate_series(1, 300) n")
    environment = {**os.environ, "BDS_DATABASE_URL": database_url}
    arguments = ("export", "units", "--company", "demo", "--format", "pdf", "--output", str(tmp_path / "units.pdf"))
    code, shown = on_terminal(environment, 100, *arguments)
    assert code == 0 and (100, "laying out pages") in bars(shown)


@pytest.mark.slow
def test_an_export_goes_on_without_a_total_that_is_not_counted_in_time(
    database_url: str, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('A', 'a')")
    monkeypatch.setattr(content, "count", lambda export: compiled("acme", Composed([SQL("select count(*) from pg_sleep(60)")])))
    out, seen = BytesIO(), list[int]()
    config = Config(database_url=database_url, statement_timeout=2)
    for given in ({}, {"since": "0"}):
        exports.run(
            database_url, config, "acme", "units", given | {"format": "csv"}, out, lambda rows, total, size: seen.append(total)
        )
    assert out.getvalue().count(b",A,a,") == 2 and set(seen) == {0}


def test_the_bar_of_a_difference_of_all_entities_counts_them_all(database_url: str, operator: Operator) -> None:
    operator.company("acme")
    operator.write("acme", "insert into data.units (code, name) values ('A', 'a'), ('B', 'b')")
    operator.write("acme", "insert into data.categories (code, name) values ('C', 'c')")
    seen: list[tuple[int, int]] = []
    config, given = Config(database_url=database_url), {"format": "json", "since": "0"}
    exports.run(database_url, config, "acme", "diff", given, BytesIO(), lambda rows, total, size: seen.append((rows, total)))
    assert {total for _, total in seen} == {3} and seen[-1] == (3, 3)


def test_an_export_whose_rows_do_not_come_in_time_says_so(
    database_url: str, operator: Operator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    operator.company("acme")
    monkeypatch.setenv("BDS_DATABASE_URL", database_url)
    monkeypatch.setenv("BDS_STATEMENT_TIMEOUT", "1")
    with operator.connection.transaction():
        operator.connection.execute("lock table data.units in access exclusive mode")
        assert main.main(["export", "units", "--company", "acme", "--format", "csv"]) == 1
    expected = "bds: the database did not answer in time: BDS_STATEMENT_TIMEOUT gives it longer\n"
    assert capsys.readouterr().err == expected
