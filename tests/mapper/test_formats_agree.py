"""The same content as JSON, XML and CSV becomes the same rows; importing one format after another changes nothing."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import psycopg
import pytest

from app.database import connections
from app.mapper.document import SourceConverter
from app.mapper.language.parse import read
from app.mapper.language.tree import Mapper
from tests.conftest import Operator
from tests.feed.conftest import Feed, counts

pytestmark = pytest.mark.slow

CATALOGUE = """type xml
units = '/catalog/unit' { code = '@code'  name = 'name'  symbol = 'symbol' }
categories = '/catalog/category' { code = '@code'  name = 'name'  parent[code] = 'parent' }
products = '/catalog/product' {
    id[code] = '@code'  name = 'name'  description = 'description'  price = 'price'  active = 'active'
    category[code] = 'category'  unit[code] = 'unit'
    variants = 'variants/line' { code = 'code'  name = 'name'  price = 'price' }
}
customers = '/catalog/customer' { code = '@code'  name = 'name'  email = 'email'  country = 'country' }
orders = '/catalog/order' {
    code = '@code'  customer[code] = 'customer'  orderDate = 'orderDate'  status = 'status'  currency = 'currency'  total = 'total'
    items = 'items/line' { product[code] = 'product'  description = 'description'  quantity = 'quantity'  price = 'price' }
}
invoices = '/catalog/invoice' {
    code = '@code'  customer[code] = 'customer'  order[code] = 'order'  invoiceDate = 'invoiceDate'  status = 'status'
    currency = 'currency'  total = 'total'
    items = 'items/line' { product[code] = 'product'  description = 'description'  quantity = 'quantity'  price = 'price' }
}
"""
LINES = """type csv
invoices = 'row' {
    code = 'invoice'  invoiceDate = 'date'  customer[code] = 'customer'  status = "posted"  currency = "GBP"
    items = '.' { product[code] = 'product'  description = 'description'  quantity = 'quantity'  price = 'price' }
}
"""
SHOP = """type json
products = '$.products' {
    id = 'id'  name = 'name'  price = 'price'  active = 'active'  description = 'description'  category = 'category'
    variants = 'variants' { code = 'code'  name = 'name'  price = 'price' }
}
invoices = '$.invoices[*]' {
    code = '$.code'  invoiceDate = '@.invoiceDate'  customer = 'customer'  status = 'status'  currency = 'currency'
    items = 'items[*]' { product = 'product'  description = 'description'  quantity = 'quantity'  price = 'price' }
}
"""
VOLATILE = {"id", "updatedAt"}

Companies = Callable[[], Feed]


@pytest.fixture(scope="module")
def companies(module_database_url: str) -> Iterator[Companies]:
    numbers = iter(range(1, 1000))
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        with connections.connect(module_database_url) as reader:
            catalog = connections.read_catalog(reader)
        operator = Operator(connection)
        yield lambda: Feed(module_database_url, catalog, operator.company(f"c{next(numbers)}"), operator)


def send(feed: Feed, source: bytes, mapper: str | None) -> dict[str, Any]:
    """Import a source through a mapper, without errors; return the counts by entity that are not zero."""
    mapped = None
    if mapper is not None:
        checked = read(mapper, feed.catalog)
        assert isinstance(checked, Mapper)
        mapped = SourceConverter(checked)
    importing = feed.begin(converter=mapped)
    for at in range(0, len(source), 1 << 20):
        importing.receive(source[at : at + (1 << 20)])
    report = importing.run()
    assert (report["state"], report["errors"]) == ("completed", [])
    return counts(report)


def content(feed: Feed) -> dict[str, list[dict[str, Any]]]:
    """All rows of the company, with references as codes, without ids and times."""
    found = {}
    for entity in feed.catalog.entities.values():
        names: dict[str, str] = {}
        joins = ""
        for field in entity.fields.values():
            if field.name in VOLATILE:
                continue
            if field.reference:
                navigation = entity.navigations[field.reference]
                key = "code" if "code" in feed.catalog[navigation.target].fields else None
                if key:
                    names[field.reference] = f'"{field.reference}".{key}'
                    joins += (
                        f' left join api."{navigation.target}" "{field.reference}" on "{field.reference}".id = r."{field.name}"'
                    )
            else:
                names[field.name] = f'r."{field.name}"'
        pairs = ", ".join(f"'{name}', {expression}" for name, expression in names.items())
        rows = feed.ask(f'select json_build_object({pairs})::text from api."{entity.name}" r{joins}')
        found[entity.name] = sorted((json.loads(row[0]) for row in rows), key=json.dumps)
    return found


def plain(value: Any) -> str:
    return str(value).removeprefix("code:") if not isinstance(value, bool) else str(value).lower()


def as_xml(document: dict[str, list[dict[str, Any]]]) -> bytes:
    """An import document as a supplier's XML."""
    tags = {"categories": "category"}
    out = ["<?xml version='1.0'?>\n<catalog>\n"]
    for entity, records in document.items():
        for record in records:
            tag, code = tags.get(entity, entity[:-1]), record.get("code") or record["id"].partition(":")[2]
            out.append(f"<{tag} code={quoteattr(code)}>")
            for name, value in record.items():
                if isinstance(value, list):
                    lines = (
                        "".join(f"<{k}>{escape('' if v is None else plain(v))}</{k}>" for k, v in item.items()) for item in value
                    )
                    out.append(f"<{name}>{''.join(f'<line>{line}</line>' for line in lines)}</{name}>")
                elif value is None:
                    out.append(f"<{name}/>")
                elif name not in ("id", "code"):
                    out.append(f"<{name}>{escape(plain(value))}</{name}>")
            out.append(f"</{tag}>\n")
    return "".join([*out, "</catalog>\n"]).encode()


