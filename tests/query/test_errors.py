"""Errors of OData's options, with their positions."""

from __future__ import annotations

import pytest

from app.database.catalog import Catalog
from app.errors import QueryError
from app.query.check.options import COUNT, parse_query
from app.query.parse.parser import Language

WRONG = [
    # syntax
    ("$filter", "", 1, "got the end"),
    ("$filter", "name eq", 8, "got the end"),
    ("$filter", "name eq 'x", 9, "not closed"),
    ("$filter", "(price eq 1", 12, "expected ')'"),
    ("$filter", "name EQ 'x'", 6, "operator (eq, and"),
    ("$filter", "price eq 12x", 10, "got '12x'"),
    ("$filter", "name eq 'ü' ü", 13, "got 'ü'"),
    ("$filter", "id in ()", 8, "got ')'"),
    ("$filter", "price eq 5.5L", 10, "got"),
    ("$orderby", "name foo", 6, "asc, desc"),
    ("$orderby", "name desc,", 11, "got the end"),
    ("$select", "code,", 6, "a name"),
    ("$select", "", 1, "a name"),
    ("$top", "-1", 1, "whole number"),
    ("$top", "٣", 1, "whole number"),
    ("$skip", "1.0", 1, "whole number"),
    ("$count", "True", 1, "true or false"),
    ("$search", "a OR", 5, "a word"),
    ("$search", "AND", 1, "got 'AND'"),
    # names
    ("$filter", "foo eq 1", 1, "no field foo"),
    ("$filter", "category/foo eq 1", 10, "no field foo"),
    ("$filter", "name/x eq 1", 1, "not a navigation property"),
    ("$filter", "variants/code eq 'x'", 1, "collection"),
    ("$filter", "category eq 'x'", 1, "navigation property"),
    ("$filter", "code eq 'A' and foo(name) eq 1", 17, "no such function: foo"),
    ("$select", "code,Name", 6, "no field Name"),
    ("$select", "category/code", 10, "category alone"),
    ("$orderby", "code,foo desc", 6, "no field foo"),
    ("$expand", "", 1, "a name"),
    ("$expand", "unit,", 6, "a name"),
    ("$expand", "unit,foo", 6, "foo is not a navigation property"),
    ("$expand", "unit,name", 6, "name is a field"),
    ("$expand", "category/parent", 10, "expected category alone"),
    ("$expand", "category/$value", 10, "without '$value'"),
    ("$expand", "category()", 9, "got '()'"),
    ("$expand", "category($top=1", 9, "got '($top=1'"),
    # lambdas
    ("$filter", "variants/all()", 10, "all needs a variable"),
    ("$filter", "variants/any(v)", 15, "expected ':'"),
    ("$filter", "variants/any(v:)", 16, "got ')'"),
    ("$filter", "variants/Any(v:v/id eq 1)", 13, "got '(v:v/id'"),
    ("$filter", "any(v:v/id eq 1)", 6, "got ':v/id'"),
    ("$filter", "variants/any(v:v/price)", 16, "expected a condition"),
    ("$filter", "variants/any(v:v eq null)", 16, "v is a row"),
    ("$filter", "variants/any(v:v/foo eq 1)", 18, "productVariants has no field foo"),
    ("$filter", "variants/any(v:v/product/variants/any(v:v/id eq 1))", 39, "variable v is already used"),
    ("$filter", "variants/any(v:true) and v/id eq 1", 26, "no field v"),
    ("$filter", "category/any(c:c/id eq 1)", 1, "any needs a collection: category"),
    ("$filter", "category/$count eq 1", 1, "$count needs a collection"),
    ("$filter", "name/any()", 1, "nothing can follow it"),
    ("$filter", "category/products/variants/any()", 10, "expected any, all or $count"),
    ("$filter", "variants/$value eq 1", 10, "expected $count"),
    ("$filter", "variants eq null", 1, "navigation property"),
    # types
    ("$filter", "name eq 5", 6, "Edm.String cannot be compared with Edm.Int64"),
    ("$filter", "launched eq '2026-11-20'", 10, "cannot be compared"),
    ("$filter", "length(name)", 1, "expected a condition"),
    ("$filter", "not price gt 5", 5, "expected a condition"),
    ("$filter", "hour(launched) eq 1", 1, "hour takes"),
    ("$filter", "length(5) eq 1", 1, "length takes (Edm.String), got (Edm.Int64)"),
    (
        "$filter",
        "substring(name,0.5) eq ''",
        1,
        "substring takes (Edm.String, whole number) or (Edm.String, whole number, whole number)",
    ),
    ("$filter", "id div 0 eq 1", 8, "division by zero"),
    ("$filter", "id mod -0.0 eq 1", 8, "division by zero"),
    ("$filter", "launched eq 2026-02-30", 13, "expected a date"),
    ("$filter", "updatedAt gt 2026-11-20T08:15:30", 14, "expected a timestamp"),
    ("$filter", "updatedAt gt 2026-11-20T25:00:00Z", 14, "expected a timestamp"),
    ("$filter", "price eq 1e999", 10, "digits"),
    *(
        ("$filter", f"null ne duration'{text}'", 9, "at most 178,956,970 years and 2,147,483,647 days")
        for text in ("P999999999W", "P306783378W2D", "-P306783378W3D", "P178956970Y8M", "P-999999999Y")
    ),
    *(
        ("$filter", f"null ne duration'{text}'", 9, "at most 9,223,372,036,854.775807 seconds beside its days")
        for text in ("PT9999999999H", "-PT2562047788H55S", "PT2562047788H54.775808S", "PT2562047788H60M-3600S")
    ),
    ("$filter", "null ne duration'P10000000000D'", 9, "expected a duration such as"),
    ("$filter", "name eq 'a\0b'", 9, "U+0000"),
    ("$filter", "id in (1,code)", 10, "expected a literal"),
    ("$filter", "id in (1,2,'x')", 12, "Edm.Int64 cannot be compared with Edm.String"),
    ("$filter", "cast(name,Foo) eq 1", 11, "expected one of"),
    # bounds
    ("$filter", "category" + "/parent" * 20 + "/name eq 'x'", 143, "at most 20 navigations"),
    ("$orderby", "category" + "/parent" * 20 + "/name", 143, "at most 20 navigations"),
    ("$filter", "unit/name eq 'x' and category" + "/parent" * 19 + "/name eq 'x'", 157, "at most 20 navigations"),
    ("$filter", " and ".join([f"variants/any(v:v/product/category{'/parent' * 18}/name eq 'x')"] * 16), 2673, "300 in all"),
    ("$filter", "(" * 101 + "active" + ")" * 101, 101, "nested too deeply"),
    ("$filter", f"id in ({','.join(['1'] * 1001)})", 2008, "at most 1,000"),
    ("$filter", " add ".join(["price"] * 102) + " gt 1", 1007, "at most 100 operations"),
]

