"""The README's mappers do what it says: its files, stored and imported as it shows, print its tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app import cli
from tests.conftest import Operator

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("### Map what suppliers send")[2].partition("\n### ")[0]
FILES = dict(re.findall(r"\$ cat > (\S+) <<'END'\n(.*?)END\n", SECTION, re.DOTALL))
IMPORTS = re.findall(
    r"\$ \.venv/bin/bds import (\S+) --company demo --mapper (\w+)( --dry-run)?\n(.*?import )[0-9a-f-]{36}\n", SECTION, re.DOTALL
)


def test_every_example_is_run() -> None:
    assert len(IMPORTS) == 3
    assert set(FILES) == {name for source, mapper, _, _ in IMPORTS for name in (source, f"{mapper}.mapper")}


def test_the_examples_print_what_the_readme_says(
    database_url: str, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BDS_DATABASE_URL", database_url)
    operator.company("demo")
    for source, name, dry_run, expected in IMPORTS:
        text = FILES[f"{name}.mapper"]
        operator.write("demo", "select bds.put_mapper('demo', %s, %s, %s)", (name, text.split()[1], text))
        path = tmp_path / source
        path.write_text(FILES[source], encoding="utf-8")
        cli.main(["import", str(path), "--company", "demo", "--mapper", name, *dry_run.split()])
        said = capsys.readouterr()
        assert re.sub(r"[0-9a-f-]{36}\n$", "", said.out) == expected, said.err
    rows = operator.rows(
        "select code, name, description, price::text, active, c from data.products p, lateral (select code from data.categories g where g.id = p.category_id) g (c) order by code"
    )
    assert rows == [
        ("71053", "White metal lantern", "White metal lantern. Stock code 71053.", "3.7500", False, "home"),
        ("85123", "White hanging heart", "White hanging heart. Stock code 85123.", "2.9500", True, "home"),
    ]
    assert operator.rows("select code, name, email, country from data.customers") == [
        ("S-1", "Anna Berger", "anna@example.com", "Germany")
    ]
    assert operator.rows("select code, order_date::text, total::text from data.orders") == [("W1", "2026-11-20", "1037.4454")]
    assert operator.rows("select quantity::text, price::text from data.order_items") == [("1000.000000", "2.9500")]
