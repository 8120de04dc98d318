"""Chooses the writer for a mapper's source format."""

from __future__ import annotations

from collections.abc import Iterator

from app.errors import ServiceError
from app.mapper.language.expressions import WHERE
from app.mapper.language.tree import Block, Mapper
from app.mapper.language.xml_blocks import XmlBlockPath, block_paths
from app.mapper.reverse.base import ReverseWriter
from app.mapper.reverse.plan import ReverseBlock
from app.mapper.reverse.proof import Proof, ProvedWriter


def open_writer(mapper: Mapper, entity: str, *, is_whole: bool = True) -> ReverseWriter:
    """Return a writer for records of an entity.  Raises ServiceError if the mapper has no block for it or an unwritable path.

    is_whole: whether all rows of the entity are written; else a file with @removeAll would delete the others.
    """
    block = mapper.block(entity)
    if block is None:
        names = ", ".join(dict.fromkeys(each.entity.name for each in mapper.blocks))
        raise ServiceError("invalid_mapper", f"the mapper has no block for {entity}, only for {names}", target="mapper")
    if mapper.format == "excel":
        message = "a mapper of excel cannot be run in reverse: expected format=excel without a mapper, or a mapper of csv"
        raise ServiceError("invalid_mapper", message, target="mapper")
    if any(each.condition is not None for each in (block, *_nested(block))):
        message = f"the block {block.name} has a condition (when), which cannot be run in reverse"
        raise ServiceError("invalid_mapper", message, target="mapper")
    if any(rule.name == WHERE for rule in block.rules):
        message = f"the block {block.name} has @where, which cannot be run in reverse"
        raise ServiceError("invalid_mapper", message, target="mapper")
    for each in mapper.blocks:
        if each.remove_all and not (each is block and is_whole):
            rows = "the rows that the export leaves out" if each is block else "all rows"
            message = f"{each.name}: the mapper has @removeAll, so that an import of the file would delete {rows}"
            raise ServiceError("unwritable", message, target="mapper")
    if mapper.format == "xml" and not _is_plain(block_paths(block.path.text)):
        message = f"the path of the block {block.name} has predicates, * or |, which cannot be run in reverse: {block.path.text!r}"
        raise ServiceError("invalid_mapper", message, target="mapper")
    reverse = ReverseBlock.of(mapper, block)
    return ProvedWriter(_writer(mapper, reverse), Proof(mapper, reverse))


def _writer(mapper: Mapper, reverse: ReverseBlock) -> ReverseWriter:
    if mapper.format == "xml":
        from app.mapper.reverse.xml_writer import XmlWriter

        return XmlWriter(mapper, reverse)
    if mapper.format == "json":
        from app.mapper.reverse.json_writer import JsonWriter

        return JsonWriter(mapper, reverse)
    from app.mapper.reverse.csv_writer import CsvWriter

    return CsvWriter(mapper, reverse)


def _is_plain(paths: tuple[XmlBlockPath, ...]) -> bool:
    return len(paths) == 1 and paths[0].is_plain


def _nested(block: Block) -> Iterator[Block]:
    for child in block.children:
        yield child
        yield from _nested(child)
