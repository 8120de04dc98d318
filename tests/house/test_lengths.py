"""Functions are short enough to be read at once, and lines of SQL are no longer than those of Python, which the linter checks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON, SQL = 40, 60  # lines of a function
WIDTH = 132  # characters of a line

DEFINED = re.compile(
    r"^create (?:or replace )?(?:function|procedure) ([\w.]+)\(.*?(?=^(?:create|comment on|insert into) |\Z)",
    re.MULTILINE | re.DOTALL,
)
TEMPLATE = re.compile(r"^\('([\w{}]+)\(.*?\$sql\$\)[,;]$", re.MULTILINE | re.DOTALL)  # of functions of imports


@pytest.mark.parametrize("path", sorted((ROOT / "sql").rglob("*.sql")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_functions_of_sql_have_at_most_60_lines(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lengths = {found[1]: found[0].rstrip().count("\n") + 1 for pattern in (DEFINED, TEMPLATE) for found in pattern.finditer(text)}
    assert not {name: lines for name, lines in lengths.items() if lines > SQL}


def test_lines_of_sql_have_at_most_132_characters() -> None:
    assert [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "sql").rglob("*.sql"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > WIDTH
    ] == []


@pytest.mark.parametrize("path", sorted((ROOT / "app").rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_functions_of_python_have_at_most_40_lines(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= PYTHON, f"{node.name} has {lines}"
