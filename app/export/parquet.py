"""The Parquet file format, as far as flat tables need it: columns in row groups, compressed with zstd.

A file is the magic number, row groups, the footer, its length and the magic number.  A row group holds for each column one chunk: a
dictionary page if texts repeat, then one data page.  Every column may be null.  Headers and footer are Thrift structures in the
compact protocol: here pairs of a type code and bytes.  Specification: https://parquet.apache.org/docs/file-format/.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"PAR1"
LEVEL = 1  # of compression
WIDE = 16  # bytes of a decimal of more than LONG_DIGITS digits
LONG_DIGITS, MOST_DIGITS = 18, 38  # of a decimal in 8 bytes, in WIDE bytes
MOST_DISTINCT = 1 << 16  # texts of a dictionary, so that an index takes one or two bytes

# Numbers of the specification.
OPTIONAL = 1
PLAIN, RLE, RLE_DICTIONARY = 0, 3, 8
DATA_PAGE, DICTIONARY_PAGE = 0, 2
ZSTD = 6


class Physical(IntEnum):
    """Physical types."""

    BOOLEAN = 0
    INT32 = 1
    INT64 = 2
    DOUBLE = 5
    BYTE_ARRAY = 6
    FIXED_LEN_BYTE_ARRAY = 7


# Thrift ---------------------------------------------------------------------------------------------------------------------------

Thrift = tuple[int, bytes]  # a value: its type code and its bytes


def varint(number: int) -> bytes:
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)


def i32(number: int) -> Thrift:
    return 5, varint(number << 1)  # zigzag; no number here is negative


def i64(number: int) -> Thrift:
    return 6, varint(number << 1)


def boolean(truth: bool) -> Thrift:
    return (1 if truth else 2), b""


def text(value: str) -> Thrift:
    data = value.encode()
    return 8, varint(len(data)) + data


def array(items: Sequence[Thrift]) -> Thrift:
    """A list of at least one item."""
    head = bytes([len(items) << 4 | items[0][0]]) if len(items) < 15 else bytes([0xF0 | items[0][0]]) + varint(len(items))
    return 9, head + b"".join(data for _, data in items)


def record(fields: Mapping[int, Thrift]) -> Thrift:
    """A structure: values by the numbers of their fields, ascending by at most 15."""
    parts, last = [], 0
    for number, (code, data) in fields.items():
        parts.append(bytes([(number - last) << 4 | code]) + data)
        last = number
    return 12, b"".join(parts) + b"\0"


# Types ----------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A physical type and its meaning, as fields of SchemaElement.  length: bytes of each value, if fixed."""

    physical: Physical
    meaning: Mapping[int, Thrift]
    length: int | None = None


def _meaning(converted: int | None, union: int, content: Mapping[int, Thrift]) -> dict[int, Thrift]:
    """converted: the number of the older ConvertedType, which some readers want; union: the field of LogicalType."""
    older = {} if converted is None else {6: i32(converted)}
    return older | {10: record({union: record(content)})}


_MICROSECONDS = record({2: record({})})
TYPES = {  # as app/types names them
    "BOOLEAN": ColumnType(Physical.BOOLEAN, {}),
    "INT16": ColumnType(Physical.INT32, _meaning(16, 10, {1: (3, b"\x10"), 2: boolean(True)})),
    "INT32": ColumnType(Physical.INT32, {}),
    "INT64": ColumnType(Physical.INT64, {}),
    "DOUBLE": ColumnType(Physical.DOUBLE, {}),  # its values arrive as the integers of the same bits
    "STRING": ColumnType(Physical.BYTE_ARRAY, _meaning(0, 1, {})),
    "DATE": ColumnType(Physical.INT32, _meaning(6, 6, {})),  # days since 1970-01-01
    "TIME": ColumnType(Physical.INT64, _meaning(None, 7, {1: boolean(False), 2: _MICROSECONDS})),
    "TIMESTAMP": ColumnType(Physical.INT64, _meaning(10, 8, {1: boolean(True), 2: _MICROSECONDS})),  # since 1970-01-01 in UTC
}


def decimal(precision: int, scale: int) -> ColumnType:
    """A decimal of at most MOST_DIGITS digits.  Its values are the integers without the point."""
    meaning = {6: i32(5), 7: i32(scale), 8: i32(precision), 10: record({5: record({1: i32(scale), 2: i32(precision)})})}
    if precision <= LONG_DIGITS:
        return ColumnType(Physical.INT64, meaning)
    return ColumnType(Physical.FIXED_LEN_BYTE_ARRAY, meaning, WIDE)


# Values ---------------------------------------------------------------------------------------------------------------------------


def _texts(values: Sequence[str]) -> bytes:
    data = [value.encode() for value in values]
    sizes = struct.pack(f"<{len(data)}I", *map(len, data))
    return b"".join([sizes[4 * n : 4 * n + 4] + each for n, each in enumerate(data)])


ENCODERS: dict[Physical, Callable[[Sequence[Any]], bytes]] = {
    Physical.BOOLEAN: lambda values: bits(values),
    Physical.INT32: lambda values: struct.pack(f"<{len(values)}i", *values),
    Physical.INT64: lambda values: struct.pack(f"<{len(values)}q", *values),
    Physical.DOUBLE: lambda values: struct.pack(f"<{len(values)}q", *values),
    Physical.BYTE_ARRAY: _texts,
    Physical.FIXED_LEN_BYTE_ARRAY: lambda values: b"".join([value.to_bytes(WIDE, "big", signed=True) for value in values]),
}


