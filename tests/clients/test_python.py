"""python-odata, a client that makes its classes of $metadata, reads the service."""

from __future__ import annotations

from decimal import Decimal

import requests
from odata import ODataService

from tests.clients.conftest import rows
from tests.service.serving import Service


def test_python_odata_reflects_and_reads(service: Service) -> None:
    rows(service)
    session = requests.Session()
    session.auth = ("api", service.key)
    client = ODataService(f"http://{service.host}:{service.port}/api/odata/demo/", session=session, reflect_entities=True)
    products = client.entities["products"]
    found = list(client.query(products).filter(products.price > 1).order_by(products.code.asc()).limit(5))
    assert [(row.code, Decimal(str(row.price))) for row in found] == [("A", Decimal("12.5")), ("C", Decimal("2.5"))]
    assert {"products", "categories", "invoiceItems"} <= set(client.entities)
    expanded = list(client.query(products).filter(products.code == "A").expand(products.category))
    assert expanded[0].category.name == "Tools"
