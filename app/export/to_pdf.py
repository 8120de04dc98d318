"""PDF: printable pages with numbers, the header on each, in any script.

The pages are laid out all at once, in a process of its own, so the number of rows is limited.  All rows are read before that: the
database connection can be given back while the pages are laid out.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from psycopg.sql import SQL, Composable, Literal

from app.errors import ServiceError
from app.export import content
from app.export.process import pipe_through
from app.export.read import Reader
from app.export.request import ExportRequest
from app.export.row_formats import PLAIN, row_column, text_of
from app.export.shape import ExportField
from app.export.to_html import is_number, subtitle

ROWS = 10_000
BYTES = 32 << 20  # of all texts together


class PdfLines:
    """JSON arrays of texts and nulls."""

    copy = PLAIN

    def columns(self, fields: Sequence[ExportField], columns: Sequence[Composable]) -> Composable:
        parts: list[Composable] = []
        for field, column in zip(fields, columns, strict=True):
            parts += [
                Literal("," if parts else "["),
                SQL("coalesce(to_json({})::text, 'null')").format(text_of(field, column, shown=True)),
            ]
        return row_column([*parts, Literal("]")])


async def write(export: ExportRequest, reader: Reader) -> AsyncGenerator[bytes, None]:
    """Yield the PDF.  Raises ServiceError if there are too many rows."""
    table = await read_table(export, reader)
    async with aclosing(lay_out(table)) as blocks:
        async for block in blocks:
            yield block


async def check_count(export: ExportRequest, reader: Reader) -> None:
    """Raises ServiceError if there are too many rows for a PDF."""
    (count,) = await reader.one(content.count(export))
    if count > ROWS:
        message = f"expected at most {ROWS:,} rows for a PDF, got {count:,}: add $filter or $top, or choose another format"
        raise ServiceError("malformed_request", message, target="format", rows=count, limit=ROWS)


async def read_table(export: ExportRequest, reader: Reader) -> list[bytes]:
    """Return blocks of lines of JSON, as app.export.layout reads them: a description of the table, then its rows."""
    shape = content.columns(export)
    prefix = f"{shape.collection.name}." if shape.collection else ""
    await check_count(export, reader)
    columns = [
        {"name": field.name.removeprefix(prefix), "number": is_number(field), "above": bool(prefix) and not field.outer}
        for field in shape.fields
    ]
    description = {"title": export.entity.name, "about": subtitle(export), "columns": columns}
    blocks, size = [json.dumps(description).encode() + b"\n"], 0
    async for block in reader.lines(export, PdfLines()):
        size += len(block)
        if size > BYTES:
            message = f"expected at most {BYTES >> 20} MB of text for a PDF: add $filter or $top, or choose another format"
            raise ServiceError("malformed_request", message, target="format")
        blocks.append(block)
    return blocks


async def lay_out(table: Sequence[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the PDF of a table that read_table returned."""

    async def feed() -> AsyncGenerator[bytes, None]:
        for block in table:
            yield block

    async with aclosing(pipe_through("app.export.layout", feed())) as blocks:
        async for block in blocks:
            yield block
