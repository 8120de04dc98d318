"""Cuts an import document, as its bytes arrive, into blocks of decoded records.

The document is an object of directives and collections.  Its skeleton is read here, byte by byte; the arrays of its collections
are cut into blocks of about BLOCK bytes (cutter.py), each decoded at once.  Memory is bounded by the block and by the largest
single record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from app.feed.buffer import Buffer
from app.feed.cutter import Cutter
from app.formats import not_a_document

BLOCK = 1 << 20  # bytes decoded at once
LARGEST_RECORD = 64 << 20  # bytes of one record
BOM = b"\xef\xbb\xbf"

_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s,{}\[\]"]+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Records:
    """Some records of one collection, in order."""

    collection: str
    records: list[Any]
    block: bytes  # the array that they were decoded from


@dataclass(frozen=True, slots=True)
class Directive:
    """A member of the document with an @ in its name."""

    name: str
    value: Any


class Document:
    """Reads a document: feed() its bytes, then finish(); both yield the parts that are complete.

    Both raise ServiceError `malformed_document` (with offset, line and column), `invalid_document` or `invalid_directive`.
    """

    def __init__(self, file: str | None = None) -> None:
        self._file = file  # its name, of which an error speaks
        self._buffer = Buffer()
        self._cutter = Cutter(self._buffer)
        self._state: Callable[[], Records | Directive | None] = self._start
        self._name = ""  # of the member that is read
        self._first = True  # of the object's members, or of the array's records

    def feed(self, data: bytes) -> Iterator[Records | Directive]:
        """Add bytes; yield the parts that they complete."""
        self._buffer.data += data
        yield from self._advance()

    def finish(self) -> Iterator[Records | Directive]:
        """Yield the last parts of the document, which has no more bytes."""
        self._buffer.is_complete = True
        yield from self._advance()
        if self._state != self._end:
            raise self._buffer.malformed(len(self._buffer.data), "unexpected end of the document")

    # Each state is a method that consumes what it can and sets the next state.  It stays as it is until more bytes arrive.

    def _advance(self) -> Iterator[Records | Directive]:
        while True:
            state, before = self._state, len(self._buffer.data)
            found = state()
            if found is not None:
                yield found
            elif self._state == state and len(self._buffer.data) == before:
                return

    def _start(self) -> None:
        if self._buffer.data.startswith(BOM):
            self._buffer.consume(len(BOM))
        if self._buffer.skip_space():
            self._buffer.expect(b"{", not_a_document(self._file))
            self._state, self._first = self._member, True

    def _member(self) -> None:
        if not self._buffer.skip_space():
            return
        if self._buffer.data[:1] == b"}":
            self._buffer.consume(1)
            self._state = self._end
            return
        if not self._first:
            self._buffer.expect(b",", "expected , or }")
        self._state = self._member_name

    def _member_name(self) -> None:
        if not self._buffer.skip_space():
            return
        if self._buffer.data[:1] != b'"':
            raise self._buffer.malformed(0, "expected the name of a collection or directive, in double quotes")
        name = self._scalar()
        if name is not None:
            self._name, self._state = str(name), self._colon

    def _colon(self) -> None:
        if self._buffer.skip_space():
            self._buffer.expect(b":", "expected :")
            self._state = self._value

    def _value(self) -> Records | Directive | None:
        if not self._buffer.skip_space():
            return None
        opening = bytes(self._buffer.data[:1])
        if "@" in self._name:
            return self._directive(opening)
        if opening == b"[":
            self._buffer.consume(1)
            self._cutter.start_array()
            self._state, self._first = self._array, True
            return Records(self._name, [], b"[]")
        if opening == b"{":
            return self._single_object()
        if opening == b"n":
            before = len(self._buffer.data)
            value = self._scalar()
            if len(self._buffer.data) == before:
                return None
            if value is None:
                self._after_value()
                return Records(self._name, [], b"[]")
        raise self._buffer.error("invalid_document", 0, f"expected an array of records for {self._name}")

    def _directive(self, opening: bytes) -> Directive | None:
        if opening in (b"{", b"["):
            raise self._buffer.error("invalid_directive", 0, f"{self._name}: expected a single value", self._name)
        before = len(self._buffer.data)
        value = self._scalar()
        if len(self._buffer.data) == before:
            return None
        self._after_value()
        return Directive(self._name, value)

    def _after_value(self) -> None:
        self._state, self._first = self._member, False

    def _end(self) -> None:
        if self._buffer.skip_space():
            raise self._buffer.malformed(0, "expected the end of the document after its }")

    def _scalar(self) -> Any:
        """Consume and return a string, number or word; leave the buffer as it is if the value is incomplete."""
        data, is_complete = self._buffer.data, self._buffer.is_complete
        match = _SCALAR.match(data)
        if match is None and (is_complete or data[:1] != b'"' or len(data) > LARGEST_RECORD):
            raise self._buffer.malformed(0, "expected a value")
        if match is None or (match.end() == len(data) and not is_complete):
            return None
        value, _ = self._buffer.decode(bytes(match[0]))
        self._buffer.consume(match.end())
        return value

    def _single_object(self) -> Records | None:
        """An object in place of an array is an array of one record."""
        taken = self._cutter.take_object()
        if taken is None:
            self._require_more(b"", "the document ends inside an object")
            return None
        self._after_value()
        return Records(self._name, *taken)

    def _array(self) -> None:
        """Before a record, or at the end of the array."""
        if not self._buffer.skip_space():
            return
        if self._buffer.data[:1] == b"]":
            self._buffer.consume(1)
            self._after_value()
            return
        if not self._first:
            self._buffer.expect(b",", "expected , or ]")
        self._state = self._records

    def _records(self) -> Records | None:
        """At the beginning of a record: take all whole records of a block."""
        if not self._buffer.skip_space() or (len(self._buffer.data) < BLOCK and not self._buffer.is_complete):
            return None
        taken = self._cutter.take_records()
        if taken is None:
            self._require_more(b"[", "the document ends inside an array")
            return None
        self._state, self._first = self._array, False
        return Records(self._name, *taken)

    def _require_more(self, prefix: bytes, reason: str) -> None:
        """Raises ServiceError if the incomplete record cannot be completed, or is too large."""
        if self._buffer.is_complete:
            self._buffer.decode(prefix + bytes(self._buffer.data), len(prefix))  # raises the exact error, if there is one
            raise self._buffer.malformed(len(self._buffer.data), reason)
        if len(self._buffer.data) > LARGEST_RECORD:
            raise self._buffer.error("invalid_document", 0, f"a record of {self._name} is larger than {LARGEST_RECORD >> 20} MB")
