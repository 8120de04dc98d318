"""What is wrong in OData's options, and at which character."""

from __future__ import annotations

import pytest

from app.catalog import Catalog
from app.errors import QueryError
from app.language.query import COUNT, parse_query

WRONG = [
    # syntax
    ("$filter", "", 1, "unexpected the end"),
    ("$filter", "name eq", 8, "unexpected the end"),
    ("$filter", "name eq 'x", 9, "not closed"),
    ("$filter", "(price eq 1", 12, "expected )"),
    ("$filter", "name EQ 'x'", 6, "operator such as eq"),
    ("$filter", "price eq 12x", 10, "unexpected '12x'"),
    ("$filter", "name eq 'ü' ü", 13, "unexpected 'ü'"),
    ("$filter", "id in ()", 8, "unexpected ')'"),
    ("$filter", "price eq 5.5L", 10, "unexpected"),
    ("$orderby", "name foo", 6, "asc, desc"),
    ("$orderby", "name desc,", 11, "unexpected the end"),
    ("$select", "code,", 6, "a name"),
    ("$select", "", 1, "a name"),
    ("$top", "-1", 1, "whole number"),
    ("$top", "٣", 1, "whole number"),
    ("$skip", "1.0", 1, "whole number"),
    ("$count", "True", 1, "true or false"),
    ("$search", "a OR", 5, "a word"),
    ("$search", "AND", 1, "unexpected 'AND'"),
    # names
    ("$filter", "foo eq 1", 1, "no field foo"),
    ("$filter", "category/foo eq 1", 10, "no field foo"),
    ("$filter", "name/x eq 1", 1, "no navigation property"),
    ("$filter", "variants/code eq 'x'", 1, "collection"),
    ("$filter", "category eq 'x'", 1, "navigation property"),
    ("$filter", "code eq 'A' and foo(name) eq 1", 17, "no function foo"),
    ("$select", "code,Name", 6, "no field Name"),
    ("$select", "category", 1, "navigation property"),
    ("$orderby", "code,foo desc", 6, "no field foo"),
    # types
    ("$filter", "name eq 5", 6, "Edm.String cannot be compared with Edm.Int64"),
    ("$filter", "launched eq '2026-11-20'", 10, "cannot be compared"),
    ("$filter", "length(name)", 1, "expected a condition"),
    ("$filter", "not price gt 5", 5, "expected a condition"),
    ("$filter", "hour(launched) eq 1", 1, "hour takes"),
    ("$filter", "length(5) eq 1", 1, "length takes"),
    ("$filter", "id div 0 eq 1", 8, "division by zero"),
    ("$filter", "id mod -0.0 eq 1", 8, "division by zero"),
    ("$filter", "launched eq 2026-02-30", 13, "expected a date"),
    ("$filter", "updatedAt gt 2026-11-20T08:15:30", 14, "expected a timestamp"),
    ("$filter", "updatedAt gt 2026-11-20T25:00:00Z", 14, "expected a timestamp"),
    ("$filter", "price eq 1e999", 10, "digits"),
    ("$filter", "name eq 'a\0b'", 9, "U+0000"),
    ("$filter", "id in (1,code)", 10, "expected a literal"),
    ("$filter", "cast(name,Foo) eq 1", 11, "expected one of"),
    # bounds
    ("$filter", "(" * 101 + "active" + ")" * 101, 101, "nested too deeply"),
    ("$filter", f"id in ({','.join(['1'] * 1001)})", 2008, "at most 1,000"),
    ("$filter", " add ".join(["price"] * 102) + " gt 1", 1007, "at most 100 operations"),
]

