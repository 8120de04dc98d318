"""CSV and Excel: one column for each field, unchanged values, and no text that a spreadsheet would run as a formula."""

from __future__ import annotations

import csv
import gc
import io
import sys
from datetime import date, datetime, time
from typing import Any

import pytest
from openpyxl import load_workbook
from openpyxl.utils.escape import unescape
from openpyxl.worksheet.worksheet import Worksheet

from app.export import to_excel
from app.export.excel_cells import letters
from app.formats import FORMATS
from tests.export.conftest import TEXTS, Shop, allow_all
from tests.export.exported import send
from tests.feed.conftest import counts
from tests.service.serving import wait_until

COLUMNS = ["id", "code", "name", "description", "barcode", "price", "active", "category", "unit", "updatedAt"]
DANGEROUS = tuple("=+-@＝＋－＠")
DANGEROUS_ITSELF = tuple("\t\r\n'")


def rows(body: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(body.decode("utf-8-sig"), newline="")))


def is_dangerous(text: str) -> bool:
    return text.startswith(DANGEROUS_ITSELF) or text.strip().startswith(DANGEROUS)


def safe(text: str) -> str:
    return f"'{text}" if is_dangerous(text) else text


def sheet(body: bytes, number: int = 0) -> Worksheet:
    return load_workbook(io.BytesIO(body)).worksheets[number]


def values(body: bytes, number: int = 0) -> list[list[Any]]:
    return [[cell.value for cell in row] for row in sheet(body, number).iter_rows(min_row=2)]


# CSV ------------------------------------------------------------------------------------------------------------------------------


def test_csv_begins_with_a_byte_order_mark_and_the_names_of_the_fields(shop: Shop) -> None:
    body = shop.good("products", "csv")
    assert body.startswith(b"\xef\xbb\xbf")
    assert list(rows(body)[0]) == COLUMNS
    assert shop.good("products", "csv", filter="false").decode("utf-8-sig") == ",".join(COLUMNS) + "\n"


def test_csv_keeps_every_text_and_has_no_formula(shop: Shop) -> None:
    found = rows(shop.good("products", "csv", orderby="id"))
    assert [row["name"] for row in found] == [safe(text) for text in TEXTS]
    assert sum(row["name"].startswith("'") for row in found) == sum(map(is_dangerous, TEXTS)) == 13


def test_csv_has_references_as_codes_and_values_as_in_json(shop: Shop) -> None:
    first, second = rows(shop.good("products", "csv", top=2))
    assert (first["category"], second["category"], second["unit"]) == ("", 'a:b, "c" <d>', "PCE")
    assert (first["active"], second["active"], second["price"]) == ("true", "false", "0.2500")
    assert second["updatedAt"].endswith("Z") and "T" in second["updatedAt"]
    assert rows(shop.good("orders", "csv"))[0]["total"] == "123456789012345.6789"


def test_null_is_an_empty_cell_and_an_empty_text_is_quoted(shop: Shop) -> None:
    body = shop.good("products", "csv", filter="code eq 'P1'", select="name,barcode,code").decode("utf-8-sig")
    assert body == 'name,barcode,code\n"",,P1\n'


def test_negative_numbers_are_not_taken_for_formulas(shop: Shop) -> None:
    shop.service.operator.write("demo", "update data.orders set total = -5 where code = 'O2'")
    body = shop.good("orders", "csv", filter="total lt 0", select="total")
    assert body.decode("utf-8-sig") == "total\n-5.0000\n"
    assert values(shop.good("orders", "excel", filter="total lt 0", select="total")) == [[-5]]
    shop.service.operator.write("demo", "update data.orders set total = null where code = 'O2'")


def test_selected_columns_keep_their_order_and_references_their_names(shop: Shop) -> None:
    found = rows(shop.good("products", "csv", select="unit,code,categoryId", top=2, orderby="code desc"))
    assert [list(row) for row in found] == [["unit", "code", "category"]] * 2
    assert [row["code"] for row in found] == ["P9", "P8"]


def test_an_expanded_reference_adds_columns(shop: Shop) -> None:
    row = rows(shop.good("products", "csv", select="code", expand="category", filter="code eq 'P1'"))[0]
    assert list(row) == ["code", "category.id", "category.code", "category.name", "category.parent", "category.updatedAt"]
    assert (row["category.name"], row["category.parent"]) == ("Odd", "tools")


