"""Converts a source into an import document: source bytes in, document bytes out, one record at a time."""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Iterator, Sequence
from typing import IO, Any

import msgspec

from app.errors import ServiceError
from app.mapper.language.tree import Mapper
from app.mapper.sources.open import LARGEST, open_source

IN_MEMORY = 1 << 20  # numbers of a list that are kept in memory, 8 bytes each

_encode = msgspec.json.Encoder().encode


class SourceConverter:
    """Converts a source into an import document, and tells the source position of each record.  limit: as of open_source."""

    def __init__(self, mapper: Mapper, charset: str | None = None, limit: int = LARGEST) -> None:
        self._source = open_source(mapper, self._add, charset, limit)
        self._records: dict[str, list[dict[str, Any]]] = {block.name: [] for block in mapper.blocks}
        self._numbers = {block.name: _RecordNumbers() for block in mapper.blocks}
        self._head = _head(mapper)

    def feed(self, data: bytes) -> bytes:
        """Return the part of the document that these source bytes complete.  Raises ServiceError."""
        self._source.feed(data)
        return self._take()

    def finish(self) -> Iterator[bytes]:
        """Yield the rest of the document.  Raises ServiceError."""
        for _ in self._source.finish():
            yield self._take()
        yield self._take() + b"}\n"

    def close(self) -> None:
        """Release the reader's resources."""
        self._source.close()

    def source_position(self, collection: str, number: int, child: int | None = None) -> str | None:
        """Return the source position of a collection's record (counted from 0), or of its child: "line 17"."""
        numbers = self._numbers.get(collection)
        found = numbers.get(number, child) if numbers is not None else None
        return None if found is None else f"{self._source.unit} {found}"

    def _add(self, collection: str, record: dict[str, Any], number: int, child_numbers: Sequence[int]) -> None:
        self._records[collection].append(record)
        self._numbers[collection].append(number, child_numbers)

    def _take(self) -> bytes:
        parts, self._head = [self._head], b""
        for collection, records in self._records.items():
            if records:
                parts.append(b',\n"%b":%b' % (collection.encode(), _encode(records)))
                records.clear()
        return b"".join(parts)


class Preview:
    """The first records of each collection, as an import document."""

    def __init__(self, mapper: Mapper, limit: int, charset: str | None = None, largest: int = LARGEST) -> None:
        self._source = open_source(mapper, self._add, charset, largest)
        self._left = self._largest = largest  # bytes
        self._limit = limit
        self._document: dict[str, Any] = json.loads(_head(mapper) + b"}")
        self._full = dict.fromkeys((block.name for block in mapper.blocks), False)

    def feed(self, data: bytes) -> bool:
        """Read source bytes; return whether the preview needs more.  Raises ServiceError."""
        self._left -= len(data)
        if self._left < 0:
            raise ServiceError("too_large", f"the source is larger than {self._largest} bytes")
        try:
            self._source.feed(data)
        except ServiceError:
            if not all(self._full.values()):  # errors after the last record of the preview are ignored
                raise
        return not all(self._full.values())

    def finish(self) -> bytes:
        """Return the document.  Raises ServiceError if the source ends too early."""
        if not all(self._full.values()):
            for _ in self._source.finish():
                if all(self._full.values()):
                    break
        return msgspec.json.format(_encode(self._document), indent=2) + b"\n"

    def close(self) -> None:
        """Release the reader's resources."""
        self._source.close()

    def _add(self, collection: str, record: dict[str, Any], _number: int, _child_numbers: Sequence[int]) -> None:
        records = self._document[collection]
        if len(records) < self._limit:
            records.append(record)
        self._full[collection] = len(records) >= self._limit


def _head(mapper: Mapper) -> bytes:
    """The start of the document: its directives and an empty array for each collection, which may be repeated with records."""
    members: dict[str, Any] = {}
    if mapper.atomic is not None:
        members["@atomic"] = mapper.atomic
    if mapper.mode is not None:
        members["@mode"] = mapper.mode
    for block in mapper.blocks[:1] if mapper.is_exported else mapper.blocks:
        members[block.name] = []
        if block.remove_all is not None:
            members[block.name + "@removeAll"] = block.remove_all
    return _encode(members)[:-1]


class _RecordNumbers:
    """The line or element number of each record, and of each child that has its own."""

    def __init__(self) -> None:
        self._records = _NumberList()
        self._children = _NumberList()
        self._ends = _NumberList()  # for each record the number of children up to and including its own

    def append(self, number: int, child_numbers: Sequence[int]) -> None:
        self._records.append(number)
        for each in child_numbers:
            self._children.append(each)
        if child_numbers or self._children.count:
            while self._ends.count < self._records.count - 1:  # records before the first one with children
                self._ends.append(0)
            self._ends.append(self._children.count)

    def get(self, position: int, child: int | None) -> int | None:
        if child is not None and position < self._ends.count:
            at = (self._ends.get(position - 1) or 0 if position else 0) + child
            if at < (self._ends.get(position) or 0):
                return self._children.get(at)
        return self._records.get(position)


class _NumberList:
    """A list of numbers that moves to a temporary file in blocks of IN_MEMORY."""

    def __init__(self) -> None:
        self._recent = array("Q")
        self._file: IO[bytes] | None = None
        self._filed = 0

    @property
    def count(self) -> int:
        return self._filed + len(self._recent)

    def append(self, number: int) -> None:
        self._recent.append(number)
        if len(self._recent) >= IN_MEMORY:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 lives as long as the import
            self._file.seek(0, 2)
            self._recent.tofile(self._file)
            self._filed += len(self._recent)
            self._recent = array("Q")

    def get(self, position: int) -> int | None:
        if position >= self._filed:
            after = position - self._filed
            return self._recent[after] if after < len(self._recent) else None
        assert self._file is not None
        self._file.seek(position * 8)
        found = array("Q")
        found.frombytes(self._file.read(8))
        return found[0]
