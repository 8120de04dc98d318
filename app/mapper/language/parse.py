"""The text of a mapper as a checked value.

    read('type csv  products = \'row\' { code = \'sku\' }', catalog)  ->  Mapper
    read('type template text/html\n<h1>{{ entity }}</h1>', catalog)   ->  Template

Whatever is wrong is a ServiceError `invalid_mapper` with the line, the column and what was expected there.
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
from app.mapper.language.problems import wrong
from app.mapper.language.tree import (
    BlockSyntax,
    Call,
    Constant,
    Expression,
    FieldSyntax,
    Mapper,
    MapperSyntax,
    Path,
    SettingSyntax,
    Template,
)
from app.query.parser import Language, position

LONGEST = 256 << 10  # characters of a mapper
TEMPLATE = re.compile(r"\ufeff?[ \t]*type[ \t]+template\b[ \t]*([^\r\n]*?)[ \t]*(?:\r\n|\n|\Z)")
MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:[ \t]*;[ \t]*[\w-]+=(?:[\w.+-]+|\"[^\"]*\"))*")
CHARSET = re.compile(r";[ \t]*charset=\"?([^\";]*)", re.IGNORECASE)

WORDS = {
    "TYPE": "type",
    "SETTING": "a setting",
    "ASSIGN": "=",
    "PATH": "a 'source path'",
    "TEXT": 'a "text"',
    "NUMBER": "a number",
    "BOOL": "true, false",
    "NULL": "null",
    "NOT": "not",
    "AND": "and",
    "OR": "or",
    "SUM": "+ -",
    "PRODUCT": "* /",
    "COMPARISON": "a comparison",
    "LBRACE": "{",
    "RBRACE": "}",
    "LSQB": "[",
    "RSQB": "]",
}


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    def mapper(self, _: Token, name: Token, *items: Any) -> MapperSyntax:
        return MapperSyntax(position(name), str(name), items)

    def setting(self, name: Token, key: Token | None, _: Token, value: Token) -> SettingSyntax:
        return SettingSyntax(position(name), str(name), None if key is None else str(key), _unquoted(value), position(value))

    def block(self, name: Token, _: Token, path: Token, *items: Any) -> BlockSyntax:
        inside = tuple(item for item in items if not isinstance(item, Token))
        return BlockSyntax(position(name), str(name), Path(position(path), _unquoted(path)), inside)

    def field(self, name: Token, kind: Token | None, _: Token, expression: Expression) -> FieldSyntax:
        at = position(name if kind is None else kind)
        return FieldSyntax(position(name), str(name), None if kind is None else str(kind), at, expression)

    def disjunction(self, *parts: Any) -> Call:
        return _junction("or", parts)

    def conjunction(self, *parts: Any) -> Call:
        return _junction("and", parts)

    def prefix(self, operator: Token, operand: Expression) -> Expression:
        return Call(position(operator), {"+": "plus", "-": "minus"}.get(operator, str(operator)), (operand,))

    def binary(self, left: Expression, operator: Token, right: Expression) -> Call:
        return Call(position(operator), {"==": "=", "<>": "!="}.get(operator, str(operator)), (left, right))

    def call(self, name: Token, *arguments: Expression | None) -> Call:
        return Call(position(name), str(name), tuple(each for each in arguments if each is not None))

    def path(self, token: Token) -> Path:
        return Path(position(token), _unquoted(token))

    def literal(self, token: Token) -> Constant:
        values: dict[str, Any] = {"true": True, "false": False, "null": None}
        match token.type:
            case "TEXT":
                return Constant(position(token), _unquoted(token))
            case "NUMBER":
                return Constant(position(token), Decimal(str(token)))
        return Constant(position(token), values[str(token)])


def _junction(operator: str, parts: tuple[Any, ...]) -> Call:
    operands = tuple(part for part in parts if not isinstance(part, Token))
    return Call(operands[0].at, operator, operands)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace(token[0] * 2, token[0])


_language = Language("mapper.lark", ["mapper"], _Builder(), WORDS, tokens=LONGEST)


def read(text: str, catalog: Catalog) -> Mapper | Template:
    """A mapper's text, parsed and checked.  Raises ServiceError `invalid_mapper`, or `too_large`."""
    if len(text) > LONGEST:
        raise ServiceError("too_large", f"a mapper has at most {LONGEST:,} characters, this one {len(text):,}")
    first = TEMPLATE.match(text)
    if first:
        return _template(text, first)
    return check(parse(text), text, catalog)


def parse(text: str) -> MapperSyntax:
    """A mapper's text as it was written.  Raises ServiceError `invalid_mapper`."""
    try:
        return cast(MapperSyntax, _language.parse(text, "mapper"))
    except QueryError as error:
        at = error.position or 1
        reason = re.sub(r" \(at character \d+\)$", "", error.message)
        if text[at - 1 : at] in ("'", '"') and text.count(text[at - 1], at - 1, _end_of_line(text, at)) % 2:
            reason = f"the quoted text that begins here is not closed in its line, expected {text[at - 1]}"
        if text[at - 1 : at] == "{" and text[: at - 1].rstrip().endswith('"'):
            reason = "a block's path is written in 'single quotes': \"double quotes\" are a text"
        raise wrong(text, at, reason) from None


def _end_of_line(text: str, at: int) -> int:
    end = re.compile(r"[\r\n]|\Z").search(text, at)
    return end.start() if end else len(text)


def _template(text: str, first: re.Match[str]) -> Template:
    if not MEDIA_TYPE.fullmatch(first[1]):
        found = repr(first[1]) if first[1] else "nothing"
        raise wrong(text, first.start(1) + 1, f"expected a media type, such as text/html, got {found}")
    charset = CHARSET.search(first[1])
    if charset and charset[1].lower() not in ("utf-8", "utf8"):
        raise wrong(text, first.start(1) + charset.start(1) + 1, f"what a template makes is UTF-8, got {charset[1]}")
    source = text[first.end() :]
    try:
        SandboxedEnvironment().parse(source)
    except jinja2.TemplateSyntaxError as error:
        line = error.lineno + text.count("\n", 0, first.end())
        raise ServiceError("invalid_mapper", f"line {line}, column 1: {error.message}", line=line, column=1) from None
    return Template(first[1], source, text)
