"""OData's query options as syntax trees: $filter, $orderby, $select, $expand, $search, and keys."""

from __future__ import annotations

from typing import Any, cast

from lark import Token, Transformer, v_args

from app.errors import QueryError
from app.language.syntax import Language, bounded, position
from app.language.tree import Invocation, Literal, Name, Node, Operation, Path, Sorting, Unsupported

KINDS = {
    "NUMBER": "number",
    "BOOL": "bool",
    "NULL": "null",
    "TIMESTAMP": "timestamp",
    "DATE": "date",
    "TIME": "time",
    "UUID": "uuid",
}

WORDS = {
    **dict.fromkeys(("EQUALITY", "RELATION", "SUM", "PRODUCT", "IN", "HAS", "AND", "OR"), "an operator such as eq, and, add"),
    **dict.fromkeys(("NUMBER", "STRING", "BOOL", "NULL", "UUID", "TIMESTAMP", "DATE", "TIME"), "a literal"),
    **dict.fromkeys(("ALIAS", "DOLLAR", "MINUS", "NOT"), "a field, function or not"),
    "DIRECTION": "asc, desc",
    "STAR": "*",
    "EQUAL": "=",
    "LAMBDA": "any, all",
    "COLON": ":",
    "SEARCHOR": "OR",
    "SEARCHAND": "AND",
    "SEARCHNOT": "NOT",
    "PHRASE": "a quoted phrase",
    "WORD": "a word",
}


@v_args(inline=True)
class _Builder(Transformer[Token, Any]):
    def filter(self, condition: Node) -> Node:
        return condition

    def orderby(self, *keys: Sorting) -> tuple[Sorting, ...]:
        return keys

    def select(self, *items: Path | Token) -> tuple[Path | None, ...]:
        return tuple(item if isinstance(item, Path) else None for item in items)

    expand = select

    def key(self, *values: tuple[Name | None, Literal]) -> tuple[tuple[Name | None, Literal], ...]:
        return values

    def search(self, *parts: object) -> None:
        return None

    def sorting(self, key: Node, direction: Token | None) -> Sorting:
        return Sorting(key.at, key, direction == "desc")

    def item(self, item: Path | Token) -> Path | Token:
        return item

    def keyvalue(self, value: Literal) -> tuple[None, Literal]:
        return None, value

    def keypair(self, name: Token, value: Literal) -> tuple[Name, Literal]:
        return Name(position(name), str(name)), value

    def binary(self, left: Node, operator: Token, right: Node) -> Node:
        return Operation(position(operator), str(operator), (left, right))

    def prefix(self, operator: Token, operand: Node) -> Node:
        return Operation(position(operator), str(operator), (operand,))

    def list(self, *values: Node) -> tuple[Node, ...]:
        return bounded(values)

    def call(self, name: Token, arguments: tuple[Node, ...] | None) -> Node:
        return Invocation(position(name), str(name), arguments or ())

    def path(self, *parts: Path | Token) -> Path:
        steps = parts[0].names if isinstance(parts[0], Path) else ()
        last = cast(Token, parts[-1])
        names = (*steps, Name(position(last), str(last)))
        return Path(names[0].at, names)

    def count(self, path: Path, what: Token) -> Node:
        if what != "$count":
            raise QueryError(f"unexpected '{what}', expected $count", position=position(what))
        return Unsupported(path.at, "$count of a collection")

    def typed(self, kind: Token, text: Token) -> Node:
        return Unsupported(position(kind), f"a literal of type {kind}")

    def special(self, what: Token, *names: Token) -> Node:
        return Unsupported(position(what), f"the parameter alias {what}" if what.startswith("@") else str(what))

    def literal(self, token: Token) -> Literal:
        if token.type == "STRING":
            return Literal(position(token), "text", token[1:-1].replace("''", "'"))
        return Literal(position(token), cast(Any, KINDS[token.type]), str(token))

    def has(self, operand: Node, has: Token, flag: Node) -> Node:
        return Unsupported(position(has), "has")

    def membership(self, operand: Node, operator: Token, values: tuple[Node, ...]) -> Node:
        return Operation(position(operator), "in", (operand, *values))

    def disjunction(self, *parts: Node | Token) -> Node:
        return _junction("or", parts)

    def conjunction(self, *parts: Node | Token) -> Node:
        return _junction("and", parts)

    def quantified(self, path: Path, quantifier: Token, variable: Token | None, predicate: Node | None) -> Node:
        return Unsupported(path.at, f"the lambda {quantifier}")


def _junction(operator: str, parts: tuple[Node | Token, ...]) -> Node:
    operands = tuple(part for part in parts if isinstance(part, Node))
    return Operation(operands[0].at, operator, operands)


_language = Language("odata.lark", ["filter", "orderby", "select", "expand", "key", "search"], _Builder(), WORDS)


def parse_filter(text: str) -> Node:
    """The condition of a $filter."""
    return cast(Node, _language.parse(text, "filter"))


def parse_orderby(text: str) -> tuple[Sorting, ...]:
    """The keys of an $orderby."""
    return cast("tuple[Sorting, ...]", _language.parse(text, "orderby"))


def parse_select(text: str) -> tuple[Path | None, ...]:
    """The items of a $select; None is the star."""
    return cast("tuple[Path | None, ...]", _language.parse(text, "select"))


def parse_expand(text: str) -> tuple[Path | None, ...]:
    """The items of an $expand; None is the star."""
    return cast("tuple[Path | None, ...]", _language.parse(text, "expand"))


def parse_key(text: str) -> tuple[tuple[Name | None, Literal], ...]:
    """The values between a key's parentheses, each with its name if it has one."""
    return cast("tuple[tuple[Name | None, Literal], ...]", _language.parse(text, "key"))


def parse_search(text: str) -> None:
    """Raises QueryError unless a $search is well formed."""
    _language.parse(text, "search")
