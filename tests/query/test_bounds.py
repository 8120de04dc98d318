"""Bounds of parsing: LALR takes each token once, and the number of tokens is bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lark import Token

from app.database.catalog import Catalog
from app.errors import QueryError
from app.query.check.options import parse_query
from app.query.parse import odata as parse_odata
from app.query.parse import where as parse_where
from app.query.parse.odata import MAX_OTHER
from app.query.parse.parser import MAX_TOKENS, Bounds
from app.query.sql import statements as sql_statements

PARSERS: list[tuple[Callable[[str], Any], int, str, str]] = [
    # parser, bound, the repeated text, the text between
    (parse_odata.parse_filter, MAX_TOKENS, "a", "or "),
    (parse_odata.parse_orderby, MAX_OTHER, "a", ","),
    (parse_odata.parse_select, MAX_OTHER, "a", ","),
    (parse_odata.parse_expand, MAX_OTHER, "a", ","),
    (parse_odata.parse_search, MAX_OTHER, "a", " OR "),
    (parse_where.parse_sort, MAX_TOKENS, "a", ","),
]


def repeated(text: str, between: str, tokens: int) -> str:
    """A text of this number of tokens, which is odd."""
    return f"{text} {between}" * (tokens // 2) + text


@pytest.mark.parametrize(("parse", "bound", "text", "between"), PARSERS, ids=[parser[0].__name__ for parser in PARSERS])
def test_a_text_of_too_many_tokens_is_an_error(parse: Callable[[str], Any], bound: int, text: str, between: str) -> None:
    parse(repeated(text, between, bound - 1))
    longer = repeated(text, between, bound + 1)
    with pytest.raises(QueryError, match=f"too long: at most {bound:,} ") as raised:
        parse(longer)
    assert (raised.value.status, raised.value.position) == (400, len(longer))


def test_filters_of_c_keys_and_apply_are_bounded_too() -> None:
    for parse, text in (
        (parse_where.parse_filter, " or ".join(["a=1"] * (MAX_TOKENS // 4 + 1))),
        (parse_odata.parse_key, ",".join(["a=1"] * (MAX_OTHER // 4 + 1))),
        (parse_odata.parse_apply, f"groupby(({','.join(['a'] * MAX_OTHER)}))"),
    ):
        with pytest.raises(QueryError, match="too long"):
            parse(text)


def test_tokens_beyond_the_bound_are_not_read() -> None:
    read = 0

    def tokens() -> Any:
        nonlocal read
        while True:
            read += 1
            yield Token("NAME", "a", start_pos=read - 1)

    with pytest.raises(QueryError) as raised:
        list(Bounds(10).process(tokens()))
    assert (read, raised.value.position) == (11, 11)


def test_one_request_has_a_bounded_number_of_tokens() -> None:
    options = ("$orderby", "$select", "$expand", "$apply", "$search")
    assert MAX_TOKENS + len(options) * MAX_OTHER <= 15_000


def test_the_text_of_a_large_statement_is_not_cached(catalog: Catalog) -> None:
    cached = sql_statements._texts._values
    before = len(cached)
    large = " or ".join([f"endOfYear(updatedAt) eq {year}-12-31" for year in range(1000, 1800)])
    statement = sql_statements.rows(parse_query(catalog, catalog["products"], [("$filter", large)]), "acme")
    assert len(statement.text) > 50_000
    assert len(cached) == before