def test_an_expanded_collection_has_a_line_for_each_of_its_rows(shop: Shop) -> None:
    found = rows(shop.good("invoices", "csv", select="code", expand="items", orderby="code"))
    assert [(row["code"], row["items.product"], row["items.quantity"], row["items.description"]) for row in found] == [
        ("I1", "P0", "2.000000", ""), ("I1", "P0", "2.000000", ""), ("I1", "", "0.000001", "'=cmd()"), ("I2", "", "", ""),
    ]  # fmt: skip
    assert "items.invoice" not in found[0]


def test_top_and_skip_count_rows_not_lines(shop: Shop) -> None:
    found = rows(shop.good("invoices", "csv", select="code", expand="items", orderby="code", top=1, skip=0))
    assert [row["code"] for row in found] == ["I1"] * 3
    assert [row["code"] for row in rows(shop.good("invoices", "csv", expand="items", orderby="code", skip=1))] == ["I2"]
    for each in FORMATS.values():
        if each.is_flat:
            shop.good("invoices", each.name, expand="items", top=1)


def test_lines_are_filtered_sorted_and_paged_as_rows_are(shop: Shop) -> None:
    options = {
        "filter": "items/any(i: i/product/code eq 'P0')",
        "orderby": "customer/name,order/code desc",
        "expand": "items,customer",
    }
    for page in ({}, {"top": 5, "skip": 0}, {"top": 5}):
        found = rows(shop.good("invoices", "csv", select="code,customer", **options, **page))
        assert [(row["code"], row["customer.name"]) for row in found] == [("I1", "Anna")] * 3
    assert rows(shop.good("invoices", "csv", **options, skip=1)) == []


def test_two_expanded_collections_are_refused(shop: Shop) -> None:
    reply = shop.get("customers", "csv", expand="orders,invoices")
    assert (reply.status, reply.json["target"]) == (400, "$expand")
    assert "at most one expanded collection" in reply.json["detail"]


# Excel ----------------------------------------------------------------------------------------------------------------------------


def test_excel_has_cells_of_their_types(shop: Shop) -> None:
    cells = next(iter(sheet(shop.good("invoices", "excel", filter="code eq 'I1'")).iter_rows(min_row=2)))
    row = dict(zip(["id", "code", "invoiceDate", "dueDate"], cells, strict=False))
    assert (row["code"].value, row["invoiceDate"].value, row["invoiceDate"].number_format) == (
        "I1", datetime(2026, 11, 20), "yyyy-mm-dd",
    )  # fmt: skip
    assert row["dueDate"].value == datetime(9999, 12, 31)
    [(exact, stored)] = shop.feed.ask("""
        select bds_service.api_time("updatedAt"), ("updatedAt" at time zone 'UTC')::timestamp from api.invoices where code = 'I1'
    """)
    if stored.microsecond % 1000:  # finer than a cell of its type
        assert cells[-1].value == exact
    else:
        assert (cells[-1].number_format, cells[-1].value) == ("yyyy-mm-dd hh:mm:ss", stored)
    product = next(sheet(shop.good("products", "excel", filter="code eq 'P1'")).iter_rows(min_row=2))
    assert [cell.value for cell in product][5:9] == [0.25, False, 'a:b, "c" <d>', "PCE"]
    assert product[4].value is None


def test_decimals_have_a_format_and_columns_the_width_of_their_content(shop: Shop) -> None:
    insert = "insert into data.orders (company_id, code, order_date, total, note) values ('demo', %s, '2026-01-01', %s, %s)"
    texts = {
        "W1": ("63", "ab"),
        "W2": ("1234567.8", "first line\n" + "x" * 30 + "\nthird"),
        "W3": ("-0.125", "&" * 20),
        "W4": (None, "y" * 500),
    }
    for code, (total, note) in texts.items():
        shop.service.operator.write("demo", insert, (code, total, note))
    options = {"select": "id,code,orderDate,total,note", "orderby": "code"}

    def widths(codes: str) -> list[float]:
        page = sheet(shop.good("orders", "excel", filter=f"code in ({codes})", **options))
        return [page.column_dimensions[letter].width for letter in "ABCDE"]

    page = sheet(shop.good("orders", "excel", filter="startswith(code,'W')", **options))
    assert {cell.number_format for cell in page["D"][1:4]} == {"#,##0.00########"}
    assert page["A2"].number_format == "General" and page["C2"].number_format == "yyyy-mm-dd"
    assert [cell.value for cell in page["D"][1:]] == [63, 1234567.8, -0.125, None]
    assert widths("'W1'")[4] == pytest.approx(7, abs=1), "the header's"
    assert widths("'W1','W3'")[4] == pytest.approx(22, abs=1), "an entity is one character"
    assert widths("'W1','W2'")[4] == pytest.approx(32, abs=1), "the longest line"
    assert widths("'W4'")[4] == pytest.approx(60, abs=1), "at most"
    assert widths("'W2'")[3] >= len("1,234,567.80") > widths("'W1'")[3]
    assert widths("''")[0] == pytest.approx(6, abs=1), "without rows"
    shop.service.operator.write("demo", "delete from data.orders where company_id = 'demo' and code like 'W%%'")


