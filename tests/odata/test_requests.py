"""OData's protocol: paths, versions, formats."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from multidict import CIMultiDict

from app.database.catalog import Catalog
from app.database.connections import read_catalog
from app.errors import ServiceError
from app.odata.request import JsonFormat, Kind, ODataRequest, read_request


@pytest.fixture(scope="module")
def catalog(module_database_url: str) -> Iterator[Catalog]:
    with psycopg.connect(module_database_url) as connection:
        yield read_catalog(connection)


def read(catalog: Catalog, path: str, method: str = "GET", **headers: str) -> ODataRequest:
    named = CIMultiDict({name.replace("_", "-"): value for name, value in headers.items()})
    return read_request(catalog, method, "/api/odata/demo" + path, named)


def refused(catalog: Catalog, path: str, method: str = "GET", **headers: str) -> ServiceError:
    with pytest.raises(ServiceError) as error:
        read(catalog, path, method, **headers)
    return error.value


RESOURCES = [
    ("", Kind.SERVICE, None, None),
    ("/", Kind.SERVICE, None, None),
    ("/$metadata", Kind.METADATA, None, None),
    ("/products", Kind.COLLECTION, "products", None),
    ("/products?$top=1", Kind.COLLECTION, "products", None),
    ("/products/$count", Kind.COUNT, "products", None),
    ("/products(1)", Kind.ROW, "products", "1"),
    ("/products()", Kind.ROW, "products", ""),
    ("/products(code='a%2Fb')", Kind.ROW, "products", "code='a/b'"),
    ("/products(code=')(')", Kind.ROW, "products", "code=')('"),
    ("/products%281%29", Kind.ROW, "products", "1"),
    ("/products(1)/category", Kind.ROW, "products", "1"),
    ("/products(1)/variants", Kind.COLLECTION, "products", "1"),
    ("/products(1)/variants/$count", Kind.COUNT, "products", "1"),
    ("/products(1)/category/$ref", Kind.REFERENCE, "products", "1"),
    ("/products(code='A')/variants/$ref", Kind.REFERENCES, "products", "code='A'"),
    ("/products(1)/name", Kind.PROPERTY, "products", "1"),
    ("/products(1)/name/$value", Kind.VALUE, "products", "1"),
    ("/$metadata/", Kind.METADATA, None, None),
    ("/products/?$top=1", Kind.COLLECTION, "products", None),
    ("/products/$count/", Kind.COUNT, "products", None),
    ("/products(1)/", Kind.ROW, "products", "1"),
    ("/products(1)/variants/", Kind.COLLECTION, "products", "1"),
    ("/products(1)/category/$ref/", Kind.REFERENCE, "products", "1"),
    ("/products(1)/name/$value/", Kind.VALUE, "products", "1"),
]


@pytest.mark.parametrize(("path", "kind", "entity", "key"), RESOURCES)
def test_paths_name_resources(catalog: Catalog, path: str, kind: Kind, entity: str | None, key: str | None) -> None:
    asked = read(catalog, path)
    assert (asked.company, asked.resource.kind, asked.resource.key) == ("demo", kind, key)
    assert (asked.resource.entity.name if asked.resource.entity else None) == entity


REFUSED = [
    ("GET", "/nothing", "not_found"),
    ("GET", "/Products", "not_found"),
    ("GET", "/products//", "not_found"),
    ("GET", "//", "not_found"),
    ("GET", "//products", "not_found"),
    ("GET", "/products/1", "not_found"),
    ("GET", "/products(1", "not_found"),
    ("GET", "/products(1)x", "not_found"),
    ("GET", "/products(1)/nothing", "not_found"),
    ("GET", "/$metadata/x", "not_found"),
    ("GET", "/total(x=1)", "not_found"),
    ("GET", "/products(1)/name/length", "not_found"),
    ("GET", "/products(1)/$value", "not_found"),
    ("GET", "/products(1)/category/$count", "not_found"),
    ("GET", "/products(1)/category/$value", "not_found"),
    ("GET", "/products(1)/category/nothing", "not_found"),
    ("GET", "/products(1)/variants/code", "not_found"),
    ("GET", "/products(1)/variants/$ref/$count", "not_found"),
    ("GET", "/products(1)/category/name", "not_supported"),
    ("GET", "/products(1)/category/parent", "not_supported"),
    ("GET", "/products(1)/variants(1)", "not_supported"),
    ("GET", "/products(1)/$ref", "not_supported"),
    ("GET", "/products/$ref", "not_supported"),
    ("GET", "/$all", "not_supported"),
    ("GET", "/$crossjoin(products,units)", "not_supported"),
    ("GET", "/$batch", "not_supported"),
    ("POST", "/$batch/", "not_supported"),
    ("POST", "/$batch", "not_supported"),
    ("BREW", "/%24batch", "not_supported"),
    ("POST", "/products", "method_not_allowed"),
    ("DELETE", "/products(1)", "method_not_allowed"),
    ("OPTIONS", "", "method_not_allowed"),
    ("GET", "/products?$filter=%zz", "malformed_request"),
    ("GET", "/%zz", "malformed_request"),
    ("GET", "?$top=1", "malformed_query"),
    ("GET", "/$metadata?$filter=x", "malformed_query"),
    ("GET", "/$metadata?$Format=x", "malformed_query"),
    ("GET", "?$format=a&$format=b", "malformed_query"),
]


@pytest.mark.parametrize(("method", "path", "code"), REFUSED)
def test_wrong_paths_and_methods_are_errors(catalog: Catalog, method: str, path: str, code: str) -> None:
    assert refused(catalog, path, method).code == code


@pytest.mark.parametrize(
    ("query", "target"), [("$top=1&$filter=%zz", "$filter"), ("%24select=%ff", "$select"), ("$top=%00", "$top"), ("%zz=1", None)]
)
def test_an_undecodable_value_is_an_error_of_its_option(catalog: Catalog, query: str, target: str | None) -> None:
    error = refused(catalog, f"/products?{query}")
    assert (error.code, error.target) == ("malformed_request", target)


def test_a_refused_method_names_the_allowed_ones(catalog: Catalog) -> None:
    assert refused(catalog, "/products", "PATCH").headers == {"Allow": "GET, HEAD"}


def test_options_without_a_dollar_and_format_are_ignored(catalog: Catalog) -> None:
    assert read(catalog, "/$metadata?x=1&x=2&$format=xml").resource.kind is Kind.METADATA


@pytest.mark.parametrize(("version", "fine"), [("4.0", True), ("4.01", True), ("5", True), ("3.0", False), ("x", False)])
def test_a_client_must_accept_version_4(catalog: Catalog, version: str, fine: bool) -> None:
    if fine:
        assert read(catalog, "", OData_MaxVersion=version)
    else:
        error = refused(catalog, "", OData_MaxVersion=version)
        assert (error.code, error.target) == ("malformed_request", "OData-MaxVersion")


JSON = "application/json"
FORMATS = [
    ("*/*", JsonFormat()),
    ("application/*;q=0.1", JsonFormat()),
    (JSON, JsonFormat()),
    (f"{JSON};odata.metadata=none", JsonFormat("none")),
    (f"{JSON}; odata.metadata = full ; odata.streaming=true", JsonFormat("full")),
    (f"{JSON};metadata=full", JsonFormat("full")),
    (f"{JSON};IEEE754Compatible=true", JsonFormat(ieee754=True)),
    (f"{JSON};odata.metadata=none;IEEE754Compatible=true", JsonFormat("none", True)),
    (f"{JSON};odata.metadata=none;q=0.5, {JSON};odata.metadata=full", JsonFormat("full")),
    (f"{JSON};odata.metadata=bogus, */*", JsonFormat()),
    (f'text/html;x="a,b", {JSON};odata.metadata="none"', JsonFormat("none")),
    ("Application/JSON;ODATA.METADATA=NONE", JsonFormat("none")),
]


@pytest.mark.parametrize(("accept", "expected"), FORMATS)
def test_accepted_formats(catalog: Catalog, accept: str, expected: JsonFormat) -> None:
    assert read(catalog, "/products", Accept=accept).format == expected


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        ("/products", "application/xml"),
        ("/products", "text/html,application/atom+xml"),
        ("/products", f"{JSON};q=0"),
        ("/products", f"{JSON};q=0, */*"),
        ("/products", "*/*;q=0"),
        ("/products", f"{JSON};odata.metadata=bogus"),
        ("/products(1)", "nonsense"),
        ("", "application/atomsvc+xml"),
        ("/$metadata", "text/html"),
        ("/$metadata", f"{JSON};q=0"),
        ("/$metadata", "*/*;q=0"),
    ],
)
def test_unavailable_formats_are_errors(catalog: Catalog, path: str, accept: str) -> None:
    assert refused(catalog, path, Accept=accept).code == "not_acceptable"


XML = "application/xml"


@pytest.mark.parametrize(
    ("accept", "is_xml"),
    [
        (None, True),
        ("*/*", True),
        (XML, True),
        (f"{JSON}, {XML}", True),
        (f"{JSON}, */*", True),
        (f"{JSON};q=0.5, {XML};q=0.4", False),
        (f"{JSON}, {XML};q=0.9", False),
        (f"{JSON};q=0.8, */*;q=0.1", False),
        (f"{JSON};odata.metadata=minimal", False),
        (JSON, False),
        ("application/*;q=0.3, application/json;q=0.2", True),
        (f"{JSON};q=0, application/*", True),
        (f"{XML};q=0, */*", False),
    ],
)
def test_metadata_is_json_only_where_that_is_preferred(catalog: Catalog, accept: str | None, is_xml: bool) -> None:
    assert read(catalog, "/$metadata", **({"Accept": accept} if accept else {})).format.is_xml is is_xml


def test_a_count_is_always_text(catalog: Catalog) -> None:
    assert read(catalog, "/products/$count", Accept="application/xml").resource.kind is Kind.COUNT
    assert read(catalog, "/products(1)/name/$value", Accept="application/xml").resource.kind is Kind.VALUE


def test_the_content_type_names_the_format() -> None:
    assert JsonFormat().content_type == "application/json;odata.metadata=minimal"
    assert JsonFormat("none", True).content_type == "application/json;odata.metadata=none;IEEE754Compatible=true"
