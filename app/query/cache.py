"""The last few results of a pure function, by a key that stands for its arguments."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Cache(Generic[T]):
    """Keeps the `size` values that were asked for last."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of the key, made now if it is not kept.  What `make` raises is raised each time."""
        value = self._values.pop(key, None)
        if value is None:
            value = make()
        self._values[key] = value
        while len(self._values) > self._size:
            self._values.popitem(last=False)
        return value
