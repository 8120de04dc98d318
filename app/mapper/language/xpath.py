"""XPath 1.0 for mappers: paths relative to an element of a streamed source, where unprefixed names match in any namespace.

A path is rewritten for libxml2: `name` becomes `*[local-name()='name']`, and a prefix that the mapper does not declare matches the
prefix in the source.  Plain paths (`a/b`, `a/@b`, `.`) are recognised, because they can be followed without XPath.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from lxml import etree

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
PREDICATE = re.compile(r"""\[(?:[^\]"']|"[^"]*"|'[^']*')*\]""")
CLIMB = re.compile(r"(?:\./)?((?:(?:\.\.|parent::(?:node\(\)|\*))/?)+)(.*)", re.DOTALL)
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


def depth(text: str) -> int:
    """The least number of steps that a path leads down."""
    bare = PREDICATE.sub("", text)
    steps = plain(bare)
    return len(steps.steps) if steps else int(bare.startswith(".//"))


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
    tokens = list(_tokens(text))
    before: str | None = None
    for number, (kind, token, offset) in enumerate(tokens):
        following = tokens[number + 1][1] if number + 1 < len(tokens) else ""
        opens = before is None or before in OPENING
        if kind == "name" and opens:
            out.append(_name(token, following, offset, before, namespaces))
            before = "name"
        elif kind == "name":
            if token not in OPERATORS:
                raise PathError(f"unexpected {token}, expected an operator", offset)
            out.append(f" {token} ")
            before = token
        else:
            if token == "$":
                raise PathError("variables are not supported", offset)
            if token in ("/", "//") and opens:
                raise PathError("expected a path relative to the block's element, such as 'name' or './/name'", offset)
            out.append(token)
            before = "*op" if token == "*" and not opens else token
    return "".join(out)


def compile(text: str, namespaces: Mapping[str, str], inside: int) -> etree.XPath:
    """Compile a path; `inside` is the number of steps from the record's element down to the block's.  Raises PathError."""
    _check_climb(text, inside)
    used = {prefix: uri for prefix, uri in namespaces.items() if uri}
    try:
        path = etree.XPath(rewrite(text, used), namespaces=used or None, smart_strings=False, regexp=False)
        path(etree.Element("sample"))  # libxml2 finds type errors only during evaluation
        return path
    except etree.XPathError as error:
        raise PathError(f"invalid XPath 1.0: {str(error) or 'syntax error'}") from None


def _tokens(text: str) -> list[tuple[str, str, int]]:
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


def _name(token: str, following: str, offset: int, before: str | None, namespaces: Mapping[str, str]) -> str:
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


def _check_climb(text: str, inside: int) -> None:
    climb = CLIMB.fullmatch(text)
    if climb and len(re.findall(r"\.\.|parent::", climb[1])) > inside and not climb[2].startswith(("@", "attribute::")):
        raise PathError(OUTSIDE)
    ancestor = re.search(r"\bancestor(?:-or-self)?::[^/]*(/?.?)", text)
    if ancestor and ancestor[1] not in ("/@", "/a"):
        raise PathError(OUTSIDE, ancestor.start())
    sibling = re.match(r"(?:\./)?(?:following|preceding)-sibling::", text)
    if sibling and not inside:
        raise PathError(OUTSIDE)
