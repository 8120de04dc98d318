"""JSON Lines of an entity: each line is a record, whatever the pieces in which they arrive; what is none is an error with its line."""

from __future__ import annotations

import pytest

from app.errors import ServiceError
from app.formats import JSONL
from app.mapper.document import SourceConverter
from app.mapper.exported import exported_mapper
from app.mapper.sources import jsonl_source
from tests.export.exported import send
from tests.feed.conftest import Feed, counts

LINES = (
    '\ufeff{"code":"A","name":"a\\n","price":1.10}\r\n\n {"code":"B","name":"ü","variants":[{"code":"V","name":"v"}]} \n{"code":"C"'
)


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_each_line_is_a_record(feed: Feed, chunk: int) -> None:
    report = send(feed, "products", (LINES + ',"name":"no end"}').encode(), chunk)
    assert counts(report) == {"products": {"created": 3}, "productVariants": {"created": 1}}
    assert [(code, name, str(price)) for code, name, price in feed.rows("products", "code", "name", "price")] == [
        ("A", "a\n", "1.1000"), ("B", "ü", "None"), ("C", "no end", "None"),
    ]  # fmt: skip


REPEATED = {
    "json": b"""{"products":[{"code":"A","name":"x","variants":[{"code":"V"}],"name":"a","variants":{"code":"W"}}]}""",
    "jsonl": b"""{"code":"A","name":"x","variants":[{"code":"V"}],"name":"a","variants":{"code":"W"}}""",
    "xml": b"""<products><product><code>A</code><name>x</name><variants><variant><code>V</code></variant></variants>
        <name>a</name><variants><variant><code>W</code></variant></variants></product></products>""",
}


@pytest.mark.parametrize("format", REPEATED)
def test_a_repeated_child_array_continues_and_a_repeated_field_keeps_its_last_value(feed: Feed, format: str) -> None:
    body = REPEATED[format]
    report = feed.send(body) if format == "json" else send(feed, "products", body)
    assert counts(report) == {"products": {"created": 1}, "productVariants": {"created": 2}}
    assert feed.rows("products", "name") == [("a",)] and sorted(feed.rows("productVariants", "code")) == [("V",), ("W",)]


def test_an_error_of_a_record_has_its_line(feed: Feed) -> None:
    report = send(feed, "products", b'{"code":"A","name":"a"}\n\n{"code":"B","name":"b","nope":1}\n')
    [error] = [each for each in report["errors"] if each["code"] != "batch_failed"]
    assert (error["code"], "line 3" in error["path"] + error["message"]) == ("unknown_field", True), error


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (LINES, "malformed_document", "line 4: the record does not end on its line; a JSON document"),
        ('{"code":"A"},{"code":"B"}', "malformed_document", "line 1, column 13: trailing characters"),
        ('{"code":"A"}\n[{"code":"B"}]', "invalid_document", "line 2: expected an object"),
        ('{"code":"A"}],"orders":[{}', "malformed_document", "line 1, column 13: trailing characters"),
        ('{\n"units": []}', "malformed_document", "line 1: the record does not end on its line"),
        (
            '\n{"code":"A","name":' + "[" * 100_000,
            "malformed_document",
            "line 2, column 1: arrays and objects are nested too deeply",
        ),
        ('{"code":"\udcff"}', "malformed_document", "line 1, column 10: expected UTF-8"),
        ("{" + "x" * 300, "invalid_document", "line 1: a record is larger than 0 MB"),
    ],
)
def test_what_is_no_record_is_an_error_with_its_line(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, body: str, code: str, message: str
) -> None:
    if "larger" in message:
        monkeypatch.setattr(jsonl_source, "LARGEST_RECORD", 200)
    converter = SourceConverter(exported_mapper(feed.catalog, "products", JSONL))
    with pytest.raises(ServiceError) as caught:
        converter.feed(body.encode(errors="surrogateescape"))
        list(converter.finish())
    assert (caught.value.code, caught.value.message[: len(message)]) == (code, message)
