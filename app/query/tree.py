"""The one expression tree of every query language.

A parser makes syntax (parsed), the checker makes *expressions* of it (columns of the catalog, typed constants, functions of the
table), the compiler makes SQL of expressions alone.  Every node knows the character at which it began, so that each phase can say
where something is wrong.

Expressions are equal if they have the same shape, whatever the values of their constants: then they are the same SQL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal as Choice

from app.database import catalog
from app.database.catalog import Field, Navigation
from app.query.nodes import Node

# Beyond the types of fields: a whole number of any size (arithmetic on integers), a timestamp without its zone (UTC, to be compared
# with a date), and the type of null.
Type = catalog.Type | Choice["whole", "timestamp", "null"]

INTEGERS: frozenset[Type] = frozenset(("int2", "int4", "int8", "whole"))
NUMBERS: frozenset[Type] = INTEGERS | {"numeric", "float8"}

Comparing = Choice["eq", "ne", "lt", "le", "gt", "ge"]

# What an operator is when its operands change places.
FLIPPED: dict[str, Comparing] = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True, slots=True)
class Expression(Node, ABC):
    """A checked node: it has a type."""

    type: Type

    @property
    @abstractmethod
    def nullable(self) -> bool:
        """Whether it can be null."""


@dataclass(frozen=True, slots=True)
class Column(Expression):
    """A field of a row, or of the row that a way of single-valued navigations leads to from there.

    `row` is 0 for the row that the whole expression is about, else the number of the related rows of which it is one.
    """

    way: tuple[Navigation, ...]
    field: Field
    row: int = 0

    @property
    def nullable(self) -> bool:
        return not (self.field.required and all(step.required for step in self.way))


@dataclass(frozen=True, slots=True)
class Result(Expression):
    """What a group of rows has one value of: a field that it is grouped by, or an aggregate."""

    field: Field  # its name tells the group's values apart in SQL
    growth: int  # of a text, as of a Call

    @property
    def nullable(self) -> bool:
        return not self.field.required


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """A value in PostgreSQL's own notation for its type; None is null."""

    value: str | None = field(compare=False)
    null: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "null", self.value is None)

    @property
    def nullable(self) -> bool:
        return self.null


@dataclass(frozen=True, slots=True)
class Function:
    """One signature of a function or an arithmetic operator, and what it is in SQL.

    `template` names the arguments {0}, {1}, ...; it must be total: null where PostgreSQL would raise.  `partial` functions can be
    null though no argument is; `growing` ones make values larger than their arguments.
    """

    name: str
    parameters: tuple[str, ...]
    result: Type
    template: str
    partial: bool = False
    growing: bool = False


@dataclass(frozen=True, slots=True)
class Call(Expression):
    function: Function
    arguments: tuple[Expression, ...]
    growth: int = field(compare=False)  # how many growing functions stand in it

    @property
    def nullable(self) -> bool:
        return self.function.partial or any(argument.nullable for argument in self.arguments)


@dataclass(frozen=True, slots=True)
class Comparison(Expression):
    """Two operands of comparable types.  Where null is a value (OData) it is true or false, else (SQL) null if an operand is."""

    operator: Comparing
    left: Expression
    right: Expression
    null_is_value: bool

    @property
    def nullable(self) -> bool:
        return not self.null_is_value and (self.left.nullable or self.right.nullable)


@dataclass(frozen=True, slots=True)
class Membership(Expression):
    """Whether the operand is one of the values (none of them null), which are of the type `of`."""

    operand: Expression
    of: Type
    values: tuple[str, ...] = field(compare=False)
    null_is_value: bool

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
class Related:
    """The rows to which a navigation to many leads from the row of this id.

    Their number tells them from every other row of which a condition on them can speak.
    """

    origin: Column
    navigation: Navigation
    number: int


@dataclass(frozen=True, slots=True)
class Quantifier(Expression):
    """Whether the condition is true of any, or of all, of the rows; without one, whether there is any."""

    quantifier: Choice["any", "all"]
    rows: Related
    condition: Expression | None

    @property
    def nullable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Count(Expression):
    """How many rows there are."""

    rows: Related

    @property
    def nullable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Order:
    """One key of a checked order.  Null comes first, or last if descending."""

    key: Expression
    descending: bool


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything in it."""
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
