"""$apply: groups in PostgreSQL, and errors with their positions."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from app.database.catalog import Catalog
from app.errors import QueryError
from app.query.check.options import parse_query
from app.query.sql import statements as sql_statements
from app.query.sql.rows import ODATA, Style
from tests.query.conftest import Company


def groups(acme: Company, entity: str, style: Style = ODATA, **options: str) -> list[Any]:
    """The groups; a stream, a page and the count must agree."""
    query = acme.query(entity, **options)
    rows = [json.loads(row, parse_float=Decimal) for (row,) in acme.run(sql_statements.rows(query, "acme", style))]
    ((body, *_),) = acme.run(sql_statements.page(query, "acme", style))
    assert json.loads(f"[{body or ''}]", parse_float=Decimal) == rows
    if not {"top", "skip"} & set(options):
        assert acme.run(sql_statements.count(query, "acme"))[0][0] == len(rows)
    return rows


T, H, Z = ({"name": name} for name in ("Tools", "Hammers", "Zangen ÄÖ"))
D = Decimal

ANSWERS = [
    # groups alone, and one group of all
    ("groupby((active))", [{"active": False}, {"active": True}]),
    ("groupby((active,active))", [{"active": False}, {"active": True}]),
    ("aggregate($count as n)", [{"n": 5}]),
    ("aggregate(price with sum as s,price with min as a,price with max as z)", [{"s": D("1000000000000004.9999"), "a": D("-7.5"), "z": D("999999999999999.9999")}]),
    # null is left out
    ("aggregate(price with count as n,price with countdistinct as d,$count as all)", [{"n": 4, "d": 4, "all": 5}]),
    ("aggregate(active with countdistinct as d,barcode with count as b,categoryId with countdistinct as c)", [{"d": 2, "b": 4, "c": 3}]),
    ("groupby((code),aggregate(price with sum as s))", [{"code": c, "s": s} for c, s in (("A", D("12.5")), ("B", 0), ("C", D("-7.5")), ("D", None), ("E", D("999999999999999.9999")))]),
    # every function, over every type
    ("aggregate(id with sum as s,id with avg as a,id with average as b,id with max as z)", [{"s": 15, "a": 3, "b": 3, "z": 5}]),
    ("aggregate(name with min as a,name with max as z)", [{"a": " Äpfel %_\\ ", "z": "日本 𝒳y"}]),
    ("aggregate(active with min as a,active with max as z)", [{"a": False, "z": True}]),
    # expressions
    ("aggregate(price mul 2 add id with sum as s,length(name) with max as l,year(updatedAt) gt 2000 with min as y)", [{"s": D("2000000000000020.9998"), "l": 12, "y": True}]),
    ("aggregate(variants/$count with sum as v,concat(code,name) with max as m)", [{"v": 3, "m": "E日本 𝒳y"}]),
    # paths: a nested object; null, as one group, where a path leads to no row
    ("groupby((category/name),aggregate($count as n))", [{"category": c, "n": n} for c, n in ((None, 1), (H, 2), (T, 1), (Z, 1))]),
    ("groupby((category/id))", [{"category": c} for c in (None, {"id": 1}, {"id": 2}, {"id": 3})]),
    ("groupby((categoryId))", [{"categoryId": c} for c in (None, 1, 2, 3)]),
    (
        "groupby((category/parentId))",
        [{"category": c} for c in (None, {"parentId": None}, {"parentId": 1})],
    ),
    (
        "groupby((category/parent/name,category/parent/code))",
        [{"category": c} for c in (None, {"parent": None}, {"parent": {"name": "Tools", "code": "T"}})],
    ),
    (
        "groupby((category/parent/code,active,category/code),aggregate($count as n))",
        [
            {"category": None, "active": True, "n": 1},
            {"category": {"parent": None, "code": "T"}, "active": False, "n": 1},
            {"category": {"parent": {"code": "T"}, "code": "H"}, "active": False, "n": 1},
            {"category": {"parent": {"code": "T"}, "code": "H"}, "active": True, "n": 1},
            {"category": {"parent": {"code": "T"}, "code": "Z"}, "active": True, "n": 1},
        ],
    ),
    ("aggregate(category/name with max as m,category/parent/id with sum as p)", [{"m": "Zangen ÄÖ", "p": 3}]),
]  # fmt: skip


@pytest.mark.parametrize(("apply", "expected"), ANSWERS, ids=[answer[0] for answer in ANSWERS])
def test_groups_of_products(apply: str, expected: list[Any], acme: Company) -> None:
    rows = groups(acme, "products", apply=apply)
    assert sorted(rows, key=repr) == sorted(expected, key=repr)
    for row in rows:
        assert list(row) == list(expected[0])


BY_CATEGORY = "groupby((category/code),aggregate(price with sum as s,$count as n))"

OPTIONS = [
    ({}, "- H T Z"),
    ({"orderby": "category/code desc"}, "Z T H -"),
    ({"orderby": "s desc"}, "T H Z -"),
    ({"orderby": "n desc,category/code desc"}, "H Z T -"),
    ({"orderby": "s mul n add 1"}, "- Z H T"),
    ({"orderby": "n", "top": "2"}, "- T"),
    ({"orderby": "n", "top": "2", "skip": "2"}, "Z H"),
    ({"top": "0"}, ""),
    # conditions on fields restrict the rows, conditions on aliases the groups
    ({"filter": "active"}, "- H Z"),
    ({"filter": "category/code eq 'H'"}, "H"),
    ({"filter": "category ne null and n eq 1"}, "T Z"),
    ({"filter": "s gt 0"}, "H T"),
    ({"filter": "s eq null"}, "-"),
    ({"filter": "not (s gt 0)"}, "- Z"),
    ({"filter": "(active and (n eq 1 and code ne 'C'))"}, "- H"),
    ({"filter": "n mul 2 eq 4 or s lt 0"}, "H Z"),
    ({"filter": "s div n eq 6.25"}, "H"),
    ({"filter": "n in (2,3)"}, "H"),
    ({"filter": "variants/any(n:n/price ge 1) and n eq 1"}, "- H"),
    ({"filter": "false"}, ""),
]


@pytest.mark.parametrize(("options", "codes"), OPTIONS, ids=[repr(each[0]) for each in OPTIONS])
def test_options_work_on_groups(options: dict[str, str], codes: str, acme: Company) -> None:
    rows = groups(acme, "products", apply=BY_CATEGORY, **options)
    assert " ".join(row["category"]["code"] if row["category"] else "-" for row in rows) == codes


def test_a_filter_on_fields_keeps_the_one_group_and_a_filter_on_aliases_can_remove_it(acme: Company) -> None:
    apply = "aggregate($count as n,price with sum as s)"
    assert groups(acme, "products", apply=apply, filter="code eq 'none'") == [{"n": 0, "s": None}]
    assert groups(acme, "products", apply=apply, filter="code eq 'none' and n gt 0") == []


def test_a_page_of_groups_has_the_total(acme: Company) -> None:
    query = acme.query("products", apply=BY_CATEGORY, top="1", count="true", filter="n gt 0")
    ((_, count, *_),) = acme.run(sql_statements.page(query, "acme"))
    assert count == 4
    assert (query.entities, str(query.groups)) == (("products", "categories"), "category(code),s,n")


def test_numbers_and_types_follow_the_format(acme: Company) -> None:
    apply = "groupby((categoryId),aggregate(price with sum as s,id with sum as i,id with avg as a,$count as n))"
    options = {"apply": apply, "filter": "categoryId eq 2"}
    assert groups(acme, "products", Style(numbers_as_strings=True), **options) == [
        {"categoryId": "2", "s": "12.5000", "i": "3", "a": "1.5000000000000000", "n": "2"}
    ]
    ((row,),) = acme.run(sql_statements.rows(acme.query("products", **options), "acme", Style(base="http://x/")))
    assert row == (
        '{"@odata.type":"#bds.product","@odata.id":null,"categoryId@odata.type":"#Int64","categoryId":2,'
        '"s@odata.type":"#Decimal","s":12.5000,"i@odata.type":"#Decimal","i":3,'
        '"a@odata.type":"#Decimal","a":1.5000000000000000,"n@odata.type":"#Int64","n":2}'
    )


def test_dates_and_times_are_written_as_in_rows(acme: Company) -> None:
    apply = "aggregate(orderDate with min as a,orderDate with max as z,updatedAt with max as u)"
    ((time,),) = acme.connection.execute('select max("updatedAt") from api.orders').fetchall()
    assert groups(acme, "orders", apply=apply) == [{"a": "1969-12-31", "z": "2026-01-04", "u": f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"}]


def test_a_deep_path_is_a_deep_object(acme: Company) -> None:
    ((row,),) = acme.run(
        sql_statements.rows(acme.query("products", apply=f"groupby((category{'/parent' * 19}/name))", top="1", skip="1"), "acme")
    )
    assert row == '{"category":{"parent":null}}'


def test_queries_that_differ_in_aliases_share_one_text(acme: Company) -> None:
    texts = {
        sql_statements.rows(acme.query("products", apply=f"aggregate(price with max as {alias})"), "acme").text
        for alias in ("hostile", "other")
    }
    assert len(texts) == 1 and b"hostile" not in texts.pop()


def test_groups_that_use_now_are_volatile(acme: Company) -> None:
    assert acme.query("products", apply="aggregate(now() with max as t)").volatile
    assert acme.query("products", apply="aggregate(updatedAt with max as t)", filter="t lt now()").volatile


WRONG = [
    ("", 1, "expected a name, aggregate or groupby"),
    ("groupby(active)", 9, "expected '('"),
    ("groupby((active),", 18, "aggregate"),
    ("groupby((foo))", 10, "no field foo"),
    ("groupby((category))", 10, "navigation property"),
    ("groupby((category/foo))", 19, "no field foo"),
    ("groupby((variants/code))", 10, "collection"),
    ("groupby((name/x))", 10, "not a navigation property"),
    ("aggregate()", 11, "got ')'"),
    ("aggregate(price)", 16, "with"),
    ("aggregate(price as p)", 17, "with"),
    ("aggregate(price with sum)", 25, "as"),
    ("aggregate(price with total as t)", 22, "no such method: total, expected one of sum, avg"),
    ("aggregate(foo with sum as s)", 11, "no field foo"),
    ("aggregate($size as s)", 11, "expected $count"),
    ("aggregate(price with sum as name)", 29, "has a property name"),
    ("aggregate(price with sum as category)", 29, "has a property category"),
    ("aggregate(price with sum as s,$count as s)", 41, "given twice"),
    ("aggregate(price with sum as a.b)", 29, "without dots"),
    ("aggregate(price with sum as 's')", 29, "a name"),
    ("aggregate(name with sum as s)", 11, "sum takes numbers, got Edm.String"),
    ("aggregate(launched with avg as s)", 11, "avg takes numbers, got Edm.Date"),
    ("aggregate(null with max as s)", 11, "max takes comparable values, got null"),
    ("aggregate(price mul name with sum as s)", 17, "mul takes"),
    ("aggregate(variants/price with sum as s)", 11, "collection"),
    ("pivot((active))", 1, "no such transformation: pivot"),
    ("groupby((active)),aggregate($count as n)", 18, "got"),
    ("groupby((category" + "/parent" * 20 + "/name))", 152, "nested too deeply"),
    (f"aggregate({','.join(f'1 with sum as a{n}' for n in range(101))})", 11, "at most 100"),
]

UNSUPPORTED = [
    ("filter(price gt 5)/groupby((active))", "filter"),
    ("groupby((active),aggregate($count as n))/filter(n gt 1)", "filter"),
    ("groupby((active),filter(price gt 1))", "filter"),
    ("compute(price mul 2 as double)", "compute"),
    ("concat(aggregate($count as n),groupby((active)))", "concat"),
    ("expand(variants,filter(price gt 1))", "expand"),
    ("topcount(5,price)", "topcount"),
    ("identity", "identity"),
    ("groupby((rollup($all,active)))", "rollup"),
    ("groupby((active))/aggregate($count as n)", "sequence"),
    ("Custom.Scale()", "Custom.Scale"),
]

OPTIONS_WRONG = [
    ("$filter", "n gt 1 or active", 1, "not both"),
    ("$filter", "active and s gt price", 12, "not both"),
    ("$filter", "active and variants/any(v:v/price gt s)", 38, "not both"),
    ("$filter", "foo gt 1", 1, "no field foo"),
    ("$filter", "s eq 'x'", 3, "cannot be compared"),
    ("$filter", "n", 1, "expected a condition"),
    ("$filter", "n/x eq 1", 1, "no field n"),
    ("$orderby", "name", 1, "name is neither grouped nor aggregated: expected one of category/code, active, s, n"),
    ("$orderby", "s,category", 3, "category is neither grouped nor aggregated"),
    ("$orderby", "category eq null", 1, "category is neither grouped nor aggregated"),
    ("$orderby", "variants/$count", 1, "variants is neither grouped nor aggregated"),
    ("$orderby", "variants/any()", 1, "variants is neither grouped nor aggregated"),
    ("$select", "s", None, "cannot be given with $apply"),
    ("$expand", "category", None, "cannot be given with $apply"),
]


@pytest.mark.parametrize(("apply", "position", "message"), WRONG, ids=[wrong[0][:50] for wrong in WRONG])
def test_a_wrong_apply_is_an_error_at(apply: str, position: int, message: str, catalog: Catalog) -> None:
    with pytest.raises(QueryError) as raised:
        parse_query(catalog, catalog["products"], [("$apply", apply)])
    assert (raised.value.status, raised.value.target, raised.value.position) == (400, "$apply", position)
    assert message in raised.value.message


@pytest.mark.parametrize(("apply", "name"), UNSUPPORTED, ids=[each[0] for each in UNSUPPORTED])
def test_an_unsupported_transformation_is_named(apply: str, name: str, catalog: Catalog) -> None:
    with pytest.raises(QueryError, match=f"{name}.* is not supported") as raised:
        parse_query(catalog, catalog["products"], [("$apply", apply)])
    assert (raised.value.status, raised.value.target) == (501, "$apply")


@pytest.mark.parametrize(("option", "text", "position", "message"), OPTIONS_WRONG, ids=[f"{w[0]}={w[1]}" for w in OPTIONS_WRONG])
def test_a_wrong_option_is_an_error_at(option: str, text: str, position: int | None, message: str, catalog: Catalog) -> None:
    apply = "groupby((category/code,active),aggregate(price with sum as s,$count as n))"
    with pytest.raises(QueryError) as raised:
        parse_query(catalog, catalog["products"], [("$apply", apply), (option, text)])
    assert (raised.value.status, raised.value.target, raised.value.position) == (400, option, position)
    assert message in raised.value.message