UNSUPPORTED = [
    ("$filter", "$it/variants/any(v:v/price gt 1)", "$it"),
    ("$filter", "variants/any(v:$it/price gt 1)", "$it"),
    ("$filter", "$it/variants/$count gt 1", "$it"),
    ("$filter", "geo.distance(name,name) lt 1", "geo.distance"),
    ("$filter", "name has Color'Red'", "has"),
    ("$filter", "$it/name eq 'x'", "$it"),
    ("$filter", "name eq @p1", "alias @p1"),
    ("$filter", "name in @p1", "alias @p1"),
    ("$filter", "isof(name,Edm.String)", "isof"),
    ("$filter", "hassubset(variants,variants)", "hassubset"),
    ("$filter", "name eq geography'x'", "type geography"),
    ("$filter", "price divby 2 eq 1", "the operator divby"),
    ("$filter", "variants/$count($filter=price gt 1) gt 2", "option inside $count"),
    ("$filter", "$root/products(1)/name eq 'x'", "$root"),
    ("$filter", "weight lt INF", "the number INF"),
    ("$filter", "weight gt -INF", "the number INF"),
    ("$filter", "weight in (1,NaN)", "the number NaN"),
    ("$expand", "category($select=code)", "option inside $expand"),
    ("$expand", "unit,category($expand=parent($top=1);$select=code)", "option inside $expand"),
    ("$expand", "*($levels=2)", "option inside $expand"),
    ("$expand", "variants/$ref", "$ref in $expand"),
    ("$expand", "*/$ref", "$ref in $expand"),
    ("$expand", "variants/$count", "$count in $expand"),
    ("$apply", "groupby((name),aggregate(price with sum from category with avg as x))", "from"),
    ("$apply", "aggregate(price with sap.median as x)", "the method sap.median"),
    ("$compute", "price add 1 as x", "$compute"),
    ("$skiptoken", "1", "$skiptoken"),
]


