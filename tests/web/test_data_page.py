"""The pages of rows: filter, search, order, columns, pages that follow a key; one row with all that belongs to it."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import pytest
from lxml import html

from app.database.connections import connect, read_catalog
from app.web.addresses import has_number, search
from app.web.conditions import Condition
from tests.service.serving import Service
from tests.web.visitor import Page, Visitor

ROWS = 120


@pytest.fixture(scope="module", autouse=True)
def rows(service: Service) -> None:
    write = service.operator.write
    write("demo", "insert into data.categories (code, name) values ('FIX', 'Fixings'), ('HAM', 'Hammers')")
    write(
        "demo",
        "insert into data.products (code, name, price, category_id)"
        " select 'P' || lpad(n::text, 4, '0'), 'Product ' || n, n, (select id from data.categories where code = case when mod(n, 3) = 0"
        f" then 'FIX' else 'HAM' end) from generate_series(1, {ROWS}) n",
    )
    write("demo", "insert into data.products (code, name) values ('50%%_off', '<b>bold</b>')")
    write("demo", "insert into data.customers (code, name) values ('C1', 'Acme')")
    write("demo", "insert into data.orders (code, order_date, customer_id) select 'O1', '2026-11-01', id from data.customers")
    write(
        "demo",
        "insert into data.order_items (order_id, product_id, quantity, price) select o.id, p.id, 2, 0.1 from data.orders o, data.products p where p.code < 'P0003' and p.code > 'P'",
    )
    write("third", "insert into data.products (code, name) values ('SECRET', 'Secret')")


def open_rows(anna: Visitor, entity: str = "products", **parameters: str | list[str]) -> Page:
    return anna.get(f"/data/{entity}?" + urlencode({"company": "demo", **parameters}, doseq=True))


def codes(page: Page) -> list[str]:
    assert page.status == 200
    return page.all("//tbody/tr/th//text()")


def test_all_entities_are_listed_with_their_rows(anna: Visitor) -> None:
    page = anna.get("/data?company=demo")
    assert any(line.startswith("products 121 ") for line in page.all("//tbody/tr"))
    assert anna.get("/?company=demo").all("//a[starts-with(@href, '/data/products')]"), "the overview leads to the rows"


def test_pages_follow_one_another_without_gaps(anna: Visitor) -> None:
    for sort in ("", "-price", "category", "name"):
        seen: list[str] = []
        page = open_rows(anna, sort=sort)
        while True:
            seen += codes(page)
            following = page.all("//a[@rel='next']/@href")
            if not following:
                break
            page = anna.get(following[0])
        assert len(seen) == len(set(seen)) == ROWS + 1, sort


def test_a_row_that_is_inserted_meanwhile_moves_none(anna: Visitor, service: Service) -> None:
    page = open_rows(anna, sort="code")
    first = codes(page)
    service.operator.write("demo", "insert into data.products (code, name) values ('A', 'first of all')")
    following = codes(anna.get(page.all("//a[@rel='next']/@href")[0]))
    service.operator.write("demo", "delete from data.products where code = 'A'")
    assert not set(first) & set(following) and following[0] == "P0050"


def test_conditions_search_and_order(anna: Visitor) -> None:
    page = open_rows(anna, filter="category = 'code:FIX' and price >= 110", sort="-price")
    assert codes(page) == ["P0120", "P0117", "P0114", "P0111"]
    assert codes(open_rows(anna, q="p011", filter="price > 118")) == ["P0119"]
    assert codes(open_rows(anna, q="50%_")) == ["50%_off"], "wildcards are letters"
    assert codes(open_rows(anna, q="Product 77")) == ["P0077"]
    assert "No rows match" in open_rows(anna, q="nothing of that kind").text


def test_references_are_shown_by_code_and_name(anna: Visitor) -> None:
    page = open_rows(anna, filter="code = 'P0003'")
    assert page.all("//td[@data-label='category']/a[1]//text()") == ["FIX"]
    assert "Fixings" in page.text


def test_the_example_of_a_condition_is_one_of_the_entity(anna: Visitor) -> None:
    examples = {"products": "price >= 10 and category = 'code:X'", "categories": "code like 'A%' and parent = 'code:X'"}
    for entity, condition in examples.items():
        [shown] = open_rows(anna, entity).all("//input[@id='filter']/@placeholder")
        assert shown == condition and open_rows(anna, entity, filter=condition).status == 200


def test_columns_are_chosen(anna: Visitor) -> None:
    page = open_rows(anna, columns=["code", "price"], filter="code = 'P0001'")
    assert page.all("//thead//th") == ["code", "price"]
    assert page.all("//tbody/tr/td[1]/text()[normalize-space()]")[0].split() == ["1.00"]


def test_a_value_narrows(anna: Visitor) -> None:
    page = open_rows(anna, filter="price < 5 or price > 118")
    [narrowed] = page.all("//tr[th='P0003']/td[@data-label='category']/a[@class='only']/@href")
    assert codes(anna.get(narrowed)) == ["P0003", "P0120"]


@pytest.mark.parametrize(
    "condition", ["code = 'P0002' or(code = 'P0003')", "code='P0002'OR code = 'P0003'", "code = 'P0002'\tor\tcode = 'P0003'"]
)
def test_a_value_narrows_both_sides_of_or_however_it_is_written(anna: Visitor, condition: str) -> None:
    page = open_rows(anna, filter=condition)
    [narrowed] = page.all("//tr[th='P0003']/td[@data-label='price']/a[@class='only']/@href")
    assert codes(anna.get(narrowed)) == ["P0003"]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"filter": "prise = 1"}, "prise"),
        ({"filter": "price >"}, "at character"),
        ({"filter": "price = 'x'"}, "expected a number"),
        ({"sort": "prise"}, "prise"),
    ],
)
def test_a_mistake_is_shown_where_it_is(anna: Visitor, parameters: dict[str, str], said: str) -> None:
    page = open_rows(anna, **parameters)
    assert page.status == 400
    assert any(said in problem for problem in page.problems), page.problems


@pytest.mark.parametrize("token", ["nonsense", "NTBbIjEiXQ", "MTAwW251bGwsbnVsbCxudWxsXQ"])
def test_a_damaged_address_of_a_page_shows_the_first_rows(anna: Visitor, token: str) -> None:
    page = open_rows(anna, sort="code", **{"from": token})
    assert page.status == 400 and "these are the first rows" in page.problems[0]
    assert page.all("//tbody/tr/th//text()")[0] == "50%_off" and page.all("//a[@rel='next']")
    assert "$skiptoken" not in page.text


def test_amounts_are_shown_as_exports_show_them_with_separators_and_one_below_another(anna: Visitor, service: Service) -> None:
    prices = {"D1": "12.5", "D2": "0.1234", "D3": "-7", "D4": "1000000.0500", "D5": "0"}
    for code, price in prices.items():
        service.operator.write("demo", f"insert into data.products (code, name, price) values ('{code}', 'decimal', {price})")
    page = open_rows(anna, filter="name = 'decimal'", columns=["code", "price"], sort="code")
    texts = [text.strip("\n") for text in page.tree.xpath("//tbody/tr/td[1]/text()[normalize-space()]")]
    assert texts == ["12.50\u2007\u2007", "0.1234", "-7.00\u2007\u2007", "1,000,000.05\u2007\u2007", "0.00\u2007\u2007"]
    shown = [each.strip().replace(",", "") for each in texts]
    given = {"format": "html", "export": "true", "$filter": "name eq 'decimal'", "$orderby": "code", "$select": "price"}
    exported = html.document_fromstring(anna.get("/api/demo/products?" + urlencode(given)).reply.body.decode())
    assert [each.text_content() for each in exported.xpath("//tbody/tr/td")] == shown
    service.operator.write("demo", "delete from data.products where name = 'decimal'")


def test_columns_have_types_in_words_and_rows_without_a_code_begin_with_their_owner(anna: Visitor) -> None:
    kinds = open_rows(anna).all("//details[@id='columns']//label")
    assert {"price number", "active true or false", "category categories", "updatedAt time"} <= set(kinds)
    items = open_rows(anna, "orderItems")
    assert items.all("//thead//th")[0] == "order" and items.all("//thead//th")[-1] == "id"
    assert anna.get(items.all("//tbody/tr/th/a/@href")[0]).status == 200


def test_one_search_finds_codes_and_names_of_all_entities(anna: Visitor, service: Service) -> None:
    page = anna.get("/data?company=demo&q=HAM")
    assert page.one("//section[@aria-labelledby='in-categories']//li") == "HAM Hammers"
    assert page.all("//header//form[@role='search']//input[@type='search']/@name") == ["q"]
    many = anna.get("/data?company=demo&q=P00")
    assert many.all("//main//li/a")[0] == "P0001" and len(many.all("//section[@aria-labelledby='in-products']//li")) == 8
    assert len(codes(anna.get(many.one("//a[.='all of them']/@href")))) == 50
    service.operator.write("demo", "insert into data.units (code, name) values ('acme', 'first'), ('xacme', 'second')")
    assert anna.get("/data?company=demo&q=acme").all("//main//li/a") == ["acme", "xacme", "C1"], (
        "codes that begin with the text first"
    )
    service.operator.write("demo", "delete from data.units")
    assert "Nothing has this code or name" in anna.get("/data?company=demo&q=50%25%25%25").text
    assert "Secret" not in anna.get("/data?company=demo&q=SECRET").text


def test_a_search_that_takes_long_says_where_it_ended(anna: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.web.search.PATIENCE", 0)
    page = anna.get("/data?company=demo&q=P0077")
    assert page.all("//main//li/a") == ["P0077"], "codes are found by their index"
    assert "products has too many rows" in page.text and codes(anna.get(page.all("//a[.='search there alone']/@href")[2]))


def test_a_row_is_found_by_a_lookup(anna: Visitor, service: Service) -> None:
    page = anna.get("/data/customers/code:C1?company=demo")
    assert page.one("//h1") == "C1 Acme"
    assert anna.get(page.one("//a[.='History']/@href")).status == 200
    assert [anna.get(f"/data/customers/{key}?company=demo").status for key in ("code:NONE", "name:Acme")] == [404, 400]
    assert anna.get("/data/customers/code:C1?company=demo&asof=0").status == 404


FILTERS = [
    ("price ge 110 and category/code eq 'FIX'", ["P0111", "P0114", "P0117", "P0120"]),
    ("startswith(name,'Product 11') or price lt 2", ["P0001", "P0011", *(f"P011{n}" for n in range(10))]),
    ("price in (3,4) and category in ('code:FIX')", ["P0003"]),
    ("orderItems/any(i: i/quantity gt 1)", ["P0001", "P0002"]),
]


@pytest.mark.parametrize(("text", "shown"), FILTERS)
def test_a_condition_is_written_in_either_language(anna: Visitor, service: Service, text: str, shown: list[str]) -> None:
    page = open_rows(anna, filter=text, sort="code")
    assert codes(page) == shown
    [narrowed] = page.all(f"//tr[th='{shown[0]}']/td[@data-label='category']/a[@class='only']/@href")
    category = page.one(f"//tr[th='{shown[0]}']/td[@data-label='category']/a[1]")
    others = [page.one(f"//tr[th='{each}']/td[@data-label='category']/a[1]") for each in shown]
    assert codes(anna.get(narrowed)) == [each for each, other in zip(shown, others, strict=True) if other == category]
    odata = page.one("//input[@id='address-odata']/@value").partition("://")[2].partition("/")[2]
    assert [row["code"] for row in service.ask("/" + odata).json["value"]] == shown
    lines = anna.get(anna.get(page.one("//a[.='Export…']/@href") + "&do=download").location or "").reply.body.decode().splitlines()
    direct = anna.get("/api/demo/products?" + urlencode({"format": "csv", "export": "true", "$filter": text, "$orderby": "code"}))
    assert direct.reply.body.decode().splitlines() == lines and len(lines) == len(shown) + 1, "an export takes both as well"


def test_a_condition_that_both_languages_read_otherwise_is_refused(anna: Visitor) -> None:
    page = open_rows(anna, filter="not (barcode in ('x'))")
    assert page.status == 400 and "rows without a value match in OData and not in /c" in page.problems[0]
    assert "got 'gt'" in open_rows(anna, filter="price gt").problems[0], "what neither accepts has the error of /c"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("active = true", ""), ("price < 5 and active = true and name like 'P%'", "price < 5 and name like 'P%'"),
        ("(price < 5 or price > 9) and active = true", "(price < 5 or price > 9)"), ("price lt 5 and active eq true", "price lt 5"),
        ("name = 'a and active = true and b'", None), ("not (price = 1 and active = true and price = 2)", None),
        ("price < 5 or (price > 9) and active = true", None), ("price < 5", None),
    ],
)  # fmt: skip
def test_a_test_is_taken_out_of_a_condition_only_where_the_rest_means_the_rest(
    service: Service, module_database_url: str, text: str, rest: str | None
) -> None:
    with connect(module_database_url) as connection:
        catalog = read_catalog(connection)
    products = catalog["products"]
    condition = Condition(products, catalog, text, is_odata=" lt " in text)
    assert condition.without("active = true") == rest


def facet(page: Page, name: str) -> list[str]:
    return page.all(f"//aside//section[@aria-label='{name}']//li")


def test_facets_count_the_values_of_references_choices_and_days(anna: Visitor, service: Service) -> None:
    page = open_rows(anna, filter="price <= 30")
    assert facet(page, "category") == ["HAM Hammers 20", "FIX Fixings 10"] and facet(page, "active") == ["yes 30"]
    assert not facet(page, "name") and not facet(page, "updatedAt")
    fixings = anna.get(page.one("//aside//a[starts-with(., 'FIX')]/@href"))
    assert len(codes(fixings)) == 10 and fixings.typed("filter").startswith("price <= 30 and categoryId = ")
    assert anna.get(fixings.one("//aside//a[@aria-current]/@href")).typed("filter") == "price <= 30"
    both = anna.get(fixings.one("//aside//a[.='yes']/@href"))
    assert both.all("//aside//a[@aria-current]") == ["yes", "FIX Fixings"] and len(codes(both)) == 10
    orders = open_rows(anna, "orders", asof="now")
    assert facet(orders, "orderDate") == ["2026-11 1"] and facet(orders, "status") == ["draft 1"]
    assert codes(anna.get(orders.one("//aside//a[.='2026-11']/@href"))) == ["O1"]
    assert facet(open_rows(anna, filter="price is null"), "category") == ["none 1"]


def test_facets_look_at_so_many_rows_and_so_long(anna: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.web.facets.COUNTED", 10)
    page = open_rows(anna)
    assert sum(int(each.split()[-1]) for each in facet(page, "active")) == 10 and "Of the first" in page.text
    monkeypatch.setattr("app.web.facets.TIMEOUT", 1)
    monkeypatch.setattr(
        "app.web.facets.COUNTS", b"select pg_sleep(1) from (%(rows)s) as r where $%(shown)d <> '' and $%(days)d <> '{}'"
    )
    page = open_rows(anna)
    assert len(codes(page)) == 50 and not page.all("//aside")


@pytest.mark.parametrize("text", ["price <= 30", "price le 30"])
def test_groups_are_those_of_apply_with_sums_and_bars(anna: Visitor, service: Service, text: str) -> None:
    page = open_rows(anna, filter=text, group="category", sum="price")
    assert page.all("//table//tbody/tr") == ["HAM Hammers 20 300.00", "FIX Fixings 10 165.00"]
    assert page.one("//tfoot/tr") == "all 30 465.00"
    assert page.all("//tbody//rect/@width") == ["100.0", "100.0", "50.0", "55.0"]
    path = page.one("//input[@id='address-odata']/@value").partition("://")[2].partition("/")[2]
    groups = service.ask("/" + path).json["value"]
    assert [(each["category"]["code"], each["rows"], each["sum"]) for each in groups] == [("HAM", 20, 300), ("FIX", 10, 165)]
    rows = anna.get(page.one("//tbody//a[.='FIX']/@href"))
    assert len(codes(rows)) == 10 and rows.typed("group") == ""
    assert open_rows(anna, group="active").all("//table//tbody/tr")[0].startswith("yes 121")
    wrong = open_rows(anna, group="price", sum="name")
    assert wrong.status == 400 and len(wrong.problems) == 2


def test_a_deleted_row_has_a_page_that_leads_to_its_history(anna: Visitor, service: Service) -> None:
    service.operator.write("demo", "insert into data.products (code, name) values ('GONE', 'Gone')")
    [(id,)] = service.operator.rows("select id from data.products where code = 'GONE'")
    service.operator.write("demo", "delete from data.products where code = 'GONE'")
    page = anna.get(f"/data/products/{id}?company=demo")
    assert page.status == 404 and page.one("//h1") == "GONE Gone" and "This row was deleted " in page.text
    assert anna.get(f"/data/products/id:{id}?company=demo").one("//h1") == "GONE Gone"
    assert anna.get(page.one("//main//a[.='History']/@href")).one("//h1") == "products GONE Gone"
    before = anna.get(page.one("//main//a[.='The row before it was deleted']/@href"))
    assert before.status == 200 and before.one("//h1") == "GONE Gone"
    never = anna.get("/data/products/999999999?company=demo")
    assert never.status == 404 and "the log has no changes of it" in never.text
    early = anna.get(f"/data/products/{id}?company=demo&asof=0")
    assert early.status == 404 and "did not exist as of 0" in early.text
    assert "product GONE as of version 0." in early.one("//section[@aria-label='The past']//p[1]")


def test_a_time_that_was_picked_without_javascript_comes_before_the_moment_of_before(anna: Visitor) -> None:
    page = anna.get("/data/products?company=demo&asof=1&day=2999-01-01T10:00")
    assert (page.status, page.typed("asof")) == (404, "2999-01-01T10:00")


def test_a_text_is_searched_as_a_number_where_no_field_has_text(service: Service, module_database_url: str) -> None:
    with connect(module_database_url) as connection:
        items = read_catalog(connection)["orderItems"]
    without = replace(items, fields={name: field for name, field in items.fields.items() if field.type != "text"})
    assert [search(without, text) for text in ("902", "zzzz", "")] == ["id = 902", "id is null", ""]
    numbered = replace(
        items, fields={**without.fields, "number": replace(items.fields["id"], name="number", type="int2", unique=True)}
    )
    ends = ("-32768", "-32769", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "-0", "+1")
    assert [search(numbered, text) for text in ("902", "99999", "zzzz", *ends)] == [
        "number = 902", "id = 99999", "id is null",
        "number = -32768", "id = -32769", "id = 9223372036854775807", "id = -9223372036854775808", *["id is null"] * 3,
    ]  # fmt: skip
    wide = replace(numbered, fields={**numbered.fields, "number": replace(numbered.fields["number"], type="int8")})
    assert [has_number(wide, text) for text in ends[2:5]] == [[f"number = {ends[2]}"], [f"number = {ends[3]}"], []]


def test_version_and_at_together_are_refused_and_a_wrong_moment_comes_before_a_missing_row(anna: Visitor) -> None:
    for path in ("/data/products?", "/data/products/code:P0001?"):
        page = anna.get(f"{path}company=demo&version=1&at=2020-01-01")
        assert (page.status, page.one("//p[@id='asof-wrong']")) == (400, "expected version or at, got both")
    for moment, status, said in (("at=soon!", 400, "a version such as 17"), ("version=99999999", 404, "yet to come")):
        page = anna.get(f"/data/products/code:GONE?company=demo&{moment}")
        assert page.status == status and said in page.text and "now products has no row code:GONE" in page.text


def test_the_page_of_a_row_asks_for_its_moment_and_shows_a_wrong_one(anna: Visitor, service: Service) -> None:
    [(id,)] = service.operator.rows("select id from data.products where code = 'P0001'")
    for asof, status in (("2026-13-01", 400), ("nobody", 404), ("2999-01-01", 404)):
        page = anna.get(f"/data/products/{id}?company=demo&asof={asof}")
        assert page.status == status and page.one("//h1").startswith("P0001") and page.typed("asof") == asof
        assert page.one("//p[@id='asof-wrong']")


def test_values_are_not_markup(anna: Visitor) -> None:
    page = open_rows(anna, q="50%")
    assert "<b>bold</b>" in page.text and not page.all("//b")


def test_a_row_shows_its_children_and_what_refers_to_it(anna: Visitor, service: Service) -> None:
    [(order,)] = service.operator.rows("select id from data.orders where code = 'O1'")
    page = anna.get(f"/data/orders/{order}?company=demo")
    assert page.one("//h1") == "O1"
    assert page.all("//td[@data-label='product']/a//text()") == ["P0001", "P0002"]
    [(customer,)] = service.operator.rows("select id from data.customers")
    customers = anna.get(f"/data/customers/{customer}?company=demo")
    [orders] = customers.all("//section[@aria-labelledby='inverse']//a[text()='orders']/@href")
    assert codes(anna.get(orders)) == ["O1"]
    assert anna.get(page.all("//a[text()='History']/@href")[0]).status == 200
    for address in page.all("//input[starts-with(@id, 'address-')]/@value")[:2]:
        path = address.partition("://")[2].partition("/")[2]
        assert service.ask("/" + path).status == 200


@pytest.mark.parametrize("path", ["/data/nothing", "/data/products/999999", "/data/products/x", "/data/products/1e3"])
def test_what_does_not_exist_is_404(anna: Visitor, path: str) -> None:
    assert anna.get(path + "?company=demo").status == 404


def test_another_companys_rows_are_forbidden(anna: Visitor, service: Service) -> None:
    assert anna.get("/data/products?company=third").status == 403
    [(secret,)] = service.operator.rows("select id from data.products where code = 'SECRET'")
    assert anna.get(f"/data/products/{secret}?company=demo").status == 404


def test_rows_are_shown_as_of_a_version_or_a_time(anna: Visitor, service: Service) -> None:
    write, rows_of = service.operator.write, service.operator.rows
    write("second", "insert into data.customers (code, name) values ('C9', 'Old name')")
    write(
        "second",
        "insert into data.orders (code, order_date, customer_id) select 'O9', '2026-11-01', id from data.customers where code = 'C9'",
    )
    write(
        "second",
        "insert into data.order_items (order_id, quantity) select id, 3 from data.orders where code = 'O9' and company_id = 'second'",
    )
    [(version, order, moment)] = rows_of(
        "select (select max(id) from bds.changes where company_id = 'second'), (select id from data.orders where code = 'O9'),"
        " to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
    )
    write("second", "update data.customers set name = 'New name' where code = 'C9' and company_id = 'second'")
    write("second", "delete from data.order_items where company_id = 'second'")
    for asof in (str(version), moment):
        page = anna.get("/data/customers?" + urlencode({"company": "second", "asof": asof}))
        assert codes(page) == ["C9"] and "Old name" in page.text and "New name" not in page.text
        listed = anna.get("/data/orders?" + urlencode({"company": "second", "asof": asof, "filter": "customer = 'code:C9'"}))
        assert "Old name" in listed.text and facet(listed, "customer") == ["C9 Old name 1"], "references are of then"
        then = anna.get(listed.all("//tbody/tr/th/a/@href")[0])
        assert "3.00" in then.text and "Old name" in then.text
        for shown in (page, listed, then):
            check_banner(anna, shown, version)
        grouped = anna.get("/data/orders?" + urlencode({"company": "second", "asof": asof, "group": "customer"}))
        assert grouped.all("//table//tbody/tr") == ["C9 Old name 1"]
        for address in then.all("//input[starts-with(@id, 'address-')]/@value")[:2]:
            assert service.ask("/" + address.partition("://")[2].partition("/")[2], authorization=second(service)).status == 200
    for text in (moment.replace("T", " "), moment.replace("Z", "+00:00")):
        then = anna.get(f"/data/orders/{order}?" + urlencode({"company": "second", "asof": text}))
        assert then.status == 200 and not set(then.one("//input[@id='address-1']/@value")) & {" ", "+"}, text
        odata = then.one("//input[@id='address-1']/@value").partition("://")[2].partition("/")[2]
        assert service.ask("/" + odata, authorization=second(service)).status == 200
    assert "3.00" not in anna.get(f"/data/orders/{order}?company=second").text


def check_banner(anna: Visitor, page: Page, version: int) -> None:
    """A page of the past says which version it is, and leads to now, to what has changed since, to a name and to the way back."""
    assert f"as of version {version:,}," in page.one("//section[@aria-label='The past']//p[1]")
    now, since = page.all("//section[@aria-label='The past']//p[1]/a/@href")
    assert "asof" not in now and not anna.get(now).all("//section[@aria-label='The past']")
    assert anna.get(since).status == 200 and f"since={version}" in since
    fields = page.tree.xpath("//section[@aria-label='The past']//form")
    assert [dict(form.fields).get("do") or dict(form.fields).get("to") for form in fields] == ["name", str(version)]
    assert dict(fields[1].fields)["dryRun"] == "true"


def second(service: Service) -> str:
    import base64

    return "Basic " + base64.b64encode(f"api:{service.operator.key('second')}".encode()).decode()


def test_when_there_were_no_rows_then_the_page_says_so(anna: Visitor) -> None:
    page = open_rows(anna, asof="0")
    assert page.status == 200 and "There were no rows then" in page.text and "Import a file" not in page.text
    assert page.all("//p[@class='empty']/a/@href") == ["/data/products?company=demo"]


@pytest.mark.parametrize(("asof", "status"), [("2026-13-01", 400), ("nobody", 404), ("99999999", 404), ("2999-01-01", 404)])
def test_a_moment_that_is_none_is_refused(anna: Visitor, asof: str, status: int) -> None:
    page = open_rows(anna, asof=asof)
    assert page.status == status
    [problem] = page.problems
    assert problem.startswith("As of (UTC): ") and page.typed("asof") == asof
    assert page.one("//p[@id='asof-wrong']") == problem.removeprefix("As of (UTC): ")
    assert status == 404 or "a version such as 17, its name, or a time in UTC such as" in problem


def test_moments_are_taken_as_people_and_as_programs_write_them(anna: Visitor, service: Service) -> None:
    service.operator.connection.execute("select bds.name_version('demo', 'opening', 0)")
    empty = [open_rows(anna, asof=text) for text in ("yesterday", "-2d", "opening", "0")]
    empty += [anna.get(f"/data/products?company=demo&{text}") for text in ("version=0", "version=opening", "at=2020-01-01")]
    assert all(page.status == 200 and "There were no rows then" in page.text for page in empty)
    assert "There were no rows then" not in open_rows(anna, asof="now").text
    assert "There were no rows then" in anna.get("/data/products?company=demo&asof=&day=2020-01-31T14:30").text, "a picked time"
    offered = empty[0].all("//details[@id='moment']//a")
    assert offered == ["now", "today", "yesterday", "-7d", "-30d", "opening"]
    assert "There were no rows then" in anna.get(empty[0].one("//details[@id='moment']//a[.='opening']/@href")).text
    assert empty[4].typed("asof") == "0" and b"@opening/products" in empty[2].reply.body
    assert b"@yesterday" not in empty[0].reply.body


@pytest.mark.parametrize(
    "parameters",
    [
        {"filter": "price > 100 and category = 'code:FIX' or name like 'Product 1%'", "sort": "-price"},
        {"filter": "not (price <= 118 or category != 'code:FIX')", "columns": ["code", "category"]},
        {"q": "50%_", "sort": "category"},
        {"filter": "price < 9", "sort": "-category,name", "columns": ["code", "category"]},
        {"filter": "price < 9", "sort": "CATEGORY asc, price DESC"},
        {"filter": "category is null or price in (7, 8)", "q": "p"},
        {},
    ],
)
def test_what_is_shown_is_exported_and_read_over_odata(
    anna: Visitor, service: Service, parameters: dict[str, str | list[str]]
) -> None:
    page = open_rows(anna, **parameters)
    shown = codes(page)
    assert shown
    [export] = page.all("//a[text()='Export…']/@href")
    form = anna.get(export)
    assert form.status == 200 and form.all("//section[@aria-labelledby='preview-title']//tbody/tr")
    url = anna.get(export + "&do=download").location or ""
    lines = anna.get(url).reply.body.decode("utf-8-sig").splitlines()
    at = lines[0].split(",").index("code")
    assert [line.split(",")[at] for line in lines[1:51]] == shown
    addresses = page.all("//input[starts-with(@id, 'address-')]/@value")
    odata, rows, curl = (address.partition("://")[2].partition("/")[2].rstrip('"') for address in addresses)
    assert curl == rows and "$" not in curl
    for path, member in ((odata, "value"), (rows, "data")):
        answer = service.ask("/" + path).json[member]
        assert [row["code"] for row in answer[:50]] == shown


def test_a_sort_by_several_columns_is_turned_whole(anna: Visitor) -> None:
    page = open_rows(anna, sort="-price,category,Name DESC")
    assert page.one("//input[@id='address-odata']/@value").endswith("$orderby=price%20desc,categoryId,name%20desc")
    assert anna.get(page.one("//a[.='Export…']/@href")).typed("orderby") == "price desc,categoryId,name desc"


def test_a_condition_that_odata_lacks_says_so(anna: Visitor) -> None:
    page = open_rows(anna, filter="code like 'P_001'")
    assert codes(page) == ["P0001"]
    assert "OData has no such pattern" in page.text
    assert len(page.all("//input[starts-with(@id, 'address-')]")) == 2
    assert anna.get(page.one("//a[.='Export…']/@href")).all("//section[@aria-labelledby='preview-title']//tbody/tr")


def test_the_export_carries_the_moment(anna: Visitor, service: Service) -> None:
    [(version,)] = service.operator.rows("select last_id from bds.clocks where company_id = 'demo'")
    service.operator.write("demo", "update data.products set name = 'renamed' where code = 'P0005'")
    [export] = open_rows(anna, filter="code = 'P0005'", asof=str(version)).all("//a[text()='Export…']/@href")
    form = anna.get(export)
    assert "Product 5" in form.one("//section[@aria-labelledby='preview-title']//tbody/tr")
    assert f"products as of version {version:,}," in form.one("//section[@aria-label='The past']//p[1]")
    assert "opening" in form.all("//datalist/option/@value")
    assert b"Product 5" in anna.get(anna.get(export + "&do=download").location or "").reply.body
    assert anna.get(export.replace(f"asof={version}", "asof=soon")).problems[0].startswith("As of (UTC): ")
    service.operator.write("demo", "update data.products set name = 'Product 5' where code = 'P0005'")
