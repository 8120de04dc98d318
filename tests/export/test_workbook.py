"""The parts of XlsxWriter's XML that an Excel export relies on: this fails if another version writes them otherwise."""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from openpyxl import load_workbook

from app.export import to_excel
from app.export.excel_cells import CELL_FORMATS
from app.export.request import read_request
from app.export.shape import line_shape
from app.export.to_excel import DATA_END, DIMENSION, FILTER, SAMPLE_ROW, SHEETS, column_widths, empty_workbook, split_sheet
from tests.query.model import catalog

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture(params=[0, 1, 25])
def workbook(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """An empty workbook for some rows, ten in a sheet."""
    monkeypatch.setattr(to_excel, "ROWS", 10)
    model = catalog()
    export = replace(read_request(model, model["products"], "demo", {"format": "excel"}), now=NOW)
    fields = line_shape(export.query).fields
    return empty_workbook(export, fields, request.param, column_widths(fields, b""))


def sheets(workbook: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(workbook)) as zip:
        return {name: zip.read(name) for name in zip.namelist() if name.startswith(SHEETS)}


def test_sheets_are_members_in_their_order(workbook: bytes) -> None:
    names = [f"{SHEETS}{number}.xml" for number in range(1, 1 + len(load_workbook(io.BytesIO(workbook)).sheetnames))]
    assert list(sheets(workbook)) == names


def test_each_sheet_has_the_marks_between_which_rows_are_inserted(workbook: bytes) -> None:
    for data in sheets(workbook).values():
        assert data.count(b"<sheetData>") == data.count(DATA_END) == 1
        for mark in (DIMENSION, SAMPLE_ROW, FILTER):
            assert len(mark.findall(data)) == 1
        before, after = split_sheet(data)
        assert before.endswith(b"</row>") and b'<row r="1"' in before and b'<row r="2"' not in before
        (filtered,) = FILTER.findall(after)
        assert b'<dimension ref="%b"/>' % filtered in before and after.startswith(DATA_END)


def test_cell_formats_have_the_numbers_that_rows_name(workbook: bytes) -> None:
    book = load_workbook(io.BytesIO(workbook))
    for sheet, data in zip(book.worksheets, sheets(workbook).values(), strict=True):
        header, samples = re.findall(rb"<row .*?</row>", data)
        assert set(re.findall(rb's="(\d+)"', header)) == {b"1"} and sheet["A1"].font.b
        assert [int(style) for style in re.findall(rb's="(\d+)"', samples)] == list(range(2, 2 + len(CELL_FORMATS)))
        pictures = [sheet.cell(2, number).number_format for number in range(1, 1 + len(CELL_FORMATS))]
        assert pictures == [each.picture for each in CELL_FORMATS]
