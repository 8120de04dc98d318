"""Follows the events of a JSON parser, and makes records of the values at the blocks' paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from app.mapper.language import jsonpath
from app.mapper.language.jsonpath import JsonBlockPath
from app.mapper.language.problems import source_error
from app.mapper.sources.base import Emit, RecordMaker


class ExactNumber(float):
    """A number that JSONPath can compare as a float, with all its digits."""

    exact: Decimal

    @classmethod
    def of(cls, number: Decimal) -> ExactNumber:
        self = cls(number)
        self.exact = number
        return self


class Walker:
    """Receives the parser's events, tracks the path of each value, and builds the values at the blocks' paths.

    Of a member that occurs again in its object the last value counts, as in import documents; a collection is continued
    (jsonpath.continued).
    """

    def __init__(self, blocks: list[tuple[JsonBlockPath, RecordMaker]], continued: Mapping[str, bool], emit: Emit) -> None:
        self._blocks = blocks
        self._continued = continued
        self._emit = emit
        self._seen = [0] * len(blocks)  # elements of each block so far
        self._path: list[str | None] = []  # of the open container: member names, None for an array item
        self._names: list[str | None] = []  # of the next value in each open container; None in an array
        self._built: list[Any] = []  # open containers of the value under construction, the outermost first
        self._keys: list[str] = []  # of its open members
        self._size = 0
        self.found = any(each.anywhere for each, _ in blocks)  # a block's path; one at any depth always counts as found
        self._deep = any(each.anywhere for each, _ in blocks) or len({len(each.steps) for each, _ in blocks}) > 1

    def grow(self, size: int) -> int:
        """Count bytes of the source; return the size of the value under construction."""
        self._size = self._size + size if self._built else 0
        return self._size

    def send(self, event: tuple[str, Any]) -> None:
        """Handle an event of the parser."""
        kind, value = event
        if self._built:
            self._build(kind, value)
        elif kind == "map_key":
            self._names[-1] = value
        elif kind in ("end_map", "end_array"):
            self._names.pop()
            if self._path:
                self._path.pop()
        else:
            self._begin(kind, value)

    def close(self) -> None:
        """Part of the interface that ijson expects; nothing is left to do."""

    def _begin(self, kind: str, value: Any) -> None:
        """Handle the start of a value outside of all records."""
        path = (*self._path, self._names[-1]) if self._names else ()
        self.found = self.found or any(_fits(_base(each), path, False) for each, _ in self._blocks)
        if any(self._matches(each, path, kind) for each, _ in self._blocks):
            if kind in ("start_map", "start_array"):
                self._built = [{} if kind == "start_map" else []]
                self._root = path
            else:
                self._done(path, _number(value))
        elif kind in ("start_map", "start_array"):
            if self._names:
                self._path.append(self._names[-1])
            self._names.append(None)
            _check_depth(len(self._names))

    def _build(self, kind: str, value: Any) -> None:
        if kind == "map_key":
            self._keys.append(value)
            return
        if kind in ("end_map", "end_array"):
            done = self._built.pop()
            if not self._built:
                self._done(self._root, done)
                return
            self._add(done)
        elif kind in ("start_map", "start_array"):
            self._built.append({} if kind == "start_map" else [])
            _check_depth(len(self._built))
        else:
            self._add(_number(value))

    def _add(self, value: Any) -> None:
        container = self._built[-1]
        if isinstance(container, dict):
            name = self._keys.pop()
            if name in container and name in self._continued:
                value = [item for part in (container[name], value) for item in _items(part, self._continued[name])]
            container[name] = value
        else:
            container.append(value)

    def _done(self, path: tuple[str | None, ...], value: Any) -> None:
        for at, each in self._walk(path, value) if self._deep else ((path, value),):
            kind = "start_array" if isinstance(each, list) else ""
            for number, (block_path, maker) in enumerate(self._blocks):
                if not self._matches(block_path, at, kind):
                    continue
                if each is None and at and at[-1] is not None and _base(block_path) == block_path.steps:
                    continue  # null instead of an array: no records
                self._seen[number] += 1
                if (block_path.filter is None or block_path.filter.find([each])) and (record := maker.make(each)) is not None:
                    self._emit(maker.block.name, record, self._seen[number], ())

    def _walk(self, path: tuple[str | None, ...], value: Any) -> Iterator[tuple[tuple[str | None, ...], Any]]:
        """Yield a value and all values in it, each with its path."""
        waiting = [(path, value)]
        while waiting:
            at, each = waiting.pop()
            yield at, each
            inside = each.items() if isinstance(each, dict) else ((None, item) for item in each) if isinstance(each, list) else ()
            waiting.extend(reversed([((*at, name), item) for name, item in inside]))

    @staticmethod
    def _matches(block_path: JsonBlockPath, path: tuple[str | None, ...], kind: str) -> bool:
        """Whether a value at `path` is an element of the block; if the block's path leads to an array, its items are."""
        steps = block_path.steps
        if not steps or steps[-1] is not None:
            if kind != "start_array" and _fits(steps, path, block_path.anywhere):
                return True
            return bool(path) and path[-1] is None and _fits((*steps, None), path, block_path.anywhere)
        return _fits(steps, path, block_path.anywhere)


def _items(value: Any, members: bool) -> list[Any]:
    """The elements of a collection, which may be an array, an object or null; members: those of an object are elements."""
    if isinstance(value, dict) and members:
        return list(value.values())
    return value if isinstance(value, list) else [] if value is None else [value]


def _base(block_path: JsonBlockPath) -> tuple[str | None, ...]:
    """The path to the container of a block's elements."""
    steps = block_path.steps
    return steps[:-1] if steps and steps[-1] is None else steps


def _fits(steps: tuple[str | None, ...], path: tuple[str | None, ...], anywhere: bool) -> bool:
    if len(path) != len(steps):
        if len(path) < len(steps) or not anywhere:
            return False
        path = path[len(path) - len(steps) :]
    return all(step is None or step == name for step, name in zip(steps, path, strict=True))


def _check_depth(depth: int) -> None:
    if depth > jsonpath.DEEPEST:
        raise source_error(f"the document is nested more than {jsonpath.DEEPEST} levels deep", code="invalid_document")


def _number(value: Any) -> Any:
    return ExactNumber.of(value) if isinstance(value, Decimal) else value
