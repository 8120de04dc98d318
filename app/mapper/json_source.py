"""JSON as it arrives: values at the blocks' paths become records, everything else is passed over."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import ijson  # type: ignore[import-untyped]

from app.mapper import jsonpath
from app.mapper.expressions import Compiler, Get
from app.mapper.functions import ABSENT
from app.mapper.jsonpath import Collection
from app.mapper.problems import Wrong, source_error
from app.mapper.sources import LARGEST_RECORD, Emit, Find, Maker
from app.mapper.tree import Mapper

BOM = b"\xef\xbb\xbf"


class Exact(float):
    """A number that a JSONPath can compare, with all of its digits."""

    exact: Decimal

    @classmethod
    def of(cls, number: Decimal) -> Exact:
        self = cls(number)
        self.exact = number
        return self


class JsonSource:
    """Feeds ijson's incremental parser, line by line, so that an error has one."""

    unit = "record"

    def __init__(self, mapper: Mapper, emit: Emit) -> None:
        compiler = Compiler(mapper, _value)
        blocks = [(jsonpath.collection(block.path.text), Maker.of(block, compiler, _elements)) for block in mapper.blocks]
        self._walker = _Walker(blocks, emit)
        self._parser = ijson.basic_parse_coro(self._walker)
        self._line = 1
        self._offset = 0

    def feed(self, data: bytes) -> None:
        """Parse; emit the records that end here."""
        if not self._offset and data.startswith(BOM):
            data, self._offset = data[len(BOM) :], len(BOM)
        for piece in data.splitlines(keepends=True):
            self._send(piece)
            self._offset += len(piece)
            self._line += piece.endswith(b"\n")
            if self._walker.grow(len(piece)) > LARGEST_RECORD:
                raise source_error(f"a record is larger than {LARGEST_RECORD >> 20} MB", line=self._line, code="invalid_document")

    def finish(self) -> None:
        """There is no more."""
        try:
            self._parser.close()
        except ijson.JSONError as error:
            raise self._malformed(error) from None

    def _send(self, piece: bytes) -> None:
        try:
            self._parser.send(piece)
        except ijson.JSONError as error:
            raise self._malformed(error) from None
        except StopIteration:
            raise source_error("expected nothing more after the document", line=self._line, offset=self._offset) from None

    def _malformed(self, error: Exception) -> Any:
        message = error.args[0] if error.args else ""
        reason = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
        lines = [line.strip() for line in reason.splitlines() if "(right here)" not in line]
        return source_error(": ".join(line for line in lines if line), line=self._line, offset=self._offset)


class _Walker:
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


def _plain(value: Any) -> Any:
    """A single value as expressions know it.  Raises Wrong."""
    if isinstance(value, Exact):
        return value.exact
    if isinstance(value, (dict, list)):
        raise Wrong(f"expected a single value, got {'an object' if isinstance(value, dict) else 'an array'}")
    return value


def _value(text: str) -> Get:
    """The getter of a path: what it finds first."""
    query = jsonpath.query(text)
    names = jsonpath.plain(query)
    if names is None:

        def evaluate(element: Any) -> Any:
            found = query.find_one(element)
            return ABSENT if found is None else _plain(found.value)

        return evaluate

    def get(element: Any) -> Any:
        value = _member(element, names)
        return value if value is ABSENT or value.__class__ is str else _plain(value)

    return get


def _member(element: Any, names: tuple[str, ...]) -> Any:
    for name in names:
        if not isinstance(element, dict) or name not in element:
            return ABSENT
        element = element[name]
    return element


def _elements(text: str) -> Find:
    """The elements of a block inside a record: where the path leads to an array, the array's."""
    wildcard = text.endswith("[*]")
    path = text.removesuffix("[*]")
    query = jsonpath.query(path) if path else jsonpath.query("$")
    names = jsonpath.plain(query)

    def find(element: Any) -> Any:
        if names is None:
            found = [node.value for node in query.find(element)]
            return [item for value in found for item in (value if isinstance(value, list) else [value])]
        value = _member(element, names)
        if value is ABSENT:
            return ABSENT
        if isinstance(value, dict):
            return list(value.values()) if wildcard else [value]
        return value if isinstance(value, list) else [] if value is None else [value]

    return find
