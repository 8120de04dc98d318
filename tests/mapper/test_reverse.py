"""Reverse mapping: rows are written in the source's format; importing the result changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from app.database import connections
from app.database.catalog import Catalog
from app.errors import ServiceError
from app.mapper.document import SourceConverter
from app.mapper.language.parse import read
from app.mapper.language.tree import Mapper
from app.mapper.reverse.base import ReverseWriter
from app.mapper.reverse.open import open_writer
from tests.conftest import Operator
from tests.feed.conftest import Feed
from tests.mapper.conftest import Run, document
from tests.mapper.test_formats_agree import BASIS, CATALOGUE, GOODS, LINES, SHOP, send

pytestmark = pytest.mark.slow

Companies = Callable[[], Feed]


@pytest.fixture(scope="module")
def companies(module_database_url: str) -> Iterator[Companies]:
    numbers = iter(range(1, 1000))
    with psycopg.connect(module_database_url, autocommit=True) as connection:
        with connections.connect(module_database_url) as reader:
            catalog = connections.read_catalog(reader)
        operator = Operator(connection)
        yield lambda: Feed(module_database_url, catalog, operator.company(f"c{next(numbers)}"), operator)


def writer(text: str, entity: str, catalog: Catalog) -> ReverseWriter:
    mapper = read(text, catalog)
    assert isinstance(mapper, Mapper)
    return open_writer(mapper, entity)


def written(text: str, entity: str, catalog: Catalog, records: list[dict[str, Any]], batch: int = 2) -> bytes:
    """The source document that a reverse mapping writes."""
    return write_document(writer(text, entity, catalog), records, batch)


def write_document(writer: ReverseWriter, records: list[dict[str, Any]], batch: int) -> bytes:
    parts = (records[at : at + batch] for at in range(0, len(records), batch))
    return writer.begin() + b"".join(writer.write(part) for part in parts) + writer.end()


def records_of(feed: Feed, name: str, parent: Any = None) -> list[dict[str, Any]]:
    """The stored rows of an entity as records of an import document."""
    entity = feed.catalog[name]
    names, lookups = [], {}
    for field in entity.fields.values():
        if field.reference and field.reference != entity.parent_navigation:
            target = entity.navigations[field.reference].target
            names.append(f"""'{field.reference}', (select 'code:' || t.code from api."{target}" t where t.id = r."{field.name}")""")
        elif not field.reference and field.name not in ("updatedAt",):
            names.append(f"""'{field.name}', r."{field.name}\"""")
    where = ""
    if parent is not None:
        own = next(f.name for f in entity.fields.values() if f.reference == entity.parent_navigation)
        where = f'where r."{own}" = {parent}'
    rows = feed.ask(f'select json_build_object({", ".join(names)})::text from api."{name}" r {where} order by r.id')
    records = []
    for (text,) in rows:
        record = json.loads(text, parse_float=str)
        key = record.pop("id")
        for child in entity.children:
            record[child.name] = records_of(feed, child.target, key)
        records.append(record | lookups)
    return records


REBUILT = """type xml
@language = 'de'
@namespace[g] = "http://base.google.com/ns/1.0"
categories = '//group' { code = '@no'  name = '.'  parent[code] = '@in' }
products = '/rss/g:channel/item' {
    id[code] = 'g:id'
    name = 'title[@lang="en"]'
    description = concat("About: ", 'about')
    price = number('price') / 1.2
    active = 'state' != "gone"
    category[code] = 'path/node/@no'
    unit[code] = 'unit'
    variants = 'sizes/size[@kind="v"]' { code = '@code'  name = '.'  price = replace('@price', ",", ".") }
}
"""
FLAT = """type csv
@delimiter = ';'  @language = 'de'  @encoding = 'windows-1252'
invoices = 'row' {
    code = concat("I", 'number')
    invoiceDate = date('day', "%d.%m.%Y")
    customer[email] = lower('who')
    status = "posted"
    currency = default('money', "GBP")
    items = '.' { product[code] = 'what'  description = 'text'  quantity = 'many' * 2  price = 'price' }
}
"""
TREE = """type json
@language = 'fr'
products = '$.data["all products"]' {
    code = 'sku'
    name = concat('a', " / ", 'b')
    price = '$.prices.net'
    active = if('state' = 1, true, false)
    category[code] = 'in.group'
    variants = 'v' { code = '$.c'  name = 'n'  price = number('p', "de") }
}
"""
PLAIN = "type json products = '$.products[*]' { code = 'code' name = 'name' price = 'price' active = 'active' category[code] = 'cat' variants = 'v[*]' { code = 'c' name = 'n' price = 'p' } }"


