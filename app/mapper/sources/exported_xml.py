"""Records of an XML export: elements are named as the fields, child collections are nested, a reference is a lookup already.

Nothing of the document is passed over: an element, an attribute or a text that no export writes is an error.  Only white space,
comments and the attributes of other namespaces have no effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from app.errors import ServiceError
from app.mapper.exported import restored_element
from app.mapper.language.functions import ABSENT
from app.mapper.language.locales import quoted
from app.mapper.language.problems import source_error
from app.mapper.language.tree import Block, Rule
from app.mapper.sources.names import listed
from app.mapper.sources.xml_values import XmlElement, local_name

NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"
OPERATION = "operation"  # an attribute of records in an export of changes

Layout = dict[str, "Layout"]  # names of elements, with those inside them; empty: of a record


@dataclass(frozen=True, slots=True)
class ExportedRecords:
    """Makes the record of an element, as RecordMaker does for the blocks of a mapper."""

    block: Block

    def make(self, node: XmlElement) -> dict[str, Any]:
        """Make a record with its children.  Raises ServiceError for an element, an attribute or a text that is not a field."""
        return _record(self.block, node.element)


def layout_of(blocks: Iterable[Block]) -> Layout:
    """The elements from the root down to the records."""
    layout: Layout = {}
    for block in blocks:
        names = layout
        for name in block.path.text.strip("/").split("/"):
            names = names.setdefault(name, {})
    return layout


def check_layout(element: Any, layout: Layout) -> None:
    """Check what has been read around the records.  Raises ServiceError for an element that is not in the layout, and for text."""
    inside, where = layout[local_name(element)], local_name(element)
    _check_attributes(element, where)
    for name, each in _elements(element, inside, where):
        if inside[name]:
            check_layout(each, inside)


def _record(block: Block, element: Any) -> dict[str, Any]:
    rules = {rule.name: rule for rule in block.rules}
    children = {child.name: child for child in block.children}
    where = block.entity.name
    _check_attributes(element, where, OPERATION)
    operation = element.get(OPERATION)
    record: dict[str, Any] = {} if operation is None else {"@operation": operation}
    for name, each in _elements(element, {**rules, **children}, where, "field"):
        if name in children:
            _check_attributes(each, name)
            item = children[name].path.text.rpartition("/")[2]
            records = (_record(children[name], inside) for _, inside in _elements(each, (item,), name))
            record.setdefault(name, []).extend(records)  # an array may occur again
        elif (value := _value(rules[name], each)) is not ABSENT:
            record[name] = value
    return record


def _value(rule: Rule, element: Any) -> Any:
    """The value of a field's element."""
    text = element.text or ""
    if len(element):
        raise _error(element[0], f"expected a text inside {rule.name}, got the element {local_name(element[0])}")
    if element.keys():
        _check_attributes(element, rule.name, "xsi:nil")
        if element.get(NIL) in ("true", "1"):
            if text.strip():
                raise _error(element, f"expected nothing inside {rule.name} with xsi:nil, got the text {quoted(text.strip())}")
            return None
    return restored_element(rule, text)


def _elements(element: Any, expected: Collection[str], where: str, kind: str = "element") -> Iterator[tuple[str, Any]]:
    """Yield the names and elements inside an element.  Raises ServiceError for another element, and for text between them."""
    _check_text(element, element.text, expected, where)
    for each in element:
        name = local_name(each)
        if name not in expected:
            raise _error(each, f"{where} has no {kind} {name}, expected elements among {listed(expected)}")
        _check_text(each, each.tail, expected, where)
        yield name, each


def _check_text(element: Any, text: str | None, expected: Collection[str], where: str) -> None:
    if text and not text.isspace():
        raise _error(element, f"expected elements among {listed(expected)} inside {where}, got the text {quoted(text.strip())}")


def _check_attributes(element: Any, where: str, allowed: str | None = None) -> None:
    for name in element.attrib:
        if name[0] != "{" and name != allowed:
            raise _error(element, f"{where}: expected no attribute{f' but {allowed}' if allowed else ''}, got {name}")


def _error(element: Any, message: str) -> ServiceError:
    return source_error(message, line=element.sourceline, code="invalid_document")
