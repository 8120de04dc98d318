"""CSV sources: the dialect is detected, rows become records, and faults are errors with their line."""

from __future__ import annotations

import codecs
from typing import Any

import pytest

from app.errors import ServiceError
from app.mapper.document import SourceConverter
from app.mapper.sources import csv_source, encodings
from tests.mapper.conftest import Run

PRODUCTS = "type csv {}\nproducts = 'row' {{ code = 'code' name = 'name' }}"
LINES = """type csv {}
invoices = 'row' {{
    code = 'no'  note = 'note'  customer[code] = 'who'
    items = '.' {{ product[code] = 'what'  quantity = 'many' }}
}}"""


def products(run: Run, source: str | bytes, settings: str = "", **options: Any) -> list[tuple[Any, ...]]:
    return [(r.get("code", "-"), r.get("name", "-")) for r in run(PRODUCTS.format(settings), source, **options)["products"]]


# source, settings, (code, name) of each record
DIALECTS: list[tuple[str, str, list[tuple[Any, ...]]]] = [
    ("code,name\n1,a\n2,b\n", "", [("1", "a"), ("2", "b")]),
    ("code,name\n1,a\n2,b", "", [("1", "a"), ("2", "b")]),
    ("code;name\r\n1;a\r\n", "", [("1", "a")]),
    ("code\tname\r1\ta\r", "", [("1", "a")]),
    ("code|name\n1|a,b;c\n", "", [("1", "a,b;c")]),
    ("sep=;\ncode;name\n1;a\n", "", [("1", "a")]),
    ("\n\ncode,name\n\n1,a\n\n", "", [("1", "a")]),
    (" code , name\n1,a\n", "", [("1", "a")]),
    ('"code","name"\n"1","a ""b"" c\nd,e"\n', "", [("1", 'a "b" c\nd,e')]),
    ("'code','name'\n'1','it''s'\n", "", [("1", "it's")]),
    ("code,name\n1,it's\n2,5\" pipe\n", "", [("1", "it's"), ("2", '5" pipe')]),
    ("name,other;code\nx,y;1\n", "@delimiter = ';'", [("1", "-")]),
    ("code,name\n1,'a,b'\n", '@quote = "\'"', [("1", "a,b")]),
    ("code:name\n1:a\n", "@delimiter = ':'", [("1", "a")]),
    ("code\tname\n1\ta\n", "@delimiter = 'tab'", [("1", "a")]),
    ("code,name\n1,\n2\n,x\n", "", [("1", None), ("2", "-"), (None, "x")]),
    ("x,name,code,y\n0,a,1,2\n", "", [("1", "a")]),
    ("code\n1\n", "", [("1", "-")]),
    ("code,name\n", "", []),
    ('code,name\n"",""\n,\n,,,\n1,\n', "", [("1", None)]),
    ("code,name\n1,a,,\n2,b,\n", "", [("1", "a"), ("2", "b")]),
    ('Report "of\nof 2026,,\r\n\rcode;name\n1;a\n', "@skip = '3'", [("1", "a")]),
    ("x\r\nsep=;\ncode;name\n1;a\n", "@skip = '1'", [("1", "a")]),
    ("code,name\n1,a\n", "@skip = '0'", [("1", "a")]),
    ("code,name\n1,a\n1,a\n1,b\n1,a\n,x\n,x\n", "", [("1", "a"), ("1", "b"), ("1", "a"), (None, "x"), (None, "x")]),
]


@pytest.mark.parametrize("chunk", [1, 5, 1 << 20])
@pytest.mark.parametrize(("source", "settings", "expected"), DIALECTS, ids=range(len(DIALECTS)))
def test_the_dialect_is_detected(run: Run, source: str, settings: str, expected: list[tuple[Any, ...]], chunk: int) -> None:
    assert products(run, source, settings, chunk=chunk) == expected