@pytest.mark.parametrize(("text", "entity"), [
    *((CATALOGUE, entity) for entity in ("units", "categories", "products", "customers", "invoices")),
    (LINES, "invoices"), (FLAT, "invoices"), (REBUILT, "products"), (REBUILT, "categories"), (TREE, "products"), (PLAIN, "products"),
])  # fmt: skip
def test_importing_an_export_changes_nothing(companies: Companies, text: str, entity: str) -> None:
    feed = companies()
    for record in GOODS["products"]:
        record["description"] = f"About: {record['name']}"
        record["name"] = record["name"] if " / " in record["name"] else f"{record['name']} / x"
    send(feed, json.dumps(BASIS | GOODS).encode(), None)
    records = records_of(feed, entity)
    if text is FLAT:
        for record in records:
            record["customer"] = record["customer"] and "email:m@example.com"
    before, log = feed.stored(), feed.log()
    source = written(text, entity, feed.catalog, records)
    unchanged = send(feed, source, text)
    assert unchanged[entity] == {"unchanged": len(records)}, source.decode()
    assert all(set(counts) == {"unchanged"} for counts in unchanged.values())
    assert (feed.stored(), feed.log()) == (before, log)


def test_lookups_are_written_to_json_as_such(companies: Companies) -> None:
    feed = companies()
    send(feed, json.dumps(BASIS | GOODS).encode(), None)
    source = json.loads(written(SHOP, "invoices", feed.catalog, records_of(feed, "invoices")))
    assert source["invoices"][0]["customer"] == "code:C1"
    assert source["invoices"][0]["items"][0]["product"] == "code:P1"


