"""Mappers run backwards: records of an import document go out in the source's own format.

    writer = open_writer(mapper, "products")
    for data in write_document(writer, records): ...     # records: references as lookups, children nested

What is written, the mapper reads again as the same: import it, and nothing changes.  A record for which that cannot be is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from app.errors import ServiceError
from app.mapper.language.problems import wrong
from app.mapper.language.tree import Block, Mapper, paths_in
from app.mapper.reverse.plan import Backwards, Record

BATCH = 500  # records that are written together


Steps = tuple[str, ...]  # down from a block's element


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: below which steps it reads all text, if it does, and at the end of which ones it puts text."""

    reads: Steps | None
    puts: tuple[Steps, ...]


class Writer(Protocol):
    """Writes the records of one entity.  Raises ServiceError for a record that cannot be written."""

    media_type: str
    extension: str
    lookups: dict[str, str]  # the kinds in which references must come: {"category": "code", "items.product": "barcode"}
    children: tuple[str, ...]  # child collections that every record must hold

    def begin(self) -> bytes: ...

    def write(self, records: Iterable[Record]) -> bytes: ...

    def end(self) -> bytes: ...


def write_document(writer: Writer, records: Iterable[Record], batch: int = BATCH) -> Iterator[bytes]:
    """Yield a document piece by piece; takes `batch` records at a time."""
    yield writer.begin()
    waiting = iter(records)
    while taken := list(islice(waiting, batch)):
        if data := writer.write(taken):
            yield data
    yield writer.end()


def check_paths(mapper: Mapper, block: Block, is_writable: Any) -> None:
    """Raises ServiceError at the first path of a block, or of one in it, that cannot be written."""
    reason = f"can be read, but not written: backwards, {mapper.format} takes plain paths alone"
    for rule in block.rules:
        for path in paths_in(rule.expression):
            if not is_writable(path):
                raise wrong(mapper.text, rule.expression.at, f"the path {path!r} {reason}")
    for child in block.children:
        if not is_writable(child.path.text):
            raise wrong(mapper.text, child.path.at, f"the path {child.path.text!r} {reason}")
        check_paths(mapper, child, is_writable)


def check_places(mapper: Mapper, backwards: Backwards, place: Callable[[str], Place]) -> None:
    """Raises ServiceError at the first path that reads what another one, or a block, puts below it."""
    block = backwards.block
    places = {path: place(path) for rule in block.rules for path in paths_in(rule.expression)}
    blocks = {child.path.text: place(child.path.text).puts[0] for child in block.children}
    for rule in block.rules:
        for own in paths_in(rule.expression):
            at = places[own].reads
            if at is None:
                continue
            size = len(at)
            below = [path for path, each in places.items() if any(len(put) > size and put[:size] == at for put in each.puts)]
            below += [path for path, put in blocks.items() if put and put[:size] == at]
            if below:
                reason = f"the path {own!r} holds what {below[0]!r} asks for, too: backwards, each needs a place of its own"
                raise wrong(mapper.text, rule.expression.at, reason)
    for child in backwards.children:
        check_places(mapper, child, place)


def children_of(
    backwards: Backwards, record: Record, may_lack: Callable[[str], bool] = lambda path: False
) -> list[tuple[Backwards, list[Record]]]:
    """The child records for each block inside.

    A collection that the record does not hold is left out where the source can lack it, too (may_lack, of its path); elsewhere it
    would be read again as empty, which is a ServiceError.
    """
    found = []
    for child in backwards.children:
        items: Any = record.get(child.block.name)
        if child.block.name not in record:
            if child.block.remove_all is None and may_lack(child.block.path.text):
                continue
            message = f"{backwards.block.entity.name}: the records must hold {child.block.name}, which the mapper writes"
            raise ServiceError("invalid_mapper", message)
        found.append((child, [items] if isinstance(items, dict) else list(items or ())))
    return found
