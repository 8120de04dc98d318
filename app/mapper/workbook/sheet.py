"""Rows of a worksheet, with values of their types.  Rows without a value are left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from app.mapper.language.problems import source_error
from app.mapper.workbook.container import Part
from app.mapper.workbook.frames import COLUMNS, ROWS, Row, packed
from app.mapper.workbook.styles import EPOCH, EPOCH_1904, Kind, iso_moment, moment
from app.mapper.workbook.texts import Collector, SharedTexts

LARGEST_ROW = 16 << 20  # characters
REFERENCE = re.compile(r"([A-Z]{1,3})[1-9][0-9]*")  # of a cell
INTEGER = re.compile(r"-?[0-9]{1,18}")
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")

OnRow = Callable[[Row, int], None]  # a row, its characters


class SheetReader:
    """Reads one worksheet; calls on_row for each row that has a value."""

    def __init__(
        self, part: Part, texts: SharedTexts, styles: Sequence[Kind | None], on_row: OnRow, *, is_1904: bool = False
    ) -> None:
        self._part = part
        self._texts = texts
        self._styles = styles
        self._on_row = on_row
        self._epoch: datetime = EPOCH_1904 if is_1904 else EPOCH
        self._columns: dict[str, int] = {}  # by letters
        self._number = 0  # of the row
        self._cells: list[Any] = []
        self._size = 0  # characters of the row
        self._at = 0  # the next cell's column, from 0
        self._type = "n"
        self._style: str | None = None
        self._collector = Collector()
        self._spoken = 0

    def read(self) -> None:
        """Read the whole worksheet.  Raises ServiceError, MemoryError."""
        self._part.parse(self._start, self._end)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "c":
            reference = attributes.get("r")
            self._at = self._at if reference is None else self._column(reference)
            if self._at >= COLUMNS:
                raise self._error(f"a worksheet has at most {COLUMNS:,} columns", "invalid_document")
            self._type, self._style = attributes.get("t", "n"), attributes.get("s")
        elif tag == "v" or (tag == "t" and not self._spoken):
            self._part.parser.CharacterDataHandler = self._collector.add
        elif tag == "row":
            self._begin_row(attributes.get("r"))
        elif tag == "rPh":
            self._spoken += 1

    def _end(self, tag: str) -> None:
        if tag in ("v", "t"):
            self._part.parser.CharacterDataHandler = None
        elif tag == "c":
            self._end_cell()
        elif tag == "row":
            self._end_row()
        elif tag == "rPh":
            self._spoken -= 1

    def _begin_row(self, number: str | None) -> None:
        before, self._number = self._number, self._number + 1
        if number is not None:
            if not (number.isascii() and number.isdigit()):
                raise self._error(f"expected the number of the row, got {number[:40]!r}", "malformed_document")
            self._number = int(number[:20])
        if self._number > ROWS:
            raise source_error(f"a worksheet has at most {ROWS:,} rows, got row {self._number}", code="invalid_document")
        if self._number <= before:
            raise self._error(f"expected a row after row {before}, got row {self._number}", "malformed_document")
        self._cells, self._size, self._at = [], 0, 0

    def _end_cell(self) -> None:
        text = self._collector.take()
        if text is not None:
            value = self._value(text) if isinstance(text, str) else text
            if isinstance(value, str):
                self._size += len(value)
            value = packed(value)
            cells, missing = self._cells, self._at - len(self._cells)
            if missing < 0:
                cells[self._at] = value
            else:
                cells += [None] * missing
                cells.append(value)
            if self._size > LARGEST_ROW:
                raise self._error(f"a row is larger than {LARGEST_ROW >> 20} MB", "invalid_document")
        self._at += 1

    def _end_row(self) -> None:
        if any(cell is not None for cell in self._cells):
            self._on_row((self._number, self._cells), self._size + len(self._cells))

    def _value(self, text: str) -> Any:
        """The value of a cell; errors of formulas are texts."""
        match self._type:
            case "s":
                return self._shared(text)
            case "inlineStr" | "str" | "e":
                return text
            case "b":
                return text in ("1", "true")
            case "d":
                return iso_moment(text)
        kind = self._kind()
        if kind is None and INTEGER.fullmatch(text):
            return int(text)
        if not NUMBER.fullmatch(text) or not isfinite(number := float(text)):
            return text
        if kind is not None:
            return moment(number, kind, self._epoch)
        # the shortest text that gives the number, not all digits of its binary fraction: 1E+30 is that
        return int(number) if number.is_integer() and abs(number) < 1e15 else Decimal(repr(number))

    def _shared(self, text: str) -> Any:
        try:
            number = int(text)
            if number < 0:
                raise IndexError
            return self._texts[number]
        except (ValueError, IndexError):
            raise self._error(f"the workbook has no shared text {text[:40]}", "malformed_document") from None

    def _kind(self) -> Kind | None:
        if self._style is None:
            return None
        try:
            number = int(self._style)
        except ValueError:
            raise self._error(f"expected the number of a format, got {self._style[:40]!r}", "malformed_document") from None
        return self._styles[number] if 0 <= number < len(self._styles) else None

    def _column(self, reference: str) -> int:
        match = REFERENCE.fullmatch(reference)
        if match is None:
            raise self._error(f"expected the reference of a cell, such as B5, got {reference[:40]!r}", "malformed_document")
        letters = match[1]
        column = self._columns.get(letters)
        if column is None:
            column = 0
            for letter in letters:
                column = column * 26 + ord(letter) - 64
            self._columns[letters] = column = column - 1
        return column

    def _error(self, message: str, code: str) -> Exception:
        return source_error(message, code=code, row=self._number)
