"""An Excel workbook, written while it is sent: typed cells, a header that stays in view, a filter, widths by the first rows.

XlsxWriter makes an empty workbook; PostgreSQL makes the rows; they are numbered and compressed here.  Rows that exceed a sheet go
on in further sheets.

This relies on the XML that XlsxWriter writes, which is not part of its API (tests/export/test_workbook.py checks each point):
  - worksheets are the zip's members xl/worksheets/sheet1.xml, sheet2.xml, ..., in the order in which they were added;
  - a sheet holds <sheetData>, ended by one </sheetData>; its second row begins with <row r="2" and ends with </row>;
  - before the rows stands <dimension ref="..."/>, after them <autoFilter ref="...";
  - cell formats are numbered as excel_cells.py has them.
And on ZipInfo._compresslevel of Python's zipfile, which is public (compress_level) only from Python 3.13 on.
"""

from __future__ import annotations

import asyncio
import io
import re
import zipfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from html import unescape
from typing import IO

import xlsxwriter

from app.errors import ServiceError
from app.export import content
from app.export.excel_cells import CELL_FORMATS, ROW_MARK, TOO_LONG, ExcelLines, cell_format, letters
from app.export.read import Reader
from app.export.request import ExportRequest
from app.export.shape import ExportField, LineShape
from app.mapper.workbook.frames import LONGEST_CELL
from app.query.check.tree import NUMBERS

ROWS = 1_048_575  # of a sheet, without its header
LEVEL = 1  # of compression: the network is rarely slower than level 1 compresses
LARGE = 10_000_000  # cells from which a sheet may need the 64-bit sizes of a zip
MEASURED = 500  # rows from which the widths of columns are taken, at most
NARROWEST, WIDEST = 6, 60  # characters of a column
CELL = re.compile(rf'<c r="([A-Z]+){ROW_MARK}"[^>]*>(.*?)</c>', re.DOTALL)
TAG = re.compile(r"<[^>]*>")
SHEETS = "xl/worksheets/sheet"
DATA_END = b"</sheetData>"
DIMENSION = re.compile(rb'<dimension ref="[^"]*"/>')
FILTER = re.compile(rb'<autoFilter ref="([^"]*)"')
SAMPLE_ROW = re.compile(rb'<row r="2".*?</row>')


async def write(export: ExportRequest, reader: Reader) -> AsyncGenerator[bytes, None]:
    """Yield the workbook."""
    shape = content.columns(export)
    (count,) = await reader.one(content.count(export))
    async with aclosing(reader.lines(export, ExcelLines())) as blocks:
        first = await anext(blocks, b"")
        widths = column_widths(shape.fields, first)
        workbook = await asyncio.to_thread(WorkbookWriter, export, shape, count, widths)
        try:
            yield await asyncio.to_thread(workbook.add, first)
            async for block in blocks:
                yield await asyncio.to_thread(workbook.add, block)
            yield await asyncio.to_thread(workbook.close)
        finally:
            workbook.drop()


class OutputBuffer(io.RawIOBase):
    """A file that keeps what is written until it is taken."""

    def __init__(self) -> None:
        self._data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self._data += data  # type: ignore[arg-type]
        return len(data)  # type: ignore[arg-type]

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data


