"""Server-driven paging in the extended profile: every row once, in order, whatever is written meanwhile."""

from __future__ import annotations

import base64
import json
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import pytest

from tests.auth.client import ask
from tests.service.serving import Reply, Service, running, wait_until

ROWS = 300


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, odata_extended=True) as service:
        service.operator.company("other")
        for company in ("demo", "other"):
            service.operator.write(
                company,
                f"""
                insert into data.categories (company_id, id, code, name) values ('{company}', 1, 'A', 'a'), ('{company}', 2, 'B', 'b');
                insert into data.products (company_id, id, code, name, price, active, barcode, category_id) select '{company}', n, 'P' || n,
                    case mod(n, 5) when 0 then 'Ä' when 1 then '' when 2 then 'x''"[],' when 3 then '日' else 'b' end,
                    nullif(mod(n * 7, 23), 3) / 4.0, mod(n, 2) = 0, case when mod(n, 3) = 0 then 'B' || n end, nullif(mod(n, 3), 0)
                    from generate_series(1, {ROWS}) n;
                insert into data.orders (company_id, id, code, order_date, total) select '{company}', n, 'O' || n, date '2026-01-01' + mod(n, 7),
                    null from generate_series(1, 40) n;
                """,
            )
        yield service


def first(service: Service, path: str, size: int, **headers: str) -> Reply:
    return service.odata(quote(path, safe="/?$&=(),'"), Prefer=f"odata.maxpagesize={size}", **headers)


def follow(service: Service, reply: Reply) -> Reply | None:
    """The next page, asked for without the preference."""
    link = reply.json.get("@odata.nextLink")
    if link is None:
        return None
    parts = urlsplit(link)
    assert parts.netloc == f"{service.host}:{service.port}"
    return service.ask(f"{parts.path}?{parts.query}")


def pages(service: Service, path: str, size: int) -> list[list[Any]]:
    found, reply = [], first(service, path, size)
    while reply is not None:
        assert reply.status == 200, reply.body
        assert reply.headers["Preference-Applied"] == f"odata.maxpagesize={size}"
        found.append(reply.json["value"])
        reply = follow(service, reply)
    return found


QUERIES = [
    "/products?$select=id",
    "/products?$orderby=price&$select=id,price",
    "/products?$orderby=price desc&$select=id",
    "/products?$orderby=price desc,name&$select=id",
    "/products?$orderby=name,price desc,barcode&$select=id",
    "/products?$orderby=barcode desc,name desc&$select=id",
    "/products?$orderby=active,updatedAt desc&$select=id",
    "/products?$orderby=category/name desc,length(name)&$select=id",
    "/products?$orderby=price mul 2 sub id,code&$select=id",
    "/products?$orderby=id desc&$select=id",
    "/products?$orderby=updatedAt&$select=id&$filter=price gt 1 and contains(code,'1')",
    "/orders?$orderby=orderDate desc,total&$select=id",
    "/orders?$orderby=total,date(updatedAt)&$select=id",
    "/categories(1)/products?$orderby=price&$select=id",
    "/products?$expand=category($select=code)&$select=id&$orderby=category/code",
]


@pytest.mark.parametrize("path", QUERIES)
@pytest.mark.parametrize("size", [1, 7, 50])
def test_pages_together_are_the_whole_collection(service: Service, path: str, size: int) -> None:
    whole = service.odata(quote(path, safe="/?$&=(),'")).json["value"]
    if size == 1 and len(whole) > 50:
        path, whole = f"{path}&$top=20", whole[:20]
    found = pages(service, path, size)
    assert [row for page in found for row in page] == whole
    assert all(len(page) == size for page in found[:-1]) and 0 < len(found[-1]) <= size


