"""Literals in functions mean the same whatever their session has set: with standard_conforming_strings = off a backslash escapes."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|(?P<tag>\$\w*\$)(?P<quoted>.*?)(?P=tag)"
    # a literal goes on in the next line
    r"|\b[Ee]'(?:[^'\\]|\\.|'')*'(?:\s*\n\s*'(?:[^'\\]|\\.|'')*')*|(?P<plain>'(?:[^']|'')*')|\"[^\"]*\"",
    re.DOTALL,
)
BODIES = """
    select p.oid::regprocedure::text, p.prosrc
    from pg_proc p join pg_language l on l.oid = p.prolang
    where l.lanname in ('sql', 'plpgsql') and p.prosqlbody is null and p.pronamespace::regnamespace::text ~ '^(bds|past|my|api)'
"""


def escaping(text: str) -> list[str]:
    """Literals of SQL, also those in texts that it quotes, that have a backslash and are no escape strings."""
    found = []
    for token in TOKEN.finditer(text):
        if token["tag"]:
            found += escaping(token["quoted"])
        elif token["plain"] and "\\" in token["plain"]:
            found.append(token[0])
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"select a ~ '\S', e'\x01', E'it\'s \n' -- '\d'", [r"'\S'"]),
        (r"execute $sql$ select '\w' $sql$; select $r$\('(.+)'\)$r$, 'it''s', '\'", [r"'\w'", r"'\'"]),
    ],
)
def test_a_backslash_in_a_plain_literal_is_found(text: str, found: list[str]) -> None:
    assert escaping(text) == found


def test_no_function_has_a_backslash_in_a_plain_literal(server: str) -> None:
    with psycopg.connect(server) as connection:
        bodies: list[tuple[Any, ...]] = connection.execute(BODIES).fetchall()
    assert len(bodies) > 500
    assert {function: found for function, body in bodies if (found := escaping(body))} == {}
