"""XPath 1.0 for mappers: paths relative to an element of a streamed source, where unprefixed names match in any namespace.

A path is rewritten for libxml2: `name` becomes `*[local-name()='name']`, and a prefix that the mapper does not declare matches the
prefix in the source.  Plain paths (`a/b`, `a/@b`, `.`) are recognised, because they can be followed without XPath.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lxml import etree

from app.mapper.language import xpath_reach
from app.mapper.language.xpath_reach import OutsideError

Token = tuple[str, str, int]  # kind, text, offset

NAME = r"[^\W\d][\w.\-]*"
QNAME = rf"{NAME}(?::{NAME})?"
TOKEN = re.compile(
    rf"""(?P<literal>"[^"]*"|'[^']*')|(?P<number>\d+(?:\.\d*)?|\.\d+)|(?P<name>{NAME}(?::(?!:)(?:{NAME}|\*))?)"""
    r"|(?P<sign>//|::|\.\.|!=|<=|>=|[()\[\]@,/|+\-=<>*.$])|(?P<space>\s+)"
)
PLAIN = re.compile(rf"(?:\./)?(?P<steps>{NAME}(?:/{NAME})*)?(?P<slash>/)?(?:@(?P<attribute>{NAME})|(?P<self>\.|text\(\)))?")
OPERATORS = frozenset(("and", "or", "div", "mod"))
OPENING = frozenset(("/", "//", "|", "(", "[", ",", "@", "::", "+", "-", "=", "!=", "<", "<=", ">", ">=", "*op", *OPERATORS))
AXES = frozenset((
    "ancestor", "ancestor-or-self", "attribute", "child", "descendant", "descendant-or-self", "following-sibling", "parent",
    "preceding-sibling", "self",
))  # fmt: skip
NODE_TYPES = frozenset(("text", "node"))
FUNCTIONS = frozenset((
    "last", "position", "count", "local-name", "namespace-uri", "name", "string", "concat", "starts-with", "contains",
    "substring-before", "substring-after", "substring", "string-length", "normalize-space", "translate", "boolean", "not", "true",
    "false", "lang", "number", "sum", "floor", "ceiling", "round",
))  # fmt: skip
OUTSIDE = "outside the record only attributes of its ancestors can be read, such as ../@name, because the source is streamed"


class PathError(ValueError):
    """A path is wrong, `offset` characters after its start."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class PlainPath:
    """Child elements by local name, with their text or an attribute at the end."""

    steps: tuple[str, ...]
    attribute: str | None
    text_only: bool = False  # text(): without the text of nested elements


def plain(text: str) -> PlainPath | None:
    """Parse a plain path; None if the path is not plain."""
    match = PLAIN.fullmatch(text)
    if not match or not text or text == "./":
        return None
    steps = tuple(match["steps"].split("/")) if match["steps"] else ()
    tail = bool(match["attribute"] or match["self"])
    if bool(match["slash"]) != (bool(steps) and tail):
        return None
    return PlainPath(steps, match["attribute"], match["self"] == "text()")


def lowest_level(text: str, inside: int) -> int:
    """The least level at which a path ends that begins `inside` levels below the record's element.  Raises PathError."""
    try:
        return xpath_reach.lowest_level(_parsed(text), inside)
    except OutsideError as error:
        raise PathError(OUTSIDE, error.offset) from None


def containers(text: str) -> list[str]:
    """The paths of the elements that contain those of a path, one for each alternative; none for .//name, found anywhere."""
    found: list[str] = []
    start, depth, cut, sign = 0, 0, 0, ""  # of the alternative; of brackets; of its last / or //
    for _, token, offset in [*_tokens(text), ("sign", "|", len(text))]:
        depth += (token in "([") - (token in ")]")
        if depth == 0 and token in ("/", "//"):
            cut, sign = offset, token
        elif depth == 0 and token == "|":
            container = text[start:cut].strip() if sign else "."
            if (container, sign) != (".", "//"):
                found.append(container)
            start, sign = offset + 1, ""
    return found


def rewrite(text: str, namespaces: Mapping[str, str]) -> str:
    """Rewrite a path for libxml2.  Raises PathError at syntax that XPath 1.0 lacks or that a stream cannot support."""
    out: list[str] = []
    tokens = _parsed(text)
    for number, (kind, token, offset) in enumerate(tokens):
        following = tokens[number + 1][1] if number + 1 < len(tokens) else ""
        if kind == "name":
            out.append(_name(token, following, offset, namespaces))
        else:
            out.append(f" {token} " if kind == "operator" else token)
    return "".join(out)


def compile(text: str, namespaces: Mapping[str, str], inside: int) -> etree.XPath:
    """Compile a path; `inside` is the number of steps from the record's element down to the block's.  Raises PathError."""
    used = {prefix: uri for prefix, uri in namespaces.items() if uri}
    try:
        path = etree.XPath(rewrite(text, used), namespaces=used or None, smart_strings=False, regexp=False)
        lowest_level(text, inside)
        path(etree.Element("sample"))  # libxml2 finds type errors only during evaluation
        return path
    except etree.XPathError as error:
        raise PathError(f"invalid XPath 1.0: {str(error) or 'syntax error'}") from None


def _parsed(text: str) -> list[Token]:
    """The tokens of a path; the kind of names and * that are operators is "operator".  Raises PathError."""
    parsed: list[Token] = []
    before: str | None = None
    for kind, token, offset in _tokens(text):
        opens = before is None or before in OPENING
        if kind == "name" and not opens:
            if token not in OPERATORS:
                raise PathError(f"unexpected {token}, expected an operator", offset)
            kind, before = "operator", token
        elif kind == "name":
            before = "name"
        elif token == "$":
            raise PathError("variables are not supported", offset)
        elif token in ("/", "//") and opens:
            raise PathError("expected a path relative to the block's element, such as 'name' or './/name'", offset)
        elif token == "*" and not opens:
            kind, before = "operator", "*op"
        else:
            before = token
        parsed.append((kind, token, offset))
    return parsed


def _tokens(text: str) -> list[Token]:
    tokens, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            quoted = text[at] in "\"'"
            raise PathError("quoted text is not closed" if quoted else f"unexpected {text[at]!r} in a path", at)
        assert match.lastgroup is not None
        if match.lastgroup != "space":
            tokens.append((match.lastgroup, match[0], at))
        at = match.end()
    if not tokens:
        raise PathError("expected a path")
    return tokens


def _name(token: str, following: str, offset: int, namespaces: Mapping[str, str]) -> str:
    """Rewrite a name: an axis, a function, a node type, or an element or attribute."""
    if following == "::":
        if token not in AXES:
            raise PathError(f"unknown or unsupported axis {token}", offset)
        return token
    if following == "(":
        if token not in NODE_TYPES | FUNCTIONS:
            raise PathError(f"XPath 1.0 has no function {token}", offset)
        return token
    prefix, colon, local = token.rpartition(":")
    if not colon:
        return f"*[local-name()='{token}']"
    if prefix in namespaces or prefix == "xml":
        return token
    return f"*[starts-with(name(),'{prefix}:')]" if local == "*" else f"*[name()='{token}']"
