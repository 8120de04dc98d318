"""JSON Lines: each record of the JSON export on a line of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from app.export import statements
from app.export.read import Reader
from app.export.request import ExportRequest
from app.export.to_json import JsonRecords


async def write(export: ExportRequest, reader: Reader) -> AsyncGenerator[bytes, None]:
    """Yield the records.  A line of JsonRecords begins with the comma of an array."""
    async for block in reader.rows(statements.records(export.query, export.company, JsonRecords())):
        yield block[1:].replace(b"\n,", b"\n")
