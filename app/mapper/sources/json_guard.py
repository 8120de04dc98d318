"""Finds JSON that the parser must not see.

ijson's C parser crashes the process on an integer with thousands of digits, and turns an unpaired surrogate into a question mark.
"""

from __future__ import annotations

import re

STEP = 2_000  # characters; a number is always accepted up to this length, and always refused from twice this length
NUMBER = b"0123456789+-.eE"

ESCAPED = re.compile(rb"\\.", re.DOTALL)
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
HIGH, LOW, HEX = rb"u[dD][89abAB]", rb"u[dD][c-fC-F]", rb"[0-9a-fA-F]"
# alternatives in this order: pairs, escapes that the end of the data may cut, unpaired surrogates, other escapes
ESCAPES = re.compile(
    rb"\\(?:%(high)b%(hex)b{2}\\%(low)b%(hex)b{2}|(?P<open>(?:%(high)b%(hex)b{2}(?:\\(?:u%(hex)b{0,3})?)?|u%(hex)b{0,3})?\Z)"
    rb"|(?P<half>(?:%(high)b|%(low)b)%(hex)b{2})|.)" % {b"high": HIGH, b"low": LOW, b"hex": HEX},
    re.DOTALL,
)  # fmt: skip
LONGEST = 11  # bytes of an escape that the end of the data may cut


class Guard:
    """Checks a text as it arrives, in pieces of any size."""

    def __init__(self) -> None:
        self._recent = b""  # the last bytes, in which a long number may have started
        self._tail = b""  # an incomplete escape at the end
        self._inside = False  # whether the text so far ends in a string
        self._escape = False  # and this string in a backslash

    def check(self, data: bytes) -> tuple[int, str] | None:
        """Return the offset and description of the first fault in the next bytes; None if there is none."""
        found = self._long_number(data) or self._unpaired_surrogate(data)
        self._inside, self._escape = self._after(data)
        return found

    def _after(self, data: bytes) -> tuple[bool, bool]:
        """Whether the text ends inside a string, and after a backslash, with these bytes."""
        if not self._escape and b"\\" not in data:
            return self._inside ^ bool(data.count(b'"') % 2), False
        plain = ESCAPED.sub(b"", b"\\" + data if self._escape else data)
        return self._inside ^ bool(plain.count(b'"') % 2), plain.endswith(b"\\")

    def _long_number(self, data: bytes) -> tuple[int, str] | None:
        window, before = self._recent + data, len(self._recent)
        self._recent = window[1 - STEP :]
        at = 0
        while at + STEP <= len(window):
            if window[at : at + STEP].translate(None, NUMBER):
                at += STEP
                continue
            start = max(0, at - before)
            if not self._after(data[:start])[0]:
                return start, f"a number has more than {STEP:,} digits"
            end = window.find(b'"', at)  # digits in a string are text
            at = len(window) if end < 0 else at + (end - at) // STEP * STEP + STEP
        return None

    def _unpaired_surrogate(self, data: bytes) -> tuple[int, str] | None:
        window, before = self._tail + data, len(self._tail)
        self._tail = b""
        start = 0 if SURROGATE.search(window) else _last_escapes(window)
        for match in ESCAPES.finditer(window, start):
            if match["open"] is not None:
                self._tail = match[0]
            elif match["half"]:
                return max(0, match.start() - before), "an escape is an unpaired surrogate"
        return None


def _last_escapes(window: bytes) -> int:
    """The offset of the escapes at a window's end, the last of which may be incomplete."""
    first = window.find(b"\\", max(0, len(window) - LONGEST))
    if first < 0:
        return len(window)
    run = len(window[:first]) - len(window[:first].rstrip(b"\\"))
    return first - run % 2  # escapes start at every other backslash of a run
