"""Reads CSV as it arrives.  Encoding, delimiter and quotes are detected unless the mapper sets them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from app.mapper.exported import EMPTY
from app.mapper.language.problems import source_error
from app.mapper.language.tree import Mapper
from app.mapper.sources.base import Emit
from app.mapper.sources.decoder import TextDecoder
from app.mapper.sources.table import TableSource

LARGEST_ROW = 16 << 20  # characters of one row
DELIMITERS = ",;\t|"
QUOTES = "\"'"
SEPARATOR = re.compile(r"sep=(.)(?:\r\n|\n)", re.IGNORECASE)  # the first line of files from Excel
LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")

csv.field_size_limit(LARGEST_ROW)


class _Incomplete(Exception):
    """The text ends inside a row."""


class CsvSource(TableSource):
    """Reads the complete rows, and keeps the text of an incomplete one for the next piece."""

    unit = "line"

    def __init__(self, mapper: Mapper, emit: Emit, charset: str | None = None) -> None:
        super().__init__(mapper, emit)
        self._text = TextDecoder(mapper.encoding or charset, mapper.language)
        self._delimiter = mapper.delimiter
        self._quote = mapper.quote
        self._pending = ""
        self._wait = 0  # characters; a shorter pending text is not parsed again, so that a long row takes linear time
        self._line = 0  # lines before the pending text

    def feed(self, data: bytes) -> None:
        """Parse bytes; emit the records that they complete."""
        self._take(self._text.decode(data))

    def finish(self) -> Iterable[None]:
        """Parse the rest; emit the last records."""
        self._take(self._text.decode(b"", final=True), final=True)
        self._close_records()
        return ()

    def _take(self, text: str, final: bool = False) -> None:
        self._pending += text
        if self._line < self._mapper.skip and not self._skip(final):
            return
        if self._width < 0 and not self._delimiter and self._line == self._mapper.skip:
            self._skip_separator()
        end = len(self._pending) if final else _last_line_end(self._pending)
        if not end or (end < self._wait and not final):
            self._check_size()
            return
        whole = self._pending[:end]
        if self._width < 0 and not self._begin(whole):
            return
        rest = self._read(whole, final)
        self._pending = self._pending[end - rest :]
        self._check_size()

    def _check_size(self) -> None:
        if len(self._pending) > LARGEST_ROW:
            message = f"a row has more than {LARGEST_ROW:,} characters; check it for an unclosed quote"
            raise source_error(message, line=self._line + 1, code="invalid_document")

    def _read(self, text: str, final: bool) -> int:
        """Read complete rows; return the number of characters at the end that belong to an incomplete row."""
        if self._mapper.is_exported and 2 * (self._quote or '"') in text:
            text = self._marked(text)
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
        rest = _without_lines(text, whole) if reader.line_num > whole else ""
        if rest and final:
            raise source_error("a quoted cell that starts in this row is not closed", line=self._line + whole + 1)
        self._line += whole
        self._wait = 2 * len(rest) if not whole else 0
        return len(rest)

    def _marked(self, text: str) -> str:
        """Put EMPTY in place of quoted empty cells, which the csv module does not tell from cells without anything."""
        quote, delimiter = re.escape(self._quote or '"'), re.escape(self._delimiter or ",")
        cell = rf"{quote}(?:[^{quote}]|{quote}{quote})*+(?:{quote}|\Z)|[^{quote}{delimiter}\r\n][^{delimiter}\r\n]*"
        empty = 2 * (self._quote or '"')
        return re.sub(cell, lambda match: EMPTY if match[0] == empty else match[0], text)

    def _reader(self, text: str) -> Any:
        lines = chain(io.StringIO(text, newline=""), _end())
        return csv.reader(lines, delimiter=self._delimiter or ",", quotechar=self._quote or '"', strict=True)

    # The header.

    def _skip(self, final: bool) -> bool:
        """Drop lines before the header; return whether all of them have come."""
        at = 0
        while self._line < self._mapper.skip and (end := LINE_END.search(self._pending, at)):
            at = end.end()
            self._line += 1
        self._pending = self._pending[at:]
        if self._line < self._mapper.skip:
            self._pending = "" if final else self._pending
            self._check_size()
            return final
        return True

    def _skip_separator(self) -> None:
        separator = SEPARATOR.match(self._pending)
        if separator:
            self._delimiter, self._pending = separator[1], self._pending[separator.end() :]
            self._line += 1

    def _begin(self, text: str) -> bool:
        """Detect delimiter and quote from the first of whole lines; return whether there is one that is not blank."""
        if not text.strip():
            return False
        first = LINE_END.split(text.lstrip("\r\n"), maxsplit=1)[0]
        candidates = [(d, q) for q in self._quote or QUOTES for d in self._delimiter or DELIMITERS]
        self._delimiter, self._quote = max(candidates, key=lambda each: _fit(first, each[0], each[1], self._wanted))
        if not self._mapper.header:
            self._open_numbered()
        return True


def _end() -> Iterator[str]:
    """Raises _Incomplete where the text ends inside a row, instead of the row that the csv module would return."""
    raise _Incomplete
    yield ""


def _without_lines(text: str, count: int) -> str:
    """The text after some lines."""
    lines = io.StringIO(text, newline="")
    for _ in range(count):
        next(lines)
    return lines.read()  # as one: each line as a text of its own may take thirty times its memory


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
