"""Names and types: syntax trees become expressions over the catalog, or a QueryError at the character that is wrong.

Checker             what the languages share: conditions, comparisons, membership, sorting
  check_odata.OData   names as they are, literals of their own types, functions, paths; null is a value
  check_where.Where   names in any case, literals of the field's type, lookups as references; null is SQL's unknown
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, cast

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.errors import QueryError
from app.query import literals
from app.query.functions import BOUNDED, NUMERIC, WHOLE
from app.query.indexable import indexable
from app.query.nodes import Name, Node, Operation, Path, Sorting, Unsupported
from app.query.tree import (
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
from app.query.types import TYPE_NAMES, common, converted, unify

MAX_GROWTH = 100  # arithmetic and concatenations in one expression: what they make stays within what PostgreSQL can hold


class Checker(ABC):
    """Checks trees against one entity."""

    null_is_value: ClassVar[bool]

    def __init__(self, catalog: Catalog, entity: Entity) -> None:
        self.catalog = catalog
        self.entity = entity

    def condition(self, node: Node) -> Expression:
        """The node as a condition.  Raises QueryError unless it is true, false or null."""
        expression = self.check(node)
        if isinstance(expression, Constant) and expression.type == "null":
            return Constant(expression.at, "bool", None)
        if expression.type != "bool":
            raise QueryError(f"expected a condition, found {TYPE_NAMES[expression.type]}", position=node.at)
        return expression

    def order(self, keys: Iterable[Sorting]) -> tuple[Order, ...]:
        """The keys of an order."""
        return tuple(Order(self.check(key.key), key.descending) for key in keys)

    def check(self, node: Node) -> Expression:
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
        raise TypeError(f"no language has {node!r} here")

    @abstractmethod
    def operation(self, node: Operation) -> Expression:
        """A comparison, a membership, or what else a language has."""

    @abstractmethod
    def path(self, path: Path) -> Expression:
        """What a name, or a path of names, stands for."""

    def compare(self, at: int, operator: Any, left: Expression, right: Expression) -> Expression:
        """A comparison of two checked operands, either of which may be null."""
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
        """Whether the operand is one of the constants; null among them asks for null."""
        known = [value for value in values if value.value is not None]
        if isinstance(operand, Constant) and operand.null:
            return Constant(at, "bool", "true" if len(known) < len(values) else "false")
        tests: list[Expression] = []
        if known:
            pairs = [unify(value.at, operand, value) for value in known]
            converted = next((left for left, _ in pairs if left is not operand), operand)
            of = common(right.type for _, right in pairs)
            constants = tuple(cast(str, cast(Constant, right).value) for _, right in pairs)
            tests.append(Membership(at, "bool", converted, of, constants, self.null_is_value))
        if len(known) < len(values):
            tests.append(IsNull(at, "bool", operand))
        return tests[0] if len(tests) == 1 else Junction(at, "bool", "or", tuple(tests))


def column(at: int, catalog: Catalog, entity: Entity, way: tuple[Navigation, ...], field: Field, row: int = 0) -> Column:
    """A column at the end of a way from a row of the entity.  A referenced row's id is the reference's own field: no need to go."""
    if way and field.name == "id":
        for step in way[:-1]:
            entity = catalog[step.target]
        way, field = way[:-1], entity.fields[way[-1].field]
    return Column(at, field.type, way, field, row)


def call(at: int, function: Function, arguments: tuple[Expression, ...]) -> Call:
    converted = tuple(map(_argument, function.parameters, arguments))
    growth = function.growing + sum(getattr(argument, "growth", 0) for argument in converted)
    if growth > MAX_GROWTH:
        raise QueryError(f"at most {MAX_GROWTH} operations in one expression", position=at)
    return Call(at, function.result, function, converted, growth)


def _argument(parameter: str, argument: Expression) -> Expression:
    """The argument as the parameter's SQL type: numbers are numeric, null is typed."""
    if parameter in ("number", "integer"):
        if isinstance(argument, Constant):
            return Constant(argument.at, "whole" if argument.type in INTEGERS else "numeric", argument.value)
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
    return QueryError(f"{entity.name} has no field {name.text}", position=name.at)
