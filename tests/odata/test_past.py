"""The past over HTTP: every version reads as it read when it was the present, in OData and under /c, whatever happened since."""

from __future__ import annotations

import base64
import random
from typing import Any
from urllib.parse import quote

import pytest

from tests.chance import seeds
from tests.conftest import NO_MONTHS
from tests.database.aging import age
from tests.service.serving import Reply, Service

pytestmark = pytest.mark.slow

SETS = ("units", "categories", "products", "productVariants", "customers", "orders", "orderItems", "invoices", "invoiceItems")
ODATA = (
    *(f"/{name}" for name in SETS),
    "/products?$expand=*",
    "/orders?$expand=items,customer",
    "/orders?$top=3&$orderby=total desc&$expand=items,customer&$count=true",
    "/categories?$expand=children,products,parent&$orderby=code desc&$top=5&$skip=1",
    "/orders?$filter=items/any(i:i/quantity gt 5)&$orderby=customer/name desc,id",
    "/orders?$filter=items/all(i:i/quantity gt 2) or customer/country eq 'DE'&$select=code",
    "/orders?$filter=items/$count gt 1 and customer ne null",
    "/orders?$filter=" + " or ".join(f"items/any(i:i/quantity eq {n})" for n in range(1, 9)) + "&$select=code",
    "/products?$filter=category/name eq 'Cat 1' or startswith(name,'N')&$orderby=price,id&$top=4",
    "/orderItems?$apply=groupby((order/customer/country),aggregate(quantity mul price with sum as amount,$count as n))",
    "/products?$apply=aggregate(price with sum as total,price with max as most)",
    "/products/$count",
    "/products/$count?$filter=price gt 50",
    "/products(3)",
    "/products(code='P2')?$expand=category,variants",
    "/products(2)/category",
    "/categories(1)/products?$orderby=price desc",
    "/orders(1)/items",
    "/orders(2)/items/$count",
    "/orders(3)/customer/$ref",
    "/products(4)/price",
    "/products(4)/name/$value",
)
LISTS = (
    *(f"/{name}?sort=id" for name in SETS),
    "/orders?limit=3&sort=total desc",
    "/orders?filter=status = 'draft' and customer = 'code:K1'",
    "/orders?limit=2&sort=updatedAt",
    "/products/2",
    "/orders/1",
    "/products/code:P3",
    "/customers/email:k2@x",
)


EXPORTS = (
    "/orders?format=json",
    "/products?format=json&$expand=variants,category",
    "/orders?format=csv&$expand=items",
    "/products?format=csv&$filter=category/name eq 'Cat 1'&$orderby=price desc&$top=5",
    "/orderItems?format=csv",
    "/customers?format=parquet",
    "/categories?format=json&$expand=products",
)


def view(service: Service, version: int | str | None) -> dict[str, tuple[int, Any]]:
    """Everything that the service shows of demo now, or as of a version or time."""
    shown = {}
    root = "demo" if version is None else f"demo@{version}"
    for path in ODATA:
        reply = service.ask(f"/api/odata/{root}{quote(path, safe='/$?=&(),:')}")
        shown["odata" + path] = (reply.status, content(reply, root))
    for path in LISTS:
        past = (
            "" if version is None else f"{'&' if '?' in path else '?'}{'version' if isinstance(version, int) else 'at'}={version}"
        )
        reply = service.ask(f"/c/demo{quote(path + past, safe='/$?=&(),:')}")
        shown["c" + path] = (reply.status, content(reply, root))
    for path in EXPORTS:
        past = "" if version is None else f"&{'version' if isinstance(version, int) else 'at'}={version}"
        reply = service.ask(f"/api/demo{quote(path + past, safe='/$?=&(),:')}&export=true")
        shown["export" + path] = (reply.status, reply.body)
    return shown


def content(reply: Reply, root: str) -> Any:
    text = reply.body.decode().replace(f"/odata/{root}/", "/odata/demo/")
    return text


