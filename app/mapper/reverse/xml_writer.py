"""Writes XML in reverse: elements and attributes at the paths, with the values that the paths' conditions require."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from lxml import etree

from app.errors import ServiceError
from app.mapper.language import xpath
from app.mapper.language.problems import mapper_error
from app.mapper.language.tree import Mapper
from app.mapper.language.xml_blocks import block_paths
from app.mapper.reverse.base import PathUse, ReverseWriter, check_overlaps, check_paths, children_of
from app.mapper.reverse.plan import Record, ReverseBlock

STEP = re.compile(
    rf"(?P<name>{xpath.QNAME})(?:\[\s*(?P<at>@)?(?P<key>{xpath.NAME})\s*=\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)')\s*\])?"
)
END = re.compile(rf"@(?P<attribute>{xpath.QNAME})|text\(\)|\.")


class XmlWriter(ReverseWriter):
    """Writes an element for each record, inside the elements of the block's path."""

    media_type = "application/xml"
    extension = "xml"

    def __init__(self, mapper: Mapper, reverse: ReverseBlock) -> None:
        self._mapper = mapper
        self._namespaces = {prefix: uri for prefix, uri in mapper.namespaces.items() if uri}
        check_paths(mapper, reverse.block, self._is_writable)
        check_overlaps(mapper, reverse, _use)
        self.lookups = reverse.lookups()
        self.children = tuple(child.block.name for child in reverse.children)
        self._reverse = reverse
        (path,) = block_paths(reverse.block.path.text)  # one, of names only, as open_writer has checked
        steps = [step.name for step in path.steps]
        if not all(map(self._is_name, steps)):
            raise mapper_error(mapper.text, reverse.block.path.at, "a prefix of this path is not declared with @namespace[prefix]")
        self._parents = [reverse.block.entity.name, *steps[:-1]] if path.anywhere else steps[:-1]
        self._written = 0
        self._name = steps[-1]

    def begin(self) -> bytes:
        declared = "".join(f' xmlns:{prefix}="{_escaped(uri)}"' for prefix, uri in self._namespaces.items())
        tags = [f"<{name}{'' if number else declared}>" for number, name in enumerate(self._parents)]
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{"".join(tags)}\n'.encode()

    def write(self, records: Iterable[Record]) -> bytes:
        return b"".join(
            etree.tostring(self._element(record), encoding="UTF-8", xml_declaration=False) + b"\n" for record in records
        )

    def end(self) -> bytes:
        return ("".join(f"</{name}>" for name in reversed(self._parents)) + "\n").encode()

    def _element(self, record: Record) -> Any:
        self._written += 1
        if not self._parents and self._written > 1:
            reason = f"the path {self._reverse.block.path.text!r} names the root element: only one record can be written"
            raise ServiceError("unwritable", f"{self._reverse.describe(record)}: {reason}")
        element = etree.Element(self._tag(self._name), nsmap=self._namespaces or None)
        self._fill(element, self._reverse, record)
        return element

    def _fill(self, element: Any, reverse: ReverseBlock, record: Record) -> None:
        for path, value in reverse.values(record).items():
            steps, attribute = _split(path)
            target = self._reach(element, steps)
            try:
                if attribute:
                    target.set(self._tag(attribute), value or "")
                else:
                    target.text = value
            except ValueError:
                reason = "it contains a character that XML does not allow"
                raise reverse.unwritable(record, reverse.field_of(path), value, reason) from None
        for child, items in children_of(reverse, record, _may_lack):
            steps, _ = _split(child.block.path.text)
            target = self._reach(element, steps[:-1])
            for item in items:
                self._fill(self._added(target, steps[-1]) if steps else target, child, item)

    def _reach(self, element: Any, steps: list[str]) -> Any:
        """The element at the end of the steps; missing elements are added."""
        for step in steps:
            found = next((each for each in element if self._fits(each, step)), None)
            element = self._added(element, step) if found is None else found
        return element

    def _added(self, element: Any, step: str) -> Any:
        match = STEP.fullmatch(step)
        assert match is not None  # ensured by check_paths
        added = etree.SubElement(element, self._tag(match["name"]))
        if match["key"]:
            value = match["double"] if match["double"] is not None else match["single"]
            if match["at"]:
                added.set(match["key"], value)
            else:
                etree.SubElement(added, match["key"]).text = value
        return added

    def _fits(self, element: Any, step: str) -> bool:
        match = STEP.fullmatch(step)
        assert match is not None  # ensured by check_paths
        if element.tag != self._tag(match["name"]):
            return False
        value = match["double"] if match["double"] is not None else match["single"]
        if not match["key"]:
            return True
        return bool((element.get(match["key"]) if match["at"] else element.findtext(match["key"])) == value)

    def _tag(self, name: str) -> str:
        prefix, colon, local = name.rpartition(":")
        return f"{{{self._namespaces[prefix]}}}{local}" if colon else name

    def _is_name(self, name: str) -> bool:
        prefix, colon, _ = name.rpartition(":")
        return not colon or prefix in self._namespaces

    def _is_writable(self, path: str) -> bool:
        steps, attribute = _split(path)
        matches = [STEP.fullmatch(step) for step in steps]
        return all(match and self._is_name(match["name"]) for match in matches) and self._is_name(attribute)


def _split(path: str) -> tuple[list[str], str]:
    """The steps of a path, and the attribute at its end or ''."""
    steps = re.findall(r"(?:[^/\"'\[]|\[(?:[^\"'\]]|\"[^\"]*\"|'[^']*')*\])+|^/|//", path)
    end = END.fullmatch(steps[-1]) if steps else None
    if steps and steps[0] == ".":
        steps = steps[1:]
        end = END.fullmatch(steps[-1]) if steps else None
    return (steps[:-1], end["attribute"] or "") if end and steps else (steps, "")


def _use(path: str) -> PathUse:
    steps, attribute = _split(path)
    writes = [] if attribute else [tuple(steps)]
    for number, step in enumerate(steps, 1):
        match = STEP.fullmatch(step)
        if match and match["key"] and not match["at"]:  # the child element that the condition compares
            writes.append((*steps[:number], match["key"]))
    return PathUse(None if attribute or path.endswith("text()") else tuple(steps), tuple(writes))


def _may_lack(path: str) -> bool:
    plain = xpath.plain(path)
    return plain is not None and len(plain.steps) > 1


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
