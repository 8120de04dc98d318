"""CSV as it arrives.  What a file does not say is found out: its encoding, its delimiter, its quotes; settings override that."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from app.mapper.language.expressions import Compiler, Get
from app.mapper.language.functions import ABSENT
from app.mapper.language.problems import source_error
from app.mapper.language.tree import Mapper, paths_of
from app.mapper.sources.base import Emit, Maker, Source
from app.mapper.sources.csv_rows import Group
from app.mapper.sources.decoder import Decoder

LARGEST = 16 << 20  # characters of one row
DELIMITERS = ",;\t|"
QUOTES = "\"'"
SEPARATOR = re.compile(r"sep=(.)(?:\r\n|\n)", re.IGNORECASE)  # Excel's own first line
LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")

csv.field_size_limit(LARGEST)


class _Incomplete(Exception):
    """The text ends before a row does."""


class CsvSource(Source):
    """Reads rows of whole lines, holds back what may go on."""

    unit = "line"

    def __init__(self, mapper: Mapper, emit: Emit, charset: str | None = None) -> None:
        self._mapper = mapper
        self._emit = emit
        self._text = Decoder(mapper.encoding or charset, mapper.language)
        self._delimiter = mapper.delimiter
        self._quote = mapper.quote
        self._pending = ""
        self._wait = 0  # characters before it is worth while to look for the end of a long row again
        self._line = 0  # lines before the pending text
        self._width = -1  # columns of the header
        self._columns: dict[str, int] = {}
        self._groups: list[Group] = []

    def feed(self, data: bytes) -> None:
        """Read; emit the records that are whole."""
        self._take(self._text.decode(data))

    def finish(self) -> None:
        """There is no more."""
        self._take(self._text.decode(b"", final=True), final=True)
        if self._width < 0:
            raise source_error("expected a header with the names of the columns", line=1)
        for group in self._groups:
            group.close()

    def _take(self, text: str, final: bool = False) -> None:
        self._pending += text
        if self._width < 0 and not self._delimiter and not self._line:
            self._skip_separator()
        end = len(self._pending) if final else _last_line_end(self._pending)
        if not end or (end < self._wait and not final):
            self._check_size()
            return
        if self._width < 0 and not self._begin():
            return
        rows = self._read(self._pending[:end], final)
        self._pending = self._pending[end - rows :]
        self._check_size()

    def _check_size(self) -> None:
        if len(self._pending) > LARGEST:
            message = f"a row is longer than {LARGEST >> 20} MB; a quote may not be closed"
            raise source_error(message, line=self._line + 1, code="invalid_document")

    def _read(self, text: str, final: bool) -> int:
        """Read the rows of whole lines; returns how many characters at the end belong to a row that goes on."""
        reader, whole = self._reader(text), 0
        try:
            for row in reader:
                if any(row):  # a row without anything in it, as spreadsheets write them, is none
                    self._row(row, self._line + whole + 1)
                whole = reader.line_num
        except _Incomplete:
            pass
        except csv.Error as error:
            raise source_error(str(error), line=self._line + whole + 1) from None
        rest = "".join(list(io.StringIO(text, newline=""))[whole:]) if reader.line_num > whole else ""
        if rest and final:
            raise source_error("a quoted cell that begins in this row is not closed", line=self._line + whole + 1)
        self._line += whole
        self._wait = 2 * len(rest) if not whole else 0
        return len(rest)

    def _reader(self, text: str) -> Any:
        lines = chain(io.StringIO(text, newline=""), _end())
        return csv.reader(lines, delimiter=self._delimiter or ",", quotechar=self._quote or '"', strict=True)

    # The header.

    def _skip_separator(self) -> None:
        separator = SEPARATOR.match(self._pending)
        if separator:
            self._delimiter, self._pending, self._line = separator[1], self._pending[separator.end() :], 1

    def _begin(self) -> bool:
        """Find out how the file is written.  Whether its first line is there."""
        if not self._pending.strip():
            return False
        start = len(self._pending) - len(self._pending.lstrip("\r\n"))
        first = LINE_END.split(self._pending[start:], maxsplit=1)[0]
        wanted = {path for block in self._mapper.blocks for path in paths_of(block)}
        candidates = [(d, q) for q in self._quote or QUOTES for d in self._delimiter or DELIMITERS]
        self._delimiter, self._quote = max(candidates, key=lambda each: _fit(first, each[0], each[1], wanted))
        if not self._mapper.header:
            self._open({str(number): number - 1 for number in range(1, 1 + max(map(int, wanted)))}, 0)
        return True

    def _row(self, row: list[str], line: int) -> None:
        if self._width < 0:
            self._read_header(row, line)
            return
        if len(row) > self._width > 0 and any(row[self._width :]):
            self._refuse(line, f"the row has {len(row)} cells, the header {self._width}")
            return
        for group in self._groups:
            group.add(row, line)

    def _read_header(self, row: list[str], line: int) -> None:
        names = [name.strip() for name in row]
        wanted = {path for block in self._mapper.blocks for path in paths_of(block)}
        twice = next((name for name in names if name in wanted and names.count(name) > 1), None)
        if twice is not None:
            raise source_error(f"the column {twice} stands twice", line=line, code="invalid_document")
        if wanted and not wanted & set(names):
            message = f"none of the mapper's columns is there, expected {_listed(sorted(wanted))}, got {_listed(names)}"
            raise source_error(message, line=line, code="invalid_document")
        self._open({name: number for number, name in enumerate(names)}, len(names))

    def _open(self, columns: dict[str, int], width: int) -> None:
        self._columns, self._width = columns, width
        compiler = Compiler(self._mapper, self._getter)
        makers = [Maker.of(block, compiler, lambda path: lambda row: [row]) for block in self._mapper.blocks]
        self._groups = [Group(maker, self._emit) for maker in makers]

    def _getter(self, column: str) -> Get:
        index = self._columns.get(column)
        if index is None:
            return lambda row: ABSENT

        def get(row: list[str]) -> Any:
            try:
                return row[index] or None
            except IndexError:
                return ABSENT

        return get

    def _refuse(self, line: int, message: str) -> None:
        for group in self._groups:
            group.refuse(line, message)


def _end() -> Iterator[str]:
    raise _Incomplete
    yield ""


def _last_line_end(text: str) -> int:
    """Up to where the text consists of whole lines; a carriage return at its end may be half of a line end."""
    end = text.rfind("\n") + 1
    carriage = text.rfind("\r", end, len(text) - 1) + 1
    return max(end, carriage)


def _fit(line: str, delimiter: str, quote: str, wanted: set[str]) -> tuple[int, int]:
    """How well a header reads this way: the mapper's columns in it, and how many columns there are."""
    try:
        cells = next(csv.reader([line], delimiter=delimiter, quotechar=quote), [])
    except csv.Error:
        return -1, 0
    return len(wanted & {cell.strip() for cell in cells}), len(cells)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
