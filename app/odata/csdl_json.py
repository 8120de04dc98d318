"""CSDL JSON: $metadata in the form of JSON, made from its XML, so that both say the same.

Covers the elements that app.odata.metadata makes.  An attribute becomes a member with $: Nullable becomes $Nullable.
"""

from __future__ import annotations

import json
from typing import Any
from xml.etree.ElementTree import Element

NUMBERS = frozenset(("MaxLength", "Precision", "Scale"))  # attributes whose value is a number, if it is not a word such as variable


def csdl_json(root: Element) -> bytes:
    """The document of an edmx:Edmx element, whose schemas have no prefix."""
    document: dict[str, Any] = {"$Version": root.get("Version")}
    references = {  # vocabularies are published in both forms
        each.get("Uri", "").replace(".xml", ".json"): {"$Include": [_members(include) for include in each]}
        for each in root.iter("edmx:Reference")
    }
    schemas = list(root.iter("Schema"))
    for schema in schemas:
        for container in schema.findall("EntityContainer"):
            document["$EntityContainer"] = f"{schema.get('Namespace')}.{container.get('Name')}"
    document["$Reference"] = references
    for schema in schemas:
        document[schema.get("Namespace", "")] = dict(map(_named, schema))
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _named(element: Element) -> tuple[str, Any]:
    """The member of a schema, entity type or container that an element with a name becomes."""
    content: dict[str, Any] = {}
    match element.tag:
        case "EntityType":
            content = {"$Kind": element.tag, "$Key": [each.get("Name") for each in element.findall("Key/PropertyRef")]}
            content |= dict(_named(each) for each in element if each.tag in ("Property", "NavigationProperty"))
        case "EntityContainer":
            content = {"$Kind": element.tag} | dict(map(_named, element.findall("EntitySet")))
        case "EntitySet":
            content = {"$Collection": True, "$Type": element.get("EntityType")}
            bindings = {each.get("Path"): each.get("Target") for each in element.findall("NavigationPropertyBinding")}
            content |= {"$NavigationPropertyBinding": bindings} if bindings else {}
        case "NavigationProperty" | "Property":
            content = {"$Kind": element.tag} if element.tag == "NavigationProperty" else {}
            content |= _typed(element)
            for each in element.findall("ReferentialConstraint"):
                content["$ReferentialConstraint"] = {each.get("Property"): each.get("ReferencedProperty")}
    annotations = {f"@{each.get('Term')}": _value(each) for each in element.findall("Annotation")}
    return element.get("Name", ""), content | annotations


def _typed(element: Element) -> dict[str, Any]:
    """The type and facets of a property; a text is the default, and so is a value that is never null."""
    members = _members(element, without="Name")
    type = members.pop("$Type")
    if type.startswith("Collection("):
        members = {"$Collection": True, "$Type": type.removeprefix("Collection(").removesuffix(")")} | members
    elif type != "Edm.String":
        members = {"$Type": type} | members
    if members.get("$Nullable") is False:
        del members["$Nullable"]
    return members


def _members(element: Element, without: str = "") -> dict[str, Any]:
    return {f"${name}": _attribute(name, value) for name, value in element.items() if name != without}


def _attribute(name: str, value: str) -> bool | int | str:
    if name in NUMBERS and value.isdigit():
        return int(value)
    return value == "true" if value in ("true", "false") else value


def _value(element: Element) -> Any:
    """The value of an annotation or of a record's property: a constant among its attributes, a record or a collection inside."""
    for name in ("String", "PropertyPath"):
        if name in element.attrib:
            return element.get(name)
    if "EnumMember" in element.attrib:
        return element.get("EnumMember", "").rpartition("/")[2]
    if "Bool" in element.attrib:
        return element.get("Bool") == "true"
    if "Int" in element.attrib:
        return int(element.get("Int", ""))
    return _content(element[0])


def _content(element: Element) -> Any:
    match element.tag:
        case "Collection":
            return [_content(each) for each in element]
        case "Record":
            return {each.get("Property"): _value(each) for each in element}
    return element.text or ""
