"""A valid document gives exactly its records, in chunks of any size; any other is refused with the position of the error."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import ServiceError
from app.feed import cutter, document
from app.feed.document import Directive, Document, Records
from app.wire.decoding import continue_arrays, decode

pytestmark = pytest.mark.slow

JSON_SPACE = st.text(" \t\n\r", max_size=3)
# texts that look like the ends of records and arrays, and like escapes
TEXTS = st.one_of(
    st.text(max_size=8).filter(lambda t: not re.search("[\ud800-\udfff]", t)),
    st.sampled_from(["},{", '"},{"', "]", "}]", "[{", "\\", '\\"', "\\u0000", "\x00\x01\x02\x03", "}\n,\n{", "\U0001f600", ""]),
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(10**30), 10**30), TEXTS)
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXTS, v, max_size=3), max_leaves=8)
RECORDS = st.dictionaries(TEXTS, VALUES, max_size=4)
COLLECTIONS = st.one_of(st.lists(RECORDS, max_size=6), RECORDS, st.none())
NAMES = st.sampled_from(["units", "products", 'a"},{"b'])
MEMBERS = st.lists(st.tuples(NAMES, COLLECTIONS) | st.tuples(st.sampled_from(["@atomic", "units@removeAll"]), SCALARS), max_size=4)


@st.composite
def documents(draw: st.DrawFn) -> tuple[bytes, list[tuple[str, Any]]]:
    """(text, members) of an import document, with white space wherever JSON allows it."""
    members = draw(MEMBERS)
    ascii_only = draw(st.booleans())
    text = (
        "{"
        + ",".join(json.dumps(k, ensure_ascii=ascii_only) + ":" + json.dumps(v, ensure_ascii=ascii_only) for k, v in members)
        + "}"
    )
    spaces = draw(st.lists(JSON_SPACE, min_size=1, max_size=7))
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', text, re.DOTALL)
    return "".join(t + spaces[n % len(spaces)] for n, t in enumerate(tokens)).encode(), members


def chunks(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at, n = 0, 0
    while at < len(data):
        size = sizes[n % len(sizes)]
        yield data[at : at + size]
        at, n = at + size, n + 1


def read(parts: Iterable[bytes]) -> list[tuple[str, Any]]:
    """(name, record or value) in order; an empty collection is (name, None)."""
    reader, found = Document(), []
    for part in parts:
        found += list(reader.feed(part))
    found += list(reader.finish())
    return list(flat(found))


def flat(found: Iterable[Records | Directive]) -> Iterator[tuple[str, Any]]:
    for part in found:
        if isinstance(part, Directive):
            yield part.name, part.value
        else:
            yield from ((part.collection, record) for record in part.records)


def expected(members: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    for name, value in members:
        if "@" in name:
            yield name, value
        else:
            yield from ((name, record) for record in (value if isinstance(value, list) else [] if value is None else [value]))


@settings(max_examples=300)
@given(documents(), st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(1, 60), st.integers(0, 4))
def test_a_document_gives_its_records_in_chunks_of_any_size(
    text: tuple[bytes, list[tuple[str, Any]]], sizes: list[int], block: int, guesses: int
) -> None:
    data, members = text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "BLOCK", block)
        patch.setattr(cutter, "GUESSES", guesses)
        assert read(chunks(data, sizes)) == list(expected(members))
        assert read(chunks(data, [1])) == list(expected(members))
        assert read([data]) == list(expected(members))


@settings(max_examples=300)
@given(documents(), st.data(), st.integers(1, 60))
def test_a_broken_document_is_refused(text: tuple[bytes, Any], data: st.DataObject, block: int) -> None:
    whole = text[0]
    at = data.draw(st.integers(0, len(whole)))
    junk = data.draw(st.sampled_from([b"", b",", b"}", b"]", b"{", b'"', b"\xff", b"\xed\xa0\x80", b"\0", b"\\", b"nan", b"-"]))
    broken = whole[:at] + junk + whole[at + data.draw(st.integers(0, 3)) :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document, "BLOCK", block)
        outcomes = [outcome(chunks(broken, [size])) for size in (1, 7, 1 << 20)]
    valid = is_valid(broken)
    for refused in outcomes:
        assert refused is None or refused in ("malformed_document", "invalid_document", "invalid_directive")
        assert valid or refused is not None
        assert not valid or refused != "malformed_document"


def outcome(parts: Iterable[bytes]) -> str | None:
    data = b"".join(parts)
    try:
        read([data])
    except ServiceError as error:
        assert 0 <= error.more["offset"] <= len(data)
        before = data[: error.more["offset"]]
        assert error.more["line"] == before.count(b"\n") + 1
        assert error.more["column"] == len(before) - before.rfind(b"\n")
        return error.code
    return None


def is_valid(data: bytes) -> bool:
    def refuse(text: str) -> None:
        raise ValueError(text)

    try:
        text = data.decode()
        json.loads(text, parse_constant=refuse, object_pairs_hook=list)  # a list keeps repeated names
    except (ValueError, UnicodeError):
        return False
    return True


SMALL = b'{"@atomic": false, "units": [{"code": "A", "n": [1, -2.5e3, {"x": "\\u00e9\xc3\xa9},{"}]}, {"code": null}], "products": {"code": "B"}}'


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_document_truncated_at_any_byte_is_malformed(size: int) -> None:
    assert [record for _, record in read(chunks(SMALL, [size]))][-1] == {"code": "B"}
    for end in range(len(SMALL)):
        with pytest.raises(ServiceError) as refused:
            read(chunks(SMALL[:end], [size]))
        assert refused.value.code == "malformed_document", end
        assert refused.value.more["offset"] <= end


BROKEN: list[tuple[bytes, str, int | None]] = [
    # document, code, offset of the error (None: not checked)
    (b"", "malformed_document", 0),
    (b"[]", "malformed_document", 0),
    (b"null", "malformed_document", 0),
    (b'{"units":[]} x', "malformed_document", 13),
    (b'{"units":[]}{}', "malformed_document", 12),
    (b'{"units":[],}', "malformed_document", 12),
    (b'{,"units":[]}', "malformed_document", 1),
    (b'{"units":[{"code":"A"},]}', "malformed_document", 23),
    (b'{"units":[,{"code":"A"}]}', "malformed_document", 10),
    (b'{"units":[{"code":"A"}{"code":"B"}]}', "malformed_document", 22),
    (b'{"units":[{"code":"A"}]]}', "malformed_document", 23),
    (b'{"units":[{"code":"A"}}]', "malformed_document", 22),
    (b'{"units":[{"code":"A",}]}', "malformed_document", 22),
    (b'{"units":[{"code" "A"}]}', "malformed_document", 18),
    (b'{"units" []}', "malformed_document", 9),
    (b"{units:[]}", "malformed_document", 1),
    (b'{"units":[{"code":"\xff"}]}', "malformed_document", 19),
    (b'{"units":[{"code":"\xed\xa0\x80"}]}', "malformed_document", 19),
    (b'{"units":[{"code":"\\ud800"},{"n":2' + b"0" * 5_000 + b"},?]}", "malformed_document", 5036),
    (b'{"units":[{"code":"\\udc0"}]}', "malformed_document", None),
    (b'{"units":[{"code":"a\0b"}]}', "malformed_document", 20),
    (b'{"units":[{"code":"a\nb"}]}', "malformed_document", 20),
    (b'{"units":[{"code":NaN}]}', "malformed_document", 18),
    (b'{"units":[{"code":01}]}', "malformed_document", None),
    (b'{"units":[{"n":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", "malformed_document", None),
    (b'{"units":[' + b"[" * 1_000_000, "malformed_document", None),
    (b'{"units":7}', "invalid_document", 9),
    (b'{"units":"A"}', "invalid_document", 9),
    (b'{"units":true}', "invalid_document", 9),
    (b'{"@atomic":]}', "malformed_document", 11),
    (b'{"@atomic":}', "malformed_document", 11),
    (b'{"@atomic":tru}', "malformed_document", 14),
    (b'{"@atomic":{}}', "invalid_directive", 11),
    (b'{"units@removeAll":[]}', "invalid_directive", 19),
]


@pytest.mark.parametrize(("data", "code", "offset"), BROKEN, ids=[str(n) for n in range(len(BROKEN))])
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_an_error_has_its_position(data: bytes, code: str, offset: int | None, size: int) -> None:
    with pytest.raises(ServiceError) as refused:
        read(chunks(data, [max(size, len(data) // 100)]))
    assert refused.value.code == code
    assert not re.search("recursion|codec|Error", refused.value.message)
    if offset is not None:
        assert refused.value.more["offset"] == offset, refused.value.message


def test_a_position_has_line_and_column() -> None:
    with pytest.raises(ServiceError, match=r"^line 3, column 4 \(byte 27\): expected ',' or '\]'$") as refused:
        read([b'{"units":\n[{"code":"A"}\n   {}]}'])
    assert refused.value.more == {"offset": 27, "line": 3, "column": 4}


@pytest.mark.parametrize("content", [b"1, ", b'"text", ', b"[], ", b'{"n": "'], ids=["numbers", "texts", "arrays", "one text"])
def test_memory_is_bounded_where_no_record_ends(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "BLOCK", 1 << 10)
    monkeypatch.setattr(document, "LARGEST_RECORD", 1 << 16)
    reader, sent = Document(), 0
    list(reader.feed(b'{"units": ['))
    with pytest.raises(ServiceError) as refused:
        while sent < 1 << 20:
            for part in reader.feed(content * 64):
                assert isinstance(part, Records)
                if not all(isinstance(record, dict) for record in part.records):
                    raise ServiceError("invalid_document", "expected an object")  # as Rows does
            sent += len(content) * 64
    assert refused.value.code == "invalid_document"
    assert sent <= (1 << 16) + len(content) * 128


def test_a_repeated_collection_continues() -> None:
    assert read([b'{"units":[{"code":1}],"products":[],"units":{"code":2},"units":[{"code":3}]}']) == [
        ("units", {"code": 1}),
        ("units", {"code": 2}),
        ("units", {"code": 3}),
    ]


CONTINUED = [
    ('{"items":[{"a":1}],"x":1,"items":[{"a":2},{"a":3}],"x":2}', {"items": [{"a": 1}, {"a": 2}, {"a": 3}], "x": 2}),
    ('{"items":{"a":1},"items":null,"items":{"a":"1.50"}}', {"items": [{"a": 1}, {"a": "1.50"}]}),
    ('{"items":[],"items":[{"a":"items"}]}', {"items": [{"a": "items"}]}),
    ('{"items":[{"a":1}],"\\u0069tems":[{"a":1.50}]}', {"items": [{"a": 1}, {"a": "1.50"}]}),
    ('{"items":[{"parts":[{"b":1}],"parts":[{"b":2}]},{}]}', {"items": [{"parts": [{"b": 1}, {"b": 2}]}, {}]}),
    ('{"items" : [{"a":"\\"items\\":[]"}]}', {"items": [{"a": '"items":[]'}]}),
    ('{"x":["items"],"x":["items"],"note":"items"}', {"x": ["items"], "note": "items"}),
]


@pytest.mark.parametrize(("text", "record"), CONTINUED)
def test_a_repeated_array_of_a_record_continues(text: str, record: dict[str, Any]) -> None:
    block = text.encode()
    assert continue_arrays(block, decode(block)[0], {"items", "parts"}) == record


def test_numbers_keep_every_digit() -> None:
    assert read([b'{"units":[{"a":1.10,"b":123456789012345678901234567890,"c":-0.0e-7}]}']) == [
        ("units", {"a": "1.10", "b": 123456789012345678901234567890, "c": "-0.0e-7"})
    ]


def test_records_larger_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their texts look like the ends of records and arrays."""
    monkeypatch.setattr(document, "BLOCK", 256)
    records = [{"code": n, "text": '}]},{"' * 100, "items": [{"x": "]"}] * 20} for n in range(5)]
    data = json.dumps({"units": records}).encode()
    assert [record for _, record in read(chunks(data, [100]))] == records
