"""Parquet: typed columns in row groups, each sent when it is full.

PostgreSQL makes each row an array of JSON with values as Parquet stores them: days, microseconds, decimals without their point.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec
from psycopg.sql import SQL, Composable, Literal

from app.export import content, parquet
from app.export.parquet import MOST_DIGITS, ColumnType, ParquetWriter
from app.export.read import Reader
from app.export.request import ExportRequest
from app.export.row_formats import PLAIN, row_column
from app.export.shape import ExportField
from app.types import named

ROWS = 1 << 15  # of a row group
SIZE = 4 << 20  # bytes of JSON from which a row group is full

EXACT = "trunc(nullif({{0}}, 'NaN') * {})::text"  # the JSON of a decimal: times a power of ten
_decode = msgspec.json.Decoder().decode


class ParquetLines:
    """Arrays of JSON, each with a comma before it."""

    copy = PLAIN

    def columns(self, fields: Sequence[ExportField], columns: Sequence[Composable]) -> Composable:
        parts: list[Composable] = []
        for field, column in zip(fields, columns, strict=True):
            parts += [Literal("," if parts else ",["), self.value(field, column)]
        return row_column([*parts, Literal("]")])

    def value(self, field: ExportField, column: Composable) -> Composable:
        digits = decimal_digits(field)
        exact = EXACT.format(10 ** digits[1]) if digits else None
        template = exact or named(field.type).parquet[1]
        return SQL("coalesce({}, 'null')").format(SQL(template).format(column))


def decimal_digits(field: ExportField) -> tuple[int, int] | None:
    """Return precision and scale of a decimal that Parquet can hold, else None: then its text is exact."""
    precision, scale = field.column.field.precision, field.column.field.scale
    if named(field.type).kind != "decimal" or precision is None or scale is None or not 0 <= scale <= precision <= MOST_DIGITS:
        return None
    return precision, scale


def column_type(field: ExportField) -> ColumnType:
    digits = decimal_digits(field)
    return parquet.decimal(*digits) if digits else parquet.TYPES[named(field.type).parquet[0]]


async def write(export: ExportRequest, reader: Reader) -> AsyncGenerator[bytes, None]:
    """Yield the row groups, then the footer."""
    table = ParquetTable(content.columns(export).fields)
    yield table.writer.begin()
    async for block in reader.lines(export, ParquetLines()):
        yield await asyncio.to_thread(table.add, block)
    yield await asyncio.to_thread(table.close)


class ParquetTable:
    """Collects rows until they fill a row group."""

    def __init__(self, fields: Sequence[ExportField]) -> None:
        self.writer = ParquetWriter({field.name: column_type(field) for field in fields})
        self._columns: list[list[Any]] = [[] for _ in fields]
        self._size = 0  # bytes of JSON

    def add(self, block: bytes) -> bytes:
        """Add rows.  Returns the row group that they fill, if they do."""
        rows = _decode(b"[" + block[1:] + b"]")
        for column, values in zip(self._columns, zip(*rows, strict=True), strict=True):
            column += values
        self._size += len(block)
        return self._flush() if len(self._columns[0]) >= ROWS or self._size >= SIZE else b""

    def close(self) -> bytes:
        """Return the last row group and the footer."""
        return (self._flush() if self._columns[0] else b"") + self.writer.end()

    def _flush(self) -> bytes:
        group = self.writer.row_group(self._columns)
        self._columns, self._size = [[] for _ in self._columns], 0
        return group
