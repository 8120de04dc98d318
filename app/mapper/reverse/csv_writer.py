"""Writes CSV in reverse: one row for each record, or one for each of its children with the record's own cells repeated."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from app.errors import ServiceError
from app.mapper.language.tree import Mapper, paths_in, paths_of
from app.mapper.reverse.base import ReverseWriter, children_of
from app.mapper.reverse.plan import Record, ReverseBlock
from app.mapper.sources.encodings import find_encoding


class CsvWriter(ReverseWriter):
    """Writes the header with the first record, and only columns of its fields: the mapper would read other columns as null."""

    extension = "csv"

    def __init__(self, mapper: Mapper, reverse: ReverseBlock) -> None:
        self.lookups = reverse.lookups()
        self.children = tuple(child.block.name for child in reverse.children)
        self._mapper = mapper
        self._reverse = reverse
        self._encoding = mapper.encoding or "utf-8"
        self._encoder = codecs.getincrementalencoder(find_encoding(self._encoding))()  # writes a byte order mark only once
        self.media_type = f"text/csv; charset={self._encoding}"
        self._columns: list[str] | None = None

    def begin(self) -> bytes:
        return self._encoder.encode("\r\n" * self._mapper.skip) if self._mapper.skip else b""

    def write(self, records: Iterable[Record]) -> bytes:
        parts: list[bytes] = []
        for record in records:
            if self._columns is None:
                self._columns = self._columns_of(record)
                parts.append(self._encoded(self._header(self._columns)))
            columns = self._columns
            rows = [[row.get(column) for column in columns] for row in _rows(self._reverse, record)]
            try:
                parts.append(self._encoded(rows))
            except UnicodeEncodeError as error:
                raise self._unencodable(record, rows, error.object[error.start]) from None
        return b"".join(parts)

    def end(self) -> bytes:
        if self._columns is not None:
            return b""
        return self._encoded(self._header(list(dict.fromkeys(paths_of(self._reverse.block)))))

    def _unencodable(self, record: Record, rows: list[list[Any]], character: str) -> ServiceError:
        assert self._columns is not None
        column, value = next((c, v) for row in rows for c, v in zip(self._columns, row, strict=True) if character in str(v))
        reason = f"the character {character!r} does not exist in {self._encoding}"
        return self._reverse.unwritable(record, _field_of(self._reverse, column), value, reason)

    def _columns_of(self, record: Record) -> list[str]:
        """The columns of the record's fields, and all columns of its children."""
        block = self._reverse.block
        given = [rule for rule in block.rules if rule.name in record or rule.name == "id"]
        paths = [path.text for rule in given for path in paths_in(rule.expression)]
        paths += [path for child in block.children for path in paths_of(child)]
        if self._mapper.header:
            return list(dict.fromkeys(paths))
        return [str(number) for number in range(1, 1 + max(map(int, paths), default=0))]

    def _header(self, columns: list[str]) -> list[list[str]]:
        return [columns] if self._mapper.header else []

    def _encoded(self, rows: list[list[Any]]) -> bytes:
        out = io.StringIO(newline="")
        delimiter, quote = self._mapper.delimiter or ",", self._mapper.quote or '"'
        csv.writer(out, delimiter=delimiter, quotechar=quote, lineterminator="\r\n").writerows(rows)
        return self._encoder.encode(out.getvalue())


def _rows(reverse: ReverseBlock, record: Record) -> Iterator[dict[str, Any]]:
    """The cells of each row, by column."""
    own = reverse.values(record)
    lists = [[row for item in items for row in _child_rows(child, item)] for child, items in children_of(reverse, record)]
    for parts in zip_longest(*lists, fillvalue={}) if any(lists) else [()]:
        row = dict(own)
        for part in parts:
            row.update(part)
        yield row


def _child_rows(child: ReverseBlock, item: Record) -> Iterator[dict[str, Any]]:
    for row in _rows(child, item):
        if all(value is None or value == "" for value in row.values()):
            reason = "a child with only empty cells cannot be written: the mapper would not read it back"
            raise ServiceError("unwritable", f"{child.block.entity.name}: {reason}", target=child.block.name)
        yield row


def _field_of(reverse: ReverseBlock, column: str) -> str:
    """The field that is read from a column, in the block or in one of its nested blocks."""
    inside = (f"{child.block.name}.{_field_of(child, column)}" for child in reverse.children if column in paths_of(child.block))
    return next(inside, reverse.field_of(column))
