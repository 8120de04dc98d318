"""A child's end of the socket to its parent (app/service/supervisor.py): signs of life, and the end of the parent."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

BEAT = 1.0  # seconds between two signs of life
ALIVE, READY, ENDING = b".", b"r", b"e"


class Lifeline:
    """Says to the parent that the process lives, serves or ends."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        end.setblocking(False)

    def keep(self, on_parent_end: Callable[[], None]) -> None:
        """Give a sign of life every BEAT seconds while the event loop runs; call `on_parent_end` when the parent is gone."""
        loop = asyncio.get_running_loop()

        def parent_ended() -> None:
            loop.remove_reader(self._end)
            on_parent_end()

        def beat() -> None:
            self._say(ALIVE)
            loop.call_later(BEAT, beat)

        loop.add_reader(self._end, parent_ended)  # it sends nothing
        beat()

    def ready(self) -> None:
        """Say that the process serves."""
        self._say(READY)

    def ending(self) -> None:
        """Say that the process accepts no more work and ends when it has done what it has."""
        self._say(ENDING)

    def _say(self, what: bytes) -> None:
        with suppress(OSError):  # the parent is gone, or stopped for hours
            self._end.send(what)
