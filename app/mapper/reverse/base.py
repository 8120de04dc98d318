"""Reverse mapping: records of an import document become a file in the mapper's source format.

    writer = open_writer(mapper, "products")
    writer.begin() + writer.write(records) + ... + writer.end()      # records: references as lookups, children nested

The mapper reads the result as the same records, so importing it changes nothing.  A record for which that fails is an error, found
by proof.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from app.errors import ServiceError
from app.mapper.language.problems import mapper_error
from app.mapper.language.tree import Block, Mapper, paths_in
from app.mapper.reverse.plan import Record, ReverseBlock

Steps = tuple[str, ...]  # names from a block's element down


@dataclass(frozen=True, slots=True)
class PathUse:
    """The elements that a path uses: it reads all text below `reads` (None: not nested text), and is written to `writes`."""

    reads: Steps | None
    writes: tuple[Steps, ...]


class ReverseWriter(Protocol):
    """Writes the records of one entity.  write raises ServiceError for a record that cannot be written."""

    media_type: str
    extension: str
    lookups: dict[str, str]  # the lookup kinds that references must have: {"category": "code", "items.product": "barcode"}
    children: tuple[str, ...]  # child collections that each record must contain

    def begin(self) -> bytes: ...

    def write(self, records: Iterable[Record]) -> bytes: ...

    def end(self) -> bytes: ...

    def close(self) -> None:
        """Release resources; most writers hold none."""
        return


def check_paths(mapper: Mapper, block: Block, is_writable: Callable[[str], bool]) -> None:
    """Raises ServiceError at the first path of a block or of its nested blocks that cannot be written."""
    reason = f"can be read but not written: in reverse, {mapper.format} supports only plain paths"
    for rule in block.rules:
        for path in paths_in(rule.expression):
            if not is_writable(path.text):
                raise mapper_error(mapper.text, rule.expression.at, f"the path {path.text!r} {reason}")
    for child in block.children:
        if not is_writable(child.path.text):
            raise mapper_error(mapper.text, child.path.at, f"the path {child.path.text!r} {reason}")
        check_paths(mapper, child, is_writable)


def check_overlaps(mapper: Mapper, reverse: ReverseBlock, use: Callable[[str], PathUse]) -> None:
    """Raises ServiceError at the first path that reads what another path or a nested block writes below it."""
    block = reverse.block
    uses = {path.text: use(path.text) for rule in block.rules for path in paths_in(rule.expression)}
    blocks = {child.path.text: use(child.path.text).writes[0] for child in block.children}
    for rule in block.rules:
        for path in paths_in(rule.expression):
            at = uses[path.text].reads
            if at is None:
                continue
            size = len(at)
            below = [text for text, each in uses.items() if any(len(to) > size and to[:size] == at for to in each.writes)]
            below += [text for text, to in blocks.items() if to and to[:size] == at]
            if below:
                reason = f"the path {path.text!r} contains the path {below[0]!r}: in reverse, paths must not overlap"
                raise mapper_error(mapper.text, rule.expression.at, reason)
    for child in reverse.children:
        check_overlaps(mapper, child, use)


def children_of(
    reverse: ReverseBlock, record: Record, may_lack: Callable[[str], bool] = lambda path: False
) -> list[tuple[ReverseBlock, list[Record]]]:
    """The child records of a record, for each nested block.

    A collection that the record lacks is left out if the source may lack its path too (may_lack).  Otherwise the mapper would read
    it back as empty, so it is a ServiceError.
    """
    found = []
    for child in reverse.children:
        items: Any = record.get(child.block.name)
        if child.block.name not in record:
            if child.block.remove_all is None and may_lack(child.block.path.text):
                continue
            message = f"{reverse.block.entity.name}: expected {child.block.name} in each record, because the mapper writes it"
            raise ServiceError("invalid_mapper", message)
        found.append((child, [items] if isinstance(items, dict) else list(items or ())))
    return found