# mapper, entity, records, the source
WRITTEN: list[tuple[str, str, list[dict[str, Any]], str]] = [
    ("type csv units = 'row' { code = 'c' name = 'n' symbol = 's' }", "units", [{"code": "1", "name": 'a "b",\nc', "symbol": None}], 'c,n,s\r\n1,"a ""b"",\nc",\r\n'),
    ("type csv units = 'row' { code = 'c' name = 'n' symbol = 's' }", "units", [{"code": "1", "symbol": "=1+1"}], "c,s\r\n1,=1+1\r\n"),
    ("type csv units = 'row' { code = 'c' name = 'n' }", "units", [], "c,n\r\n"),
    ("type csv @quote = \"'\" units = 'row' { code = 'a,b' }", "units", [], "'a,b'\r\n"),
    ("type csv @header = 'false' @delimiter = '|' units = 'row' { code = '3' name = '1' }", "units", [{"code": "1", "name": "a"}], "a||1\r\n"),
    ("type csv products = 'row' { id[code] = 'c' price = 'p' active = 'a' }", "products", [{"code": "1", "price": "2.5500", "active": True}], "c,p,a\r\n1,2.5500,true\r\n"),
    ("type csv products = 'row' { id = 'c' price = 'p' }", "products", [{"id": 12, "price": None}], "c,p\r\n12,\r\n"),
    ("type csv @language = 'de' @delimiter = ';' orders = 'row' { code = 'c' orderDate = 'd' total = 't' }", "orders", [{"code": "1", "orderDate": "2026-11-02", "total": "1234.50"}], "c;d;t\r\n1;02.11.2026;1234,5\r\n"),
    *(
        (f"type csv @language = '{tag}' @delimiter = ';' orders = 'row' {{ code = 'c' total = 't' }}", "orders", [{"code": "1", "total": total}], f"c;t\r\n1;{shown}\r\n")
        for tag, total, shown in (
            ("de", "1e38", "1" + "0" * 38), ("de", f"0.{'1' * 40}", f"0,{'1' * 40}"), ("fa", "-1.50", "-1٫5"), ("de", "1E+2", "100"), ("de", "0.00", "0"),
        )
    ),
    ("type csv @delimiter = ';' orders = 'row' { code = 'c' orderDate = date('d', \"%m/%d/%y\") total = number('t', \"de\") * 2 }", "orders", [{"code": "1", "orderDate": "2026-11-02", "total": "3"}], "c;d;t\r\n1;11/02/26;1,5\r\n"),
    ("type csv products = 'row' { code = 'c' name = concat('a', 'b', \"-\", 'd') }", "products", [{"code": "1", "name": "x-y"}], "c,a,b,d\r\n1,x,,y\r\n"),
    ("type csv products = 'row' { code = 'c' active = if('k' = \"Y\" and not 'o', true, false) }", "products", [{"code": "1", "active": True}, {"code": "2", "active": False}], "c,k,o\r\n1,Y,false\r\n2,,\r\n"),
    ("type json units = '$.a.b[*]' { code = 'c' name = 'x.n' symbol = 'x.s' }", "units", [{"code": "1", "name": "ä", "symbol": None}], '{"a":{"b":[\n{"c":"1","x":{"n":"ä","s":null}}\n]}}\n'),
    ("type json units = '$[*]' { code = '@' }", "units", [{"code": "1"}, {"code": "2"}, {"code": "3"}], '[\n"1",\n"2",\n"3"\n]\n'),
    ("type json units = '$.a' { code = 'c' }", "units", [], '{"a":[\n]}\n'),
    ("type json products = '$' { code = 'c' price = 'p' active = 'a' }", "products", [{"code": "1", "price": "1.50", "active": True}], '[\n{"c":"1","p":1.50,"a":true}\n]\n'),
    ("type json units = '$.a[?@.k == \"u\"]' { code = 'c' symbol = 'k' }", "units", [{"code": "1", "symbol": "u"}], '{"a":[\n{"c":"1","k":"u"}\n]}\n'),
    ("type xml units = '//u' { code = 'c' }", "units", [{"code": "<1>"}], '<?xml version="1.0" encoding="UTF-8"?>\n<units>\n<u><c>&lt;1&gt;</c></u>\n</units>\n'),
    ("type xml units = '/a/b/u' { code = '@c' name = '.' symbol = 'x/y/@s' }", "units", [{"code": "1", "name": None, "symbol": None}], '<?xml version="1.0" encoding="UTF-8"?>\n<a><b>\n<u c="1"><x><y s=""/></x></u>\n</b></a>\n'),
    ("type xml units = '/a/u' { code = 'p[@k=\"c\"]/v' name = 'p[k=''n'']/v' }", "units", [{"code": "1", "name": "x"}], '<?xml version="1.0" encoding="UTF-8"?>\n<a>\n<u><p k="c"><v>1</v></p><p><k>n</k><v>x</v></p></u>\n</a>\n'),
    ("type xml units = '//u' { code = 'c' name = 'n' symbol = 'n/text()' }", "units", [{"code": "1", "name": "x", "symbol": "x"}], '<?xml version="1.0" encoding="UTF-8"?>\n<units>\n<u><c>1</c><n>x</n></u>\n</units>\n'),
    # arithmetic over paths that are known: by a default, or by another field
    ("type csv products = 'row' { code = 'c' price = 'a' / default('b', 1) }", "products", [{"code": "1", "price": "2.50"}, {"code": "2", "price": None}], "c,a,b\r\n1,2.50,\r\n2,,\r\n"),
    ("type xml products = '//p' { code = 'c' price = 'Price/PriceAmount' / default('Price/BaseQuantity', 1) }", "products", [{"code": "1", "price": "2.5"}], '<?xml version="1.0" encoding="UTF-8"?>\n<products>\n<p><c>1</c><Price><PriceAmount>2.5</PriceAmount></Price></p>\n</products>\n'),
    ("type json orderItems = '$.i' { quantity = 'q' price = 'p' description = if('q' > 'p', \"many\", \"few\") }", "orderItems",
     [{"quantity": "10", "price": "9", "description": "many"}, {"quantity": "9", "price": "10.5", "description": "few"}],
     '{"i":[\n{"q":10,"p":9},\n{"q":9,"p":10.5}\n]}\n'),
    ("type json products = '$.p' { code = 'c' price = default('a', 2) * 'b' }", "products", [{"code": "1", "price": "3"}], '{"p":[\n{"c":"1","b":1.5}\n]}\n'),
    ("type csv orders = 'row' { code = 'c' orderDate = 'd' total = 'net' * 'code2' note = 'code2' }", "orders", [{"code": "1", "orderDate": "2026-11-02", "total": "10", "note": "4"}], "c,d,net,code2\r\n1,2026-11-02,2.5,4\r\n"),
    ("type csv @delimiter = ';' @language = 'de' orders = 'row' { code = 'c' total = 'net' / number('q') note = 'q' }", "orders", [{"code": "1", "total": "2.5", "note": "1,5"}], "c;net;q\r\n1;3,75;1,5\r\n"),
    ("type csv units = 'row' { code = 'c' name = concat('c', \"-\", 'r') }", "units", [{"code": "A-B", "name": "A-B-C"}], "c,r\r\nA-B,C\r\n"),
    ("type csv @skip = '2' @encoding = 'latin1' units = 'row' { @operation = 'o' code = 'c' name = 'n' }", "units", [{"code": "1", "name": "x"}], "\r\n\r\nc,n\r\n1,x\r\n"),
    ("type csv orders = 'row' { code = 'c' orderDate = date('d', \"%d.%m.%Y %H%z\") }", "orders", [{"code": "1", "orderDate": "2026-02-03"}], "c,d\r\n1,03.02.2026 00+0000\r\n"),
    ("type csv orders = 'row' { code = 'c' orderDate = date('d', \"%d.%m.%Y %%\") }", "orders", [{"code": "1", "orderDate": "0001-02-03"}], "c,d\r\n1,03.02.0001 %\r\n"),
    ("type csv categories = 'row' { code = 'k' } products = 'row' { code = 'c' category[code] = 'k' }", "products", [{"code": "1", "category": "code:a"}], "c,k\r\n1,a\r\n"),
    ("type xml products = '/a/p' { code = 'c' variants = 'v/w' { code = '.' } }", "products", [{"code": "1", "variants": []}, {"code": "2"}], '<?xml version="1.0" encoding="UTF-8"?>\n<a>\n<p><c>1</c><v/></p>\n<p><c>2</c></p>\n</a>\n'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "entity", "records", "expected"), WRITTEN, ids=range(len(WRITTEN)))
