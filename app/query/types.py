"""Comparable types: two operands of a comparison become of types that PostgreSQL compares as they stand, without an error and,
where a column meets a constant, with the column's index."""

from __future__ import annotations

from collections.abc import Iterable

from app.errors import QueryError
from app.query.functions import NUMERIC, WITHOUT_ZONE
from app.query.tree import NUMBERS, Call, Constant, Expression, Function, Type

# types as a client knows them
TYPE_NAMES: dict[Type, str] = {
    "text": "Edm.String",
    "bool": "Edm.Boolean",
    "int2": "Edm.Int16",
    "int4": "Edm.Int32",
    "int8": "Edm.Int64",
    "whole": "Edm.Int64",
    "numeric": "Edm.Decimal",
    "float8": "Edm.Double",
    "date": "Edm.Date",
    "time": "Edm.TimeOfDay",
    "timestamp": "Edm.DateTimeOffset",
    "timestamptz": "Edm.DateTimeOffset",
    "uuid": "Edm.Guid",
    "null": "null",
}

# Constants of one list that differ in type are all taken as the last of these that is among them.
WIDENING: tuple[Type, ...] = ("int8", "float8", "whole", "numeric", "date", "timestamp", "timestamptz")


def unify(at: int, left: Expression, right: Expression) -> tuple[Expression, Expression]:
    """The operands, converted where they have to be.  Raises QueryError at `at` if they cannot be compared."""
    types = {left.type, right.type}
    if len(types) == 1 or types <= NUMBERS - {"float8"}:
        return left, right
    if types <= NUMBERS:
        return _number(left, right), _number(right, left)
    if types == {"date", "timestamptz"}:
        return _moment(left, right), _moment(right, left)
    raise QueryError(f"{TYPE_NAMES[left.type]} cannot be compared with {TYPE_NAMES[right.type]}", position=at)


def common(types: Iterable[Type]) -> Type:
    """The type of an array of all these."""
    found = set(types)
    return found.pop() if len(found) == 1 else max(found, key=WIDENING.index)


def _number(operand: Expression, other: Expression) -> Expression:
    """One of the two is a double: a constant becomes one if it can, else the double becomes a numeric, which cannot overflow."""
    if isinstance(operand, Constant) and _fits(operand):
        return Constant(operand.at, "float8", operand.value)
    if operand.type == "float8" and not (isinstance(other, Constant) and _fits(other)):
        return converted(operand, NUMERIC)
    return operand


def _fits(constant: Constant) -> bool:
    return constant.value is not None and abs(float(constant.value)) != float("inf")


def _moment(operand: Expression, other: Expression) -> Expression:
    """A date and a timestamp: a constant date becomes its midnight, else the timestamp gives up its zone, UTC."""
    if operand.type == "date":
        return Constant(operand.at, "timestamptz", f"{operand.value} 00:00:00+00") if isinstance(operand, Constant) else operand
    if isinstance(other, Constant):
        return operand
    # PostgreSQL ignores a zone in the text of a timestamp without one, and ours is always UTC.
    return Constant(operand.at, "timestamp", operand.value) if isinstance(operand, Constant) else converted(operand, WITHOUT_ZONE)


def converted(operand: Expression, function: Function) -> Expression:
    return Call(operand.at, function.result, function, (operand,), getattr(operand, "growth", 0))
