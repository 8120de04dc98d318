"""Jinja2's sandbox for templates: the names that a template has, and what an object looks like when it is printed.

Python shows functions, methods and iterators with their address in the process, which would tell an attacker where its memory is.
A template gets them in a form that does not; it reaches objects by names, attributes, items, calls and filters alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType
from typing import Any

from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler

FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, MethodWrapperType)
READ_ALL = "{% set all = rows | list %} keeps them"
WITH_ADDRESS: Any = object.__repr__
PLAIN = frozenset({str, int, float, bool, type(None), dict, list, tuple})  # the types of nearly all values


class Values:
    """An iterator that is printed as <values>."""

    def __init__(self, values: Iterator[Any]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._values)

    def __repr__(self) -> str:
        return "<values>"


class Rows:
    """Rows that can be read once, in constant memory; true if there are any."""

    def __init__(self, rows: Iterator[Any]) -> None:
        self._rows = rows
        self._ahead: list[Any] | None = None  # the first row, if there is one, once it was looked for
        self._has_rows = self._is_read = False

    def __bool__(self) -> bool:
        if self._ahead is None:
            self._ahead = list(islice(self._rows, 1))
            self._has_rows = bool(self._ahead)
        return self._has_rows

    def __iter__(self) -> Iterator[Any]:
        return Values(self._read())

    def __len__(self) -> int:
        raise TypeError(f"the number of rows is known only when all are read: {READ_ALL}")

    def __repr__(self) -> str:
        return "<values>"

    def _read(self) -> Iterator[Any]:
        if self._is_read:
            raise TypeError(f"rows can be read once: {READ_ALL}")
        self._is_read = True
        if self and self._ahead:
            yield self._ahead.pop()
        yield from self._rows


class Function:
    """A function or method that is printed as <function>."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *given: Any, **named: Any) -> Any:
        return self._function(*given, **named)

    def __repr__(self) -> str:
        return "<function>"


class _Cycler(Cycler):
    def __repr__(self) -> str:
        return "<cycler>"


def readable(value: Any) -> Any:
    """Return a value in a form that is printed without an address.  Raises TypeError for an object that has none."""
    if type(value) in PLAIN:
        return value
    if isinstance(value, FUNCTIONS):
        return Function(value)
    if isinstance(value, Iterator):
        return value if isinstance(value, Values | LoopContext) else Values(value)
    if type(value).__repr__ is WITH_ADDRESS:
        if callable(value):
            return Function(value)
        raise TypeError(f"an object of type {type(value).__name__} is not for templates")
    return value


def _with_readable_result(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)  # which keeps the mark that the function takes the context
    def call(*given: Any, **named: Any) -> Any:
        return readable(function(*given, **named))

    return call


class RowEnvironment(ImmutableSandboxedEnvironment):
    """`row.items` is the row's collection of that name if it has one, not the method of the dict."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.filters = {name: _with_readable_result(function) for name, function in self.filters.items()}
        self.globals = {name: readable(value) for name, value in {**self.globals, "cycler": _Cycler}.items()}

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, dict) and attribute in obj:
            return obj[attribute]
        return readable(super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        return readable(super().getitem(obj, argument))

    def call(__self, __context: Context, __obj: Any, *given: Any, **named: Any) -> Any:
        return readable(super().call(__context, __obj, *given, **named))
