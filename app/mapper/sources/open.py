"""Chooses the reader for a mapper's source format."""

from __future__ import annotations

from app.mapper.language.tree import Mapper
from app.mapper.sources.base import Emit, SourceReader

LARGEST = 16 << 30  # bytes


def open_source(mapper: Mapper, emit: Emit, charset: str | None = None, limit: int = LARGEST) -> SourceReader:
    """Return a reader for a mapper's source.

    charset: the encoding that the sender declared, if any; limit: bytes of the content of a source that is compressed by itself.
    """
    if mapper.format == "xml":
        from app.mapper.sources.xml_source import XmlSource

        return XmlSource(mapper, emit, charset)
    if mapper.format == "json":
        from app.mapper.sources.json_source import JsonSource

        return JsonSource(mapper, emit)
    if mapper.format == "excel":
        from app.mapper.sources.excel_source import ExcelSource

        return ExcelSource(mapper, emit, limit)
    if mapper.format == "jsonl":
        from app.mapper.sources.jsonl_source import JsonlSource

        return JsonlSource(mapper, emit)
    from app.mapper.sources.csv_source import CsvSource

    return CsvSource(mapper, emit, charset)
