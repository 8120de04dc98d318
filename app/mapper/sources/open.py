"""Which reader a mapper needs, by its source format."""

from __future__ import annotations

from app.mapper.language.tree import Mapper
from app.mapper.sources.base import Emit, Source


def open_source(mapper: Mapper, emit: Emit, charset: str | None = None) -> Source:
    """The source that a mapper reads.  charset: what the sender says of a text's encoding, if anything."""
    if mapper.format == "xml":
        from app.mapper.sources.xml_source import XmlSource

        return XmlSource(mapper, emit, charset)
    if mapper.format == "json":
        from app.mapper.sources.json_source import JsonSource

        return JsonSource(mapper, emit)
    from app.mapper.sources.csv_source import CsvSource

    return CsvSource(mapper, emit, charset)
