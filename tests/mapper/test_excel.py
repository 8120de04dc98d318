"""Excel sources: a worksheet is read as CSV is read, with the types of its cells."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
import xlsxwriter
from openpyxl import Workbook

from app.database.catalog import Catalog
from app.errors import ServiceError
from app.mapper.document import Preview
from app.mapper.language.parse import read
from app.mapper.language.tree import Mapper
from app.mapper.reverse.open import open_writer
from app.mapper.workbook import texts
from tests.mapper.conftest import Run

PRODUCTS = "type excel {} products = 'row' {{ code = 'Code' name = 'Name' price = 'Price' active = 'Active' }}"
ROWS = [
    ["Code", "Name", "Price", "Active"],
    ["A", "a", 1.5, True],
    [7, None, 12, False],
    [None, None, None, None],
    ["B", " b ", "0.1", None],
]


def workbook(sheets: Mapping[str, Sequence[Sequence[Any]]]) -> bytes:
    book, data = Workbook(), io.BytesIO()
    book.remove(book.worksheets[0])
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(list(row))
    book.save(data)
    return data.getvalue()


def shared(*texts: str) -> bytes:
    """A workbook whose cells refer to a table of texts, as spreadsheets write it."""
    data = io.BytesIO()
    with xlsxwriter.Workbook(data) as book:
        sheet = book.add_worksheet()
        for number, text in enumerate(texts):
            sheet.write_string(number, 0, text)
    return data.getvalue()


@pytest.mark.parametrize("chunk", [1000, 1 << 20])
def test_cells_keep_their_types(run: Run, chunk: int) -> None:
    assert run(PRODUCTS.format(""), workbook({"Any": ROWS}), chunk=chunk)["products"] == [
        {"code": "A", "name": "a", "price": "1.5", "active": True},
        {"code": 7, "name": None, "price": 12, "active": False},
        {"code": "B", "name": " b ", "price": "0.1", "active": None},
    ]


def test_the_language_of_the_mapper_reads_texts_and_not_numbers(run: Run) -> None:
    rows = [["Code", "Price"], ["A", 1.5], ["B", "1.234,5"]]
    found = run(PRODUCTS.format("@language = 'de'"), workbook({"Any": rows}))["products"]
    assert [Decimal(each["price"]) for each in found] == [Decimal("1.5"), Decimal("1234.5")]


def test_dates_are_dates(run: Run) -> None:
    rows = [["c", "d"], ["A", date(2026, 11, 20)], ["B", datetime(2026, 11, 20, 8, 15)], ["C", "20.11.2026"]]
    text = "type excel @language = 'de' orders = 'row' { code = 'c' orderDate = 'd' }"
    assert [each["orderDate"] for each in run(text, workbook({"s": rows}))["orders"]] == ["2026-11-20"] * 3
    text = "type excel orders = 'row' { code = 'c' orderDate = 'd' }"
    assert [each["orderDate"] for each in run(text, workbook({"s": rows[:2]}))["orders"]] == ["2026-11-20"]

    text = "type excel orders = 'row' { when = 'd' < 'e' code = 'c' }"
    days = [
        (date(2026, 11, 20), date(2026, 11, 20)),
        (date(2026, 11, 20), datetime(2026, 11, 20, 8, 15)),
        (date(2026, 11, 20), date(2026, 12, 1)),
    ]
    rows = [["c", "d", "e"], ["9", 9, 10], ["10", 10, 9.5], *([str(number), *pair] for number, pair in enumerate(days))]
    assert [each["code"] for each in run(text, workbook({"s": rows}))["orders"]] == ["9", "1", "2"], (
        "cells are compared by their types"
    )


@pytest.mark.parametrize(("field", "pattern", "expected"), [
    ("orderDate", "%d.%m.%Y", ["2026-11-20", "2026-11-20", "2026-11-20"]),
    ("note", "%d.%m.%Y", ["2026-11-20", "2026-11-20", "2026-11-20"]),
    ("note", "%d.%m.%Y %H:%M", ["2026-11-20T00:00:00+00:00", "2026-11-20T08:15:00+00:00", None]),
])  # fmt: skip
def test_a_date_with_a_format_takes_cells_of_dates_as_they_are(
    run: Run, field: str, pattern: str, expected: list[str | None]
) -> None:
    rows = [["c", "d"], ["A", date(2026, 11, 20)], ["B", datetime(2026, 11, 20, 8, 15)], ["C", "20.11.2026"]]
    text = f"type excel orders = 'row' {{ code = 'c' {field} = date('d', \"{pattern}\") }}"
    found = [each[field] for each in run(text, workbook({"s": rows}))["orders"]]
    assert [None if isinstance(each, dict) else each for each in found] == expected


@pytest.mark.parametrize(("settings", "field"), [
    ("", "price = number('p')"), ("", "price = number('p', \"de\")"), ("", "price = 'p' * 2"), ("@language = 'de'", "price = 'p'"),
    ("", "name = if('p' > 0, \"x\")"), ("@language = 'de'", "name = if('p' = 5, \"x\")"), ("", "when = 'p' > 0"),
])  # fmt: skip
def test_a_date_or_time_in_place_of_a_number_is_an_error_of_its_record(run: Run, settings: str, field: str) -> None:
    rows = [["c", "p"], ["A", 5], ["B", date(2026, 1, 2)], ["C", time(8, 0)], ["D", datetime(2026, 1, 2, 8, 0)]]
    text = f"type excel {settings} products = 'row' {{ code = 'c' {field} }}"
    good, *wrong = run(text, workbook({"s": rows}))["products"]
    assert not any(isinstance(each, dict) for each in good.values())
    assert [["expected a number, got" in str(each) for each in record.values()].count(True) for record in wrong] == [1, 1, 1]


def test_a_large_number_is_one_text_wherever_it_stands(run: Run) -> None:
    text = "type excel products = 'row' { code = 'c' name = concat('c') category[code] = 'c' }"
    assert run(text, workbook({"s": [["c"], [1e20]]}))["products"] == [
        {"code": "1" + "0" * 20, "name": "1" + "0" * 20, "category": "code:1" + "0" * 20}
    ]


def test_a_sheet_is_chosen_by_its_name_or_is_the_first(run: Run) -> None:
    book = workbook({"first": [["Code"], ["1"]], "second": [["Code"], ["2"]]})
    assert [each["code"] for each in run(PRODUCTS.format(""), book)["products"]] == ["1"]
    assert [each["code"] for each in run(PRODUCTS.format("@sheet = 'second'"), book)["products"]] == ["2"]
    with pytest.raises(ServiceError) as refused:
        run(PRODUCTS.format("@sheet = 'third'"), book)
    assert refused.value.message == "the workbook has no worksheet third, only first, second"


def test_columns_without_a_header_have_numbers(run: Run) -> None:
    text = "type excel @header = 'false' units = 'row' { code = '1' name = '3' }"
    assert run(text, workbook({"s": [["A", "x", "a"], ["B", "x", "b"]]}))["units"] == [
        {"code": "A", "name": "a"}, {"code": "B", "name": "b"},
    ]  # fmt: skip


def test_rows_of_one_record_are_one_record_with_children(run: Run) -> None:
    rows = [["no", "what", "many"], ["I1", "A", 1], ["I1", "B", 2.5], ["I2", None, None]]
    text = "type excel invoices = 'row' { code = 'no' items = '.' { when = 'many' > 1 or 'many' = null  product[code] = 'what' quantity = 'many' } }"
    assert run(text, workbook({"s": rows}))["invoices"] == [
        {"code": "I1", "items": [{"product": "code:B", "quantity": "2.5"}]},
        {"code": "I2", "items": []},
    ]
    assert run(text, workbook({"s": [["no", None, None, "what"], ["I1"]]}))["invoices"] == [{"code": "I1", "items": []}], (
        "cells that end a row are empty"
    )
    assert run(text, workbook({"s": [["no"], ["I1"]]}))["invoices"] == [{"code": "I1"}]


def test_a_preview_ends_early(catalog: Catalog) -> None:
    mapper: Any = read("type excel units = 'row' { code = 'c' }", catalog)
    preview = Preview(mapper, 2)
    preview.feed(workbook({"s": [["c"], *([number] for number in range(100))]}))
    assert preview.finish().split() == b'{ "units": [ { "code": 0 }, { "code": 1 } ] }'.split()


REFUSED = [
    (b"", "expected an Excel workbook (.xlsx), which is a zip file"),
    (b"PK\x05\x06" + bytes(18), "expected an Excel workbook (.xlsx), got a zip file without xl/workbook.xml"),
    (workbook({"s": []}), "row 1: expected a header with column names"),
    (workbook({"s": [["x", "y"], [1, 2]]}), "row 1: the header has none of the mapper's columns"),
]


@pytest.mark.parametrize(("source", "message"), REFUSED, ids=range(len(REFUSED)))
def test_an_unreadable_source_is_refused(run: Run, source: bytes, message: str) -> None:
    with pytest.raises(ServiceError) as refused:
        run(PRODUCTS.format(""), source)
    assert refused.value.status == 400 and refused.value.message.startswith(message)


def test_shared_texts_are_found_in_memory_and_in_the_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "type excel units = 'row' { code = 'c' }"
    assert run(text, shared("c", "'A", "a\nb"))["units"] == [{"code": code} for code in ("'A", "a\nb")]
    monkeypatch.setattr(texts, "KEPT", 10)
    table = texts.SharedTexts()
    given = ["a", "ä€😀" * 5, None, texts.TooLong(40_000), "", "z", texts.TooLong(50_000)]
    for each in given:
        table.append(each)
    assert [table[number] for number in range(len(given))] == [
        "a",
        "ä€😀" * 5,
        None,
        texts.TooLong(40_000),
        None,
        "z",
        texts.TooLong(50_000),
    ]
    with pytest.raises(IndexError):
        table[len(given)]
    monkeypatch.setattr(texts, "LARGEST", 1)
    with pytest.raises(ServiceError) as refused:
        table.append("x")
    assert refused.value.code == "invalid_document"


def test_it_cannot_be_run_in_reverse(catalog: Catalog) -> None:
    mapper: Any = read(PRODUCTS.format(""), catalog)
    assert isinstance(mapper, Mapper)
    with pytest.raises(ServiceError):
        open_writer(mapper, "products")
