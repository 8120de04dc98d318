"""Replaces what parsers of JSON refuse although only one value is wrong: halves of surrogate pairs, and numbers that are too long.

The replacements have the same length, so that the position of an error stays right, and no database stores them: a half becomes the
escape of U+0000, a number the text REFUSED_NUMBER.  So the record fails that has the value, and no other.
"""

from __future__ import annotations

import re

LONGEST_NUMBER = 2_000  # characters that every parser takes: ijson's C parser crashes the process on a longer one
LONGEST_WHOLE_NUMBER = 4_300  # digits that msgspec takes
REFUSED_NUMBER = "\0number"

SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
HIGH, LOW, HEX = rb"u[dD][89abAB]", rb"u[dD][c-fC-F]", rb"[0-9a-fA-F]"
_NAMES = {b"high": HIGH, b"low": LOW, b"hex": HEX}
_HALF = rb"(?P<half>(?:%(high)b|%(low)b)%(hex)b{2})"
# alternatives in this order: pairs, halves, other escapes
_ESCAPES = re.compile(rb"\\(?:%(high)b%(hex)b{2}\\%(low)b%(hex)b{2}|" % _NAMES + _HALF % _NAMES + b"|.)", re.DOTALL)
# an escape that the end of the data may cut, or a half that it may cut from the other one
OPEN = re.compile(rb"\\(?:%(high)b%(hex)b{2}(?:\\(?:u%(hex)b{0,3})?)?|u%(hex)b{0,3})?\Z" % _NAMES)
EXPONENT = re.compile(rb"[eE][-+]?[0-9]{18}")  # Decimal takes fewer digits
_INSIDE = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)  # the rest of a string
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[-+.0-9][-+.0-9eE]*+', re.DOTALL)
_DIGITS, _IS_DIGIT = b"0" * 18, bytes(48 if 48 <= each < 58 else 32 for each in range(256))  # as many as EXPONENT has
_MARK = b'"\\u0000number"'


def number_message(digits: int) -> str:
    """Return what is said of REFUSED_NUMBER.  digits: the most that are taken."""
    return f"expected a number of at most {digits:,} digits, or a longer one in quotes"


def mended(block: bytes, longest: int = LONGEST_NUMBER, *, inside: bool = False) -> bytes:
    """Return a block of JSON with the replacements.  inside: whether it begins inside a string."""
    if has_half(block):
        block = _ESCAPES.sub(lambda escape: b"\\u0000" if escape["half"] else escape[0], block)
    if not may_have_odd_number(block):
        return block
    start = _INSIDE.match(block) if inside else None
    end = start.end() if start else 0
    return block[:end] + _TOKEN.sub(lambda token: _replaced(token[0], longest), block[end:])


def may_have_odd_number(data: bytes) -> bool:
    """Whether there may be a number that is replaced: only few texts have that many digits in a row."""
    return _DIGITS in data.translate(_IS_DIGIT)


def has_half(data: bytes) -> bool:
    """Whether there is an escape that is half of a surrogate pair; data ends with a whole escape."""
    return SURROGATE.search(data) is not None and any(escape["half"] for escape in _ESCAPES.finditer(data))


def refused_number(length: int) -> bytes:
    """What stands in place of a number of so many characters, in which there is room for it."""
    return _MARK + b" " * (length - len(_MARK))


def _replaced(token: bytes, longest: int) -> bytes:
    is_odd = not token.startswith(b'"') and (len(token) > longest or EXPONENT.search(token))
    return refused_number(len(token)) if is_odd else token
