"""$expand: related rows inside their rows, of both cardinalities, in every format."""

from __future__ import annotations

import pytest

from tests.service.serving import Service

JSON = "application/json"


@pytest.fixture(scope="module", autouse=True)
def _rows(service: Service) -> None:
    service.operator.company("other")
    for company in ("demo", "other"):
        service.operator.write(
            company,
            f"""
            insert into data.categories (company_id, id, code, name) values ('{company}', 1, 'T', 'Tools'), ('{company}', 2, 'E', '');
            insert into data.units (company_id, id, code, name) values ('{company}', 7, 'kg', 'Kilogram');
            insert into data.products (company_id, id, code, name, price, category_id, unit_id) values
                ('{company}', 1, 'A', 'Hammer', 12.5, 1, 7), ('{company}', 2, 'B', 'Nail', null, 1, null),
                ('{company}', 3, 'C', 'Drill', 3, null, null);
            insert into data.product_variants (company_id, id, code, price, product_id) values
                ('{company}', 30, '{company}-3', 3, 1), ('{company}', 10, '{company}-1', 1, 1), ('{company}', 20, '{company}-2', 2, 2);
            """,
        )


def test_one_row_or_null_comes_inside(service: Service) -> None:
    reply = service.odata("/products?$expand=category")
    assert reply.json["@odata.context"].endswith("$metadata#products(category())")
    assert [row["category"] and row["category"]["code"] for row in reply.json["value"]] == ["T", "T", None]
    whole = service.odata("/categories(1)").json
    del whole["@odata.context"]
    assert reply.json["value"][0]["category"] == whole


def test_many_rows_come_inside_in_the_order_of_their_ids(service: Service) -> None:
    value = service.odata("/products?$expand=variants").json["value"]
    assert [[each["code"] for each in row["variants"]] for row in value] == [["demo-1", "demo-3"], ["demo-2"], []]
    assert list(value[0])[-1] == "variants"


CONTEXTS = [
    ("/products?$expand=category,unit", "#products(category(),unit())"),
    ("/products?$expand=category,%20category", "#products(category())"),
    ("/products?$select=code&$expand=category", "#products(code,category())"),
    ("/products?$expand=category&$select=*", "#products(category())"),
    ("/products?$top=1&$expand=variants", "#products(variants())"),
    ("/products(1)?$expand=category", "#products(category())/$entity"),
    ("/products(code='A')?$expand=variants&$select=id,code", "#products(id,code,variants())/$entity"),
    ("/products?$select=code,category", "#products(code,category)"),
    ("/products(1)?$select=category,variants", "#products(category,variants)/$entity"),
    ("/products?$select=code,category,unit&$expand=category", "#products(code,unit,category())"),
    ("/products?$select=*,category", "#products(category)"),
]


@pytest.mark.parametrize(("path", "fragment"), CONTEXTS)
def test_context_urls(service: Service, path: str, fragment: str) -> None:
    assert service.odata(path).json["@odata.context"].endswith("/api/odata/demo/$metadata" + fragment)


def test_a_selected_navigation_property_has_no_fields_by_itself(service: Service) -> None:
    for metadata in ("minimal", "none"):
        accept = f"{JSON};odata.metadata={metadata}"
        assert service.odata("/products?$select=category&$top=2", Accept=accept).json["value"] == [{}, {}]
        row = service.odata("/products(1)?$select=category", Accept=accept).json
        assert not [name for name in row if not name.startswith("@")]
    assert service.odata("/products?$select=code,variants").json["value"] == [{"code": code} for code in "ABC"]
    (row,) = service.odata("/products?$select=category&$expand=category&$filter=id%20eq%201").json["value"]
    assert list(row) == ["category"] and row["category"]["code"] == "T"
    assert "code" in service.odata("/products(1)?$select=*,category").json


@pytest.mark.parametrize("select", ["category/code", "category/parent", "nothing", "code/x"])
def test_select_takes_no_paths(service: Service, select: str) -> None:
    reply = service.odata(f"/products?$select={select}")
    assert (reply.status, reply.json["error"]["target"]) == (400, "$select")


