"""JSON of a mapper run backwards: the block's path is built around the records, each path of a field inside them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from app.errors import ServiceError
from app.mapper.language import jsonpath
from app.mapper.language.tree import Mapper
from app.mapper.reverse.base import Place, check_paths, check_places, children_of
from app.mapper.reverse.plan import Backwards, Record

_encode = msgspec.json.Encoder(decimal_format="number").encode


class JsonWriter:
    """Writes one array, in the objects that the block's path names."""

    media_type = "application/json"
    extension = "json"

    def __init__(self, mapper: Mapper, backwards: Backwards) -> None:
        check_paths(mapper, backwards.block, _is_writable)
        check_places(mapper, backwards, lambda path: Place(names := _names(path.removesuffix("[*]")), (names,)))
        self.lookups = backwards.lookups()
        self.children = tuple(child.block.name for child in backwards.children)
        self._backwards = backwards
        self._collection = jsonpath.collection(backwards.block.path.text)
        steps = self._collection.steps
        if not steps or steps[-1] is not None:
            steps = (*steps, None)
        self._steps = steps
        self._first = True

    def begin(self) -> bytes:
        return "".join("[" if step is None else "{" + json.dumps(step) + ":" for step in self._steps).encode()

    def write(self, records: Iterable[Record]) -> bytes:
        parts = [_encode(self._object(record)) for record in records]
        if not parts:
            return b""
        start, self._first = (b"\n" if self._first else b",\n"), False
        return start + b",\n".join(parts)

    def end(self) -> bytes:
        return ("\n" + "".join("]" if step is None else "}" for step in reversed(self._steps)) + "\n").encode()

    def _object(self, record: Record) -> Any:
        value = _object(self._backwards, record)
        if self._collection.filter is not None and not self._collection.filter.find([value]):
            message = f"{self._backwards.block.entity.name}: a record does not match the filter of the mapper's block"
            raise ServiceError("invalid_mapper", message)
        return value


def _object(backwards: Backwards, record: Record) -> Any:
    root: dict[str, Any] = {}
    for path, value in backwards.values(record).items():
        if not _set(root, _names(path), value):
            return value
    for child, items in children_of(backwards, record, lambda path: True):
        _set(root, _names(child.block.path.text.removesuffix("[*]")), [_object(child, item) for item in items])
    return root


def _set(root: dict[str, Any], names: tuple[str, ...], value: Any) -> bool:
    """Put a value into objects inside one another.  False if the path is the element itself."""
    if not names:
        return False
    for name in names[:-1]:
        inside = root.setdefault(name, {})
        if not isinstance(inside, dict):
            return True  # an object that is null has no members
        root = inside
    root[names[-1]] = value
    return True


def _names(path: str) -> tuple[str, ...]:
    names = jsonpath.plain(jsonpath.query(path or "$"))
    assert names is not None  # check_paths
    return names


def _is_writable(path: str) -> bool:
    return jsonpath.plain(jsonpath.query(path.removesuffix("[*]") or "$")) is not None
