"""A mapper as frozen values: its syntax as the parser reads it, and the checked mapper that readers and writers use.

Each node holds the character (from 1) at which it starts, for line and column of errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal as Choice

from app.database.catalog import Entity, Field
from app.query.parse.nodes import Node

SourceFormat = Choice["xml", "json", "csv", "excel", "jsonl"]  # jsonl: of exports alone
# `source` is the type of a path: text (in JSON also a number or a boolean), converted to the type that its context expects
ValueType = Choice["source", "text", "number", "date", "timestamp", "bool", "null"]


# Expressions ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SourcePath(Node):
    """A path into the source, relative to the block's element."""

    text: str


@dataclass(frozen=True, slots=True)
class LiteralValue(Node):
    """A text, a number, true, false or null."""

    value: str | Decimal | bool | None


@dataclass(frozen=True, slots=True)
class FunctionCall(Node):
    """A function and its arguments; operators are functions named by their sign."""

    name: str
    arguments: tuple[MapperExpression, ...]


MapperExpression = SourcePath | LiteralValue | FunctionCall


# Syntax ---------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingSyntax(Node):
    name: str  # with its @
    key: str | None
    expression: MapperExpression

    @property
    def value(self) -> str | None:
        """What is in its quotes, of either kind; None if it is an expression of another kind."""
        match self.expression:
            case SourcePath(text=text):
                return text
            case LiteralValue(value=str() as text):
                return text
        return None


@dataclass(frozen=True, slots=True)
class FieldSyntax(Node):
    name: str
    kind: str | None
    kind_at: int = field(compare=False)
    expression: MapperExpression


@dataclass(frozen=True, slots=True)
class BlockSyntax(Node):
    name: str
    path: SourcePath
    items: tuple[SettingSyntax | FieldSyntax | BlockSyntax, ...]


@dataclass(frozen=True, slots=True)
class MapperSyntax(Node):
    format: str
    items: tuple[SettingSyntax | FieldSyntax | BlockSyntax, ...]


# Checked --------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule(Node):
    """How one member of a record is made; `field` is None for a reference."""

    name: str
    kind: str | None  # makes the value a lookup, kind:value
    expression: MapperExpression
    field: Field | None


@dataclass(frozen=True, slots=True)
class Block(Node):
    """The records of one collection, each made from one element of the source."""

    name: str  # the collection, in the document or in the parent record
    entity: Entity
    path: SourcePath
    rules: tuple[Rule, ...]
    children: tuple[Block, ...]
    remove_all: bool | None
    operation: str | None
    condition: MapperExpression | None = None  # only elements that satisfy it become records

    @property
    def identity(self) -> tuple[Rule, ...]:
        """The rules that identify a record: its id, or else its unique fields."""
        own = tuple(rule for rule in self.rules if rule.name == "id")
        return own or tuple(rule for rule in self.rules if rule.field is not None and rule.field.unique)


@dataclass(frozen=True, slots=True)
class Mapper:
    """A checked mapper from a source format to import documents."""

    format: SourceFormat
    blocks: tuple[Block, ...]
    text: str  # for positions of errors
    atomic: str | bool | None = None
    mode: str | None = None
    language: str | None = None
    delimiter: str | None = None  # this and the next three: CSV
    quote: str | None = None
    encoding: str | None = None
    header: bool = True  # CSV and Excel
    skip: int = 0  # CSV: lines before the header
    sheet: str | None = None  # Excel: the name of the worksheet; None: the first
    namespaces: Mapping[str, str] = field(default_factory=dict)  # XML: prefix -> URI
    is_exported: bool = False  # made by mapper/exported.py: the source is a file that an export wrote

    def block(self, entity: str) -> Block | None:
        """The first block that makes records of an entity."""
        return next((block for block in self.blocks if block.entity.name == entity), None)


@dataclass(frozen=True, slots=True)
class TemplateMapper:
    """A mapper for exports only: a Jinja2 template and the media type of its output."""

    media_type: str
    source: str
    text: str


def paths_of(block: Block) -> Iterator[str]:
    """The text of each path in the fields of a block and of its nested blocks."""
    if block.condition is not None:
        yield from (path.text for path in paths_in(block.condition))
    for rule in block.rules:
        yield from (path.text for path in paths_in(rule.expression))
    for child in block.children:
        yield from paths_of(child)


def paths_in(expression: MapperExpression) -> Iterator[SourcePath]:
    """Each path in an expression."""
    if isinstance(expression, SourcePath):
        yield expression
    for argument in getattr(expression, "arguments", ()):
        yield from paths_in(argument)
