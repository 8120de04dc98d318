"""What maps case names the collation by which it does: under Turkish ones the lower case of I is another letter than i."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CALL = re.compile(r"(?<![.\w])(?:lower|upper|initcap|casefold)\(")
OPERATOR = re.compile(r"(\S+\s+\S+|\S+)\s+(?:!?~\*|(?:not\s+)?ilike)\s")  # with what stands before it
NAMED = re.compile(r"""\bcollate\s+["\w.]+$""")
COMMENT = re.compile(r"--.*")


def without_collation(sql: str) -> list[str]:
    """Calls and operators in a text that map case under the default collation."""
    text = COMMENT.sub("", sql)
    found = [
        text[call.start() : end]
        for call in CALL.finditer(text)
        if "collate" not in text[call.end() : (end := closing(text, call.end()))]
    ]
    return found + [each[0] for each in OPERATOR.finditer(text) if not NAMED.search(each[1])]


def closing(text: str, start: int) -> int:
    """Where the parenthesis that was opened before `start` is closed."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return place
    return len(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("select lower(name)", ["lower(name"]),
        ("select upper(left(w, 1)) || lower(x collate \"C\")", ["upper(left(w, 1)"]),
        ("where a ~* 'x' and b collate \"C\" !~* 'x'", ["where a ~* "]),
        ("where a not ilike 'x'", ["where a not ilike "]),
        ("select lower(left(w, 1) collate pg_catalog.pg_c_utf8)  -- not lower(w)", []),
    ],
)  # fmt: skip
def test_a_case_that_is_mapped_without_a_collation_is_found(text: str, found: list[str]) -> None:
    assert without_collation(text) == found


@pytest.mark.parametrize("path", sorted((ROOT / "sql").rglob("*.sql")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sql_maps_case_by_a_collation_that_it_names(path: Path) -> None:
    assert without_collation(path.read_text(encoding="utf-8")) == []


def test_sql_in_python_maps_case_by_a_collation_that_it_names() -> None:
    """In app/mapper is no SQL, but a language that has functions of these names."""
    found = {}
    for path in sorted((ROOT / "app").rglob("*.py")):
        if path.relative_to(ROOT / "app").parts[0] != "mapper":
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and (wrong := without_collation(node.value)):
                    found[f"{path.name}:{node.lineno}"] = wrong
    assert found == {}
