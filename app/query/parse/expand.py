"""The parser of $expand: navigation properties, in the extended profile with options in parentheses: `items($top=2)`.

Options are split at the characters that no value has outside of quotes and parentheses; each value is then parsed as the same
option is outside.  So a value may nest further expansions, and errors keep their position in the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from app.errors import QueryError
from app.query.parse import odata as parse_odata
from app.query.parse.nodes import Name, Path
from app.query.parse.parser import MAX_NESTING

LONGEST = 20_000  # characters of an $expand with options: all its values together are parsed in the time of one long filter
NAMED = re.compile(r"\s*(\$?\w+)\s*=")
NEXT = re.compile(r"'(?:[^']|'')*'?|[(),;]")


@dataclass(frozen=True, slots=True)
class Expanding:
    """An item of $expand: a navigation property, or None for `*`, at a position.

    options: (name, value, position of the name, characters before the value).
    """

    path: Path | None
    at: int
    options: tuple[tuple[str, str, int, int], ...] = ()


def read_expansions(text: str, *, options: bool) -> list[Expanding]:
    """Parse an $expand.  options: whether its items may have options.  Raises QueryError."""
    if not options or "(" not in text:
        paths = parse_odata.parse_expand(text)
        return [Expanding(path, path.at if path else 1) for path in paths]
    if len(text) > LONGEST:
        raise QueryError(f"too long: at most {LONGEST:,} characters", position=LONGEST + 1)
    return [_item(text, start, end) for start, end in _pieces(text, 0, len(text), ",")]


def _pieces(text: str, start: int, end: int, separator: str) -> Iterator[tuple[int, int]]:
    """Yield where the pieces between separators begin and end.  Raises QueryError for a parenthesis without its other."""
    depth, begin = 0, start
    for found in NEXT.finditer(text, start, end):
        match found[0]:
            case "(":
                depth += 1
                if depth > MAX_NESTING:
                    raise QueryError("nested too deeply", position=found.start() + 1)
            case ")" if depth == 0:
                raise QueryError(f"expected '{separator}' or the end, got ')'", position=found.start() + 1)
            case ")":
                depth -= 1
            case character if character == separator and depth == 0:
                yield begin, found.start()
                begin = found.end()
    if depth:
        raise QueryError("expected ')', got the end", position=end + 1)
    yield begin, end


def _item(text: str, start: int, end: int) -> Expanding:
    name, parenthesis, rest = text[start:end].partition("(")
    try:
        paths = parse_odata.parse_expand(name)
    except QueryError as error:
        raise error.within(None, start) from None
    (path,) = (_moved(each, start) if each else None for each in paths)
    at = path.at if path else start + 1
    if not parenthesis:
        return Expanding(path, at)
    if not rest.rstrip().endswith(")"):
        after = start + len(name) + 1 + rest.rindex(")") + 2
        raise QueryError("expected ',' or the end after ')'", position=after)
    if path is None:
        raise QueryError("* takes no options", position=start + len(name) + 1)
    inside = start + len(name) + 1
    last = inside + len(rest.rstrip()) - 1
    return Expanding(path, at, tuple(_option(text, *piece) for piece in _pieces(text, inside, last, ";")))


def _moved(path: Path, by: int) -> Path:
    return Path(path.at + by, tuple(Name(name.at + by, name.text) for name in path.names))


def _option(text: str, start: int, end: int) -> tuple[str, str, int, int]:
    named = NAMED.match(text, start, end)
    if named is None:
        raise QueryError("expected an option such as $select=name", position=start + 1)
    value = text[named.end() : end]
    return named[1], value.strip(), named.start(1) + 1, named.end() + len(value) - len(value.lstrip())
