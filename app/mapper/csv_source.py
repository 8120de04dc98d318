"""CSV as it arrives.  What a file does not say is found out: its encoding, its delimiter, its quotes; settings override that.

Neighbouring rows with one record id are one record, if the block has blocks inside: each row adds to the children, and of its own
fields the last value counts that is not null.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from app.mapper.expressions import INVALID, Compiler, Get, record_of
from app.mapper.functions import ABSENT
from app.mapper.problems import source_error
from app.mapper.sources import Emit, Maker, paths_in, paths_of
from app.mapper.tree import Mapper

LARGEST = 16 << 20  # characters of one row
DELIMITERS = ",;\t|"
QUOTES = "\"'"
SEPARATOR = re.compile(r"sep=(.)(?:\r\n|\n)", re.IGNORECASE)  # Excel's own first line
LINE_END = re.compile(r"\r\n|\n|\r(?!\Z)")

# The code page that files of a language have which are not UTF-8; windows-1252 for all others.
CODE_PAGES = {
    **dict.fromkeys(("be", "bg", "kk", "mk", "ru", "sr", "uk"), "windows-1251"),
    **dict.fromkeys(("bs", "cs", "hr", "hu", "pl", "ro", "sk", "sl", "sq"), "windows-1250"),
    **dict.fromkeys(("et", "lt", "lv"), "windows-1257"),
    **{"el": "windows-1253", "tr": "windows-1254", "he": "windows-1255", "ar": "windows-1256", "fa": "windows-1256"},
    **{"vi": "windows-1258", "th": "cp874", "ja": "cp932", "ko": "cp949", "zh": "gb18030"},
}
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)

csv.field_size_limit(LARGEST)


class _Incomplete(Exception):
    """The text ends before a row does."""


class CsvSource:
    """Reads rows of whole lines, holds back what may go on."""

    unit = "line"

    def __init__(self, mapper: Mapper, emit: Emit, charset: str | None = None) -> None:
        self._mapper = mapper
        self._emit = emit
        self._text = _Decoder(mapper.encoding or charset, mapper.language)
        self._delimiter = mapper.delimiter
        self._quote = mapper.quote
        self._pending = ""
        self._wait = 0  # characters before it is worth while to look for the end of a long row again
        self._line = 0  # lines before the pending text
        self._width = -1  # columns of the header
        self._columns: dict[str, int] = {}
        self._groups: list[_Group] = []

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
                if row:
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
        return csv.reader(lines, delimiter=self._delimiter or ",", quotechar=self._quote or '"')

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
        if len(row) > self._width > 0:
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
        self._groups = [_Group(maker, self._emit) for maker in makers]

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


class _Rows:
    """What a block makes of rows: its own members, and of each block inside at most one child a row."""

    def __init__(self, maker: Maker) -> None:
        block = maker.block
        self.name = block.name
        self._members = maker.members
        self._fixed: dict[str, Any] = {} if block.operation is None else {"@operation": block.operation}
        self._identity = tuple(rule.name for rule in block.identity)
        self._read = tuple(rule.name for rule in block.rules if any(paths_in(rule.expression)))
        self.children = tuple(_Rows(child) for _, child in maker.children)
        for each in block.children:
            if each.remove_all is not None:
                self._fixed[each.name + "@removeAll"] = each.remove_all

    def record(self, row: list[str]) -> dict[str, Any]:
        """The record of one row; a block inside adds a child unless every cell of it is empty."""
        record = record_of(self._members, row)
        for child in self.children:
            item = child.record(row)
            record[child.name] = [item] if child.is_there(item) else []
        record.update(self._fixed)
        return record

    def is_there(self, record: dict[str, Any]) -> bool:
        """Whether the row has anything of this record."""
        get = record.get
        for name in self._read:
            if get(name) is not None:
                return True
        return any(record[child.name] for child in self.children)

    def is_same(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        """Whether both have the same id, and have one."""
        known = False
        for name in self._identity:
            value = one.get(name)
            if value != other.get(name):
                return False
            known = known or value is not None
        return known

    def merge(self, record: dict[str, Any], row: dict[str, Any]) -> None:
        """Add what a further row of a record has."""
        for name, _ in self._members:
            value = row.get(name)
            if value is not None or name not in record:
                record[name] = value
        for child in self.children:
            items = record[child.name]
            for item in row[child.name]:
                if child.children and items and child.is_same(items[-1], item):
                    child.merge(items[-1], item)
                else:
                    items.append(item)


class _Group:
    """The rows of one block, put together to records."""

    def __init__(self, maker: Maker, emit: Emit) -> None:
        self._rows = _Rows(maker)
        self._first = maker.block.rules[0].name if maker.block.rules else "id"
        self._emit = emit
        self._record: dict[str, Any] | None = None
        self._line = 0
        self._lines: list[int] = []  # of the first block's children

    def add(self, row: list[str], line: int) -> None:
        """One row more."""
        rows = self._rows
        record = rows.record(row)
        if not rows.children:
            self._emit(rows.name, record, line, ())
            return
        if self._record is not None and rows.is_same(self._record, record):
            rows.merge(self._record, record)
        else:
            self.close()
            self._record, self._line = record, line
        children = len(self._record[rows.children[0].name])
        if children > len(self._lines):
            self._lines.append(line)

    def refuse(self, line: int, message: str) -> None:
        """A row that cannot be read becomes a record that fails."""
        self.close()
        self._emit(self._rows.name, {self._first: {INVALID: message}}, line, ())

    def close(self) -> None:
        """No further row belongs to the record."""
        if self._record is not None:
            self._emit(self._rows.name, self._record, self._line, self._lines)
            self._record, self._lines = None, []


class _Decoder:
    """Bytes to text.  Without a mark or a name it is UTF-8, or else the code page of the mapper's language."""

    def __init__(self, encoding: str | None, language: str | None) -> None:
        self._given = encoding
        self._fallback = CODE_PAGES.get((language or "").partition("-")[0].lower(), "windows-1252")
        self._start = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._name = ""
        self._ascii = True  # so far
        self._lines = 0

    def decode(self, data: bytes, final: bool = False) -> str:
        """The text of the next bytes.  Raises ServiceError."""
        if self._decoder is None:
            self._start += data
            if len(self._start) < 4 and not final:
                return ""
            data, self._start = self._start, b""
            self._name = self._detect(data)
            self._decoder = codecs.getincrementaldecoder(self._name)()
        state = self._decoder.getstate()[0]
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            text = self._decode_otherwise(bytes(state) + data, final, error)
        self._ascii = self._ascii and text.isascii()
        self._lines += text.count("\n")
        return text

    def _detect(self, data: bytes) -> str:
        for mark, name in MARKS:
            if data.startswith(mark):
                return name
        if self._given:
            return self._given
        if data[:1] == b"\0":
            return "utf-16-be"
        return "utf-16-le" if data[1:2] == b"\0" else "utf-8"

    def _decode_otherwise(self, data: bytes, final: bool, error: UnicodeDecodeError) -> str:
        """Not UTF-8: if nothing before said that it is, the language's code page."""
        before = error.object[: error.start]
        if self._name == "utf-8" and not self._given and self._ascii and before.isascii():
            self._name = self._fallback
            self._decoder = codecs.getincrementaldecoder(self._name)()
            try:
                return self._decoder.decode(data, final)
            except UnicodeDecodeError as other:
                error = other
                before = error.object[: error.start]
        line = self._lines + before.count(b"\n") + 1
        byte = error.object[error.start]
        raise source_error(f"the byte {byte:#04x} is not {self._name}; @encoding names another encoding", line=line) from None


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
