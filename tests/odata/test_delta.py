"""Delta links of the extended profile: a client that follows them has what a fresh read gives."""

from __future__ import annotations

import base64
import http.client
import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.chance import seeds
from tests.database.aging import age, maintain
from tests.service.serving import Reply, Service, running, wait_until

TRACK = "odata.track-changes"


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url, odata_extended=True) as service:
        yield service


def read(service: Service, url: str, prefer: str | None = None, **headers: str) -> Reply:
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.netloc else "/api/odata/demo" + quote(url, safe="/?$&=(),'@")
    return service.ask(path, **headers, **({"Prefer": prefer} if prefer else {}))


def value(service: Service, url: str) -> list[dict[str, Any]]:
    reply = read(service, url)
    assert reply.status == 200, reply.body
    return reply.json["value"]


def removed_id(row: dict[str, Any]) -> int | None:
    """The id of a removed row, in either version's form; None for any other row."""
    if row.get("@odata.context", "").endswith("/$deletedEntity"):
        assert row.keys() == {"@odata.context", "id", "reason"} and row["reason"] in ("deleted", "changed")
        return int(row["id"].removesuffix(")").partition("(")[2])
    if "@removed" in row:
        assert list(row) == ["@removed", "@odata.id", "id"] and row["@removed"]["reason"] in ("deleted", "changed")
        assert row["@odata.id"].endswith(f"({row['id']})")
        return row["id"]
    return None


class Copy:
    """A client's copy of a collection: it reads page by page, and writers may write between two pages."""

    def __init__(self, service: Service, url: str, between: Any, prefer: str | None, version: str) -> None:
        self.service, self.between, self.version = service, between, {"OData_MaxVersion": version}
        self.rows: dict[int, dict[str, Any]] = {}
        self.link = url
        self.follow(", ".join(filter(None, (TRACK, prefer))))

    def follow(self, prefer: str | None) -> None:
        is_first, seen = not self.rows and "$deltatoken" not in self.link, set[int]()
        while True:
            reply = read(self.service, self.link, prefer, **self.version)
            assert reply.status == 200, reply.body
            answer = reply.json
            for row in answer["value"]:
                id = removed_id(row)
                if id is None:
                    self.rows[row["id"]] = row
                else:
                    self.rows.pop(id, None)
                id = row["id"] if id is None else id
                assert id not in seen, "a row comes once"
                seen.add(id)
            if "@odata.nextLink" not in answer:
                break
            assert "@odata.deltaLink" not in answer
            self.link = answer["@odata.nextLink"]
            prefer = None
            self.between()
        if is_first:
            assert TRACK in reply.headers["Preference-Applied"]
        self.link = answer["@odata.deltaLink"]


STATEMENTS = [
    "insert into data.products (code, name, price) values ('{new}', '{name}', {price})",
    "insert into data.products (code, name, price) values ('{new}', '{name}', {price})",
    "update data.products set price = {price} where mod(id, 3) = {third}",
    "update data.products set name = '{name}', active = not active where mod(id, 5) = {third}",
    "update data.products set price = null where mod(id, 7) = {third}",
    "delete from data.products where mod(id, 9) = {third} and not exists (select from data.product_variants v where v.product_id = products.id)",
    # touches its parent alone
    "insert into data.product_variants (code, product_id) select '{new}', min(id) from data.products having count(*) > 0",
    "delete from data.product_variants where mod(id, 2) = mod({third}, 2)",
    # comes and goes
    "insert into data.products (code, name, price) values ('{new}', 'b', 3); delete from data.products where code = '{new}'",
    "insert into data.units (code, name) values ('{new}', 'u')",
]
URLS = [
    "/products",
    "/products?$select=id,name,updatedAt",
    "/products?$filter=price gt 3&$select=id,price",
    "/products?$filter=name ne 'b' and active eq true&$select=id,code",
    "/products?$filter=price eq null or startswith(name,'a')",
    "/products?$filter=@p lt price&@p=4&$select=price,id",
    "/products?$filter=categoryId in (1,2) or category eq null&$select=id,categoryId",
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2))
def test_a_copy_that_follows_delta_links_has_the_rows_of_a_fresh_read(service: Service, seed: int) -> None:
    """Also if writers write between two pages of the first answer, and between two pages of the changes."""
    chance = random.Random(seed)

    def write() -> None:
        for number in range(chance.randrange(4)):
            text = chance.choice(STATEMENTS).format(
                new=f"{seed}-{number}-{chance.random()}",
                name=chance.choice("abc"),
                price=chance.randrange(7),
                third=chance.randrange(3),
            )
            service.operator.write("demo", text)

    def prefer() -> str | None:
        size = chance.choice((None, 1, 2, 3))
        return size and f"odata.maxpagesize={size}"

    # a page of one row each, beside writers, of all rows of earlier seeds would take time with the square of their number
    service.operator.write("demo", "delete from data.product_variants; delete from data.products")
    service.operator.write(
        "demo",
        f"insert into data.products (code, name, price) select '{seed}.' || n, substr('abc', mod(n, 3) + 1, 1), mod(n, 7)"
        " from generate_series(1, 9) n",
    )
    copies: dict[str, Copy] = {}
    for _ in range(6):
        write()
        for url in URLS:
            between = write if chance.random() < 0.6 else nothing
            if url not in copies or chance.random() < 0.4:
                copies[url] = Copy(service, url, between, prefer(), chance.choice(("4.0", "4.01")))
            else:
                copies[url].between = between
                copies[url].follow(prefer())
            copies[url].between = nothing
            copies[url].follow(prefer())  # what was written between the pages
            assert copies[url].rows == {row["id"]: row for row in value(service, url)}, url


