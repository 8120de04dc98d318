"""How far long work is: a bar on a terminal, a line now and then elsewhere, always on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TextIO

WIDTH = 30
REFRESH = 0.1  # seconds between two pictures of the bar
SILENCE = 5.0  # seconds between two lines where there is no terminal


class Progress:
    """Shows a phase, a share of the whole, and what was counted."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._terminal = self._out.isatty()
        self._begun = time.monotonic()
        self._shown = self._begun if not self._terminal else 0.0  # short work needs no lines
        self._phase, self._phase_begun, self._phase_share = "", 0.0, 0.0

    def show(self, phase: str, share: float | None, detail: str) -> None:
        """share: 0 to 1, None if it cannot be known."""
        now = time.monotonic()
        if now - self._shown < (REFRESH if self._terminal else SILENCE):
            return
        self._shown = now
        if phase != self._phase:
            self._phase, self._phase_begun, self._phase_share = phase, now, share or 0.0
        times = f"{now - self._begun:.0f} s{self._left(now, share)}"
        if self._terminal:
            filled = round((share or 0) * WIDTH)
            bar = "█" * filled + "·" * (WIDTH - filled)
            self._put(f"\r\x1b[K{bar} {_percent(share)} {phase}, {detail}, {times}")
        else:
            self._put(f"{phase}, {_percent(share).strip() or '...'}, {detail}, {times}\n")

    def _left(self, now: float, share: float | None) -> str:
        """How long the phase will go on, as far as its own pace tells."""
        if share is None or share <= self._phase_share or now - self._phase_begun < 1:
            return ""
        return f", {(now - self._phase_begun) * (1 - share) / (share - self._phase_share):.0f} s left"

    def close(self) -> None:
        """Leave the line to what comes next."""
        if self._terminal and self._shown:
            self._put("\r\x1b[K")

    def _put(self, text: str) -> None:
        with contextlib.suppress(OSError):  # work does not fail because nobody can watch it
            self._out.write(text)
            self._out.flush()


def _percent(share: float | None) -> str:
    return "    " if share is None else f"{share:4.0%}"
