"""$apply over HTTP: envelopes and context URLs of groups, entity tags, small answers and streams."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from decimal import Decimal
from urllib.parse import quote

import psutil
import pytest

from tests.service.serving import Reply, Service

GROUPS = 40_000


@pytest.fixture(scope="module", autouse=True)
def _products(service: Service) -> None:
    write = service.operator.write
    service.operator.company("other")
    write("demo", "insert into data.categories (company_id, code, name) values ('demo', 'T', 'Tools')")
    write(
        "demo",
        "insert into data.products (company_id, code, name, price, category_id) select 'demo', v.code, v.name, v.price, c.id from"
        " (values ('A', 'Hammer', 12.5, 'T'), ('B', 'Drill', 0.1, 'T'), ('C', 'Nail', null, null)) as v (code, name, price, category)"
        " left join data.categories as c on c.company_id = 'demo' and c.code = v.category",
    )
    write("other", "insert into data.products (company_id, code, name, price) values ('other', 'X', 'secret', 1000)")
    write(
        "demo",
        "insert into data.customers (company_id, code, name, city) select 'demo', g, repeat('x', 50), 'city ' || mod(g, %s)"
        " from generate_series(1, %s) g",
        (GROUPS, 2 * GROUPS),
    )


def ask(service: Service, path: str, accept: str = "*/*", tag: str = "", **options: str) -> Reply:
    query = "&".join(f"${name}={quote(value)}" for name, value in options.items())
    return service.odata(f"/{path}?{query}", Accept=accept, **({"If-None-Match": tag} if tag else {}))


BY_CATEGORY = "groupby((category/name),aggregate(price with sum as total,$count as n))"


def test_groups_are_an_envelope_of_rows(service: Service) -> None:
    reply = ask(service, "products", apply=BY_CATEGORY)
    root = f"http://{service.host}:{service.port}/api/odata/demo/"
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json;odata.metadata=minimal"
    assert json.loads(reply.body, parse_float=Decimal) == {
        "@odata.context": f"{root}$metadata#products(category(name),total,n)",
        "value": [
            {"category": None, "total": None, "n": 1},
            {"category": {"name": "Tools"}, "total": Decimal("12.6"), "n": 2},
        ],
    }
    assert b'"total":12.6000' in reply.body


CONTEXTS = [
    ("products", "groupby((active))", "#products(active)"),
    ("products", "aggregate($count as n)", "#products(n)"),
    ("products", "groupby((category/name,active,category/parent/code))", "#products(category(name,parent(code)),active)"),
    ("orderItems", "aggregate(quantity mul price with sum as amount)", "#orderItems(amount)"),
]


@pytest.mark.parametrize(("entity", "apply", "fragment"), CONTEXTS)
def test_context_urls(service: Service, entity: str, apply: str, fragment: str) -> None:
    reply = ask(service, entity, apply=apply)
    assert reply.json["@odata.context"].endswith("/api/odata/demo/$metadata" + fragment)
    assert b"@odata" not in ask(service, entity, "application/json;odata.metadata=none", apply=apply).body


def test_numbers_are_strings_if_the_format_asks(service: Service) -> None:
    reply = ask(service, "products", "application/json;IEEE754Compatible=true", apply=BY_CATEGORY, filter="n eq 2")
    assert reply.json["value"] == [{"category": {"name": "Tools"}, "total": "12.6000", "n": "2"}]


def test_full_metadata_names_the_types(service: Service) -> None:
    reply = ask(service, "products", "application/json;odata.metadata=full", apply=BY_CATEGORY, filter="n eq 2")
    assert reply.json["value"] == [
        {
            "@odata.type": "#bds.product",
            "@odata.id": None,
            "category": {"name": "Tools"},
            "total@odata.type": "#Decimal",
            "total": 12.6,
            "n@odata.type": "#Int64",
            "n": 2,
        }
    ]


def test_options_work_on_groups(service: Service) -> None:
    reply = ask(service, "products", apply=BY_CATEGORY, orderby="category/name desc", top="1", count="true")
    assert (reply.json["@odata.count"], [row["n"] for row in reply.json["value"]]) == (2, [2])
    reply = ask(service, "products", apply=BY_CATEGORY, filter="price gt 1 and total gt 1", count="true")
    assert (reply.json["@odata.count"], [row["n"] for row in reply.json["value"]]) == (1, [1])


def test_pages_of_groups_follow_each_other(service: Service) -> None:
    apply = "groupby((city),aggregate($count as n))"
    whole = [row["city"] for row in ask(service, "customers", apply=apply, orderby="n", top="300").json["value"]]
    pages = [
        row["city"]
        for skip in range(0, 300, 60)
        for row in ask(service, "customers", apply=apply, orderby="n", top="60", skip=str(skip)).json["value"]
    ]
    assert len(set(whole)) == 300
    assert pages == whole


@pytest.mark.parametrize("apply", [BY_CATEGORY, "aggregate(category/name with max as m)"])
def test_a_tag_depends_on_every_entity_that_is_read(service: Service, apply: str) -> None:
    tag = ask(service, "products", apply=apply).headers["ETag"]
    assert ask(service, "products", tag=tag, apply=apply).status == 304
    service.operator.write("demo", "insert into data.units (company_id, code, name) values ('demo', gen_random_uuid()::text, '')")
    assert ask(service, "products", tag=tag, apply=apply).status == 304
    service.operator.write(
        "demo", "insert into data.categories (company_id, code, name) values ('demo', gen_random_uuid()::text, '')"
    )
    assert ask(service, "products", tag=tag, apply=apply).status == 200


def test_an_answer_that_uses_now_is_never_a_304(service: Service) -> None:
    tag = ask(service, "products", apply="aggregate(now() with max as t)").headers["ETag"]
    assert ask(service, "products", tag=tag, apply="aggregate(now() with max as t)").status == 200


def test_many_groups_stream_in_constant_memory(service: Service) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    connection = http.client.HTTPConnection(service.host, service.port)
    path = "/api/odata/demo/customers?$count=true&$apply=" + quote("groupby((city,name),aggregate(id with max as last))")
    connection.request("GET", path, headers={"Authorization": service.basic})
    response, groups = connection.getresponse(), 0
    with closing(connection):
        start = response.read(400)
        groups = start.count(b'"last"')
        while piece := response.read(1 << 16):
            groups += piece.count(b"}")
    assert f'"@odata.count":{GROUPS}'.encode() in start
    assert response.headers["Transfer-Encoding"] == "chunked"
    assert GROUPS - 5 < groups <= GROUPS + 5
    assert process.memory_info().rss - before < 16 << 20


REFUSED = [
    ("$apply=groupby((foo))", 400, "$apply", 10),
    ("$apply=aggregate(price with sum as name)", 400, "$apply", 29),
    ("$apply=aggregate(price with sum as s)&$filter=s gt 1 or active", 400, "$filter", 1),
    ("$apply=aggregate(price with sum as s)&$orderby=price", 400, "$orderby", 1),
    ("$apply=filter(price gt 1)", 501, "$apply", 1),
]


@pytest.mark.parametrize(("query", "status", "target", "position"), REFUSED)
def test_errors_name_the_option_and_the_character(service: Service, query: str, status: int, target: str, position: int) -> None:
    reply = service.odata("/products?" + quote(query, safe="$&=(),/"))
    assert (reply.status, reply.json["error"]["target"]) == (status, target)
    assert reply.json["error"]["message"].endswith(f"(at character {position})")


def test_a_row_and_a_count_take_no_apply(service: Service) -> None:
    for path in ("products(1)", "products/$count"):
        assert ask(service, path, apply="aggregate($count as n)").json["error"]["target"] == "$apply"


def test_rows_of_a_navigation_are_grouped(service: Service) -> None:
    path = "categories(code='T')/products"
    reply = ask(service, path, apply="groupby((active),aggregate($count as n))")
    assert (reply.status, reply.json["value"]) == (200, [{"active": True, "n": 2}])
    assert ask(service, path, apply="aggregate($count as n)", filter="price gt 1").json["value"] == [{"n": 1}]
    assert ask(service, "categories(code='none')/products", apply="aggregate($count as n)").status == 404
    assert ask(service, "products(code='A')/category", apply="aggregate($count as n)").status == 400


def test_rows_of_another_company_are_not_counted(service: Service) -> None:
    assert ask(service, "products", apply="aggregate($count as n,name with max as m)").json["value"] == [{"n": 3, "m": "Nail"}]
