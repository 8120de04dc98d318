"""python-odata, a client that makes its classes of $metadata, reads the demo company."""

from __future__ import annotations

import requests
from odata import ODataService

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
