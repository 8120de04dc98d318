"""What Power Query (Power BI, Excel) asks of a feed, in its order and with its headers, as its users and query diagnostics publish it.

It folds filters and columns into the request and groups for itself; who wants the service to group gives it a URL with $apply.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.http.serving import Reply, Service

ANY = (
    "application/json;odata.metadata=minimal;q=1.0,application/json;odata=minimalmetadata;q=0.9,application/atomsvc+xml;q=0.8,"
    "application/atom+xml;q=0.8,application/xml;q=0.7,text/plain;q=0.7"
)
JSON = "application/json;odata.metadata=minimal"
APPLY = "$apply=groupby((category/name),aggregate(price%20with%20sum%20as%20total,$count%20as%20n))"
ENCODED = "%24apply=groupby%28%28category%2Fname%29%2Caggregate%28price%20with%20sum%20as%20total%2C%24count%20as%20n%29%29"
GROUPS = [{"category": None, "total": 2.5, "n": 1}, {"category": {"name": "Tools"}, "total": 13.0, "n": 2}]


@pytest.fixture(scope="module", autouse=True)
def _products(service: Service) -> Iterator[None]:
    write = service.operator.write
    write("demo", "insert into data.categories (company_id, code, name) values ('demo', 'T', 'Tools')")
    write(
        "demo",
        "insert into data.products (company_id, code, name, price, category_id) select 'demo', v.code, v.name, v.price, c.id from"
        " (values ('A', 'Hammer', 12.5, 'T'), ('B', 'Drill', 0.5, 'T'), ('C', 'Nail', 2.5, null)) as v (code, name, price, category)"
        " left join data.categories as c on c.company_id = 'demo' and c.code = v.category",
    )
    yield


def ask(service: Service, path: str, accept: str, **headers: str | None) -> Reply:
    return service.odata(
        path,
        Accept=accept,
        User_Agent="Microsoft.Data.Mashup (https://go.microsoft.com/fwlink/?LinkID=304225)",
        MaxDataServiceVersion="3.0",
        OData_MaxVersion="4.0",
        Accept_Encoding="gzip, deflate",
        **headers,
    )


def value(reply: Reply) -> Any:
    assert (reply.status, reply.headers["OData-Version"]) == (200, "4.0")
    assert reply.headers["Content-Type"] == JSON
    body = gzip.decompress(reply.body) if reply.headers["Content-Encoding"] == "gzip" else reply.body
    return json.loads(body)


def test_a_feed_is_found_from_its_root(service: Service) -> None:
    refused = ask(service, "", ANY, authorization=None)
    assert (refused.status, refused.headers["WWW-Authenticate"].split()[0]) == (401, "Basic")
    document = value(ask(service, "", ANY))
    assert {"name": "products", "kind": "EntitySet", "url": "products"} in document["value"]
    for accept in (ANY, "application/xml"):
        metadata = ask(service, "/$metadata", accept)
        assert metadata.headers["Content-Type"] == "application/xml"
        assert ElementTree.fromstring(gzip.decompress(metadata.body)).get("Version") == "4.0"


def test_what_it_folds_and_then_groups_for_itself(service: Service) -> None:
    rows = value(ask(service, "/products?$filter=name%20eq%20%27Hammer%27&$select=code%2CcategoryId", JSON))
    assert [list(row) for row in rows["value"]] == [["code", "categoryId"]]
    preview = value(ask(service, "/products?$top=1000", JSON))
    assert [row["code"] for row in preview["value"]] == ["A", "B", "C"]


@pytest.mark.parametrize("query", [APPLY, ENCODED])
@pytest.mark.parametrize("accept", [ANY, JSON])
def test_groups_by_a_url_and_their_preview(service: Service, query: str, accept: str) -> None:
    for page in ("", "&$top=1000", "&$skip=0&$top=4096"):
        answer = value(ask(service, f"/products?{query}{page}", accept, Prefer="omit-values=nulls"))
        assert answer["@odata.context"].endswith("/$metadata#products(category(name),total,n)")
        assert answer["value"] == GROUPS


def test_steps_after_the_groups(service: Service) -> None:
    for options, expected in (
        ("&$filter=total%20gt%205", GROUPS[1:]),
        ("&$filter=category/name%20ne%20null%20and%20n%20ge%202", GROUPS[1:]),
        ("&$orderby=total%20desc", GROUPS[::-1]),
        ("&$orderby=category/name%20desc&$top=1", GROUPS[1:]),
    ):
        assert value(ask(service, f"/products?{APPLY}{options}", JSON))["value"] == expected
    refresh = ask(service, f"/products?{APPLY}", JSON)
    assert ask(service, f"/products?{APPLY}", JSON, If_None_Match=refresh.headers["ETag"]).status == 304
