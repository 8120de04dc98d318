"""What the parser of any query language makes: names and operators as they were written, each with its place in the text.

The checker (check) makes expressions (tree) of these nodes; nothing else reads them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as Choice


@dataclass(frozen=True, slots=True)
class Node:
    """Anything that was written at a character (from 1) of a text."""

    at: int = field(compare=False)


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
class Quantified(Node):
    """`items/any(i: i/quantity gt 1)`; `any()` alone has neither variable nor condition."""

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
    """Something that the language knows and the service does not: `what` names it."""

    what: str


@dataclass(frozen=True, slots=True)
class Sorting(Node):
    """One key of an order."""

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
    """`groupby((active,category/name),aggregate(...))`; without paths `aggregate(...)` of all rows."""

    paths: tuple[Path, ...]
    aggregations: tuple[Aggregation, ...]
