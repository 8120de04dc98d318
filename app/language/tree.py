"""The one expression tree of every query language.

A parser makes *syntax* (names and operators as they were written), the checker makes *expressions* (columns of the catalog, typed
constants, functions of the table), the compiler makes SQL of expressions alone.  Every node knows the character at which it began,
so that each phase can say where something is wrong.

Expressions are equal if they have the same shape, whatever the values of their constants: then they are the same SQL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as Choice

from app import catalog
from app.catalog import Field, Navigation

# Beyond the types of fields: a whole number of any size (arithmetic on integers), a timestamp without its zone (UTC, to be compared
# with a date), and the type of null.
Type = catalog.Type | Choice["whole", "timestamp", "null"]

INTEGERS: frozenset[Type] = frozenset(("int2", "int4", "int8", "whole"))
NUMBERS: frozenset[Type] = INTEGERS | {"numeric", "float8"}


@dataclass(frozen=True, slots=True)
class Node:
    """Anything that was written at a character (from 1) of a text."""

    at: int = field(compare=False)


# Syntax ---------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A literal as it was written, without quotes."""

    kind: Choice["text", "number", "bool", "null", "date", "timestamp", "time", "uuid"]
    text: str


@dataclass(frozen=True, slots=True)
class Name(Node):
    text: str


@dataclass(frozen=True, slots=True)
class Path(Node):
    """`name`, or `category/name` over single-valued navigation."""

    names: tuple[Name, ...]

    def __str__(self) -> str:
        return "/".join(name.text for name in self.names)


@dataclass(frozen=True, slots=True)
class Operation(Node):
    """An operator and its operands; `and` and `or` take any number, `in` an operand and its list."""

    operator: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Invocation(Node):
    """A function by name, `length(name)`."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Unsupported(Node):
    """Something that the language knows and the service does not: `what` names it."""

    what: str


@dataclass(frozen=True, slots=True)
class Sorting(Node):
    """One key of an order."""

    key: Node
    descending: bool


# Expressions ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Expression(Node):
    """A checked node: it has a type."""

    type: Type

    @property
    def nullable(self) -> bool:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Column(Expression):
    """A field of the row, or of the row that a way of single-valued navigations leads to."""

    way: tuple[Navigation, ...]
    field: Field

    @property
    def nullable(self) -> bool:
        return not (self.field.required and all(step.required for step in self.way))


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

    operator: Choice["eq", "ne", "lt", "le", "gt", "ge"]
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
class Order:
    """One key of a checked order.  Null comes first, or last if descending."""

    key: Expression
    descending: bool