def change(service: Service, dice: random.Random) -> None:
    """One transaction of random changes."""
    n, other, p = dice.randint(1, 6), dice.randint(1, 6), dice.randint(1, 12)
    writes = {
        "price": f"update data.products set price = {dice.randint(1, 99)}.5 where mod(id, 4) = {n % 4}",
        "rename": f"update data.products set name = 'N' || id, category_id = {n} where id = {p}",
        "create": f"insert into data.products (code, name, price) values ('X{dice.random()}', 'New', 5)",
        "remove": f"delete from data.products p where id = {p} and not exists (select from data.order_items i where i.product_id = p.id)",
        "move": f"update data.order_items set order_id = {n} where order_id = {other}",
        "item": f"insert into data.order_items (order_id, product_id, quantity, price) select {n}, min(id), {other}, 2 from data.products",
        "items": f"delete from data.order_items where order_id = {n}",
        "quantity": f"update data.order_items set quantity = quantity + {n} where mod(id, 3) = {other % 3}",
        "parent": f"update data.categories set parent_id = {n}, name = 'Cat ' || {other} where id = {other} and id <> {n}",
        "order": f"update data.orders set total = {p}, customer_id = {n} where id = {other}",
        "away": f"update data.orders set customer_id = null where customer_id = {n}",
        "email": f"update data.customers set country = 'FR' where id = {n}",
    }
    picked = dice.sample(sorted(writes), dice.randint(1, 3))
    service.operator.write("demo", "; ".join(writes[name] for name in picked))


@pytest.fixture(scope="module", autouse=True)
def _rows(service: Service) -> None:
    service.operator.write(
        "demo",
        """
        insert into data.units (id, code, name) values (1, 'u', 'Unit');
        insert into data.categories (id, code, name) select n, 'C' || n, 'Cat ' || n from generate_series(1, 6) n;
        insert into data.products (id, code, name, price, category_id)
            select n, 'P' || n, 'Product ' || n, n * 10, nullif(n / 2, 0) from generate_series(1, 12) n;
        insert into data.product_variants (code, product_id) select 'V' || n, n / 2 + 1 from generate_series(1, 9) n;
        insert into data.customers (id, code, name, email, country)
            select n, 'K' || n, 'Customer ' || n, 'k' || n || '@x', case when mod(n, 2) = 0 then 'DE' end from generate_series(1, 6) n;
        insert into data.orders (id, code, order_date, total, customer_id)
            select n, 'O' || n, date '2026-01-01' + n, n * 3, n from generate_series(1, 6) n;
        insert into data.order_items (order_id, product_id, quantity, price)
            select mod(n, 6) + 1, mod(n, 12) + 1, n, 1.5 from generate_series(1, 20) n;
        """,
    )
    for table in ("categories", "products", "customers", "orders"):
        service.operator.connection.execute(f"alter table data.{table} alter id restart with 100".encode())


IS_DEEP = "create or replace function past.is_deep(entity text) returns boolean language sql stable"


def last(service: Service) -> int:
    [(version,)] = service.operator.rows("select max(last_id) from bds.positions where company_id = 'demo'")
    return int(version)


def test_every_version_reads_as_it_read_when_it_was_the_present(service: Service) -> None:
    dice = random.Random(17)
    seen: dict[int, tuple[str, dict[str, tuple[int, Any]]]] = {}
    for _ in seeds(4):
        version = last(service)
        [(now,)] = service.operator.rows("select bds_service.api_time(clock_timestamp())")
        seen[version] = (now, view(service, None))
        for _ in range(3):
            change(service, dice)
    assert {status for _, expected in seen.values() for status, _ in expected.values()} <= {200, 204, 404}
    assert all(expected[f"export{path}"][0] == 200 for _, expected in seen.values() for path in EXPORTS)
    assert all(expected[f"odata/{name}"][0] == 200 for _, expected in seen.values() for name in SETS)
    different = {expected["odata/orders?$expand=items,customer"] for _, expected in seen.values()}
    assert len(different) >= 0.9 * len(seen), "what is random may leave orders alone, but seldom"
    for version, (now, expected) in seen.items():
        for moment in (version, now):
            found = view(service, moment)
            for path, shown in expected.items():
                assert found[path] == shown, (moment, path)
    # as behind many changes
    service.operator.connection.execute(f"{IS_DEEP} return true")
    for version, (_, expected) in seen.items():
        found = view(service, version)
        for path, shown in expected.items():
            assert found[path] == shown, (version, path)