def test_a_value_that_a_spreadsheet_cannot_hold_exactly_is_a_text(shop: Shop) -> None:
    found = {row[0]: row[1:] for row in values(shop.good("orders", "excel", select="code,orderDate,total"))}
    assert found["O1"] == [datetime(2026, 11, 20), "123456789012345.6789"], "more digits than a number of Excel has"
    assert found["O2"] == ["1899-12-31", None], "a day before those of Excel"


def test_excel_keeps_every_text_and_has_no_formula(shop: Shop) -> None:
    found = [unescape(row[0] or "") or None for row in values(shop.good("products", "excel", select="name", orderby="id"))]
    assert found == [cell(text) for text in TEXTS]


def cell(text: str) -> str | None:
    """Return the text that a reader finds in the cell of a text."""
    text = "".join(c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in text)
    return safe(text) or "'"  # alone, it tells an empty text from null


@pytest.mark.parametrize(("note", "units"), [
    ("'x', 32768", 32_768), ("'😀', 16384", 32_768), ("'_x0041_', 40000", 280_000), ("'=', 32767", 32_768), ("e'\\x01', 40000", 40_000),
])  # fmt: skip
def test_a_text_that_no_cell_holds_is_refused_with_record_and_field(shop: Shop, note: str, units: int) -> None:
    shop.service.operator.write("demo", f"update data.orders set note = repeat({note}) where code = 'O2'")
    reply = shop.get("orders", "excel", select="code,note")
    shop.service.operator.write("demo", "update data.orders set note = 'old' where code = 'O2'")
    assert (reply.status, reply.json["code"], reply.json["target"]) == (422, "unwritable", "note")
    expected = f"orders, code O2: note cannot be written: it has {units:,} characters, of which a cell of Excel holds 32,767"
    assert reply.json["detail"] == expected


def test_a_workbook_that_is_given_up_is_closed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    shop.service.operator.write("demo", "update data.orders set note = repeat('x', 32768) where code = 'O2'")
    assert shop.get("orders", "excel").status == 422
    shop.service.operator.write("demo", "update data.orders set note = 'old' where code = 'O2'")
    gc.collect()
    assert complaints == []


@pytest.mark.parametrize("note", ["'x', 32767", "'😀', 16383", "'=', 32766", "'&', 32767", "e'\\x01', 32767"])
def test_the_longest_text_of_a_cell_is_written_and_read(shop: Shop, note: str) -> None:
    shop.service.operator.write("demo", f"update data.orders set note = repeat({note}) where code = 'O2'")
    report = send(shop.feed, "orders", shop.good("orders", "excel", select="code,note"))
    shop.service.operator.write("demo", "update data.orders set note = 'old' where code = 'O2'")
    assert (report["state"], set(counts(report)["orders"])) == ("completed", {"unchanged"})


def test_the_header_is_frozen_and_has_filters(shop: Shop) -> None:
    page = sheet(shop.good("products", "excel"))
    assert page.title == "products" and page.freeze_panes == "A2"
    assert page.auto_filter.ref == f"A1:J{len(TEXTS) + 1}" and page.dimensions == page.auto_filter.ref
    assert [c.value for c in page[1]] == COLUMNS and page["A1"].font.b
    assert page.print_title_rows == "$1:$1"


