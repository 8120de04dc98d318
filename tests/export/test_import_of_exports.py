"""Files as they were exported are imports: nothing changes, and what was edited in the file is what changes."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from openpyxl import Workbook, load_workbook

from app import formats
from app.errors import ServiceError
from app.export import to_excel
from tests.export.conftest import TEXTS, Shop, allow_all
from tests.export.exported import send
from tests.export.test_round_trip import ENTITIES
from tests.feed.conftest import Feed, counts

pytestmark = pytest.mark.slow

FORMATS = tuple(each.name for each in formats.READABLE)


def table(rows: list[list[Any]], format: str) -> bytes:
    """Rows as CSV or as a workbook."""
    if format == "csv":
        out = io.StringIO(newline="")
        csv.writer(out).writerows(rows)
        return out.getvalue().encode()
    book, data = Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)  # type: ignore[union-attr]
    book.save(data)
    return data.getvalue()


@pytest.fixture(scope="module", autouse=True)
def _more(shop: Shop) -> None:
    """Empty texts beside nulls, in a reference's code too."""
    shop.feed.good(
        units=[{"code": "=U", "name": "", "symbol": None}, {"code": "'U", "name": "'", "symbol": ""}],
        categories=[{"code": "@c", "name": "null"}, {"code": "'+", "name": "-", "parent": "code:@c"}],
        products=[
            {"code": "Q", "name": "q", "unit": "code:'U", "category": "code:@c"},
            {"code": "007", "name": "1e5", "barcode": "0042"},
        ],
        customers=[{"code": "C2", "name": "b", "email": None, "phone": "+49 30", "city": "", "active": False}],
        orders=[
            {"code": "-O", "orderDate": "2026-02-28", "note": "'", "items": [
                {"product": "code:Q", "quantity": "-1.5", "description": "", "price": 0}, {"quantity": 1000000}]},
        ],
    )  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("entity", ENTITIES)
def test_importing_an_export_changes_nothing(shop: Shop, entity: str, format: str) -> None:
    before = shop.feed.stored(), shop.feed.log()
    report = send(shop.feed, entity, shop.good(entity, format))
    assert (report["state"], report["errors"]) == ("completed", [])
    changes = counts(report)
    assert all(set(each) == {"unchanged"} for each in changes.values()), changes
    assert changes[entity]["unchanged"] == len(before[0][entity])
    assert (shop.feed.stored(), shop.feed.log()) == before


@pytest.mark.parametrize("chunk", [1, 7])
def test_a_file_may_arrive_in_any_pieces(shop: Shop, chunk: int) -> None:
    body = shop.good("products", "csv", filter="not startswith(name,'xxx')")
    assert set(counts(send(shop.feed, "products", body, chunk))["products"]) == {"unchanged"}


@pytest.mark.parametrize("format", FORMATS)
def test_every_text_that_the_format_holds_comes_back_in_another_company(shop: Shop, format: str) -> None:
    company = shop.service.operator.company(f"copy-{format}")
    other = Feed(shop.feed.url, shop.feed.catalog, company, shop.feed.operator)
    other.good(products=[{"code": f"P{number}", "name": "old", "description": "old"} for number in range(len(TEXTS))])
    body = shop.good("products", format, select="code,name,description", filter="startswith(code,'P')", orderby="id")
    assert set(counts(send(other, "products", body))["products"]) <= {"updated", "unchanged"}
    lossy = (
        ()
        if format in ("csv", "jsonl")
        else [text for text in TEXTS if any((c < " " and c not in "\t\n\r") or c in "\ufffe\uffff" for c in text)]
    )
    expected = ["old" if text in lossy else text for text in TEXTS]
    assert sorted(other.rows("products", "code", "name", "description")) == sorted(
        (f"P{number}", text, text) for number, text in enumerate(expected)
    )


@pytest.mark.parametrize("format", FORMATS)
def test_numbers_and_dates_that_no_import_accepts_are_left_alone(shop: Shop, format: str) -> None:
    write = shop.service.operator.write
    allow_all(shop.service.operator, "orders")
    write("demo", "update data.orders set order_date = '-infinity', total = 'NaN' where code = 'O2'")
    try:
        assert set(counts(send(shop.feed, "orders", shop.good("orders", format)))["orders"]) == {"unchanged"}
    finally:
        write("demo", "update data.orders set order_date = '1899-12-31', total = null where code = 'O2'")


@pytest.mark.parametrize(
    ("date", "total"),
    [("20266-05-01", "1"), ("2026-05-01 BC", "1"), ("Infinity", "1"), ("2026-05-01", "nan"), ("2026-05-01", "+inf")],
)
def test_what_no_export_writes_is_an_error_and_not_left_out(shop: Shop, date: str, total: str) -> None:
    report = send(shop.feed, "orders", f"code,orderDate,total\nO2,{date},{total}\n".encode())
    assert report["state"] == "failed" and "invalid_value" in {each["code"] for each in report["errors"]}


