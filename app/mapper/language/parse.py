"""Parses the text of a mapper and checks it.

    read('type csv  products = \'row\' { code = \'sku\' }', catalog)  ->  Mapper
    read('type template text/html\n<h1>{{ entity }}</h1>', catalog)   ->  TemplateMapper

An error is a ServiceError `invalid_mapper` with line, column and what was expected there.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, cast

import jinja2
from jinja2.sandbox import SandboxedEnvironment
from lark import Token, Transformer, v_args

from app.database.catalog import Catalog
from app.errors import QueryError, ServiceError
from app.mapper.language.check import check
from app.mapper.language.problems import mapper_error
from app.mapper.language.tree import (
    BlockSyntax,
    FieldSyntax,
    FunctionCall,
    LiteralValue,
    Mapper,
    MapperExpression,
    MapperSyntax,
    SettingSyntax,
    SourcePath,
    TemplateMapper,
)
from app.query.parse.parser import Language, position

LONGEST = 256 << 10  # characters of a mapper
TEMPLATE = re.compile(r"\ufeff?[ \t]*type[ \t]+template\b[ \t]*([^\r\n]*?)[ \t]*(?:\r\n|\n|\Z)")
MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:[ \t]*;[ \t]*[\w-]+=(?:[\w.+-]+|\"[^\"]*\"))*")
CHARSET = re.compile(r";[ \t]*charset=\"?([^\";]*)", re.IGNORECASE)

WORDS = {
    "TYPE": "type",
    "SETTING": "a setting",
    "ASSIGN": "'='",
    "PATH": "a 'source path'",
    "TEXT": 'a "text"',
    "NUMBER": "a number",
    "BOOL": "true, false",
    "NULL": "null",
    "NOT": "not",
    "AND": "and",
    "OR": "or",
    "SUM": "+, -",
    "PRODUCT": "*, /",
    "COMPARISON": "a comparison",
    "LBRACE": "'{'",
    "RBRACE": "'}'",
    "LSQB": "'['",
    "RSQB": "']'",
}


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    def mapper(self, _: Token, name: Token, *items: Any) -> MapperSyntax:
        return MapperSyntax(position(name), str(name), items)

    def setting(self, name: Token, key: Token | None, _: Token, value: MapperExpression) -> SettingSyntax:
        return SettingSyntax(position(name), str(name), None if key is None else str(key), value)

    def block(self, name: Token, _: Token, path: Token, *items: Any) -> BlockSyntax:
        inside = tuple(item for item in items if not isinstance(item, Token))
        return BlockSyntax(position(name), str(name), SourcePath(position(path), _unquoted(path)), inside)

    def field(self, name: Token, kind: Token | None, _: Token, expression: MapperExpression) -> FieldSyntax:
        at = position(name if kind is None else kind)
        return FieldSyntax(position(name), str(name), None if kind is None else str(kind), at, expression)

    def disjunction(self, *parts: Any) -> FunctionCall:
        return _junction("or", parts)

    def conjunction(self, *parts: Any) -> FunctionCall:
        return _junction("and", parts)

    def prefix(self, operator: Token, operand: MapperExpression) -> MapperExpression:
        return FunctionCall(position(operator), {"+": "plus", "-": "minus"}.get(operator, str(operator)), (operand,))

    def binary(self, left: MapperExpression, operator: Token, right: MapperExpression) -> FunctionCall:
        return FunctionCall(position(operator), {"==": "=", "<>": "!="}.get(operator, str(operator)), (left, right))

    def call(self, name: Token, *arguments: MapperExpression | None) -> FunctionCall:
        return FunctionCall(position(name), str(name), tuple(each for each in arguments if each is not None))

    def path(self, token: Token) -> SourcePath:
        return SourcePath(position(token), _unquoted(token))

    def literal(self, token: Token) -> LiteralValue:
        values: dict[str, Any] = {"true": True, "false": False, "null": None}
        match token.type:
            case "TEXT":
                return LiteralValue(position(token), _unquoted(token))
            case "NUMBER":
                return LiteralValue(position(token), Decimal(str(token)))
        return LiteralValue(position(token), values[str(token)])


def _junction(operator: str, parts: tuple[Any, ...]) -> FunctionCall:
    operands = tuple(part for part in parts if not isinstance(part, Token))
    return FunctionCall(operands[0].at, operator, operands)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace(token[0] * 2, token[0])


_language = Language("mapper.lark", ["mapper"], _Builder(), WORDS, tokens=LONGEST)


def read(text: str, catalog: Catalog) -> Mapper | TemplateMapper:
    """Parse and check a mapper.  Raises ServiceError `invalid_mapper` or `too_large`."""
    if len(text) > LONGEST:
        raise ServiceError("too_large", f"a mapper has at most {LONGEST:,} characters, got {len(text):,}")
    first = TEMPLATE.match(text)
    if first:
        return _template(text, first)
    return check(parse(text), text, catalog)


def parse(text: str) -> MapperSyntax:
    """Parse a mapper without checking it.  Raises ServiceError `invalid_mapper`."""
    try:
        return cast(MapperSyntax, _language.parse(text, "mapper"))
    except QueryError as error:
        at = error.position or 1
        reason = re.sub(r" \(at character \d+\)$", "", error.message)
        if text[at - 1 : at] in ("'", '"') and text.count(text[at - 1], at - 1, _end_of_line(text, at)) % 2:
            reason = f"quoted text is not closed, expected {text[at - 1]} before the end of the line"
        if text[at - 1 : at] == "{" and text[: at - 1].rstrip().endswith('"'):
            reason = "expected a block's path in 'single quotes'; \"double quotes\" are a text"
        raise mapper_error(text, at, reason) from None


def _end_of_line(text: str, at: int) -> int:
    end = re.compile(r"[\r\n]|\Z").search(text, at)
    return end.start() if end else len(text)


def _template(text: str, first: re.Match[str]) -> TemplateMapper:
    if not MEDIA_TYPE.fullmatch(first[1]):
        found = repr(first[1]) if first[1] else "nothing"
        raise mapper_error(text, first.start(1) + 1, f"expected a media type, such as text/html, got {found}")
    charset = CHARSET.search(first[1])
    if charset and charset[1].lower() not in ("utf-8", "utf8"):
        at = first.start(1) + charset.start(1) + 1
        raise mapper_error(text, at, f"expected utf-8, the charset of all templates, got {charset[1]}")
    source = text[first.end() :]
    try:
        SandboxedEnvironment().parse(source)
    except jinja2.TemplateSyntaxError as error:
        line = error.lineno + text.count("\n", 0, first.end())
        raise ServiceError("invalid_mapper", f"line {line}, column 1: {error.message}", line=line, column=1) from None
    return TemplateMapper(first[1], source, text)
