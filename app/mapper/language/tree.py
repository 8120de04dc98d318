"""The mapper as frozen values: syntax as it was written, and the checked mapper that sources and writers are made of.

Every node knows the character (from 1) at which it began, so that whatever is wrong is said with line and column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal as Choice

from app.database.catalog import Entity, Field
from app.query.nodes import Node

Format = Choice["xml", "json", "csv"]
# `source`: what a path gives, a text of the source (in JSON a number or true or false, too), read as the place asks for
Type = Choice["source", "text", "number", "date", "timestamp", "bool", "null"]


# Expressions ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Path(Node):
    """A path into the source, relative to the block's element."""

    text: str


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A text, a number, true, false or null."""

    value: str | Decimal | bool | None


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function and its arguments; operators are functions named by their sign."""

    name: str
    arguments: tuple[Expression, ...]


Expression = Path | Constant | Call


# Syntax ---------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingSyntax(Node):
    name: str  # with its @
    key: str | None
    value: str
    value_at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class FieldSyntax(Node):
    name: str
    kind: str | None
    kind_at: int = field(compare=False)
    expression: Expression


@dataclass(frozen=True, slots=True)
class BlockSyntax(Node):
    name: str
    path: Path
    items: tuple[SettingSyntax | FieldSyntax | BlockSyntax, ...]


@dataclass(frozen=True, slots=True)
class MapperSyntax(Node):
    format: str
    items: tuple[SettingSyntax | FieldSyntax | BlockSyntax, ...]


# Checked --------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule(Node):
    """A member of the record and what it is made of; `field` is None for what the catalog has no field for (a reference has)."""

    name: str
    kind: str | None  # the value becomes the lookup kind:value
    expression: Expression
    field: Field | None


@dataclass(frozen=True, slots=True)
class Block(Node):
    """Records of one collection, each made of one element of the source."""

    name: str  # the collection: of the document, or of the record around it
    entity: Entity
    path: Path
    rules: tuple[Rule, ...]
    children: tuple[Block, ...]
    remove_all: bool | None
    operation: str | None

    @property
    def identity(self) -> tuple[Rule, ...]:
        """What names the record: its id, or else its unique fields."""
        own = tuple(rule for rule in self.rules if rule.name == "id")
        return own or tuple(rule for rule in self.rules if rule.field is not None and rule.field.unique)


@dataclass(frozen=True, slots=True)
class Mapper:
    """A mapper of a source's format into import documents."""

    format: Format
    blocks: tuple[Block, ...]
    text: str  # as it was written, for positions
    atomic: str | bool | None = None
    mode: str | None = None
    language: str | None = None
    delimiter: str | None = None  # of CSV, as are the next three
    quote: str | None = None
    encoding: str | None = None
    header: bool = True
    namespaces: Mapping[str, str] = field(default_factory=dict)  # of XML: prefix -> URI

    def block(self, entity: str) -> Block | None:
        """The first block that makes records of an entity."""
        return next((block for block in self.blocks if block.entity.name == entity), None)


@dataclass(frozen=True, slots=True)
class Template:
    """A mapper that only goes forwards: a Jinja2 template and the media type of what it makes."""

    media_type: str
    source: str
    text: str


def paths_of(block: Block) -> Iterator[str]:
    """Every path that the fields of a block, and of the blocks in it, read."""
    for rule in block.rules:
        yield from paths_in(rule.expression)
    for child in block.children:
        yield from paths_of(child)


def paths_in(expression: Expression) -> Iterator[str]:
    """Every path in an expression."""
    if isinstance(expression, Path):
        yield expression.text
    for argument in getattr(expression, "arguments", ()):
        yield from paths_in(argument)
