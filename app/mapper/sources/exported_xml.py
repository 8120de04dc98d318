"""Records of an XML export: elements are named as the fields, child collections are nested, a reference is a lookup already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.mapper.exported import restored_element
from app.mapper.language.functions import ABSENT
from app.mapper.language.problems import source_error
from app.mapper.language.tree import Block
from app.mapper.sources.names import listed
from app.mapper.sources.xml_values import XmlElement, local_name

NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"


@dataclass(frozen=True, slots=True)
class ExportedRecords:
    """Makes the record of an element, as RecordMaker does for the blocks of a mapper."""

    block: Block

    def make(self, node: XmlElement) -> dict[str, Any]:
        """Make a record with its children.  Raises ServiceError for an element that is not a field."""
        return _record(self.block, node.element)


def _record(block: Block, element: Any) -> dict[str, Any]:
    rules = {rule.name: rule for rule in block.rules}
    children = {child.name: child for child in block.children}
    operation = element.get("operation")  # of an export of what changed
    record: dict[str, Any] = {} if operation is None else {"@operation": operation}
    for each in element:
        name = local_name(each)
        if name in children:
            record.setdefault(name, []).extend(_record(children[name], item) for item in each)  # an array may occur again
        elif name not in rules:
            message = f"{block.entity.name} has no field {name}, expected elements among {listed([*rules, *children])}"
            raise source_error(message, line=each.sourceline, code="invalid_document")
        else:
            is_null = each.get(NIL) in ("true", "1")
            value = None if is_null else restored_element(rules[name], "".join(each.itertext()))
            if value is not ABSENT:
                record[name] = value
    return record
