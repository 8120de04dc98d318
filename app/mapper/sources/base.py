"""What all sources have in common: bytes go in as they arrive, records of the import document come out.

A source is made for one mapper.  It tells of each record as soon as it is there whole, and keeps nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.mapper.language.expressions import INVALID, Compiler, Get, record_of
from app.mapper.language.functions import ABSENT
from app.mapper.language.tree import Block

LARGEST_RECORD = 64 << 20  # bytes of one record's text in the source

# collection, record, its line or number in the source; where children have lines of their own, these (of the first block inside)
Emit = Callable[[str, dict[str, Any], int, Sequence[int]], None]
Find = Callable[[Any], Any]  # an element -> the elements of a block in it; ABSENT if what should hold them is
Refuse = Callable[[Any], str | None]  # an element -> why no record can be made of it


class Source(Protocol):
    """A format's parser.  feed and finish raise ServiceError when the source as a whole cannot be read."""

    unit: str  # what the emitted number counts: "line" or "record"

    def feed(self, data: bytes) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None:
        """Let go of what reading takes: nothing more will be read.  Most take nothing."""
        return


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the records of a block: its members, and the blocks inside with what finds their elements."""

    block: Block
    members: tuple[tuple[str, Get], ...]
    children: tuple[tuple[Find, Maker], ...]
    refuse: Refuse | None

    @classmethod
    def of(
        cls,
        block: Block,
        compiler: Compiler,
        find: Callable[[str], Find],
        refuser: Callable[[Block], Refuse | None] = lambda block: None,
    ) -> Maker:
        children = tuple((find(child.path.text), cls.of(child, compiler, find, refuser)) for child in block.children)
        return cls(block, compiler.members(block.rules), children, refuser(block))

    def make(self, element: Any) -> dict[str, Any]:
        """The record of an element, with its children."""
        if self.refuse is not None and (reason := self.refuse(element)) is not None:
            return invalid(self.block, reason)
        record = record_of(self.members, element)
        for find, maker in self.children:
            items, block = find(element), maker.block
            if items is ABSENT and block.remove_all is None:
                continue
            record[block.name] = [maker.make(item) for item in items or ()]
            if block.remove_all is not None:
                record[block.name + "@removeAll"] = block.remove_all
        if self.block.operation is not None:
            record["@operation"] = self.block.operation
        return record


def invalid(block: Block, reason: str) -> dict[str, Any]:
    """A record that fails, for the reason."""
    return {block.rules[0].name if block.rules else "id": {INVALID: reason}}