def nothing() -> None:
    """What happens between two pages if nobody writes."""


def start(service: Service, url: str, **headers: str) -> str:
    reply = read(service, url, TRACK, **headers)
    assert reply.status == 200, reply.body
    return reply.json["@odata.deltaLink"]


@pytest.fixture
def items(service: Service) -> Service:
    """Three products with prices 1 to 3, and no others."""
    service.operator.write(
        "demo",
        """
        delete from data.product_variants; delete from data.products;
        insert into data.products (id, code, name, price) select n, 'P' || n, 'product ' || n, n from generate_series(101, 103) n
        """,
    )
    return service


def test_the_shapes_of_4_0_and_4_01(items: Service) -> None:
    base = f"http://{items.host}:{items.port}/api/odata/demo/"
    url = "/products?$select=code,price&$filter=price lt 200"
    reply = read(items, url, f"{TRACK}, odata.maxpagesize=5")
    assert reply.headers["Preference-Applied"] == "odata.track-changes, odata.maxpagesize=5"
    assert reply.json["value"][0] == {"@odata.id": "products(101)", "code": "P101", "price": 101}  # else no row could be told
    link = reply.json["@odata.deltaLink"]
    kept = quote("$filter=price lt 200", safe="$=")
    assert link.startswith(f"{base}products?$select=code,price&{kept}&$deltatoken=") and "$skiptoken" not in link
    items.operator.write(
        "demo",
        "update data.products set price = 300 where id = 102; delete from data.products where id = 103;"
        " update data.products set price = 5.5 where id = 101; insert into data.products (id, code, name) values (104, 'P104', 'x')",
    )
    old = read(items, link)
    changed = {"@odata.id": "products(101)", "code": "P101", "price": 5.5}
    assert (old.headers["OData-Version"], old.json["@odata.context"]) == ("4.0", f"{base}$metadata#products(code,price)/$delta")
    assert old.json["value"] == [
        {"@odata.context": "#products/$deletedEntity", "id": "products(102)", "reason": "changed"},
        {"@odata.context": "#products/$deletedEntity", "id": "products(103)", "reason": "deleted"},
        changed,
    ]
    new = read(items, link, OData_MaxVersion="4.01")
    assert (new.headers["OData-Version"], new.json["@odata.context"]) == ("4.01", old.json["@odata.context"])
    assert new.json["value"] == [
        {"@removed": {"reason": "changed"}, "@odata.id": "products(102)", "id": 102},
        {"@removed": {"reason": "deleted"}, "@odata.id": "products(103)", "id": 103},
        changed,
    ]
    assert new.headers["ETag"] != old.headers["ETag"] and "OData-MaxVersion" in new.headers["Vary"]
    full = read(items, link, OData_MaxVersion="4.01", Accept="application/json;odata.metadata=full;IEEE754Compatible=true").json
    assert list(full["value"][0].items()) == [
        ("@removed", {"reason": "changed"}), ("@odata.type", "#bds.product"), ("@odata.id", f"{base}products(102)"), ("id", "102"),
    ]  # fmt: skip
    assert full["value"][2]["@odata.id"] == f"{base}products(101)" and full["value"][2]["price"] == "5.5000"
    again = read(items, link, If_None_Match=old.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    assert read(items, old.json["@odata.deltaLink"]).json["value"] == []
    head = read(items, link, method="HEAD")
    assert (head.status, head.body, head.headers["ETag"]) == (200, b"", old.headers["ETag"])


def test_pages_of_changes_have_one_end_and_the_order_of_last_changes(items: Service) -> None:
    link = start(items, "/products?$select=id")
    for id in (103, 101, 102, 103):
        items.operator.write("demo", f"update data.products set price = price + 1 where id = {id}")
    first = read(items, link, "odata.maxpagesize=1")
    assert (first.json["value"], first.headers["Preference-Applied"]) == ([{"id": 101}], "odata.maxpagesize=1")
    items.operator.write("demo", "update data.products set price = price + 1 where id = 102")
    second = read(items, first.json["@odata.nextLink"])
    third = read(items, second.json["@odata.nextLink"])
    assert (second.json["value"], third.json["value"]) == ([{"id": 102}], [{"id": 103}])
    assert [row["id"] for row in read(items, third.json["@odata.deltaLink"]).json["value"]] == [102]


def test_a_row_that_came_while_the_pages_were_read_goes_from_the_copy_with_its_removal(items: Service) -> None:
    """Neither matched at the version of the first page, from which the link tells changes; one is not there at either end."""
    url, between = (
        "/products?$filter=price le 102&$select=id",
        iter(
            (
                "update data.products set price = 50 where id = 103;"
                " insert into data.products (id, code, name, price) values (104, 'P104', 'x', 60)",
                "select 1",
                "select 1",
            )
        ),
    )
    copy = Copy(items, url, lambda: items.operator.write("demo", next(between)), "maxpagesize=1", "4.01")
    assert copy.rows.keys() == {101, 102, 103, 104}
    items.operator.write("demo", "update data.products set price = 200 where id = 103; delete from data.products where id = 104")
    copy.follow(None)
    assert copy.rows.keys() == {101, 102}
    items.operator.write("demo", "update data.products set price = 201 where id = 103")  # nothing is told of it any more
    assert read(items, copy.link).json["value"] == []


NOT_TRACKED = [
    "/products?$top=2", "/products?$orderby=id", "/products?$count=true", "/products?$expand=category", "/products?$search=x",
    "/products?$filter=category/name eq 'a'", "/products?$filter=variants/any()", "/products?$filter=variants/$count eq 0",
    "/products?$filter=updatedAt lt now()", "/products?$select=category", "/products?$format=json",
    "/products?$apply=aggregate($count as n)", "/products(101)", "/products/$count", "/products(101)/variants",
]  # fmt: skip


@pytest.mark.parametrize("url", NOT_TRACKED)
def test_the_preference_is_not_applied_where_changes_cannot_be_told(items: Service, url: str) -> None:
    reply = read(items, url, TRACK)
    assert reply.status == 200, reply.body
    assert TRACK not in reply.headers.get("Preference-Applied", "") and b"deltaLink" not in reply.body


def test_the_preference_is_not_applied_to_the_past_and_without_control_information(items: Service) -> None:
    bare = read(items, "/products", TRACK, Accept="application/json;odata.metadata=none")
    past = items.ask("/api/odata/demo@1/products", Prefer=TRACK)
    for reply in (bare, past):
        assert (reply.status, reply.headers["Preference-Applied"]) == (200, None) and b"deltaLink" not in reply.body
    page = read(items, "/products", "maxpagesize=1").json["@odata.nextLink"]  # of a first page whose version is unknown
    assert "@odata.deltaLink" not in read(items, page, f"{TRACK}, odata.maxpagesize=9").json
    for prefer in ("track-changes", "return=minimal,odata.track-changes", "ODATA.Track-Changes;x"):
        assert "@odata.deltaLink" in read(items, "/products", prefer).json


def packed(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


MALFORMED = [
    "", "x", "!!", packed(), packed(1), packed("1", "0", "0", 1, 1, None, None), packed("1", "0", "0", -1, 1, None, None, None),
    packed("1", "0", "0", 2, 1, None, None, None), packed("1", "0", "0", "1", 1, None, None, None), packed("1", "0", 0, 1, 1, None, None, None),
    packed("1", "0", "0", 1, 1, 2**70, None, None), packed("1", "0", "0", 1, 1, None, True, None), packed("1", "0", "0", 1, 1, None, None, 5000),
]  # fmt: skip


@pytest.mark.parametrize("token", MALFORMED)
def test_a_malformed_token_is_refused(service: Service, token: str) -> None:
    reply = service.odata(f"/products?$deltatoken={token}")
    assert (reply.status, reply.json["error"]["target"]) == (400, "$deltatoken"), reply.body
    mark = base64.urlsafe_b64encode(f'5["7"]{token or "x"}'.encode()).decode().rstrip("=")
    reply = service.odata(f"/products?$skiptoken={mark}")
    assert (reply.status, reply.json["error"]["target"]) == (400, "$skiptoken"), reply.body


def test_a_link_takes_nothing_else_and_stands_nowhere_else(items: Service) -> None:
    token = start(items, "/products").rpartition("=")[2]
    for path, target in [
        ("/products?$top=1&", "$top"), ("/products?$orderby=id&", "$orderby"), ("/products?$skiptoken=NVsiNyJd&", "$skiptoken"),
        ("/products?$filter=category/name%20eq%20'a'&", "$deltatoken"), ("/products(101)/variants?", "$deltatoken"),
        ("/products(101)?", "$deltatoken"), ("/products/$count?", "$deltatoken"), ("@1/products?", "$deltatoken"),
    ]:  # fmt: skip
        reply = items.ask(f"/api/odata/demo{path}$deltatoken={token}")
        assert (reply.status, reply.json["error"]["target"]) == (400, target), path
    none = items.odata(f"/products?$deltatoken={token}", Accept="application/json;odata.metadata=none")
    assert (none.status, none.json["error"]["target"]) == (400, "Accept")


def test_a_batch_has_deltas(items: Service) -> None:
    link = start(items, "/products?$select=id")
    items.operator.write("demo", "delete from data.products where id = 102")
    requests = [
        {"id": "1", "method": "GET", "url": link},
        {"id": "2", "method": "GET", "url": "products?$select=id", "headers": {"Prefer": TRACK}},
        {"id": "3", "method": "GET", "url": link, "headers": {"OData-MaxVersion": "4.0"}},
    ]
    connection = http.client.HTTPConnection(items.host, items.port, timeout=60)
    headers = {"Authorization": items.basic, "Content-Type": "application/json", "OData-MaxVersion": "4.01"}
    connection.request("POST", "/api/odata/demo/$batch", json.dumps({"requests": requests}), headers)
    reply = connection.getresponse()
    newest, whole, older = json.loads(reply.read())["responses"]
    assert reply.headers["OData-Version"] == "4.01"
    connection.close()
    assert [row.get("id") for row in newest["body"]["value"]] == [102] and "@removed" in newest["body"]["value"][0]
    assert [each["headers"]["OData-Version"] for each in (newest, whole, older)] == ["4.01", "4.0", "4.0"]
    assert older["body"]["value"][0]["id"] == "products(102)"
    assert whole["headers"]["Preference-Applied"] == TRACK
    assert read(items, whole["body"]["@odata.deltaLink"]).json["value"] == []


def test_a_tracked_answer_has_an_entity_tag_of_its_own(items: Service) -> None:
    plain, tracked = read(items, "/products"), read(items, "/products", TRACK)
    assert read(items, "/products", TRACK, If_None_Match=tracked.headers["ETag"]).status == 304
    items.operator.write(
        "demo", "insert into data.units (code, name) values ('t', 't')"
    )  # the link may expire earlier than the rows
    assert read(items, "/products", TRACK, If_None_Match=tracked.headers["ETag"]).status == 200
    assert read(items, "/products", If_None_Match=plain.headers["ETag"]).status == 304


def test_an_erased_value_leaves_no_row_in_a_copy(items: Service) -> None:
    link = start(items, "/products?$filter=name eq 'product 102'&$select=id")
    items.operator.write("demo", "update data.products set name = 'other' where id = 102")
    items.operator.write("demo", "select bds.erase('demo', 'products', 102, '{name}')")
    assert [removed_id(row) for row in read(items, link).json["value"]] == [102]


def test_a_link_from_before_a_registration_is_gone(items: Service) -> None:
    links = [start(items, "/products"), read(items, "/products", f"{TRACK}, maxpagesize=2").json["@odata.nextLink"]]
    other = start(items, "/units")
    last = items.operator.rows("select max(id) from bds.changes where company_id = 'demo'")[0][0]
    items.operator.connection.execute("select bds.register('data.products')")
    links[1] = read(items, links[1]).json["@odata.deltaLink"]
    for link in links:
        reply = read(items, link)
        error = reply.json["error"]
        assert (reply.status, error["code"], error["innererror"]) == (410, "gone", {"firstId": last}), reply.body
    assert (read(items, other).status, read(items, start(items, "/products")).status) == (200, 200)


def test_a_link_of_another_life_of_the_company_is_gone(items: Service) -> None:
    items.operator.connection.execute("select bds.create_company('brief')")
    key = items.operator.key("brief")
    basic = "Basic " + base64.b64encode(f"api:{key}".encode()).decode()
    path = "/api/odata/brief/units"
    link = urlsplit(items.ask(path, authorization=basic, Prefer=TRACK).json["@odata.deltaLink"])
    items.operator.delete_company("brief")
    items.operator.company("brief")
    reply = items.ask(
        f"{link.path}?{link.query}",
        authorization="Basic " + base64.b64encode(f"api:{items.operator.key('brief')}".encode()).decode(),
    )
    items.operator.delete_company("brief")
    assert (reply.status, reply.json["error"]["innererror"]) == (410, {"firstId": 1}), reply.body


def test_an_expired_link_is_gone(items: Service) -> None:
    link = start(items, "/products")
    for _ in range(2):
        items.operator.write("demo", "update data.products set price = price + 1")
    last = items.operator.rows("select max(id) from bds.changes where company_id = 'demo'")[0][0]
    age(items.operator, "2020_01", f"id < {last} and company_id = 'demo'")
    items.operator.connection.execute("select bds.set_retention('1 year')")
    maintain(items.operator)
    reply = read(items, link)
    assert (reply.status, reply.json["error"]["innererror"]) == (410, {"firstId": last}), reply.body


def test_a_column_that_came_after_the_last_change_is_unknown_before(items: Service) -> None:
    """The link is as of a version at which the column was not there, so that nobody can tell what matched."""
    items.operator.write("demo", "insert into data.customers (code, name) values ('A', 'a'), ('B', 'b'), ('C', 'c')")
    items.operator.connection.execute("alter table data.customers add grade int default 5; select bds.register('data.customers')")
    url = "/customers?$filter=grade eq 5&$select=code"
    wait_until(lambda: read(items, url).status == 200)
    link = start(items, url)
    assert read(items, link).json["value"] == []
    items.operator.write(
        "demo", "update data.customers set grade = 6 where code = 'A'; delete from data.customers where code = 'B'"
    )
    assert len([row for row in read(items, link).json["value"] if removed_id(row)]) == 2


def test_metadata_tells_what_is_tracked(service: Service) -> None:
    model = service.odata("/$metadata", Accept="application/json").json["bds"]["Container"]["units"]
    assert model["@Capabilities.ChangeTracking"] == {
        "Supported": True,
        "FilterableProperties": ["id", "code", "name", "symbol", "updatedAt"],
        "ExpandableProperties": [],
    }


def test_without_the_profile_the_preference_is_ignored_and_the_option_refused(service: Service, module_database_url: str) -> None:
    with running(module_database_url, company=None) as plain:
        service = Service(plain.host, plain.port, service.key, service.operator, plain.stop)
        reply = read(service, "/products", TRACK)
        assert reply.status == 200 and "@odata.deltaLink" not in reply.json and reply.headers["Preference-Applied"] is None
        refused = read(service, "/products?$deltatoken=x")
        assert (refused.status, refused.json["error"]["target"]) == (501, "$deltatoken")
        assert "ChangeTracking" not in service.odata("/$metadata").body.decode()
