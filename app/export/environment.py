"""Jinja2's sandbox for templates: the names that a template has, and what an object looks like when it is printed.

Python shows functions, methods and iterators with their address in the process, which would tell an attacker where its memory is.
A template gets them in a form that does not; it reaches objects by names, attributes, items, calls and filters alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType
from typing import Any

from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Cycler

FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, MethodWrapperType)
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
