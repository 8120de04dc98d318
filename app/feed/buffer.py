"""The bytes of a document that have arrived and are not consumed yet, and their position in the document."""

from __future__ import annotations

from typing import Any

from app.errors import ServiceError
from app.wire.decoding import InvalidJson, decode

SPACE = b" \t\n\r"


class Buffer:
    """Bytes to read from the front.  Positions given to its methods count from the first byte that is not consumed."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_complete = False  # the document has no more bytes than these
        self._offset = 0  # of the first byte in the document
        self._line = 1
        self._column = 1  # of the first byte

    def skip_space(self) -> bool:
        """Consume white space; return whether anything is left."""
        stripped = self.data.lstrip(SPACE) if self.data[:1].isspace() else self.data
        self.consume(len(self.data) - len(stripped))
        return bool(self.data)

    def expect(self, character: bytes, expected: str) -> None:
        """Consume one character.  Raises `malformed_document` with the message `expected` if another one is next."""
        if self.data[:1] != character:
            raise self.malformed(0, expected)
        self.consume(1)

    def consume(self, length: int) -> None:
        """Drop bytes from the front."""
        if not length:
            return
        lines = self.data.count(b"\n", 0, length)
        if lines:
            self._line += lines
            self._column = length - self.data.rindex(b"\n", 0, length)
        else:
            self._column += length
        self._offset += length
        del self.data[:length]

    def decode(self, block: bytes, prefix: int = 0) -> tuple[Any, bytes]:
        """What `decode` gives for a block from the front, before which `prefix` bytes were put.  Raises `malformed_document`."""
        try:
            return decode(block)
        except InvalidJson as error:
            at = len(block) if error.position is None else error.position
            raise self.malformed(at - prefix, error.reason) from None

    def malformed(self, at: int, reason: str) -> ServiceError:
        """The error `malformed_document` at a byte."""
        return self.error("malformed_document", at, reason)

    def error(self, code: str, at: int, reason: str, target: str | None = None) -> ServiceError:
        """An error at a byte, with its position in the document: offset from 0, line and column from 1."""
        position = self._position(at)
        message = f"line {position['line']}, column {position['column']} (byte {position['offset']}): {reason}"
        return ServiceError(code, message, target=target, **position)

    def _position(self, at: int) -> dict[str, Any]:
        before = bytes(self.data[: max(at, 0)])
        lines = before.count(b"\n")
        column = len(before) - before.rindex(b"\n") if lines else self._column + len(before)
        return {"offset": self._offset + len(before), "line": self._line + lines, "column": column}
