"""CSV as in RFC 4180, in UTF-8 with a byte order mark, without which Excel reads another encoding."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from psycopg.sql import SQL, Composable

from app.export import content
from app.export.read import Reader
from app.export.request import ExportRequest
from app.export.row_formats import QUOTED, text_of, without_formula
from app.export.shape import ExportField
from app.types import PLAIN_TEXT, named


class CsvLines:
    """One column for each field.  COPY leaves null empty and quotes an empty text."""

    copy = QUOTED

    def columns(self, fields: Sequence[ExportField], columns: Sequence[Composable]) -> Composable:
        return SQL(", ").join(self.value(field, column) for field, column in zip(fields, columns, strict=True))

    def value(self, field: ExportField, column: Composable) -> Composable:
        if named(field.type).kind in ("text", "binary"):  # base64 may begin with +
            return without_formula(text_of(field, column))
        # COPY writes most types by themselves as their text is, but for true and false
        return text_of(field, column) if field.type == "bool" or named(field.type).text != PLAIN_TEXT else column


async def write(export: ExportRequest, reader: Reader) -> AsyncGenerator[bytes, None]:
    """Yield a header, then the lines."""
    start = "\ufeff" + ",".join(field.name for field in content.columns(export).fields) + "\n"
    async for block in reader.lines(export, CsvLines()):
        yield start.encode() + block if start else block
        start = ""
    if start:
        yield start.encode()
