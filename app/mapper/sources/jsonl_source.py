"""Reads JSON Lines as they arrive: each line is a record of an import document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from app.mapper.language.problems import source_error
from app.mapper.language.tree import Block, Mapper
from app.mapper.sources.base import LARGEST_RECORD, Emit
from app.wire.decoding import InvalidJson, continue_arrays, decode

BOM = b"\xef\xbb\xbf"  # U+FEFF, which some programs put at the start of a text


class JsonlSource:
    """Reads the complete lines, and keeps an incomplete one for the next piece."""

    unit = "line"

    def __init__(self, mapper: Mapper, emit: Emit) -> None:
        self._collection = mapper.blocks[0].name
        self._children = frozenset(_names_inside(mapper.blocks[0]))
        self._emit = emit
        self._pending: list[bytes] = []  # pieces of the line that has not ended
        self._size = 0  # bytes of them
        self._line = 0  # lines before it

    def feed(self, data: bytes) -> None:
        """Read bytes; emit the records that they complete."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            self._read(b"".join([*self._pending, part]))
            self._pending, self._size = [], 0
        self._pending.append(rest)
        self._size += len(rest)
        if self._size > LARGEST_RECORD:
            message = f"a record is larger than {LARGEST_RECORD >> 20} MB"
            raise source_error(message, line=self._line + 1, code="invalid_document")

    def finish(self) -> Iterable[None]:
        """Read the last line, which needs no end."""
        self._read(b"".join(self._pending))
        return ()

    def close(self) -> None:
        """Nothing is held."""

    def _read(self, line: bytes) -> None:
        self._line += 1
        text = (line.removeprefix(BOM) if self._line == 1 else line).rstrip()
        if not text:
            return
        try:
            value, text = decode(text)
            record = continue_arrays(text, value, self._children)
        except InvalidJson as error:
            if error.position is None:
                message = "the record does not end on its line; a JSON document is imported without an entity"
                raise source_error(message, line=self._line) from None
            raise source_error(error.reason, line=self._line, column=error.position + (not error.is_trailing)) from None
        if not isinstance(record, dict):
            raise source_error("expected an object, the record of this line", line=self._line, code="invalid_document")
        self._emit(self._collection, record, self._line, ())


def _names_inside(block: Block) -> Iterator[str]:
    """The names of the child collections in a block's records."""
    for child in block.children:
        yield child.name
        yield from _names_inside(child)