def test_the_star_is_every_navigation_property(service: Service) -> None:
    row = service.odata("/products(1)?$select=code&$expand=*").json
    del row["@odata.context"]
    assert {name: type(value) for name, value in row.items()} == {
        "code": str, "category": dict, "unit": dict, "variants": list, "orderItems": list, "invoiceItems": list,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/products(3)?$select=code&$expand=category,variants", {"code": "C", "category": None, "variants": []}),
        ("/products?$select=code&$expand=unit&$filter=category/code%20eq%20'T'%20and%20unit%20eq%20null", {"code": "B", "unit": None}),
        ("/categories?$select=code&$expand=products&$orderby=code", {"code": "E", "products": []}),
        ("/categories(2)?$select=code&$expand=children,parent", {"code": "E", "children": [], "parent": None}),
    ],
)  # fmt: skip
def test_rows_with_rows_inside(service: Service, path: str, answer: dict[str, object]) -> None:
    answered = service.odata(path).json
    row = answered["value"][0] if "value" in answered else answered
    row.pop("@odata.context", None)
    assert row == answer


def test_rows_inside_follow_the_format(service: Service) -> None:
    path = "/products?$expand=variants,category&$filter=id%20eq%201"
    (row,) = service.odata(path, Accept=f"{JSON};odata.metadata=none;IEEE754Compatible=true").json["value"]
    assert (row["variants"][0]["id"], row["variants"][0]["price"], row["category"]["id"]) == ("10", "1.0000", "1")
    assert not [name for each in (row, row["category"], row["variants"][0]) for name in each if "@" in name]
    (row,) = service.odata(path, Accept=f"{JSON};odata.metadata=full").json["value"]
    root = f"http://{service.host}:{service.port}/api/odata/demo/"
    assert row["category"]["@odata.id"] == f"{root}categories(1)"
    assert row["category"]["products@odata.navigationLink"] == f"{root}categories(1)/products"
    assert row["category"]["products@odata.associationLink"] == f"{root}categories(1)/products/$ref"
    assert row["variants"][1]["@odata.type"] == "#bds.productVariant"
    assert row["variants"][1]["price@odata.type"] == "#Decimal"
    assert row["variants@odata.navigationLink"] == f"{root}products(1)/variants"


@pytest.mark.parametrize("path", ["/products?$expand=variants", "/products(1)?$expand=variants", "/products?$top=2&$expand=*"])
def test_a_tag_depends_on_the_rows_inside(service: Service, path: str) -> None:
    tag = service.odata(path).headers["ETag"]
    assert service.odata(path, If_None_Match=tag).status == 304
    head = service.odata(path, method="HEAD")
    assert (head.status, head.body, head.headers["ETag"]) == (200, b"", tag)
    service.operator.write("demo", "update data.product_variants set price = price + 1 where company_id = 'demo' and id = 10")
    assert service.odata(path, If_None_Match=tag).status == 200


@pytest.mark.parametrize(
    ("option", "status"),
    [
        ("category($select=code)", 501),
        ("category/$ref", 501),
        ("*/$ref", 501),
        ("name", 400),
        ("nothing", 400),
        ("category/parent", 400),
    ],
)
def test_wrong_and_unsupported_expands_are_errors(service: Service, option: str, status: int) -> None:
    for path in ("/products", "/products(1)"):
        reply = service.odata(f"{path}?$expand={option}")
        assert (reply.status, reply.json["error"]["target"]) == (status, "$expand")
    assert service.odata("/products/$count?$expand=category").status == 400


def test_rows_with_many_inside_stream(service: Service) -> None:
    service.operator.write(
        "demo",
        "insert into data.orders (company_id, id, code, order_date) select 'demo', g, 'O' || g, '2026-01-01' from generate_series(1, 600) g",
    )
    service.operator.write(
        "demo",
        "insert into data.order_items (company_id, order_id, description)"
        " select 'demo', o.id, repeat('x', 100) from data.orders o, generate_series(1, 20)",
    )
    for path in ("/orders?$expand=items", "/orders?$expand=items&$top=600&$count=true"):
        reply = service.odata(path)
        assert reply.headers["Transfer-Encoding"] == "chunked"
        assert [len(row["items"]) for row in reply.json["value"]] == [20] * 600


@pytest.mark.parametrize("top", [0, 1, 2, 3])
def test_pages_of_rows_with_many_inside_are_whole(service: Service, top: int) -> None:
    value = service.odata(f"/categories?$top={top}&$expand=products").json["value"]
    assert [len(row["products"]) for row in value] == [2, 0][:top]
