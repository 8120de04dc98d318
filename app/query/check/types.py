"""Type conversion for comparisons.

Both operands get types that PostgreSQL compares without an error and, for a column and a constant, with the column's index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from math import isinf

from app import types
from app.errors import QueryError
from app.query.check.functions import DOUBLE, NUMERIC, WITHOUT_ZONE
from app.query.check.tree import DOUBLES, NUMBERS, Call, Constant, Expression, Function, Type
from app.types import TYPES

# The names of types in error messages and metadata.
TYPE_NAMES: dict[Type, str] = {
    **{each.name: each.edm for each in TYPES.values()},
    **{"whole": TYPES["int8"].edm, "timestamp": TYPES["timestamptz"].edm, "null": "null"},
}

# If the constants of a list differ in type, all become the one of their types that comes last here.
WIDENING: tuple[Type, ...] = ("int8", "float8", "whole", "numeric", "date", "timestamp", "timestamptz")


def unify(at: int, left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """Return both operands, converted if necessary.  Raises QueryError at position `at` if their types cannot be compared."""
    types = {left.type, right.type}
    if len(types) == 1 or types <= NUMBERS - DOUBLES:
        return left, right
    if types <= NUMBERS:
        return _number(left, right), _number(right, left)
    if types == {"date", "timestamptz"}:
        return _moment(left, right), _moment(right, left)
    raise QueryError(f"{TYPE_NAMES[left.type]} cannot be compared with {TYPE_NAMES[right.type]}", position=at)


def common(types: Iterable[Type]) -> Type:
    """The type of an array whose values have these types."""
    found = set(types)
    return found.pop() if len(found) == 1 else max(found, key=WIDENING.index)


def _number(operand: Expression, other: Expression) -> Expression:
    """Convert a number that is compared with a double.

    A constant within the range of a double becomes a double, and so does an integer; otherwise the double becomes a numeric, which
    cannot overflow.
    """
    if isinstance(operand, Constant) and _fits(operand):
        return replace(operand, type="float8")
    if operand.type in types.INTEGERS:
        return converted(operand, DOUBLE)
    if operand.type in DOUBLES and not (other.type in types.INTEGERS or (isinstance(other, Constant) and _fits(other))):
        return converted(operand, NUMERIC)
    return operand


def _fits(constant: Constant) -> bool:
    """Whether a number is in the range of doubles: not beyond the greatest, and not nearer to 0 than the least."""
    if constant.value is None:
        return False
    double = float(constant.value)
    return not isinf(double) and (double != 0 or Decimal(constant.value) == 0)


def _moment(operand: Expression, other: Expression) -> Expression:
    """Convert a date or timestamp for comparison with the other.

    A constant date becomes the timestamp of its midnight.  For a date column the timestamp loses its zone, UTC.
    """
    if operand.type == "date":
        return (
            replace(operand, type="timestamptz", value=f"{operand.value} 00:00:00+00") if isinstance(operand, Constant) else operand
        )
    if isinstance(other, Constant):
        return operand
    # in the text of a timestamp without time zone PostgreSQL ignores a zone, which here is always UTC
    return replace(operand, type="timestamp") if isinstance(operand, Constant) else converted(operand, WITHOUT_ZONE)


def converted(operand: Expression, function: Function) -> Expression:
    """The operand as the argument of a conversion function."""
    return Call(operand.at, function.result, function, (operand,), getattr(operand, "growth", 0))
