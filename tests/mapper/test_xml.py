"""XML sources: paths, namespaces, absent and null values, and refused documents."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.database.catalog import Catalog
from app.errors import ServiceError
from app.mapper.document import SourceConverter
from app.mapper.language.parse import read
from app.mapper.language.tree import Mapper
from app.mapper.sources import base, xml_source
from tests.mapper.conftest import Run

ONE = "type xml\nproducts = '/catalog/product' {{ code = '@code' {} }}"


def one(run: Run, fields: str, inside: str, around: str = "<catalog>{}</catalog>") -> Any:
    """The record of an element with the content `inside`, by a mapper with these fields."""
    record = run(ONE.format(fields), around.format(f'<product code="1">{inside}</product>'))["products"][0]
    assert record.pop("code") == "1"
    return record


# fields, content of the element, record
VALUES: list[tuple[str, str, Any]] = [
    ("name = 'name'", "<name>x</name>", {"name": "x"}),
    ("name = 'name'", "<name> x\n</name>", {"name": " x\n"}),
    ("name = 'name'", "<name/>", {"name": None}),
    ("name = 'name'", "<name></name>", {"name": None}),
    ("name = 'name'", "", {}),
    ("name = 'name'", "<other/>", {}),
    ("name = 'name'", "<name>x</name><name>y</name>", {"name": "x"}),
    ("name = 'name[2]'", "<name>x</name><name>y</name>", {"name": "y"}),
    ("name = 'name[last()]'", "<name>x</name><name>y</name>", {"name": "y"}),
    ("name = 'a/b/c'", "<a><b><c>x</c></b></a>", {"name": "x"}),
    ("name = './a/b'", "<a><b>x</b></a>", {"name": "x"}),
    ("name = './/c'", "<a><b><c>x</c></b></a>", {"name": "x"}),
    ("name = 'a/@b'", "<a b='x'/>", {"name": "x"}),
    ("name = 'a/@b'", "<a b=''/>", {"name": None}),
    ("name = 'a/@b'", "<a/>", {}),
    ("name = '@code'", "", {"name": "1"}),
    ("name = '.'", "a<b>b</b>c", {"name": "abc"}),
    ("name = 'text()'", "a<b>b</b>c", {"name": "a"}),
    ("name = 'a'", "<a>x<!-- no -->y<?no?>z<![CDATA[<&>]]>&lt;&#228;</a>", {"name": "xyz<&><ä"}),
    ("name = 'a'", "<a>x <b>bold</b> y</a>", {"name": "x bold y"}),
    ("name = 'p[@t=\"b\"]/v'", "<p t='a'><v>1</v></p><p t='b'><v>2</v></p>", {"name": "2"}),
    ("name = 'p[t=''b'']/v'", "<p><t>a</t><v>1</v></p><p><t>b</t><v>2</v></p>", {"name": "2"}),
    ("name = 'normalize-space(a)'", "<a> x   y </a>", {"name": "x y"}),
    ("name = 'normalize-space(a)'", "", {"name": None}),
    ("name = 'concat(a, \"-\", b)'", "<a>x</a><b>y</b>", {"name": "x-y"}),
    ("price = 'count(a)'", "<a/><a/>", {"price": "2"}),
    ("price = 'sum(a) div 2'", "<a>1</a><a>2</a>", {"price": "1.5"}),
    ("price = 'number(a)'", "<a>x</a>", {"price": None}),
    ("active = 'a = \"yes\"'", "<a>yes</a>", {"active": "true"}),
    ("name = 'a | b'", "<b>y</b><a>x</a>", {"name": "y"}),
    ("name = 'div div div'", "<div>6</div>", {"name": "1"}),
    ("name = '*[2]'", "<a>x</a><b>y</b>", {"name": "y"}),
    ("name = 'a[position() < 2 and not(@x)]'", "<a>x</a><a>y</a>", {"name": "x"}),
    ("name = 'x-y.z'", "<x-y.z>1</x-y.z>", {"name": "1"}),
    ("name = 'größe'", "<größe>1</größe>", {"name": "1"}),
    ("variants = 'vs/v' { code = '.' }", "<vs><v>a</v><v>b</v></vs>", {"variants": [{"code": "a"}, {"code": "b"}]}),
    ("variants = 'vs/v' { code = '.' }", "<vs/>", {"variants": []}),
    ("variants = 'vs/v' { code = '.' }", "", {}),
    ("variants = 'vs/v' { @removeAll = 'true' code = '.' }", "", {"variants": [], "variants@removeAll": True}),
    ("variants = 'a/vs/v' { code = '.' }", "<a/>", {}),
    ("variants = 'a/vs/v' { code = '.' }", "<a><vs/></a>", {"variants": []}),
    ("variants = 'vs/v[@x]' { code = '.' }", "", {}),
    ("variants = 'vs/v[@x]' { code = '.' }", "<vs><v>a</v></vs>", {"variants": []}),
    ("variants = './/v' { code = '.' }", "", {}),
    ("variants = 'vs//v | ws/v' { code = '.' }", "<ws/>", {"variants": []}),
    ("variants = 'vs//v | ws/v' { code = '.' }", "", {}),
    ("variants = 'v' { code = '.' }", "", {"variants": []}),
    ("variants = 'v[@x]' { code = '@x' name = '../n' }", "<n>N</n><v/><v x='1'/>", {"variants": [{"code": "1", "name": "N"}]}),
    ("variants = './/v' { code = '@x' price = '../@p' }", "<w p='5'><v x='1'/></w>", {"variants": [{"code": "1", "price": "5"}]}),
    ("variants = '.' { code = 'v' }", "<v>1</v>", {"variants": [{"code": "1"}]}),
    ("category[code] = 'c'", "<c/>", {"category": None}),
    ("category[code] = 'c'", "", {}),
    ("category[code] = 'c' unitId[id] = 'u'", "<c>x</c><u>5</u>", {"category": "code:x", "unitId": "id:5"}),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "inside", "expected"), VALUES, ids=range(len(VALUES)))
def test_the_record_of_an_element(run: Run, fields: str, inside: str, expected: Any) -> None:
    assert one(run, fields, inside) == expected


@pytest.mark.parametrize(("fields", "around", "expected"), [
    ("price = '../@p'", "<catalog p='5'>{}</catalog>", {"price": "5"}),
    ("price = 'ancestor::catalog/@p'", "<catalog p='5'>{}</catalog>", {"price": "5"}),
    ("price = 'count(ancestor::*)'", "<catalog>{}</catalog>", {"price": "1"}),
    ("name = 'name(..)'", "<catalog>{}</catalog>", {"name": "catalog"}),
    ("price = '../../@p | .././@p'", "<catalog p='5'>{}</catalog>", {"price": "5"}),
    ("name = 'self::*[../@p * 2 = 10]/a/../a[. != ancestor::catalog[@p]/@p]'", "<catalog p='5'>{}</catalog>", {"name": "x"}),
    ("name = 'a/preceding-sibling::a | a/text()/..'", "<catalog>{}</catalog>", {"name": "x"}),
    ("price = '(a/@q | ../@p)[1]'", "<catalog p='5'>{}</catalog>", {"price": "5"}),
    ("name = 'a'", "<catalog xmlns='urn:x'>{}</catalog>", {"name": "x"}),
    ("name = 'a'", "<c:catalog xmlns:c='urn:x'>{}</c:catalog>", {"name": "x"}),
])  # fmt: skip
def test_ancestors_and_namespaces_of_the_record(run: Run, fields: str, around: str, expected: Any) -> None:
    assert one(run, fields, "<a>x</a>", around) == expected


GOOGLE = """<g:rss xmlns:g="http://g" xmlns:o="http://o"><g:item g:id="1" o:id="2"><g:a>x</g:a><o:a>y</o:a></g:item></g:rss>"""


@pytest.mark.parametrize(("settings", "path", "field", "expected"), [
    ("", "/rss/item", "a", "x"),
    ("", "/g:rss/g:item", "o:a", "y"),
    ("", "//g:item", "@o:id", "2"),
    ("", "//g:item", "*[starts-with(name(), \"o:\")]", "y"),
    ("@namespace[z] = 'http://o'", "//g:item", "z:a", "y"),
    ("@namespace[z] = 'http://g'", "/z:rss/z:item", "@z:id", "1"),
    ("@namespace[g] = 'http://o'", "//item", "g:a", "y"),
    ("", "//item", "q:a", None),
])  # fmt: skip
def test_prefixes(run: Run, settings: str, path: str, field: str, expected: str | None) -> None:
    text = f"type xml {settings}\nproducts = '{path}' {{ code = \"1\" name = '{field}' }}"
    assert run(text, GOOGLE)["products"] == [{"code": "1"} | ({} if expected is None else {"name": expected})]


NESTED = """<r><g c="1"><n>a</n><g c="2"><n>b</n><g c="3"/></g></g><x><g c="4"><n>d</n></g></x></r>"""


def test_nested_elements_are_separate_records(run: Run) -> None:
    text = "type xml\ncategories = '//g' { code = '@c' name = 'n' parent[code] = '../@c' }"
    found = {record["code"]: record for record in run(text, NESTED, 1)["categories"]}
    assert found == {
        "1": {"code": "1", "name": "a"}, "2": {"code": "2", "name": "b", "parent": "code:1"},
        "3": {"code": "3", "parent": "code:2"}, "4": {"code": "4", "name": "d"},
    }  # fmt: skip


def test_a_block_takes_only_elements_at_its_path(run: Run) -> None:
    text = "type xml units = '/r/x/g' { code = '@c' } units = '/r/g/g' { code = '@c' } categories = '//n' { code = '.' }"
    document = run(text, NESTED)
    assert document["units"] == [{"code": "2"}, {"code": "4"}]
    assert sorted(record["code"] for record in document["categories"]) == ["a", "b", "d"]


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_the_source_may_arrive_in_any_pieces_and_encodings(run: Run, chunk: int, encoding: str) -> None:
    source = f"<?xml version='1.0' encoding='{encoding}'?>\n<!-- {'x' * 3000} -->\n<catalog>" + "".join(
        f'<product code="{n}"><name>ä{n}</name></product>\n' for n in range(30)
    ) + "</catalog>"  # fmt: skip
    records = run(ONE.format("name = 'name'"), source.encode(encoding), chunk)["products"]
    assert records == [{"code": str(n), "name": f"ä{n}"} for n in range(30)]


def test_the_senders_charset_yields_to_the_document(run: Run) -> None:
    text, body = ONE.format("name = 'n'"), "<catalog><product code='1'><n>ä</n></product></catalog>"
    expected = [{"code": "1", "name": "ä"}]
    assert run(text, body.encode("latin-1"), charset="latin-1")["products"] == expected
    declared = "<?xml version='1.0' encoding='utf-8'?>" + body
    assert run(text, declared.encode(), charset="latin-1")["products"] == expected
    assert run(text, body.encode("utf-16"), charset="latin-1")["products"] == expected
    with pytest.raises(ServiceError, match="expected a charset that the XML parser supports, got 'cp720'"):
        run(text, body, charset="cp720")
    with pytest.raises(ServiceError, match="got klingon"):
        run(text, body, charset="klingon")


BOMB = (
    "<!DOCTYPE catalog [<!ENTITY a 'lol'>"
    + "".join(f"<!ENTITY {c} '{f'&{p};' * 10}'>" for p, c in zip("abcdefgh", "bcdefghi", strict=True))
    + "]>"
)

REFUSED = [
    # source, code, part of the message
    ("", "malformed_document", "line 1, column 1: "),
    ("{}", "malformed_document", "line 1, column 1: "),
    ("<catalog>\n<product code='1'></catalog>", "malformed_document", "line 2, column 29: Opening and ending tag mismatch"),
    ("<catalog>\n<product code='1'/>", "malformed_document", "line 2, column"),
    ("<catalog/><more/>", "malformed_document", "line 1, column"),
    ("<catalog><product code='&nbsp;'/></catalog>", "malformed_document", "Entity 'nbsp' not defined"),
    ("<catalogue/>", "invalid_document", "line 1: expected the root element catalog, got catalogue"),
    (BOMB + "<catalog><product code='&i;'/></catalog>", None, "ntit"),
    (BOMB + "<catalog>" + " " * 9_000 + "<product code='&i;'/></catalog>", "invalid_document", "the document declares entities, which are not allowed"),
    (BOMB + "<catalog i='&i;'/>", None, "ntit"),
    ("<!DOCTYPE catalog [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><catalog><product code='1'><name>&x;</name></product></catalog>", "invalid_document", "declares entities"),
    ("<!DOCTYPE catalog [<!ENTITY % x SYSTEM 'http://127.0.0.1:9/x'> %x;]><catalog/>", None, "ntit"),
    ("<!DOCTYPE catalog SYSTEM 'file:///etc/passwd'><catalog><product code='1'><name>&x;</name></product></catalog>", "malformed_document", "Entity 'x' not defined"),
    ("<?xml version='1.0'?>" + " " * (xml_source.PROLOG + 1), "invalid_document", "the root element does not start within the first megabyte"),
    ("<catalog>" + "<a>" * 100_000, "malformed_document", "depth"),
    ("<catalog><product code='1'><name>" + "x" * 11_000_000 + "</name></product></catalog>", "malformed_document", "Text node too long"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "code", "message"), REFUSED, ids=range(len(REFUSED)))
def test_an_unreadable_or_dangerous_document_is_refused(run: Run, source: str, code: str | None, message: str) -> None:
    with pytest.raises(ServiceError) as refused:
        run(ONE.format("name = 'name'"), source, 1 << 16)
    assert refused.value.code == code or code is None
    assert message in refused.value.message


@pytest.mark.parametrize("source", ["<r/>", "<r></r>", "<r>", "<p/>", "<r><p/></r>", "<a/>"])
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_short_documents_are_read_to_their_end(run: Run, source: str, chunk: int) -> None:
    text = "type xml products = '//p' { name = '@n' }"
    if source == "<r>":
        with pytest.raises(ServiceError, match="Premature end of data"):
            run(text, source, chunk)
    else:
        assert run(text, source, chunk)["products"] == [{}] * source.count("<p")


def test_a_doctype_without_entities_is_allowed(run: Run) -> None:
    assert run(ONE.format(""), "<!DOCTYPE catalog SYSTEM 'catalog.dtd'><catalog><product code='1'/></catalog>")["products"] == [
        {"code": "1"}
    ]


def test_a_record_that_is_too_large_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml_source, "LARGEST_RECORD", 1 << 20)
    assert base.LARGEST_RECORD > 1 << 20
    items = "<variants>" + "<line><code>1</code></line>" * 200_000
    with pytest.raises(ServiceError, match="line 2: a record is larger than 1 MB"):
        run(ONE.format(""), f"<catalog>\n<product code='1'>{items}", 1 << 18)


MEASURE = """
import sys, resource
from app.mapper.document import SourceConverter
from app.mapper.language.parse import read
import pickle
catalog = pickle.load(open(sys.argv[1], "rb"))
mapped = SourceConverter(read("type xml products = '/c/p' { id[code] = '@code' name = 'name' description = 'd' }", catalog))
mapped.feed(b"<c>")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
record = b"<p code='%d'><name>name</name><d>" + b"text " * 40 + b"</d></p>\\n"
other = b"<other><deep><name>name</name></deep></other>\\n" * 5
for block in range(100):
    mapped.feed(b"".join(record % (block * 2000 + n) + other for n in range(2000)))
