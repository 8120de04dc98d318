"""The memory of a process that serves: few heaps for its many threads, so that one import's memory serves the next."""

from __future__ import annotations

import contextlib
import ctypes

M_ARENA_MAX = -8  # of mallopt(3)
ARENAS = 2  # heaps; by default eight for each processor, of which each keeps what its largest import needed


def share_heaps() -> None:
    """Let the threads of this process share heaps.  Growth over 150 hostile imports: 195 MB, without it 298 MB."""
    with contextlib.suppress(AttributeError, OSError):  # glibc has it
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