class WorkbookWriter:
    """Copies an empty workbook and inserts rows into its sheets.  Fixes the number of sheets by the `count` of rows."""

    def __init__(self, export: ExportRequest, shape: LineShape, count: int, widths: Sequence[int]) -> None:
        self._output = OutputBuffer()
        self._zip = zipfile.ZipFile(self._output, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL)
        self._now = export.now.timetuple()[:6]
        self._entity, self._fields = export.entity.name, [field.name for field in shape.fields]
        self._is_large = min(count, ROWS) * len(shape.fields) > LARGE
        self._sheets: list[tuple[str, bytes, bytes]] = []  # name, XML before the rows, XML after them
        with zipfile.ZipFile(io.BytesIO(empty_workbook(export, shape.fields, count, widths))) as empty:
            for name in empty.namelist():
                data = empty.read(name)
                if name.startswith(SHEETS):
                    self._sheets.append((name, *split_sheet(data)))
                else:
                    self._zip.writestr(zipfile.ZipInfo(name, self._now), data, zipfile.ZIP_DEFLATED, LEVEL)
        self._sheet: IO[bytes] | None = None
        self._number = 0  # of the next row in the open sheet
        self._open()

    def add(self, block: bytes) -> bytes:
        """Add rows, each ended by a line end.  Returns the bytes of the workbook that are ready."""
        if TOO_LONG.encode() in block:
            raise self._unwritable(block)
        rows = block.split(b"\n")[:-1]
        mark = ROW_MARK.encode()
        while rows:
            if self._number > ROWS + 1:
                self._next()
            fitting, rows = rows[: ROWS + 2 - self._number], rows[ROWS + 2 - self._number :]
            assert self._sheet is not None
            numbered = enumerate(fitting, self._number)
            self._sheet.write(b"".join([row.replace(mark, b"%d" % number) for number, row in numbered]))
            self._number += len(fitting)
        return self._output.take()

    def _unwritable(self, block: bytes) -> ServiceError:
        """The error for the first row with a text that no cell holds."""
        row = next(line for line in block.decode().split("\n") if TOO_LONG in line)
        cells = {name: unescape(TAG.sub("", content)) for name, content in CELL.findall(row)}
        values = {field: cells.get(letters(number), "") for number, field in enumerate(self._fields)}
        field, length = next((field, value[1:]) for field, value in values.items() if value.startswith(TOO_LONG))
        record = next((f"{name} {values[name]}" for name in ("code", "id") if values.get(name)), "a row")
        reason = f"it has {int(length):,} characters, of which a cell of Excel holds {LONGEST_CELL:,}"
        return ServiceError("unwritable", f"{self._entity}, {record}: {field} cannot be written: {reason}", target=field)

    def close(self) -> bytes:
        """End the workbook, with sheets left empty if fewer rows came than were counted.  Returns its last bytes."""
        while self._sheets:
            self._next()
        self._next()
        self._zip.close()
        return self._output.take()

    def drop(self) -> None:
        """Close the files of a workbook that may be unfinished; otherwise their destructors would complain."""
        if self._sheet is not None:
            self._sheet.close()
            self._sheet = None
        self._zip.close()

    def _next(self) -> None:
        """End the open sheet and begin the next one, if there is one."""
        if self._sheet is not None:
            self._sheet.write(self._after)
            self._sheet.close()
            self._sheet = None
        if self._sheets:
            self._open()

    def _open(self) -> None:
        name, before, self._after = self._sheets.pop(0)
        member = zipfile.ZipInfo(name, self._now)
        member.compress_type, member._compresslevel = zipfile.ZIP_DEFLATED, LEVEL  # type: ignore[attr-defined]
        self._sheet = self._zip.open(member, "w", force_zip64=self._is_large)
        self._sheet.write(before)
        self._number = 2


def split_sheet(data: bytes) -> tuple[bytes, bytes]:
    """Return the XML before and after a sheet's rows, without the sample row.  The dimension becomes the filter's: all rows."""
    before, after = SAMPLE_ROW.sub(b"", data, count=1).split(DATA_END)
    filtered = FILTER.search(after)
    assert filtered is not None
    return DIMENSION.sub(b'<dimension ref="%b"/>' % filtered[1], before, count=1), DATA_END + after


def empty_workbook(export: ExportRequest, fields: Sequence[ExportField], count: int, widths: Sequence[int]) -> bytes:
    """Return a workbook with sheets for `count` rows.  Each holds a header and a sample row, which makes it number its formats."""
    data = io.BytesIO()
    with xlsxwriter.Workbook(data, {"in_memory": True, "default_date_format": "yyyy-mm-dd"}) as book:
        book.set_properties({"title": f"{export.entity.name} of {export.company}", "created": export.now.replace(tzinfo=None)})
        header = book.add_format({"bold": True, "bg_color": "#EEF1F4", "bottom": 1})
        samples = [(each.sample, book.add_format({"num_format": each.picture})) for each in CELL_FORMATS]
        for number in range(max(1, -(-count // ROWS))):
            rows = min(ROWS, count - number * ROWS)
            sheet = book.add_worksheet(export.entity.name[:25] + (f" {number + 1}" if number else ""))
            sheet.freeze_panes(1, 0)
            for column, field in enumerate(fields):
                sheet.set_column(column, column, widths[column])
                sheet.write_string(0, column, field.name, header)
            for column, (sample, format) in enumerate(samples):
                sheet.write(1, column, sample, format)
            sheet.autofilter(0, 0, max(rows, 1), len(fields) - 1)
            sheet.repeat_rows(0)
            sheet.set_landscape()
            sheet.fit_to_pages(1, 0)
            sheet.set_footer("&L&A&R&P / &N")
    return data.getvalue()


def column_widths(fields: Sequence[ExportField], block: bytes) -> list[int]:
    """Return the width of each column in characters, as the header and the first rows need it."""
    formats = [cell_format(field) for field in fields]
    widths = [
        max(len(field.name) + 3, format.width if format else NARROWEST) for field, format in zip(fields, formats, strict=True)
    ]
    names = {letters(number): number for number in range(len(fields))}
    rows = block.split(b"\n", MEASURED)[:MEASURED]
    for name, cell in CELL.findall(b"".join(rows).decode()):
        number, text = names[name], TAG.sub("", cell)
        if fields[number].type in NUMBERS:
            whole = text.lstrip("-").partition(".")[0]  # the format adds decimals and separators of thousands
            widths[number] = max(widths[number], len(text) + (3 + len(whole) // 3 if formats[number] else 2))
        elif formats[number] is None:
            lines = unescape(text).split("\n")
            widths[number] = max(widths[number], min(WIDEST, max(map(len, lines)) + 2))
    return widths