def bits(flags: Sequence[bool]) -> bytes:
    """Return truth values as bits, the first one the lowest of the first byte."""
    return int("0" + "".join(["1" if flag else "0" for flag in reversed(flags)]), 2).to_bytes(-(-len(flags) // 8), "little")


def packed(count: int, data: bytes) -> bytes:
    """Return bit-packed values as a run of RLE: with the number of groups of eight."""
    return varint(-(-count // 8) << 1 | 1) + data


def levels(values: Sequence[object], nulls: int) -> bytes:
    """Return which values are present, with the length before."""
    count = len(values)
    run = packed(count, bits([value is not None for value in values])) if nulls else varint(count << 1) + b"\1"
    return struct.pack("<I", len(run)) + run


def indexes(numbers: Sequence[int], distinct: int) -> bytes:
    """Return indexes of a dictionary: their width in bits, then one run of whole groups of eight."""
    width, format = (8, "B") if distinct <= 256 else (16, "H")
    padded = -(-len(numbers) // 8) * 8
    data = struct.pack(f"<{len(numbers)}{format}", *numbers).ljust(padded * width // 8, b"\0")
    return bytes([width]) + packed(len(numbers), data)


# Files ----------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Chunk:
    """The pages of one column in a row group, with their sizes."""

    data: bytearray
    uncompressed: int = 0

    def add(self, kind: int, header: int, content: Mapping[int, Thrift], page: bytes) -> int:
        """Append a page; return where it begins.  header: the field of PageHeader that describes a page of this kind."""
        start, compressed = len(self.data), zstd.compress(page, LEVEL)
        _, head = record({1: i32(kind), 2: i32(len(page)), 3: i32(len(compressed)), header: record(content)})
        self.data += head + compressed
        self.uncompressed += len(head) + len(page)
        return start


class ParquetWriter:
    """Writes a file of named columns."""

    def __init__(self, columns: Mapping[str, ColumnType]) -> None:
        self._columns = columns
        self._groups: list[Thrift] = []
        self._rows = 0
        self._size = len(MAGIC)

    def begin(self) -> bytes:
        return MAGIC

    def row_group(self, columns: Sequence[Sequence[Any]]) -> bytes:
        """Return a row group: of each column the values, None for null, as many as of the others and at least one."""
        chunks, data, uncompressed = [], bytearray(), 0
        for (name, type), values in zip(self._columns.items(), columns, strict=True):
            description, chunk = self._chunk(name, type, values, self._size + len(data))
            chunks.append(description)
            data += chunk.data
            uncompressed += chunk.uncompressed
        rows = len(columns[0])
        self._groups.append(record({1: array(chunks), 2: i64(uncompressed), 3: i64(rows), 6: i64(len(data))}))
        self._rows += rows
        self._size += len(data)
        return bytes(data)

    def _chunk(self, name: str, type: ColumnType, values: Sequence[Any], start: int) -> tuple[Thrift, _Chunk]:
        """Return a column's chunk, which begins at `start` in the file, with the ColumnChunk that describes it."""
        present = [value for value in values if value is not None]
        nulls = len(values) - len(present)
        chunk, offsets = _Chunk(bytearray()), {}
        distinct = dict.fromkeys(present) if type.physical is Physical.BYTE_ARRAY else {}
        if 0 < len(distinct) <= min(MOST_DISTINCT, len(present) // 2):
            page = _texts(list(distinct))
            offsets[11] = i64(start + chunk.add(DICTIONARY_PAGE, 7, {1: i32(len(distinct)), 2: i32(PLAIN)}, page))
            numbers = {value: number for number, value in enumerate(distinct)}
            encoding, data = RLE_DICTIONARY, indexes([numbers[value] for value in present], len(distinct))
        else:
            encoding, data = PLAIN, ENCODERS[type.physical](present)
        about = {1: i32(len(values)), 2: i32(encoding), 3: i32(RLE), 4: i32(RLE)}
        offsets = {9: i64(start + chunk.add(DATA_PAGE, 5, about, levels(values, nulls) + data))} | offsets
        metadata = {
            1: i32(type.physical),
            2: array([i32(each) for each in sorted({PLAIN, RLE, encoding})]),
            3: array([text(name)]),
            4: i32(ZSTD),
            5: i64(len(values)),
            6: i64(chunk.uncompressed),
            7: i64(len(chunk.data)),
            **offsets,
            12: record({3: i64(nulls)}),
        }
        return record({2: i64(start), 3: record(metadata)}), chunk

    def end(self) -> bytes:
        """Return the footer."""
        root = record({4: text("schema"), 5: i32(len(self._columns))})
        schema = [root, *(self._element(name, type) for name, type in self._columns.items())]
        # a list of no row groups has a type as well
        groups = array(self._groups) if self._groups else (9, bytes([12]))
        _, footer = record({1: i32(2), 2: array(schema), 3: i64(self._rows), 4: groups, 6: text("bds")})
        return footer + struct.pack("<I", len(footer)) + MAGIC

    def _element(self, name: str, type: ColumnType) -> Thrift:
        length = {} if type.length is None else {2: i32(type.length)}
        return record({1: i32(type.physical), **length, 3: i32(OPTIONAL), 4: text(name), **type.meaning})
