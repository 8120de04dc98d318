"""The extended profile: options inside $expand, parameter aliases, filters in $apply; each is refused while it is off."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pglast
import pytest

from app.odata.response import Reading
from app.query.sql.parameters import Statement
from tests.chance import seeds
from tests.service.serving import Reply, Service, running

NAVIGATIONS = {  # entity -> navigation -> entity, key of the target, key of the row, whether many
    "categories": {"products": ("products", "categoryId", "id", True), "parent": ("categories", "id", "parentId", False)},
    "products": {
        "category": ("categories", "id", "categoryId", False),
        "variants": ("productVariants", "productId", "id", True),
        "orderItems": ("orderItems", "productId", "id", True),
    },
    "productVariants": {"product": ("products", "id", "productId", False)},
    "orders": {"items": ("orderItems", "orderId", "id", True)},
    "orderItems": {"order": ("orders", "id", "orderId", False), "product": ("products", "id", "productId", False)},
}
FIELDS = {
    "categories": ("id", "code", "name"),
    "products": ("id", "code", "price", "categoryId"),
    "productVariants": ("id", "code", "price"),
    "orders": ("id", "code", "orderDate", "total"),
    "orderItems": ("id", "quantity", "price", "description"),
}


def fill(service: Service, company: str) -> None:
    """Rows with equal ids in two companies, so that a join without the company would show."""
    service.operator.write(
        company,
        f"""
        insert into data.categories (company_id, id, code, name) select '{company}', n, 'C' || n, 'category ' || n from generate_series(1, 6) n;
        update data.categories set parent_id = id / 2 where id > 1 and company_id = '{company}';
        insert into data.products (company_id, id, code, name, price, category_id) select '{company}', n, 'P' || n, 'product ' || n,
            nullif(mod(n * 7, 11), 3) / 2.0, nullif(mod(n, 6), 0) from generate_series(1, 20) n;
        insert into data.product_variants (company_id, id, code, price, product_id) select '{company}', n, 'V' || n,
            nullif(mod(n * 5, 7), 2), 1 + mod(n, 9) from generate_series(1, 30) n;
        insert into data.orders (company_id, id, code, order_date, total) select '{company}', n, 'O' || n, date '2026-01-01' + n,
            nullif(mod(n * 3, 5), 0) from generate_series(1, 12) n;
        insert into data.order_items (company_id, id, order_id, product_id, quantity, price, description)
            select '{company}', n, 1 + mod(n, 11), nullif(mod(n * 3, 21), 0), mod(n, 4) + 1, nullif(mod(n, 6), 0),
                case mod(n, 3) when 0 then null when 1 then 'a;b,(c' else 'it''s)' end from generate_series(1, 60) n;
        """,
    )


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, odata_extended=True) as service:
        service.operator.company("other")
        for company in ("other", "demo"):
            fill(service, company)
        yield service


@pytest.fixture(scope="module")
def plain(service: Service, module_database_url: str) -> Iterator[Service]:
    """The same rows, with the profile off."""
    with running(module_database_url, company=None) as other:
        yield Service(other.host, other.port, service.key, service.operator, other.stop)


def get(service: Service, entity: str, **options: str) -> Reply:
    query = "&".join(f"{'@' + name[1:] if name[0] == '_' else '$' + name}={quote(text)}" for name, text in options.items())
    return service.odata(f"/{entity}?{query}")


def value(service: Service, entity: str, **options: str) -> Any:
    reply = get(service, entity, **options)
    assert reply.status == 200, reply.body
    return reply.json["value"]


# Options inside $expand -----------------------------------------------------------------------------------------------------------


def test_each_option_restricts_the_rows_inside(service: Service) -> None:
    def items(options: str, **more: str) -> Any:
        (row,) = value(service, "orders", filter="id eq 3", select="code", expand=f"items({options})", **more)
        return row["items"]

    whole = items("$skip=0")
    assert [row["id"] for row in whole] == [2, 13, 24, 35, 46, 57]
    assert items("$select=id") == [{"id": row["id"]} for row in whole]
    assert items(" $select = id ; $top = 2 ") == [{"id": 2}, {"id": 13}]
    assert items("$orderby=id desc;$top=2;$select=id") == [{"id": 57}, {"id": 46}]
    assert items("$skip=4;$select=id") == [{"id": 46}, {"id": 57}]
    assert items("$filter=quantity gt 2;$select=id") == [{"id": row["id"]} for row in whole if row["quantity"] > 2]
    assert items("$filter=description eq 'a;b,(c';$select=id") == [{"id": 13}, {"id": 46}]
    assert items("$filter=description eq 'it''s)';$select=id") == [{"id": 2}, {"id": 35}]
    assert items("$filter=product/category/code eq 'C1';$select=id") == [
        {"id": row["id"]} for row in whole if row["productId"] in (1, 7, 13, 19)
    ]
    assert items("$top=0") == []


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ("$top=2147483647", [2, 13, 24, 35, 46, 57]),
        ("$top=3000000000", [2, 13, 24, 35, 46, 57]),
        ("$skip=4;$top=2147483647", [46, 57]),
        ("$skip=4;$top=99999999999999999999;$orderby=id desc", [13, 2]),
        ("$skip=2147483646;$top=1", []),
        ("$skip=2147483647", []),
        ("$skip=99999999999999999999;$top=99999999999999999999", []),
        ("$skip=3000000000;$top=0", []),
    ],
)
def test_a_page_inside_may_be_as_large_as_one_outside_in_the_past_too(service: Service, options: str, ids: list[int]) -> None:
    version = service.ask("/c/demo").json["position"]
    for company in ("demo", f"demo@{version}"):
        for filter in ("id eq 3", "code eq 'O3'", "id gt 2 and id lt 4"):
            path = f"/api/odata/{company}/orders?$select=id&$filter={quote(filter)}&$expand=items({quote(options + ';$select=id')})"
            reply = service.ask(path)
            assert reply.status == 200, reply.body
            assert reply.json["value"] == [{"id": 3, "items": [{"id": id} for id in ids]}], path


def test_a_count_inside_is_that_of_all_rows_that_match(service: Service) -> None:
    (row,) = value(
        service, "orders", filter="id eq 3", select="id", expand="items($count=true;$top=1;$filter=quantity gt 1;$select=id)"
    )
    assert row == {"id": 3, "items@odata.count": 5, "items": [{"id": 2}]}
    strings = service.odata(
        "/orders?$top=1&$select=id&$expand=items($count=true;$select=id)", Accept="application/json;IEEE754Compatible=true"
    )
    assert isinstance(strings.json["value"][0]["items@odata.count"], str)


def test_expansions_nest_to_the_fifth_level(service: Service) -> None:
    path = "items($top=1;$select=id;$expand=product($select=code;$expand=category($select=code;$expand=products($top=1;$select=code;$expand={}))))"
    (row,) = value(service, "orders", filter="id eq 3", select="code", expand=path.format("variants($top=1;$select=code)"))
    product = row["items"][0]["product"]
    assert product["code"] == "P6" and product["category"] is None
    (row,) = value(service, "orders", filter="id eq 2", select="code", expand=path.format("variants($top=1;$select=code)"))
    assert row == {
        "code": "O2",
        "items": [
            {
                "id": 1,
                "product": {"code": "P3", "category": {"code": "C3", "products": [{"code": "P3", "variants": [{"code": "V2"}]}]}},
            }
        ],
    }
    refused = get(service, "orders", expand=path.format("variants($expand=product)"))
    assert (refused.status, refused.json["error"]["target"]) == (400, "$expand")
    assert "at most 5 levels" in refused.json["error"]["message"]


CONTEXTS = [
    ("orders", "items($select=quantity)", "#orders(items(quantity))"),
    ("orders", "items($expand=product($select=code,category))", "#orders(items(product(code,category)))"),
    ("products", "category($select=code;$expand=parent),variants($top=1)", "#products(category(code,parent()),variants())"),
]


@pytest.mark.parametrize(("entity", "expand", "fragment"), CONTEXTS)
def test_context_urls_list_what_is_inside(service: Service, entity: str, expand: str, fragment: str) -> None:
    assert get(service, entity, expand=expand).json["@odata.context"].endswith("$metadata" + fragment)


def test_a_row_and_the_rows_behind_it_take_nested_options(service: Service) -> None:
    row = service.odata("/orders(3)?$select=code&$expand=items($select=id;$top=1;$expand=product($select=code))").json
    assert (row["code"], row["items"]) == ("O3", [{"id": 2, "product": {"code": "P6"}}])
    rows = service.odata(
        "/categories(1)/products?$select=code&$top=1&$expand=variants($select=code;$orderby=code%20desc;$top=1)"
    ).json["value"]
    assert rows == [{"code": "P1", "variants": [{"code": "V9"}]}]


def test_full_metadata_reaches_the_rows_inside(service: Service) -> None:
    accept = "application/json;odata.metadata=full"
    (row,) = service.odata(
        "/orders?$filter=id%20eq%203&$expand=items($select=id;$top=1;$expand=product($select=code))", Accept=accept
    ).json["value"]
    assert row["items"][0]["@odata.type"] == "#bds.orderItem" and row["items"][0]["product"]["@odata.id"].endswith("products(6)")


WRONG = [
    ("items($select=nothing)", 400, 15, "no field nothing"),
    ("items($top=x)", 400, 12, "whole number"),
    ("items($filter=quantity gt)", 400, 26, "expected"),
    ("items($filter=quantity gt 'x')", 400, 24, "compared"),
    ("items( $expand = product( $filter = price gt 1))", 400, 27, "expected one of $expand, $select, got $filter"),
    ("items($expand=product($select=nothing))", 400, 31, "no field nothing"),
    ("items($expand=product($expand=nothing))", 400, 31, "not a navigation property"),
    ("items($top=1;$top=2)", 400, 14, "given twice"),
    ("items($format=json)", 400, 7, "expected one of"),
    ("items(top=1)", 400, 7, "expected one of"),
    ("items($top)", 400, 7, "an option such as"),
    ("items($top=1", 400, 13, "')'"),
    ("items($top=1))", 400, 14, "')'"),
    ("items($top=1)x", 400, 14, "after ')'"),
    ("items($top=1),items", 400, 15, "twice"),
    ("*($top=1)", 400, 2, "takes no options"),
    ("nothing($top=1)", 400, 1, "not a navigation property"),
    ("items($search=x)", 501, 7, "$search"),
    ("items($levels=2)", 501, 7, "$levels"),
    ("items($apply=aggregate($count as n))", 501, 7, "$apply"),
    ("items($skiptoken=x)", 501, 7, "$skiptoken"),
    ("items/$ref($top=1)", 501, 7, "$ref"),
    ("items/$count", 501, 7, "$count"),
    ("items($filter=id has 1)", 501, 18, "has"),
]


@pytest.mark.parametrize(("expand", "status", "position", "message"), WRONG, ids=[each[0] for each in WRONG])
def test_a_wrong_option_inside_has_its_place_in_the_whole_text(
    service: Service, expand: str, status: int, position: int, message: str
) -> None:
    error = get(service, "orders", expand=expand)
    assert (error.status, error.json["error"]["target"]) == (status, "$expand"), error.body
    assert error.json["error"]["message"].endswith(f"(at character {position})") and message in error.json["error"]["message"]


def test_bounds_of_expansions(service: Service) -> None:
    many = ",".join(["items($top=1;$expand=order,product)"] * 2)
    assert get(service, "orders", expand=many).status == 400
    wide = "variants,orderItems,category,unit,invoiceItems"
    text = f"products($expand={wide.replace('category', 'category($expand=*)')})"
    for _ in range(2):
        assert get(service, "categories", expand=text).status in (200, 400)
    assert "too long" in get(service, "orders", expand=f"items($filter=description eq '{'x' * 20_000}')").json["error"]["message"]
    deep = "items($filter=" + "(" * 101 + "true" + ")" * 101 + ")"
    assert get(service, "orders", expand=deep).status == 400


def test_other_companies_stay_outside(service: Service) -> None:
    service.operator.write(
        "other", "insert into data.order_items (company_id, id, order_id, description) values ('other', 999, 3, 'secret')"
    )
    for expand in ("items", "items($count=true;$orderby=id desc)", "items($filter=description eq 'secret';$count=true)"):
        body = get(service, "orders", expand=expand).body
        assert b"secret" not in body.replace(b"'secret'", b"") and b'"id":999' not in body
        assert b'"items@odata.count":7' not in body


# A differential test --------------------------------------------------------------------------------------------------------------


def expansion(choose: random.Random, entity: str, many: bool, level: int) -> tuple[str, dict[str, Any]]:
    """Random options for rows of an entity: their text, and what they mean."""
    meaning: dict[str, Any] = {"select": None, "expand": {}}
    texts = []
    if choose.random() < 0.6:
        meaning["select"] = choose.sample(FIELDS[entity], choose.randint(1, len(FIELDS[entity])))
        texts.append(f"$select={','.join(meaning['select'])}")
    if many:
        if choose.random() < 0.5:
            meaning["over"] = choose.randint(0, 20)
            texts.append(f"$filter=id gt {meaning['over']}")
        if choose.random() < 0.5:
            meaning["order"] = choose.choice(FIELDS[entity]), choose.random() < 0.5
            texts.append(f"$orderby={meaning['order'][0]}{' desc' if meaning['order'][1] else ''}")
        for name in ("top", "skip"):
            if choose.random() < 0.3:
                meaning[name] = choose.randint(0, 4)
                texts.append(f"${name}={meaning[name]}")
        if choose.random() < 0.3:
            meaning["count"] = True
            texts.append("$count=true")
    steps = list(NAVIGATIONS[entity]) if level < 3 else []
    inside = []
    for name in choose.sample(steps, choose.randint(0, len(steps))):
        target, _, _, is_many = NAVIGATIONS[entity][name]
        text, meaning["expand"][name] = expansion(choose, target, is_many, level + 1)
        inside.append(f"{name}({text})" if text else name)
    texts += [f"$expand={','.join(inside)}"] if inside else []
    choose.shuffle(texts)
    return ";".join(texts), meaning


def key_of(item: Any) -> Any:
    return (item is not None, item)


def answer(tables: dict[str, list[dict[str, Any]]], entity: str, row: dict[str, Any], meaning: dict[str, Any]) -> dict[str, Any]:
    """The row as the options want it."""
    shown = {name: text for name, text in row.items() if meaning["select"] is None or name in meaning["select"]}
    for name, inside in meaning["expand"].items():
        target, key, own, many = NAVIGATIONS[entity][name]
        found = [each for each in tables[target] if row[own] is not None and each[key] == row[own]]
        if not many:
            shown[name] = answer(tables, target, found[0], inside) if found else None
            continue
        found = [each for each in found if each["id"] > inside.get("over", -1)]
        if "order" in inside:
            field, descending = inside["order"]
            found.sort(key=lambda each: key_of(each[field]), reverse=descending)  # stable, by id
            if descending:
                found.sort(key=lambda each: each["id"])
                found.sort(key=lambda each: key_of(each[field]), reverse=True)
        if "count" in inside:
            shown[f"{name}@odata.count"] = len(found)
        page = found[inside.get("skip", 0) :][: inside.get("top", len(found))]
        shown[name] = [answer(tables, target, each, inside) for each in page]
    return shown


@pytest.mark.parametrize("seed", seeds(3))
def test_random_expansions_are_what_the_rows_say(service: Service, plain: Service, seed: int) -> None:
    choose = random.Random(20261122 + seed)
    tables = {entity: value(plain, entity) for entity in NAVIGATIONS}
    for _ in range(25):
        entity = choose.choice(list(NAVIGATIONS))
        text, meaning = expansion(choose, entity, False, 0)
        options = dict(part.partition("=")[::2] for part in split_outside(text))
        given = {name.removeprefix("$"): each for name, each in options.items()}
        found = value(service, entity, **given)
        expected = [answer(tables, entity, row, meaning) for row in tables[entity]]
        assert found == expected, text


def split_outside(text: str) -> list[str]:
    """Split options at the semicolons outside of parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == ";" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part]


