"""Syntax nodes: what the parsers make of a text, before names and types are checked.

Names and operators stand as they were written, each with its position.  Only the checkers (check, check_odata, check_where,
check_apply) read these nodes; they turn them into expressions (tree).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as Choice

Comparator = Choice["eq", "ne", "lt", "le", "gt", "ge"]

# The operator of a comparison whose operands are swapped.
FLIPPED: dict[str, Comparator] = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True, slots=True)
class Node:
    """Anything in a text, with the position (in characters, from 1) at which it begins."""

    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A literal as it was written, without its quotes."""

    kind: Choice["text", "number", "bool", "null", "date", "timestamp", "time", "uuid", "interval", "bytea"]
    text: str


@dataclass(frozen=True, slots=True)
class Name(Node):
    text: str


@dataclass(frozen=True, slots=True)
class Path(Node):
    """`name`, or `category/name` over single-valued navigation properties."""

    names: tuple[Name, ...]

    def __str__(self) -> str:
        return "/".join(name.text for name in self.names)


@dataclass(frozen=True, slots=True)
class Operation(Node):
    """An operator and its operands.  `and` and `or` take any number; `in` takes an operand and the values of its list."""

    operator: str
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Invocation(Node):
    """A function call, `length(name)`."""

    name: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Quantified(Node):
    """A lambda, `items/any(i: i/quantity gt 1)`.  `items/any()` has neither variable nor condition."""

    path: Path
    quantifier: Choice["any", "all"]
    variable: Name | None
    condition: Node | None


@dataclass(frozen=True, slots=True)
class Size(Node):
    """`items/$count`."""

    path: Path


@dataclass(frozen=True, slots=True)
class Unsupported(Node):
    """Valid syntax that the service does not support; `what` names it in the error."""

    what: str


@dataclass(frozen=True, slots=True)
class Alias(Node):
    """A parameter alias, `@p`, whose value is an option of the request."""

    name: str


@dataclass(frozen=True, slots=True)
class AliasOfList(Node):
    """The alias of `in @p`, whose value is a list; that of `in (@p)` is one value."""

    name: str


@dataclass(frozen=True, slots=True)
class Sorting(Node):
    """One sort key."""

    key: Node
    descending: bool


@dataclass(frozen=True, slots=True)
class Aggregation(Node):
    """`price with sum as total`, or `$count as n`, which has no value and no method."""

    value: Node | None
    method: Name | None
    alias: Name


@dataclass(frozen=True, slots=True)
class Grouping(Node):
    """`groupby((active,category/name),aggregate(...))`, or `aggregate(...)` of all rows, which has no paths."""

    paths: tuple[Path, ...]
    aggregations: tuple[Aggregation, ...]


@dataclass(frozen=True, slots=True)
class Filtering(Node):
    """`filter(price gt 1)` in $apply."""

    condition: Node


@dataclass(frozen=True, slots=True)
class Applying:
    """An $apply: conditions on rows, then the grouping of those that remain."""

    filters: tuple[Node, ...]
    grouping: Grouping | None