def test_the_written_source(
    catalog: Catalog, run: Run, text: str, entity: str, records: list[dict[str, Any]], expected: str
) -> None:
    source = written(text, entity, catalog, records)
    assert source.decode() == expected
    assert len(run(text, source)[entity]) == len(records)
    assert written(text, entity, catalog, records, batch=500) == source


def test_a_byte_order_mark_is_written_once(catalog: Catalog, run: Run) -> None:
    text = "type csv @encoding = 'utf-16' units = 'row' { code = 'c' }"
    source = written(text, "units", catalog, [{"code": str(n)} for n in range(4)], batch=2)
    assert source.decode("utf-16") == "c\r\n0\r\n1\r\n2\r\n3\r\n"
    assert [record["code"] for record in run(text, source)["units"]] == ["0", "1", "2", "3"]


# mapper, entity, record or None, part of the message
REFUSED: list[tuple[str, str, dict[str, Any] | None, str]] = [
    ("type csv units = 'row' { code = 'c' }", "products", None, "the mapper has no block for products, only for units"),
    ("type xml units = '//u' { code = 'a[1]' }", "units", None, "line 1, column 33: the path 'a[1]' can be read but not written"),
    ("type xml units = '//u' { code = 'normalize-space(a)' }", "units", None, "can be read but not written"),
    ("type xml units = '//u' { code = 'c' name = '.' }", "units", None, "line 1, column 44: the path '.' contains the path 'c': in reverse, paths must not overlap"),
    ("type xml units = '//u' { code = 'a/c' name = 'a' }", "units", None, "the path 'a' contains the path 'a/c'"),
    ("type xml products = '//p' { code = '@c' name = 'v' variants = 'v' { code = '@c' } }", "products", None, "the path 'v' contains the path 'v'"),
    ("type xml products = '//p' { code = '@c' variants = 'v' { code = '.' name = 'n' } }", "products", None, "the path '.' contains the path 'n'"),
    ("type xml units = '//u' { code = 'c' name = 'p[k=''x'']' }", "units", None, "the path \"p[k='x']\" contains the path \"p[k='x']\""),
    ("type json units = '$.u' { code = 'a' name = 'a.n' }", "units", None, "the path 'a' contains the path 'a.n'"),
    ("type json units = '$.u' { code = '@' name = 'n' }", "units", None, "the path '@' contains the path 'n'"),
    ("type xml units = '//u' { code = 'g:a' }", "units", None, "can be read but not written"),
    ("type xml units = '/g:a/u' { code = 'a' }", "units", None, "a prefix of this path is not declared"),
    ("type json units = '$.u' { code = '$..c' }", "units", None, "can be read but not written"),
    ("type csv units = 'row' { @operation = 'update' @where = 'w' name = 'n' }", "units", None, "the block units has @where, which cannot be run in reverse"),
    ("type csv products = 'row' { code = 'c' variants = '.' { code = 'v' } }", "products", {"code": "1"}, "products: expected variants in each record"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "entity", "record", "message"), REFUSED, ids=range(len(REFUSED)))