def test_top_skip_and_count_are_those_of_the_whole(service: Service) -> None:
    reply: Reply | None = first(service, "/products?$orderby=price desc&$top=25&$skip=5&$count=true&$select=id", 10)
    whole = service.odata("/products?$orderby=price%20desc&$top=25&$skip=5&$select=id").json["value"]
    found: list[Any] = []
    while reply is not None:
        assert reply.json["@odata.count"] == ROWS
        found.append(reply.json["value"])
        reply = follow(service, reply)
    assert [len(page) for page in found] == [10, 10, 5] and [row for page in found for row in page] == whole
    for size, top in ((10, 10), (10, 9), (10, 0), (ROWS, ROWS)):
        assert "@odata.nextLink" not in first(service, f"/products?$top={top}", size).json
    assert "@odata.nextLink" not in first(service, "/products", ROWS).json
    assert "@odata.nextLink" in first(service, "/products", ROWS - 1).json


def test_no_row_is_skipped_or_repeated_while_others_write(service: Service, module_database_url: str) -> None:
    """Writers insert before, into and after the pages, delete and change rows that the order does not look at."""
    stop = threading.Event()
    service.operator.company("busy")
    service.operator.write(
        "busy",
        "insert into data.units (company_id, id, code, name) select 'busy', n * 1000, 'K' || n * 1000, 'kept' from generate_series(1, 400) n",
    )
    written: list[int] = []

    def write(seed: int) -> None:
        choose = random.Random(seed)
        with psycopg.connect(module_database_url, autocommit=True) as connection:
            while not stop.is_set():
                id = choose.randrange(400_000) + 1
                if id % 1000 == 0:
                    continue
                with connection.transaction():
                    connection.execute("select bds.set_context('busy')")
                    connection.execute(
                        "insert into data.units (company_id, id, code, name) values ('busy', %s, 'X' || %s, 'new') on conflict do nothing",
                        (id, id),
                    )
                    connection.execute(
                        "delete from data.units where company_id = 'busy' and name = 'new' and id %% 7 = %s", (choose.randrange(7),)
                    )
                    connection.execute(
                        "update data.units set name = 'kept', symbol = %s where company_id = 'busy' and id = %s",
                        (str(choose.random())[:8], choose.randrange(1, 400) * 1000),
                    )
                written.append(id)

    token = f"Bearer {service.operator.key('busy')}"
    authorization = "Basic " + base64.b64encode(f"api:{token.removeprefix('Bearer ')}".encode()).decode()
    threads = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    try:
        for order in ("", "&$orderby=code", "&$orderby=length(code) desc,code desc"):
            reply = service.ask(
                f"/api/odata/busy/units?$select=id,name{quote(order, safe='&$=(),')}",
                authorization=authorization,
                Prefer="maxpagesize=10",
            )
            ids: list[int] = []
            before = len(written)
            wait_until(lambda before=before: len(written) > before)  # the pages after the first one follow a write
            while True:
                assert reply.status == 200
                ids += [row["id"] for row in reply.json["value"]]
                link = reply.json.get("@odata.nextLink")
                if link is None:
                    break
                parts = urlsplit(link)
                reply = service.ask(f"{parts.path}?{parts.query}", authorization=authorization)
            assert len(ids) == len(set(ids)), "a row came twice"
            assert {id for id in ids if id % 1000 == 0} == {n * 1000 for n in range(1, 401)}, "a row is missing"
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("root", ["pinned@v", "pinned%40v"])
def test_pages_as_of_a_name_are_of_one_version_when_the_name_moves(service: Service, root: str) -> None:
    operator = service.operator
    if not operator.rows("select from bds.companies where id = 'pinned'"):
        operator.company("pinned")
        operator.write("pinned", "insert into data.units (code, name) select n, 'a' || n from generate_series(1, 6) n")
        operator.write("pinned", "update data.units set name = 'b' || code where company_id = 'pinned'")
    own = replace(service, key=operator.key("pinned"))

    def name(version: int) -> None:
        operator.write("pinned", "select bds.name_version('pinned', 'v', %s)", (version,))

    name(6)
    query = "units?$orderby=name%20desc&$select=name"
    reply: Reply | None = own.ask(f"/api/odata/{root}/{query}", authorization=own.basic, Prefer="odata.maxpagesize=2")
    name(12)
    found: list[str] = []
    while reply is not None:
        found += [row["name"] for row in reply.json["value"]]
        reply = follow(own, reply)
    assert found == ["a6", "a5", "a4", "a3", "a2", "a1"]
    part = {"id": "1", "method": "GET", "url": query, "headers": {"Prefer": "odata.maxpagesize=2"}}
    sent = ask(own, f"/api/odata/{root}/$batch", "POST", {"Authorization": own.basic}, {"requests": [part]})
    [inner] = sent.json["responses"]
    assert "/api/odata/pinned@12/units?" in inner["body"]["@odata.nextLink"]


