"""The mappers of docs/mapper.md write the rows that it describes, and read a retailer's real data."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import main
from tests.conftest import Operator
from tests.docs.documents import examples

pytestmark = pytest.mark.processes

SHOWN = "".join(each.text for each in examples("docs/mapper.md") if each.is_shell)
FILES = {name: text for each in examples("docs/mapper.md") for name, text in each.files().items()}
IMPORTS = re.findall(
    r"\$ \.venv/bin/bds import (\S+) --company demo --mapper (\w+)( --dry-run)?\n(.*?import )[0-9a-f-]{36}\n", SHOWN, re.DOTALL
)


def test_every_mapper_is_used() -> None:
    assert len(IMPORTS) == 3
    assert set(FILES) == {name for source, mapper, _, _ in IMPORTS for name in (source, f"{mapper}.mapper")}


def test_the_examples_write_what_they_describe(
    database_url: str, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BDS_DATABASE_URL", database_url)
    operator.company("demo")
    for source, name, dry_run, expected in IMPORTS:
        text = FILES[f"{name}.mapper"]
        operator.write("demo", "select bds.put_mapper('demo', %s, %s, %s)", (name, text.split()[1], text))
        path = tmp_path / source
        path.write_text(FILES[source], encoding="utf-8")
        main.main(["import", str(path), "--company", "demo", "--mapper", name, *dry_run.split()])
        said = capsys.readouterr()
        assert re.sub(r"[0-9a-f-]{36}\n$", "", said.out) == expected, said.err
    rows = operator.rows(
        "select code, name, description, price::text, active, c from data.products p left join lateral (select code from data.categories g where g.id = p.category_id) g (c) on true order by code"
    )
    assert rows == [
        ("71053", "WHITE METAL LANTERN", "A lantern.", "3.7500", True, None),
        ("85123", "WHITE HANGING HEART", "Stock code 85123.", "2.9500", True, "696"),
    ]
    assert operator.rows("select code, name, email, country from data.customers order by code") == [
        ("17850", "Customer 17850", "c17850@example.com", "United Kingdom"),
        ("S-1", "Anna Berger", "anna.berger@example.com", "Germany"),
    ]
    assert operator.rows("select code, order_date::text, currency, total::text, note from data.orders order by code") == [
        ("SO-536365", "2010-12-01", "GBP", "35.6400", "2 lines, the first of 85123"),
        ("W1", "2026-11-20", "EUR", "1037.4454", None),
    ]
    assert operator.rows("select quantity::text, price::text from data.order_items order by price") == [
        ("6.000000", "2.5500"),
        ("1000.000000", "2.9500"),
        ("6.000000", "3.3900"),
    ]


def test_its_mappers_read_a_retailers_real_data(
    database_url: str,
    operator: Operator,
    shared: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BDS_DATABASE_URL", database_url)
    operator.company("demo")
    for name, format in (("catalog", "xml"), ("lines", "csv")):
        path = tmp_path / f"{name}.{format}"
        subprocess.run([sys.executable, shared / "tools" / "make_feed.py", "--as", format, "-o", path], check=True)
        operator.write("demo", "select bds.put_mapper('demo', %s, %s, %s)", (name, format, FILES[f"{name}.mapper"]))
        assert main.main(["import", str(path), "--company", "demo", "--mapper", name]) == 0, capsys.readouterr()
        said = capsys.readouterr().out
        assert "completed" in said and "invoiceItems" in said, said
    assert operator.rows("select count(*) from data.invoices") == [(1275,)]
