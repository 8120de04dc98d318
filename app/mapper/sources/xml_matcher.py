"""Finds the blocks whose paths lead to an element of a document that is read and dropped piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from app.mapper.language.xml_blocks import PositionTest, XmlBlockPath, XmlStep, block_paths
from app.mapper.sources.xml_values import local_name

Block = TypeVar("Block")


class XmlMatcher(Generic[Block]):
    """Finds the blocks of an element.

    Positions are counted as elements end, for each parent, because the elements before are dropped by then: find() is for an
    element that is open, or has ended and has not been passed to ended() yet.
    """

    def __init__(self, blocks: Iterable[tuple[str, Block]], namespaces: Mapping[str, str]) -> None:
        self._namespaces = namespaces
        self._paths = [(path, block) for text, block in blocks for path in block_paths(text)]
        self._by_name: dict[str, list[tuple[XmlBlockPath, Block]]] = {}  # by the local name of the last step, or *
        self._counted: dict[str, list[XmlStep]] = {}  # steps that test the position, in the same way
        for path, block in self._paths:
            self._by_name.setdefault(path.steps[-1].local_name, []).append((path, block))
            for step in path.steps:
                if any(isinstance(test, PositionTest) for test in step.tests):
                    self._counted.setdefault(step.local_name, []).append(step)
        self._counts: dict[Any, dict[PositionTest, int]] = {}  # by parent: children so far that a test was applied to
        self._parent: Any = None  # of the last element
        self._matches: dict[tuple[str, str | None], list[tuple[XmlBlockPath, Block]]] = {}  # by name and prefix, of its children

    @property
    def names(self) -> set[str] | None:
        """The local names of the elements for which find() and ended() are to be called; None: of all."""
        names = {*self._by_name, *self._counted}
        return None if "*" in names else names

    def roots(self, root: Any) -> list[str]:
        """The names that the root element may have if it has none of them; else nothing."""
        if any(path.anywhere or self._is(root, path.steps[0].name) for path, _ in self._paths):
            return []
        return list(dict.fromkeys(path.steps[0].name for path, _ in self._paths))

    def find(self, element: Any) -> list[Block]:
        """The blocks, each once, whose paths lead to an element."""
        parent = element.getparent()
        if parent is not self._parent or parent is None:
            self._parent, self._matches = parent, {}
        key = element.tag, element.prefix
        matches = self._matches.get(key)
        if matches is None:
            candidates = [*self._by_name.get(local_name(element), ()), *self._by_name.get("*", ())]
            matches = self._matches[key] = [each for each in candidates if self._leads_to(each[0], element)]
        found: list[Block] = []
        for path, block in matches:
            if not any(block is each for each in found) and self._holds(path.steps[-1], element):
                found.append(block)
        return found

    def ended(self, element: Any) -> None:
        """Count an element that has ended."""
        name = local_name(element)
        for step in (*self._counted.get(name, ()), *self._counted.get("*", ())) if self._counted else ():
            if not self._is(element, step.name):
                continue
            counts = self._counts.setdefault(element.getparent(), {})
            for test in step.tests:
                if isinstance(test, PositionTest):
                    counts[test] = counts.get(test, 0) + 1
                    if not test.holds(counts[test]):
                        break
                elif not test.holds(element):
                    break

    def forget(self, root: Any) -> None:
        """Forget what was counted below elements that are not open any more."""
        is_open = set()
        while root is not None and self._counts:
            is_open.add(root)
            root = root[-1] if len(root) else None
        self._counts = {parent: counts for parent, counts in self._counts.items() if parent in is_open}

    def _leads_to(self, path: XmlBlockPath, element: Any) -> bool:
        """Whether a path leads to an element, whatever the tests of its last step."""
        for number, step in enumerate(reversed(path.steps)):
            if element is None or not self._is(element, step.name) or (number and not self._holds(step, element)):
                return False
            element = element.getparent()
        return path.anywhere or element is None

    def _holds(self, step: XmlStep, element: Any) -> bool:
        for test in step.tests:
            if isinstance(test, PositionTest):
                if not test.holds(self._counts.get(element.getparent(), {}).get(test, 0) + 1):
                    return False
            elif not test.holds(element):
                return False
        return True

    def _is(self, element: Any, name: str) -> bool:
        prefix, colon, local = name.rpartition(":")
        if local != "*" and local_name(element) != local:
            return False
        if not colon:
            return True
        uri = self._namespaces.get(prefix)
        return bool(element.tag.startswith(f"{{{uri}}}") if uri else element.prefix == prefix)
