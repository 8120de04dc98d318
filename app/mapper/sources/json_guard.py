"""Keeps from the parser what it must not see, and replaces it by what fails the record that has it (app/wire/mending.py).

ijson's C parser crashes the process on an integer with thousands of digits, and turns an unpaired surrogate into a question mark.
"""

from __future__ import annotations

import re

from app.wire.mending import EXPONENT, LONGEST_NUMBER, OPEN, has_half, may_have_odd_number, mended, refused_number

NUMBER = b"0123456789+-.eE"

ESCAPED = re.compile(rb"\\.", re.DOTALL)
LONGEST = 11  # bytes of an escape that the end of the data may cut


class Guard:
    """Passes a text on as it arrives, in pieces of any size.  It holds back an escape or a number that may not have ended."""

    def __init__(self) -> None:
        self._held = b""
        self._inside = False  # whether the text so far ends in a string
        self._is_long = False  # and in a number that was replaced

    def take(self, data: bytes) -> bytes:
        """Return what can be passed on with the next bytes."""
        window = self._held + data
        rest = window.lstrip(NUMBER) if self._is_long else window
        start = b" " * (len(window) - len(rest))
        end = _end_of_escapes(rest)
        is_inside = self._after(rest[:end])
        if not is_inside:
            end = len(rest.rstrip(NUMBER))
        whole, self._held = rest[:end], rest[end:]
        passed = start + self._mended(whole)
        self._inside, self._is_long = is_inside, self._is_long and not rest
        if len(self._held) > LONGEST_NUMBER:
            passed += refused_number(len(self._held))
            self._held, self._is_long = b"", True
        return passed

    def finish(self) -> bytes:
        """Return the rest."""
        return self._held

    def _after(self, data: bytes) -> bool:
        """Whether the text ends inside a string with these bytes."""
        plain = ESCAPED.sub(b"", data) if b"\\" in data else data
        return self._inside ^ bool(plain.count(b'"') % 2)

    def _mended(self, data: bytes) -> bytes:
        return mended(data, inside=self._inside) if has_half(data) or _has_odd_number(data) else data


def _has_odd_number(data: bytes) -> bool:
    """Whether there may be a number that is too long or has a huge exponent."""
    return may_have_odd_number(data) and (EXPONENT.search(data) is not None or _has_long_run(data))


def _has_long_run(data: bytes) -> bool:
    """Whether there may be a number of more than LONGEST_NUMBER characters: half of it fills a step."""
    step = LONGEST_NUMBER // 2
    return any(not data[at : at + step].translate(None, NUMBER) for at in range(0, len(data) - step + 1, step))


def _end_of_escapes(window: bytes) -> int:
    """The length of a text without an escape that its end may have cut."""
    first = window.find(b"\\", max(0, len(window) - LONGEST))
    if first < 0:
        return len(window)
    at = first - (len(window[:first]) - len(window[:first].rstrip(b"\\"))) % 2  # escapes start at every other backslash of a run
    while 0 <= at < len(window):
        if OPEN.match(window, at):
            return at
        at = window.find(b"\\", at + 2)
    return len(window)
