"""The parser of OData's query options: $filter, $orderby, $select, $expand, $apply, $search, and keys in paths."""

from __future__ import annotations

from typing import Any, cast

from lark import Token, v_args

from app.errors import QueryError
from app.query.parse.nodes import (
    Aggregation,
    Alias,
    AliasOfList,
    Applying,
    Filtering,
    Grouping,
    Invocation,
    Literal,
    Name,
    Node,
    Operation,
    Path,
    Quantified,
    Size,
    Sorting,
    Unsupported,
)
from app.query.parse.parser import Language, OperatorBuilder, bounded, position

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
    **dict.fromkeys(("EQUALITY", "RELATION", "SUM", "PRODUCT", "IN", "HAS", "AND", "OR"), "an operator (eq, and, add ...)"),
    **dict.fromkeys(("NUMBER", "STRING", "BOOL", "NULL", "UUID", "TIMESTAMP", "DATE", "TIME"), "a literal"),
    **dict.fromkeys(("ALIAS", "DOLLAR", "MINUS", "NOT"), "a field, a function, not"),
    "DIRECTION": "asc, desc",
    "GROUPBY": "groupby",
    "FILTER": "filter",
    "AGGREGATE": "aggregate",
    "WITH": "with",
    "FROM": "from",
    "AS": "as",
    "STAR": "'*'",
    "INSIDE": "'('",
    "EQUAL": "'='",
    "LAMBDA": "any, all",
    "COLON": "':'",
    "SEARCHOR": "OR",
    "SEARCHAND": "AND",
    "SEARCHNOT": "NOT",
    "PHRASE": "a quoted phrase",
    "WORD": "a word",
}

# Transformations and groupings of OData's aggregation extension that the service does not support.
TRANSFORMATIONS = frozenset(
    (
        *("filter", "compute", "concat", "expand", "identity", "search", "orderby", "skip", "top", "nest", "addnested"),
        *("topcount", "topsum", "toppercent", "bottomcount", "bottomsum", "bottompercent", "join", "outerjoin"),
        *("rollup", "rolluprecursive", "ancestors", "descendants", "traverse"),
    )
)


@v_args(inline=True)
class _Builder(OperatorBuilder):
    def filter(self, condition: Node) -> Node:
        return condition

    def orderby(self, *keys: Sorting) -> tuple[Sorting, ...]:
        return keys

    def select(self, *items: Path | Token) -> tuple[Path | None, ...]:
        return tuple(item if isinstance(item, Path) else None for item in items)

    expand = select

    def expansion(self, item: Path | Token, what: Token | None, options: Token | None) -> Path | Token:
        if what in ("$ref", "$count"):
            raise QueryError(f"{what} in $expand is not supported", position=position(what), code="not_supported")
        if what:
            raise QueryError(f"expected a navigation property without '{what}'", position=position(what))
        if options:
            raise QueryError("an option inside $expand is not supported", position=position(options) + 1, code="not_supported")
        return item

    def apply(self, first: Grouping, *others: Grouping) -> Grouping:
        if others:
            raise _not_supported("a sequence of transformations", others[0].at)
        return first

    def applied(self, *steps: Filtering | Grouping) -> Applying:
        filters = [step for step in steps if isinstance(step, Filtering)]
        rest = steps[len(filters) :]
        if len(rest) > 1 or not all(isinstance(step, Filtering) for step in steps[: len(filters)]):
            raise _not_supported("a sequence of transformations other than filters before one grouping", steps[-1].at)
        return Applying(tuple(step.condition for step in filters), cast(Grouping, rest[0]) if rest else None)

    def filtering(self, word: Token, condition: Node) -> Filtering:
        return Filtering(position(word), condition)

    def groupby(self, word: Token, *parts: Path | tuple[Aggregation, ...] | None) -> Grouping:
        paths = tuple(part for part in parts if isinstance(part, Path))
        aggregations = next((part for part in parts if isinstance(part, tuple)), ())
        return Grouping(position(word), paths, aggregations)

    def whole(self, aggregations: tuple[Aggregation, ...]) -> Grouping:
        return Grouping(aggregations[0].at, (), aggregations)

    def aggregate(self, word: Token, *aggregations: Aggregation) -> tuple[Aggregation, ...]:
        return aggregations

    def aggregation(self, value: Node | Token, *words: Token | None) -> Aggregation:
        method, alias = words[1] if len(words) == 5 else None, cast(Token, words[-1])
        if isinstance(value, Token):
            if value != "$count":
                raise QueryError(f"expected $count, got '{value}'", position=position(value))
            return Aggregation(position(value), None, None, Name(position(alias), str(alias)))
        assert method is not None
        return Aggregation(value.at, value, Name(position(method), str(method)), Name(position(alias), str(alias)))

    def from_(self, word: Token, *_: object) -> None:
        raise _not_supported("the keyword from in an aggregation", position(word))

    def unsupported(self, name: Token) -> None:
        if name in TRANSFORMATIONS or "." in name:
            raise _not_supported(f"the transformation {name}", position(name))
        raise QueryError(f"no such transformation: {name}, expected groupby or aggregate", position=position(name))

    def key(self, *values: tuple[Name | None, Node]) -> tuple[tuple[Name | None, Node], ...]:
        return values

    def search(self, *parts: object) -> None:
        return None

    def sorting(self, key: Node, direction: Token | None) -> Sorting:
        return Sorting(key.at, key, direction == "desc")

    def item(self, item: Path | Token) -> Path | Token:
        return item

    def keyvalue(self, value: Node) -> tuple[None, Node]:
        return None, value

    def keypair(self, name: Token, value: Node) -> tuple[Name, Node]:
        return Name(position(name), str(name)), value

    def binary(self, left: Node, operator: Token, right: Node) -> Node:
        if operator == "divby":
            raise _not_supported("the operator divby", position(operator))
        return cast(Node, self._operation(position(operator), str(operator), (left, right)))

    def list(self, *values: Node) -> tuple[Node, ...]:
        return bounded(values)

    def call(self, name: Token, arguments: tuple[Node, ...] | None) -> Node:
        return Invocation(position(name), str(name), arguments or ())

    def path(self, *parts: Path | Token) -> Path:
        steps = parts[0].names if isinstance(parts[0], Path) else ()
        last = cast(Token, parts[-1])
        names = (*steps, Name(position(last), str(last)))
        return Path(names[0].at, names)

    def count(self, path: Path, what: Token, options: Token | None) -> Node:
        if what != "$count":
            raise QueryError(f"expected $count, got '{what}'", position=position(what))
        if options:
            raise _not_supported("an option inside $count", position(options) + 1)
        return Size(path.at, path)

    def typed(self, kind: Token, text: Token) -> Node:
        if name := {"duration": "interval", "binary": "bytea"}.get(kind):
            return Literal(position(kind), cast(Any, name), text[1:-1])
        return Unsupported(position(kind), f"a literal of type {kind}")

    def special(self, what: Token, *rest: object) -> Node:
        return Alias(position(what), str(what)) if what.startswith("@") else Unsupported(position(what), str(what))

    def literal(self, token: Token) -> Literal:
        if token.type == "STRING":
            return Literal(position(token), "text", token[1:-1].replace("''", "'"))
        return Literal(position(token), cast(Any, KINDS[token.type]), str(token))

    def has(self, operand: Node, has: Token, flag: Node) -> Node:
        return Unsupported(position(has), "has")

    def membership(self, operand: Node, operator: Token, values: tuple[Node, ...] | Token) -> Node:
        if isinstance(values, Token):
            values = (AliasOfList(position(values), str(values)),)
        return Operation(position(operator), "in", (operand, *values))

    def quantified(self, path: Path, quantifier: Token, variable: Token | None, predicate: Node | None) -> Node:
        if quantifier == "all" and predicate is None:
            raise QueryError("all needs a variable and a condition, as in all(i: i/price gt 1)", position=position(quantifier))
        name = Name(position(variable), str(variable)) if variable else None
        return Quantified(path.at, path, cast(Any, str(quantifier)), name, predicate)


