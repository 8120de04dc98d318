"""Clients from npm read the demo company from a page in Chromium, which another origin has served: UI5, Syncfusion, DevExtreme.

They are not changed in any way: what UI5 sends by default is a $batch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from tests import chromium
from tests.clients.conftest import PATIENCE, Run, Sql
from tests.service.serving import Service

pytestmark = [pytest.mark.processes, pytest.mark.slow]

BATCHED = re.compile(r"^GET (\S+) HTTP/1.1", re.MULTILINE)


@pytest.fixture(scope="module")
def page(place: Path, run: Run) -> Iterator[Any]:
    """An empty page, in a browser that has all clients at hand."""
    with chromium.for_tests() as browser:
        run("esbuild", "browser/main.js", "--bundle", "--outfile=browser/bundle.js", "--log-level=error")
        page = browser.new_page()
        page.set_default_timeout(PATIENCE * 1000)
        yield page


@pytest.fixture
def given(extended: Service) -> dict[str, str]:
    """What a client is told."""
    return {"root": f"http://{extended.host}:{extended.port}/api/odata/demo/", "authorization": extended.basic}


@pytest.fixture
def sent(page: Any, given: dict[str, str]) -> Iterator[list[list[str]]]:
    """The reads that the page sends, one list for each request: of a $batch its parts."""
    requests: list[list[str]] = []

    def note(request: Any) -> None:
        name = request.url.removeprefix(given["root"])
        if name != request.url and request.method in ("GET", "POST"):
            requests.append([unquote(part) for part in BATCHED.findall(request.post_data)] if name == "$batch" else [unquote(name)])

    page.on("request", note)
    yield requests
    page.remove_listener("request", note)


def test_syncfusion_reads(page: Any, site: ThreadingHTTPServer, given: dict[str, str], sent: list[list[str]], sql: Sql) -> None:
    page.goto(f"http://127.0.0.1:{site.server_port}/browser/bundled.html")
    read = json.loads(page.evaluate("async (given) => JSON.stringify(await syncfusion(given))", given))
    found = {name: answer["result"] for name, answer in read.items()}
    assert found["page"] == sql("code, price from data.products order by price desc, id limit 10 offset 10")
    assert read["page"]["count"] == sql("select count(*) from data.products")
    assert found["where"] == sql(
        "code from data.products where lower(name) like '%steel%' and price > 100 and active order by code"
    )
    assert found["either"] == sql("code from data.products where code like 'A000%' or description is null order by code")
    assert found["dates"] == sql(
        "code from data.orders where order_date >= '2025-06-01' and order_date < '2025-06-10' order by code"
    )
    assert (found["changed"], read["changed"]["count"]) == ([], 0)
    assert found["expanded"] == sql("""
        p.code, json_build_object('name', c.name) as category
        from data.products p join data.categories c on c.id = p.category_id order by p.code limit 3""")
    assert [{"id": row["id"], "product": row["product"]["code"], "order": row["order"]["code"]} for row in found["nested"]] == sql("""
        i.id, p.code as product, o.code as order from data.order_items i join data.orders o on o.id = i.order_id
        join data.products p on p.id = i.product_id join data.categories c on c.id = p.category_id
        where c.name = 'Hammers' order by i.id limit 5""")
    assert [{"code": row["code"]} for row in found["all"]] == sql("code from data.customers order by code offset 70")
    assert len(sent) == len(read), "one request for each read"


def test_devextreme_reads(page: Any, site: ThreadingHTTPServer, given: dict[str, str], sent: list[list[str]], sql: Sql) -> None:
    page.goto(f"http://127.0.0.1:{site.server_port}/browser/bundled.html")
    read = json.loads(page.evaluate("async (given) => JSON.stringify(await devextreme(given))", given))
    where = "from data.products where price > 10 and not name ilike '%steel%'"
    assert read["first"] + read["second"] == sql(f"code, price {where} order by price desc, code limit 20")
    assert read["total"] == sql(f"select count(*) {where}")
    assert read["count"] == sql("select count(*) from data.products where active")
    assert (read["one"]["code"], read["one"]["category"]["code"], read["one"]["variants"]) == ("A0007", "nails", [])
    assert [
        [row["id"], row["product"]["code"], row["product"]["category"]["name"], row["order"]["customer"]["name"]]
        for row in read["dotted"]
    ] == [list(row.values()) for row in sql("""
        i.id, p.code, c.name as category, t.name as customer from data.order_items i join data.products p on p.id = i.product_id
        join data.categories c on c.id = p.category_id join data.orders o on o.id = i.order_id
        join data.customers t on t.id = o.customer_id order by i.id limit 5""")]  # fmt: skip
    assert read["expanded"] == sql("""
        code, (select json_build_object('code', code) from data.customers where id = customer_id) as customer,
            (select json_agg(json_build_object('quantity', i.quantity, 'product', json_build_object('code', p.code)) order by i.id)
                from data.order_items i join data.products p on p.id = i.product_id where i.order_id = o.id) as items
        from data.orders o where id = 7""")
    assert read["path"] == sql("""
        i.id from data.order_items i join data.products p on p.id = i.product_id join data.categories c on c.id = p.category_id
        where c.name = 'Hammers' and i.quantity >= 11 order by i.id""")
    assert read["either"] == sql("code from data.products where code like 'A000%' or description is null order by code")
    assert read["dates"] == []
    assert len(sent) == len(read) - 1, "one request for each read; the total came with the page"


@pytest.fixture
def ui5(page: Any, site: ThreadingHTTPServer, given: dict[str, str], sent: list[list[str]]) -> Iterator[Any]:
    """The page with UI5; it reads $metadata once, by a request of its own."""
    page.goto("about:blank")
    page.goto(f"http://127.0.0.1:{site.server_port}/browser/ui5.html#{quote(json.dumps(given))}")
    yield page
    assert [request for request in sent if request[0].startswith("$metadata")] == [["$metadata"]]


def test_ui5_lists_filter_sort_count_and_page(ui5: Any, sent: list[list[str]], sql: Sql) -> None:
    read = ui5.evaluate("ui5.list()")
    where = "from data.products where price between 10 and 100 and name ilike '%steel%' and (active or description is null)"
    assert len(read["first"]) == 3
    assert read["first"] + read["rest"] == sql(f"code, price::text {where} order by price desc, code")
    assert read["count"] == sql(f"select count(*) {where}")
    assert [{"code": code} for code in read["any"]] == sql("""
        code from data.orders o where exists (select from data.order_items i join data.products p on p.id = i.product_id
            where i.order_id = o.id and i.quantity > 10 and p.price > 150) order by code""")
    _metadata, both, rest = sent
    assert ([part.partition("?")[0] for part in both], len(rest)) == (["products", "orders"], 1), (
        "one $batch for what is read at once"
    )


def test_ui5_objects_have_what_is_related_to_them(ui5: Any, sent: list[list[str]], sql: Sql) -> None:
    read = ui5.evaluate("ui5.object()")
    (expected,) = sql("""
        code, order_date as "orderDate", total::text,
            (select json_build_object('code', code, 'name', name) from data.customers where id = customer_id) as customer,
            (select count(*)::text from data.order_items where order_id = o.id) as "items@odata.count",
            (select json_agg(json_build_object('quantity', i.quantity::text, 'product', json_build_object('code', p.code,
                    'category', json_build_object('name', c.name, 'parent', json_build_object('code', s.code)))) order by i.id)
                from data.order_items i join data.products p on p.id = i.product_id join data.categories c on c.id = p.category_id
                join data.categories s on s.id = c.parent_id where i.order_id = o.id) as items
        from data.orders o where id = 7""")
    content = read["content"]
    assert {name: value for name, value in content.items() if name in expected} == expected
    assert read["items"] == sql("id::text, price::text from data.order_items where order_id = 7 order by id")
    assert read["customer"]["code"] == content["customer"]["code"]
    assert (read["nothing"], read["empty"]) == (None, None)
    assert read["name"] == sql("select name from data.products where id = 1")
    assert read["count"] == sql("select count(*) from data.products")
    assert all(len(parts) == 1 for parts in sent)


def test_ui5_groups(ui5: Any, sql: Sql) -> None:
    read = [{name: row[name] for name in ("status", "currency", "amount")} for row in ui5.evaluate("ui5.groups()")]
    assert sorted(read, key=str) == sorted(
        sql("status, currency, sum(total)::text as amount from data.orders group by status, currency"), key=str
    )


def test_ui5_reads_without_batch(ui5: Any, sent: list[list[str]], sql: Sql) -> None:
    read = ui5.evaluate("ui5.direct()")
    assert read["orders"] == sql("""
        o.code, json_build_object('name', c.name) as customer from data.orders o join data.customers c on c.id = o.customer_id
        where o.status = 'closed' order by o.order_date desc, o.code limit 30""")
    assert read["count"] == sql("select count(*) from data.orders where status = 'closed'")
    assert read["product"]["category"] == {
        "code": sql("select code from data.categories where id = (select category_id from data.products where id = 1)")
    }
    totals = sql("currency, sum(total)::text as amount from data.orders group by currency order by currency")
    assert sorted(({name: row[name] for name in totals[0]} for row in read["groups"]), key=str) == totals
    assert sorted([row["currency"], row["amount"]] for row in read["levels"]) == [list(row.values()) for row in totals]
    assert [row["amount"] for row in read["total"]] == [sql("select sum(total)::text from data.orders")]
    assert "concat" in read["grandTotal"], "docs/odata.md says that grand totals do not work"
    assert all(len(parts) == 1 and not parts[0].startswith("$batch") for parts in sent)


def test_a_table_of_ui5_grows_by_a_click_and_shows_what_is_behind_a_row(ui5: Any, sent: list[list[str]], sql: Sql) -> None:
    wanted = """o.code, c.name from data.orders o join data.customers c on c.id = o.customer_id
        where o.status = 'closed' order by o.order_date desc, o.id limit {}"""
    closed = sql("select count(*) from data.orders where status = 'closed'")
    ui5.evaluate("ui5.show()")
    for rows in (20, 40):
        ui5.wait_for_function("(rows) => ui5.rows('orders').length === rows", arg=rows)
        shown = [row[:2] for row in ui5.evaluate("ui5.rows('orders')")]
        assert shown == [list(row.values()) for row in sql(wanted.format(rows))]
        if rows == 20:
            assert f"20 / {closed}" in ui5.inner_text("#orders-trigger")
            ui5.click("#orders-trigger")
    assert [part for request in sent[1:] for part in request if "$skip=20&$top=20" in part], "the second page alone"
    ui5.click("#orders-listUl tbody tr:nth-of-type(3) td:nth-of-type(2)")
    ui5.wait_for_function("ui5.rows('details').length > 0 && ui5.rows('details').every((row) => row[1])")
    code = ui5.evaluate("ui5.rows('orders')")[2][0]
    assert [row[:2] for row in ui5.evaluate("ui5.rows('details')")] == [list(row.values()) for row in sql(f"""
        p.code, c.name from data.order_items i join data.products p on p.id = i.product_id join data.categories c on c.id = p.category_id
        join data.orders o on o.id = i.order_id where o.code = '{code}' order by i.id""")]  # fmt: skip
    assert "$expand=product($select=code,id;$expand=category($select=id,name))" in sent[-1][-1], "one read for the table"
