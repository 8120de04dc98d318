"""The table of hostile files, with what must come of each."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Callable

from tests.mapper.hostile import (
    LAUGHS,
    MAIN,
    OUTSIDE,
    UNIT,
    Deflated,
    Hostile,
    archive,
    around,
    book,
    compressed_otherwise,
    damaged,
    relations,
    repeated,
    row,
    sheet,
    text,
    zipped,
)  # fmt: skip

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
MB = 1 << 20
IMPORT_MAX = 72 * MB  # of a service in tests: more than its largest record, which has 64 MB
BOMB = IMPORT_MAX + 8 * MB
BAD, WRONG, LARGE = "malformed_document", "invalid_document", "too_large"
STRICT = "http://purl.oclc.org/ooxml/spreadsheetml/main"

Content = str | bytes | Deflated


def cell(attributes: str, value: str = "1") -> str:
    return f"<c {attributes}><v>{value}</v></c>"


def numbered(number: str) -> str:
    return sheet(row(number=f' r="{number}"'))


def long_text(size: int) -> Deflated:
    """A worksheet with a text of a size in one cell."""
    return around(
        lambda before, after: repeated(
            f"{before}<row>{text('A')}<c t='inlineStr'><is><t>", "x", size, "</t></is></c></row>" + after
        )
    )


SHEETS: list[tuple[str, str, Callable[[], Content]]] = [
    *((f"row {number[:20]}", code, lambda number=number: numbered(number)) for number, code in (  # type: ignore[misc]
        ("1000000000", WRONG), ("1048577", WRONG), ("1048576", "completed"), ("0", BAD), ("-5", BAD), ("x", BAD), ("9" * 5000, WRONG), ("2.5", BAD), ("²", BAD))),
    *((f"cell {name}", code, lambda name=name: sheet(row(cell(f'r="{name}"')))) for name, code in (  # type: ignore[misc]
        ("XFE2", WRONG), ("ZZZ2", WRONG), ("XFD2", "failed"), ("A-1", BAD), ("1A", BAD), ("ZZZZZZ1", BAD), ("", BAD), ("A0", BAD), ("$B$2", BAD), ("b2", BAD))),
    *((f"value {attributes} {value[:20]}", code, lambda a=attributes, v=value: sheet(row(cell(a, v)))) for attributes, value, code in (  # type: ignore[misc]
        ('t="s"', "999", BAD), ('t="s"', "-1", BAD), ('t="s"', "x", BAD), ('t="s"', "9" * 5000, BAD), ('s="99999"', "1", "completed"), ('s="-1"', "1", "completed"),
        ('s="x"', "1", BAD), ('t="?"', "1", "completed"), ("", "1e999", "completed"), ("", "NaN", "completed"), ("", "9" * 400, "completed"), ("", "1e308", "completed"),
        ('s="1"', "1e300", "completed"), ('s="1"', "-1e9", "completed"), ('t="d"', "99999-99-99", "completed"), ('t="e"', "#REF!", "completed"))),
    ("rows that go back", BAD, lambda: sheet(row(number=' r="7"') + row(code="B", number=' r="5"'))),
    ("rows with one number", BAD, lambda: sheet(row(number=' r="7"') + row(code="B", number=' r="7"'))),
    ("16,385 cells", WRONG, lambda: sheet("<row>" + text("A") * 16_385 + "</row>")),
    ("a cell of 32,767 characters", "completed", lambda: sheet(row(text("x" * 32_767)))),
    ("a cell of 32,768 characters", "invalid_value", lambda: sheet(row(text("x" * 32_768)))),
    ("a cell of 70 MB", "invalid_value", lambda: long_text(70 * MB)),
    ("an attribute of 70 MB", WRONG, lambda: around(lambda before, after: repeated(before + '<row a="', "x", 70 * MB, '"/>' + after))),
    ("a comment of 70 MB", WRONG, lambda: around(lambda before, after: repeated(before + "<!--", "x", 70 * MB, "-->" + after))),
    ("elements that nest 7 million deep", WRONG, lambda: around(lambda before, after: repeated(before, "<a>", 20 * MB, after))),
    ("spaces of 80 MB", LARGE, lambda: around(lambda before, after: repeated(before, " ", BOMB, after))),
    ("entities in entities", WRONG, lambda: LAUGHS + sheet(row(text("&i;")))),
    ("an entity of a file", WRONG, lambda: OUTSIDE + sheet(row(text("&a;")))),
    ("a document type", WRONG, lambda: '<!DOCTYPE w SYSTEM "http://127.0.0.1:1/x">' + sheet(row())),
    ("an undefined entity", BAD, lambda: sheet(row(text("&a;")))),
    ("half of its XML", BAD, lambda: sheet(row())[:-40]),
    ("no XML", BAD, lambda: b"\0\1\2" * 1000),
    ("no UTF-8", BAD, lambda: sheet(row(text("?"))).encode().replace(b"?", b"\xff")),
    ("another encoding than declared", BAD, lambda: b'<?xml version="1.0" encoding="utf-16"?>' + sheet(row()).encode()),
    ("an unknown encoding", BAD, lambda: '<?xml version="1.0" encoding="utf-7"?>' + sheet(row())),
    ("a prefix for each element", "completed", lambda: sheet(row()).replace("xmlns=", "xmlns:x=").replace("</", "</x:").replace("<", "<x:").replace("<x:/x:", "</x:")),
    ("the strict namespace", "completed", lambda: sheet(row()).replace(MAIN, STRICT)),
    ("nothing", BAD, lambda: b""),
]  # fmt: skip

WORKBOOKS: list[tuple[str, str, Callable[[], bytes]]] = [
    *((f"workbook with {name}", code, lambda make=make: book(make())) for name, code, make in SHEETS),  # type: ignore[misc]
    ("a row of 16,384 references to one long text", WRONG, lambda: book(
        sheet("<row>" + cell('t="s"', "0") * 16_384 + "</row>"), texts=f"<si><t>{'x' * 32_000}</t></si>")),
    ("rows of references to long texts", "failed", lambda: book(
        sheet("".join("<row>" + text(f"A{n}") + cell('t="s"', "0") * 2 + "</row>" for n in range(2_000))), texts=f"<si><t>{'x' * 32_000}</t></si>")),
    ("a shared text of 30 MB", "invalid_value", lambda: book(
        sheet(row(cell('t="s"', "0"))), texts=repeated(f'<sst xmlns="{MAIN}"><si><t>', "x", 30 * MB, "</t></si></sst>"))),
    ("texts of 80 MB", LARGE, lambda: book(sheet(row()), texts=repeated(f'<sst xmlns="{MAIN}">', f"<si><t>{'x' * 30_000}</t></si>", BOMB, "</sst>"))),
    ("300,000 empty texts", "completed", lambda: book(sheet(row()), texts=repeated(f'<sst xmlns="{MAIN}">', "<si/>", MB * 3 // 2, "</sst>"))),
    ("entities in shared texts", WRONG, lambda: book(sheet(row()), texts=LAUGHS.replace("l [", "sst [") + "<sst/>", sharedStrings_xml=LAUGHS + "<l>&i;</l>")),
    ("entities in the workbook part", WRONG, lambda: book(sheet(row()), workbook_xml=LAUGHS + "<l>&i;</l>")),
    ("entities in relations", WRONG, lambda: book(sheet(row()), _rels=OUTSIDE + "<l>&a;</l>")),
    ("entities in styles", WRONG, lambda: book(sheet(row()), styles_xml=LAUGHS + "<l>&i;</l>")),
    ("many cell formats", WRONG, lambda: book(sheet(row()), styles_xml=repeated(f'<styleSheet xmlns="{MAIN}"><cellXfs>', "<xf/>", 70 * MB, "</cellXfs></styleSheet>"))),
    ("no worksheet", WRONG, lambda: book(sheet(row()), workbook_xml=f'<workbook xmlns="{MAIN}"/>')),
    ("a worksheet that is missing", BAD, lambda: book(sheet(row()), workbook_xml_rels=relations(("worksheet", "worksheets/none.xml")))),
    ("a worksheet outside of the file", BAD, lambda: book(sheet(row()), workbook_xml_rels=relations(("worksheet", "../../../etc/passwd")))),
    ("a worksheet that is its own workbook", BAD, lambda: book(sheet(row()), workbook_xml_rels=relations(("worksheet", "workbook.xml")))),
    ("a text file", BAD, lambda: b"code,name\nA,a\n"),
    ("nothing at all", BAD, lambda: b""),
    ("an old workbook", BAD, lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000)),
    ("a zip of something else", BAD, zipped),
    ("a zip in a zip", BAD, lambda: zipped("xl/workbook.xml", zipped())),
    ("70,000 members", BAD, lambda: archive({f"m{n}": b"" for n in range(65_000)})),
    ("half of a workbook", BAD, lambda: book(sheet(row()))[:1200]),
    ("a wrong CRC", BAD, lambda: damaged_content()),
    ("a wrong offset", BAD, lambda: damaged(book(sheet(row())), -6, b"\xff\xff\x00")),
    ("an encrypted workbook", BAD, lambda: archive({"_rels/.rels": relations(("officeDocument", "x"))}, flags=1)),
    ("bzip2 in the workbook", BAD, lambda: compressed_otherwise(zipfile.ZIP_BZIP2)),
    ("lzma in the workbook", BAD, lambda: compressed_otherwise(zipfile.ZIP_LZMA)),
    ("an unknown compression", BAD, lambda: archive({"_rels/.rels": relations(("officeDocument", "x"))}, method=99)),
]  # fmt: skip


def damaged_content() -> bytes:
    """A workbook in which a letter of a stored part is another one."""
    good = compressed_otherwise(zipfile.ZIP_STORED)
    return damaged(good, good.index(b"<t>n</t>") + 3, b"m")


CSV: list[tuple[str, str, Callable[[], bytes], str]] = [
    ("a cell of 20 MB", WRONG, lambda: b"code,name\nA," + b"x" * (20 * MB), "text/csv"),
    ("a quote that never ends", WRONG, lambda: b'code,name\nA,"' + b"x\n" * (10 * MB), "text/csv"),
    ("zeros", "failed", lambda: b"code,name\n" + bytes(MB), "text/csv"),
    ("a million columns", WRONG, lambda: b"x," * MB + b"code\n", "text/csv"),
    ("a column twice", WRONG, lambda: b"code,code\n1,2\n", "text/csv"),
    ("a row with a million cells", "failed", lambda: b"code,name\n" + b"x," * MB + b"\n", "text/csv"),
    ("no UTF-8", "completed", lambda: b"code,name\nA,\xff\n", "text/csv"),
    ("half of UTF-16", BAD, lambda: "code,name\nA,a".encode("utf-16")[:-1], "text/csv"),
    ("a charset that is none", "unsupported_media_type", lambda: b"code,name\nA,a\n", "text/csv; charset=nothing"),
    ("a charset that compresses", "unsupported_media_type", lambda: zlib.compress(b"x" * MB), "text/csv; charset=zlib"),
    ("a charset of names", "unsupported_media_type", lambda: b"code,name\nA,a\n", "text/csv; charset=rot13"),
    ("a byte order mark alone", BAD, lambda: b"\xef\xbb\xbf", "text/csv"),
    ("a number of 5,000 digits", "failed", lambda: b"code,name,symbol\nA,a,b\n,,\n" + b"9" * 5000 + b",,\n", "text/csv"),
]  # fmt: skip

UNITS = "<units>{}<unit><code>A</code><name>{}</name></unit></units>"
XML: list[tuple[str, str, Callable[[], bytes]]] = [
    ("entities in entities", BAD, lambda: (LAUGHS + UNITS.format("", "&i;")).encode()),
    ("an entity of a file", WRONG, lambda: (OUTSIDE + UNITS.format("", "&a;")).encode()),
    ("a parameter entity", WRONG, lambda: ('<!DOCTYPE u [<!ENTITY % p SYSTEM "http://127.0.0.1:1/x"> <!ENTITY a "b"> %p;]>' + UNITS.format("", "x")).encode()),
    ("a text repeated by an entity", BAD, lambda: (f'<!DOCTYPE u [<!ENTITY a "{"x" * 50_000}">]>' + UNITS.format("", "&a;" * 50_000)).encode()),
    ("an undefined entity", BAD, lambda: UNITS.format("", "&a;").encode()),
    ("deep elements", BAD, lambda: ("<units>" + "<a>" * 100_000).encode()),
    ("a text of 30 MB", BAD, lambda: UNITS.format("", "x" * (30 * MB)).encode()),
    ("an attribute of 20 MB", BAD, lambda: UNITS.format(f'<a b="{"x" * (20 * MB)}"/>', "x").encode()),
    ("half of it", BAD, lambda: UNITS.format("", "x").encode()[:-10]),
    ("an unknown encoding", BAD, lambda: b'<?xml version="1.0" encoding="none"?>' + UNITS.format("", "x").encode()),
    ("a character that is none", BAD, lambda: UNITS.format("", "&#0;").encode()),
    ("spaces without a root", WRONG, lambda: b" " * (3 * MB)),
    ("another root", WRONG, lambda: b"<html/>"),
]  # fmt: skip

JSON: list[tuple[str, str, Callable[[], bytes]]] = [
    ("arrays that nest deep", WRONG, lambda: b'{"units":' + b"[" * 200_000),
    ("objects that nest deep", WRONG, lambda: b'{"units":[{"code":' + b'{"a":' * 100_000),
    ("a record of 65 MB", WRONG, lambda: b'{"units":[{"code":"' + b"x" * (65 * MB) + b'"}]}'),
    ("half of it", BAD, lambda: b'{"units":[{"code":"A"'),
    ("NaN", BAD, lambda: b'{"units":[{"code":NaN}]}'),
    ("no UTF-8", BAD, lambda: b'{"units":[{"code":"\xff"}]}'),
]

JSON_BOMB = repeated('{"units":[', " ", BOMB, "]}")
CSV_BOMB = repeated("code,name,symbol\n", f"A,a,{'x' * 30_000}\n", BOMB)
XML_BOMB = repeated("<units>", f"<unit><name>{'y' * 10_000}</name></unit>", BOMB, "</units>")
GOOD_JSON, GOOD_CSV = b'{"units":[{"code":"A","name":"a"}]}', b"code,name\nA,a\n"

COMPRESSED: list[tuple[str, str, Callable[[], bytes], str, str, str]] = [
    ("a gzip bomb of JSON", LARGE, JSON_BOMB.gzip, "application/json", "import", "gzip"),
    ("a zstd bomb of JSON", LARGE, JSON_BOMB.zstd, "application/json", "import", "zstd"),
    ("a gzip bomb of CSV", LARGE, CSV_BOMB.gzip, "text/csv", "import?entity=units", "gzip"),
    ("a gzip bomb through a mapper", LARGE, CSV_BOMB.gzip, "text/csv", "import?mapper=lines", "gzip"),
    ("a zstd bomb through a mapper", LARGE, CSV_BOMB.zstd, "text/csv", "import?mapper=lines", "zstd"),
    ("half of gzip", BAD, lambda: gzip.compress(GOOD_JSON)[:-9], "application/json", "import", "gzip"),
    ("no gzip", BAD, lambda: GOOD_JSON, "application/json", "import", "gzip"),
    ("no zstd", BAD, lambda: GOOD_JSON, "application/json", "import", "zstd"),
    ("gzip in gzip", BAD, lambda: gzip.compress(gzip.compress(GOOD_JSON)), "application/json", "import", "gzip"),
    ("gzip and then something", BAD, lambda: gzip.compress(GOOD_JSON) + b"more", "application/json", "import", "gzip"),
    ("a zstd window of 2 GB", BAD, lambda: b"\x28\xb5\x2f\xfd\x00\xa8" + bytes(100), "application/json", "import", "zstd"),
    ("20,000 empty gzip members", BAD, lambda: gzip.compress(b"") * 20_000, "application/json", "import", "gzip"),
    ("an unknown coding", "unsupported_media_type", lambda: GOOD_JSON, "application/json", "import", "br"),
    ("a gzip bomb to preview", LARGE, CSV_BOMB.gzip, "text/csv", "mappers/lines/preview", "gzip"),
    ("a zstd bomb to preview", LARGE, CSV_BOMB.zstd, "text/csv", "mappers/lines/preview", "zstd"),
    ("a gzip bomb as a mapper", "invalid_mapper", repeated("type csv\n", "#", BOMB).gzip, "text/plain", "mappers/bomb", "gzip"),
    ("a mapper of nested functions", "invalid_mapper", lambda: ("type csv units = 'row' { code = " + "upper(" * 20_000 + "'c'").encode(), "text/plain", "mappers/deep", ""),
    ("a mapper of 20 MB", LARGE, lambda: b"type csv" + b" " * (20 * MB), "text/plain", "mappers/large", ""),
]  # fmt: skip

FILES = [
    *(Hostile(f"xlsx: {name}", code, make, XLSX) for name, code, make in WORKBOOKS),
    *(Hostile(f"csv: {name}", code, make, type) for name, code, make, type in CSV),
    *(Hostile(f"xml: {name}", code, make, "application/xml") for name, code, make in XML),
    *(Hostile(f"json: {name}", code, make, "application/json", "import?mapper=tree") for name, code, make in JSON),
    *(
        Hostile(f"{path}: {name}", code, make, type, path, coding, "PUT" if path.startswith("mappers/") and "/preview" not in path else "POST")
        for name, code, make, type, path, coding in COMPRESSED
    ),
    Hostile("preview: a row 1000000000", WRONG, lambda: book(numbered("1000000000")), XLSX, "mappers/book/preview"),
    Hostile("preview: a cell of 30 MB", "previewed", lambda: book(long_text(30 * MB)), XLSX, "mappers/book/preview"),
    Hostile("mapper: a cell of 30 MB", "invalid_value", lambda: book(long_text(30 * MB)), XLSX, "import?mapper=book"),
    Hostile("mapper: elements that nest deep", WRONG, lambda: book(around(lambda b, a: repeated(b, "<a>", 20 * MB, a))), XLSX, "import?mapper=book"),
]  # fmt: skip

# on the page of imports: name of the file, the choice of what reads it, content
UPLOADS: list[tuple[str, str, str, Callable[[], bytes]]] = [
    ("a.json.gz", "", LARGE, JSON_BOMB.gzip),
    ("a.json.zst", "", LARGE, JSON_BOMB.zstd),
    ("a.csv.gz", "entity:units", LARGE, CSV_BOMB.gzip),
    ("a.csv.gz", "lines", LARGE, CSV_BOMB.gzip),
    ("a.xml.gz", "entity:units", LARGE, XML_BOMB.gzip),
    ("a.xlsx", "entity:units", WRONG, lambda: book(numbered("1000000000"))),
    ("b.xlsx", "entity:units", "invalid_value", lambda: book(long_text(30 * MB))),
    ("a.xlsx.gz", "entity:units", WRONG, lambda: gzip.compress(book(numbered("1000000000")))),
    ("c.xlsx", "book", WRONG, lambda: book(around(lambda b, a: repeated(b, "<a>", 20 * MB, a)))),
    ("a.json.gz", "", BAD, lambda: gzip.compress(GOOD_JSON)[:-9]),
]

assert UNIT == MB