def test_a_link_has_the_options_of_its_request(service: Service) -> None:
    link = first(service, "/products/?$filter=price gt 1&$select=code&x=a%2Bb&$count=true&$skip=3", 5).json["@odata.nextLink"]
    assert (
        "/products/?" in link
        and "$filter=price%20gt%201" in link
        and "x=a" in link
        and "$count=true" in link
        and "$skip=3" not in link
    )
    assert link.count("$skiptoken=") == 1
    second = follow(service, first(service, "/products?$top=20&$select=id", 5))
    assert second is not None and second.json["@odata.nextLink"].count("$skiptoken=") == 1
    assert "$top=10" in second.json["@odata.nextLink"]


def test_the_link_comes_in_every_format_and_the_tag_knows_the_size(service: Service) -> None:
    none = first(service, "/products?$select=id", 2, Accept="application/json;odata.metadata=none").json
    assert list(none) == ["value", "@odata.nextLink"]
    tags = {first(service, "/products?$select=id", size).headers["ETag"] for size in (2, 3)} | {
        service.odata("/products?$select=id").headers["ETag"]
    }
    assert len(tags) == 3
    reply = first(service, "/products?$select=id", 2)
    assert "Prefer" in reply.headers["Vary"]
    assert first(service, "/products?$select=id", 2, If_None_Match=reply.headers["ETag"]).status == 304
    head = service.odata("/products?$select=id", method="HEAD", Prefer="odata.maxpagesize=2")
    assert (head.status, head.body, head.headers["ETag"]) == (200, b"", reply.headers["ETag"])


@pytest.mark.parametrize(
    ("prefer", "size"),
    [
        ("odata.maxpagesize=3", 3),
        ("maxpagesize=3", 3),
        ('return=minimal, odata.maxpagesize="3"', 3),
        ("respond-async;odata.maxpagesize=3", 3),
        ("ODATA.MAXPAGESIZE = 3", 3),
        ("odata.maxpagesize=0", None),
        ("odata.maxpagesize=x", None),
        ("odata.maxpagesize=-1", None),
        ("xmaxpagesize=3", None),
        ("odata.maxpagesize=999999999", 1000),
    ],
)
def test_preferences(service: Service, prefer: str, size: int | None) -> None:
    reply = service.odata("/products?$select=id", Prefer=prefer)
    assert reply.headers["Preference-Applied"] == (size and f"odata.maxpagesize={size}")
    assert len(reply.json["value"]) == min(size or ROWS, ROWS)


def test_pages_of_long_rows_are_shorter(service: Service) -> None:
    assert first(service, "/products?$expand=orderItems", 1000).headers["Preference-Applied"] == "odata.maxpagesize=100"
    assert first(service, "/products?$expand=variants", 1000).headers["Preference-Applied"] == "odata.maxpagesize=1000"


