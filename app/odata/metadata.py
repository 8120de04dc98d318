"""The service document and $metadata (CSDL 4.0), made from the catalog.

The capability annotations state exactly what the service supports; descriptions are the database's comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, tostring

from app.database.catalog import Catalog, Entity, Field, Navigation
from app.odata.csdl_json import csdl_json
from app.query.check.functions import FUNCTIONS
from app.query.check.options import MAX_LEVELS
from app.query.check.types import TYPE_NAMES
from app.query.sql.rows import NAMESPACE
from app.types import named

CONTAINER = "Container"
EDMX = "http://docs.oasis-open.org/odata/ns/edmx"
EDM = "http://docs.oasis-open.org/odata/ns/edm"
VOCABULARIES = "https://oasis-tcs.github.io/odata-vocabularies/vocabularies"
ALIASES = {name: f"Org.OData.{name}.V1" for name in ("Core", "Capabilities", "Aggregation", "Validation")}

# Annotations of entity sets: term -> property of its record -> value.
SET_CAPABILITIES: dict[str, dict[str, bool | int]] = {
    "FilterRestrictions": {"Filterable": True},
    "SortRestrictions": {"Sortable": True},
    "CountRestrictions": {"Countable": True},
    "ExpandRestrictions": {"Expandable": True, "MaxLevels": 1},
    "SearchRestrictions": {"Searchable": False},
    "InsertRestrictions": {"Insertable": False},
    "UpdateRestrictions": {"Updatable": False},
    "DeleteRestrictions": {"Deletable": False},
}
# The values that the extended profile has instead.
EXTENDED_CAPABILITIES: dict[str, dict[str, bool | int]] = {"ExpandRestrictions": {"MaxLevels": MAX_LEVELS}}
SET_SUPPORT = {"TopSupported": True, "SkipSupported": True}
TRANSFORMATIONS = ("aggregate", "groupby")
SERVICE_SUPPORT = {
    "BatchSupported": False,
    "CrossJoinSupported": False,
    "AsynchronousRequestsSupported": False,
    "KeyAsSegmentSupported": False,
}
ARITHMETIC = {"add", "sub", "mul", "div", "mod", "-"}  # in the function table, but not functions of OData
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
CONFORMANCE = "Capabilities.ConformanceLevelType/Minimal"


def service_document(catalog: Catalog, context: str | None) -> bytes:
    """The service document as JSON.  context: the context URL; None for a format without control information."""
    head = {"@odata.context": context} if context else {}
    sets = [{"name": name, "kind": "EntitySet", "url": name} for name in catalog.entities]
    return json.dumps({**head, "value": sets}, ensure_ascii=False, separators=(",", ":")).encode()


def csdl(catalog: Catalog, *, is_json: bool = False, extended: bool = False) -> bytes:
    """The $metadata document, as XML (EDMX) or as JSON.  extended: with what the extended profile supports."""
    root = _edmx(catalog, extended)
    if is_json:
        return csdl_json(root)
    document: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _edmx(catalog: Catalog, extended: bool) -> Element:
    root = Element("edmx:Edmx", {"xmlns:edmx": EDMX, "Version": "4.0"})
    for alias, namespace in ALIASES.items():
        reference = SubElement(root, "edmx:Reference", Uri=f"{VOCABULARIES}/{namespace}.xml")
        SubElement(reference, "edmx:Include", Namespace=namespace, Alias=alias)
    schema = SubElement(SubElement(root, "edmx:DataServices"), "Schema", {"xmlns": EDM, "Namespace": NAMESPACE})
    for entity in catalog.entities.values():
        _entity_type(schema, catalog, entity)
    container = SubElement(schema, "EntityContainer", Name=CONTAINER)
    for entity in catalog.entities.values():
        _entity_set(container, entity, extended)
    _annotation(container, "Capabilities.ConformanceLevel", EnumMember=CONFORMANCE)
    for term, value in SERVICE_SUPPORT.items():
        _annotation(container, f"Capabilities.{term}", Bool=_boolean(value or (extended and term == "BatchSupported")))
    _strings(_annotation(container, "Capabilities.FilterFunctions"), sorted({"all", "any", "cast", *FUNCTIONS} - ARITHMETIC))
    return root


def _entity_type(schema: Element, catalog: Catalog, entity: Entity) -> None:
    element = SubElement(schema, "EntityType", Name=entity.singular)
    SubElement(SubElement(element, "Key"), "PropertyRef", Name="id")
    for each in entity.fields.values():
        _property(element, each)
    for navigation in entity.navigations.values():
        _navigation(element, catalog, navigation)
    _description(element, entity.description)
    keys = [each for each in entity.alternate_keys if each.name != "id"]
    if keys:
        collection = SubElement(_annotation(element, "Core.AlternateKeys"), "Collection")
    for each in keys:
        value = SubElement(SubElement(collection, "Record"), "PropertyValue", Property="Key")
        part = SubElement(SubElement(value, "Collection"), "Record")
        SubElement(part, "PropertyValue", Property="Name", PropertyPath=each.name)
        SubElement(part, "PropertyValue", Property="Alias", String=each.name)


def _property(parent: Element, each: Field) -> None:
    facets = {"Nullable": _boolean(not each.required)}
    if each.max_length is not None:
        facets["MaxLength"] = str(each.max_length)
    if named(each.type).kind == "decimal":
        facets |= _digits(each)
    facets |= named(each.type).facets or {}
    element = SubElement(parent, "Property", {"Name": each.name, "Type": TYPE_NAMES[each.type], **facets})
    _description(element, each.description)
    if each.allowed is not None:
        collection = SubElement(_annotation(element, "Validation.AllowedValues"), "Collection")
        for value in each.allowed:
            SubElement(SubElement(collection, "Record"), "PropertyValue", Property="Value", String=value)
    if each.name in ("id", "updatedAt") or each.generated:
        _annotation(element, "Core.Computed", Bool="true")


def _digits(each: Field) -> dict[str, str]:
    """Precision and scale of a decimal.  PostgreSQL's scale may be negative or exceed the precision, CSDL's may not."""
    if each.precision is None or each.scale is None:
        return {"Scale": "variable"}
    return {"Precision": str(max(each.precision, each.scale) - min(each.scale, 0)), "Scale": str(max(each.scale, 0))}


def _navigation(parent: Element, catalog: Catalog, navigation: Navigation) -> None:
    target = f"{NAMESPACE}.{catalog[navigation.target].singular}"
    if navigation.many:
        SubElement(parent, "NavigationProperty", Name=navigation.name, Type=f"Collection({target})", Partner=navigation.partner)
        return
    element = SubElement(
        parent,
        "NavigationProperty",
        Name=navigation.name,
        Type=target,
        Nullable=_boolean(not navigation.required),
        Partner=navigation.partner,
    )
    SubElement(element, "ReferentialConstraint", Property=navigation.field, ReferencedProperty="id")


def _entity_set(container: Element, entity: Entity, extended: bool) -> None:
    element = SubElement(container, "EntitySet", Name=entity.name, EntityType=f"{NAMESPACE}.{entity.singular}")
    for navigation in entity.navigations.values():
        SubElement(element, "NavigationPropertyBinding", Path=navigation.name, Target=navigation.target)
    _description(element, entity.description)
    for term, properties in SET_CAPABILITIES.items():
        record = SubElement(_annotation(element, f"Capabilities.{term}"), "Record")
        further = EXTENDED_CAPABILITIES.get(term, {}) if extended else {}
        for name, value in (properties | further).items():
            constant = {"Bool": _boolean(value)} if isinstance(value, bool) else {"Int": str(value)}
            SubElement(record, "PropertyValue", {"Property": name, **constant})
    for term, value in SET_SUPPORT.items():
        _annotation(element, f"Capabilities.{term}", Bool=_boolean(value))
    if extended:
        record = SubElement(_annotation(element, "Capabilities.ChangeTracking"), "Record")
        SubElement(record, "PropertyValue", Property="Supported", Bool="true")
        filters = SubElement(SubElement(record, "PropertyValue", Property="FilterableProperties"), "Collection")
        for name in entity.fields:
            SubElement(filters, "PropertyPath").text = name
        SubElement(SubElement(record, "PropertyValue", Property="ExpandableProperties"), "Collection")
    record = SubElement(_annotation(element, "Aggregation.ApplySupported"), "Record")
    _strings(
        SubElement(record, "PropertyValue", Property="Transformations"),
        ("filter", *TRANSFORMATIONS) if extended else TRANSFORMATIONS,
    )
    SubElement(record, "PropertyValue", Property="Rollup", EnumMember="Aggregation.RollupType/None")


def _strings(parent: Element, values: Iterable[str]) -> None:
    collection = SubElement(parent, "Collection")
    for value in values:
        SubElement(collection, "String").text = value


def _description(parent: Element, text: str | None) -> None:
    if text:
        _annotation(parent, "Core.Description", String=NOT_XML.sub(" ", text))


def _annotation(parent: Element, term: str, **value: str) -> Element:
    return SubElement(parent, "Annotation", {"Term": term, **value})


def _boolean(value: bool) -> str:
    return "true" if value else "false"
