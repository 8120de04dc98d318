"""Cuts the array of a collection into blocks of whole records.

A cut is first guessed: at the last place in the buffer where one object ends and another begins.  The bytes before it are decoded
as an array; no proper prefix of a JSON array is itself valid, so a block that decodes was cut correctly.  If GUESSES cuts fail
(they were inside nested objects, or inside text), every bracket is followed instead, from where the last scan stopped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from app.feed.buffer import SPACE, Buffer
from app.wire.decoding import InvalidJson, decode

GUESSES = 4  # cuts tried before the buffer is scanned

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]"]', re.DOTALL)  # a single " begins a text that has not ended yet


@dataclass(frozen=True, slots=True)
class _Cut:
    length: int  # bytes of whole records at the front of the buffer
    is_end: bool = False  # the array closes there
    decoded: tuple[list[Any], bytes] | None = None  # what a guess has decoded: the records, and the array of them


class Cutter:
    """Takes whole records from the front of a buffer.  Raises ServiceError `malformed_document`."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._separator = b""  # the last correct cut, with the bytes after it: the first guess for the next
        self._scanned = 0  # bytes whose brackets were followed
        self._depth = 0  # brackets open there
        self._whole = 0  # end of the last whole record found

    def start_array(self) -> None:
        """Forget what records of the array before looked like."""
        self._separator = b""

    def take_records(self) -> tuple[list[Any], bytes] | None:
        """(records, the array that they were decoded from) of all whole records; None if the first is incomplete."""
        cut = self._guess() or self._scan()
        if cut is None:
            return None
        records, block = cut.decoded or self._buffer.decode(self._as_array(cut.length), 1)
        if not records:
            raise self._buffer.malformed(0, "expected a record")
        if not cut.is_end:
            self._learn(cut.length)
        self._consume(cut.length)
        return records, block

    def take_object(self) -> tuple[list[Any], bytes] | None:
        """The same for the one object at the front of the buffer, as an array of one."""
        cut = self._scan(single=True)
        if cut is None:
            return None
        record, block = self._buffer.decode(bytes(self._buffer.data[: cut.length]))
        self._consume(cut.length)
        return [record], b"[%b]" % block

    def _consume(self, length: int) -> None:
        self._buffer.consume(length)
        self._scanned = self._depth = self._whole = 0

    def _guess(self) -> _Cut | None:
        """A cut before one of the last boundaries, with the decoded records."""
        tried, end = 0, len(self._buffer.data)
        while tried < GUESSES:
            length = self._last_boundary(end)
            if length is None:
                return None
            tried, end = tried + 1, length
            block = self._as_array(length)
            try:
                return _Cut(length, decoded=decode(block))
            except InvalidJson as error:
                if error.is_trailing:
                    return _Cut(block.rindex(b"]", 0, error.position) - 1, is_end=True)
                if error.position is not None and error.position <= length:  # else only the added ] is wrong: another cut may do
                    raise self._buffer.malformed(error.position - 1, error.reason) from None
        return None

    def _as_array(self, length: int) -> bytes:
        """The bytes at the front of the buffer in brackets, copied once."""
        with memoryview(self._buffer.data) as data:
            return b"".join((b"[", data[:length], b"]"))

    def _last_boundary(self, end: int) -> int | None:
        """Length up to the last object before `end` that another object follows; the separator of the last cut is tried first."""
        data = self._buffer.data
        if self._separator:
            at = data.rfind(self._separator, 0, end)
            if at > 0:
                return at + 1
        at = end
        while (at := data.rfind(b"{", 0, at)) > 0:
            before = bytes(data[max(0, at - 64) : at]).rstrip(SPACE)
            if before.endswith(b",") and before[:-1].rstrip(SPACE).endswith(b"}"):
                length = at - (min(64, at) - len(before[:-1].rstrip(SPACE)))
                if length < end:
                    return length
        return None

    def _scan(self, single: bool = False) -> _Cut | None:
        """The cut after the last whole record, or after the first one if `single`: slower than guessing, and never wrong."""
        for token in _TOKEN.finditer(self._buffer.data, self._scanned):
            kind = token[0]
            if kind == b'"':
                break
            self._scanned = token.end()
            if kind in (b"{", b"["):
                self._depth += 1
            elif kind in (b"}", b"]"):
                self._depth -= 1
                if self._depth < 0:
                    return _Cut(token.start(), is_end=True)
                if self._depth == 0:
                    self._whole = token.end()
                    if single:
                        break
        return _Cut(self._whole) if self._whole else None

    def _learn(self, length: int) -> None:
        """Remember the boundary with the first name of the record after it: nested objects seldom begin with the same name."""
        following = bytes(self._buffer.data[length : length + 200])
        match = re.match(rb'[ \t\n\r]*,[ \t\n\r]*\{[ \t\n\r]*"(?:[^"\\]|\\.)*"', following)
        self._separator = b"}" + match[0] if match else b""