@pytest.mark.parametrize(("option", "text", "position", "message"), WRONG, ids=[f"{w[0]}={w[1][:40]}" for w in WRONG])
def test_a_wrong_option_is_an_error_at(option: str, text: str, position: int, message: str, catalog: Catalog) -> None:
    with pytest.raises(QueryError) as raised:
        parse_query(catalog, catalog["products"], [(option, text)])
    error = raised.value
    assert (error.status, error.target, error.position) == (400, option, position)
    assert message in error.message


@pytest.mark.parametrize(("option", "text", "name"), UNSUPPORTED, ids=[f"{w[0]}={w[1][:40]}" for w in UNSUPPORTED])
def test_an_unsupported_feature_is_named(option: str, text: str, name: str, catalog: Catalog) -> None:
    with pytest.raises(QueryError) as raised:
        parse_query(catalog, catalog["products"], [(option, text)])
    assert (raised.value.status, raised.value.target) == (501, option)
    assert name in raised.value.message


@pytest.mark.parametrize(
    ("options", "target", "message"),
    [
        ([("$top", "1"), ("$top", "1")], "$top", "twice"),
        ([("$Filter", "active")], "$Filter", "no such option: $Filter, expected $filter"),
        ([("$foo", "1")], "$foo", "no such option: $foo"),
    ],
)
def test_unknown_and_repeated_options_are_errors(
    options: list[tuple[str, str]], target: str, message: str, catalog: Catalog
) -> None:
    with pytest.raises(QueryError, match=message.replace("$", r"\$")) as raised:
        parse_query(catalog, catalog["products"], options)
    assert (raised.value.status, raised.value.target) == (400, target)


def test_options_without_a_dollar_are_ignored(catalog: Catalog) -> None:
    query = parse_query(catalog, catalog["products"], [("filter", "nonsense"), ("x", "1"), ("$format", "xml"), ("$search", "a b")])
    assert (query.filter, query.search) == (None, True)


@pytest.mark.parametrize("option", ["$top", "$orderby", "$select", "$count"])
def test_a_path_refuses_options_of_other_paths(option: str, catalog: Catalog) -> None:
    with pytest.raises(QueryError, match="cannot be given here"):
        parse_query(catalog, catalog["products"], [(option, "1")], takes=COUNT)


@pytest.mark.parametrize(
    ("key", "position"),
    [
        ("", 1),
        ("x", 2),
        ("name='x'", 1),
        ("foo=1", 1),
        ("id=1,code='A'", 6),
        ("'A'", 1),
        ("null", 1),
        ("id='1'", 4),
        ("1,2", 2),
        ("1.5", 1),
        ("id=1.5", 4),
    ],
)
def test_a_malformed_key_is_an_error_at(key: str, position: int, catalog: Catalog) -> None:
    with pytest.raises(QueryError) as raised:
        parse_query(catalog, catalog["products"], [], key=key)
    assert (raised.value.status, raised.value.target, raised.value.position) == (400, "key", position)


@pytest.mark.parametrize(("key", "position"), [("@p", 1), ("code=@p", 6)])
def test_a_parameter_alias_as_a_key_is_not_supported(key: str, position: int, catalog: Catalog) -> None:
    with pytest.raises(QueryError, match="alias @p is not supported") as raised:
        parse_query(catalog, catalog["products"], [], key=key)
    assert (raised.value.status, raised.value.target, raised.value.position) == (501, "key", position)


@pytest.mark.parametrize(
    "filter",
    [
        "(" * 100 + "active" + ")" * 100,
        "not (active or active and " * 99 + "active eq true" + ")" * 99,
        "tolower(" * 99 + "name" + ")" * 99 + " eq 'x'",
        "category" + "/parent" * 19 + "/name eq 'x'",
        " or ".join(f"id eq {number}" for number in range(2500)),
        f"id in ({','.join(map(str, range(1000)))})",
    ],
    ids=["parentheses", "logic", "functions", "path", "long", "list"],
)
def test_a_filter_within_the_bounds_is_accepted(filter: str, catalog: Catalog) -> None:
    assert parse_query(catalog, catalog["products"], [("$filter", filter)]).filter is not None


def test_errors_name_every_terminal_in_words() -> None:
    for language in Language.made:
        terminals = {terminal.name for terminal in language.parser.terminals} - set(language.parser.ignore_tokens)
        assert not terminals - set(language._words), language._grammar
