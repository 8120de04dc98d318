"""Expressions: the checked tree that all query languages share.

The checkers make expressions of syntax nodes: columns of the catalog, typed constants, functions of the function table.  The
compiler makes SQL of expressions only.  Every expression keeps its position in the text for error messages.

Two expressions are equal if they have the same shape, whatever the values of their constants: equal expressions are the same SQL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Literal as Choice

from app import types
from app.database.catalog import Field, Navigation
from app.query.parse.nodes import Comparator, Node

Type = types.AnyName

INTEGERS: frozenset[Type] = types.INTEGERS | {"whole"}
NUMBERS: frozenset[Type] = types.NUMBERS | {"whole"}
DOUBLES: frozenset[Type] = types.of_kind("double")

_serials = count()


@dataclass(frozen=True, slots=True)
class Expression(Node, ABC):
    """A checked node: it has a type."""

    type: Type

    @property
    @abstractmethod
    def nullable(self) -> bool:
        """Whether the value can be null."""


@dataclass(frozen=True, slots=True)
class Column(Expression):
    """A field of a row, or of another row at the end of a path of single-valued navigations.

    `row` is the number of the row at which the path begins: 0 for the row that the whole expression is about, another number for a
    related row (see RelatedRows).
    """

    path: tuple[Navigation, ...]
    field: Field
    row: int = 0

    @property
    def nullable(self) -> bool:
        return not (self.field.required and all(step.required for step in self.path))


@dataclass(frozen=True, slots=True)
class Result(Expression):
    """A value of a group of rows: a field that the rows are grouped by, or an aggregate."""

    field: Field  # named as the column of the group in SQL
    growth: int  # of a text, as in Call

    @property
    def nullable(self) -> bool:
        return not self.field.required


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A value in PostgreSQL's notation for its type; None is null.

    serial: identifies the constant among all others; a copy made by `dataclasses.replace` keeps it.
    """

    value: str | None = field(compare=False)
    null: bool = field(init=False)
    serial: int = field(default_factory=_serials.__next__, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "null", self.value is None)

    @property
    def nullable(self) -> bool:
        return self.null


@dataclass(frozen=True, slots=True)
class Function:
    """One signature of a function or arithmetic operator, with its SQL.

    template: SQL with the arguments as {0}, {1} ...; it must be total: null where PostgreSQL would raise an error.
    partial: the result can be null even if no argument is.
    growing: the result can be larger than the arguments.
    """

    name: str
    parameters: tuple[str, ...]
    result: Type
    template: str
    partial: bool = False
    growing: bool = False


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A function applied to its arguments.  growth: how many growing functions the whole expression contains."""

    function: Function
    arguments: tuple[Expression, ...]
    growth: int = field(compare=False)

    @property
    def nullable(self) -> bool:
        return self.function.partial or any(argument.nullable for argument in self.arguments)


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """Two operands of comparable types.

    null_is_value: OData's rule, the comparison is true or false; otherwise SQL's rule, it is null if an operand is null.
    """

    operator: Comparator
    left: Expression
    right: Expression
    null_is_value: bool

    @property
    def nullable(self) -> bool:
        return not self.null_is_value and (self.left.nullable or self.right.nullable)


@dataclass(frozen=True, slots=True)
class Membership(Expression):
    """Whether the operand equals one of the values, none of which is null.  `serial` is as in Constant."""

    operand: Expression
    value_type: Type
    values: tuple[str, ...] = field(compare=False)
    null_is_value: bool
    serial: int = field(default_factory=_serials.__next__, compare=False, repr=False)

    @property
    def nullable(self) -> bool:
        return not self.null_is_value and self.operand.nullable


@dataclass(frozen=True, slots=True)
class IsNull(Expression):
    operand: Expression

    @property
    def nullable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Not(Expression):
    operand: Expression

    @property
    def nullable(self) -> bool:
        return self.operand.nullable


@dataclass(frozen=True, slots=True)
class Junction(Expression):
    """Two or more operands joined by `and` or `or`."""

    operator: Choice["and", "or"]
    operands: tuple[Expression, ...]

    @property
    def nullable(self) -> bool:
        return any(operand.nullable for operand in self.operands)


@dataclass(frozen=True, slots=True)
class RelatedRows:
    """The rows to which a collection-valued navigation leads from the row whose id is `origin`.

    `number` tells them from all other rows of the same condition: it is the `row` of their columns.
    """

    origin: Column
    navigation: Navigation
    number: int


@dataclass(frozen=True, slots=True)
class Quantifier(Expression):
    """Whether the condition is true of any, or of all, of the rows; without a condition, whether there are rows."""

    quantifier: Choice["any", "all"]
    rows: RelatedRows
    condition: Expression | None

    @property
    def nullable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Count(Expression):
    """The number of rows."""

    rows: RelatedRows

    @property
    def nullable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Order:
    """One checked sort key.  Nulls come first; in descending order, last."""

    key: Expression
    descending: bool


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and all expressions inside it, from the outside in."""
    yield expression
    match expression:
        case Call(arguments=parts) | Junction(operands=parts):
            pass
        case Comparison(left=left, right=right):
            parts = (left, right)
        case Not(operand=part) | IsNull(operand=part) | Membership(operand=part):
            parts = (part,)
        case Quantifier(rows=rows, condition=condition):
            parts = (rows.origin, condition) if condition else (rows.origin,)
        case Count(rows=rows):
            parts = (rows.origin,)
        case _:
            parts = ()
    for part in parts:
        yield from walk(part)
