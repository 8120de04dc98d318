"""Rows put together to records.

Neighbouring rows with one record id are one record, if the block has blocks inside: each row adds to the children, and of its own
fields the last value counts that is not null.  Without blocks inside they are one only if they say the same: two prices of one
product are for the import to refuse.
"""

from __future__ import annotations

from typing import Any

from app.mapper.language.expressions import record_of
from app.mapper.language.tree import paths_in
from app.mapper.sources.base import Emit, Maker, invalid


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


class Group:
    """The rows of one block, put together to records."""

    def __init__(self, maker: Maker, emit: Emit) -> None:
        self._rows = _Rows(maker)
        self._block = maker.block
        self._emit = emit
        self._record: dict[str, Any] | None = None
        self._line = 0
        self._lines: list[int] = []  # of the first block's children

    def add(self, row: list[str], line: int) -> None:
        """One row more."""
        rows = self._rows
        record = rows.record(row)
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
        children = len(self._record[rows.children[0].name])
        if children > len(self._lines):
            self._lines.append(line)

    def refuse(self, line: int, message: str) -> None:
        """A row that cannot be read becomes a record that fails."""
        self.close()
        self._emit(self._rows.name, invalid(self._block, message), line, ())

    def close(self) -> None:
        """No further row belongs to the record."""
        if self._record is not None and self._rows.children:
            self._emit(self._rows.name, self._record, self._line, self._lines)
        self._record, self._lines = None, []