def test_a_tag_depends_on_the_rows_inside_the_rows_inside(service: Service) -> None:
    path = "/orders(3)?$expand=items($expand=product($select=code))"
    tag = service.odata(path).headers["ETag"]
    assert service.odata(path, If_None_Match=tag).status == 304
    service.operator.write("demo", "update data.products set name = name || '!' where company_id = 'demo' and id = 6")
    assert service.odata(path, If_None_Match=tag).status == 200


def test_a_request_with_nested_expansions_is_one_statement(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    run, statements = Reading.fetch_row, []

    async def counted(reading: Reading, statement: Statement, **how: bool) -> Any:
        statements.append(statement)
        return await run(reading, statement, **how)

    monkeypatch.setattr(Reading, "fetch_row", counted)
    expand = "items($count=true;$expand=product($expand=category($expand=parent($select=code)))),items($top=1)"
    assert get(service, "orders", expand=expand).status == 400
    expand = expand.removesuffix(",items($top=1)")
    assert len(value(service, "orders", top="12", expand=expand)) == 12
    (statement,) = statements
    (parsed,) = pglast.parse_sql(statement.text.decode())
    assert isinstance(parsed.stmt, pglast.ast.SelectStmt)
    assert statement.text.count(b"company_id") >= 6, "each view is restricted to the company"


# Parameter aliases ----------------------------------------------------------------------------------------------------------------


ALIASES = [
    ("products", {"filter": "price gt @p", "_p": "4"}, "price gt 4"),
    ("products", {"filter": "price gt @p and code ne @c", "_p": "4.0", "_c": "'P9'"}, "price gt 4 and code ne 'P9'"),
    ("products", {"filter": "category eq @none", "_none": "null"}, "category eq null"),
    ("products", {"filter": "categoryId eq @missing"}, "categoryId eq null"),
    ("products", {"filter": "code in @list", "_list": "('P1','P2')"}, "code in ('P1','P2')"),
    ("products", {"filter": "id in (1,@p)", "_p": "3"}, "id in (1,3)"),
    ("products", {"filter": "id in (@p)", "_p": "3"}, "id in (3)"),
    ("products", {"filter": "contains(name,@t)", "_t": "'1'"}, "contains(name,'1')"),
    ("products", {"filter": "price gt @p", "_p": "1 add 3"}, "price gt 1 add 3"),
    ("products", {"filter": "@p", "_p": "id lt 3"}, "id lt 3"),
    ("products", {"filter": "variants/any(v: v/price gt @p)", "_p": "5"}, "variants/any(v: v/price gt 5)"),
    ("orders", {"filter": "orderDate ge @d", "_d": "2026-01-05"}, "orderDate ge 2026-01-05"),
    ("products", {"filter": "5 div @p gt 2", "_p": "2.0"}, "5 div 2.0 gt 2"),
]  # fmt: skip


@pytest.mark.parametrize(("entity", "options", "same"), ALIASES, ids=[str(each[1]) for each in ALIASES])
def test_an_alias_stands_for_its_value(service: Service, plain: Service, entity: str, options: dict[str, str], same: str) -> None:
    assert value(service, entity, **options) == value(plain, entity, filter=same)


def test_an_alias_without_a_value_is_null_and_the_answer_warns(service: Service) -> None:
    reply = get(service, "products", filter="code eq @x or price gt @a", orderby="@größe", search="x", _a="99")
    assert (reply.status, reply.json["value"]) == (200, [])
    assert reply.headers["Warning"] == (
        '299 - "$search has no effect", 299 - "@gr%C3%B6%C3%9Fe has no value: it is null", 299 - "@x has no value: it is null"'
    )
    listed = get(service, "products", filter="price in (@x) and code in (@y)", _y="'P1'")
    assert (listed.status, listed.json["value"]) == (200, value(service, "products", filter="price eq null and code eq 'P1'"))
    assert listed.headers["Warning"] == '299 - "@x has no value: it is null"'
    inside = get(service, "orders", top="1", expand="items($filter=id eq @y)")
    assert inside.headers["Warning"] == '299 - "@y has no value: it is null"'
    assert get(service, "products", filter="code eq @x", _x="null").headers["Warning"] is None


def test_aliases_stand_in_keys_orders_and_expansions(service: Service) -> None:
    assert service.odata("/products(@p)?@p=3").json["code"] == "P3"
    assert service.odata("/products(code=@p)?@p='P3'").json["id"] == 3
    assert service.odata("/products(@p)/category?@p=3").json["code"] == "C3"
    (row,) = value(service, "orders", filter="id eq @o", expand="items($filter=id gt @i;$select=id)", _o="3", _i="40")
    assert row["items"] == [{"id": 46}, {"id": 57}]
    assert value(service, "products", orderby="id mul @m", _m="-1", top="1", select="id") == [{"id": 20}]


@pytest.mark.parametrize(
    ("options", "status", "target"),
    [
        ({"filter": "price gt @p", "_p": "'"}, 400, "@p"),
        ({"filter": "price gt @p", "_p": ""}, 400, "@p"),
        ({"filter": "orderDate gt @p", "_p": "2026-99-99"}, 400, "@p"),
        ({"filter": "price gt @p", "_p": "nothing"}, 400, "@p"),
        ({"filter": "price gt @p", "_p": "@q", "_q": "1"}, 400, "@p"),
        ({"filter": "price gt @p", "_p": "'text'"}, 400, "$filter"),
        ({"filter": "code in @p", "_p": "1"}, 400, "@p"),
        ({"filter": "code in @p"}, 400, "@p"),
        ({"filter": "code in (@p)", "_p": "('P1','P2')"}, 400, "@p"),
    ],
)
def test_a_wrong_value_is_an_error_of_its_alias(service: Service, options: dict[str, str], status: int, target: str) -> None:
    entity = "orders" if "orderDate" in options["filter"] else "products"
    reply = get(service, entity, **options)
    assert (reply.status, reply.json["error"]["target"]) == (status, target), reply.body
    assert service.odata("/products?$filter=price%20gt%20@p&@p=1&@p=2").status == 400


# Filters in $apply ----------------------------------------------------------------------------------------------------------------


APPLIED = [
    ("filter(price gt 1)/groupby((categoryId),aggregate(price with sum as total))", "price gt 1", "groupby((categoryId),aggregate(price with sum as total))"),
    ("filter(price gt 1)/aggregate($count as n)", "price gt 1", "aggregate($count as n)"),
    ("filter(price gt 1)/filter(price lt 4)/groupby((categoryId))", "price gt 1 and price lt 4", "groupby((categoryId))"),
    ("filter(category/code eq 'C1' or contains(name,'2'))/groupby((category/code),aggregate($count as n))",
     "category/code eq 'C1' or contains(name,'2')", "groupby((category/code),aggregate($count as n))"),
]  # fmt: skip


@pytest.mark.parametrize(("apply", "filter", "grouping"), APPLIED, ids=[each[0] for each in APPLIED])
def test_filters_before_a_grouping_restrict_the_rows(
    service: Service, plain: Service, apply: str, filter: str, grouping: str
) -> None:
    assert value(service, "products", apply=apply) == value(plain, "products", apply=grouping, filter=filter)


def test_a_filter_in_apply_stands_alone_or_beside_others(service: Service, plain: Service) -> None:
    assert value(service, "products", apply="filter(price gt 1)") == value(plain, "products", filter="price gt 1")
    both = value(service, "products", apply="filter(price gt 1)", filter="price lt 3", select="code", orderby="code desc", top="2")
    assert both == value(plain, "products", filter="price gt 1 and price lt 3", select="code", orderby="code desc", top="2")
    grouped = value(
        service,
        "products",
        apply="filter(price gt 1)/groupby((categoryId),aggregate($count as n))",
        filter="n gt 2 and categoryId gt 1",
    )
    assert grouped == value(
        plain, "products", apply="groupby((categoryId),aggregate($count as n))", filter="price gt 1 and n gt 2 and categoryId gt 1"
    )
    assert value(service, "products", apply="filter(price gt @p)/aggregate($count as n)", _p="1") == value(
        plain, "products", apply="aggregate($count as n)", filter="price gt 1"
    )


@pytest.mark.parametrize(
    ("apply", "status"),
    [
        ("groupby((categoryId))/filter(categoryId gt 1)", 501),
        ("filter(price gt 1)/compute(price as x)", 501),
        ("concat(aggregate($count as n))", 501),
        ("filter(price gt)", 400),
        ("filter(nothing eq 1)/aggregate($count as n)", 400),
        ("filter(price gt 1)/", 400),
        ("filter()/aggregate($count as n)", 400),
    ],
)
def test_other_sequences_are_refused(service: Service, apply: str, status: int) -> None:
    reply = get(service, "products", apply=apply)
    assert (reply.status, reply.json["error"]["target"]) == (status, "$apply"), reply.body


def test_metadata_says_what_is_on(service: Service, plain: Service) -> None:
    for each, levels, transformations in ((service, 5, ["filter", "aggregate", "groupby"]), (plain, 1, ["aggregate", "groupby"])):
        products = each.odata("/$metadata", Accept="application/json").json["bds"]["Container"]["products"]
        assert products["@Capabilities.ExpandRestrictions"]["MaxLevels"] == levels
        assert products["@Aggregation.ApplySupported"]["Transformations"] == transformations


# Off ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entity", "options", "target"),
    [
        ("orders", {"expand": "items($select=quantity)"}, "$expand"),
        ("orders", {"expand": "items($expand=product)"}, "$expand"),
        ("products", {"filter": "price gt @p", "_p": "1"}, "$filter"),
        ("products", {"apply": "filter(price gt 1)/groupby((categoryId))"}, "$apply"),
        ("products", {"skiptoken": "x"}, "$skiptoken"),
    ],
)
def test_all_of_it_is_refused_by_name_while_it_is_off(plain: Service, entity: str, options: dict[str, str], target: str) -> None:
    reply = get(plain, entity, **options)
    assert (reply.status, reply.json["error"]["code"], reply.json["error"]["target"]) == (501, "not_supported", target)
    assert json.loads(reply.body)