def test_version_0_is_the_empty_company(service: Service) -> None:
    assert service.ask("/api/odata/demo@0/orders?$expand=items&$count=true").json["value"] == []
    assert service.ask("/api/odata/demo@0/products/$count").body == b"0"
    assert service.ask("/c/demo/orders?version=0").json == {"data": [], "hasMore": False}
    assert service.ask("/api/odata/demo@0/products(1)").status == 404
    assert service.ask("/api/odata/demo@2000-01-01/units").json["value"] == []


def test_the_whole_service_has_the_moment_in_its_urls(service: Service) -> None:
    for written, root in (
        ("demo@3", "demo@3"),
        ("demo%403", "demo@3"),
        ("demo@2020-01-01", "demo@2020-01-01"),
        ("demo%402020-01-01T00%3A00%3A00Z", "demo@2020-01-01T00:00:00Z"),
        ("demo@2020-01-01T02:00:00+02:00", "demo@2020-01-01T02:00:00+02:00"),
    ):
        base = f"http://{service.host}:{service.port}/api/odata/{root}/"
        reply = service.ask(f"/api/odata/{written}/")
        assert (reply.json["@odata.context"], reply.headers["OData-Version"]) == (f"{base}$metadata", "4.0")
        assert {each["url"] for each in reply.json["value"]} >= set(SETS)
        assert service.ask(f"/api/odata/{written}/units").json["@odata.context"] == f"{base}$metadata#units"
        full = service.ask(f"/api/odata/{written}/units", Accept="application/json;odata.metadata=full").json["value"]
        assert all(row["@odata.id"].startswith(base) for row in full)
        metadata = service.ask(f"/api/odata/{written}/$metadata")
        assert metadata.status == 200
        assert b'Name="code" Type="Edm.String" Nullable="true"' in metadata.body, "a column may not have existed"
        assert b'Name="id" Type="Edm.Int64" Nullable="false"' in metadata.body
    assert service.ask("/api/odata/demo@1/units", Accept="application/json;odata.metadata=full").json["value"][0]["@odata.id"]


@pytest.mark.parametrize(
    ("moment", "status", "code"),
    [
        ("1000000", 404, "not_found"),
        ("9" * 90, 404, "not_found"),
        ("2999-01-01", 404, "not_found"),
        ("", 400, "malformed_query"),
        ("x", 404, "not_found"),
        ("x%20y", 400, "malformed_query"),
        ("-1", 400, "malformed_query"),
        ("1.5", 400, "malformed_query"),
        ("2026-13-01", 400, "malformed_query"),
        ("2026-01-01T25:00:00Z", 400, "malformed_query"),
        ("1@2", 400, "malformed_query"),
    ],
)
def test_a_moment_that_does_not_exist_is_an_error_in_the_form_of_its_area(
    service: Service, moment: str, status: int, code: str
) -> None:
    for rest in ("", "/$metadata", "/units", "/units(1)", "/orders?$top=1000&$expand=items", "/units/$count"):
        reply = service.ask(f"/api/odata/demo@{moment}{rest}")
        assert (reply.status, reply.json["error"]["code"]) == (status, code), rest
    parameter = "version" if moment.isdigit() or moment == "x" else "at"
    for path in ("/c/demo/units?", "/c/demo/units/1?", "/api/demo/units?format=csv&export=true&"):
        reply = service.ask(f"{path}{parameter}={moment}")
        assert (reply.status, reply.headers["Content-Type"]) == (status, "application/problem+json")
        assert reply.json["target"] == parameter


def test_both_parameters_or_one_twice_is_malformed(service: Service) -> None:
    for query in (
        "version=1&at=2020-01-01",
        "version=1&version=1",
        "at=2020-01-01&at=2020-01-01",
        "version=",
        "version=-1",
        "version=1.5",
    ):
        for path in ("/c/demo/units?", "/c/demo/units/1?", "/c/demo/units/1/history?", "/api/demo/units?format=csv&export=true&"):
            assert service.ask(path + query).status == 400, query
    assert service.ask("/c/demo/units/1?limit=1").status == 400
    assert service.ask("/c/demo/units/1/history?filter=x").status == 400


@pytest.mark.parametrize("version", ["9223372036854775807", "99999999999999999999"])
def test_a_version_to_come_is_named_as_it_was_given(service: Service, version: str) -> None:
    for path in (
        f"/api/odata/demo@{version}/units",
        f"/c/demo/units?version={version}",
        f"/c/demo/units/1/history?version={version}",
        f"/api/demo/units?format=csv&export=true&version={version}",
    ):
        reply = service.ask(path)
        assert (reply.status, f"version {version} is yet to come" in reply.body.decode()) == (404, True), path


