"""Where each value of a JSON text stands, as its parser goes through it: those at the blocks' paths become records."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from app.mapper.language import jsonpath
from app.mapper.language.jsonpath import Collection
from app.mapper.language.problems import source_error
from app.mapper.sources.base import Emit, Maker


class Exact(float):
    """A number that a JSONPath can compare, with all of its digits."""

    exact: Decimal

    @classmethod
    def of(cls, number: Decimal) -> Exact:
        self = cls(number)
        self.exact = number
        return self


class Walker:
    """Takes the parser's events, knows where each value stands, and builds those at the blocks' paths."""

    def __init__(self, blocks: list[tuple[Collection, Maker]], emit: Emit) -> None:
        self._blocks = blocks
        self._emit = emit
        self._seen = [0] * len(blocks)  # elements of each block
        self._path: list[str | None] = []  # of the container that is open: names, None in an array
        self._names: list[str | None] = []  # of the value that comes next in each open container
        self._built: list[Any] = []  # containers of the value that is being built
        self._keys: list[str] = []
        self._size = 0
        self.found = any(each.anywhere for each, _ in blocks)  # whether there is anything at one of the blocks' paths
        self._deep = any(each.anywhere for each, _ in blocks) or len({len(each.steps) for each, _ in blocks}) > 1

    def grow(self, size: int) -> int:
        """So many bytes more; returns the bytes of the value that is being built."""
        self._size = self._size + size if self._built else 0
        return self._size

    def send(self, event: tuple[str, Any]) -> None:
        """One event of the parser."""
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
        """The document has ended."""

    def _begin(self, kind: str, value: Any) -> None:
        """A value begins outside of every record."""
        path = (*self._path, self._names[-1]) if self._names else ()
        self.found = self.found or any(_matches(_base(each), path, False) for each, _ in self._blocks)
        if any(self._stands_at(each, path, kind) for each, _ in self._blocks):
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
            container[self._keys.pop()] = value
        else:
            container.append(value)

    def _done(self, path: tuple[str | None, ...], value: Any) -> None:
        for at, each in self._walk(path, value) if self._deep else ((path, value),):
            kind = "start_array" if isinstance(each, list) else ""
            for number, (collection, maker) in enumerate(self._blocks):
                if not self._stands_at(collection, at, kind):
                    continue
                if each is None and at and at[-1] is not None and _base(collection) == collection.steps:
                    continue  # no records
                self._seen[number] += 1
                if collection.filter is None or collection.filter.find([each]):
                    self._emit(maker.block.name, maker.make(each), self._seen[number], ())

    def _walk(self, path: tuple[str | None, ...], value: Any) -> Iterator[tuple[tuple[str | None, ...], Any]]:
        """A value and everything in it, each with its path."""
        waiting = [(path, value)]
        while waiting:
            at, each = waiting.pop()
            yield at, each
            inside = each.items() if isinstance(each, dict) else ((None, item) for item in each) if isinstance(each, list) else ()
            waiting.extend(reversed([((*at, name), item) for name, item in inside]))

    @staticmethod
    def _stands_at(collection: Collection, path: tuple[str | None, ...], kind: str) -> bool:
        """Whether a value is an element of the collection; where the path leads to an array, its elements are."""
        steps = collection.steps
        if not steps or steps[-1] is not None:
            if kind != "start_array" and _matches(steps, path, collection.anywhere):
                return True
            return bool(path) and path[-1] is None and _matches((*steps, None), path, collection.anywhere)
        return _matches(steps, path, collection.anywhere)


def _base(collection: Collection) -> tuple[str | None, ...]:
    """The path to what holds a collection's elements."""
    steps = collection.steps
    return steps[:-1] if steps and steps[-1] is None else steps


def _matches(steps: tuple[str | None, ...], path: tuple[str | None, ...], anywhere: bool) -> bool:
    if len(path) != len(steps):
        if len(path) < len(steps) or not anywhere:
            return False
        path = path[len(path) - len(steps) :]
    return all(step is None or step == name for step, name in zip(steps, path, strict=True))


def _check_depth(depth: int) -> None:
    if depth > jsonpath.DEEPEST:
        raise source_error(f"the document is nested more than {jsonpath.DEEPEST} deep", code="invalid_document")


def _number(value: Any) -> Any:
    return Exact.of(value) if isinstance(value, Decimal) else value
