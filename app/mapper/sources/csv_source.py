"""Reads CSV as it arrives.  Encoding, delimiter and quotes are detected unless the mapper sets them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from app.mapper.language.expressions import Evaluator, Getter
from app.mapper.language.functions import ABSENT
from app.mapper.language.problems import source_error
from app.mapper.language.tree import Mapper, paths_of
from app.mapper.sources.base import Emit, RecordMaker, SourceReader
from app.mapper.sources.csv_rows import RowMerger
from app.mapper.sources.decoder import TextDecoder

LARGEST_ROW = 16 << 20  # characters of one row
DELIMITERS = ",;\t|"
QUOTES = "\"'"
SEPARATOR = re.compile(r"sep=(.)(?:\r\n|\n)", re.IGNORECASE)  # the first line of files from Excel
LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")

csv.field_size_limit(LARGEST_ROW)


class _Incomplete(Exception):
    """The text ends inside a row."""


class CsvSource(SourceReader):
    """Reads the complete rows, and keeps the text of an incomplete one for the next piece."""

    unit = "line"

    def __init__(self, mapper: Mapper, emit: Emit, charset: str | None = None) -> None:
        self._mapper = mapper
        self._emit = emit
        self._text = TextDecoder(mapper.encoding or charset, mapper.language)
        self._delimiter = mapper.delimiter
        self._quote = mapper.quote
        self._pending = ""
        self._wait = 0  # characters; a shorter pending text is not parsed again, so that a long row takes linear time
        self._line = 0  # lines before the pending text
        self._wanted = {path for block in mapper.blocks for path in paths_of(block)}
        self._width = -1  # columns of the header; -1 before it is read, 0 without one
        self._columns: dict[str, int] = {}
        self._mergers: list[RowMerger] = []

    def feed(self, data: bytes) -> None:
        """Parse bytes; emit the records that they complete."""
        self._take(self._text.decode(data))

    def finish(self) -> None:
        """Parse the rest; emit the last records."""
        self._take(self._text.decode(b"", final=True), final=True)
        if self._width < 0:
            raise source_error("expected a header with column names", line=1)
        for merger in self._mergers:
            merger.close()

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
        rest = self._read(self._pending[:end], final)
        self._pending = self._pending[end - rest :]
        self._check_size()

    def _check_size(self) -> None:
        if len(self._pending) > LARGEST_ROW:
            message = f"a row has more than {LARGEST_ROW:,} characters; check it for an unclosed quote"
            raise source_error(message, line=self._line + 1, code="invalid_document")

    def _read(self, text: str, final: bool) -> int:
        """Read complete rows; return the number of characters at the end that belong to an incomplete row."""
        reader, whole = self._reader(text), 0
        try:
            for row in reader:
                if any(row):  # spreadsheets write rows with only empty cells
                    self._row(row, self._line + whole + 1)
                whole = reader.line_num
        except _Incomplete:
            pass
        except csv.Error as error:
            raise source_error(str(error), line=self._line + whole + 1) from None
        rest = "".join(list(io.StringIO(text, newline=""))[whole:]) if reader.line_num > whole else ""
        if rest and final:
            raise source_error("a quoted cell that starts in this row is not closed", line=self._line + whole + 1)
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
        """Detect delimiter and quote from the first line; return whether there is one."""
        if not self._pending.strip():
            return False
        start = len(self._pending) - len(self._pending.lstrip("\r\n"))
        first = LINE_END.split(self._pending[start:], maxsplit=1)[0]
        candidates = [(d, q) for q in self._quote or QUOTES for d in self._delimiter or DELIMITERS]
        self._delimiter, self._quote = max(candidates, key=lambda each: _fit(first, each[0], each[1], self._wanted))
        if not self._mapper.header:
            self._open({str(number): number - 1 for number in range(1, 1 + max(map(int, self._wanted), default=0))}, 0)
        return True

    def _row(self, row: list[str], line: int) -> None:
        if self._width < 0:
            self._read_header(row, line)
            return
        if len(row) > self._width > 0 and any(row[self._width :]):
            for merger in self._mergers:
                merger.reject(line, f"expected at most {self._width} cells as in the header, got {len(row)}")
            return
        for merger in self._mergers:
            merger.add(row, line)

    def _read_header(self, row: list[str], line: int) -> None:
        names, wanted = [name.strip() for name in row], self._wanted
        twice = next((name for name in names if name in wanted and names.count(name) > 1), None)
        if twice is not None:
            raise source_error(f"the column {twice} appears twice", line=line, code="invalid_document")
        if wanted and not wanted & set(names):
            message = f"the header has none of the mapper's columns, expected {_listed(sorted(wanted))}, got {_listed(names)}"
            raise source_error(message, line=line, code="invalid_document")
        self._open({name: number for number, name in enumerate(names)}, len(names))

    def _open(self, columns: dict[str, int], width: int) -> None:
        self._columns, self._width = columns, width
        evaluator = Evaluator(self._mapper, self._getter)
        makers = [RecordMaker.of(block, evaluator, lambda path: lambda row: [row]) for block in self._mapper.blocks]
        self._mergers = [RowMerger(maker, self._emit) for maker in makers]

    def _getter(self, column: str) -> Getter:
        index = self._columns.get(column)
        if index is None:
            return lambda row: ABSENT

        def get(row: list[str]) -> Any:
            try:
                return row[index] or None
            except IndexError:
                return ABSENT

        return get


def _end() -> Iterator[str]:
    """Raises _Incomplete where the text ends inside a row, instead of the row that the csv module would return."""
    raise _Incomplete
    yield ""


def _last_line_end(text: str) -> int:
    """The length of the complete lines; a carriage return at the end may be half of a line end."""
    end = text.rfind("\n") + 1
    carriage = text.rfind("\r", end, len(text) - 1) + 1
    return max(end, carriage)


def _fit(line: str, delimiter: str, quote: str, wanted: set[str]) -> tuple[int, int]:
    """How well a header fits a delimiter and quote: the number of wanted columns, then of all columns."""
    try:
        cells = next(csv.reader([line], delimiter=delimiter, quotechar=quote), [])
    except csv.Error:
        return -1, 0
    return len(wanted & {cell.strip() for cell in cells}), len(cells)


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
