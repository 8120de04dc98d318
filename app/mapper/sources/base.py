"""What all source readers share: they take bytes as they arrive, and emit records of the import document.

A reader works for one mapper.  It emits each record as soon as it is complete, and does not keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from app.mapper.language.expressions import INVALID, Condition, Evaluator, Getter, record_of
from app.mapper.language.functions import ABSENT
from app.mapper.language.problems import InvalidValue
from app.mapper.language.tree import Block

LARGEST_RECORD = 64 << 20  # bytes of one record's text in the source

# collection, record, its line or element number, and the lines of the first child collection's records if they have their own
Emit = Callable[[str, dict[str, Any], int, Sequence[int]], None]
# an element -> the elements of a nested block; ABSENT if their container is; raises InvalidValue
FindElements = Callable[[Any], Any]
FindFault = Callable[[Any], str | None]  # an element -> why it cannot become a record


class SourceReader(Protocol):
    """The parser of one format.  feed and finish raise ServiceError if the source cannot be read."""

    unit: str  # what the emitted number counts: "line", "row" or "record"

    def feed(self, data: bytes) -> None: ...

    def finish(self) -> Iterable[None]:
        """Read the rest.  A source that can be read only as a whole emits its records step by step."""
        ...

    def close(self) -> None:
        """Release resources; most readers hold none."""
        return


@dataclass(frozen=True, slots=True)
class RecordMaker:
    """Makes the records of a block, with the records of its nested blocks."""

    block: Block
    members: tuple[tuple[str, Getter], ...]
    children: tuple[tuple[FindElements, RecordMaker], ...]
    find_fault: FindFault | None
    condition: Condition | None = None

    @classmethod
    def of(
        cls,
        block: Block,
        evaluator: Evaluator,
        finder: Callable[[str], FindElements],
        fault_finder: Callable[[Block], FindFault | None] = lambda block: None,
    ) -> RecordMaker:
        children = tuple((finder(child.path.text), cls.of(child, evaluator, finder, fault_finder)) for child in block.children)
        return cls(block, evaluator.members(block.rules), children, fault_finder(block), evaluator.condition(block.condition))

    def make(self, element: Any) -> dict[str, Any] | None:
        """Make the record of an element, with its children; None if the block's condition leaves it out."""
        if self.find_fault is not None and (reason := self.find_fault(element)) is not None:
            return invalid(self.block, reason)
        try:
            if self.condition is not None and not self.condition(element):
                return None
        except InvalidValue as error:
            return invalid(self.block, f"when: {error}")
        record = record_of(self.members, element)
        for find, maker in self.children:
            block = maker.block
            try:
                items = find(element)
            except InvalidValue as error:
                return invalid(self.block, f"{block.name}: {error}")
            if items is ABSENT and block.remove_all is None:
                continue
            record[block.name] = [made for item in items or () if (made := maker.make(item)) is not None]
            if block.remove_all is not None:
                record[block.name + "@removeAll"] = block.remove_all
        if self.block.operation is not None:
            record["@operation"] = self.block.operation
        return record


def invalid(block: Block, reason: str) -> dict[str, Any]:
    """Make a record that fails with the reason."""
    return {block.rules[0].name if block.rules else "id": {INVALID: reason}}
