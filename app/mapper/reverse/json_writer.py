"""Writes JSON in reverse: records inside the containers of the block's path, and fields at their paths in each record."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from app.errors import ServiceError
from app.mapper.language import jsonpath
from app.mapper.language.tree import Mapper
from app.mapper.reverse.base import PathUse, ReverseWriter, check_overlaps, check_paths, children_of
from app.mapper.reverse.plan import Record, ReverseBlock

_encode = msgspec.json.Encoder(decimal_format="number").encode


class JsonWriter(ReverseWriter):
    """Writes one array, inside the objects of the block's path."""

    media_type = "application/json"
    extension = "json"

    def __init__(self, mapper: Mapper, reverse: ReverseBlock) -> None:
        check_paths(mapper, reverse.block, _is_writable)
        check_overlaps(mapper, reverse, lambda path: PathUse(names := _names(path.removesuffix("[*]")), (names,)))
        self.lookups = reverse.lookups()
        self.children = tuple(child.block.name for child in reverse.children)
        self._reverse = reverse
        self._block_path = jsonpath.block_path(reverse.block.path.text)
        steps = self._block_path.steps
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
        value = _object(self._reverse, record)
        if self._block_path.filter is not None and not self._block_path.filter.find([value]):
            message = f"{self._reverse.describe(record)}: it does not match the filter of the mapper's block"
            raise ServiceError("unwritable", message)
        return value


def _object(reverse: ReverseBlock, record: Record) -> Any:
    root: dict[str, Any] = {}
    for path, value in reverse.values(record).items():
        if not _set(root, _names(path), value):
            return value
    for child, items in children_of(reverse, record, lambda path: True):
        _set(root, _names(child.block.path.text.removesuffix("[*]")), [_object(child, item) for item in items])
    return root


def _set(root: dict[str, Any], names: tuple[str, ...], value: Any) -> bool:
    """Put a value into nested objects.  Returns False if the path is the element itself."""
    if not names:
        return False
    for name in names[:-1]:
        inside = root.setdefault(name, {})
        if not isinstance(inside, dict):
            return True  # the parent is null, so it has no members
        root = inside
    root[names[-1]] = value
    return True


def _names(path: str) -> tuple[str, ...]:
    names = jsonpath.plain(jsonpath.query(path or "$"))
    assert names is not None  # ensured by check_paths
    return names


def _is_writable(path: str) -> bool:
    return jsonpath.plain(jsonpath.query(path.removesuffix("[*]") or "$")) is not None
