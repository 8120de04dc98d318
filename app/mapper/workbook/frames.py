"""Frames of rows between the child that reads a workbook and the process that imports it: msgpack, after four bytes of length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec

ROWS, COLUMNS = 1_048_576, 16_384  # of a worksheet
LONGEST_CELL = 32_767  # UTF-16 units of a cell's text, as Excel counts characters
LENGTH = 4  # bytes

Row = tuple[int, list[Any]]  # number, cells: text, int, Decimal, bool, date, datetime, time, TooLong or None


@dataclass(frozen=True, slots=True)
class TooLong:
    """Stands for a cell with a longer text than a cell holds."""

    units: int

    def __str__(self) -> str:
        return f"expected at most {LONGEST_CELL:,} characters, as a cell of Excel holds them, got {self.units:,}"


READERS: dict[int, tuple[type, Any]] = {
    1: (Decimal, Decimal),
    2: (datetime, datetime.fromisoformat),
    3: (date, date.fromisoformat),
    4: (time, time.fromisoformat),
    5: (TooLong, lambda text: TooLong(int(text))),
}
CODES = {type: code for code, (type, _) in READERS.items()}


def packed(value: Any) -> Any:
    """Return a cell's value as a frame holds it: msgspec alone would make plain texts of decimals and dates."""
    code = CODES.get(type(value))
    if code is None:
        return value
    text = str(value.units) if isinstance(value, TooLong) else str(value) if isinstance(value, Decimal) else value.isoformat()
    return msgspec.msgpack.Ext(code, text.encode())


def _value(code: int, data: memoryview) -> Any:
    return READERS[code][1](str(data, "ascii"))


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ext_hook=_value).decode


def pack(rows: Sequence[Row] | None) -> bytes:
    """Return the frame of rows, whose cells are packed; None begins a worksheet."""
    data = _encode(rows)
    return len(data).to_bytes(LENGTH, "big") + data


class Unpacker:
    """Takes bytes as they arrive, gives the frames that they complete."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[list[Row] | None]:
        self._data += data
        while len(self._data) >= LENGTH:
            end = LENGTH + int.from_bytes(self._data[:LENGTH], "big")
            if len(self._data) < end:
                return
            frame = bytes(self._data[LENGTH:end])
            del self._data[:end]
            yield _decode(frame)
