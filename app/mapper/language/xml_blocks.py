"""Paths of blocks in XML: what can be told of an element while the source is streamed.

catalog/product                  from the root
//product                        at any depth
//product[@type="new"][1]        each step may test attributes and the position among the elements that satisfy what is before
//offer | /catalog/*             unions; * is any name, p:* any name with a prefix
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.mapper.language.xpath import NAME, QNAME, PathError

SIGN = re.compile(r"\s*(//|/|)\s*")
STEP = re.compile(rf"{NAME}:\*|{QNAME}|\*")
PREDICATE = re.compile(r"""\s*\[(?:[^\]"']|"[^"]*"|'[^']*')*\]""")
ATTRIBUTE = re.compile(rf"""\s*\[\s*@({QNAME})\s*(?:(!?=)\s*("[^"]*"|'[^']*')\s*)?\]""")
POSITION = re.compile(r"\s*\[\s*(?:position\s*\(\s*\)\s*(!=|<=|>=|=|<|>)\s*)?(\d{1,18})\s*\]")
LAST = re.compile(r"""\[(?:[^"']|"[^"]*"|'[^']*')*\blast\s*\(""")
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    **{"=": operator.eq, "!=": operator.ne, "<": operator.lt},
    **{"<=": operator.le, ">": operator.gt, ">=": operator.ge},
}
EXAMPLES = """such as '/catalog/product', '//product[@type="new"]', '//product[1]' or '//product | //offer'"""


@dataclass(frozen=True, slots=True)
class AttributeTest:
    """[@name], [@name="value"] or [@name!="value"], each false without the attribute."""

    name: str
    sign: str | None
    value: str

    def holds(self, element: Any) -> bool:
        """Whether an element satisfies it."""
        value = element.get(self.name)
        if value is None:
            local = self.name.rpartition(":")[2]
            value = next((v for k, v in element.attrib.items() if k.rpartition("}")[2] == local), None)
        return value is not None and (self.sign is None or (value == self.value) is (self.sign == "="))


@dataclass(frozen=True, slots=True, eq=False)
class PositionTest:
    """[3] or [position() < 3].  Equal only to itself: positions are counted for each."""

    sign: str
    number: int

    def holds(self, position: int) -> bool:
        """Whether a position, from 1, satisfies it."""
        return COMPARISONS[self.sign](position, self.number)


@dataclass(frozen=True, slots=True)
class XmlStep:
    """An element by its name (*: any, p:*: any with the prefix) and what it has to satisfy, test by test."""

    name: str
    tests: tuple[AttributeTest | PositionTest, ...]

    @property
    def local_name(self) -> str:
        return self.name.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class XmlBlockPath:
    """One path of a union: its elements are at the end of these steps, from the root or (anywhere) at any depth."""

    anywhere: bool
    steps: tuple[XmlStep, ...]

    @property
    def is_plain(self) -> bool:
        """Whether it has names only."""
        return not any(step.tests or step.local_name == "*" for step in self.steps)


def block_paths(text: str) -> tuple[XmlBlockPath, ...]:
    """Parse the path of a top-level block, one or more with | between them.  Raises PathError."""
    paths, at = [], 0
    while True:
        path, at = _path(text, at)
        paths.append(path)
        if at == len(text):
            return tuple(paths)
        at += 1  # |


def _path(text: str, at: int) -> tuple[XmlBlockPath, int]:
    """Parse a path from a position on; returns it and the position of what follows, a | or the end."""
    sign = SIGN.match(text, at)
    assert sign is not None  # it matches nothing, too
    steps, at = [], sign.end()
    while True:
        step, at = _step(text, at)
        steps.append(step)
        at += len(text[at:]) - len(text[at:].lstrip())
        if text[at : at + 1] in ("", "|"):
            return XmlBlockPath(sign[1] == "//", tuple(steps)), at
        if text.startswith("//", at):
            raise PathError(f"// is possible only at the start of a block's path, {EXAMPLES}", at)
        if text[at] != "/":
            raise PathError(f"expected /, |, a predicate or the end of the block's path, got {text[at:]!r}", at)
        at += 1


def _step(text: str, at: int) -> tuple[XmlStep, int]:
    name = STEP.match(text, at)
    if not name:
        got = repr(text[at:]) if text[at:] else "its end"
        raise PathError(f"expected an element path or //name as a block's path, {EXAMPLES}; expected a name, got {got}", at)
    tests: list[AttributeTest | PositionTest] = []
    at = name.end()
    while text[at:].lstrip().startswith("["):
        if match := ATTRIBUTE.match(text, at):
            tests.append(AttributeTest(match[1], match[2], (match[3] or "''")[1:-1]))
        elif match := POSITION.match(text, at):
            tests.append(PositionTest(match[1] or "=", int(match[2])))
        else:
            raise _refused(text, at)
        at = match.end()
    return XmlStep(name[0], tuple(tests)), at


def _refused(text: str, at: int) -> PathError:
    match = PREDICATE.match(text, at)
    if not match:
        return PathError("[ is not closed", at)
    predicate = match[0].strip()
    if LAST.match(predicate):
        return PathError(f"last() is not known while the source is streamed: {predicate}; expected a position from the start", at)
    message = f"""expected a test of an attribute, [@type="new"], or of the position, [1] or [position() > 1], got {predicate}"""
    return PathError(f"{message}; what an element contains is tested with when", at)
