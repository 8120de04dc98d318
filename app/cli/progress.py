"""Progress of long work on standard error: a bar on a terminal, a line every few seconds elsewhere.

The bar is that of the whole work, so it never goes back; the phase stands beside it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TextIO

BAR_WIDTH = 30  # characters
REFRESH = 0.1  # seconds between two updates of the bar
LINE_INTERVAL = 5.0  # seconds between two lines without a terminal
RECEIVING = 0.3  # of an import's time that its document takes to arrive, about


class Progress:
    """Shows a phase, its share of the work, and counts."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._is_terminal = self._out.isatty()
        self._started = time.monotonic()
        self._shown = self._started if not self._is_terminal else 0.0  # no lines for short work
        self._share: float | None = None
        self._phase, self._phase_started, self._phase_share = "", 0.0, 0.0

    def show(self, phase: str, share: float | None, detail: str) -> None:
        """Show a state.  share: of the whole work, 0 to 1, or None if unknown; one that is smaller than before has no effect."""
        if share is not None:
            self._share = max(self._share or 0.0, min(share, 1.0))
        share, now = self._share, time.monotonic()
        is_new = self._is_terminal and phase != self._phase  # which is shown at once
        if not is_new and now - self._shown < (REFRESH if self._is_terminal else LINE_INTERVAL):
            return
        self._shown = now
        if phase != self._phase:
            self._phase, self._phase_started, self._phase_share = phase, now, share or 0.0
        times = f"{now - self._started:.0f} s{self._remaining(now, share)}"
        if self._is_terminal:
            filled = round((share or 0) * BAR_WIDTH)
            bar = "█" * filled + "·" * (BAR_WIDTH - filled)
            line = f"{bar} {_percent(share)} {phase}, {detail}, {times}"
            self._write(f"\r\x1b[K{line[: self._columns() - 1]}")
        else:
            self._write(f"{phase}, {_percent(share).strip() or '...'}, {detail}, {times}\n")

    def say(self, text: str) -> None:
        """Show a line at once."""
        self._write(f"\r\x1b[K{text}\n" if self._is_terminal else f"{text}\n")

    def _columns(self) -> int:
        """The width of the terminal: a longer line would wrap, and its start could not be replaced."""
        try:
            return os.get_terminal_size(self._out.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    def _remaining(self, now: float, share: float | None) -> str:
        """The time left at the current pace of the phase, as text."""
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


def of_import(phase: str, received: float | None, compared: float | None) -> float | None:
    """The share of an import that is done.  received: of its bytes; compared: of its records, once all have arrived."""
    share = received if phase == "receiving" else compared
    if share is None:
        return None
    return share * RECEIVING if phase == "receiving" else RECEIVING + share * (1 - RECEIVING)


def _percent(share: float | None) -> str:
    return "    " if share is None else f"{share:4.0%}"
