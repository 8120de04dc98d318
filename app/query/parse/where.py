"""The parser of the SQL-like filter and sort of /c, hooks and @where.

Its nodes have OData's operators (`=` becomes `eq`), so that both languages share the compiler.
"""

from __future__ import annotations

from typing import Any, cast

from lark import Token, v_args

from app.errors import QueryError
from app.query.parse.nodes import FLIPPED, Literal, Name, Node, Operation, Path, Sorting
from app.query.parse.parser import Language, OperatorBuilder, bounded, position

OPERATORS = {"=": "eq", "!=": "ne", "<>": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
KINDS = {"STRING": "text", "NUMBER": "number", "BOOL": "bool", "NULL": "null"}

WORDS = {
    **dict.fromkeys(("COMPARISON", "LIKE", "IN", "BETWEEN", "IS"), "an operator (= != < <= > >= LIKE ILIKE IN BETWEEN IS)"),
    **dict.fromkeys(("STRING", "NUMBER", "BOOL", "NULL"), "a literal"),
    **dict.fromkeys(("NAME", "QUOTED"), "a field"),
    **{word: word for word in ("AND", "OR", "NOT")},
    "DIRECTION": "asc, desc",
    "SIGN": "+, -",
}


@v_args(inline=True)
class _Builder(OperatorBuilder):
    def filter(self, condition: Node) -> Node:
        return condition

    def sort(self, *keys: Sorting) -> tuple[Sorting, ...]:
        return keys

    def sorting(self, first: Path | Token, second: Path | Token | None) -> Sorting:
        if isinstance(first, Path):
            return Sorting(first.at, first, str(second or "").lower() == "desc")
        return Sorting(position(first), cast(Path, second), first == "-")

    def name(self, token: Token) -> Path:
        text = token[1:-1].replace('""', '"') if token.type == "QUOTED" else str(token)
        return Path(position(token), (Name(position(token), text),))

    def literal(self, token: Token) -> Literal:
        text = token[1:-1].replace("''", "'") if token.type == "STRING" else str(token)
        return Literal(position(token), cast(Any, KINDS[token.type]), text)

    def negation(self, operator: Token, operand: Node) -> Node:
        return Operation(position(operator), "not", (operand,))

    def comparison(self, left: Node, token: Token, right: Node) -> Node:
        operator = OPERATORS[token]
        if isinstance(left, Literal):
            operator, left, right = FLIPPED[operator], right, left
        return _test(operator, position(token), left, right)

    def like(self, field: Node, negated: Token | None, operator: Token, pattern: Node) -> Node:
        return _negated(negated, _test(operator.lower(), position(operator), field, pattern))

    def membership(self, field: Node, negated: Token | None, operator: Token, *values: Node) -> Node:
        return _negated(negated, _test("in", position(operator), field, *bounded(values)))

    def between(self, field: Node, negated: Token | None, operator: Token, low: Node, _: Token, high: Node) -> Node:
        at = position(operator)
        return _negated(negated, Operation(at, "and", (_test("ge", at, field, low), _test("le", at, field, high))))

    def isnull(self, field: Node, operator: Token, negated: Token | None, null: Token) -> Node:
        return _negated(negated, _test("eq", position(operator), field, Literal(position(null), "null", "null")))


def _negated(negated: Token | None, test: Node) -> Node:
    return Operation(position(negated), "not", (test,)) if negated else test


def _test(operator: str, at: int, field: Node, *values: Node) -> Node:
    """An operation on a field and literals.  Raises QueryError for any other operands, which the language does not have."""
    if not isinstance(field, Path):
        raise QueryError("expected a field on one side", position=min(field.at, values[0].at))
    for value in values:
        if not isinstance(value, Literal):
            raise QueryError("expected a literal on one side; a text needs single quotes", position=value.at)
    return Operation(at, operator, (field, *values))


_language = Language("where.lark", ["filter", "sort"], _Builder(), WORDS)


def parse_filter(text: str) -> Node | None:
    """Parse a filter; None if it is empty."""
    return cast(Node, _language.parse(text, "filter")) if text.strip() else None


def parse_sort(text: str) -> tuple[Sorting, ...]:
    """Parse a sort into its sort keys."""
    return cast("tuple[Sorting, ...]", _language.parse(text, "sort"))


def quoted(text: str) -> str:
    """A text as a literal of the filter language."""
    return "'" + text.replace("'", "''") + "'"
