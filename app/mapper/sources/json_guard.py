"""What a JSON text may not hold, found before the parser sees it.

The parser ends the process over a whole number of thousands of digits, and makes a question mark of half a surrogate pair.
"""

from __future__ import annotations

import re

STEP = 2_000  # a run of number characters of this length is refused at the latest when it is twice as long
NUMBER = b"0123456789+-.eE"

ESCAPED = re.compile(rb"\\.", re.DOTALL)
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
HIGH, LOW, HEX = rb"u[dD][89abAB]", rb"u[dD][c-fC-F]", rb"[0-9a-fA-F]"
# one after the other: pairs, what may go on after the end, halves, all others
ESCAPES = re.compile(
    rb"\\(?:%(high)b%(hex)b{2}\\%(low)b%(hex)b{2}|(?P<open>(?:%(high)b%(hex)b{2}(?:\\(?:u%(hex)b{0,3})?)?|u%(hex)b{0,3})?\Z)"
    rb"|(?P<half>(?:%(high)b|%(low)b)%(hex)b{2})|.)" % {b"high": HIGH, b"low": LOW, b"hex": HEX},
    re.DOTALL,
)  # fmt: skip
LONGEST = 11  # bytes of an escape that may go on


class Guard:
    """Looks at a text as it arrives, in pieces of any size."""

    def __init__(self) -> None:
        self._recent = b""  # the last bytes, in which a long number may have begun
        self._tail = b""  # an escape that may go on
        self._inside = False  # whether the text so far ends in a string
        self._escape = False  # and that in a backslash

    def check(self, data: bytes) -> tuple[int, str] | None:
        """Where in the next bytes something is that the parser must not see, and what."""
        found = self._long_number(data) or self._half_pair(data)
        self._inside, self._escape = self._after(data)
        return found

    def _after(self, data: bytes) -> tuple[bool, bool]:
        """Whether the text ends in a string, and in a backslash, after these bytes."""
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

    def _half_pair(self, data: bytes) -> tuple[int, str] | None:
        window, before = self._tail + data, len(self._tail)
        self._tail = b""
        start = 0 if SURROGATE.search(window) else _last_escapes(window)
        for match in ESCAPES.finditer(window, start):
            if match["open"] is not None:
                self._tail = match[0]
            elif match["half"]:
                return max(0, match.start() - before), "half of a surrogate pair stands alone"
        return None


def _last_escapes(window: bytes) -> int:
    """Where the escapes begin that may go on after a window's end."""
    first = window.find(b"\\", max(0, len(window) - LONGEST))
    if first < 0:
        return len(window)
    run = len(window[:first]) - len(window[:first].rstrip(b"\\"))
    return first - run % 2  # escapes begin at every other backslash of a run
