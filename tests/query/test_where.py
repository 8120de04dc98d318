"""The SQL-like filter and sort of /c: the SQL that they compile to, and errors with their positions."""

from __future__ import annotations

from typing import Any

import pytest

from app.changes.log import log_query
from app.changes.rows import list_query
from app.database.catalog import Catalog
from app.errors import QueryError
from app.query.sql import statements as sql_statements
from tests.query.model import condition

MOMENT = "2026-11-20 08:15:30.123456+00:00"

PAIRS = [
    ("updatedAt > '2026-11-20T08:15:30.123456Z'", "(updatedAt > $2::timestamptz)", [MOMENT]),
    ("updatedAt > '2026-11-20T10:15:30.123456+02:00'", "(updatedAt > $2::timestamptz)", [MOMENT]),
    ("updatedAt > '2026-11-20T10:15:30.123456 02:00'", "(updatedAt > $2::timestamptz)", [MOMENT]),
    ("updatedAt > '2026-11-20 03:15:30.123456999-05'", "(updatedAt > $2::timestamptz)", [MOMENT]),
    ("updatedAt > '2026-11-20 08:15:30.123456'", "(updatedAt > $2::timestamptz)", [MOMENT]),
    ("UPDATEDAT >= '2026-11-20'", "(updatedAt >= $2::timestamptz)", ["2026-11-20 00:00:00+00:00"]),
    ("launched < '2026-11-20'", "(launched < $2::date)", ["2026-11-20"]),
    ("launched < '2026-11-20T12:00:00Z'", "(launched < $2::timestamp)", ["2026-11-20 12:00:00+00:00"]),
    ("name = 'it''s'", "(name = $2::text)", ["it's"]),
    ("'b' <= name", "(name collate C >= $2::text)", ["b"]),
    ("5 < price", "(price > $2::int8)", ["5"]),
    ("price != 5 and price <> -5.50", "((price <> $2::int8) and (price <> $3::numeric))", ["5", "-5.50"]),
    ("price = '5'", "(price = $2::int8)", ["5"]),
    ("id = '12' or id = 12", "((id = $2::int8) or (id = $3::int8))", ["12", "12"]),
    ("id = '99999999999999999999'", "(id = $2::numeric)", ["99999999999999999999"]),
    ("active = true and not active = 'FALSE'", "((active = $2::bool) and (not (active = $3::bool)))", ["true", "false"]),
    ("name like 'a%' or name not ILIKE '%b'", None, ["a%", "%b"]),
    ("id in (1,'2')", "(id = any($2::int8[]))", [["1", "2"]]),
    ("name NOT IN ('a', null)", "(not ((name = any($2::text[])) or (name is null)))", [["a"]]),
    ("price between 1 and 2 and active = true", "(((price >= $2::int8) and (price <= $3::int8)) and (active = $4::bool))", None),
    ("price not between 1 and 2", "(not ((price >= $2::int8) and (price <= $3::int8)))", ["1", "2"]),
    ("price is null or price IS NOT NULL", "((price is null) or (price is not null))", []),
    ("price = null or price != NULL", "((price is null) or (price is not null))", []),
    ("price > null", "null::bool", []),
    ("NOT (price > 1 OR NOT price < 1)", "(not ((price > $2::int8) or (not (price < $3::int8))))", ["1", "1"]),
    ("\"name\" = 'x'", "(name = $2::text)", ["x"]),
    # references
    ("categoryId = 12", "(categoryId = $2::int8)", ["12"]),
    ("category = 12 or category = 'id:12'", "((categoryId = $2::int8) or (categoryId = $3::int8))", ["12", "12"]),
    ("category = 'code:X'", "(t1.code = $2::text)", ["X"]),
    ("category = 'CODE:a:b'", "(t1.code = $2::text)", ["a:b"]),
    ("category != 'code:X'", "(t1.code <> $2::text)", ["X"]),
    ("category in ('code:X','code:Y')", "(t1.code = any($2::text[]))", [["X", "Y"]]),
    ("id = 'code:X'", "(code = $2::text)", ["X"]),
    ("id <> 'code:X'", "(code <> $2::text)", ["X"]),
    ("id <> 'barcode:1'", "(barcode is distinct from $2::text)", ["1"]),
    ("id in ('code:X','code:Y')", "(code = any($2::text[]))", [["X", "Y"]]),
    ("not id in ('barcode:1')", "(not coalesce((barcode = any($2::text[])), false))", [["1"]]),
    ("id in ('code:X',7,'id:8','9')", "((code = any($2::text[])) or (id = any($3::int8[])))", [["X"], ["7", "8", "9"]]),
    ("ID = 'Code:X:Y'", "(code = $2::text)", ["X:Y"]),
    ("id = '7'", "(id = $2::int8)", ["7"]),
    ("category in ('code:X',7)", "((t1.code = any($2::text[])) or (categoryId = any($3::int8[])))", [["X"], ["7"]]),
    ("category is null", "(categoryId is null)", []),
    ("not category is not null", "(not (categoryId is not null))", []),
]