@pytest.mark.parametrize("chunk", [1, 1 << 20])
@pytest.mark.parametrize(("encoding", "settings", "name"), [
    ("utf-8", "", "Müller ✓"),
    ("utf-8-sig", "", "Müller ✓"),
    ("utf-16", "", "Müller ✓"),
    ("utf-16-le", "", "Müller ✓"),
    ("utf-16-le", "@encoding = 'utf-16'", "Müller ✓"),
    ("utf-16-be", "", "Müller ✓"),
    ("utf-32", "", "Müller ✓"),
    ("windows-1252", "", "Müller – 5 €"),
    ("windows-1252", "@language = 'de'", "Müller"),
    ("windows-1251", "@language = 'ru'", "Молоток"),
    ("windows-1250", "@language = 'cs-CZ'", "Žluťoučký"),
    ("windows-1253", "@language = 'el'", "Σφυρί"),
    ("cp932", "@language = 'ja'", "金槌"),
    ("iso-8859-15", "@encoding = 'iso-8859-15'", "5 €"),
    ("cp437", "@encoding = 'cp437'", "Müller"),
    ("windows-1252", "@encoding = 'latin1'", "5 €"),
    ("windows-1252", "@encoding = ' ISO-8859-1 '", "5 €"),
    ("mac-cyrillic", "@encoding = 'x-mac-cyrillic'", "Молоток"),
    ("cp874", "@encoding = 'iso-8859-11'", "ค้อน – 5 €"),
    ("cp949", "@encoding = 'ks_c_5601-1987'", "똠방각하"),
    ("gb18030", "@encoding = 'gb2312'", "錘子"),
])  # fmt: skip
def test_the_encoding_is_detected_or_set(run: Run, encoding: str, settings: str, name: str, chunk: int) -> None:
    source = f"code;name\n1;ascii\n2;{name}\n".encode(encoding)
    assert products(run, source, settings, chunk=chunk) == [("1", "ascii"), ("2", name)]


def test_the_senders_charset_yields_to_a_byte_order_mark_and_to_the_mapper(run: Run) -> None:
    source = "code;name\n1;Müller\n"
    assert products(run, source.encode("cp437"), charset="cp437") == [("1", "Müller")]
    assert products(run, codecs.BOM_UTF8 + source.encode(), charset="cp437") == [("1", "Müller")]
    assert products(run, source.encode("cp850"), "@encoding = 'cp850'", charset="utf-8") == [("1", "Müller")]


def test_every_label_of_an_encoding_is_read() -> None:
    for label, name in encodings.LABELS.items():
        assert encodings.find_encoding(label.upper()) == codecs.lookup(name).name
        assert encodings.find_encoding(name) == codecs.lookup(name).name, "a label that Python reads by itself is not listed"


@pytest.mark.parametrize("settings", ["", "@header = 'false' ", "@skip = '2' "])
@pytest.mark.parametrize("cut", [1, 4, 6])
def test_the_delimiter_is_detected_from_a_whole_line_behind_many_blank_ones(run: Run, settings: str, cut: int) -> None:
    blank = "\n" * (1 << 20)
    names = ("1", "3") if "header" in settings else ("c", "n")
    text = f"type csv {settings}units = 'row' {{ code = '{names[0]}' name = '{names[1]}' }}"
    found = run(text, blank + "c;d,e;n\nA;x;b\n", chunk=len(blank) + cut)["units"]
    assert found[-1] == {"code": "A", "name": "b"}


def test_lines_before_the_header_count_in_the_lines_of_errors(run: Run) -> None:
    with pytest.raises(ServiceError, match="line 3: the header has none"):
        products(run, "x\ny\na,b\n", "@skip = '2'")
    with pytest.raises(ServiceError, match="expected a header"):
        products(run, "x\ny", "@skip = '2'")
    with pytest.raises(ServiceError, match="line 4: a quoted cell"):
        products(run, 'x\ny\ncode,name\n1,"a', "@skip = '2'")


def test_an_operation_and_a_condition_may_come_from_a_path(run: Run) -> None:
    text = "type csv\nproducts = 'row' {{ @operation = {} @where = {} code = 'c' }}"
    source = "op,w,c,delete\ndelete,id = 1,a,create\n,,b,\n"
    null = {"@invalid": "expected a condition, got null", "@code": "required"}

    def found(operation: str, where: str) -> list[tuple[Any, ...]]:
        records = run(text.format(operation, where), source)["products"]
        return [(each.get("@operation", "-"), each["@where"], each["code"]) for each in records]

    assert found("'op'", "'w'") == [("delete", "id = 1", "a"), (None, null, "b")]
    assert found("'delete'", "'none'") == [("delete", null, "a"), ("delete", null, "b")], "a word of the language is no path"
    assert found("trim('delete')", '"id = 2"') == [("create", "id = 2", "a"), (None, "id = 2", "b")]


def test_an_unknown_charset_is_named(run: Run) -> None:
    with pytest.raises(ServiceError, match="got klingon"):
        products(run, "code;name\n", charset="klingon")