def test_a_mapper_that_cannot_be_run_in_reverse_is_refused(
    catalog: Catalog, text: str, entity: str, record: dict[str, Any] | None, message: str
) -> None:
    with pytest.raises(ServiceError) as refused:
        made = writer(text, entity, catalog)
        assert record is not None, "the mapper was expected to be unwritable"
        made.begin()
        made.write([record])
    assert (refused.value.code, refused.value.status) == ("invalid_mapper", 400)
    assert message in refused.value.message


UNITS = "type {} units = '{}' {{ {} }}"
# what comes back differently, or not at all: mapper, entity, record, the field, part of the message
LOST: list[tuple[str, str, dict[str, Any], str | None, str]] = [
    # expressions that cannot be solved
    *(
        (f"type {format} products = '{path}' {{ code = 'c' price = {expression} }}", "products", {"code": "1", "price": "2.50"},
         "price", "products, code 1: price '2.50' cannot be written: the mapper would " + lost)
        for format, path, lost in (("csv", "row", "read it back as null"), ("xml", "//p", "leave it out"), ("json", "$.p", "leave it out"))
        for expression in ("'a' / 'b'", "'a' * 'b'", "'a' + 'b' - 1", "'a' / 'a'", "number('a') / number('b')")
    ),
    *(
        (f"type {format} products = '{path}' {{ code = 'c' price = 'a' / 'c' }}", "products", {"code": "0", "price": "2"}, "price", reason)
        for format, path, reason in (("csv", "row", "division by zero"), ("xml", "//p", "division by zero"), ("json", "$.p", "division by zero"))
    ),
    ("type csv units = 'row' { code = 'c' name = if('c' = \"x\", 'n') }", "units", {"code": "1", "name": "a"}, "name", "name 'a' cannot be written: the mapper would leave it out"),
    ("type csv units = 'row' { code = 'c' name = concat('n', 'n') }", "units", {"code": "1", "name": "a"}, "name", "units, code 1: name 'a' cannot be written"),
    ("type csv units = 'row' { code = 'c' name = concat(\"A-\", 'n') }", "units", {"code": "1", "name": "b"}, "name", "the mapper would read it back as 'A-b'"),
    ("type csv units = 'row' { code = upper('c') }", "units", {"code": "a"}, "code", "units, code a: code 'a' cannot be written: the mapper would read it back as 'A'"),
    ("type csv units = 'row' { code = 'c' name = 'c' }", "units", {"code": "a", "name": "b"}, "name", "name 'b' cannot be written: the mapper would read it back as 'a'"),
    ("type csv orders = 'row' { code = 'c' orderDate = date('d', \"%d.%m.%y\") }", "orders", {"code": "1", "orderDate": "1926-11-20"}, "orderDate", "orderDate '1926-11-20' cannot be written: the mapper would read it back as '2026-11-20'"),
    ("type csv products = 'row' { code = 'c' price = 'n' name = 'n' }", "products", {"code": "1", "price": "1.5", "name": "x"}, "name", "name 'x' cannot be written: the mapper would read it back as '1.5'"),
    # constants and defaults
    ("type csv orders = 'row' { code = 'c' currency = \"EUR\" }", "orders", {"code": "1", "currency": "GBP"}, "currency", "orders, code 1: currency 'GBP' cannot be written: the mapper would read it back as 'EUR'"),
    ("type json orders = '$.o' { code = 'c' currency = \"EUR\" }", "orders", {"code": "1", "currency": "USD"}, "currency", "currency 'USD' cannot be written: the mapper would read it back as 'EUR'"),
    ("type csv products = 'row' { code = 'c' price = default('p', 1) }", "products", {"code": "1", "price": None}, "price", "price null cannot be written: the mapper would read it back as '1'"),
    ("type csv units = 'row' { code = 'c' symbol = \"s\" }", "units", {"code": "1", "symbol": None}, "symbol", "symbol null cannot be written: the mapper would read it back as 's'"),
    ("type csv units = 'row' { code = 'c' symbol = null }", "units", {"code": "1", "symbol": "s"}, "symbol", "symbol 's' cannot be written: the mapper would read it back as null"),
    # fields that the export leaves out, and that the mapper sets
    *(
        (f"type {format} orders = '{path}' {{ code = 'c' currency = {value} note = 'n' }}", "orders", {"code": "1", "note": "x"}, "currency", "orders, code 1: currency absent cannot be written: the mapper would read it back as 'EUR'")
        for format, path in (("csv", "row"), ("xml", "//o"), ("json", "$.o"))
        for value in ("\"EUR\"", "default('k', \"EUR\")", "if('k' = \"x\", 'k', \"EUR\")")
    ),
    ("type csv products = 'row' { code = 'c' active = 'a' != \"no\" }", "products", {"code": "1"}, "active", "active absent cannot be written: the mapper would read it back as True"),
    ("type json products = '$.p' { code = 'c' variants = 'v' { code = 'k' price = default('p', 1) } }", "products", {"code": "1", "variants": [{"code": "x"}]}, "variants[0].price", "variants[0].price absent cannot be written: the mapper would read it back as '1'"),
    # rows of the mapper's other blocks
    *(
        (f"type {format} categories = '{path}' {{ code = 'k' {name} }} products = '{path}' {{ code = 'c' category[code] = 'k' {name} }}", "products", {"code": "1", "category": "code:a", "name": "x"}, None, "products: the mapper would read categories from what it writes, and set name")
        for format, path in (("csv", "row"), ("xml", "//p"), ("json", "$.p"))
        for name in ("name = 'n'", "name = default('n', \"none\")")
    ),
    # texts that the format does not hold
    ("type csv units = 'row' { code = 'c' name = 'n' }", "units", {"code": "1", "name": ""}, "name", "name '' cannot be written: the mapper would read it back as null"),
    ("type xml units = '//u' { code = 'c' name = 'n' }", "units", {"code": "1", "name": ""}, "name", "name '' cannot be written: the mapper would read it back as null"),
    ("type xml units = '//u' { code = 'c' name = '@n' }", "units", {"code": "1", "name": ""}, "name", "name '' cannot be written: the mapper would read it back as null"),
    ("type csv @encoding = 'latin-1' units = 'row' { code = 'c' name = 'n' }", "units", {"code": "1", "name": "€"}, "name", "units, code 1: name '€' cannot be written: the character '€' does not exist in latin-1"),
    ("type csv @encoding = 'latin-1' invoices = 'row' { code = 'c' items = '.' { description = 'd' } }", "invoices", {"code": "1", "items": [{"description": "€"}]}, "items.description", "the character '€' does not exist in latin-1"),
    ("type xml units = '//u' { code = 'c' name = 'n' }", "units", {"code": "1", "name": "\x01"}, "name", "units, code 1: name '\\x01' cannot be written: it contains a character that XML does not allow"),
    ("type csv products = 'row' { code = 'c' price = 'p' }", "products", {"code": "1", "price": "Infinity"}, "price", "price 'Infinity' cannot be written: no import accepts it"),
    # identities and references
    ("type csv products = 'row' { code = 'c' category[id] = 'g' }", "products", {"code": "a", "category": "code:x"}, "category", "products, code a: category 'code:x' cannot be written: expected a lookup id:..."),
    ("type csv products = 'row' { id[barcode] = 'c' price = 'p' }", "products", {"code": "a", "price": 1}, "id", "products, code a: id null cannot be written: expected a barcode, which the mapper writes"),
    ("type json products = '$.i' { id[code] = 'c' price = 'p' }", "products", {"id": 7, "price": 1}, "id", "products, id 7: id 7 cannot be written: expected a code"),
    # operations
    *(
        (f"type {format} units = '{path}' {{ code = 'c' @operation = {value} }}", "units", {"code": "1"}, "@operation", f"units, code 1: @operation absent cannot be written: the mapper would read it back as '{read}'")
        for format, path in (("csv", "row"), ("xml", "//u"), ("json", "$.u[*]"))
        for value, read in (('"delete"', "delete"), ('"create"', "create"), ("default('op', \"delete\")", "delete"), ("if('c' = \"1\", \"delete\", \"upsert\")", "delete"))
    ),
    ("type json products = '$.p' { code = 'c' variants = 'v' { code = 'k' @operation = \"delete\" } }", "products", {"code": "1", "variants": [{"code": "x"}]}, "variants[0].@operation", "the mapper would read it back as 'delete'"),
    # children and whole records
    ("type json products = '$.p' { code = 'c' variants = 'v' { code = 'k' price = 'a' / 'b' } }", "products", {"code": "1", "variants": [{"code": "x", "price": None}, {"code": "y", "price": 2}]}, "variants[1].price", "products, code 1: variants[1].price 2 cannot be written: the mapper would leave it out"),
    ("type csv invoices = 'row' { code = 'c' items = '.' { description = 'd' } }", "invoices", {"code": "1", "items": [{"description": None}]}, "items", "a child with only empty cells cannot be written"),
    ("type csv invoices = 'row' { code = 'c' items = '.' { quantity = 2 description = 'd' } }", "invoices", {"code": "1", "items": [{"description": "a", "quantity": "2"}, {"description": "b", "quantity": "3"}]}, "items[1].quantity", "items[1].quantity '3' cannot be written: the mapper would read it back as '2'"),
    ("type json units = '$.a[?@.k == 1]' { code = 'c' }", "units", {"code": "1"}, None, "units, code 1: it does not match the filter of the mapper's block"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "entity", "record", "field", "message"), LOST, ids=range(len(LOST)))
