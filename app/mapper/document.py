"""A mapped source as an import document: bytes of the source go in, bytes of the document come out, a record at a time."""

from __future__ import annotations

import json
import tempfile
from array import array
from collections.abc import Sequence
from typing import IO, Any

import msgspec

from app.errors import ServiceError
from app.mapper.language.tree import Block, Mapper
from app.mapper.sources.open import open_source

KEPT = 1 << 20  # places of one collection that are kept in memory, 8 bytes each

_encode = msgspec.json.Encoder().encode


class Mapped:
    """The import document of a source, and where in the source each of its records stands."""

    def __init__(self, mapper: Mapper, charset: str | None = None) -> None:
        self._source = open_source(mapper, self._add, charset)
        self._records: dict[str, list[dict[str, Any]]] = {block.name: [] for block in mapper.blocks}
        self._places = {block.name: _Places() for block in mapper.blocks}
        self._head = _head(mapper)

    def feed(self, data: bytes) -> bytes:
        """The part of the document that these bytes of the source complete.  Raises ServiceError."""
        self._source.feed(data)
        return self._take()

    def finish(self) -> bytes:
        """The document's end.  Raises ServiceError."""
        self._source.finish()
        return self._take() + b"}\n"

    def close(self) -> None:
        """Nothing more will be read."""
        self._source.close()

    def place(self, collection: str, position: int, child: int | None = None) -> str | None:
        """Where in the source the collection's record at a position (from 0) stands, or its child at one: "line 17"."""
        places = self._places.get(collection)
        number = places.get(position, child) if places is not None else None
        return None if number is None else f"{self._source.unit} {number}"

    def _add(self, collection: str, record: dict[str, Any], number: int, inside: Sequence[int]) -> None:
        self._records[collection].append(record)
        self._places[collection].append(number, inside)

    def _take(self) -> bytes:
        parts, self._head = [self._head], b""
        for collection, records in self._records.items():
            if records:
                parts.append(b',\n"%b":%b' % (collection.encode(), _encode(records)))
                records.clear()
        return b"".join(parts)


class Preview:
    """The first records of each collection, as an import document."""

    def __init__(self, mapper: Mapper, limit: int, charset: str | None = None) -> None:
        self._source = open_source(mapper, self._add, charset)
        self._limit = limit
        self._document: dict[str, Any] = json.loads(_head(mapper) + b"}")
        self._full = dict.fromkeys((block.name for block in mapper.blocks), False)

    def feed(self, data: bytes) -> bool:
        """Take in bytes of the source; whether more of them are of use.  Raises ServiceError."""
        try:
            self._source.feed(data)
        except ServiceError:
            if not all(self._full.values()):  # what comes after the last record that is asked for does not matter
                raise
        return not all(self._full.values())

    def finish(self) -> bytes:
        """The document, of a source that was read as far as needed."""
        if not all(self._full.values()):
            self._source.finish()
        return msgspec.json.format(_encode(self._document), indent=2) + b"\n"

    def close(self) -> None:
        """Nothing more will be read."""
        self._source.close()

    def _add(self, collection: str, record: dict[str, Any], _number: int, _inside: Sequence[int]) -> None:
        records = self._document[collection]
        if len(records) < self._limit:
            records.append(record)
        self._full[collection] = len(records) >= self._limit


def _head(mapper: Mapper) -> bytes:
    """The document's beginning: its directives, and every collection, which may get records afterwards."""
    members: dict[str, Any] = {}
    if mapper.atomic is not None:
        members["@atomic"] = mapper.atomic
    if mapper.mode is not None:
        members["@mode"] = mapper.mode
    for block in mapper.blocks:
        members[block.name] = []
        _remove_all(members, block)
    return _encode(members)[:-1]


def _remove_all(members: dict[str, Any], block: Block) -> None:
    if block.remove_all is not None:
        members[block.name + "@removeAll"] = block.remove_all


class _Places:
    """Where each record stands, and each of its children where these have places of their own."""

    def __init__(self) -> None:
        self._records = _Numbers()
        self._inside = _Numbers()
        self._ends = _Numbers()  # for each record how many children there are up to its last one

    def append(self, number: int, inside: Sequence[int]) -> None:
        self._records.append(number)
        for each in inside:
            self._inside.append(each)
        if inside or self._inside.count:
            while self._ends.count < self._records.count - 1:  # records before the first children
                self._ends.append(0)
            self._ends.append(self._inside.count)

    def get(self, position: int, child: int | None) -> int | None:
        if child is not None and position < self._ends.count:
            at = (self._ends.get(position - 1) or 0 if position else 0) + child
            if at < (self._ends.get(position) or 0):
                return self._inside.get(at)
        return self._records.get(position)


class _Numbers:
    """A list of numbers, which beyond the first ones is kept in a file."""

    def __init__(self) -> None:
        self._recent = array("Q")
        self._file: IO[bytes] | None = None
        self._filed = 0

    @property
    def count(self) -> int:
        return self._filed + len(self._recent)

    def append(self, number: int) -> None:
        self._recent.append(number)
        if len(self._recent) >= KEPT:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 for as long as the import lasts
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
