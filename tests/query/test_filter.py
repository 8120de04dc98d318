"""$filter: the SQL that it compiles to, with the values of $2, $3 ...; $1 is the company."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NOON = "2026-11-20 12:00:00"

PAIRS = [
    # comparison: null is a value, indexes stay usable
    ("name eq 'it''s'", "(name = $2::text)", ["it's"]),
    ("price eq 5", "(price = $2::int8)", ["5"]),
    ("price ne 5", "(price is distinct from $2::int8)", ["5"]),
    ("code ne 'A'", "(code <> $2::text)", ["A"]),
    ("not (price eq 5)", "(not (price is not distinct from $2::int8))", ["5"]),
    ("not (price gt 5)", "(not coalesce((price > $2::int8), false))", ["5"]),
    ("barcode eq description", "(barcode is not distinct from description)", []),
    ("price eq null", "(price is null)", []),
    ("null ne price", "(price is not null)", []),
    ("price gt null", "$2::bool", ["false"]),
    ("name lt 'b'", "(name collate C < $2::text)", ["b"]),
    ("(price gt 1) eq true", "(coalesce((price > $2::int8), false) = $3::bool)", ["1", "true"]),
    # references and paths
    ("category eq null", "(categoryId is null)", []),
    ("category/id eq 5", "(categoryId = $2::int8)", ["5"]),
    ("category/name eq 'x'", "(t1.name = $2::text)", ["x"]),
    ("category/parent ne null", "(t1.parentId is not null)", []),
    # logic
    ("active", "active", []),
    ("not active or active and active", "((not active) or (active and active))", []),
    ("active and active and (active or active)", "(active and active and (active or active))", []),
    # membership
    ("id in (1,2)", "(id = any($2::int8[]))", [["1", "2"]]),
    ("barcode in ('a',null)", "((barcode = any($2::text[])) or (barcode is null))", [["a"]]),
    ("not (barcode in ('a','b'))", "(not coalesce((barcode = any($2::text[])), false))", [["a", "b"]]),
    ("not barcode in ('a','b')", "(not coalesce((barcode = any($2::text[])), false))", [["a", "b"]]),
    ("id in (1,2.5)", "(id = any($2::numeric[]))", [["1", "2.5"]]),
    # literals
    ("id eq 12L", "(id = $2::int8)", ["12"]),
    ("id eq 5.0", "(id = $2::int8)", ["5"]),
    ("id eq 99999999999999999999", "(id = $2::numeric)", ["99999999999999999999"]),
    ("price eq -1.50e-2", "(price = $2::numeric)", ["-0.0150"]),
    ("weight gt 0.1", "(weight > $2::float8)", ["0.1"]),
    ("updatedAt gt 2026-11-20T08:15:30.5+02:00", "(updatedAt > $2::timestamptz)", ["2026-11-20 06:15:30.500000+00:00"]),
    ("updatedAt lt 9999-12-31T23:59:59-14:00", "(updatedAt < $2::timestamptz)", ["10000-01-01 13:59:59+00:00"]),
    ("updatedAt gt 0001-01-01T00:00:00+14:00", "(updatedAt > $2::timestamptz)", ["0001-12-31 10:00:00+00:00 BC"]),
    ("updatedAt gt 2026-11-20", "(updatedAt > $2::timestamptz)", ["2026-11-20 00:00:00+00"]),
    ("launched lt 2026-11-20T12:00:00Z", "(launched < $2::timestamp)", ["2026-11-20 12:00:00+00:00"]),
    ("launched in (2026-11-20,2026-11-20T12:00Z)", "(launched = any($2::timestamp[]))", [["2026-11-20", f"{NOON}+00:00"]]),
    ("launched eq updatedAt", "(launched = (updatedAt at time zone 'UTC'))", []),
    ("weight gt 3e-324", "(weight > $2::float8)", [f"0.{'0' * 323}3"]),
    ("weight gt -2e-324", "(weight::text::numeric > $2::numeric)", [f"-0.{'0' * 323}2"]),
    ("weight gt price", "(weight::text::numeric > price)", []),
    ("weight eq id", "(weight = id::float8)", []),
    ("cast(id,Edm.Double) eq -0", "(id::float8 = $2::float8)", ["0"]),
    ("cast(weight,Edm.Double) eq -0.0", "(weight = $2::float8)", ["0"]),
    # arithmetic
    ("price add 1 mul 2 gt 5.5", "((price + ($2::numeric * $3::numeric)) > $4::numeric)", ["1", "2", "5.5"]),
    ("(price add 1) mul 2 gt 5", "(((price + $2::numeric) * $3::numeric) > $4::int8)", ["1", "2", "5"]),
    ("id sub 1 sub 2 eq 3", "(((id::numeric - $2::numeric) - $3::numeric) = $4::int8)", ["1", "2", "3"]),
    ("id div 2 eq 3", "(div(id::numeric, nullif($2::numeric, 0)) = $3::int8)", ["2", "3"]),
    ("price div 2 eq 3", "((price / nullif($2::numeric, 0)) = $3::int8)", ["2", "3"]),
    ("-price lt -3", "((- price) < $2::int8)", ["-3"]),
    # functions
    ("contains(name,'a'' or 1=1 --')", "(name like $2::text)", ["%a' or 1=1 --%"]),
    ("not contains(description,'10%_\\')", "(not (description like $2::text))", ["%10\\%\\_\\\\%"]),
    ("contains(name,code) or contains(name,null)", "((strpos(name, code) > 0) or (strpos(name, null::text) > 0))", []),
    ("endswith(name,'x')", "(name like $2::text)", ["%x"]),
    ("length(name) gt 3", "(char_length(name) > $2::int8)", ["3"]),
    # parts and boundaries of dates: ranges of the bare column
    ("year(launched) eq 2026", "((launched >= $2::date) and (launched < $3::date))", ["2026-01-01", "2027-01-01"]),
    ("2026 lt year(launched)", "(launched >= $2::date)", ["2027-01-01"]),
    ("year(updatedAt) le 2026", "(updatedAt < $2::timestamptz)", ["2027-01-01 00:00:00+00:00"]),
    (
        "not (year(launched) eq 2026)",
        "(not (coalesce((launched >= $2::date), false) and coalesce((launched < $3::date), false)))",
        ["2026-01-01", "2027-01-01"],
    ),
    ("year(launched) eq 9999", "(extract(year from launched) = $2::int8)", ["9999"]),
    ("year(launched) ne 2026", "(extract(year from launched) is distinct from $2::int8)", ["2026"]),
    ("month(launched) eq 5", "(extract(month from launched) = $2::int8)", ["5"]),
    ("date(updatedAt) ge 2026-01-02", "(updatedAt >= $2::timestamptz)", ["2026-01-02 00:00:00+00:00"]),
    (
        "startOfMonth(updatedAt) gt 2026-02-03T00:00:00Z",
        "((updatedAt >= $2::timestamptz) and (updatedAt <= $3::timestamptz))",
        ["2026-03-01 00:00:00+00:00", "294275-12-31 23:59:59+00"],
    ),
    # suffixes of numbers, functions in any case
    ("price gt 10m", "(price > $2::int8)", ["10"]),
    ("price gt 10.5D", "(price > $2::numeric)", ["10.5"]),
    ("id eq 7l", "(id = $2::int8)", ["7"]),
    ("id in (7L,8l)", "(id = any($2::int8[]))", [["7", "8"]]),
    ("price eq 5M div 2d", "(price is not distinct from ($2::numeric / nullif($3::numeric, 0)))", ["5", "2"]),
    ("Contains(name,'a') and STARTSWITH(name,'b')", "((name like $2::text) and starts_with(name, $3::text))", ["%a%", "b"]),
    ("STARTOFMONTH(updatedAt) gt 2026-02-03T00:00:00Z",
        "((updatedAt >= $2::timestamptz) and (updatedAt <= $3::timestamptz))",
        ["2026-03-01 00:00:00+00:00", "294275-12-31 23:59:59+00"]),
    ("CAST(id,Edm.String) eq '5'", "((id::text collate C) = $2::text)", ["5"]),
    ("cast(id,Edm.String) eq '5'", "((id::text collate C) = $2::text)", ["5"]),
    # lambdas and counts: another view each, of the same company
    ("variants/any()", "exists (select from api.productVariants as t1 where t1.company_id = $1::text and t1.productId = id)", []),
    (
        "variants/any(v: v/price gt 1 and v/code ne code)",
        "exists (select from api.productVariants as t1 where t1.company_id = $1::text and t1.productId = id"
        " and ((t1.price > $2::int8) and (t1.code <> code)))",
        ["1"],
    ),
    (
        "variants/all(v: v/price gt 1)",
        "(not exists (select from api.productVariants as t1 where t1.company_id = $1::text and t1.productId = id"
        " and (t1.price > $2::int8) is not true))",
        ["1"],
    ),
    (
        "category/products/any(p: p/variants/any(v: v/price gt p/price and v/name eq category/name))",
        "exists (select from api.products as t2 where t2.company_id = $1::text and t2.categoryId = categoryId"
        " and exists (select from api.productVariants as t3 where t3.company_id = $1::text and t3.productId = t2.id"
        " and ((t3.price > t2.price) and (t3.name is not distinct from t1.name))))",
        [],
    ),
    (
        "variants/any(v: v/product/category/name eq 'x')",
        "exists (select from api.productVariants as t1"
        " left join api.products as t2 on t2.company_id = $1::text and t2.id = t1.productId"
        " left join api.categories as t3 on t3.company_id = $1::text and t3.id = t2.categoryId"
        " where t1.company_id = $1::text and t1.productId = id and (t3.name = $2::text))",
        ["x"],
    ),
    (
        "variants/$count add 1 gt price",
        "(((select count(*) from api.productVariants as t1 where t1.company_id = $1::text and t1.productId = id)::numeric"
        " + $2::numeric) > price)",
        ["1"],
    ),
    (
        "cast(concat(name,code),Edm.Int64) eq 5",
        "((select case when o.a0 collate C ~ '^([-+]?[0-9]+)$' and pg_input_is_valid(o.a0, 'int8') then o.a0::int8 end"
        " from (select (name || code) as a0 offset 0) as o) = $2::int8)",
        ["5"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("filter", "text", "parameters"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_a_filter_compiles_to(filter: str, text: str, parameters: list[Any], where: Callable[..., tuple[str, list[Any]]]) -> None:
    assert where(filter) == (text, parameters)
