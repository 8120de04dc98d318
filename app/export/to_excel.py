"""An Excel workbook that is written as it is sent: cells of their types, a header that stays, a filter.

XlsxWriter makes the workbook but for its rows, those PostgreSQL makes; here they are numbered and compressed.  What has more rows
than a sheet may have goes on in further sheets.
"""

from __future__ import annotations

import asyncio
import io
import re
import zipfile
from collections.abc import AsyncGenerator, Sequence
from datetime import date, datetime, time
from typing import IO

import xlsxwriter

from app.export import statements
from app.export.forms import FORMATS, ROW, Sheet
from app.export.read import Reader
from app.export.request import Asked
from app.export.shape import Lines, Member, plan_lines
from app.query.tree import NUMBERS

ROWS = 1_048_575  # of a sheet, below its header
LEVEL = 1  # of compression: what is sent is seldom slower than level 1 compresses
LARGE = 10_000_000  # cells of a sheet from which it may be larger than a zip's 4 GB
PICTURES = {"date": "yyyy-mm-dd", "timestamptz": "yyyy-mm-dd hh:mm:ss", "time": "hh:mm:ss"}
WIDTHS = {"date": 11, "timestamptz": 19, "time": 9, "bool": 8, "uuid": 36}
MARK = ROW.encode()
END = b"</sheetData>"
DIMENSION = re.compile(rb'<dimension ref="[^"]*"/>')
FILTER = re.compile(rb'<autoFilter ref="([^"]*)"')
FIRST_ROW = re.compile(rb'<row r="2".*?</row>')


async def write(asked: Asked, reader: Reader, now: datetime) -> AsyncGenerator[bytes, None]:
    """The workbook.  now: when it says that it was made."""
    plan = plan_lines(asked.query)
    (count,) = await reader.one(statements.count(asked.query, asked.company, plan.inner))
    book = await asyncio.to_thread(Book, asked, plan, count, now)
    async for block in reader.lines(asked, Sheet(), plan):
        yield await asyncio.to_thread(book.add, block)
    yield await asyncio.to_thread(book.close)


class Out(io.RawIOBase):
    """Keeps what is written until it is taken."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._at = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self._data += data  # type: ignore[arg-type]
        return len(data)  # type: ignore[arg-type]

    def take(self) -> bytes:
        data = bytes(self._data)
        self._data.clear()
        return data


class Book:
    """A workbook under construction: a copy of an empty one, with rows in its sheets."""

    def __init__(self, asked: Asked, plan: Lines, count: int, now: datetime) -> None:
        self._out = Out()
        self._zip = zipfile.ZipFile(self._out, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL)
        self._sheets: list[tuple[str, bytes, bytes]] = []  # name, what is before the rows, what is after
        self._sheet: IO[bytes] | None = None
        self._number = 0  # of the next row of the open sheet
        self._large = min(count, ROWS) * len(plan.members) > LARGE
        with zipfile.ZipFile(io.BytesIO(shell(asked, plan.members, count, now))) as empty:
            for name in empty.namelist():
                data = empty.read(name)
                if name.startswith("xl/worksheets/sheet"):
                    before, after = FIRST_ROW.sub(b"", data, count=1).split(END)
                    filled = FILTER.search(after)
                    assert filled is not None
                    self._sheets.append((name, DIMENSION.sub(b'<dimension ref="%b"/>' % filled[1], before, count=1), END + after))
                else:
                    self._zip.writestr(zipfile.ZipInfo(name, now.timetuple()[:6]), data, zipfile.ZIP_DEFLATED, LEVEL)
        self._made = now
        self._open()

    def add(self, block: bytes) -> bytes:
        """Rows more; returns what can be sent of the workbook."""
        rows = block.split(b"\n")[:-1]
        while rows:
            if self._number > ROWS + 1:
                self._next()
            these, rows = rows[: ROWS + 2 - self._number], rows[ROWS + 2 - self._number :]
            assert self._sheet is not None
            numbered = enumerate(these, self._number)
            self._sheet.write(b"".join([row.replace(MARK, b"%d" % number) for number, row in numbered]))
            self._number += len(these)
        return self._out.take()

    def close(self) -> bytes:
        """The end of the workbook, and of sheets for rows that were counted and did not come."""
        while self._sheets:
            self._next()
        self._next()
        self._zip.close()
        return self._out.take()

    def _next(self) -> None:
        """End the sheet that is open, and begin the next one if there is one."""
        if self._sheet is not None:
            self._sheet.write(self._after)
            self._sheet.close()
            self._sheet = None
        if self._sheets:
            self._open()

    def _open(self) -> None:
        name, before, self._after = self._sheets.pop(0)
        entry = zipfile.ZipInfo(name, self._made.timetuple()[:6])
        entry.compress_type, entry._compresslevel = zipfile.ZIP_DEFLATED, LEVEL  # type: ignore[attr-defined]
        self._sheet = self._zip.open(entry, "w", force_zip64=self._large)
        self._sheet.write(before)
        self._number = 2


def shell(asked: Asked, members: Sequence[Member], count: int, now: datetime) -> bytes:
    """The workbook but for its rows: sheets enough for `count` of them, each with one row of samples below its header."""
    data = io.BytesIO()
    with xlsxwriter.Workbook(data, {"in_memory": True, "default_date_format": "yyyy-mm-dd"}) as book:
        book.set_properties({"title": f"{asked.entity.name} of {asked.company}", "created": now.replace(tzinfo=None)})
        formats = {"header": book.add_format({"bold": True, "bg_color": "#EEF1F4", "bottom": 1})}
        formats |= {type: book.add_format({"num_format": picture}) for type, picture in PICTURES.items()}
        for number in range(max(1, -(-count // ROWS))):
            rows = min(ROWS, count - number * ROWS)
            sheet = book.add_worksheet(asked.entity.name[:25] + (f" {number + 1}" if number else ""))
            sheet.freeze_panes(1, 0)
            for column, member in enumerate(members):
                sheet.set_column(column, column, _width(member))
                sheet.write_string(0, column, member.name, formats["header"])
            for column, (type, sample) in enumerate(SAMPLES.items()):  # gives the formats their numbers
                sheet.write_datetime(1, column, sample, formats[type])
            sheet.autofilter(0, 0, max(rows, 1), len(members) - 1)
            sheet.repeat_rows(0)
            sheet.set_landscape()
            sheet.fit_to_pages(1, 0)
            sheet.set_footer("&L&A&R&P / &N")
    return data.getvalue()


SAMPLES: dict[str, date | time] = {"date": date(2026, 1, 1), "timestamptz": datetime(2026, 1, 1), "time": time(1)}
assert list(SAMPLES) == list(FORMATS) == list(PICTURES)


def _width(member: Member) -> float:
    """Of a column, in characters."""
    usual = 12 if member.type in NUMBERS or member.lookup else 24
    return max(WIDTHS.get(member.type, usual), len(member.name) + 3)