def test_the_key_of_another_company_reads_no_past_of_this_one(service: Service) -> None:
    service.operator.company("secret")
    service.operator.write("secret", "insert into data.units (code, name) values ('s', 'S')")
    for path in ("/api/odata/secret@0/units", "/api/odata/nowhere@0/units", "/c/secret/units?version=0"):
        assert service.ask(path).status == 403
    assert service.ask("/api/odata/demo@0/units", authorization=None).status == 401


def test_the_tag_of_a_past_state_changes_with_erasures_alone(service: Service) -> None:
    version = last(service)
    for path in (
        f"/api/odata/demo@{version}/customers",
        f"/c/demo/customers?version={version}",
        f"/c/demo/customers/1?version={version}",
    ):
        tag = service.ask(path).headers["ETag"]
        service.operator.write("demo", "update data.customers set phone = coalesce(phone, '') || '1' where id = 1")
        assert service.ask(path).headers["ETag"] == tag
        assert service.ask(path, If_None_Match=tag).status == 304
        assert service.ask(path.replace(str(version), str(version - 1))).headers["ETag"] != tag
        service.operator.connection.execute("select bds.erase('demo', 'customers', 1, '{phone}')")
        assert service.ask(path, If_None_Match=tag).status == 200
    tag = service.ask("/api/odata/demo@1/customers").headers["ETag"]
    assert service.ask("/api/odata/demo@2/customers").headers["ETag"] != tag


def test_a_lookup_names_the_row_of_then(service: Service) -> None:
    service.operator.write("demo", "insert into data.units (id, code, name) values (70, 'old', 'First'), (71, 'other', 'Second')")
    version = last(service)
    service.operator.write("demo", "update data.units set code = 'gone' where id = 70")
    service.operator.write("demo", "update data.units set code = 'old' where id = 71")
    assert service.ask("/c/demo/units/code:old").json["id"] == "71"
    assert service.ask(f"/c/demo/units/code:old?version={version}").json["id"] == "70"
    assert service.ask(f"/api/odata/demo@{version}/units(code='old')").json["id"] == 70
    assert service.ask("/c/demo/units/CODE:old").json["id"] == "71"
    service.operator.write("demo", "delete from data.units where id = 71")
    service.operator.write("demo", "insert into data.units (id, code, name) values (72, 'old', 'Third')")
    service.operator.write("demo", "update data.units set name = 'third' where id = 72")
    found = [service.ask(f"/c/demo/units/code:old?version={last(service) - n}").json.get("id") for n in range(6)]
    assert found == ["72", "72", None, "71", None, "70"], "deleted and created anew, at every step"
    service.operator.write("demo", "delete from data.units where id = 72")
    service.operator.write("demo", "update data.units set code = 'old' where id = 70")
    service.operator.write("demo", "insert into data.units (id, code, name) values (71, 'again', 'Second')")
    service.operator.write("demo", "update data.units set code = 'gone' where id = 70")
    service.operator.write("demo", "update data.units set code = 'old' where id = 71")
    assert service.ask("/c/demo/units/id:71").json["code"] == "old"
    assert service.ask("/c/demo/units/code:nothing").status == 404
    assert service.ask("/c/demo/units/name:First").status == 400


def test_a_row_is_found_by_the_time_of_its_change_then(service: Service) -> None:
    service.operator.write("demo", "insert into data.units (id, code, name) values (80, 'time', 'T')")
    version, row = last(service), service.ask("/api/odata/demo/units(80)").json
    service.operator.write("demo", "update data.units set name = 'later' where id = 80")
    for path in (
        f"/api/odata/demo@{version}/units?$filter=updatedAt%20eq%20{row['updatedAt']}",
        f"/c/demo/units?version={version}&filter=updatedAt%3D'{row['updatedAt']}'",
    ):
        reply = service.ask(path).json
        assert [each["code"] for each in reply.get("value", reply.get("data"))] == ["time"], path


