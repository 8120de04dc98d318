"""Progress of long work on standard error: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TextIO

BAR_WIDTH = 30  # characters
REFRESH = 0.1  # seconds between two updates of the bar
LINE_INTERVAL = 5.0  # seconds between two lines without a terminal


class Progress:
    """Shows a phase, its share of the work, and counts."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._is_terminal = self._out.isatty()
        self._started = time.monotonic()
        self._shown = self._started if not self._is_terminal else 0.0  # no lines for short work
        self._phase, self._phase_started, self._phase_share = "", 0.0, 0.0

    def show(self, phase: str, share: float | None, detail: str) -> None:
        """Show a state.  share: 0 to 1, or None if unknown."""
        now = time.monotonic()
        if now - self._shown < (REFRESH if self._is_terminal else LINE_INTERVAL):
            return
        self._shown = now
        if phase != self._phase:
            self._phase, self._phase_started, self._phase_share = phase, now, share or 0.0
        times = f"{now - self._started:.0f} s{self._remaining(now, share)}"
        if self._is_terminal:
            filled = round((share or 0) * BAR_WIDTH)
            bar = "█" * filled + "·" * (BAR_WIDTH - filled)
            self._write(f"\r\x1b[K{bar} {_percent(share)} {phase}, {detail}, {times}")
        else:
            self._write(f"{phase}, {_percent(share).strip() or '...'}, {detail}, {times}\n")

    def say(self, text: str) -> None:
        """Show a line at once."""
        self._write(f"\r\x1b[K{text}\n" if self._is_terminal else f"{text}\n")

    def _remaining(self, now: float, share: float | None) -> str:
        """The time left in the phase at its current pace, as text."""
        if share is None or share <= self._phase_share or now - self._phase_started < 1:
            return ""
        return f", {(now - self._phase_started) * (1 - share) / (share - self._phase_share):.0f} s left"

    def close(self) -> None:
        """Clear the bar."""
        if self._is_terminal and self._shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a closed terminal must not stop the work
            self._out.write(text)
            self._out.flush()


def _percent(share: float | None) -> str:
    return "    " if share is None else f"{share:4.0%}"
