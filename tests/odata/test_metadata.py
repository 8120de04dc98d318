"""$metadata and the service document, made from the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import psycopg
import pytest

from app.database.catalog import Catalog
from app.database.connections import read_catalog
from app.odata.metadata import csdl, service_document
from tests.service.serving import running

EDM = "{http://docs.oasis-open.org/odata/ns/edm}"


@pytest.fixture(scope="module")
def catalog(module_database_url: str) -> Iterator[Catalog]:
    with psycopg.connect(module_database_url) as connection:
        yield read_catalog(connection)


@pytest.fixture(scope="module")
def schema(catalog: Catalog) -> ElementTree.Element:
    return ElementTree.fromstring(csdl(catalog)).find(f".//{EDM}Schema")


def named(parent: ElementTree.Element, tag: str, name: str) -> ElementTree.Element:
    found = parent.find(f"{EDM}{tag}[@Name='{name}']")
    assert found is not None, f"{tag} {name}"
    return found


def test_every_entity_is_a_type_and_a_set(catalog: Catalog, schema: ElementTree.Element) -> None:
    sets = {each.get("Name"): each.get("EntityType") for each in schema.iter(f"{EDM}EntitySet")}
    assert sets == {name: f"bds.{entity.singular}" for name, entity in catalog.entities.items()}
    assert [named(schema, "EntityType", entity.singular) for entity in catalog.entities.values()]


PROPERTIES = [
    ("product", "id", {"Type": "Edm.Int64", "Nullable": "false"}),
    ("product", "code", {"Type": "Edm.String", "Nullable": "false"}),
    ("product", "description", {"Type": "Edm.String", "Nullable": "true"}),
    ("product", "price", {"Type": "Edm.Decimal", "Nullable": "true", "Precision": "19", "Scale": "4"}),
    ("product", "active", {"Type": "Edm.Boolean", "Nullable": "false"}),
    ("product", "categoryId", {"Type": "Edm.Int64", "Nullable": "true"}),
    ("product", "updatedAt", {"Type": "Edm.DateTimeOffset", "Nullable": "false", "Precision": "6"}),
    ("order", "orderDate", {"Type": "Edm.Date", "Nullable": "false"}),
]


@pytest.mark.parametrize(("type_name", "name", "facets"), PROPERTIES)
def test_properties_have_types_and_facets(schema: ElementTree.Element, type_name: str, name: str, facets: dict[str, str]) -> None:
    assert named(named(schema, "EntityType", type_name), "Property", name).attrib == {"Name": name, **facets}


def test_navigations_lead_both_ways(catalog: Catalog, schema: ElementTree.Element) -> None:
    for entity in catalog.entities.values():
        for navigation in entity.navigations.values():
            element = named(named(schema, "EntityType", entity.singular), "NavigationProperty", navigation.name)
            target = catalog[navigation.target]
            assert navigation.partner in target.navigations
            assert element.get("Partner") == navigation.partner
            assert element.get("Type") == (f"Collection(bds.{target.singular})" if navigation.many else f"bds.{target.singular}")
            constraint = element.find(f"{EDM}ReferentialConstraint")
            assert (constraint is None) is navigation.many
            binding = named(schema, "EntityContainer", "Container").find(
                f"{EDM}EntitySet[@Name='{entity.name}']/{EDM}NavigationPropertyBinding[@Path='{navigation.name}']"
            )
            assert binding is not None and binding.get("Target") == navigation.target
    category = named(named(schema, "EntityType", "product"), "NavigationProperty", "category")
    assert category.get("Nullable") == "true"
    assert category.find(f"{EDM}ReferentialConstraint").attrib == {"Property": "categoryId", "ReferencedProperty": "id"}


def test_every_type_has_its_key_first_and_its_alternate_keys(catalog: Catalog, schema: ElementTree.Element) -> None:
    for entity in catalog.entities.values():
        element = named(schema, "EntityType", entity.singular)
        assert element[0].tag == f"{EDM}Key"
        paths = [each.get("PropertyPath") for each in element.iter(f"{EDM}PropertyValue") if each.get("PropertyPath")]
        assert paths == [each.name for each in entity.alternate_keys if each.name != "id"]


def test_capabilities_and_descriptions_are_annotated(schema: ElementTree.Element) -> None:
    products = named(named(schema, "EntityContainer", "Container"), "EntitySet", "products")
    terms = {each.get("Term").removeprefix("Capabilities.") for each in products.iter(f"{EDM}Annotation")}
    assert terms >= {
        "FilterRestrictions", "SortRestrictions", "ExpandRestrictions", "CountRestrictions", "SearchRestrictions",
        "TopSupported", "SkipSupported",
    }  # fmt: skip
    expand = products.find(f"{EDM}Annotation[@Term='Capabilities.ExpandRestrictions']//{EDM}PropertyValue")
    assert (expand.get("Property"), expand.get("Bool")) == ("Expandable", "true")
    levels = products.find(f"{EDM}Annotation[@Term='Capabilities.ExpandRestrictions']//{EDM}PropertyValue[@Property='MaxLevels']")
    assert levels.get("Int") == "1"
    functions = schema.find(f".//{EDM}Annotation[@Term='Capabilities.FilterFunctions']")
    listed = {each.text for each in functions.iter(f"{EDM}String")}
    assert listed >= {"contains", "tolower", "startOfDay", "cast", "any", "all"} and not listed & {"add", "eq"}
    apply = products.find(f"{EDM}Annotation[@Term='Aggregation.ApplySupported']/{EDM}Record")
    assert [each.text for each in apply.iter(f"{EDM}String")] == ["aggregate", "groupby"]
    assert apply.find(f"{EDM}PropertyValue[@Property='Rollup']").get("EnumMember") == "Aggregation.RollupType/None"
    price = named(named(schema, "EntityType", "product"), "Property", "price")
    assert price.find(f"{EDM}Annotation[@Term='Core.Description']").get("String") == "List price of one unit"


def test_a_comment_that_xml_cannot_hold_does_no_harm(catalog: Catalog) -> None:
    entity = replace(catalog["units"], description='a\x01b <&"> ü \ud800')
    document = ElementTree.fromstring(csdl(Catalog({**catalog.entities, "units": entity}, "x")))
    descriptions = [each.get("String") for each in document.iter(f"{EDM}Annotation") if each.get("Term") == "Core.Description"]
    assert 'a b <&"> ü  ' in descriptions


def test_the_json_is_valid_against_the_schema_of_the_oasis(catalog: Catalog) -> None:
    """tests/odata/csdl.schema.json is the one of oasis-tcs/odata-csdl-schemas."""
    text = (Path(__file__).parent / "csdl.schema.json").read_text()
    for theirs, ours in (
        ("(_|\\\\p{L}|\\\\p{Nl})", "[^\\\\W\\\\d]"),
        (r"(_|\\p{L}|\\p{Nl}|\\p{Nd}|\\p{Mn}|\\p{Mc}|\\p{Pc}|\\p{Cf})", r"\\w"),
    ):
        assert theirs in text
        text = text.replace(theirs, ours)  # Python's expressions have no classes of Unicode
    for extended in (True, False):
        document = json.loads(csdl(catalog, is_json=True, extended=extended))
        jsonschema.validate(document, json.loads(text))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document | {"bds": {"product": {"$Kind": "EntityType", "$Key": "id"}}}, json.loads(text))


def test_the_json_says_what_the_xml_says(catalog: Catalog) -> None:
    document = json.loads(csdl(catalog, is_json=True))
    assert (document["$Version"], document["$EntityContainer"]) == ("4.0", "bds.Container")
    product = document["bds"]["product"]
    assert product["$Key"] == ["id"] and product["id"]["$Type"] == "Edm.Int64" and product["id"]["@Core.Computed"] is True
    price = {
        "$Type": "Edm.Decimal",
        "$Nullable": True,
        "$Precision": 19,
        "$Scale": 4,
        "@Core.Description": "List price of one unit",
    }
    assert product["price"] == price
    assert {name: value for name, value in product["name"].items() if name[0] == "$"} == {}, "a required text is the default"
    assert product["category"] == {
        "$Kind": "NavigationProperty", "$Type": "bds.category", "$Nullable": True, "$Partner": "products",
        "$ReferentialConstraint": {"categoryId": "id"},
    }  # fmt: skip
    assert product["variants"] == {
        "$Kind": "NavigationProperty", "$Collection": True, "$Type": "bds.productVariant", "$Partner": "product",
    }  # fmt: skip
    keys = [{"Key": [{"Name": name, "Alias": name}]} for name in ("code", "barcode")]
    assert product["@Core.AlternateKeys"] == keys
    container = document["bds"]["Container"]
    assert container["@Capabilities.ConformanceLevel"] == "Minimal" and "contains" in container["@Capabilities.FilterFunctions"]
    products = container["products"]
    assert (products["$Collection"], products["$Type"]) == (True, "bds.product")
    assert products["$NavigationPropertyBinding"]["category"] == "categories"
    assert products["@Capabilities.ExpandRestrictions"] == {"Expandable": True, "MaxLevels": 1}


def test_metadata_is_served_as_json_with_the_version_of_the_protocol(module_database_url: str) -> None:
    with running(module_database_url) as service:
        reply = service.odata("/$metadata", Accept="application/json")
        assert (reply.status, reply.headers["OData-Version"]) == (200, "4.0")
        assert reply.headers["Content-Type"].startswith("application/json") and "bds" in reply.json
        assert service.odata("/$metadata", Accept="application/json", If_None_Match=reply.headers["ETag"]).status == 304
        xml = service.odata("/$metadata")
        assert xml.headers["Content-Type"] == "application/xml" and xml.headers["ETag"] != reply.headers["ETag"]
        assert "Accept" in xml.headers["Vary"]


def test_the_service_document_lists_the_sets(catalog: Catalog) -> None:
    document = json.loads(service_document(catalog, "http://x/$metadata"))
    assert document["@odata.context"] == "http://x/$metadata"
    assert document["value"][0] == {"name": "units", "kind": "EntitySet", "url": "units"}
    assert [each["name"] for each in document["value"]] == list(catalog.entities)
    assert "@odata.context" not in json.loads(service_document(catalog, None))
