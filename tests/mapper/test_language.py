"""The mapper language: a complete mapper, templates, and errors with line, column and what was expected."""

from __future__ import annotations

import pytest

from app.database.catalog import Catalog
from app.errors import ServiceError
from app.mapper.language.parse import LONGEST, read
from app.mapper.language.tree import Mapper, TemplateMapper

WHOLE = """
# a comment, with 'quotes' and { braces
type xml
@atomic = 'batch'  @language = "pt-BR"
@namespace[g] = "http://base.google.com/ns/1.0"
products = '/rss/channel/item' {   # another one
    @removeAll = 'true'
    id[code] = 'g:id'
    name = concat('first', " ", "it""s", ' ''x''')
    variants = './/v' { @removeAll = "false" code = '@c' }
}
units = '//unit' { @operation = 'delete' code = '.' }
"""


def test_a_whole_mapper(catalog: Catalog) -> None:
    mapper = read(WHOLE, catalog)
    assert isinstance(mapper, Mapper)
    assert (mapper.format, mapper.atomic, mapper.language) == ("xml", "batch", "pt-BR")
    assert dict(mapper.namespaces) == {"g": "http://base.google.com/ns/1.0"}
    products, units = mapper.blocks
    assert (products.name, products.entity.name, products.path.text, products.remove_all) == (
        "products",
        "products",
        "/rss/channel/item",
        True,
    )
    assert [(rule.name, rule.kind) for rule in products.rules] == [("id", "code"), ("name", None)]
    assert (products.children[0].entity.name, products.children[0].remove_all) == ("productVariants", False)
    assert (units.operation, units.remove_all) == ("delete", None)


def test_equal_texts_are_equal_mappers(catalog: Catalog) -> None:
    assert read(WHOLE, catalog) == read(WHOLE, catalog)


