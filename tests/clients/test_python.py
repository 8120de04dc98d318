"""Clients in Python read the demo company: python-odata makes its classes of $metadata, odatapy follows delta links."""

from __future__ import annotations

import requests
from odata import ODataService
from odatapy.client import ODataClient
from odatapy.client.auth import BasicAuth
from odatapy.client.transport import HttpxTransport

from tests.clients.conftest import Sql
from tests.service.serving import Service


def test_python_odata_reflects_and_reads(service: Service, sql: Sql) -> None:
    root, key = f"http://{service.host}:{service.port}/api/odata/demo/", service.key
    session = requests.Session()
    session.auth = ("api", key)
    client = ODataService(root, session=session, reflect_entities=True)
    products = client.entities["products"]
    found = list(client.query(products).filter(products.price > 100).order_by(products.code.asc()).limit(5))
    assert [{"code": row.code, "price": float(row.price)} for row in found] == sql(
        "code, price from data.products where price > 100 order by code limit 5"
    )
    assert {"products", "categories", "invoiceItems"} <= set(client.entities)
    expanded = list(client.query(products).filter(products.code == "A0007").expand(products.category))
    assert expanded[0].category.name == "Nails"


def test_odatapy_follows_delta_links(extended: Service) -> None:
    root, key = f"http://{extended.host}:{extended.port}/api/odata/demo/", extended.key
    extended.operator.write("demo", "insert into data.units (code, name) values ('d1', 'one'), ('d2', 'two')")
    client = ODataClient(root, HttpxTransport(auth=BasicAuth("api", key)))
    units = client.get_entity_set(client.entity_set_uri("units"), track_changes=True)
    ids = {each.get_value("code"): each.get_value("id") for each in units.entities}
    extended.operator.write(
        "demo", "update data.units set name = 'new' where code = 'd1'; delete from data.units where code = 'd2'"
    )
    first = client.get_delta(units.delta_link, max_page_size=1)
    assert ([each.get_value("name") for each in first.entities], first.deleted_entities) == (["new"], [])
    second = client.get_delta(first.next_link)
    assert [(each.id, each.reason) for each in second.deleted_entities] == [(f"units({ids['d2']})", "deleted")]
    extended.operator.write("demo", "delete from data.units where code = 'd1'")
    third = client.get_delta(second.delta_link)
    assert [each.id for each in third.deleted_entities] == [f"units({ids['d1']})"]
    older = ODataClient(root, client.transport, odata_version="4.0").get_delta(second.delta_link)
    assert older.deleted_entities == third.deleted_entities
