"""What sources of rows and columns share: the header, the columns that a mapper reads, and the rows' records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.errors import ServiceError
from app.mapper.exported import EMPTY, restorer
from app.mapper.language.expressions import Evaluator, Getter
from app.mapper.language.functions import ABSENT
from app.mapper.language.problems import InvalidValue, source_error
from app.mapper.language.tree import Mapper, paths_of
from app.mapper.sources.base import Emit, RecordMaker, SourceReader
from app.mapper.sources.csv_rows import RowMerger
from app.mapper.sources.names import listed
from app.mapper.workbook.frames import TooLong

Row = Sequence[Any]


class TableSource(SourceReader):
    """Takes the rows of a table, of which the first one is the header.  A subclass reads the rows."""

    def __init__(self, mapper: Mapper, emit: Emit) -> None:
        self._mapper = mapper
        self._emit = emit
        self._wanted = {path for block in mapper.blocks for path in paths_of(block)}
        self._width = -1  # columns of the header; -1 before it is read, 0 without one
        self._columns: dict[str, int] = {}
        self._mergers: list[RowMerger] = []

    def _row(self, row: Row, number: int) -> None:
        if self._width < 0:
            self._read_header([str(name or "").replace(EMPTY, "").strip() for name in row], number)
            return
        if len(row) > self._width > 0 and any(cell not in (None, "") for cell in row[self._width :]):
            for merger in self._mergers:
                merger.reject(number, f"expected at most {self._width} cells as in the header, got {len(row)}")
            return
        for merger in self._mergers:
            merger.add(row, number)

    def _close_records(self) -> None:
        """Emit the last records.  Raises ServiceError if there was no header."""
        if self._width < 0:
            raise self._error("expected a header with column names", 1, "malformed_document")
        for merger in self._mergers:
            merger.close()

    def _read_header(self, names: list[str], number: int) -> None:
        wanted = self._wanted
        twice = next((name for name in names if name in wanted and names.count(name) > 1), None)
        if twice is not None:
            raise self._error(f"the column {twice} appears twice", number)
        unknown = next((name for name in names if name and name not in wanted), None) if self._mapper.is_exported else None
        if unknown is not None:
            entity = self._mapper.blocks[0].name
            raise self._error(f"{entity} has no field {unknown}, expected columns among {listed(self._known())}", number)
        if wanted and not wanted & set(names):
            message = f"the header has none of the mapper's columns, expected {listed(sorted(wanted))}, got {listed(names)}"
            raise self._error(message, number)
        self._open({name: at for at, name in enumerate(names)}, len(names))

    def _known(self) -> list[str]:
        return [rule.name for rule in self._mapper.blocks[0].rules]

    def _open_numbered(self) -> None:
        """Without a header, columns are named by their numbers."""
        self._open({str(number): number - 1 for number in range(1, 1 + max(map(int, self._wanted), default=0))}, 0)

    def _open(self, columns: dict[str, int], width: int) -> None:
        self._columns, self._width = columns, width
        evaluator = Evaluator(self._mapper, self._getter)
        makers = [RecordMaker.of(block, evaluator, lambda path: lambda row: [row]) for block in self._mapper.blocks]
        self._mergers = [RowMerger(maker, self._emit, columns) for maker in makers]

    def _getter(self, column: str) -> Getter:
        index = self._columns.get(column)
        if index is None:
            return lambda row: ABSENT
        restore = restorer(self._mapper, column)

        def get(row: Row) -> Any:
            try:
                value = row[index]
            except IndexError:
                return ABSENT
            if value is None or value == "":
                return None
            if type(value) is TooLong:
                raise InvalidValue(str(value))
            return value if restore is None else restore(value)

        return get

    def _error(self, message: str, number: int, code: str = "invalid_document") -> ServiceError:
        more = {self.unit: number}
        return source_error(message, code=code, line=more.pop("line", None), **more)
