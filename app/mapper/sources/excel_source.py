"""Reads a worksheet of an Excel workbook as CSV is read.  A workbook is a zip: a temporary file keeps it until it is whole."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from zipfile import BadZipFile, ZipFile

from openpyxl import load_workbook  # type: ignore[import-untyped]
from openpyxl.utils.escape import unescape  # type: ignore[import-untyped]

from app.errors import ServiceError
from app.mapper.language.problems import source_error
from app.mapper.language.tree import Mapper
from app.mapper.sources.base import Emit
from app.mapper.sources.table import TableSource, listed

IN_MEMORY = 8 << 20  # bytes of a workbook that are kept in memory
LARGEST_PART = 256 << 20  # bytes of the table of texts that cells share, or another part that is read into memory
SHEETS = "xl/worksheets/"  # parts that are not
STEP = 1_000  # rows after which their records are passed on
MIDNIGHT = time()


class ExcelSource(TableSource):
    """Keeps the workbook until its end, then reads its rows one by one."""

    unit = "row"

    def __init__(self, mapper: Mapper, emit: Emit) -> None:
        super().__init__(mapper, emit)
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 lives as long as the source

    def feed(self, data: bytes) -> None:
        """Keep bytes."""
        self._file.write(data)

    def finish(self) -> Iterable[None]:
        """Read the worksheet."""
        try:
            yield from self._read()
        except ServiceError:
            raise
        except Exception as error:  # openpyxl raises what its parsers and the values that they meet raise
            raise source_error(
                f"expected an Excel workbook (.xlsx), got a file that cannot be read ({type(error).__name__})"
            ) from None
        finally:
            self.close()

    def close(self) -> None:
        """Remove the temporary file."""
        self._file.close()

    def _read(self) -> Iterator[None]:
        try:
            largest = max(
                (part.file_size for part in ZipFile(self._file).infolist() if not part.filename.startswith(SHEETS)), default=0
            )
        except BadZipFile:
            raise source_error("expected an Excel workbook (.xlsx), which is a zip file") from None
        if largest > LARGEST_PART:
            raise source_error(f"the workbook has more than {LARGEST_PART >> 20} MB of texts", code="invalid_document")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and extensions that openpyxl does not read
            book = load_workbook(self._file, read_only=True, data_only=True, keep_links=False)
        for sheet in self._sheets(book):
            self._width, self._mergers = -1, []
            sheet.reset_dimensions()  # a writer may have given wrong ones
            if not self._mapper.header:
                self._open_numbered()
            for number, cells in enumerate(sheet.iter_rows(), 1):
                row = [_value(cell) for cell in cells]
                if any(cell is not None for cell in row):
                    row += [None] * (len(self._columns) - len(row))  # cells after the last one of a row are empty, too
                    self._row(row, number)
                if not number % STEP:
                    yield
            self._close_records()

    def _sheets(self, book: Any) -> list[Any]:
        """The mapper's worksheet, or else the first, with those in which an export goes on: `products`, `products 2`, ..."""
        sheets = book.worksheets
        if self._mapper.sheet is not None:
            found = [sheet for sheet in sheets if sheet.title == self._mapper.sheet]
            if not found:
                names = listed(sheet.title for sheet in sheets)
                raise source_error(f"the workbook has no worksheet {self._mapper.sheet}, only {names}", code="invalid_document")
            return found
        if not sheets:
            raise source_error("the workbook has no worksheet", code="invalid_document")
        further = [s for number, s in enumerate(sheets[1:], 2) if s.title == f"{sheets[0].title} {number}"]
        return [sheets[0], *further] if self._mapper.is_exported else sheets[:1]


def _value(cell: Any) -> Any:
    """The value of a cell: a text, an integer, a Decimal, a boolean, a date, a time or None.  Errors of formulas are texts."""
    value = cell.value
    match value:
        case str():
            return (unescape(value) if "_x" in value else value) or None
        case float():
            return int(value) if value.is_integer() else Decimal(repr(value))
        case datetime():
            return value.date() if value.time() == MIDNIGHT else value
        case None | bool() | int() | date():
            return value
    return str(value)
