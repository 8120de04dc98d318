"""Clients from npm read the demo company from node: generated TypeScript, SAP's SDK and CAP, the parsers of the OASIS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.clients.conftest import CLIENTS, Run, Sql
from tests.service.serving import Service

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def printed(text: str) -> Any:
    """The last line that a program printed, as JSON; loggers print before it."""
    return json.loads(text.rstrip().rpartition("\n")[2])


def test_metadata_is_valid_against_the_schemas_of_the_oasis(place: Path) -> None:
    schema = etree.XMLSchema(etree.parse(CLIENTS / "node_modules/odata-csdl/schemas/edmx.xsd"))
    assert schema.validate(etree.parse(place / "metadata.xml")), schema.error_log


def test_odata2ts_generates_compiles_and_reads(service: Service, run: Run, sql: Sql) -> None:
    run("odata2ts", "-s", "metadata.xml", "-o", "generated", "-m", "all", "-e", "ts", "-name", "bds")
    run("tsc", "-p", "tsconfig.json")
    root = f"http://{service.host}:{service.port}/api/odata/demo"
    read = printed(run("node", "out/read.js", root, service.key))
    assert read["page"]["@odata.count"] == sql("select count(*) from data.products where price > 1")
    assert read["page"]["value"] == sql("code, price from data.products where price > 1 order by price desc, id limit 2")
    assert [
        {"code": row["code"], "category": row["category"]["name"], "variants": [each["code"] for each in row["variants"]]}
        for row in read["expanded"]["value"]
    ] == sql("""
        p.code, c.name as category,
            array(select v.code from data.product_variants v where v.product_id = p.id order by v.id) as variants
        from data.products p join data.categories c on c.id = p.category_id where c.name like '%crew%' order by p.code""")
    assert read["any"]["value"] == sql(
        "code from data.products p where exists (select from data.product_variants where product_id = p.id and price >= 150)"
    )
    assert (read["one"]["id"], read["one"]["name"]) == (1, sql("select name from data.products where id = 1"))
    assert [row["code"] for row in read["related"]["value"]] == ["A0001-S", "A0001-M", "A0001-L", "A0001-XL"]


@pytest.fixture(scope="module")
def sap(place: Path, run: Run) -> None:
    """SAP's generated client and its callers, compiled."""
    (place / "services.json").write_text(json.dumps({"metadata.xml": {"directoryName": "metadata", "basePath": "/api/odata/demo"}}))
    run("generate-odata-client", "-i", "metadata.xml", "-o", "sap", "--optionsPerService", "services.json")
    run("tsc", "-p", "tsconfig.sap.json")


@pytest.mark.usefixtures("sap")
def test_sap_cloud_sdk_reads(service: Service, run: Run, sql: Sql) -> None:
    read = printed(run("node", "out/read_sap.js", f"http://{service.host}:{service.port}", service.key))
    assert [{**row, "price": float(row["price"])} for row in read["page"]] == sql(
        "code, price from data.products where price > 1 order by price desc, id limit 2"
    )
    assert [
        {"code": row["code"], "category": row["category"]["name"], "variants": len(row["variants"])} for row in read["expanded"]
    ] == sql("""
        p.code, c.name as category, (select count(*) from data.product_variants v where v.product_id = p.id) as variants
        from data.products p join data.categories c on c.id = p.category_id where p.name like '%professional%' order by p.code""")
    assert read["any"] == sql(
        "code from data.products p where exists (select from data.product_variants where product_id = p.id and price >= 150)"
    )
    assert (read["one"]["id"], read["count"]) == ("1", sql("select count(*) from data.products"))


