"""Which writer a mapper needs to run in reverse, by its source format."""

from __future__ import annotations

from app.errors import ServiceError
from app.mapper.language.tree import Mapper
from app.mapper.reverse.base import Writer
from app.mapper.reverse.plan import Backwards


def open_writer(mapper: Mapper, entity: str) -> Writer:
    """What writes records of an entity.  Raises ServiceError if the mapper has no block of it, or a path that cannot be written."""
    block = mapper.block(entity)
    if block is None:
        names = ", ".join(dict.fromkeys(each.entity.name for each in mapper.blocks))
        raise ServiceError("invalid_mapper", f"the mapper has no block of {entity}, only of {names}", target="mapper")
    backwards = Backwards.of(mapper, block)
    if mapper.format == "xml":
        from app.mapper.reverse.xml_writer import XmlWriter

        return XmlWriter(mapper, backwards)
    if mapper.format == "json":
        from app.mapper.reverse.json_writer import JsonWriter

        return JsonWriter(mapper, backwards)
    from app.mapper.reverse.csv_writer import CsvWriter

    return CsvWriter(mapper, backwards)
