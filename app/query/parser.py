"""From text to syntax tree: what the parsers of all languages share.

A language is a lark grammar and a builder of nodes.  Trees are built while LALR parses, so nothing recurses over what a client sent
before its depth is known; and whatever is wrong is a QueryError at a character, saying what was expected there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lark import PostLex

from app import resources
from app.errors import QueryError
from app.query.nodes import Node

GRAMMARS = resources.folder("grammars")

MAX_NESTING = 100  # parentheses
MAX_DEPTH = 300  # nodes on top of each other, which chains of operators pile up too
MAX_LIST = 1_000  # values of an `in`
MAX_TOKENS = 10_000  # of a text; each takes LALR the same time, about 10 microseconds

# Checking and compiling recurse over trees of this depth, several calls a node.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * MAX_DEPTH + 1_000))

WORDS = {
    "STRING": "a quoted text",
    "NAME": "a name",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "SLASH": "/",
    "$END": "the end",
}


class Bounds(PostLex):
    """Counts tokens as they pass, and how deep the tree will be: bounds that hold before there is a tree."""

    always_accept = ()

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        levels = [0]  # for each open parenthesis the operators since its last and, or, comma, =
        for number, token in enumerate(stream):
            if number == self._tokens:
                raise QueryError(f"too long: at most {self._tokens:,} names, literals and signs", position=position(token))
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


class Language:
    """A grammar with its builder.  `words` says in human terms what each terminal is, beyond those that all share."""

    def __init__(
        self,
        grammar: str,
        starts: list[str],
        builder: Transformer[Token, Any],
        words: Mapping[str, str],
        *,
        tokens: int = MAX_TOKENS,
    ) -> None:
        self._words = {**WORDS, **words}
        self._lark = Lark.open(
            str(GRAMMARS / grammar),
            parser="lalr",
            start=starts,
            transformer=builder,
            postlex=Bounds(tokens),
            maybe_placeholders=True,
        )

    def parse(self, text: str, start: str) -> Any:
        """What the builder makes of `text`.  Raises QueryError with the position of the first character that is wrong."""
        try:
            return self._lark.parse(text, start)
        except UnexpectedInput as wrong:
            raise self._explain(wrong, text) from None

    def _explain(self, wrong: UnexpectedInput, text: str) -> QueryError:
        match wrong:
            case UnexpectedToken(token=token):
                at = len(text) if token.type == "$END" else token.start_pos or 0
            case UnexpectedCharacters(pos_in_stream=place):
                at = place or 0
            case _:
                raise wrong
        # not its `allowed`, which also holds what the grammar's other start would allow there
        allowed: set[str] = wrong.interactive_parser.accepts()  # type: ignore[no-untyped-call]
        rest = text[at:]
        if rest[:1] in ("'", '"') and rest.count(rest[0]) % 2:
            return QueryError("the quoted text that begins here is not closed", position=at + 1)
        found = repr(rest[:20].split()[0]) if rest.strip() else "the end"
        expected = ", ".join(sorted({self._words.get(terminal, terminal) for terminal in allowed}))
        return QueryError(f"unexpected {found}, expected {expected}", position=at + 1)


def position(token: Token) -> int:
    """The character, from 1, at which a token begins."""
    return (token.start_pos or 0) + 1


def bounded(values: tuple[Node, ...]) -> tuple[Node, ...]:
    """The values of a list, if they are not too many."""
    if len(values) > MAX_LIST:
        raise QueryError(f"a list holds at most {MAX_LIST:,} values", position=values[MAX_LIST].at)
    return values