PAST = (
    ("orders", {"expand": "items($orderby=quantity desc,id;$top=2;$skip=1;$count=true)", "top": "4", "orderby": "code desc"}),
    ("orders", {"expand": "items($filter=quantity gt 1;$expand=product($expand=category,variants($top=1)))"}),
    ("orders", {"expand": "items($expand=product($select=code;$expand=category($expand=parent)))", "top": "3", "skip": "2"}),
    ("orders(3)", {"expand": "items($skip=2;$expand=product)"}),
    ("categories", {"expand": "products($filter=price gt 2;$count=true;$select=id),parent", "filter": "products/$count gt 1"}),
    ("products", {"expand": "orderItems($top=1;$expand=order)", "filter": "categoryId eq 2 and variants/$count ge 1"}),
    ("products", {"orderby": "orderItems/$count desc,id", "top": "5", "filter": "category/products/$count gt 2"}),
    ("products(code='P5')", {"expand": "variants,orderItems($count=true)"}),
    ("orderItems", {"filter": "order/id eq 4", "expand": "product"}),
)


def test_an_expansion_of_the_past_is_what_it_was(service: Service) -> None:
    def shown(moment: str) -> list[Any]:
        queries = [(path, "&".join(f"${name}={quote(text)}" for name, text in options.items())) for path, options in PAST]
        replies = [service.ask(f"/api/odata/demo{moment}/{path}?{query}") for path, query in queries]
        assert {reply.status for reply in replies} == {200}
        return [json.loads(reply.body.replace(f"/odata/demo{moment}/".encode(), b"/odata/demo/")) for reply in replies]

    [(version,)] = service.operator.rows("select max(last_id) from bds.positions where company_id = 'demo'")
    now = shown("")
    for change in (
        "update data.order_items set quantity = quantity + 1 where company_id = 'demo' and mod(id, 3) = 0",
        "update data.order_items set order_id = 3 where company_id = 'demo' and order_id in (4, 5)",
        "update data.products set code = 'was ' || code, category_id = 1 where company_id = 'demo' and mod(id, 5) = 0",
        "delete from data.order_items where company_id = 'demo' and mod(id, 4) = 1",
        "delete from data.product_variants where company_id = 'demo' and id < 9",
        "update data.categories set parent_id = null where company_id = 'demo'",
        "insert into data.products (id, code, name) values (900, 'P5', 'n')",
    ):
        service.operator.write("demo", change)
    assert shown("") != now
    assert shown(f"@{version}") == now
