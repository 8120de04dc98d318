"""A cache of the most recently used results of a pure function."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Cache(Generic[T]):
    """Keeps the `size` values that were used last.  Threads may share it: at worst a value is made twice."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of the key, made now if it is not kept.  An exception from `make` is raised each time, never kept."""
        value = self._values.pop(key, None)
        if value is None:
            value = make()
        self._values[key] = value
        while len(self._values) > self._size:
            self._values.popitem(last=False)
        return value
