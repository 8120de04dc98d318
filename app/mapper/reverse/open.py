"""Chooses the writer for a mapper's source format."""

from __future__ import annotations

from app.errors import ServiceError
from app.mapper.language.tree import Mapper
from app.mapper.reverse.base import ReverseWriter
from app.mapper.reverse.plan import ReverseBlock


def open_writer(mapper: Mapper, entity: str) -> ReverseWriter:
    """Return a writer for records of an entity.  Raises ServiceError if the mapper has no block for it or an unwritable path."""
    block = mapper.block(entity)
    if block is None:
        names = ", ".join(dict.fromkeys(each.entity.name for each in mapper.blocks))
        raise ServiceError("invalid_mapper", f"the mapper has no block for {entity}, only for {names}", target="mapper")
    reverse = ReverseBlock.of(mapper, block)
    if mapper.format == "xml":
        from app.mapper.reverse.xml_writer import XmlWriter

        return XmlWriter(mapper, reverse)
    if mapper.format == "json":
        from app.mapper.reverse.json_writer import JsonWriter

        return JsonWriter(mapper, reverse)
    from app.mapper.reverse.csv_writer import CsvWriter

    return CsvWriter(mapper, reverse)
