"""JSONPath (RFC 9535) for mappers: a bare name is a member, and the path of a block can be followed in a stream."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import jsonpath_rfc9535
from jsonpath_rfc9535.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment
from jsonpath_rfc9535.selectors import FilterSelector, NameSelector, WildcardSelector

from app.mapper.language.xpath import PathError

BARE = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
SIGNS = re.compile(r"[.\[\]*?$@()]")
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
STREAMABLE = "expected names and [*] with at most one filter at the end as a block's path, such as '$.products[*]' or '$..product'"

DEEPEST = 200  # nested containers of a document


class _Environment(jsonpath_rfc9535.JSONPathEnvironment):
    max_recursion_depth = 2 * DEEPEST


_environment = _Environment()
Query = jsonpath_rfc9535.JSONPathQuery


@dataclass(frozen=True, slots=True)
class JsonBlockPath:
    """The path of a block: its elements are at the end of these steps (None: any element of an array, any member of an object).

    anywhere: at any depth; filter: a query on an array of one element, which finds the element if it matches.
    """

    anywhere: bool
    steps: tuple[str | None, ...]
    filter: Query | None


def query(text: str) -> Query:
    """Parse a path; $, @ and a bare name are relative to the block's element.  Raises PathError."""
    if text.startswith("@"):
        path = "$" + text[1:]
    elif text.startswith("$"):
        path = text
    elif BARE.fullmatch(text):
        path = "$." + text
    elif text and not SIGNS.search(text):
        path = "$[" + _quoted(text) + "]"
    else:
        path = "$" + (text if text.startswith("[") else "." + text)
    try:
        return _environment.compile(path)
    except jsonpath_rfc9535.JSONPathError as error:
        reason = str(error).partition(", line ")[0]
        offset = max((error.token.index if error.token else 0) - len(path) + len(text), 0)
        raise PathError(f"invalid JSONPath (RFC 9535): {reason}", offset) from None


def plain(path: Query) -> tuple[str, ...] | None:
    """The names of a path that consists only of names; None for other paths."""
    names = []
    for segment in path.segments:
        if not isinstance(segment, JSONPathChildSegment) or len(segment.selectors) != 1:
            return None
        selector = segment.selectors[0]
        if not isinstance(selector, NameSelector):
            return None
        names.append(selector.name)
    return tuple(names)


def container(path: Query) -> Query:
    """The path of the value that contains the elements of a path: it ends before filters, indexes, slices and wildcards."""
    segments = list(path.segments)
    while segments and isinstance(segments[-1], JSONPathChildSegment):
        if any(isinstance(selector, NameSelector) for selector in segments[-1].selectors):
            break
        segments.pop()
    return Query(env=_environment, segments=tuple(segments))


def block_path(text: str) -> JsonBlockPath:
    """Parse the path of a top-level block.  Raises PathError."""
    segments = list(query(text).segments)
    anywhere = bool(segments) and isinstance(segments[0], JSONPathRecursiveDescentSegment)
    condition = None
    if segments and len(segments[-1].selectors) == 1 and isinstance(segments[-1].selectors[0], FilterSelector):
        condition = _filter(str(segments.pop().selectors[0]))
    steps: list[str | None] = []
    for number, segment in enumerate(segments):
        if len(segment.selectors) != 1 or (isinstance(segment, JSONPathRecursiveDescentSegment) and number):
            raise PathError(STREAMABLE)
        match segment.selectors[0]:
            case NameSelector(name=name):
                steps.append(name)
            case WildcardSelector():
                steps.append(None)
            case _:
                raise PathError(STREAMABLE)
    if condition is not None:
        steps.append(None)
    if anywhere and (not steps or steps[0] is None):
        raise PathError(STREAMABLE)
    return JsonBlockPath(anywhere, tuple(steps), condition)


def continued(paths: Iterable[str]) -> dict[str, bool]:
    """The members in which blocks with these paths find their elements; true if the members of an object there are elements."""
    found: dict[str, bool] = {}
    for path in paths:
        selectors = [segment.selectors[0] for segment in query(path).segments]
        for selector, after in zip(selectors, [*selectors, None][1:], strict=True):
            if isinstance(selector, NameSelector) and not isinstance(after, NameSelector):
                found[selector.name] = found.get(selector.name, False) or after is not None
    return found


def _filter(selector: str) -> Query:
    if "$" in QUOTED.sub("", selector):
        raise PathError("a block's filter can use only its own element (@), because the source is streamed")
    return _environment.compile(f"$[{selector}]")


def _quoted(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"
