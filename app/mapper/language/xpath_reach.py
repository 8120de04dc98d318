"""How far an XPath leads out of its record.  A streamed source keeps only the ancestors of the record, with their attributes.

A path is followed step by step, in predicates and arguments too.  Its places are those that it may be at: the level of an element,
0 for the record's own and negative outside, and whether it is at an attribute of that element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

Place = tuple[int, bool]
Places = frozenset[Place]

ABOVE: Place = (-1, False)
# functions of elements that do not read what these contain
LIGHT = frozenset(("count", "name", "local-name", "namespace-uri", "boolean", "not"))
# functions that read the element at which they stand if they have no argument
IMPLICIT = frozenset(("string", "number", "normalize-space", "string-length"))
JOINTS = frozenset(("|", ",", ")"))  # what may follow a path whose elements are not compared or computed with


class OutsideError(Exception):
    """A path reads what a stream does not keep; `offset` is where it begins."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


@dataclass(slots=True)
class _Frame:
    """What stands between brackets.  context: where its paths begin; keeps: whether its paths may end outside."""

    context: Places
    keeps: bool = False
    is_group: bool = False
    places: Places | None = None  # of the current path; None before its first step
    start: int = 0  # of the current path
    found: Places = frozenset()  # of the paths before it, joined with |
    is_computed: bool = False


def lowest_level(tokens: Sequence[tuple[str, str, int]], inside: int) -> int:
    """Return the least level at which a path ends; `inside` is where it begins.  Raises OutsideError.

    tokens: kind, text and offset; "operator" is the kind of names and * that are operators.
    """
    walk = _Walk(inside)
    at = 0
    while at < len(tokens):
        at += walk.take(tokens, at)
    found = walk.ended("|")
    return min((level for level, _ in found), default=inside)


@dataclass(slots=True)
class _Walk:
    inside: int
    frames: list[_Frame] = field(init=False)

    def __post_init__(self) -> None:
        self.frames = [_Frame(frozenset([(self.inside, False)]))]

    def take(self, tokens: Sequence[tuple[str, str, int]], at: int) -> int:
        """Follow what begins at a token; return the number of its tokens."""
        kind, token, offset = tokens[at]
        following = [each[1] for each in tokens[at + 1 : at + 3]]
        frame = self.frames[-1]
        if kind in ("literal", "number"):
            frame.places = frozenset()
        elif kind == "operator":
            self.ended(token)
        elif kind == "name" and following[:1] == ["::"]:
            return 2 + self.test(tokens, at + 2, token, offset)
        elif kind == "name" and following[:1] == ["("] and token not in ("text", "node"):
            if token in IMPLICIT and following == ["(", ")"]:
                _check(frame.context, offset)
            self.frames.append(_Frame(frame.context, token in LIGHT))
            return 2
        elif kind == "name" or token in ("*", "@"):
            return self.test(tokens, at + 1, "attribute", offset) + 1 if token == "@" else self.test(tokens, at, "child", offset)
        elif token in (".", ".."):
            self.step("self" if token == "." else "parent", offset)
        elif token == "//":
            self.step("descendant-or-self", offset)
        elif token in ("(", "["):
            self.frames.append(_Frame(frame.context, True, True) if token == "(" else _Frame(frame.places or frozenset()))
        elif token in (")", "]"):
            found = self.ended(token)
            self.frames.pop()
            if token == ")":
                self.frames[-1].places = found if frame.is_group else frozenset()
        elif token != "/":
            self.ended(token)
        return 1

    def test(self, tokens: Sequence[tuple[str, str, int]], at: int, axis: str, offset: int) -> int:
        """Follow a step along an axis to the test of a node; return the number of the test's tokens."""
        self.step(axis, offset)
        return 3 if tokens[at][1] in ("text", "node") and at + 1 < len(tokens) and tokens[at + 1][1] == "(" else 1

    def step(self, axis: str, offset: int) -> None:
        frame = self.frames[-1]
        if frame.places is None:
            frame.places, frame.start = frame.context, offset
        move = AXES[axis]
        try:
            frame.places = frozenset(to for place in frame.places for to in move(*place))
        except OutsideError:
            raise OutsideError(frame.start) from None

    def ended(self, token: str) -> Places:
        """End the current path before a token; return its places, and those of the paths that are joined with it."""
        frame = self.frames[-1]
        places = frame.found | (frame.places or frozenset())
        if not frame.keeps or frame.is_computed or token not in JOINTS:
            _check(places, frame.start)
        if token not in ("|", ")"):
            frame.is_computed = token != ","
        frame.found = places if token == "|" else frozenset()
        frame.places = None
        return places


def _check(places: Iterable[Place], offset: int) -> None:
    """Raises OutsideError where an element outside would be read."""
    if any(level < 0 and not is_attribute for level, is_attribute in places):
        raise OutsideError(offset)


def _down(level: int, is_attribute: bool) -> Iterable[Place]:
    if level < 0 and not is_attribute:
        raise OutsideError(0)
    return () if is_attribute else ((level + 1, False),)


def _below(level: int, is_attribute: bool) -> Iterable[Place]:
    if level < 0 and not is_attribute:
        raise OutsideError(0)
    return ((level, is_attribute),)


def _beside(level: int, is_attribute: bool) -> Iterable[Place]:
    if level <= 0 and not is_attribute:
        raise OutsideError(0)
    return () if is_attribute else ((level, False),)


AXES: dict[str, Callable[[int, bool], Iterable[Place]]] = {
    "child": _down,
    "descendant": _down,
    "descendant-or-self": _below,
    "self": lambda level, is_attribute: ((level, is_attribute),),
    "attribute": lambda level, is_attribute: () if is_attribute else ((level, True),),
    "parent": lambda level, is_attribute: ((level, False),) if is_attribute else ((level - 1, False),),
    "ancestor": lambda level, is_attribute: (ABOVE,),
    "ancestor-or-self": lambda level, is_attribute: (ABOVE, (level, is_attribute)),
    "following-sibling": _beside,
    "preceding-sibling": _beside,
}
