"""Sources with random faults are either read or refused with an error of the source."""

from __future__ import annotations

import random

import pytest

from app.errors import ServiceError
from tests.mapper.conftest import Run

pytestmark = pytest.mark.slow

SOURCES = {
    "csv": ("type csv @language = 'de' invoices = 'row' { code = 'c' total = number('t') orderId[code] = 'o' items = '.' { quantity = 'q' * 2 } }".replace("orderId", "order"),
            "c;t;o;q\r\n1;1.234,5;\"a \"\"b\"\"\n\";2\r\n1;;;3\r\n2;x;ü;\r\n"),
    "xml": ("type xml products = '/r/p' { code = '@c' name = concat('n', 'x[2]') price = 'v' * 2 variants = 'w/v' { code = '.' } }",
            "<?xml version='1.0' encoding='utf-8'?>\n<!DOCTYPE r SYSTEM 'x'>\n<r xmlns:a='b'>\n<p c='1'><n>ä&lt;<![CDATA[x]]></n><v>1</v><a:w><v>5</v></a:w><!-- - --></p><p c='2'/></r>"),
    "json": ("type json products = '$.a.b[?@.k > 1]' { code = 'c' name = concat('n', '$..x') price = 'v' * 2 variants = 'w[*]' { code = '@' } }",
             '{"a": {"b": [{"k": 2.5, "c": "1", "n": null, "v": 1e3, "w": ["\\u00e4", true, {}]}, {"k": 1}, 7, []]}, "z": [[[]]]}'),
}  # fmt: skip
ODD = [
    b"\0",
    b"\xff",
    b'"',
    b"'",
    b"<",
    b"&",
    b"]]>",
    b"{",
    b"[",
    b",",
    b";",
    b"\r",
    b"\n",
    b"\xef\xbb\xbf",
    b"&x;",
    b"1e999999",
    b"\\ud800",
    b"\xc3",
]


@pytest.mark.parametrize("format", SOURCES)
def test_a_random_fault_is_read_or_refused(run: Run, format: str) -> None:
    text, source = SOURCES[format]
    chance, refused = random.Random(1), 0
    for _ in range(400):
        data = bytearray(source.encode())
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data))
            data[at : at + chance.choice((0, 0, 1, 9))] = chance.choice(ODD)
        try:
            run(text, bytes(data), chance.choice((1, 5, 1 << 20)))
        except ServiceError as error:
            assert error.code in ("malformed_document", "invalid_document"), data
            refused += 1
    assert 0 < refused < 400


@pytest.mark.parametrize(("format", "opening"), [("json", b"["), ("json", b'{"a":'), ("xml", b"<r>"), ("xml", b"<!--")])
def test_deep_and_unclosed_sources_are_refused(run: Run, format: str, opening: bytes) -> None:
    with pytest.raises(ServiceError):
        run(SOURCES[format][0], opening * 200_000, 1 << 16)


@pytest.mark.parametrize(("depth", "fits"), [(196, True), (201, False), (50_000, False)])
def test_the_depth_of_values_in_a_record_is_bounded(run: Run, depth: int, fits: bool) -> None:
    source = b'{"a": {"b": [{"k": 2, "c": ' + b"[" * depth + b"]" * depth + b"}]}}"
    text = "type json products = '$.a.b' { code = 'c' name = 'k' description = '$..x' }"
    if fits:
        (record,) = run(text, source)["products"]
        assert record == {"code": {"@invalid": "expected a single value, got an array"}, "name": 2}
    else:
        with pytest.raises(ServiceError, match="nested more than 200 levels"):
            run(text, source)


@pytest.mark.parametrize("declaration", ["encoding='klingon'", "version='9.9'", "encoding='utf-16'"])
def test_a_wrong_xml_declaration_is_read_or_malformed(run: Run, declaration: str) -> None:
    version = "" if "version" in declaration else "version='1.0' "
    try:
        run(SOURCES["xml"][0], f"<?xml {version}{declaration}?><r><p c='1'/></r>")
    except ServiceError as error:
        assert error.code == "malformed_document"


@pytest.mark.parametrize("chunk", [1, 4, 1 << 20])
@pytest.mark.parametrize("format", SOURCES)
def test_a_truncated_source_is_read_or_refused(run: Run, format: str, chunk: int) -> None:
    text, source = SOURCES[format]
    data, refused = source.encode(), 0
    for end in range(len(data)):
        try:
            run(text, data[:end], chunk)
        except ServiceError as error:
            assert error.code in ("malformed_document", "invalid_document"), data[:end]
            refused += 1
    assert refused > (len(data) * 0.9 if format != "csv" else 0)
