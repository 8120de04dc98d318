"""CSV of a mapper run backwards: a row for each record, or for each of its children, with the record's own cells repeated."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any

from app.errors import ServiceError
from app.mapper.language.tree import Mapper, paths_in, paths_of
from app.mapper.reverse.base import children_of
from app.mapper.reverse.plan import Backwards, Record


class CsvWriter:
    """Writes a header when the first record shows which fields there are: a column that they lack would read as null."""

    extension = "csv"

    def __init__(self, mapper: Mapper, backwards: Backwards) -> None:
        self.lookups = backwards.lookups()
        self.children = tuple(child.block.name for child in backwards.children)
        self._mapper = mapper
        self._backwards = backwards
        self._encoding = mapper.encoding or "utf-8"
        self.media_type = f"text/csv; charset={self._encoding}"
        self._columns: list[str] | None = None

    def begin(self) -> bytes:
        return b""

    def write(self, records: Iterable[Record]) -> bytes:
        out = io.StringIO(newline="")
        writer = csv.writer(
            out, delimiter=self._mapper.delimiter or ",", quotechar=self._mapper.quote or '"', lineterminator="\r\n"
        )
        for record in records:
            if self._columns is None:
                self._columns = self._columns_of(record)
                self._header(writer)
            columns = self._columns
            for row in _rows(self._backwards, record):
                writer.writerow([row.get(column) for column in columns])
        return self._encoded(out.getvalue())

    def end(self) -> bytes:
        if self._columns is not None:
            return b""
        self._columns = list(dict.fromkeys(paths_of(self._backwards.block)))
        out = io.StringIO(newline="")
        self._header(csv.writer(out, delimiter=self._mapper.delimiter or ",", lineterminator="\r\n"))
        return self._encoded(out.getvalue())

    def _columns_of(self, record: Record) -> list[str]:
        """The columns of the fields that records have; those of children all."""
        block = self._backwards.block
        given = [rule for rule in block.rules if rule.name in record or rule.name == "id"]
        paths = [path for rule in given for path in paths_in(rule.expression)]
        paths += [path for child in block.children for path in paths_of(child)]
        if self._mapper.header:
            return list(dict.fromkeys(paths))
        return [str(number) for number in range(1, 1 + max(map(int, paths), default=0))]

    def _header(self, writer: Any) -> None:
        if self._mapper.header:
            writer.writerow(self._columns)

    def _encoded(self, text: str) -> bytes:
        try:
            return text.encode(self._encoding)
        except UnicodeEncodeError as error:
            character = text[error.start]
            raise ServiceError("invalid_mapper", f"{self._encoding} has no character {character!r}") from None


def _rows(backwards: Backwards, record: Record) -> Iterator[dict[str, Any]]:
    """The cells of each row by column."""
    own = backwards.values(record)
    lists = [[row for item in items for row in _child_rows(child, item)] for child, items in children_of(backwards, record)]
    for parts in zip_longest(*lists, fillvalue={}) if any(lists) else [()]:
        row = dict(own)
        for part in parts:
            row.update(part)
        yield row


def _child_rows(child: Backwards, item: Record) -> Iterator[dict[str, Any]]:
    for row in _rows(child, item):
        if all(value is None or value == "" for value in row.values()):
            message = f"{child.block.entity.name}: a child without any value cannot be written, it would read as none"
            raise ServiceError("invalid_mapper", message)
        yield row
