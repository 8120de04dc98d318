"""JSON Lines: each record of the JSON export on a line of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from app.export import content
from app.export.read import Reader
from app.export.request import ExportRequest
from app.export.to_json import JsonRecords


async def write(export: ExportRequest, reader: Reader) -> AsyncGenerator[bytes, None]:
    """Yield the records.  A line of JsonRecords begins with the comma of an array."""
    for _, statement in content.collections(export, JsonRecords()):
        async for block in reader.rows(statement):
            yield block[1:].replace(b"\n,", b"\n")