def test_the_history_of_a_row_is_found_by_a_code_that_it_had_then(service: Service) -> None:
    write = service.operator.write
    write("demo", "insert into data.products (id, code, name) values (910, 'L1', 'first')")
    write("demo", "update data.products set code = 'L2' where id = 910")
    write("demo", "insert into data.products (id, code, name) values (911, 'L1', 'second')")
    write("demo", "delete from data.products where id = 910")
    [(first, created), (_, renamed), (deleted, _)] = service.operator.rows(
        "select id, bds_service.api_time(created_at) from bds.changes where company_id = 'demo' and row_id = 910 order by id"
    )
    by_id = {id: service.ask(f"/c/demo/products/{id}/history").json["data"] for id in (910, 911)}
    for lookup, query, id in (
        ("L1", f"?version={first}", 910),
        ("L1", f"?at={created}", 910),
        ("L2", f"?at={renamed}", 910),
        ("L2", f"?version={deleted - 1}", 910),
        ("L1", "", 911),
        ("L1", f"?version={deleted}", 911),
    ):
        reply = service.ask(f"/c/demo/products/code:{lookup}/history{query}")
        assert (reply.status, reply.json.get("data")) == (200, by_id[id]), (lookup, query)
    assert service.ask(f"/c/demo/products/code:L2/history?version={first}").status == 404
    assert service.ask(f"/c/demo/products/code:L2/history?version={deleted}").status == 404
    gone = service.ask("/c/demo/products/code:L2/history")
    assert (gone.status, "version or at" in gone.json["detail"]) == (404, True)
    assert service.ask(f"/c/demo/products/910/history?version={first}&limit=1").json == {"data": by_id[910][:1], "hasMore": True}
    assert service.ask("/c/demo/products/910/history?at=2999-01-01").status == 404


def test_the_history_of_a_deleted_row_is_found_by_any_id(service: Service) -> None:
    ids = (1_234_567_890_123_456_789, 9_223_372_036_854_775_807, -7)
    for id in ids:
        service.operator.write("demo", "insert into data.units (id, code, name) values (%s, %s, 'x')", (id, str(id)))
    service.operator.write("demo", "delete from data.units where id = any (%s)", (list(ids),))
    for id in ids:
        reply = service.ask(f"/c/demo/units/{id}/history")
        assert [each["operation"] for each in reply.json["data"]] == ["delete", "create"], id
        assert service.ask(f"/c/demo/units/id:{id}/history").json == reply.json, id
    for none in ("id:999", "id:x", "code:-7", "%C2%B2", "%D9%A3", "-07", "9223372036854775808"):
        assert service.ask(f"/c/demo/units/{none}/history").status == 404, none


def test_the_history_of_a_row_has_what_each_change_replaced_and_set(service: Service) -> None:
    write = service.operator.write
    [(change_set,)] = service.operator.rows("select gen_random_uuid()::text")
    write("demo", "insert into data.products (id, code, name, price, category_id) values (900, 'H', 'Hat', 1.50, 1)", actor="anna")
    write("demo", "update data.products set price = 2, category_id = null where id = 900", actor="ben", change_set=change_set)
    write("demo", "insert into data.product_variants (code, product_id) values ('H1', 900)", actor="carl")
    write("demo", "delete from data.products where id = 900", actor="dan")
    reply = service.ask("/c/demo/products/900/history")
    versions = reply.json["data"]
    assert reply.json["hasMore"] is False
    assert [(each["operation"], each["actor"]) for each in versions] == [
        ("delete", "dan"), ("update", "carl"), ("update", "ben"), ("create", "anna"),
    ]  # fmt: skip
    assert list(versions[0]) == ["version", "operation", "at", "actor", "user", "changeSetId", "old", "new"]
    assert {each["user"] for each in versions} == {"postgres"}
    assert [each["changeSetId"] for each in versions] == [None, None, change_set, None]
    assert versions[2]["old"] == {"price": 1.5, "categoryId": "1"}
    assert versions[2]["new"] == {"price": 2, "categoryId": None}
    assert (versions[1]["old"], versions[1]["new"]) == ({}, {})
    assert (versions[0]["new"], versions[3]["old"]) == (None, None)
    assert list(versions[3]["new"]) == list(service.ask("/c/demo/products/1").json)[:-1], "the fields in the order of /c"
    assert (versions[3]["new"]["id"], versions[3]["new"]["price"]) == ("900", 1.5)
    assert versions[3]["new"]["updatedAt"].endswith("Z")
    assert versions[0]["old"] == versions[1]["new"] | {
        **versions[3]["new"],
        "price": 2,
        "categoryId": None,
        "updatedAt": versions[0]["old"]["updatedAt"],
    }
    pages = [service.ask(f"/c/demo/products/900/history?limit=2&offset={offset}").json for offset in (0, 2, 4)]
    assert [page["hasMore"] for page in pages] == [True, False, False]
    assert [each for page in pages for each in page["data"]] == versions
    assert (
        service.ask("/c/demo/units/code:old/history").json["data"][0]["version"]
        == service.ask("/c/demo/units/71/history").json["data"][0]["version"]
    )
    assert [service.ask(f"/c/demo/products/{id}/history").status for id in ("12345", "code:none", "x")] == [404] * 3
    assert service.ask("/c/demo/products/name:x/history").status == 400
    assert service.ask("/c/demo/products/name:x/history?version=1").status == 400
    assert service.ask("/c/demo/nothing/1/history").status == 404