def as_csv(invoices: list[dict[str, Any]], delimiter: str = ";") -> bytes:
    """The invoices with one row for each line."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerow(["invoice", "date", "customer", "product", "description", "quantity", "price"])
    for invoice in invoices:
        for item in invoice["items"] or [{}]:
            cells = [invoice["code"], invoice["invoiceDate"], invoice.get("customer")]
            writer.writerow(
                [
                    plain(c) if c is not None else ""
                    for c in [*cells, *(item.get(k) for k in ("product", "description", "quantity", "price"))]
                ]
            )
    return out.getvalue().encode("windows-1252")


BASIS: dict[str, list[dict[str, Any]]] = {
    "units": [{"code": "H87", "name": "piece", "symbol": "pc"}, {"code": "KGM", "name": "kilogram"}],
    "categories": [{"code": "1", "name": "Home & garden"}, {"code": "2", "name": "Lights <new>", "parent": "code:1"}],
    "customers": [{"code": "C1", "name": "Müller & Söhne", "email": "m@example.com", "country": "Germany"}],
}
GOODS: dict[str, list[dict[str, Any]]] = {
    "products": [
        {"id": "code:P1", "name": 'Lamp "5"', "price": 2.55, "active": True, "description": "line\nbreak; and, more", "category": "code:2",
         "variants": [{"code": "P1A", "name": "white", "price": 2.5}, {"code": "P1B", "name": None}]},
        {"id": "code:P2", "name": "Nut", "price": None, "active": False, "description": "", "category": "code:1"},
    ],
    "invoices": [
        {"code": "I1", "customer": "code:C1", "invoiceDate": "2026-11-20", "status": "posted", "currency": "GBP", "items": [
            {"product": "code:P1", "description": 'two "lamps"; white', "quantity": 2, "price": 2.55},
            {"product": "code:P1", "description": 'two "lamps"; white', "quantity": 2, "price": 2.55},
            {"product": "code:P2", "quantity": -1.5, "price": 0}]},
        {"code": "I2", "invoiceDate": "2026-11-21", "status": "posted", "currency": "GBP", "items": []},
    ],
}  # fmt: skip


def test_all_formats_give_the_same_rows(companies: Companies) -> None:
    for record in GOODS["products"]:
        record["description"] = record["description"] or None  # XML reads an empty element as null
    first = companies()
    send(first, json.dumps(BASIS | GOODS).encode(), None)
    for source, mapper, basis in [
        (as_xml(BASIS | GOODS), CATALOGUE, None),
        (json.dumps(GOODS).encode(), SHOP, BASIS),
        (as_csv(GOODS["invoices"]), LINES, BASIS | {"products": GOODS["products"]}),
    ]:
        other = companies()
        if basis:
            send(other, json.dumps(basis).encode(), None)
        send(other, source, mapper)
        assert content(other) == content(first), mapper
        before = first.log()
        unchanged = send(first, source, mapper)
        assert all(set(each) == {"unchanged"} for each in unchanged.values()), unchanged
        assert first.log() == before


def test_real_files_give_the_same_rows(companies: Companies, shared: Path, tmp_path: Path) -> None:
    maker = shared / "tools" / "make_feed.py"
    sources = {}
    for format in ("json", "xml", "csv"):
        path = tmp_path / format
        subprocess.run([sys.executable, maker, "--as", format, "-o", path], check=True)
        sources[format] = path.read_bytes()
    first, other = companies(), companies()
    created = send(first, sources["json"], None)
    assert send(other, sources["xml"], CATALOGUE) == created
    assert content(other) == content(first)
    for source, mapper in ((sources["xml"], CATALOGUE), (sources["csv"], LINES), (sources["json"], SHOP)):
        unchanged = send(first, source, mapper)
        assert all(set(each) == {"unchanged"} for each in unchanged.values()), unchanged
