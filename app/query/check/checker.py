"""Checking names and types: syntax nodes become expressions over the catalog, or a QueryError at the wrong character.

Checker                            conditions, comparisons, membership, sort keys: what all languages share
  check_odata.ODataChecker         exact names, literals of their own types, functions, paths; null is a value
    check_apply.GroupFilterChecker   $filter beside $apply
    check_apply.GroupOrderChecker    $orderby beside $apply
  check_where.WhereChecker         names in any case, literals of the field's type, lookups; null is SQL's unknown
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.errors import QueryError
from app.query.check.functions import BOUNDED, NUMERIC, SHOWN, WHOLE
from app.query.check.indexable import indexable
from app.query.check.tree import (
    INTEGERS,
    Call,
    Column,
    Comparison,
    Constant,
    Expression,
    Function,
    IsNull,
    Junction,
    Membership,
    Not,
    Order,
    Result,
    Type,
)
from app.query.check.types import TYPE_NAMES, common, converted, unify
from app.query.parse.nodes import Name, Node, Operation, Path, Sorting, Unsupported
from app.types import literals

MAX_GROWTH = 100  # arithmetic operators and concatenations in one expression: their results stay within PostgreSQL's limits


class Checker(ABC):
    """Checks syntax nodes against one entity."""

    null_is_value: ClassVar[bool]

    def __init__(self, catalog: Catalog, entity: Entity) -> None:
        self.catalog = catalog
        self.entity = entity

    def condition(self, node: Node) -> Expression:
        """Check a condition.  Raises QueryError unless its value is true, false or null."""
        expression = self.check(node)
        if isinstance(expression, Constant) and expression.type == "null":
            return Constant(expression.at, "bool", None)
        if expression.type != "bool":
            raise QueryError(f"expected a condition, got {TYPE_NAMES[expression.type]}", position=node.at)
        return expression

    def order(self, keys: Iterable[Sorting]) -> tuple[Order, ...]:
        """Check sort keys."""
        return tuple(Order(self.check(key.key), key.descending) for key in keys)

    def check(self, node: Node) -> Expression:
        """Check any node.  Raises QueryError."""
        match node:
            case Operation(operator="and" | "or" as operator, operands=operands):
                return Junction(node.at, "bool", operator, tuple(self.condition(operand) for operand in operands))
            case Operation(operator="not", operands=(operand,)):
                return Not(node.at, "bool", self.condition(operand))
            case Operation():
                return self.operation(node)
            case Path():
                return self.path(node)
            case Unsupported(what=what):
                raise QueryError(f"{what} is not supported", position=node.at, code="not_supported")
        raise TypeError(f"no checker for {node!r}")

    @abstractmethod
    def operation(self, node: Operation) -> Expression:
        """Check a comparison, a membership or another operation of the language."""

    @abstractmethod
    def path(self, path: Path) -> Expression:
        """Resolve a name, or a path of names."""

    def compare(self, at: int, operator: Any, left: Expression, right: Expression) -> Expression:
        """Compare two checked operands, either of which may be null."""
        null = next((side for side in (left, right) if isinstance(side, Constant) and side.value is None), None)
        if null is None:
            left, right = unify(at, left, right)
            return indexable(Comparison(at, "bool", operator, left, right, self.null_is_value))
        other = right if null is left else left
        if operator in ("eq", "ne"):
            test = IsNull(at, "bool", other)
            return Not(at, "bool", test) if operator == "ne" else test
        return Constant(at, "bool", "false" if self.null_is_value else None)

    def member(self, at: int, operand: Expression, values: Sequence[Constant]) -> Expression:
        """Test whether the operand is one of the constants; a null among them matches null."""
        known = [value for value in values if value.value is not None]
        if isinstance(operand, Constant) and operand.null:
            return Constant(at, "bool", "true" if len(known) < len(values) else "false")
        tests: list[Expression] = []
        if known:
            pairs = [unify(value.at, operand, value) for value in known]
            converted = next((left for left, _ in pairs if left is not operand), operand)
            type = common(right.type for _, right in pairs)
            constants = tuple(cast(str, cast(Constant, right).value) for _, right in pairs)
            tests.append(Membership(at, "bool", converted, type, constants, self.null_is_value))
        if len(known) < len(values):
            tests.append(IsNull(at, "bool", operand))
        return tests[0] if len(tests) == 1 else Junction(at, "bool", "or", tuple(tests))


def column(at: int, catalog: Catalog, entity: Entity, path: tuple[Navigation, ...], field: Field, row: int = 0) -> Column:
    """The column at the end of a path from a row of the entity.

    The id of a referenced row is the reference's own column, which saves the last join.
    """
    if path and field.name == "id":
        for step in path[:-1]:
            entity = catalog[step.target]
        path, field = path[:-1], entity.fields[path[-1].field]
    return Column(at, field.type, path, field, row)


def as_shown(column: Column) -> Expression:
    """The value of a column as OData shows it: what is compared, ordered and grouped is what its reader sees."""
    function = SHOWN.get(cast(Any, column.type))
    return column if function is None else Call(column.at, column.type, function, (column,), 0)


def call(at: int, function: Function, arguments: tuple[Expression, ...]) -> Call:
    """A call of the function, its arguments converted to the parameters' SQL types.  Raises QueryError above MAX_GROWTH."""
    converted = tuple(map(_argument, function.parameters, arguments))
    growth = function.growing + sum(getattr(argument, "growth", 0) for argument in converted)
    if growth > MAX_GROWTH:
        raise QueryError(f"at most {MAX_GROWTH} operations in one expression", position=at)
    return Call(at, function.result, function, converted, growth)


def _argument(parameter: str, argument: Expression) -> Expression:
    """The argument in the parameter's SQL type: numbers become numeric, null gets a type."""
    if parameter in ("number", "integer"):
        if isinstance(argument, Constant):
            return replace(argument, type="whole" if argument.type in INTEGERS else "numeric")
        if isinstance(argument, Column | Result) and argument.type in ("whole", "numeric"):
            field = argument.field
            bounded = field.precision is not None and field.precision - (field.scale or 0) <= literals.LARGEST_EXPONENT
            return argument if bounded else converted(argument, BOUNDED)
        if argument.type in ("whole", "numeric"):
            return argument
        return converted(argument, WHOLE if argument.type in INTEGERS else NUMERIC)
    if isinstance(argument, Constant) and argument.type == "null":
        return Constant(argument.at, cast(Type, parameter), None)
    return argument


def unknown(name: Name, entity: Entity) -> QueryError:
    """The error for a name that is not a field of the entity."""
    return QueryError(f"{entity.name} has no field {name.text}", position=name.at)