def _not_supported(what: str, at: int) -> QueryError:
    return QueryError(f"{what} is not supported", position=at, code="not_supported")


MAX_OTHER = 1_000  # tokens of each option other than $filter, which bounds the tokens of a whole request

_conditions = Language("odata.lark", ["filter"], _Builder(), WORDS)
_language = Language(
    "odata.lark", ["orderby", "select", "expand", "apply", "applied", "key", "search"], _Builder(), WORDS, tokens=MAX_OTHER
)


def parse_filter(text: str) -> Node:
    """Parse a $filter."""
    return cast(Node, _conditions.parse(text, "filter"))


def parse_orderby(text: str) -> tuple[Sorting, ...]:
    """Parse an $orderby into its sort keys."""
    return cast("tuple[Sorting, ...]", _language.parse(text, "orderby"))


def parse_select(text: str) -> tuple[Path | None, ...]:
    """Parse a $select into its items; None stands for `*`."""
    return cast("tuple[Path | None, ...]", _language.parse(text, "select"))


def parse_expand(text: str) -> tuple[Path | None, ...]:
    """Parse an $expand into its items; None stands for `*`."""
    return cast("tuple[Path | None, ...]", _language.parse(text, "expand"))


def parse_apply(text: str, *, filters: bool = False) -> Applying:
    """Parse an $apply of one transformation, groupby or aggregate.  Raises QueryError(not_supported) for others, by name.

    filters: whether filters may stand before it, or alone.
    """
    if filters:
        return cast(Applying, _language.parse(text, "applied"))
    return Applying((), cast(Grouping, _language.parse(text, "apply")))


def parse_list(text: str) -> tuple[Node, ...]:
    """Parse the list of an `in`, with its parentheses, into its values."""
    before = "null in "
    try:
        node = parse_filter(before + text)
    except QueryError as error:
        raise error.within(None, -len(before)) from None
    if not isinstance(node, Operation) or node.operator != "in":
        raise QueryError("expected a list such as (1,2)", position=1)
    return node.operands[1:]


def parse_key(text: str) -> tuple[tuple[Name | None, Node], ...]:
    """Parse the text between a key's parentheses into values, each with its name or None."""
    return cast("tuple[tuple[Name | None, Node], ...]", _language.parse(text, "key"))


def parse_search(text: str) -> None:
    """Check the syntax of a $search, which has no other effect.  Raises QueryError."""
    _language.parse(text, "search")
