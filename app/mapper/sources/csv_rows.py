"""Combines CSV rows into records.

If a block has nested blocks, neighbouring rows with the same record id become one record: each row adds children, and the last
value of a field that is not null wins.  Without nested blocks only identical neighbouring rows are combined; rows with one id and
different values remain separate records, which the import reports as duplicate_record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from app.mapper.language.expressions import record_of
from app.mapper.language.problems import InvalidValue
from app.mapper.language.tree import Block, paths_in
from app.mapper.sources.base import Emit, RecordMaker, invalid


class _RowRecords:
    """Makes the record of a single row: the block's members, and at most one child for each nested block.

    columns: the place of each column in a row.
    """

    def __init__(self, maker: RecordMaker, columns: Mapping[str, int]) -> None:
        block = maker.block
        self.name = block.name
        self._members = maker.members
        self._condition = maker.condition
        self._fixed: dict[str, Any] = {} if block.operation is None else {"@operation": block.operation}
        self._identity = tuple(rule.name for rule in block.identity)
        self._read = tuple(rule.name for rule in block.rules if any(paths_in(rule.expression)))
        paths = {path.text for rule in block.rules for path in paths_in(rule.expression)}
        self._cells = tuple(columns[path] for path in paths if path in columns)
        self.children = tuple(_RowRecords(child, columns) for _, child in maker.children)
        # the cells of the shortest row with one of the block's columns; with @removeAll children are never absent
        least = min((columns.get(each, inf) + 1 for each in _columns_of(block)), default=inf)
        self._least = least if block.remove_all is None else 0
        for each in block.children:
            if each.remove_all is not None:
                self._fixed[each.name + "@removeAll"] = each.remove_all

    def record(self, row: Sequence[Any]) -> dict[str, Any]:
        """Make the record of one row; a nested block adds a child unless all its cells are empty or missing."""
        record = record_of(self._members, row)
        for child in self.children:
            if len(row) < child._least:
                continue
            item = child.record(row) if child.selects(row) else {}
            record[child.name] = [item] if item and child.has_values(item, row) else []
        record.update(self._fixed)
        return record

    def selects(self, row: Sequence[Any]) -> bool:
        """Whether the block's condition lets the row become a record.  Raises InvalidValue."""
        return self._condition is None or self._condition(row)

    def has_values(self, record: dict[str, Any], row: Sequence[Any]) -> bool:
        """Whether the row has a value for this record, other than what the block puts in place of empty cells."""
        get = record.get
        for name in self._read:
            if get(name) is not None:
                if any(at < len(row) and row[at] not in (None, "") for at in self._cells):
                    return True
                break
        return any(get(child.name) for child in self.children)

    def is_same(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        """Whether both records have the same id, which is not null."""
        known = False
        for name in self._identity:
            value = one.get(name)
            if value != other.get(name):
                return False
            known = known or value is not None
        return known

    def merge(self, record: dict[str, Any], row: dict[str, Any]) -> None:
        """Add the values and children of a further row to a record."""
        for name, _ in self._members:
            value = row.get(name)
            if value is not None or name not in record:
                record[name] = value
        for child in self.children:
            if child.name not in row:
                continue
            items = record.setdefault(child.name, [])
            for item in row[child.name]:
                if child.children and items and child.is_same(items[-1], item):
                    child.merge(items[-1], item)
                else:
                    items.append(item)


class RowMerger:
    """Combines the rows of one block into records, and emits them."""

    def __init__(self, maker: RecordMaker, emit: Emit, columns: Mapping[str, int]) -> None:
        self._rows = _RowRecords(maker, columns)
        self._block = maker.block
        self._emit = emit
        self._record: dict[str, Any] | None = None
        self._line = 0
        self._child_lines: list[int] = []  # of the first nested block

    def add(self, row: Sequence[Any], line: int) -> None:
        """Add a row."""
        rows = self._rows
        try:
            if not rows.selects(row):
                return
            record = rows.record(row)
        except InvalidValue as error:
            self.reject(line, f"when: {error}")
            return
        if not rows.children:
            if self._record != record or not rows.is_same(record, record):
                self._emit(rows.name, record, line, ())
            self._record = record
            return
        if self._record is not None and rows.is_same(self._record, record):
            rows.merge(self._record, record)
        else:
            self.close()
            self._record, self._line = record, line
        children = len(self._record.get(rows.children[0].name, ()))
        if children > len(self._child_lines):
            self._child_lines.append(line)

    def reject(self, line: int, message: str) -> None:
        """Emit a record that fails, for a row that cannot be read."""
        self.close()
        self._emit(self._rows.name, invalid(self._block, message), line, ())

    def close(self) -> None:
        """Emit the current record."""
        if self._record is not None and self._rows.children:
            self._emit(self._rows.name, self._record, self._line, self._child_lines)
        self._record, self._child_lines = None, []


def _columns_of(block: Block) -> Iterator[str]:
    """The columns of the fields of a block and of its nested blocks."""
    for rule in block.rules:
        yield from (path.text for path in paths_in(rule.expression))
    for child in block.children:
        yield from _columns_of(child)