def test_columns_are_numbers_without_a_header(run: Run) -> None:
    text = "type csv @header = 'false'\nproducts = 'row' { code = '2' name = '3' }"
    assert run(text, "x;1;a\ny;2\n")["products"] == [{"code": "1", "name": "a"}, {"code": "2"}]
    text = "type csv @header = 'false'\ninvoices = 'row' { code = '1' items = '.' { quantity = '3' } }"
    assert run(text, "1;x;5\n2;x\n3;x;\n")["invoices"] == [
        {"code": "1", "items": [{"quantity": "5"}]},
        {"code": "2"},
        {"code": "3", "items": []},
    ]


def test_without_a_header_a_mapper_may_read_no_column(run: Run) -> None:
    assert run("type csv @header = 'false'\nunits = 'row' { code = \"1\" name = \"x\" }", "a,b\n")["units"] == [
        {"code": "1", "name": "x"}
    ]


def test_neighbouring_rows_with_one_id_become_one_record(run: Run) -> None:
    source = "no,note,who,what,many\n1,a,c1,p,1\n1,,c2,q,2\n2,b,,,\n1,d,,p,3\n,x,,p,4\n,x,,p,5\n"
    for chunk in (1, 1 << 20):
        assert run(LINES.format(""), source, chunk)["invoices"] == [
            {"code": "1", "note": "a", "customer": "code:c2", "items": [{"product": "code:p", "quantity": "1"}, {"product": "code:q", "quantity": "2"}]},
            {"code": "2", "note": "b", "customer": None, "items": []},
            {"code": "1", "note": "d", "customer": None, "items": [{"product": "code:p", "quantity": "3"}]},
            {"code": None, "note": "x", "customer": None, "items": [{"product": "code:p", "quantity": "4"}]},
            {"code": None, "note": "x", "customer": None, "items": [{"product": "code:p", "quantity": "5"}]},
        ]  # fmt: skip


ITEM = "product[code] = 'what'  quantity = 'many'"
# the child block, source, the items of each record; None: the record has no such member
MISSING: list[tuple[str, str, list[Any]]] = [
    (ITEM, "no\n1\n2\n", [None, None]),
    (ITEM, "no,many\n1,\n2,5\n", [[], [{"quantity": "5"}]]),
    (ITEM, "no,note,what\n1\n2,\n2,,p\n2\n3,,\n", [None, [{"product": "code:p"}], []]),
    (ITEM + " when = 'no' != \"1\"", "no\n1\n2\n", [None, None]),
    (ITEM + " when = 'no' != \"1\"", "no,what\n1,p\n2,p\n", [[], [{"product": "code:p"}]]),
    ("quantity = default('many', 1)", "no\n1\n", [None]),
    ("quantity = 1", "no\n1\n", [None]),
    ("product[code] = 'what' quantity = default('many', 1)", "no,what,many\n1,,\n2,p,\n3,,2\n", [[], [{"product": "code:p", "quantity": "1"}], [{"product": None, "quantity": "2"}]]),
    ("description = if('what' != \"x\", \"other\") quantity = 1", "no,what\n1,\n2,y\n", [[], [{"description": "other", "quantity": "1"}]]),
    ("description = concat(default('what', \"-\"), \"!\")", "no,what\n1,\n2,y\n", [[], [{"description": "y!"}]]),
    ("@removeAll = 'false' " + ITEM, "no\n1\n", [[]]),
    ("@removeAll = 'true' " + ITEM, "no\n1\n", [[]]),
]  # fmt: skip


@pytest.mark.parametrize(("block", "source", "items"), MISSING)
def test_children_whose_columns_are_all_missing_are_absent(run: Run, block: str, source: str, items: list[Any]) -> None:
    text = f"type csv invoices = 'row' {{ code = 'no' items = '.' {{ {block} }} }}"
    assert [each.get("items") for each in run(text, source)["invoices"]] == items


def test_rows_are_combined_by_id_before_other_unique_fields(run: Run) -> None:
    text = "type csv\nproducts = 'row' { id[code] = 'c' barcode = 'b' variants = '.' { @removeAll = 'true' code = 'v' } }"
    assert run(text, "c,b,v\n1,8,x\n1,9,y\n2,9,\n")["products"] == [
        {"id": "code:1", "barcode": "9", "variants": [{"code": "x"}, {"code": "y"}], "variants@removeAll": True},
        {"id": "code:2", "barcode": "9", "variants": [], "variants@removeAll": True},
    ]