def test_a_streaming_reader_finds_every_row(shop: Shop) -> None:
    book = load_workbook(io.BytesIO(shop.good("products", "excel")), read_only=True)
    assert book.worksheets[0].calculate_dimension() == f"A1:J{len(TEXTS) + 1}"
    assert len(list(book.worksheets[0].iter_rows())) == len(TEXTS) + 1


def test_rows_that_exceed_a_sheet_go_on_in_the_next(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(to_excel, "ROWS", 10)
    body = shop.good("products", "excel", select="code", orderby="id")
    book = load_workbook(io.BytesIO(body))
    assert book.sheetnames == ["products", "products 2", "products 3", "products 4"]
    assert [page.max_row - 1 for page in book.worksheets] == [10, 10, 10, len(TEXTS) - 30]
    codes = [row[0].value for page in book.worksheets for row in page.iter_rows(min_row=2)]
    assert codes == [f"P{number}" for number in range(len(TEXTS))]
    assert all(page["A1"].value == "code" and page.freeze_panes == "A2" for page in book.worksheets)
    assert len(load_workbook(io.BytesIO(shop.good("products", "excel", top=20, select="code"))).sheetnames) == 2


def test_an_empty_workbook_has_its_header(shop: Shop) -> None:
    page = sheet(shop.good("units", "excel", filter="false"))
    assert [c.value for c in page[1]] == ["id", "code", "name", "symbol", "updatedAt"] and page.max_row == 1


def test_every_type_of_a_registered_table_is_exported(shop: Shop) -> None:
    operator = shop.service.operator
    operator.connection.execute(
        "create table data.shifts (company_id text not null, id bigint not null generated by default as identity,"
        " starts time, at timestamptz, number int not null, share float8, key uuid, big numeric, updated_at timestamptz not null,"
        " primary key (company_id, id), unique (company_id, number))"
    )
    operator.connection.execute("select bds.register('data.shifts')")
    allow_all(operator, "shifts")
    operator.write(
        "demo",
        "insert into data.shifts (company_id, starts, at, number, share, key, big) values"
        " ('demo', '08:15:30.5', '2026-11-20 08:15:30.123456+00', 1, 0.1, '00000000-0000-0000-0000-000000000001', 12345678901234567890),"
        " ('demo', '24:00', '-infinity', 2, 'NaN', null, 12345.678), ('demo', null, '0044-03-15 BC', 3, 'infinity', null, 'NaN')",
    )
    try:
        fields = "starts,at,number,share,key,big"
        wait_until(lambda: shop.get("shifts", "csv").status == 200)
        found = values(shop.good("shifts", "excel", select=fields, orderby="id"))
        assert found[0][0].replace(microsecond=0) == time(8, 15, 30) and found[0][2:] == [
            1, 0.1, "00000000-0000-0000-0000-000000000001", "12345678901234567890",
        ]  # fmt: skip
        assert found[1][1:] == ["-infinity", 2, "NaN", None, 12345.678] and found[2][1].endswith("BC")
        text = shop.good("shifts", "csv", select=fields, orderby="id").decode("utf-8-sig").splitlines()
        assert text[1] == "08:15:30.5,2026-11-20T08:15:30.123456Z,1,0.1,00000000-0000-0000-0000-000000000001,12345678901234567890"
        assert text[2] == "24:00:00,-infinity,2,NaN,,12345.678"
        for format in ("json", "xml", "html", "pdf"):
            assert shop.good("shifts", format)
    finally:
        operator.connection.execute("drop table data.shifts cascade")
        operator.connection.execute("delete from bds.entities where name = 'shifts'")
        operator.connection.execute("notify bds_catalog")


@pytest.mark.parametrize(("number", "name"), [(0, "A"), (25, "Z"), (26, "AA"), (701, "ZZ"), (702, "AAA"), (16_383, "XFD")])
def test_columns_of_a_sheet_have_letters(number: int, name: str) -> None:
    assert letters(number) == name


def test_dates_are_the_same_in_excel(shop: Shop) -> None:
    for day in ("1900-03-01", "1999-12-31", "2024-02-29"):
        shop.service.operator.write("demo", "update data.orders set order_date = %s where code = 'O2'", (day,))
        ((found,),) = values(shop.good("orders", "excel", select="orderDate", filter="code eq 'O2'"))
        assert found.date() == date.fromisoformat(day)
    shop.service.operator.write("demo", "update data.orders set order_date = '1899-12-31' where code = 'O2'")