mapped.feed(b"</c>")
b"".join(mapped.finish())
assert mapped.source_position("products", 199_999) == "line 1199995", mapped.source_position("products", 199_999)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_source(catalog: Catalog, tmp_path: Path) -> None:
    import pickle

    path = tmp_path / "catalog"
    path.write_bytes(pickle.dumps(catalog))
    measured = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, timeout=300)
    assert measured.returncode == 0, measured.stderr
    assert int(measured.stdout) < 40 << 10, "kB, of a source of 95 MB"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 0


@pytest.mark.parametrize(
    "body",
    [
        "<p code='{}'/>\n",
        "<p code='{}'><name>x</name></p>\n",
        "<p code='{}'>\n\n\n<name>x</name>\n</p>\n",
        "<p code='{}'><name>a\nb</name></p>\n",
    ],
)
@pytest.mark.slow
def test_line_numbers_are_right_beyond_65535(catalog: Catalog, body: str) -> None:
    mapper = read("type xml products = '/c/p' { code = '@code' name = 'name' }", catalog)
    assert isinstance(mapper, Mapper)
    mapped, records, lines = SourceConverter(mapper), 140_000 // body.count("\n"), body.count("\n")
    source = ("<c>\n" + "".join(body.format(number) for number in range(records)) + "</c>").encode()
    for at in range(0, len(source), 1 << 20):
        mapped.feed(source[at : at + (1 << 20)])
    b"".join(mapped.finish())
    for number in (0, 1, records // 3, records // 2, records - 2):
        assert mapped.source_position("products", number) == f"line {2 + number * lines}"


@pytest.mark.parametrize("path", ["v[substring(x)]", 'v[count("a")]', "vs/v[sum(1)]"])
def test_a_path_of_a_nested_block_that_cannot_be_evaluated_is_the_error_of_its_record(run: Run, path: str) -> None:
    text = f"type xml products = '/r/p' {{ code = 'c' variants = '{path}' {{ code = '.' }} }}"
    good, wrong = run(text, "<r><p><c>1</c><vs/></p><p><c>2</c><v>a</v><vs><v>a</v></vs></p></r>")["products"]
    assert good["code"] == "1"
    assert wrong["code"]["@invalid"].startswith("variants: the path cannot be evaluated: ")
