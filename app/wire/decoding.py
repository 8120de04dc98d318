"""Decodes blocks of JSON, and tells where a block is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

import msgspec

from app.wire.mending import LONGEST_WHOLE_NUMBER, mended

_decode = msgspec.json.Decoder(float_hook=str).decode  # fractions stay text and keep every digit: the database reads them

# msgspec gives the kind and position of an error only in its message: "trailing characters" where the value has ended before the
# block, "(byte 17)" at the end.  tests/feed/test_document.py fails if these texts change.
_POSITION = re.compile(r"\(byte (\d+)\)$")
_TRAILING = "trailing characters"
_ESCAPED_NAME = re.compile(rb'\\u[^"\\]*+(?:\\.[^"\\]*+)*+"\s*:', re.DOTALL)  # the end of a member's name
_PREFIX = "JSON is malformed: "


class InvalidJson(Exception):
    """A block is not one JSON value.  position: the byte that is wrong, None if the block ends too early."""

    def __init__(self, reason: str, position: int | None, is_trailing: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position
        self.is_trailing = is_trailing  # the value is complete and something follows it


def decode(block: bytes) -> tuple[Any, bytes]:
    """The value of a block of JSON, and the block, with replacements if only single values were wrong.  Raises InvalidJson."""
    try:
        return _decoded(block), block
    except InvalidJson:
        other = mended(block, LONGEST_WHOLE_NUMBER)
        if other == block:
            raise
        return _decoded(other), other


def _decoded(block: bytes) -> Any:
    try:
        return _decode(block)
    except msgspec.ValidationError as error:  # such as a number of too many digits; its position is unknown
        raise InvalidJson(_reason(error), 0) from None
    except msgspec.DecodeError as error:
        position = _POSITION.search(str(error))
        raise InvalidJson(_reason(error), int(position[1]) if position else None, _TRAILING in str(error)) from None
    except RecursionError:
        raise InvalidJson("arrays and objects are nested too deeply", _invalid_utf8(block)) from None
    except UnicodeDecodeError:
        raise InvalidJson("expected UTF-8", _invalid_utf8(block)) from None


def continue_arrays(block: bytes, value: Any, names: Collection[str]) -> Any:
    """Return the value that `decode` gave for a block, with the arrays of these names whole where an object has one several times.

    msgspec keeps the last member of a name alone.  A block that may have lost one is decoded again: it has the name more often than
    the value, or a name with escapes.
    """
    if not names:
        return value
    found = sum(block.count(b'"%b"' % name.encode()) for name in names)
    if b"\\u" not in block or not _ESCAPED_NAME.search(block):
        if not found or found == (kept := _count(_array(value), names)):
            return value
        if sum(len(re.findall(rb'"%b"\s*:' % re.escape(name.encode()), block)) for name in names) == kept:  # the others are values
            return value

    def join(members: list[tuple[str, Any]]) -> dict[str, Any]:
        joined = dict[str, Any]()
        for name, each in members:
            is_array = name in names and name in joined and isinstance(joined[name] or each, (list, dict))
            joined[name] = [*_array(joined[name]), *_array(each)] if is_array else each
        return joined

    return json.loads(block, object_pairs_hook=join, parse_float=str)


def _count(records: list[Any], names: Collection[str]) -> int:
    """How many members of these names records have, and the records in their arrays if there is more than one name."""
    count = 0
    for name in names:
        arrays = [record[name] for record in records if type(record) is dict and name in record]
        count += len(arrays)
        if arrays and len(names) > 1:
            count += _count([record for array in arrays for record in _array(array)], names)
    return count


def _array(value: Any) -> list[Any]:
    """An object in place of an array is an array of one, null an empty one."""
    return value if isinstance(value, list) else [] if value is None else [value]


def has_control_escapes(block: bytes) -> bool:
    r"""Whether texts of the block may hold control characters, which JSON writes as escapes: \u0002."""
    return b"\\" in block and b"\\u00" in block


def _reason(error: msgspec.DecodeError) -> str:
    return _POSITION.sub("", str(error)).removeprefix(_PREFIX).strip()


def _invalid_utf8(block: bytes) -> int:
    """Position of the first byte that is not UTF-8, or 0."""
    try:
        block.decode()
    except UnicodeDecodeError as error:
        return error.start
    return 0