@pytest.mark.usefixtures("sap")
def test_sap_cloud_sdk_nests_expansions_and_sends_a_batch(extended: Service, run: Run, sql: Sql) -> None:
    read = printed(run("node", "out/read_sap_extended.js", f"http://{extended.host}:{extended.port}", extended.key))
    for order in read["nested"]:
        for item in order["items"]:
            item["quantity"] = float(item["quantity"])
    assert read["nested"] == sql("""
        code, (select json_build_object('name', c.name) from data.customers c where c.id = o.customer_id) as customer,
            (select json_agg(json_build_object('quantity', i.quantity, 'product',
                    json_build_object('code', p.code, 'category', json_build_object('name', c.name))) order by i.id)
                from data.order_items i join data.products p on p.id = i.product_id join data.categories c on c.id = p.category_id
                where i.order_id = o.id) as items
        from data.orders o where id < 4 order by code""")
    assert [
        {"code": order["code"], "items": [[int(item["id"]), item["product"]["code"]] for item in order["items"]]}
        for order in read["restricted"]
    ] == sql("""
        code, coalesce((select json_agg(json_build_array(i.id, i.code)) from (
            select i.id, p.code from data.order_items i join data.products p on p.id = i.product_id
            where i.order_id = o.id and i.quantity > 5 and i.price < 150 order by i.price desc, i.id limit 2 offset 1) i), '[]') as items
        from data.orders o where id < 30 order by code""")
    first, second, third, last = read["parts"]  # the fifth request comes after one that fails
    assert [{**row, "price": float(row["price"])} for row in first["rows"]] == sql(
        "code, price from data.products order by price desc, id limit 3"
    )
    assert (second["rows"][0]["code"], second["rows"][0]["category"]["code"]) == ("A0007", "nails")
    assert third["rows"] == [{"code": "SO-00007", "items": sql("id::text from data.order_items where order_id = 7 order by id")}]
    assert last == {"status": 404, "rows": False}


def test_cap_reads_a_remote_service_whose_edmx_it_has_imported(extended: Service, place: Path, run: Run, sql: Sql) -> None:
    application = place / "cap"
    application.mkdir()
    (application / "package.json").write_text('{"name": "cap", "private": true}')
    (application / "bds.xml").write_bytes(extended.odata("/$metadata").body)
    run("cds", "import", "bds.xml", "--as", "cds", inside="cap")
    read = printed(run("node", "read_cap.js", f"http://{extended.host}:{extended.port}/api/odata/demo", extended.key))
    assert read["page"] == sql(
        "code, price from data.products where price > 100 and active order by price desc, id limit 5 offset 5"
    )
    assert read["one"] == {"code": "A0007", "category": {"name": "Nails", "parent": {"code": "fixings"}}}
    assert read["nested"] == sql("""
        code, (select json_build_object('name', c.name) from data.customers c where c.id = o.customer_id) as customer,
            (select json_agg(json_build_object('id', i.id, 'quantity', i.quantity, 'product',
                    json_build_object('code', p.code, 'category', json_build_object('name', c.name))) order by i.id)
                from data.order_items i join data.products p on p.id = i.product_id join data.categories c on c.id = p.category_id
                where i.order_id = o.id) as items
        from data.orders o where id in (7, 8) order by code""")
    assert read["path"] == sql("""
        i.id from data.order_items i join data.products p on p.id = i.product_id join data.categories c on c.id = p.category_id
        where c.name = 'Hammers' and i.quantity >= 11 order by i.id""")
    assert read["exists"] == sql("""
        code from data.orders o where exists (select from data.order_items where order_id = o.id and quantity > 10 and price > 150)
        order by code""")
    assert read["dates"] == sql("code from data.orders where order_date between '2025-06-01' and '2025-06-10' order by code")
    assert read["long"] == sql("code from data.products order by code limit 150")
    assert read["count"] == sql("select count(*) from data.products")


def test_the_parsers_of_the_oasis_understand_the_metadata(service: Service, run: Run) -> None:
    understood = json.loads(run("node", "parse.js", "metadata.xml"))
    product = understood["csdl"]["bds"]["product"]
    assert product["$Key"] == ["id"]
    assert product["price"] | {"@Core.Description": ""} == {
        "$Type": "Edm.Decimal", "$Nullable": True, "$Precision": 19, "$Scale": 4, "@Core.Description": "",
    }  # fmt: skip
    assert product["variants"]["$Collection"] is True
    assert {"/products", "/products({id})", "/products({id})/variants"} <= set(understood["paths"])
    assert set(understood["paths"]["/products"]) & {"get", "post", "patch", "delete"} == {"get"}
    assert understood["messages"] == []
    ours = service.odata("/$metadata", Accept="application/json").json
    assert {name.replace(".xml", ".json"): each for name, each in understood["csdl"].pop("$Reference").items()} == ours.pop(
        "$Reference"
    )
    assert understood["csdl"] == ours