WRONG = [
    # text, line, column, part of the message
    ("", 1, 1, "expected type"),
    ("products = 'row' { code = 'a' }", 1, 1, "expected type, got 'products'"),
    ("type", 1, 5, "expected a name"),
    ("type yaml products = 'row' { code = 'a' }", 1, 6, "expected xml, json, csv, excel or template, got yaml"),
    ("type csv", 1, 9, "expected a block: products"),
    ("type csv\ncode = 'a'", 2, 1, "code is not inside a block, expected a block: code = 'path' { ... }"),
    ("type csv\nplanets = 'row' { code = 'a' }", 2, 1, "unknown entity planets, expected one of units, categories, products"),
    ("type csv\nproducts = 'row' {\n  prise = 'a'\n}", 3, 3, "products has no field prise, expected one of id, code, name"),
    ("type csv\nproducts = 'row' {\n  code = 'a'\n", 4, 1, "expected"),
    ("type csv\nproducts = 'row' {\n  code 'a'\n}", 3, 8, "expected '=' or '[', got \"'a'\""),
    ("type csv\nproducts = 'row' {\n  code = }", 3, 10, "got '}'"),
    ("type csv\nproducts = 'row' { code = 'a }", 2, 27, "quoted text is not closed, expected ' before the end of the line"),
    ("type csv\nproducts = 'row' { code = \"a\n\" }", 2, 27, "quoted text is not closed, expected \" before the end of the line"),
    ("type csv\nproducts = 'row' { code = 'a' code = 'b' }", 2, 31, "code appears twice in this block"),
    ("type csv\nproducts = 'row' { }", 2, 1, "the block products is empty, expected a field"),
    ("type csv\nproducts = 'row' { items = '.' { price = 'p' } }", 2, 20, "products has no child collection items, expected one of variants"),
    ("type csv\nunits = 'row' { items = '.' { price = 'p' } }", 2, 17, "units has no child collection items"),
    # lookups
    ("type csv\nproducts = 'row' { category[email] = 'a' }", 2, 29, "categories cannot be looked up by email, expected id or code"),
    ("type csv\nproducts = 'row' { name[code] = 'a' }", 2, 25, "name is not a reference, expected name = ... without [code]"),
    ("type csv\nproducts = 'row' { id[name] = 'a' }", 2, 23, "products cannot be looked up by name, expected id, code or barcode"),
    # settings
    ("type csv @atomic = 'yes' products = 'row' { code = 'a' }", 1, 20, "@atomic: expected batch, true or false, got 'yes'"),
    ("type csv @language = 'klingon' products = 'row' { code = 'a' }", 1, 22, "expected a language tag such as de or pt-BR"),
    ("type csv @mode = 'all' products = 'row' { code = 'a' }", 1, 18, "@mode: expected array or merge"),
    ("type csv @colour = 'red' products = 'row' { code = 'a' }", 1, 10, "unknown setting @colour, expected @atomic, @mode, @language, @skip, @delimiter"),
    ("type xml @delimiter = ',' products = '//p' { code = 'a' }", 1, 10, "unknown setting @delimiter, expected @atomic, @mode, @language or @namespace"),
    ("type csv @delimiter = ', ' products = 'row' { code = 'a' }", 1, 23, "@delimiter: expected one character"),
    ("type csv @encoding = 'klingon' products = 'row' { code = 'a' }", 1, 22, "expected an encoding such as utf-8 or windows-1252"),
    ("type csv @encoding = 'base64' products = 'row' { code = 'a' }", 1, 22, "expected an encoding"),
    ("type csv @header = 'no' products = 'row' { code = 'a' }", 1, 20, "@header: expected true or false"),
    ("type csv @header = 'false' products = 'row' { code = 'sku' }", 1, 54, "expected a column number from 1"),
    ("type csv @atomic = 'true' @atomic = 'true' products = 'row' { code = 'a' }", 1, 27, "@atomic is set twice"),
    ("type csv @namespace[g] = 'x' products = 'row' { code = 'a' }", 1, 10, "@namespace is not a setting of csv"),
    ("type csv products = 'row' { @removeAll = 'yes' code = 'a' }", 1, 42, "@removeAll: expected true or false, got 'yes'"),
    ("type csv products = 'row' { @operation = \"purge\" code = 'a' }", 1, 42, "@operation: expected create, update, upsert or delete"),
    ("type csv products = 'row' { @operation = number('a') code = 'a' }", 1, 42, "@operation: expected text, got a number"),
    ("type json products = '$.p' { @where = '$[' code = 'a' }", 1, 42, "invalid JSONPath"),
    ("type csv products = 'row' { @operation = 'update' @where = upper() code = 'a' }", 1, 60, "upper: expected 1 argument, got 0"),
    ("type csv products = 'row' { code = 'a' variants = '.' { @where = 'w' code = 'a' } }", 1, 57, "unknown setting @where in this block, expected @removeAll or @operation"),
    ("type csv products = 'row' { @colour = 'w' code = 'a' }", 1, 29, "unknown setting @colour in this block, expected @removeAll, @operation or @where"),
    ("type csv @skip = 'two' products = 'row' { code = 'a' }", 1, 18, "@skip: expected a number of lines from 0 to 10,000, got 'two'"),
    ("type csv @skip = '99999' products = 'row' { code = 'a' }", 1, 18, "@skip: expected a number of lines"),
    ("type csv @atomic = true products = 'row' { code = 'a' }", 1, 20, "@atomic: expected a text in quotes"),
    ("type excel @skip = '1' products = 'row' { code = 'a' }", 1, 12, "unknown setting @skip, expected @atomic"),
    ("type csv @delimiter = '\"' products = 'row' { code = 'a' }", 1, 23, "@delimiter: expected a character other than @quote"),
    ("type csv @quote = ';' @delimiter = ';' products = 'row' { code = 'a' }", 1, 36, "@delimiter: expected a character other than @quote"),
    ("type csv @encoding = 'undefined' products = 'row' { code = 'a' }", 1, 22, "expected an encoding such as utf-8"),
    ("type xml @namespace[g] = 'x' @namespace[g] = 'y' products = '//p' { code = 'a' }", 1, 30, "@namespace[g] is set twice"),
    ("type xml @namespace[xml] = 'x' products = '//p' { code = 'a' }", 1, 10, "expected a prefix that does not start with xml, got xml"),
    ("type xml @namespace[g] = '' products = '//p' { code = 'a' }", 1, 26, "@namespace: expected a URI"),
    # paths
    ("type csv\nproducts = \"row\" { code = 'a' }", 2, 18, "expected a block's path in 'single quotes'; \"double quotes\" are a text"),
    ("type csv\nproducts = 'rows' { code = 'a' }", 2, 12, "expected 'row', the path of each csv block, got 'rows'"),
    ("type csv\nproducts = 'row' { variants = 'row' { code = 'a' } }", 2, 31, "expected '.' (the same row)"),
    ("type csv\nproducts = 'row' { code = '' }", 2, 27, "expected a path"),
    ("type xml\nproducts = '/a[x]/b' { code = 'a' }", 2, 15, "expected a test of an attribute"),
    ("type xml\nproducts = '/a/' { code = 'a' }", 2, 16, "expected an element path or //name"),
    ("type xml\nproducts = '//p' { code = '/a/b' }", 2, 27, "expected a path relative to the block's element"),
    ("type xml\nproducts = '//p' { code = 'a[' }", 2, 27, "invalid XPath 1.0"),
    ("type xml\nproducts = '//p' { code = 'matches(a)' }", 2, 27, "XPath 1.0 has no function matches"),
    ("type xml\nproducts = '//p' { code = '1 | a' }", 2, 27, "invalid XPath 1.0: Invalid type"),
    ("type xml\nproducts = '//p' { variants = 'count(a)' { code = 'a' } }", 2, 31, "expected a path to elements"),
    ("type xml\nproducts = '//p' { variants = 'a/@b' { code = 'a' } }", 2, 31, "expected a path to elements"),
    ("type xml\nproducts = '//p' { code = 'a[b = $c]' }", 2, 34, "variables are not supported"),
    ("type xml\nproducts = '//p' { code = '../name' }", 2, 27, "only attributes of its ancestors can be read, such as ../@name"),
    ("type xml\nproducts = '//p' { code = 'ancestor::x/y' }", 2, 27, "only attributes of its ancestors"),
    ("type xml\nproducts = '//p' { code = 'following-sibling::x' }", 2, 27, "only attributes of its ancestors"),
    *(
        (f"type xml\nproducts = '//p' {{ code = '{path}' }}", 2, 27 + path.index(at) + bool(path.index(at)), "only attributes of its ancestors")
        for path, at in (
            ("..", ".."), ("parent::r/title", "parent"), ("self::p/../title", "self"), ("c/../../title", "c/"), ("c/ancestor::r", "c/"),
            ("ancestor::r/author", "ancestor"), ("ancestor-or-self::*", "ancestor"), ("ancestor::r/@x/../n", "ancestor"), ("..//t", ".."),
            ("x|../title", "../"), ("(../title)", "../"), ("(c | ..)/title", "(c"), ("(../@x | ..)/title", "(../"), ("string(../title)", "../"),
            ("concat(c, ../title)", "../"), ("c[../../title]", "../"), ("c[. = ../../title]", "../"), ("c[@a][../..]", "../.."),
            ("ancestor::r[string() = 1]/@x", "string"), ("ancestor::r[. = 1]/@x", ". ="), ("not(.. = 1)", ".."), ("boolean(1 = ..)", ".."),
            ("count(preceding-sibling::p)", "preceding"), ("c/../following-sibling::p", "c/"), ("1 * ..", ".."), ("../text()", "../"),
        )
    ),
    ("type xml\nproducts = '//p' { variants = './/v/..' { code = '../n' } }", 2, 50, "only attributes of its ancestors"),
    ("type xml\nproducts = '//p' { variants = 'c | ../v' { code = 'n' } }", 2, 36, "only attributes of its ancestors"),
    ("type json\nproducts = '$.a[0]' { code = 'a' }", 2, 12, "expected names and [*] with at most one filter at the end"),
    ("type json\nproducts = '$.a[?$.x == 1]' { code = 'a' }", 2, 12, "a block's filter can use only its own element (@)"),
    ("type json\nproducts = '$.a' { code = '$.b[' }", 2, 32, "invalid JSONPath (RFC 9535)"),
    # expressions
    ("type csv\nproducts = 'row' { code = uper('a') }", 2, 27, "unknown function uper, expected one of concat, upper"),
    ("type csv\nproducts = 'row' { code = upper('a', 'b') }", 2, 27, "upper: expected 1 argument, got 2"),
    ("type csv\nproducts = 'row' { code = upper(number('a')) }", 2, 33, "upper: expected text, got a number"),
    ("type csv\nproducts = 'row' { price = concat('a') * 2 }", 2, 28, "*: expected number, got a text"),
    ("type csv\nproducts = 'row' { price = 'a' = 1 }", 2, 32, "price: expected a number, got a bool"),
    ("type csv\nproducts = 'row' { active = number('a') }", 2, 29, "active: expected a bool, got a number"),
    ("type csv\norders = 'row' { orderDate = number('a') }", 2, 30, "orderDate: expected a date, got a number"),
    ("type csv\nproducts = 'row' { name = if('a' = 1, \"x\", 2) }", 2, 44, "if: expected a text like the other argument, got a number"),
    ("type csv\nproducts = 'row' { name = if('a' = 1, \"x\", 'b' = \"c\") }", 2, 48, "if: expected a text"),
    ("type csv\nproducts = 'row' { active = \"a\" = 1 }", 2, 35, "=: expected a text like the other argument, got a number"),
    ("type csv\norders = 'row' { orderDate = date('a', 'b') }", 2, 40, "date: expected a strptime format in \"double quotes\""),
    ("type csv\norders = 'row' { orderDate = date('a', \"%d.%m.\") }", 2, 40, "date: expected a strptime format with the year, such as %d.%m.%Y"),
    ("type csv\norders = 'row' { orderDate = date('a', \"%Y-%m-%d %Y\") }", 2, 40, "date: expected a strptime format with the year"),
    ("type csv\nproducts = 'row' { price = number('a', \"xx-none\") }", 2, 40, "number: expected a language tag"),
    ("type csv\nproducts = 'row' { name = first }", 2, 33, "expected '(', got '}'"),
    # templates
    ("type template\n<h1/>", 1, 14, "expected a media type, such as text/html, got nothing"),
    ("type template html\n<h1/>", 1, 15, "expected a media type, such as text/html, got 'html'"),
    ("type template text/html; charset=latin-1\nx", 1, 34, "expected utf-8, the charset of all templates, got latin-1"),
    ("type template text/html\n\n{% for row in rows %}", 3, 1, "Unexpected end of template"),
    ("type template text/html\n{{ rows", 2, 1, "unexpected end of template"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "message"), WRONG, ids=range(len(WRONG)))
