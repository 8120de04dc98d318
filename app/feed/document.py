"""Cuts an import document, as its bytes arrive, into blocks of decoded records.

The document is an object of directives and collections.  Its skeleton is read byte by byte; a collection's array is cut at record
boundaries and each piece decoded at once.  The cut looks for the last place in the buffer where one object ends and the next
begins, and decodes what is before it as an array: no proper prefix of a JSON array is itself valid, so a piece that decodes was
cut rightly.  Where a few such places fail (the objects were nested, or text), every bracket is followed instead, from where that
stopped the last time.  Memory is bounded by the block and by the largest single record.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from app.errors import ServiceError

BLOCK = 1 << 20  # bytes that are decoded at once
LARGEST_RECORD = 64 << 20  # bytes of one record
GUESSES = 4  # boundaries tried before the buffer is scanned
SPACE = b" \t\n\r"
BOM = b"\xef\xbb\xbf"

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]"]', re.DOTALL)  # a lone " begins a text that has not ended yet
_POSITION = re.compile(r"\(byte (\d+)\)$")
_SCALAR = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^\s,{}\[\]"]+', re.DOTALL)

_decode = msgspec.json.Decoder(float_hook=str).decode  # numbers keep every digit: the database reads them


@dataclass(frozen=True, slots=True)
class Records:
    """Some records of one collection, in order.  `odd`: text in them may hold control characters that were written as escapes."""

    collection: str
    records: list[Any]
    odd: bool


@dataclass(frozen=True, slots=True)
class Directive:
    """A member of the document whose name holds an @."""

    name: str
    value: Any


class Document:
    """feed() bytes, take what is complete; finish() when there are no more.

    Raises ServiceError `malformed_document` (with offset, line and column) or `invalid_document`.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._offset = 0  # of the buffer's first byte in the document
        self._line = 1
        self._column = 1  # of the buffer's first byte
        self._at: Callable[[], Records | Directive | None] = self._start
        self._name = ""
        self._first = True  # of the array's records, or of the object's members
        self._separator = b""  # the last boundary that was right, with what followed it: the first guess for the next
        self._scanned = self._depth = self._whole = (
            0  # how far the brackets were followed, in what depth, the last whole record's end
        )
        self._decoded: tuple[int, bytes, list[Any]] | None = None  # what a guess has read: its length, itself, its records
        self._ended = False

    def feed(self, data: bytes) -> Iterator[Records | Directive]:
        """Take in bytes; yield what they complete."""
        self._buffer += data
        yield from self._advance()

    def finish(self) -> Iterator[Records | Directive]:
        """There are no more bytes."""
        self._ended = True
        yield from self._advance()
        if self._at != self._end:
            raise self._malformed(len(self._buffer), "the document ends before its end")

    # The skeleton: each state is a method that consumes what it can, sets the next state and says whether to go on.

    def _advance(self) -> Iterator[Records | Directive]:
        while True:
            state, before = self._at, len(self._buffer)
            found = state()
            if found is not None:
                yield found
            elif self._at == state and len(self._buffer) == before:
                return

    def _start(self) -> None:
        if self._buffer.startswith(BOM):
            self._consume(len(BOM))
        if self._skip_space() and self._expect(b"{", "an import document is a JSON object"):
            self._at, self._first = self._member, True

    def _member(self) -> None:
        if not self._skip_space():
            return
        if self._buffer[:1] == b"}":
            self._consume(1)
            self._at = self._end
            return
        if not self._first:
            self._expect(b",", "expected , or }")
        self._at = self._member_name

    def _member_name(self) -> None:
        if not self._skip_space():
            return
        if self._buffer[:1] != b'"':
            raise self._malformed(0, "expected the name of a collection or directive, in double quotes")
        name = self._scalar()
        if name is not None:
            self._name, self._at = str(name), self._colon

    def _colon(self) -> None:
        if self._skip_space() and self._expect(b":", "expected :"):
            self._at = self._value

    def _value(self) -> Records | Directive | None:
        if not self._skip_space():
            return None
        opening = bytes(self._buffer[:1])
        if "@" in self._name:
            if opening in (b"{", b"["):
                raise ServiceError(
                    "invalid_directive", f"{self._name}: expected a single value", target=self._name, **self._place(0)
                )
            before = len(self._buffer)
            value = self._scalar()
            if len(self._buffer) == before:
                return None
            self._after_value()
            return Directive(self._name, value)
        if opening == b"[":
            self._consume(1)
            self._at, self._first, self._separator = self._array, True, b""
            return Records(self._name, [], False)
        if opening == b"{":
            return self._single_object()
        if opening == b"n":
            before = len(self._buffer)
            value = self._scalar()
            if len(self._buffer) == before:
                return None
            if value is None:
                self._after_value()
                return Records(self._name, [], False)
        raise ServiceError("invalid_document", f"expected an array of records for {self._name}", **self._place(0))

    def _after_value(self) -> None:
        self._at, self._first = self._member, False

    def _end(self) -> None:
        if self._skip_space():
            raise self._malformed(0, "expected nothing more after the document's }")

    def _scalar(self) -> Any:
        """Consume a string, number or word if it is there whole; otherwise leave the buffer as it is."""
        match = _SCALAR.match(self._buffer)
        if match is None and (self._ended or self._buffer[:1] != b'"' or len(self._buffer) > LARGEST_RECORD):
            raise self._malformed(0, "expected a value")
        if match is None or (match.end() == len(self._buffer) and not self._ended):
            return None
        value = self._decode_exact(bytes(match[0]), 0)
        self._consume(match.end())
        return value

    def _single_object(self) -> Records | None:
        """An object where an array is expected is an array of one."""
        cut = self._scan(single=True)
        if cut is None:
            self._wait_for_more(b"", "the document ends inside an object")
            return None
        block = bytes(self._buffer[: cut[0]])
        record = self._decode_exact(block, 0)
        self._consume(cut[0])
        self._after_value()
        return Records(self._name, [record], _is_odd(block))

    # Arrays.

    def _array(self) -> None:
        if not self._skip_space():
            return
        if self._buffer[:1] == b"]":
            self._consume(1)
            self._after_value()
            return
        if not self._first:
            self._expect(b",", "expected , or ]")
        self._at = self._records

    def _records(self) -> Records | None:
        """At the beginning of a record: take as many as are there whole."""
        if not self._skip_space() or (len(self._buffer) < BLOCK and not self._ended):
            return None
        cut = self._guess() or self._scan()
        if cut is None:
            self._wait_for_more(b"[", "the document ends inside an array")
            return None
        return self._emit(*cut)

    def _wait_for_more(self, prefix: bytes, reason: str) -> None:
        """A record is not there whole.  Raises if it never will be."""
        if self._ended:
            self._decode_exact(prefix + bytes(self._buffer), len(prefix))  # raises what is wrong with it
            raise self._malformed(len(self._buffer), reason)
        if len(self._buffer) > LARGEST_RECORD:
            message = f"a record of {self._name} is larger than {LARGEST_RECORD >> 20} MB"
            raise ServiceError("invalid_document", message, **self._place(0))

    def _guess(self) -> tuple[int, bool] | None:
        """(length, whether the array ends there) of the records before one of the last boundaries, decoded by the way."""
        tried, end = 0, len(self._buffer)
        while tried < GUESSES:
            cut = self._last_boundary(end)
            if cut is None:
                return None
            tried, end = tried + 1, cut
            block = self._as_array(cut)
            try:
                self._decoded = cut, block, _decode(block)
                return cut, False
            except msgspec.DecodeError as error:
                body = block[1:-1]
                end_of_array = _closing_bracket(error, body)
                if end_of_array is not None:
                    return end_of_array, True
                position = _position(error)
                if position is not None and position <= len(body) and not isinstance(error, msgspec.ValidationError):
                    raise self._malformed(position - 1, str(error)) from None
                if isinstance(error, msgspec.ValidationError):
                    raise self._malformed(0, str(error)) from None
            except (UnicodeDecodeError, RecursionError) as error:
                raise self._malformed(_invalid_utf8(block) - 1, _reason(error)) from None
        return None

    def _as_array(self, length: int) -> bytes:
        """The records at the beginning of the buffer in brackets, copied once."""
        with memoryview(self._buffer) as buffer:
            return b"".join((b"[", buffer[:length], b"]"))

    def _last_boundary(self, end: int) -> int | None:
        """Length up to the last object before `end` that another follows; the boundary that was right before is tried first."""
        if self._separator:
            at = self._buffer.rfind(self._separator, 0, end)
            if at > 0:
                return at + 1
        at = end
        while (at := self._buffer.rfind(b"{", 0, at)) > 0:
            before = bytes(self._buffer[max(0, at - 64) : at]).rstrip(SPACE)
            if before.endswith(b",") and before[:-1].rstrip(SPACE).endswith(b"}"):
                length = at - (min(64, at) - len(before[:-1].rstrip(SPACE)))
                if length < end:
                    return length
        return None

    def _scan(self, single: bool = False) -> tuple[int, bool] | None:
        """(length, whether the array ends there) of the records that are there whole, or of the first one alone.

        Follows every bracket from where it stopped: slower than guessing, and never wrong.
        """
        for token in _TOKEN.finditer(self._buffer, self._scanned):
            kind = token[0]
            if kind == b'"':
                break
            self._scanned = token.end()
            if kind in (b"{", b"["):
                self._depth += 1
            elif kind in (b"}", b"]"):
                self._depth -= 1
                if self._depth < 0:
                    return token.start(), True
                if self._depth == 0:
                    self._whole = token.end()
                    if single:
                        break
        return (self._whole, False) if self._whole else None

    def _emit(self, length: int, is_end: bool) -> Records | None:
        decoded, self._decoded = self._decoded, None
        if decoded is not None and decoded[0] == length:
            _, block, records = decoded
        else:
            block = self._as_array(length)
            records = self._decode_exact(block, 1)
        if not records:
            raise self._malformed(0, "expected a record")
        if not is_end:
            self._learn(length)
        self._consume(length)
        self._at, self._first = self._array, False
        return Records(self._name, records, _is_odd(block))

    def _learn(self, length: int) -> None:
        """Remember the boundary with the first name of the record after it: nested objects seldom begin alike."""
        following = bytes(self._buffer[length : length + 200])
        match = re.match(rb'[ \t\n\r]*,[ \t\n\r]*\{[ \t\n\r]*"(?:[^"\\]|\\.)*"', following)
        self._separator = b"}" + match[0] if match else b""

    # The buffer.

    def _skip_space(self) -> bool:
        """Consume white space; whether anything is left."""
        stripped = self._buffer.lstrip(SPACE) if self._buffer[:1].isspace() else self._buffer
        self._consume(len(self._buffer) - len(stripped))
        return bool(self._buffer)

    def _expect(self, character: bytes, expected: str) -> bool:
        if self._buffer[:1] != character:
            raise self._malformed(0, expected)
        self._consume(1)
        return True

    def _consume(self, length: int) -> None:
        if not length:
            return
        lines = self._buffer.count(b"\n", 0, length)
        if lines:
            self._line += lines
            self._column = length - self._buffer.rindex(b"\n", 0, length)
        else:
            self._column += length
        self._offset += length
        self._scanned = self._depth = self._whole = 0
        del self._buffer[:length]

    def _decode_exact(self, block: bytes, prefix: int) -> Any:
        try:
            return _decode(block)
        except msgspec.ValidationError as error:
            raise self._malformed(0, str(error)) from None
        except msgspec.DecodeError as error:
            position = _position(error)
            raise self._malformed((len(block) if position is None else position) - prefix, str(error)) from None
        except (UnicodeDecodeError, RecursionError) as error:
            raise self._malformed(_invalid_utf8(block) - prefix, _reason(error)) from None

    def _place(self, at: int) -> dict[str, Any]:
        before = bytes(self._buffer[: max(at, 0)])
        lines = before.count(b"\n")
        column = len(before) - before.rindex(b"\n") if lines else self._column + len(before)
        return {"offset": self._offset + len(before), "line": self._line + lines, "column": column}

    def _malformed(self, at: int, reason: str) -> ServiceError:
        place = self._place(at)
        reason = _POSITION.sub("", reason).removeprefix("JSON is malformed: ").strip()
        return ServiceError(
            "malformed_document", f"line {place['line']}, column {place['column']} (byte {place['offset']}): {reason}", **place
        )


def _position(error: Exception) -> int | None:
    match = _POSITION.search(str(error))
    return int(match[1]) if match else None


def _closing_bracket(error: Exception, body: bytes) -> int | None:
    """Where in the body its array closes, if the error of decoding "[" + body is that something follows the array."""
    position = _position(error)
    return body.rindex(b"]", 0, position - 1) if position is not None and "trailing characters" in str(error) else None


def _invalid_utf8(block: bytes) -> int:
    try:
        block.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0


def _reason(error: UnicodeDecodeError | RecursionError) -> str:
    return "arrays and objects are nested too deeply" if isinstance(error, RecursionError) else "the text is not valid UTF-8"


def _is_odd(block: bytes) -> bool:
    return b"\\" in block and b"\\u00" in block
