"""Ids of events: of a change as the stream, webhooks and positions name it, with the generation of its company."""

from __future__ import annotations

import re
from typing import NamedTuple

EVENT = re.compile(r"(?:([1-9][0-9]{0,8}):)?([0-9]{1,100})", re.ASCII)


class Event(NamedTuple):
    """A change as events and positions name it: by its id and generation."""

    id: int
    generation: int = 1

    def __str__(self) -> str:
        return f"{prefix(self.generation)}{self.id}"


def prefix(generation: int) -> str:
    """What precedes the id of a change in events and positions."""
    return f"{generation}:" if generation > 1 else ""


def read_event(text: str) -> Event:
    """Raises ValueError."""
    match = EVENT.fullmatch(text)
    if match is None:
        raise ValueError(f"expected the id of a change, such as 17 or 2:17, got {text!r}")
    return Event(int(match[2]), int(match[1] or 1))