def test_an_error_has_line_and_column(catalog: Catalog, text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ServiceError) as refused:
        read(text, catalog)
    error = refused.value
    assert error.code == "invalid_mapper"
    assert error.message.startswith(f"line {error.more['line']}, column {error.more['column']}: ")
    assert message in error.message
    assert (error.more["line"], error.more["column"]) == (line, column), error.message


def test_positions_count_characters_after_any_text(catalog: Catalog) -> None:
    with pytest.raises(ServiceError, match=r"^line 3, column 21: products has no field x"):
        read("type csv # käse 💶\r\n\nproducts = 'row' {  x = 'ü' }", catalog)


def test_a_template(catalog: Catalog) -> None:
    template = read("type template text/csv; charset=utf-8\r\n{% for row in rows %}{{ row.code }}\n{% endfor %}", catalog)
    assert isinstance(template, TemplateMapper)
    assert (template.media_type, template.source) == (
        "text/csv; charset=utf-8",
        "{% for row in rows %}{{ row.code }}\n{% endfor %}",
    )


@pytest.mark.parametrize("depth", [99, 10_000])
def test_deep_nesting_is_bounded(catalog: Catalog, depth: int) -> None:
    text = f"type csv products = 'row' {{ price = {'(' * depth}1{')' * depth} }}"
    if depth < 100:
        assert isinstance(read(text, catalog), Mapper)
    else:
        with pytest.raises(ServiceError, match="nested too deeply"):
            read(text, catalog)


def test_long_chains_are_bounded_but_not_the_number_of_fields(catalog: Catalog) -> None:
    with pytest.raises(ServiceError, match="nested too deeply"):
        read(f"type csv products = 'row' {{ price = {'1 + ' * 1_000}1 }}", catalog)
    blocks = "products = 'row' { code = 'c' price = 'a' * 2 + 1 }\n" * 300
    assert isinstance(read("type csv " + blocks, catalog), Mapper)


def test_a_text_that_is_too_long_is_refused(catalog: Catalog) -> None:
    with pytest.raises(ServiceError, match="a mapper has at most"):
        read("type csv" + " " * LONGEST, catalog)