def test_several_sheets_are_one_collection(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_excel, "ROWS", 10)
    body = shop.good("products", "excel")
    assert len(load_workbook(io.BytesIO(body)).sheetnames) > 3
    count = shop.feed.ask("select count(*) from api.products")[0][0]
    assert counts(send(shop.feed, "products", body))["products"] == {"unchanged": count}


def test_expanded_collections_of_xml_are_read_too(shop: Shop) -> None:
    changes = counts(send(shop.feed, "products", shop.good("products", "xml", expand="category,variants")))
    assert changes.keys() == {"categories", "products", "productVariants"}
    assert all(set(each) == {"unchanged"} for each in changes.values())


@pytest.mark.parametrize("format", ["csv", "excel"])
def test_an_edited_cell_is_what_changes(shop: Shop, format: str) -> None:
    rows = [["code", "price", "active", "category"], ["Q", 12.5, False, "tools"], ["new", 3, True, None]]
    rows = rows if format == "excel" else [rows[0], ["Q", "12.5", "false", "tools"], ["new", "3", "true", ""]]
    rows[0].append("name")
    for row in rows[1:]:
        row.append("n")
    changes = counts(send(shop.feed, "products", table(rows, format)))
    assert changes == {"products": {"updated": 1, "created": 1}}
    query = "select code, price::text, active, \"categoryId\" is null from api.products where code in ('Q', 'new') order by id"
    assert shop.feed.ask(query) == [("Q", "12.5000", False, False), ("new", "3.0000", True, True)]
    shop.feed.write("delete from data.products where code = 'new'")
    shop.feed.good(products=[{"code": "Q", "name": "q", "price": None, "active": True, "category": "code:@c"}])


def test_only_the_apostrophe_of_an_export_is_removed(shop: Shop) -> None:
    texts = {"'=1": "=1", "' =1": " =1", "' x": "' x", "'a'=1": "'a'=1", " '=1": " '=1", "''": "'", "'": "'"}
    rows = [["code", "name"], *([f"A{number}", text] for number, text in enumerate(texts))]
    assert counts(send(shop.feed, "units", table(rows, "csv"))) == {"units": {"created": len(texts)}}
    assert [name for (name,) in shop.feed.ask("select name from api.units where code ~ '^A\\d' order by code")] == list(
        texts.values()
    )
    shop.feed.write("delete from data.units where code ~ '^A\\d'")


def test_semicolons_and_a_code_page_are_read_as_a_spreadsheet_saves_them(shop: Shop) -> None:
    body = "sep=;\r\ncode;name\r\nC2;Bücher\r\n".encode("windows-1252")
    assert counts(send(shop.feed, "customers", body)) == {"customers": {"updated": 1}}
    shop.feed.good(customers=[{"code": "C2", "name": "b"}])


REFUSED = [
    ("csv", [["code", "prise"], ["A", "1"]], "line 1: products has no field prise, expected columns among id, code, name"),
    ("excel", [["code", "prise"], ["A", 1]], "row 1: products has no field prise, expected columns among id, code, name"),
    ("csv", [["code", "category.name"], ["A", "1"]], "line 1: products has no field category.name"),
    ("csv", [["code", "code"], ["A", "1"]], "line 1: the column code appears twice"),
    ("csv", [["", ""], ["A", "1"]], "line 2: products has no field A"),
    ("excel", [], "row 1: expected a header with column names"),
]


@pytest.mark.parametrize(("format", "rows", "message"), REFUSED)
def test_a_wrong_header_is_refused(shop: Shop, format: str, rows: list[list[Any]], message: str) -> None:
    with pytest.raises(ServiceError) as refused:
        send(shop.feed, "products", table(rows, format))
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(("body", "message"), [
    (b"<products>\n<product><code>A</code>\n<prise>1</prise></product></products>", "line 3: products has no field prise, expected elements among id, "),
    (b"<units><unit><code>A</code></unit></units>", "line 1: expected the root element products, document, got units"),
    (b"PK\x03\x04 not a zip", "expected an Excel workbook (.xlsx), which is a zip file"),
    (b"<products><product>", "line 1, column"),
])  # fmt: skip
def test_another_file_is_refused(shop: Shop, body: bytes, message: str) -> None:
    with pytest.raises(ServiceError) as refused:
        send(shop.feed, "products", body)
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(("format", "place"), [("csv", "line 3: "), ("excel", "row 3: ")])
def test_errors_have_the_line(shop: Shop, format: str, place: str) -> None:
    report = send(shop.feed, "products", table([["code", "name", "price"], ["Q", "q", None], ["bad", "b", "dear"]], format))
    (error,) = (each for each in report["errors"] if each["code"] != "batch_failed")
    assert (error["path"], error["code"]) == ("products[1].price", "invalid_value") and error["message"].startswith(place)
