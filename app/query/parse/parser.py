"""The frame of every parser: a lark grammar, a builder of syntax nodes, bounds, and error messages.

LALR builds nodes while it parses, so no code recurses over a client's text before its depth has been checked.  Every syntax error
is a QueryError with the position of the first wrong character and what was expected there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lark import PostLex

from app import resources
from app.errors import QueryError
from app.query.parse.nodes import Node, Operation

GRAMMARS = resources.folder("grammars")

MAX_NESTING = 100  # nested parentheses
MAX_DEPTH = 300  # depth of the tree, to which chains of operators add as well
MAX_LIST = 1_000  # values of an `in`
MAX_TOKENS = 10_000  # in one text; LALR takes about 10 microseconds for each

# Checking and compiling recurse over trees of this depth, with several calls for each node.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * MAX_DEPTH + 1_000))

# How error messages name the terminals that all languages share.
WORDS = {
    "STRING": "a quoted text",
    "NAME": "a name",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "SLASH": "'/'",
    "$END": "the end",
}


class Bounds(PostLex):
    """Counts tokens, and the depth that the tree will have, as they pass from the lexer to the parser."""

    always_accept = ()

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        """Yield the tokens.  Raises QueryError at the token that exceeds a bound."""
        levels = [0]  # for each open parenthesis: the operators since its last and, or, comma or =
        for number, token in enumerate(stream):
            if number == self._tokens:
                raise QueryError(f"too long: at most {self._tokens:,} names, literals and operators", position=position(token))
            if token.type == "LPAR":
                levels.append(0)
            elif token.type == "RPAR" and len(levels) > 1:
                levels.pop()
            elif token.type in ("AND", "OR", "COMMA", "ASSIGN"):
                levels[-1] = 0
            elif token.type in ("NOT", "MINUS", "EQUALITY", "RELATION", "SUM", "PRODUCT", "IN", "HAS"):
                levels[-1] += 1
            if len(levels) > MAX_NESTING + 1 or len(levels) + sum(levels) > MAX_DEPTH:
                raise QueryError("nested too deeply", position=position(token))
            yield token


@v_args(inline=True)
class OperatorBuilder(Transformer[Token, Any]):
    """The grammar rules that all languages share: `and` and `or` over any number of operands, prefix and binary operators.

    A language whose operators are another kind of node overrides `_operation`.
    """

    def _operation(self, at: int, operator: str, operands: tuple[Any, ...]) -> Any:
        return Operation(at, operator, operands)

    def disjunction(self, *parts: Any) -> Any:
        return self._junction("or", parts)

    def conjunction(self, *parts: Any) -> Any:
        return self._junction("and", parts)

    def prefix(self, operator: Token, operand: Any) -> Any:
        return self._operation(position(operator), str(operator), (operand,))

    def binary(self, left: Any, operator: Token, right: Any) -> Any:
        return self._operation(position(operator), str(operator), (left, right))

    def _junction(self, operator: str, parts: tuple[Any, ...]) -> Any:
        operands = tuple(part for part in parts if not isinstance(part, Token))
        return self._operation(operands[0].at, operator, operands)


class Language:
    """A grammar with its builder; compiled at the first use, which takes a tenth of a second.

    starts: the grammar's start rules.  words: how error messages name the language's own terminals.  tokens: bound of a text.
    """

    made: ClassVar[list[Language]] = []

    def __init__(
        self,
        grammar: str,
        starts: list[str],
        builder: Transformer[Token, Any],
        words: Mapping[str, str],
        *,
        tokens: int = MAX_TOKENS,
    ) -> None:
        self._grammar, self._starts, self._builder, self._tokens = grammar, starts, builder, tokens
        self._words = {**WORDS, **words}
        self.made.append(self)

    @cached_property
    def parser(self) -> Lark:
        """The compiled grammar."""
        return Lark.open(
            str(GRAMMARS / self._grammar),
            parser="lalr",
            start=self._starts,
            transformer=self._builder,
            postlex=Bounds(self._tokens),
            maybe_placeholders=True,
        )

    def parse(self, text: str, start: str) -> Any:
        """Return what the builder makes of the text.  Raises QueryError at the first wrong character."""
        try:
            return self.parser.parse(text, start)
        except UnexpectedInput as error:
            raise self._explain(error, text) from None

    def _explain(self, error: UnexpectedInput, text: str) -> QueryError:
        match error:
            case UnexpectedToken(token=token):
                at = len(text) if token.type == "$END" else token.start_pos or 0
            case UnexpectedCharacters(pos_in_stream=offset):
                at = offset or 0
            case _:
                raise error
        # not the error's `allowed`, which also holds terminals that only another start rule would allow here
        allowed: set[str] = error.interactive_parser.accepts()  # type: ignore[no-untyped-call]
        rest = text[at:]
        if rest[:1] in ("'", '"') and rest.count(rest[0]) % 2:
            return QueryError("quoted text is not closed", position=at + 1)
        found = repr(rest[:20].split()[0]) if rest.strip() else "the end"
        *words, last = sorted({self._words.get(terminal, terminal) for terminal in allowed})
        expected = f"{', '.join(words)} or {last}" if words else last
        return QueryError(f"expected {expected}, got {found}", position=at + 1)


def compile_all() -> None:
    """Compile the grammars of all imported languages, so that no request has to."""
    for language in Language.made:
        _ = language.parser


def position(token: Token) -> int:
    """The position (in characters, from 1) at which a token begins."""
    return (token.start_pos or 0) + 1


def bounded(values: tuple[Node, ...]) -> tuple[Node, ...]:
    """The values of a list.  Raises QueryError if they are more than MAX_LIST."""
    if len(values) > MAX_LIST:
        raise QueryError(f"a list holds at most {MAX_LIST:,} values", position=values[MAX_LIST].at)
    return values