UNSUPPORTED = [
    ("$filter", "variants/any(v:v/price gt 1)", "lambda any"),
    ("$filter", "variants/all(v:v/price gt 1)", "lambda all"),
    ("$filter", "variants/$count gt 1", "$count of a collection"),
    ("$filter", "geo.distance(name,name) lt 1", "geo.distance"),
    ("$filter", "name has Color'Red'", "has"),
    ("$filter", "$it/name eq 'x'", "$it"),
    ("$filter", "name eq @p1", "alias @p1"),
    ("$filter", "isof(name,Edm.String)", "isof"),
    ("$filter", "name eq duration'P1D'", "type duration"),
    ("$expand", "category", "$expand"),
    ("$apply", "aggregate($count as n)", "$apply"),
    ("$compute", "price add 1 as x", "$compute"),
    ("$skiptoken", "1", "$skiptoken"),
]


@pytest.mark.parametrize(("option", "text", "position", "message"), WRONG, ids=[f"{w[0]}={w[1][:40]}" for w in WRONG])
def test_a_wrong_option_is_refused_at(option: str, text: str, position: int, message: str, catalog: Catalog) -> None:
    with pytest.raises(QueryError) as raised:
        parse_query(catalog, catalog["products"], [(option, text)])
    error = raised.value
    assert (error.status, error.target, error.position) == (400, option, position)
    assert message in error.message


@pytest.mark.parametrize(("option", "text", "name"), UNSUPPORTED, ids=[f"{w[0]}={w[1][:40]}" for w in UNSUPPORTED])
def test_what_is_not_supported_is_named(option: str, text: str, name: str, catalog: Catalog) -> None:
    with pytest.raises(QueryError) as raised:
        parse_query(catalog, catalog["products"], [(option, text)])
    assert (raised.value.status, raised.value.target) == (501, option)
    assert name in raised.value.message


@pytest.mark.parametrize(
    ("options", "target", "message"),
    [
        ([("$top", "1"), ("$top", "1")], "$top", "twice"),
        ([("$Filter", "active")], "$Filter", "it is written $filter"),
        ([("$foo", "1")], "$foo", "no option $foo"),
    ],
)
def test_options_are_known_and_given_once(options: list[tuple[str, str]], target: str, message: str, catalog: Catalog) -> None:
    with pytest.raises(QueryError, match=message.replace("$", r"\$")) as raised:
        parse_query(catalog, catalog["products"], options)
    assert (raised.value.status, raised.value.target) == (400, target)


def test_options_without_a_dollar_are_ignored(catalog: Catalog) -> None:
    query = parse_query(catalog, catalog["products"], [("filter", "nonsense"), ("x", "1"), ("$format", "xml"), ("$search", "a b")])
    assert (query.filter, query.search) == (None, True)


@pytest.mark.parametrize("option", ["$top", "$orderby", "$select", "$count"])
def test_a_path_takes_its_own_options_alone(option: str, catalog: Catalog) -> None:
    with pytest.raises(QueryError, match="cannot be given here"):
        parse_query(catalog, catalog["products"], [(option, "1")], takes=COUNT)


@pytest.mark.parametrize(
    ("key", "position"),
    [("", 1), ("x", 2), ("name='x'", 1), ("foo=1", 1), ("id=1,code='A'", 6), ("'A'", 1), ("null", 1), ("id='1'", 4), ("1,2", 2)],
)
def test_a_malformed_key_is_refused_at(key: str, position: int, catalog: Catalog) -> None:
    with pytest.raises(QueryError) as raised:
        parse_query(catalog, catalog["products"], [], key=key)
    assert (raised.value.status, raised.value.target, raised.value.position) == (400, "key", position)


@pytest.mark.parametrize(
    "filter",
    [
        "(" * 100 + "active" + ")" * 100,
        "not (active or active and " * 99 + "active eq true" + ")" * 99,
        "tolower(" * 99 + "name" + ")" * 99 + " eq 'x'",
        " or ".join(f"id eq {number}" for number in range(4000)),
        f"id in ({','.join(map(str, range(1000)))})",
    ],
    ids=["parentheses", "logic", "functions", "long", "list"],
)
def test_what_is_within_the_bounds_is_served(filter: str, catalog: Catalog) -> None:
    assert parse_query(catalog, catalog["products"], [("$filter", filter)]).filter is not None
