"""`bds import FILE --mapper M`."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import command, main
from tests.conftest import Operator

MAPPER = "type xml units = '//u' { code = '@c' name = 'n' }"


@pytest.fixture(autouse=True)
def _company(database_url: str, operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BDS_DATABASE_URL", database_url)
    operator.company("acme")
    operator.company("other")
    operator.write("acme", "select bds.put_mapper('acme', 'units', 'xml', %s)", (MAPPER,))


def test_an_import_through_a_mapper(tmp_path: Path, operator: Operator, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "units.xml"
    path.write_text("<r><u c='A'><n>a</n></u></r>")
    assert main.main(["import", str(path), "--company", "acme", "--mapper", "units"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "units         1        0        0          0       0"
    assert operator.rows("select code, name from data.units") == [("A", "a")]


@pytest.mark.parametrize("content", ["code,name\nA,a\n", "<units><unit><code>A</code><name>a</name></unit></units>"])
def test_an_import_of_an_exported_entity(
    tmp_path: Path, operator: Operator, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    path = tmp_path / "units"
    path.write_text(content)
    assert main.main(["import", str(path), "--company", "acme", "--entity", "units"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "units         1        0        0          0       0"
    assert operator.rows("select code, name from data.units") == [("A", "a")]


def test_an_entity_and_a_mapper_are_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main.main(["import", str(tmp_path), "--company", "acme", "--entity", "units", "--mapper", "units"])
    assert refused.value.code == 2 and "expected --entity or --mapper" in capsys.readouterr().err


def test_errors_have_the_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "units.xml"
    path.write_text("<r>\n<u c='A'/></r>")
    assert main.main(["import", str(path), "--company", "acme", "--mapper", "units"]) == command.FAILED
    assert "units[0].name (code:A): required: line 2: " in capsys.readouterr().out


@pytest.mark.parametrize(("company", "mapper", "source", "message"), [
    ("acme", "none", "<r/>", "no such mapper: none"),
    ("other", "units", "<r/>", "no such mapper: units"),
    ("acme", "units", "<r>", "line 1, column"),
])  # fmt: skip
def test_an_error_is_one_line_of_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], company: str, mapper: str, source: str, message: str
) -> None:
    path = tmp_path / "units.xml"
    path.write_text(source)
    assert main.main(["import", str(path), "--company", company, "--mapper", mapper]) == command.FAILED
    output = capsys.readouterr()
    assert message in output.err and not output.out