@NO_MONTHS
def test_what_retention_has_dropped_is_gone(service: Service) -> None:
    service.operator.company("kept")
    key = "Basic " + base64.b64encode(f"api:{service.operator.key('kept')}".encode()).decode()
    service.operator.write("kept", "insert into data.units (code, name) values ('a', 'A')")
    for name in ("B", "C", "D"):
        service.operator.write("kept", f"update data.units set name = '{name}' where company_id = 'kept'")
    age(service.operator, "2020_01", "id <= 2 and company_id = 'kept'")
    age(service.operator, "2020_03", "id = 3 and company_id = 'kept'")
    service.operator.connection.execute("drop table bds.change_log_2020_01")
    for moment in ("1", "0", "2020-01-20", "2020-01-31T23:59:59Z"):
        for rest in ("", "/units", "/units?$top=5000", "/units/$count"):
            reply = service.ask(f"/api/odata/kept@{moment}{rest}", authorization=key)
            error = reply.json["error"]
            assert (reply.status, error["code"], error["innererror"]) == (410, "gone", {"firstId": 3}), (moment, rest)
        parameter = "version" if moment.isdigit() else "at"
        for path in ("/c/kept/units?", "/c/kept/units/1?", "/c/kept/units/code:a?", "/api/kept/units?format=csv&export=true&"):
            reply = service.ask(f"{path}{parameter}={moment}", authorization=key)
            assert (reply.status, reply.json["firstId"], reply.json["target"]) == (410, 3, parameter), path
    for moment, name in (
        ("2", "B"),
        ("2020-02-01", "B"),
        ("2020-03-01", "B"),
        ("2020-03-14T23:59:59Z", "B"),
        ("3", "C"),
        ("2020-03-15", "C"),
        ("4", "D"),
    ):
        reply = service.ask(f"/api/odata/kept@{moment}/units", authorization=key)
        assert [row["name"] for row in reply.json["value"]] == [name], moment


def test_a_version_inside_of_a_transaction_has_the_changes_up_to_it(service: Service) -> None:
    service.operator.write(
        "demo",
        """
        insert into data.orders (id, code, order_date) values (500, 'T', '2026-01-01');
        insert into data.order_items (id, order_id, quantity) values (5001, 500, 1);
        insert into data.order_items (id, order_id, quantity) values (5002, 500, 2);
        update data.order_items set quantity = 3 where id = 5001;
        """,
    )
    version = last(service)
    expected = ([], [5001], [5001, 5002], [5001, 5002])
    for n, ids in enumerate(expected):
        moment = version - 3 + n
        [order] = service.ask(f"/api/odata/demo@{moment}/orders?$filter=id%20eq%20500&$expand=items").json["value"]
        assert [each["id"] for each in order["items"]] == ids, n
        assert [each["id"] for each in service.ask(f"/c/demo/orders/500?version={moment}").json["items"]] == [
            str(id) for id in ids
        ], n
        count = service.ask(f"/api/odata/demo@{moment}/orders/$count?$filter=id%20eq%20500%20and%20items/$count%20eq%20{len(ids)}")
        assert count.body == b"1"
    assert service.ask(f"/api/odata/demo@{version - 1}/orderItems(5001)").json["quantity"] == 1
