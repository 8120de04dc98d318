"""Checks a mapper against the catalog: names, lookup kinds, types, settings and paths.  After it, only values can fail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from app.database.catalog import Catalog, Entity, Navigation
from app.errors import ServiceError, hint
from app.mapper.language import paths
from app.mapper.language.functions import TEXTS, type_of
from app.mapper.language.locales import Locale
from app.mapper.language.problems import mapper_error
from app.mapper.language.tree import (
    Block,
    BlockSyntax,
    FieldSyntax,
    LiteralValue,
    Mapper,
    MapperExpression,
    MapperSyntax,
    Rule,
    SettingSyntax,
    SourceFormat,
    SourcePath,
    ValueType,
    paths_in,
)
from app.types import named

FORMATS = ("xml", "json", "csv", "excel")
OPERATIONS = ("create", "update", "upsert", "delete")
MAX_COLUMNS = 10_000  # of CSV without a header
MOST_SKIPPED = 10_000  # lines of CSV before the header
BOOLEANS = {"true": True, "false": False}

# type of a field -> types of expressions that it accepts
TAKES: dict[str, frozenset[ValueType]] = {
    "number": frozenset(("source", "text", "number", "null")),
    "bool": frozenset(("source", "text", "bool", "null")),
    "date": frozenset(("source", "text", "date", "timestamp", "null")),
    "timestamp": frozenset(("source", "text", "date", "timestamp", "null")),
    "text": frozenset(("source", "text", "number", "date", "timestamp", "null")),
}


def check(syntax: MapperSyntax, text: str, catalog: Catalog) -> Mapper:
    """Return the checked mapper.  Raises ServiceError `invalid_mapper` at the first error in its text."""
    return _Check(syntax, text, catalog).mapper()


class _Check:
    def __init__(self, syntax: MapperSyntax, text: str, catalog: Catalog) -> None:
        self._syntax = syntax
        self._text = text
        self._catalog = catalog

    def mapper(self) -> Mapper:
        name = self._syntax.format.lower()
        if name not in FORMATS:
            raise self._error(self._syntax.at, f"expected {_any((*FORMATS, 'template'))}, got {self._syntax.format}")
        self._format = cast(SourceFormat, name)
        settings = self._settings()
        self._header = settings.get("header", True)
        blocks = []
        for item in self._syntax.items:
            if isinstance(item, FieldSyntax):
                raise self._error(item.at, f"{item.name} is not inside a block, expected a block: {item.name} = 'path' {{ ... }}")
            if isinstance(item, BlockSyntax):
                blocks.append(self._top(item))
        if not blocks:
            raise self._error(len(self._text) + 1, "expected a block: products = 'path' { ... }")
        return Mapper(self._format, tuple(blocks), self._text, **settings)

    # Settings.

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        for item in self._syntax.items:
            if not isinstance(item, SettingSyntax):
                continue
            if item.name == "@namespace":
                self._namespace(item, settings.setdefault("namespaces", {}))
                continue
            name = item.name[1:]
            if item.key is not None:
                raise self._error(item.at, f"unexpected [{item.key}], expected {item.name} = ...")
            if name in settings:
                raise self._error(item.at, f"{item.name} is set twice")
            settings[name] = self._setting(item)
        if settings.get("delimiter") is not None and settings.get("delimiter") == settings.get("quote", '"'):
            at = next(
                item.expression.at for item in self._syntax.items if isinstance(item, SettingSyntax) and item.name == "@delimiter"
            )
            raise self._error(at, "@delimiter: expected a character other than @quote")
        return settings

    def _namespace(self, item: SettingSyntax, namespaces: dict[str, str]) -> None:
        if item.key is None:
            raise self._error(item.at, 'expected a prefix: @namespace[prefix] = "..."')
        if self._format != "xml":
            raise self._error(item.at, f"{item.name} is not a setting of {self._format}, only of xml")
        if item.key in namespaces:
            raise self._error(item.at, f"{item.name}[{item.key}] is set twice")
        if item.key.lower().startswith("xml"):
            raise self._error(item.at, f"{item.name}: expected a prefix that does not start with xml, got {item.key}")
        if not item.value:
            raise self._error(item.expression.at, f"{item.name}: expected a URI")
        namespaces[item.key] = item.value

    def _setting(self, item: SettingSyntax) -> Any:
        known = ["@atomic", "@mode", "@language"]
        known += ["@skip", "@delimiter", "@quote", "@encoding", "@header"] if self._format == "csv" else []
        known += ["@sheet", "@header"] if self._format == "excel" else []
        known += ["@namespace[...]"] if self._format == "xml" else []
        match item.name:
            case "@atomic":
                value = self._one_of(item, ("batch", "true", "false"))
                return BOOLEANS.get(value, value)
            case "@mode":
                return self._one_of(item, ("array", "merge"))
            case "@language":
                return self._value(item, Locale.of)
            case name if name not in known:
                raise self._error(item.at, f"unknown setting {name}, expected {_any(known)}")
            case "@header":
                return BOOLEANS[self._one_of(item, ("true", "false"))]
            case "@sheet":
                return item.value
            case "@encoding":
                return self._value(item, paths.check_encoding)
            case "@skip":
                return self._count(item)
        value = {"tab": "\t", "\\t": "\t"}.get(text := self._text_of(item), text)
        if len(value) != 1 or value in "\r\n":
            raise self._error(item.expression.at, f"{item.name}: expected one character, got {item.value!r}")
        return value

    def _text_of(self, item: SettingSyntax) -> str:
        if item.value is None:
            raise self._error(item.expression.at, f"{item.name}: expected a text in quotes")
        return item.value

    def _one_of(self, item: SettingSyntax, values: Iterable[str]) -> str:
        text = self._text_of(item)
        if text not in values:
            raise self._error(item.expression.at, f"{item.name}: expected {_any(values)}, got {text!r}")
        return text

    def _count(self, item: SettingSyntax) -> int:
        text = self._text_of(item)
        if not (text.isascii() and text.isdigit() and int(text[:9]) <= MOST_SKIPPED):
            raise self._error(
                item.expression.at, f"{item.name}: expected a number of lines from 0 to {MOST_SKIPPED:,}, got {text!r}"
            )
        return int(text)

    def _value(self, item: SettingSyntax, check: Any) -> str:
        text = self._text_of(item)
        try:
            check(text)
        except ValueError as error:
            raise self._error(item.expression.at, f"{item.name}: {error}") from None
        return text

    # Blocks.

    def _top(self, block: BlockSyntax) -> Block:
        if block.name not in self._catalog:
            raise self._error(block.at, f"unknown entity {block.name}{hint(block.name, self._catalog.entities)}")
        self._path(block.path, paths.check_collection)
        return self._block(block, self._catalog[block.name], 0, is_top=True)

    def _block(self, block: BlockSyntax, entity: Entity, depth: int, *, is_top: bool = False) -> Block:
        children = {n.name: n for n in entity.children}
        rules: list[Rule] = []
        blocks: list[Block] = []
        directives: dict[str, Any] = {}
        condition: MapperExpression | None = None
        seen: set[str] = set()
        for item in block.items:
            if item.name in seen:
                raise self._error(item.at, f"{item.name} appears twice in this block")
            seen.add(item.name)
            match item:
                case SettingSyntax():
                    directives[item.name] = self._directive(item, depth, is_top=is_top)
                case FieldSyntax(name="when", kind=None):
                    condition = self._condition(item, depth)
                case FieldSyntax():
                    rules.append(self._rule(item, entity, depth))
                case BlockSyntax():
                    blocks.append(self._child(item, entity, children, depth))
        if not rules and not blocks:
            raise self._error(block.at, f"the block {block.name} is empty, expected a field: name = 'path'")
        rules += (each for each in directives.values() if isinstance(each, Rule))
        remove_all, operation = directives.get("@removeAll"), directives.get("@operation")
        return Block(
            *(block.at, block.name, entity, block.path, tuple(rules), tuple(blocks), remove_all),
            None if isinstance(operation, Rule) else operation,
            condition,
        )

    def _child(self, item: BlockSyntax, entity: Entity, children: dict[str, Navigation], depth: int) -> Block:
        if item.name not in children:
            expected = f", expected one of {', '.join(children)}" if children else ""
            raise self._error(item.at, f"{entity.name} has no child collection {item.name}{expected}")
        inside = depth + self._path(item.path, paths.check_children, depth)
        return self._block(item, self._catalog[children[item.name].target], inside)

    def _directive(self, item: SettingSyntax, depth: int, *, is_top: bool) -> Any:
        """The value of a setting of a block, or the rule that gives it for each record."""
        known = ("@removeAll", "@operation", *(["@where"] if is_top else []))
        if item.key is not None or item.name not in known:
            raise self._error(item.at, f"unknown setting {item.name} in this block, expected {_any(known)}")
        if item.name == "@removeAll":
            return BOOLEANS[self._one_of(item, ("true", "false"))]
        if item.name == "@operation" and (item.value in OPERATIONS or isinstance(item.expression, LiteralValue)):
            return self._one_of(item, OPERATIONS)
        self._paths(item.expression, depth)
        found = type_of(item.expression, self._text)
        if found not in TEXTS:
            raise self._error(item.expression.at, f"{item.name}: expected text, got a {found}")
        return Rule(item.at, item.name, None, item.expression, None)

    def _condition(self, item: FieldSyntax, depth: int) -> MapperExpression:
        self._paths(item.expression, depth)
        found = type_of(item.expression, self._text)
        if found not in TAKES["bool"]:
            raise self._error(item.expression.at, f"when: expected a condition, got a {found}")
        return item.expression

    # Fields.

    def _rule(self, item: FieldSyntax, entity: Entity, depth: int) -> Rule:
        target = _reference(entity, item.name)
        field = None if target else entity.fields.get(item.name)
        if target is None and (field is None or field.generated):
            known = ", ".join(_field_names(entity))
            raise self._error(item.at, f"{entity.name} has no field {item.name}, expected one of {known}")
        if item.kind is not None:
            self._kind(item, entity, target)
        self._paths(item.expression, depth)
        found = type_of(item.expression, self._text)
        if item.kind is None and field is not None and item.name != "id":
            type = named(field.type)
            expected: str = "number" if type.is_number else type.kind
        else:
            expected = "a lookup"
        takes = TAKES.get(expected, TAKES["text"])
        if found not in takes:
            raise self._error(item.expression.at, f"{item.name}: expected {_with_article(expected)}, got a {found}")
        return Rule(item.at, item.name, item.kind, item.expression, field)

    def _paths(self, expression: MapperExpression, depth: int) -> None:
        for path in paths_in(expression):
            self._path(path, paths.check_value, depth)
            if not self._header and not (path.text.isascii() and path.text.isdigit() and 0 < int(path.text[:9]) <= MAX_COLUMNS):
                raise self._error(path.at, f"expected a column number from 1, because @header is 'false', got {path.text!r}")

    def _kind(self, item: FieldSyntax, entity: Entity, target: str | None) -> None:
        if item.name != "id" and target is None:
            raise self._error(item.kind_at, f"{item.name} is not a reference, expected {item.name} = ... without [{item.kind}]")
        named = entity if target is None else self._catalog[target]
        kinds = ["id", *(field.name for field in named.alternate_keys)]
        if item.kind not in kinds:
            raise self._error(item.kind_at, f"{named.name} cannot be looked up by {item.kind}, expected {_any(kinds)}")

    def _path(self, path: SourcePath, check: Any, *arguments: Any) -> Any:
        try:
            return check(self._format, path.text, *arguments)
        except paths.PathError as error:
            raise self._error(path.at + (error.offset and error.offset + 1), str(error)) from None  # offsets count after the quote

    def _error(self, at: int, reason: str) -> ServiceError:
        return mapper_error(self._text, at, reason)


def _reference(entity: Entity, name: str) -> str | None:
    """The target entity of a reference, named `category` or `categoryId`; None if the name is not a reference."""
    field = entity.fields.get(name)
    navigation = entity.navigations.get(field.reference if field is not None and field.reference else name)
    return navigation.target if navigation is not None and not navigation.many else None


def _field_names(entity: Entity) -> Iterator[str]:
    yield "id"
    for field in entity.fields.values():
        if field.name not in ("id", "updatedAt") and not field.generated:
            yield field.reference or field.name


def _any(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _with_article(expected: str) -> str:
    return expected if expected.startswith("a ") or expected == "text" else f"a {expected}"
