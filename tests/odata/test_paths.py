"""Paths behind a row: navigations, properties, references; null values and missing rows."""

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
            insert into data.categories (company_id, id, code, name, parent_id) values
                ('{company}', 1, 'T', 'Tools', null), ('{company}', 2, 'H', 'Hammers', 1);
            insert into data.products (company_id, id, code, name, description, barcode, price, category_id) values
                ('{company}', 1, 'A', 'A "large" hämmer', null, '4001', 12.5, 2), ('{company}', 2, 'B', 'Nail', '', null, null, 1),
                ('{company}', 3, 'C', 'Drill', null, null, 3, null);
            insert into data.product_variants (company_id, id, code, price, product_id) values
                ('{company}', 30, '{company}-3', 3, 1), ('{company}', 10, '{company}-1', 1, 1), ('{company}', 20, '{company}-2', 2, 2);
            """,
        )
    service.operator.write(
        "other", "insert into data.products (company_id, id, code, name, category_id) values ('other', 9, 'O', 'Other', 1)"
    )


def root(service: Service) -> str:
    return f"http://{service.host}:{service.port}/api/odata/demo/"


def test_a_navigation_leads_to_one_row(service: Service) -> None:
    for path in ("/products(1)/category", "/products(code='A')/category", "/products(barcode='4001')/category"):
        row = service.odata(path).json
        assert row == service.odata("/categories(2)").json
        assert row["@odata.context"] == f"{root(service)}$metadata#categories/$entity"
    row = service.odata("/products(1)/category?$select=code&$expand=parent,children").json
    assert row["@odata.context"].endswith("#categories(code,parent(),children())/$entity")
    assert (row["code"], row["parent"]["code"], row["children"]) == ("H", "T", [])
    assert service.odata("/categories(2)/parent").json["code"] == "T"


def test_a_navigation_leads_to_many_rows(service: Service) -> None:
    reply = service.odata("/products(1)/variants")
    assert reply.json["@odata.context"] == f"{root(service)}$metadata#productVariants"
    assert [row["id"] for row in reply.json["value"]] == [10, 30]
    assert service.odata("/categories(1)/children").json["value"][0]["code"] == "H"
    assert service.odata("/products(3)/variants").json["value"] == []


OPTIONS = [
    ("$filter=price%20gt%202", ["demo-3"]),
    ("$filter=price%20gt%202%20or%20price%20lt%209", ["demo-1", "demo-3"]),
    ("$filter=product/variants/any(v:v/price%20gt%20price)", ["demo-1"]),
    ("$orderby=price%20desc", ["demo-3", "demo-1"]),
    ("$top=1", ["demo-1"]),
    ("$top=1&$skip=1&$count=true", ["demo-3"]),
    ("$expand=product&$select=code", ["demo-1", "demo-3"]),
]


@pytest.mark.parametrize("parent", ["products(1)", "products(code='A')"])
@pytest.mark.parametrize(("options", "codes"), OPTIONS)
def test_many_rows_take_the_options_of_a_collection(service: Service, parent: str, options: str, codes: list[str]) -> None:
    answer = service.odata(f"/{parent}/variants?{options}").json
    assert [row["code"] for row in answer["value"]] == codes
    assert answer.get("@odata.count", 2) == 2


def test_related_rows_are_grouped(service: Service) -> None:
    answer = service.odata("/products(1)/variants?$apply=aggregate(price%20with%20sum%20as%20total)").json
    assert answer["value"] == [{"total": 4}]


def test_related_rows_are_counted(service: Service) -> None:
    for path, count in (("/products(1)/variants", b"2"), ("/products(code='B')/variants", b"1"), ("/products(3)/variants", b"0")):
        reply = service.odata(f"{path}/$count")
        assert (reply.status, reply.headers["Content-Type"], reply.body) == (200, "text/plain", count)
    assert service.odata("/products(1)/variants/$count?$filter=price%20gt%202").body == b"1"


PROPERTIES = [
    ("name", b'"A \\"large\\" h\xc3\xa4mmer"', 'A "large" hämmer'),
    ("id", b"1", "1"),
    ("price", b"12.5000", "12.5000"),
    ("active", b"true", "true"),
    ("categoryId", b"2", "2"),
]


@pytest.mark.parametrize(("name", "value", "text"), PROPERTIES)
def test_a_property_is_json_or_text(service: Service, name: str, value: bytes, text: str) -> None:
    for row in ("products(1)", "products(code='A')"):
        reply = service.odata(f"/{row}/{name}")
        assert reply.headers["Content-Type"] == f"{JSON};odata.metadata=minimal"
        assert reply.body == b'{"@odata.context":"%b$metadata#products(1)/%b","value":%b}' % (
            root(service).encode(),
            name.encode(),
            value,
        )
        reply = service.odata(f"/{row}/{name}/$value", Accept="application/xml")
        assert (reply.headers["Content-Type"], reply.body.decode()) == ("text/plain;charset=utf-8", text)


def test_a_time_is_text_without_quotes(service: Service) -> None:
    assert service.odata("/products(1)/updatedAt/$value").body.decode() == service.odata("/products(1)").json["updatedAt"]
    assert service.odata("/products(2)/description/$value").body == b""


def test_formats_of_a_property(service: Service) -> None:
    reply = service.odata("/products(1)/price", Accept=f"{JSON};odata.metadata=none;IEEE754Compatible=true")
    assert reply.body == b'{"value":"12.5000"}'
    full = service.odata("/products(1)/id", Accept=f"{JSON};odata.metadata=full;IEEE754Compatible=true").json
    assert full == {"@odata.context": f"{root(service)}$metadata#products(1)/id", "@odata.type": "#Int64", "value": "1"}


def test_references_are_urls(service: Service) -> None:
    one, many = (service.odata(f"/products(1)/{path}/$ref").json for path in ("category", "variants"))
    assert one == {"@odata.context": f"{root(service)}$metadata#$ref", "@odata.id": "categories(2)"}
    assert many == {
        "@odata.context": f"{root(service)}$metadata#Collection($ref)",
        "value": [{"@odata.id": "productVariants(10)"}, {"@odata.id": "productVariants(30)"}],
    }
    none = service.odata("/products(1)/category/$ref", Accept=f"{JSON};odata.metadata=none").json
    assert none == {"@odata.id": f"{root(service)}categories(2)"}
    page = service.odata("/products(1)/variants/$ref?$count=true&$top=1&$orderby=price%20desc&$filter=id%20gt%201").json
    assert (page["@odata.count"], page["value"]) == (2, [{"@odata.id": "productVariants(30)"}])


NULLS = ["/products(3)/category", "/products(3)/category/$ref", "/products(3)/description", "/products(3)/description/$value"]


@pytest.mark.parametrize("path", NULLS)
def test_null_is_no_content(service: Service, path: str) -> None:
    for method in ("GET", "HEAD"):
        reply = service.odata(path, method=method)
        assert (reply.status, reply.body, reply.headers["OData-Version"]) == (204, b"", "4.0")
        assert reply.headers["ETag"] and reply.headers["Content-Type"]
        assert service.odata(path, method=method, If_None_Match=reply.headers["ETag"]).status == 304
        is_row = "description" not in path  # of a property it is the row that exists
        assert service.odata(path, method=method, If_None_Match=" * ").status == (204 if is_row else 304)


PATHS = ["category", "category/$ref", "variants", "variants/$ref", "variants/$count", "variants?$top=1", "name", "name/$value"]


@pytest.mark.parametrize("path", PATHS)
def test_paths_behind_a_missing_row_are_a_404(service: Service, path: str) -> None:
    for row in ("products(99)", "products(code='none')", "products(9)"):
        for headers in ({}, {"If_None_Match": "*"}, {"If_None_Match": 'W/"x"'}, {"method": "HEAD"}):
            assert service.odata(f"/{row}/{path}", **headers).status == 404
    assert service.odata("/products(99)/variants").json["error"]["message"] == "products has no row with this key"
    assert service.odata(f"/products(x)/{path}").json["error"]["target"] == "key"


@pytest.mark.parametrize("path", PATHS)
def test_a_tag_depends_on_every_entity_that_is_read(service: Service, path: str) -> None:
    path = f"/products(code='A')/{path}"
    first = service.odata(path)
    assert first.status == 200
    head = service.odata(path, method="HEAD")
    assert (head.status, head.body, head.headers["ETag"]) == (200, b"", first.headers["ETag"])
    assert head.headers["Content-Type"] == first.headers["Content-Type"]
    for tag in (first.headers["ETag"], "*"):
        assert service.odata(path, If_None_Match=tag).status == 304
    service.operator.write("demo", "update data.products set price = price + 1 where company_id = 'demo' and id = 3")
    changed = service.odata(path, If_None_Match=first.headers["ETag"])
    assert (changed.status, changed.body) == (200, first.body)


def test_a_tag_changes_with_the_row_at_the_end(service: Service) -> None:
    tag = service.odata("/products(1)/category").headers["ETag"]
    service.operator.write("demo", "update data.categories set name = name || '!' where company_id = 'demo' and id = 2")
    assert service.odata("/products(1)/category", If_None_Match=tag).status == 200


@pytest.mark.parametrize(
    ("path", "option"),
    [
        ("/products(1)/category", "$filter=true"),
        ("/products(1)/category", "$top=1"),
        ("/products(1)/category/$ref", "$select=code"),
        ("/products(1)/variants/$ref", "$select=code"),
        ("/products(1)/variants/$ref", "$expand=product"),
        ("/products(1)/variants/$count", "$top=1"),
        ("/products(1)/name", "$select=name"),
        ("/products(1)/name/$value", "$filter=true"),
        ("/products(1)/variants", "$filter=category/code%20eq%20'T'"),
    ],
)
def test_a_path_refuses_options_of_other_paths(service: Service, path: str, option: str) -> None:
    reply = service.odata(f"{path}?{option}")
    assert (reply.status, reply.json["error"]["target"]) == (400, option.partition("=")[0])
    assert service.odata(f"{path}?$format=json").status == 200


def test_many_related_rows_stream(service: Service) -> None:
    service.operator.write(
        "demo",
        "insert into data.product_variants (company_id, id, code, product_id) select 'demo', g + 99, 'S' || g, 3 from generate_series(1, 1000) g",
    )
    reply = service.odata("/products(3)/variants?$count=true")
    assert reply.headers["Transfer-Encoding"] == "chunked"
    assert reply.json["@odata.count"] == len(reply.json["value"]) == 1000
    assert len(service.odata("/products(3)/variants/$ref").json["value"]) == 1000
    assert service.odata("/products(3)/variants", method="HEAD").status == 200
