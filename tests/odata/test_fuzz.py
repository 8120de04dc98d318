"""Hostile input: every answer follows the protocol, comes in time, and has no data of another company.

Options are drawn from the grammar and then damaged; each run draws the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chance import examples
from tests.service.serving import Service, running

pytestmark = pytest.mark.slow

BOUNDED = examples(100)
EXPECTED = {200, 204, 400, 404, 414, 501}
OPTIONS = ("filter", "orderby", "select", "expand", "apply", "search")

# Names of the model, edge values, and pieces of the languages, so that random text reaches beyond the lexer.
WORDS = (
    *("name", "price", "id", "active", "categoryId", "category", "variants", "category/name", "updatedAt", "nothing", "$it", "@p"),
    *("eq", "ne", "gt", "le", "and", "or", "not", "in", "add", "sub", "mul", "div", "mod", "has", "asc", "desc", "with", "as"),
    *("contains", "startswith", "substring", "length", "year", "startOfMonth", "round", "cast", "any", "all", "$count", "now"),
    *("groupby", "aggregate", "sum", "countdistinct", "filter", "geo.distance", "Edm.Int64", "v", "v:", "v/price"),
    *("null", "true", "0", "-1", "1e308", "-1e-308", "9223372036854775808", "5L", "1.5", "INF", "'x'", "''", "'it''s'", "'%_\\'"),
    *("2026-11-20", "9999-12-31T23:59:59Z", "0001-01-01", "12:00:00", "00000000-0000-0000-0000-000000000000", "duration'P1D'"),
    *(
        "(",
        ")",
        "((",
        "))",
        ",",
        "/",
        ":",
        ";",
        "=",
        "*",
        "-",
        "+",
        "'",
        '"',
        "$",
        "@",
        "%",
        "\\",
        "\n",
        "\t",
        "ü",
        "😀",
        "ﷺ",
        "\x7f",
    ),
)
POISON = """
insert into data.products (company_id, code, name, description, barcode, price)
values ('neighbour', 'A', repeat('x', 100000), '1e400', 'x', 9e14), ('neighbour', '9e99999', '', '294277-01-01', '', 0);
"""


@pytest.fixture(scope="module")
def service(module_database_url: str) -> Iterator[Service]:
    with running(module_database_url) as service:
        service.operator.company("neighbour")
        service.operator.write("neighbour", POISON)
        for number in range(3):
            service.operator.write(
                "demo",
                "insert into data.products (company_id, code, name, price) values ('demo', %s, 'Hammer', %s)",
                (f"P{number}", number),
            )
        yield service


def check(service: Service, path: str) -> int:
    """Check that the answer follows the protocol and has no data of the other company; return its status."""
    reply = service.odata(path)  # fails after the client's timeout
    assert reply.status in EXPECTED, (path, reply.body)
    assert b"9e99999" not in reply.body or "9e99999" in path
    assert reply.headers["OData-Version"] == "4.0" and reply.headers["ETag"]
    if reply.status >= 400:
        assert reply.json["error"]["code"] != "internal"
    return reply.status


def joined(*parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map("".join)


def words(text: str) -> st.SearchStrategy[str]:
    return st.sampled_from(text.split())


# Expressions of the grammar, well-typed or not.
LEAVES = st.sampled_from(
    [word for word in WORDS if word.strip("'") and (word[0].isalnum() or word[0] in "'-") and not word.endswith(":")]
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        joined(st.just("("), inner, st.just(")")),
        joined(words("not -"), st.just(" "), inner),
        joined(inner, st.just(" "), words("eq ne gt le and or add sub mul div mod has"), st.just(" "), inner),
        joined(inner, st.just(" in ("), inner, st.just(","), inner, st.just(")")),
        joined(
            words("contains indexof concat substring cast date year round tolower"),
            st.just("("),
            inner,
            st.just(","),
            inner,
            st.just(")"),
        ),
        joined(words("length year hour endOfMonth floor trim date"), st.just("("), inner, st.just(")")),
        joined(words("variants category/products"), st.just("/"), words("any all"), st.just("(v:"), inner, st.just(")")),
    ),
    max_leaves=12,
)
SHAPES = (
    "$filter={}",
    "$orderby={} desc",
    "$apply=aggregate({} with max as x)",
    "$apply=groupby((name))&$filter={}",
    "$filter=category/products/any(p:{})",
)


@BOUNDED
@given(EXPRESSIONS, st.sampled_from(SHAPES))
def test_random_expressions_of_the_grammar_are_answered(service: Service, expression: str, shape: str) -> None:
    check(service, "/products?$top=5&" + shape.replace("{}", quote(expression, safe="")).replace(" ", "%20"))


@BOUNDED
@given(st.sampled_from(OPTIONS), st.lists(st.sampled_from(WORDS), max_size=14), st.sampled_from(("", " ")))
def test_words_in_any_order_are_answered(service: Service, option: str, words: list[str], between: str) -> None:
    check(service, f"/products?$top=5&${option}={quote(between.join(words), safe='')}")


@BOUNDED
@given(
    st.text(max_size=60),
    st.sampled_from(("/{}", "/products({})", "/products(1)/{}", "/products?{}", "/products/$count?$filter={}")),
)
def test_any_text_anywhere_is_answered(service: Service, text: str, where: str) -> None:
    check(service, where.format(quote(text.encode("utf-8", "surrogatepass"), safe="'()=$&")))


@BOUNDED
@given(st.text(alphabet="%0123456789abcdefABCDEFgz$&=+'()/", max_size=40))
def test_broken_escapes_are_answered(service: Service, text: str) -> None:
    check(service, f"/products?$filter=name%20eq%20'{text}'")


BOMBS = [
    *("(" * depth + "true" + ")" * depth for depth in (99, 101, 20_000)),
    *("(" * 30_000, ")" * 30_000, "not " * 16_000 + "true", "-" * 30_000 + "1 eq 1", "'" * 30_001, "''" * 15_000),
    *(" and ".join(["true"] * 7_000), " or ".join(["name eq 'x'"] * 4_000), "1" * 60_000 + " eq id", "1e999999999 eq id", "1." + "0" * 60_000 + " eq id"),
    *("id in (" + "1," * 20_000 + "1)", "name/" * 12_000 + "x", "concat(name," * 2_000 + "name" + ")" * 2_000, "a" * 60_000),
    *("variants/any(v:" * 500 + "true" + ")" * 500, "category/" * 6_000 + "name eq 'x'", "price add " * 5_000 + "1 gt 0", "2026-11-20 " * 5_000),
]  # fmt: skip


@pytest.mark.parametrize("text", BOMBS, ids=range(len(BOMBS)))
def test_expensive_requests_are_refused_or_answered_in_time(service: Service, text: str) -> None:
    path = f"/products?$top=1&$filter={quote(text, safe='')}"
    check(service, path if len(path) < 100_000 else path[:100_000])
    assert service.odata("/products?$top=1").status == 200


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("piece", ["%00", "%0", "%", "%ff", "%c0%80", "%ed%a0%80", "%F4%90%80%80", "%25%00"])
def test_undecodable_text_is_malformed(service: Service, option: str, piece: str) -> None:
    reply = service.odata(f"/products?${option}={piece}")
    assert (reply.status, reply.json["error"]["target"]) == (400, f"${option}")
