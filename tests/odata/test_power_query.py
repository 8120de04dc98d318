"""The requests that Power Query (Power BI, Excel) sends, in its order and with its headers, from published query diagnostics.

It folds filters and columns into the request and groups the rows itself.  For groups made by the service its user enters a URL with
$apply.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import pytest

from tests.service.serving import Reply, Service

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


def test_folded_filters_and_columns(service: Service) -> None:
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


# Incremental refresh: the parameters RangeStart and RangeEnd become a range of a timestamp, folded into $filter.  A partition is a
# month here; a row on a boundary belongs only to the later one.
MONTHS = [("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", "A B"), ("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", "C")]
CHANGED = {"A": "2026-01-01 00:00:00", "B": "2026-01-31 23:59:59.999999", "C": "2026-02-01 00:00:00"}


@pytest.fixture
def changed(service: Service) -> Iterator[None]:
    """Spread the timestamps of the rows over months."""
    with service.operator.connection.transaction():
        service.operator.connection.execute("set local session_replication_role = replica")
        for code, moment in CHANGED.items():
            service.operator.connection.execute(
                "update data.products set updated_at = %s::timestamp at time zone 'UTC' where company_id = 'demo' and code = %s",
                (moment, code),
            )
    yield


def partition(start: str, end: str) -> str:
    return quote(f"updatedAt ge {start} and updatedAt lt {end}", safe="")


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize(("start", "end", "codes"), MONTHS)
def test_a_partition_of_an_incremental_refresh(service: Service, start: str, end: str, codes: str) -> None:
    document = value(ask(service, "", ANY))
    assert {"name": "products", "kind": "EntitySet", "url": "products"} in document["value"]
    assert ask(service, "/$metadata", "application/xml").status == 200
    filter = partition(start, end)
    # first the schema, then all rows with the columns of the model
    preview = value(ask(service, f"/products?$filter={filter}&$top=1000", JSON))
    assert [row["code"] for row in preview["value"]] == codes.split()
    read = ask(service, f"/products?$filter={filter}&$select=code%2CupdatedAt", JSON)
    rows = value(read)["value"]
    assert [(row["code"], list(row)) for row in rows] == [(code, ["code", "updatedAt"]) for code in codes.split()]
    first, beyond = datetime.fromisoformat(start), datetime.fromisoformat(end)
    assert all(first <= datetime.fromisoformat(row["updatedAt"]) < beyond for row in rows)
    counted = value(ask(service, f"/products?$filter={filter}&$count=true&$top=0", JSON))
    assert (counted["@odata.count"], counted["value"]) == (len(rows), [])
    number = ask(service, f"/products/$count?$filter={filter}", "text/plain")
    assert int(gzip.decompress(number.body) if number.headers["Content-Encoding"] == "gzip" else number.body) == len(rows)
    assert (
        ask(service, f"/products?$filter={filter}&$select=code%2CupdatedAt", JSON, If_None_Match=read.headers["ETag"]).status == 304
    )


@pytest.mark.usefixtures("changed")
def test_partitions_hold_every_row_once_and_an_empty_one_has_the_same_columns(service: Service) -> None:
    found: list[str] = []
    for start, end, _ in MONTHS:
        found += [
            row["code"] for row in value(ask(service, f"/products?$filter={partition(start, end)}&$select=code", JSON))["value"]
        ]
    assert sorted(found) == ["A", "B", "C"]
    full, empty = (
        value(ask(service, f"/products?$filter={partition(start, end)}&$select=code%2Cprice", JSON))
        for start, end in (("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"), ("1999-01-01T00:00:00Z", "1999-02-01T00:00:00Z"))
    )
    assert full["@odata.context"] == empty["@odata.context"] and empty["value"] == []


@pytest.mark.usefixtures("changed")
def test_the_greatest_time_of_a_partition_tells_whether_it_changed(service: Service) -> None:
    start, end, _ = MONTHS[0]
    latest = f"$apply=aggregate(updatedAt%20with%20max%20as%20latest)&$filter={partition(start, end)}"
    assert value(ask(service, f"/products?{latest}", JSON))["value"] == [{"latest": "2026-01-31T23:59:59.999999Z"}]


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize(("start", "end", "total"), [(*MONTHS[0][:2], 13.0), (*MONTHS[1][:2], 2.5)])
def test_groups_of_a_partition(service: Service, start: str, end: str, total: float) -> None:
    for page in ("", "&$top=1000"):
        groups = value(ask(service, f"/products?{APPLY}&$filter={partition(start, end)}{page}", JSON))["value"]
        assert [group["total"] for group in groups] == [total]


@pytest.mark.usefixtures("changed")
@pytest.mark.parametrize(
    ("filter", "codes"),
    [
        # date filters in the menus of Excel and Power BI: after, between, in a year, a month, a day
        ("updatedAt gt 2026-01-31T00:00:00Z", "B C"),
        ("updatedAt ge 2026-01-01T01:00:00%2B01:00 and updatedAt le 2026-01-31T23:59:59.999999Z", "A B"),
        ("year(updatedAt) eq 2026", "A B C"),
        ("year(updatedAt) eq 2026 and month(updatedAt) eq 2", "C"),
        ("date(updatedAt) eq 2026-01-31", "B"),
        ("updatedAt ge 2026-01-01T00:00:00Z and updatedAt lt 2026-02-01T00:00:00Z and contains(name,'ill')", "B"),
        ("(updatedAt lt 2026-01-02T00:00:00Z or updatedAt ge 2026-02-01T00:00:00Z) and categoryId ne null", "A"),
    ],
)
def test_date_filters_of_a_workbook(service: Service, filter: str, codes: str) -> None:
    """Excel percent-encodes only spaces; columns come in the order of the sheet."""
    excel = {
        "User_Agent": "Microsoft.Data.Mashup (https://go.microsoft.com/fwlink/?LinkID=304225)",
        "Prefer": "odata.continue-on-error",
    }
    for query in (
        f"$filter={filter.replace(' ', '%20')}&$select=code%2Cname",
        f"%24filter={quote(filter.replace('%2B', '+'), safe='')}&%24select=code%2Cname&%24orderby=code&%24top=1000",
        f"$orderby=code&$filter={filter.replace(' ', '+')}&$select=name,code&$skip=0&$top=1000&$count=true",
    ):
        answer = value(service.odata(f"/products?{query}", Accept=JSON, Accept_Encoding="gzip, deflate", **excel))
        assert [row["code"] for row in answer["value"]] == codes.split()
        assert answer.get("@odata.count", len(codes.split())) == len(codes.split())
