"""JSON sources: JSONPath for blocks and fields in documents of any shape, and errors with their position."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.errors import ServiceError
from app.mapper.sources import json_source
from tests.mapper.conftest import Run

# path of the block, source, codes of its records
BLOCKS: list[tuple[str, str, list[Any]]] = [
    ("$[*]", '[{"c": 1}, {"c": 2}]', [1, 2]),
    ("$", '[{"c": 1}, {"c": 2}]', [1, 2]),
    ("$", '{"c": 1}', [1]),
    ("$.a", '{"a": [{"c": 1}, {"c": 2}]}', [1, 2]),
    ("a", '{"x": {"a": [{"c": 0}]}, "a": [{"c": 1}]}', [1]),
    ("$.a[*]", '{"a": [{"c": 1}], "b": [{"c": 2}], "a2": {"a": [{"c": 3}]}}', [1]),
    ("$.a[*]", '{"a": {"x": {"c": 1}, "y": {"c": 2}}}', [1, 2]),
    ("$.a", '{"a": {"c": 1}}', [1]),
    ("$.a", '{"a": []}', []),
    ("$.a.b.c[*]", '{"a": {"b": {"c": [{"c": 1}], "d": [{"c": 2}]}}}', [1]),
    ("$.a[*].b[*]", '{"a": [{"b": [{"c": 1}, {"c": 2}]}, {"b": [{"c": 3}]}, {}]}', [1, 2, 3]),
    ("$.a[*].b", '{"a": [{"b": [{"c": 1}]}, {"b": {"c": 3}}]}', [1, 3]),
    ("$['a b']", '{"a b": [{"c": 1}]}', [1]),
    ("a-b", '{"a-b": [{"c": 1}]}', [1]),
    ("$..p", '{"p": [{"c": 1, "p": {"c": 2}}], "x": [{"p": {"c": 3}}]}', [1, 2, 3]),
    ("$..p[*]", '{"p": [{"c": 1}], "x": {"p": [{"c": 2}]}}', [1, 2]),
    ("$.a[?@.k == 'x']", '{"a": [{"c": 1, "k": "x"}, {"c": 2, "k": "y"}, {"c": 3}]}', [1]),
    ("$.a[?@.n > 1.5]", '{"a": [{"c": 1, "n": 1.5}, {"c": 2, "n": 1.6}, {"c": 3, "n": 2}]}', [2, 3]),
    ("$.a[?@.n == 1.0]", '{"a": [{"c": 1, "n": 1}, {"c": 2, "n": 1.0}]}', [1, 2]),
    ("$..none", '{"a": [{"c": 1}]}', []),
    ("$.a", '{"a": null}', []),
    ("$.a", '{"a": 7}', [{"@invalid": "expected an object, got 7"}]),
    (
        "$.a",
        '{"a": [null, true, "x", [], {"c": 1}]}',
        [
            *({"@invalid": f"expected an object, got {what}"} for what in ("null", "true", "'x'", "an array")),
            1,
        ],
    ),
]


@pytest.mark.parametrize("chunk", [1, 1 << 20])
@pytest.mark.parametrize(("path", "source", "expected"), BLOCKS, ids=range(len(BLOCKS)))
def test_the_records_of_a_block(run: Run, path: str, source: str, expected: list[Any], chunk: int) -> None:
    quoted = path.replace("'", "''")
    document = run(f"type json\nunits = '{quoted}' {{ code = 'c' }}", source, chunk)
    assert [record.get("code", "-") for record in document["units"]] == expected


# fields, element, record
VALUES: list[tuple[str, str, Any]] = [
    ("name = 'n'", '{"n": "x"}', {"name": "x"}),
    ("name = 'n'", '{"n": ""}', {"name": ""}),
    ("name = 'n'", '{"n": null}', {"name": None}),
    ("name = 'n'", "{}", {}),
    ("name = 'n'", "7", {"name": {"@invalid": "expected an object, got 7"}}),
    ("name = '$[0]'", '["x"]', {"name": "x"}),
    (
        "variants = 'v' { code = 'c' }",
        '{"v": [{"c": 1}, null, 7]}',
        {
            "variants": [{"code": 1}, *({"code": {"@invalid": f"expected an object, got {what}"}} for what in ("null", "7"))],
        },
    ),
    ("name = concat('n')", '{"n": 1e1001}', {"name": {"@invalid": "expected a number of at most 1,000 digits"}}),
    ("name = concat('n')", '{"n": 0e-99999999}', {"name": {"@invalid": "expected a number of at most 1,000 digits"}}),
    ("id[code] = 'n'", '{"n": 1e99999999}', {"id": {"@invalid": "expected a number of at most 1,000 digits"}}),
    ("name = '@'", '"x"', {"name": "x"}),
    ("name = '$.a.b'", '{"a": {"b": "x"}}', {"name": "x"}),
    ("name = '@.a.b'", '{"a": {"b": "x"}}', {"name": "x"}),
    ("name = 'a.b'", '{"a": [1]}', {}),
    ("name = 'a[1]'", '{"a": ["x", "y"]}', {"name": "y"}),
    ("name = '$[\"a.b\"]'", '{"a.b": "x"}', {"name": "x"}),
    ("name = 'a[?@.k==1].v'", '{"a": [{"k": 2, "v": "x"}, {"k": 1, "v": "y"}]}', {"name": "y"}),
    ("name = '$..v'", '{"a": [{"v": "x"}]}', {"name": "x"}),
    ("price = 'p'", '{"p": 1.10}', {"price": "1.10"}),
    ("price = 'p'", '{"p": 12345678901234567890.123456789}', {"price": "12345678901234567890.123456789"}),
    ("price = 'p'", '{"p": 5}', {"price": 5}),
    ("price = 'p * 2'", '{"p": 5}', None),
    ("price = 'p' * 2", '{"p": 1.10}', {"price": "2.20"}),
    ("active = 'a'", '{"a": true}', {"active": True}),
    ("active = not 'a'", '{"a": true}', {"active": False}),
    ("name = concat('a', 'b', 'c')", '{"a": true, "b": 1.50, "c": "x"}', {"name": "true1.50x"}),
    ("name = 'a'", '{"a": {"b": 1}}', {"name": {"@invalid": "expected a single value, got an object"}}),
    ("name = 'a'", '{"a": []}', {"name": {"@invalid": "expected a single value, got an array"}}),
    ("category[code] = 'c'", '{"c": 5}', {"category": "code:5"}),
    ("category[code] = 'c'", '{"c": null}', {"category": None}),
    ("variants = 'v' { code = 'c' }", '{"v": [{"c": 1}, {"c": 2}]}', {"variants": [{"code": 1}, {"code": 2}]}),
    ("variants = 'v[*]' { code = '@' }", '{"v": ["a", "b"]}', {"variants": [{"code": "a"}, {"code": "b"}]}),
    ("variants = '$.v[*]' { code = 'c' }", '{"v": {"x": {"c": 1}}}', {"variants": [{"code": 1}]}),
    ("variants = 'v' { code = 'c' }", '{"v": {"c": 1}}', {"variants": [{"code": 1}]}),
    ("variants = 'v' { code = 'c' }", '{"v": null}', {"variants": []}),
    ("variants = 'v' { code = 'c' }", '{"v": []}', {"variants": []}),
    ("variants = 'v' { code = 'c' }", "{}", {}),
    ("variants = 'v' { @removeAll = 'true' code = 'c' }", "{}", {"variants": [], "variants@removeAll": True}),
    ("variants = 'v[?@.x]' { code = 'c' }", '{"v": [{"c": 1}, {"c": 2, "x": 0}]}', {"variants": [{"code": 2}]}),
    ("variants = 'v[?@.x]' { code = 'c' }", '{"v": [{"c": 1}]}', {"variants": []}),
    ("variants = 'v[?@.x]' { code = 'c' }", '{"v": null}', {"variants": []}),
    ("variants = 'v[?@.x]' { code = 'c' }", '{"w": 1}', {}),
    ("variants = 'v[1:]' { code = 'c' }", '{"v": [{"c": 1}]}', {"variants": []}),
    ("variants = 'v[*][*]' { code = 'c' }", '{"v": [[]]}', {"variants": []}),
    ("variants = '$[?@.x]' { code = 'c' }", '{"v": {"c": 1}}', {"variants": []}),
    ("variants = '$..v' { code = 'c' }", '{"w": {"v": [{"c": 1}, {"c": 2}]}}', {"variants": [{"code": 1}, {"code": 2}]}),
    ("variants = '$..v[*]' { code = 'c' }", '{"w": {"v": [{"c": 1}, {"c": 2}]}}', {"variants": [{"code": 1}, {"code": 2}]}),
    ("variants = '$..v' { code = 'c' }", '{"w": {"v": []}}', {"variants": []}),
    ("variants = '$..v' { code = 'c' }", '{"w": {"v": null}}', {"variants": []}),
    ("variants = '$..v' { code = 'c' }", '{"w": {}}', {}),
    ("variants = '$..v[*]' { code = 'c' }", '{"w": {}}', {}),
    ("variants = '$..v[?@.x]' { code = 'c' }", '{"w": {"v": [{"c": 1}]}}', {"variants": []}),
    ("variants = '$..v[?@.x]' { code = 'c' }", '{"w": {}}', {}),
    ("variants = 'w[*].v' { code = 'c' }", '{"w": [{}]}', {}),
]


@pytest.mark.parametrize(("fields", "element", "expected"), VALUES, ids=range(len(VALUES)))
def test_the_record_of_an_element(run: Run, fields: str, element: str, expected: Any) -> None:
    text = f"type json\nproducts = '$[*]' {{ {fields} }}"
    if expected is None:
        with pytest.raises(ServiceError, match="invalid JSONPath"):
            run(text, f"[{element}]")
    else:
        assert run(text, f"[{element}]")["products"] == [expected]


REPEATED = [
    ("$.p { code = 'c' }", '{"p": {"c": "a", "c": "b"}}', [{"code": "b"}]),
    ("$.p { code = 'c.d' }", '{"p": {"c": {"d": "a"}, "c": {"d": "b"}}}', [{"code": "b"}]),
    ("$.p { code = 'c[0]' }", '{"p": {"c": ["a"], "c": ["b"]}}', [{"code": "b"}]),
    (
        "$.p { code = 'c' }",
        '{"p": [{"c": "a"}], "p": {"c": "b"}, "p": null, "p": [{"c": "c"}]}',
        [{"code": code} for code in "abc"],
    ),
    *(
        (f"$.p {{ variants = '{path}' {{ code = 'c' }} }}", f'{{"p": {{{source}}}}}', [{"variants": [{"code": 1}, {"code": 2}]}])
        for path, source in (
            ("v", '"v": [{"c": 1}], "v": [{"c": 2}]'),
            ("v", '"v": {"c": 1}, "v": null, "v": {"c": 2}'),
            ("v[*]", '"v": {"x": {"c": 1}}, "v": {"x": {"c": 2}}'),
            ("v[?@.c]", '"v": [{"c": 1}], "v": [{"c": 2}, {}]'),
            ("o.v", '"o": {"v": [{"c": 1}], "v": {"c": 2}}'),
            ("$..v", '"o": {"v": {"c": 1}, "v": {"c": 2}}'),
        )
    ),
    (
        "$.p[*].v[*] { code = 'c' } units = '$.p' { name = 'n' }",
        '{"p": [{"v": [{"c": 1}], "v": [{"c": 2}]}]}',
        [{"code": 1}, {"code": 2}],
    ),
]


@pytest.mark.parametrize(("block", "source", "expected"), REPEATED, ids=range(len(REPEATED)))
def test_a_repeated_collection_continues_and_a_repeated_member_keeps_its_last_value(
    run: Run, block: str, source: str, expected: list[Any]
) -> None:
    path, rest = block.split(" ", 1)
    assert run(f"type json\nproducts = '{path}' {rest}", source)["products"] == expected


def test_only_numbers_in_text_are_read_by_the_language(run: Run) -> None:
    text = "type json @language = 'de'\nproducts = '$' { code = 'c' price = 'p' }"
    assert run(text, '[{"p": 1.5}, {"p": "1,5"}, {"p": "1.500"}]')["products"] == [
        {"price": "1.5"},
        {"price": "1.5"},
        {"price": "1500"},
    ]


@pytest.mark.parametrize(
    ("number", "text"), [("1e3", "1000"), ("1.50E+4", "15000"), ("1e-7", "0.0000001"), ("1.50", "1.50"), ("12", "12")]
)
def test_a_number_is_one_text_wherever_it_stands(run: Run, number: str, text: str) -> None:
    mapper = "type json products = '$' { code = 'n' name = default('n', \"x\") description = concat('n') category[code] = 'n' }"
    (record,) = run(mapper, f'[{{"n": {number}}}]')["products"]
    assert {name: str(value) for name, value in record.items()} == {
        "code": text, "name": text, "description": text, "category": f"code:{text}",
    }  # fmt: skip


def test_several_blocks_and_directives(run: Run) -> None:
    text = """type json @atomic = "false" @mode = 'merge'
    units = '$.u' { @removeAll = 'false' code = 'c' } products = '$.u' { @operation = "delete" code = 'c' } units = '$.v' { code = 'c' }"""
    assert run(text, '{"v": [{"c": 2}], "u": [{"c": 1}]}') == {
        "@atomic": False, "@mode": "merge", "units": [{"code": 2}, {"code": 1}], "units@removeAll": False,
        "products": [{"code": 1, "@operation": "delete"}],
    }  # fmt: skip


REFUSED = [
    ("", "line 1, offset 0: parse error: premature EOF"),
    ('{"a": [{"c": 1}', "line 1, offset 15: "),
    ('{"a": [\n{"c": 1},\n{"c": }]}', "line 3, offset 24: "),
    ('{"a": [\n{"c": "' + "x" * 100 + '", "d" 1}]}', "line 2, offset 122: "),  # the offset relies on the layout of yajl's messages
    ('{"a": []} x', "line 1, offset 10: parse error: trailing garbage"),
    ('{"a": ["\x01"]}', "line 1"),
    ("<a/>", "line 1, offset 0: lexical error: invalid char in json text."),
]


@pytest.mark.parametrize(("source", "message"), REFUSED)
def test_a_malformed_document_is_refused_with_its_position(run: Run, source: str, message: str) -> None:
    with pytest.raises(ServiceError) as refused:
        run("type json\nunits = '$.a' { code = 'c' }", source)
    assert refused.value.code == "malformed_document"
    assert refused.value.message.startswith(message), refused.value.message


@pytest.mark.parametrize("chunk", [1, 7, 1999, 2000, 1 << 20])
@pytest.mark.parametrize("number", ["9" * 5_000, "-" + "1" * 100_000, "0." + "3" * 9_999, "1e" + "0" * 6_000, "1e" + "9" * 20])
def test_a_number_that_is_too_long_fails_its_record_alone(run: Run, number: str, chunk: int) -> None:
    source = '{"a": [{"c": "x \\" "},\n{"c": ' + number + '}, {"d": ' + number + ', "c": 17}]}'
    found = run("type json\nunits = '$.a' { code = 'c' }", source, max(chunk, len(number) // 500))
    message = "expected a number of at most 2,000 digits, or a longer one in quotes"
    assert found["units"] == [{"code": 'x " '}, {"code": {"@invalid": message}}, {"code": 17}]


def test_an_error_behind_a_long_number_has_its_position(run: Run) -> None:
    with pytest.raises(ServiceError) as refused:
        run("type json\nunits = '$.a' { code = 'c' }", '{"a": [\n{"c": ' + "9" * 5_000 + "},\n ?]}")
    assert (refused.value.more["line"], refused.value.more["offset"]) == (3, 5018)


@pytest.mark.parametrize("chunk", [7, 1999, 1 << 20])
@pytest.mark.parametrize("text", ["9" * 5_000, "x" + "0" * 9_000 + "y", '\\"' + "1" * 7_000 + "\\\\"])
def test_digits_in_a_text_are_text(run: Run, text: str, chunk: int) -> None:
    source = '{"a": [{"d": "\\\\", "c": "' + text + '", "n": 17}, {"c": "' + text + '"}]}'
    assert run("type json\nunits = '$.a' { code = 'c' }", source, chunk)["units"] == [{"code": json.loads(f'"{text}"')}] * 2


@pytest.mark.parametrize("chunk", [1, 2, 5, 1 << 20])
@pytest.mark.parametrize(
    "text", [r"\ud800", r"\udc00", r"x\ud800\ud800\udc00", r"\ud83d \ude00", r"\\\ud800", r"\ud83d\n", r"\uDBFF\u0041"]
)
def test_an_unpaired_surrogate_is_a_text_that_no_database_stores(run: Run, text: str, chunk: int) -> None:
    found = run("type json\nunits = '$.a' { code = 'c' }", '{"a": [{"c": "' + text + '"}, {"c": "\\ud83d\\ude00"}]}', chunk)
    assert "\0" in found["units"][0]["code"] and found["units"][1] == {"code": "\U0001f600"}


@pytest.mark.parametrize("chunk", [1, 2, 5, 1 << 20])
@pytest.mark.parametrize("text", [r"\ud83d\ude00", r"\\ud800", r"\\\\ud800", r"\\\uD83D\uDE00x", r"\ud7ff\ue000"])
def test_surrogate_pairs_are_text(run: Run, text: str, chunk: int) -> None:
    found = run("type json\nunits = '$.a' { code = 'c' }", '{"a": [{"c": "' + text + '"}]}', chunk)
    assert found["units"] == [{"code": json.loads(f'"{text}"')}]


@pytest.mark.parametrize("chunk", [1, 2, 1 << 20])
def test_a_byte_order_mark_may_arrive_in_pieces(run: Run, chunk: int) -> None:
    assert run("type json\nunits = '$.a' { code = 'c' }", b'\xef\xbb\xbf{"a": [{"c": 1}]}', chunk)["units"] == [{"code": 1}]


@pytest.mark.parametrize("source", ['{"b": [{"c": 1}]}', "[]", "null", '"a"'])
def test_a_document_without_any_of_the_paths_is_refused(run: Run, source: str) -> None:
    with pytest.raises(ServiceError, match=r"none of the mapper's paths, expected \$.a, \$.x\[\*\]") as refused:
        run("type json\nunits = '$.a' { code = 'c' } products = '$.x[*]' { @removeAll = 'true' code = 'c' }", source)
    assert refused.value.code == "invalid_document"


def test_bytes_that_are_not_utf8_are_malformed(run: Run) -> None:
    with pytest.raises(ServiceError, match="invalid bytes in UTF8 string"):
        run("type json\nunits = '$.a' { code = 'c' }", b'{"a": [{"c": "\xff"}]}')


def test_a_record_that_is_too_large_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_source, "LARGEST_RECORD", 1 << 20)
    with pytest.raises(ServiceError, match="a record is larger than 1 MB"):
        run("type json\nunits = '$.a' { code = 'c' }", '{"a": [{"c": [' + "1,\n" * (1 << 20), 1 << 16)


@pytest.mark.slow
def test_values_outside_records_may_be_large(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_source, "LARGEST_RECORD", 1 << 20)
    source = '{"x": [' + "1,\n" * (1 << 20) + '1], "a": [{"c": 1}]}'
    assert run("type json\nunits = '$.a' { code = 'c' }", source, 1 << 16)["units"] == [{"code": 1}]