def test_each_row_is_a_record_without_nested_blocks(run: Run) -> None:
    assert products(run, "code,name\n1,a\n1,b\n") == [("1", "a"), ("1", "b")]


def test_a_row_with_too_many_cells_is_a_failed_record(run: Run) -> None:
    records = run(PRODUCTS.format(""), "code,name\n1,a\n2,b,c\n3,d\n")["products"]
    assert records[1] == {"code": {"@invalid": "expected at most 2 cells as in the header, got 3"}}
    assert [records[0]["code"], records[2]["code"]] == ["1", "3"]


REFUSED = [
    # source, settings, code, part of the message
    (b"", "", "malformed_document", "line 1: expected a header with column names"),
    (b"\n\n", "", "malformed_document", "line 1: expected a header"),
    (b"a,b\n1,2\n", "", "invalid_document", "line 1: the header has none of the mapper's columns, expected code, name, got a, b"),
    (b"code;name\n1;2\n", "@delimiter = ','", "invalid_document", "got code;name"),
    (b"code,name,code\n1,2,3\n", "", "invalid_document", "line 1: the column code appears twice"),
    (b'code,name\n1,a\n2,"b\n3,c\n', "", "malformed_document", "line 3: a quoted cell that starts in this row is not closed"),
    ("code,name\n1,ü\n".encode() + b"2,\xff\n", "", "malformed_document", "line 3: the byte 0xff is not valid in utf-8; save the file as UTF-8, or name"),
    (b"code,name\n1,a\n2,\x81\n", "", "malformed_document", "line 3: the byte 0x81 is not valid in windows-1252"),
    (b'code,name\n1,a\n2,"12" screen\n', "", "malformed_document", "line 3: ',' expected after '\"'"),
    (b"code,name\n1,\xfc\n", "@encoding = 'utf-8'", "malformed_document", "line 2: the byte 0xfc is not valid in utf-8"),
]  # fmt: skip


@pytest.mark.parametrize("charset", ["klingon", "base64", "undefined", "idna", "rot13", "a" * 5000, "ü"])
def test_a_charset_that_is_unknown_or_not_text_is_refused(run: Run, charset: str) -> None:
    with pytest.raises(ServiceError, match="expected a known charset") as refused:
        run(PRODUCTS.format(""), b"code,name\n1,a\n", charset=charset)
    assert refused.value.code == "unsupported_media_type"


@pytest.mark.parametrize("chunk", [1, 1 << 20])
@pytest.mark.parametrize(("source", "settings", "code", "message"), REFUSED, ids=range(len(REFUSED)))
def test_an_unreadable_source_is_refused(run: Run, source: bytes, settings: str, code: str, message: str, chunk: int) -> None:
    with pytest.raises(ServiceError) as refused:
        products(run, source, settings, chunk=chunk)
    assert (refused.value.code, message in refused.value.message) == (code, True), refused.value.message


def test_a_row_that_is_too_long_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_source, "LARGEST_ROW", 1 << 20)
    with pytest.raises(ServiceError, match="line 2: a row has more than 1,048,576 characters"):
        products(run, 'code,name\n1,"' + "x,\n" * (1 << 20), chunk=1 << 16)


def test_a_cell_of_many_lines_is_read_in_linear_time(run: Run) -> None:
    text = "line\n" * 400_000
    assert products(run, f'code,name\n1,"{text}"\n', chunk=1 << 16) == [("1", text)]


def test_errors_are_placed_by_the_lines_of_records_and_children(catalog: Any) -> None:
    from app.mapper.language.parse import read
    from app.mapper.language.tree import Mapper

    mapper = read(LINES.format(""), catalog)
    assert isinstance(mapper, Mapper)
    mapped = SourceConverter(mapper)
    for piece in (b'no,note,who,what,many\n1,"a\nb",,p,1\n', b"1,,,q,2\n\n2,,,", b"p,3\n2,,,q,4"):
        mapped.feed(piece)
    b"".join(mapped.finish())
    assert [mapped.source_position("invoices", n) for n in range(3)] == ["line 2", "line 6", None]
    assert [mapped.source_position("invoices", 0, n) for n in range(3)] == ["line 2", "line 4", "line 2"]
    assert [mapped.source_position("invoices", 1, n) for n in range(2)] == ["line 6", "line 7"]
    assert mapped.source_position("products", 0) is None