def token(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


WRONG = [
    ("id", "x"), ("id", ""), ("id", "%00"), ("id", "é"), ("id", token(b"5")), ("id", token(b'5["1"')), ("id", token(b'0["1"]')),
    ("id", token(b'1001["1"]')), ("id", token(b'5["1","2"]')), ("id", token(b"5[1]")), ("id", token(b'5[["1"]]')),
    ("id", token(b'5["one"]')), ("id", token(b'5["1; drop table x"]')), ("id", token(b'5["99999999999999999999999"]')),
    ("id", token(b'5["\\u0000"]')), ("id", token(b'5["\\ud800"]')), ("updatedAt", token(b'5["2026-99-99","1"]')),
    ("updatedAt", token(b'5["yesterday","x"]')), ("id", token(b"[" * 5000)), ("price", token(b'5["1e400000","1"]')),
]  # fmt: skip


@pytest.mark.parametrize(("order", "text"), WRONG, ids=[f"{order}-{text[:24]}" for order, text in WRONG])
def test_a_token_that_was_changed_is_an_error(service: Service, order: str, text: str) -> None:
    reply = service.odata(f"/products?$orderby={order}&$skiptoken={quote(text, safe='%')}")
    assert (reply.status, reply.json["error"]["code"]) in ((400, "malformed_query"), (400, "malformed_request")), reply.body
    assert reply.json["error"]["target"] == "$skiptoken"
    assert service.odata("/products?$top=1").status == 200


def test_a_link_that_is_longer_than_a_url_may_be_is_an_error(service: Service) -> None:
    write = "insert into data.units (code, name) values ('long', ''), ('longer', repeat('z', 99000)) on conflict do nothing"
    service.operator.write("demo", write)
    seen = set()
    for length in (100, *range(48_800, 49_300, 25), 99_000):
        service.operator.write("demo", f"update data.units set name = repeat('y', {length}) where code = 'long'")
        reply = first(service, "/units?$orderby=name&$select=code", 1)
        seen.add(reply.status)
        if reply.status == 200:
            following = follow(service, reply)
            assert following is not None and following.json["value"] == [{"code": "longer"}], length
        else:
            assert (reply.status, reply.json["error"]["target"]) == (400, "$orderby"), reply.body
    assert seen == {200, 400}


def test_a_token_shows_no_other_company(service: Service) -> None:
    reply = service.odata(f"/products?$skiptoken={token(b'1000[%b]' % json.dumps('0').encode())}&$select=id,code&$count=true")
    assert (len(reply.json["value"]), reply.json["@odata.count"]) == (ROWS, ROWS)


@pytest.mark.parametrize(
    "path",
    ["/products(1)?$skiptoken=x", "/products/$count?$skiptoken=x", "/products?$apply=aggregate($count%20as%20n)&$skiptoken=x"],
)
def test_only_collections_have_pages(service: Service, path: str) -> None:
    reply = service.odata(path)
    assert (reply.status, reply.json["error"]["target"]) == (400, "$skiptoken")


def test_groups_and_single_rows_ignore_the_preference(service: Service) -> None:
    for path in ("/products?$apply=groupby((price))", "/products(1)", "/products(1)/category", "/products/$count", ""):
        reply = service.odata(path, Prefer="odata.maxpagesize=1")
        assert reply.status == 200 and "Preference-Applied" not in reply.headers
        assert b"nextLink" not in reply.body


def test_a_page_of_a_large_collection_uses_the_key(service: Service, module_database_url: str) -> None:
    """The condition of the next page is one on the sort key, which an index serves."""
    from app.database.connections import read_catalog
    from app.query.check.options import parse_query
    from app.query.sql import statements as sql_statements

    with psycopg.connect(module_database_url) as connection:
        catalog = read_catalog(connection)
        options = [("$skiptoken", token(b'5["7"]')), ("$select", "id")]
        query = parse_query(catalog, catalog["products"], options, extended=True)
        text = sql_statements.paged(query, "demo").text.decode()
    assert '"t"."id" > $' in text and "offset" not in text


def test_without_the_profile_the_preference_is_ignored(module_database_url: str, service: Service) -> None:
    with running(module_database_url, company=None) as plain:
        reply = plain.ask("/api/odata/demo/products?$select=id", authorization=service.basic, Prefer="odata.maxpagesize=5")
        assert (
            len(reply.json["value"]) == ROWS and "Preference-Applied" not in reply.headers and "Prefer" not in reply.headers["Vary"]
        )