WRONG = [
    ("filter", "name = 'x", 8, "not closed"),
    ("filter", "name = ", 8, "got the end"),
    ("filter", "name = 'a' and", 15, "got the end"),
    ("filter", "name = lower('x')", 13, "got"),
    ("filter", "lower(name) = 'x'", 6, "got '(name)'"),
    ("filter", "name::text = 'x'", 5, "got"),
    ("filter", "id = (select 1)", 6, "got '(select'"),
    ("filter", "name = 'a'; drop table x", 11, "expected AND, OR or the end, got ';'"),
    ("filter", "name;", 5, "expected NOT or an operator (= != < <= > >= LIKE ILIKE IN BETWEEN IS), got ';'"),
    ("sort", "name;", 5, "expected ',', asc, desc or the end, got ';'"),
    ("filter", "name = 'a' -- x", 12, "got '--'"),
    ("filter", "name = code", 8, "literal on one side"),
    ("filter", "1 = 1", 1, "field on one side"),
    ("filter", "active", 7, "got the end"),
    ("filter", "foo = 1", 1, "no field foo"),
    ("filter", "category/name = 'x'", 9, "got"),
    ("filter", "category = 'X'", 12, "expected a number"),
    ("filter", "category = 'name:X'", 12, "not a lookup"),
    ("filter", "id > 'code:X'", 4, "is compared with a row: expected =, != or IN"),
    ("filter", "id = 'name:X'", 6, "'name' is not a lookup of products: expected one of id, code, barcode"),
    ("filter", "category > 'code:X'", 10, "is compared with a row: expected =, != or IN"),
    ("filter", "name = 5", 8, "single quotes"),
    ("filter", "price = 'abc'", 9, "expected a number"),
    ("filter", "id = 1.5 and id = '1.5'", 19, "whole number"),
    ("filter", "active = 1", 10, "true or false"),
    ("filter", "updatedAt > 2026-11-20", 17, "got"),
    ("filter", "updatedAt > 'yesterday'", 13, "expected a timestamp"),
    ("filter", "updatedAt > '2026-02-30'", 13, "expected a timestamp"),
    ("filter", "price like '5%'", 7, "needs a text"),
    ("filter", "name like 'a\\'", 11, "escape"),
    ("filter", "name in ()", 10, "a literal"),
    ("filter", "(" * 101 + "id = 1" + ")" * 101, 101, "nested too deeply"),
    ("sort", "", 1, "a field"),
    ("sort", "foo", 1, "no field foo"),
    ("sort", "name,-foo", 7, "no field foo"),
    ("sort", "name sideways", 6, "asc, desc"),
    ("sort", "-name desc", 7, "got"),
    ("limit", "0", 1, "from 1 to 10,000"),
    ("limit", "10001", 1, "from 1 to 10,000"),
    ("limit", "ten", 1, "from 1 to 10,000"),
    ("limit", "", 1, "from 1 to 10,000"),
]


@pytest.mark.parametrize(("filter", "text", "parameters"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_a_filter_compiles_to(filter: str, text: str | None, parameters: list[Any] | None, catalog: Catalog) -> None:
    found, values = condition(sql_statements.count(list_query(catalog, catalog["products"], [("filter", filter)]), "acme"))
    assert text is None or found == text
    assert parameters is None or values == parameters


@pytest.mark.parametrize(("name", "text", "position", "message"), WRONG, ids=[f"{w[0]}={w[1][:40]}" for w in WRONG])
def test_a_wrong_parameter_is_an_error_at(name: str, text: str, position: int, message: str, catalog: Catalog) -> None:
    with pytest.raises(QueryError) as raised:
        list_query(catalog, catalog["products"], [(name, text)])
    assert (raised.value.status, raised.value.target, raised.value.position) == (400, name, position)
    assert message in raised.value.message


def test_a_reserved_word_can_be_a_name(catalog: Catalog) -> None:
    query = list_query(catalog, catalog["orderItems"], [("filter", "order = 'code:X'")])
    assert condition(sql_statements.count(query, "acme")) == ("(t1.code = $2::text)", ["X"])


def test_the_change_log_is_filtered_by_its_api_names(catalog: Catalog) -> None:
    query = log_query(catalog, [("filter", "(entity = 'units' OR ENTITY = 'orders') and id > 7 and rowId = 12")])
    assert condition(sql_statements.count(query, "acme")) == (
        "(((entity = $2::text) or (entity = $3::text)) and (id > $4::int8) and (rowId = $5::int8))",
        ["units", "orders", "7", "12"],
    )


@pytest.mark.parametrize("filter", ["", "  \n"])
def test_an_empty_filter_is_none(filter: str, catalog: Catalog) -> None:
    assert list_query(catalog, catalog["products"], [("filter", filter)]).filter is None


def test_a_repeated_parameter_is_an_error(catalog: Catalog) -> None:
    with pytest.raises(QueryError, match="twice"):
        list_query(catalog, catalog["products"], [("sort", "id"), ("sort", "id")])