def test_a_value_that_does_not_come_back_is_an_error_of_its_record(
    catalog: Catalog, text: str, entity: str, record: dict[str, Any], field: str | None, message: str
) -> None:
    with pytest.raises(ServiceError) as refused:
        written(text, entity, catalog, [record])
    assert (refused.value.code, refused.value.status, refused.value.target) == ("unwritable", 422, field)
    assert message in refused.value.message


@pytest.mark.parametrize("operation", ["'op'", '"upsert"', '"update"', "default('op', \"upsert\")"])
@pytest.mark.parametrize(("format", "path"), [("csv", "row"), ("xml", "/x/u"), ("json", "$.u[*]")])
def test_an_operation_that_keeps_the_row_is_written(companies: Companies, format: str, path: str, operation: str) -> None:
    feed = companies()
    feed.good(units=[{"code": "1", "name": "one"}])
    text = f"type {format} units = '{path}' {{ code = 'c' name = 'n' @operation = {operation} }}"
    body = written(text, "units", feed.catalog, [{"code": "1", "name": "one"}])
    assert send(feed, body, text) == {"units": {"unchanged": 1}}


def test_a_block_that_removes_all_others_needs_all_rows(catalog: Catalog) -> None:
    text = "type csv units = 'row' { @removeAll = \"true\" code = 'c' name = 'n' } categories = 'row' { id[code] = 'x' }"
    mapper = read(text, catalog)
    assert isinstance(mapper, Mapper)
    open_writer(mapper, "units")
    for entity, message in (("units", "the rows that the export leaves out"), ("categories", "all rows")):
        with pytest.raises(ServiceError, match=f"units: the mapper has @removeAll, .* would delete {message}") as refused:
            open_writer(mapper, entity, is_whole=False)
        assert refused.value.code == "unwritable"


def test_a_writer_tells_the_lookups_and_children_that_it_needs(catalog: Catalog) -> None:
    made = writer(FLAT, "invoices", catalog)
    assert (made.lookups, made.children) == ({"customer": "email", "items.product": "code"}, ("items",))
    assert (made.media_type, made.extension) == ("text/csv; charset=windows-1252", "csv")


def test_a_file_is_written_as_it_was_read(catalog: Catalog) -> None:
    source = b"invoice,date,customer,product,description,quantity,price\r\nA,2026-11-20,C1,P1,x,1,2.50\r\nA,2026-11-20,C1,P2,,2,3\r\nB,2026-11-21,,,,,\r\n"
    mapper = read(LINES, catalog)
    assert isinstance(mapper, Mapper)
    mapped = SourceConverter(mapper)
    read_in = document(mapped.feed(source) + b"".join(mapped.finish()))
    assert written(LINES, "invoices", catalog, read_in["invoices"]) == source
