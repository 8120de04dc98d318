"""Values of fields: what is stored, and what is refused."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from tests.feed.conftest import Feed, errors

pytestmark = pytest.mark.slow

ACCEPTED = [
    # entity, field, JSON text, stored
    ("products", "price", "12.3456", Decimal("12.3456")),
    ("products", "price", '"12.3456"', Decimal("12.3456")),
    ("products", "price", "12", Decimal(12)),
    ("products", "price", "1.5e3", Decimal(1500)),
    ("products", "price", "-0.0", Decimal(0)),
    ("products", "price", "0.00005", Decimal("0.0001")),  # half away from zero
    ("products", "price", "-0.00005", Decimal("-0.0001")),
    ("products", "price", "0.00004999999999999999999999", Decimal(0)),
    ("products", "price", "1e-16383", Decimal(0)),
    ("products", "price", "999999999999999.9999", Decimal("999999999999999.9999")),
    ("products", "price", "999999999999999.99994", Decimal("999999999999999.9999")),
    ("products", "price", "null", None),
    ("products", "active", "false", False),
    ("products", "active", '"false"', False),
    ("products", "active", "null", True),  # required, back to its default
    ("products", "name", "12.50", "12.50"),
    ("products", "name", "12345678901234567890123", "12345678901234567890123"),
    ("products", "description", '""', ""),
    ("products", "description", '" a "', " a "),
    ("products", "description", r'"a\\b\\N\\."', "a\\b\\N\\."),
    ("products", "description", r'"\\."', "\\."),
    ("products", "description", r'"\\N"', "\\N"),
    ("products", "description", r'"tab\tnewline\nreturn\r\u000b\b\f"', "tab\tnewline\nreturn\r\v\b\f"),
    ("products", "description", r'"\u0001"', "\x01"),
    ("products", "description", r'"\u0002"', "\x02"),
    ("products", "description", r'"\u0003"', "\x03"),
    ("products", "description", r'"\u0001\u0001\u0002a\u0003\u007f\u0085"', "\x01\x01\x02a\x03\x7f\x85"),
    ("products", "description", '"emoji \U0001f600 \\ud83d\\ude00 \\u00e9"', "emoji \U0001f600 \U0001f600 é"),
    ("products", "description", '"null"', "null"),
    ("products", "description", '"code:X"', "code:X"),
    ("products", "code", '"12:a"', "12:a"),
    ("orders", "orderDate", '"2024-02-29"', datetime.date(2024, 2, 29)),
    ("orders", "currency", "null", "EUR"),
    ("orders", "status", '"sent"', "sent"),
    ("orders", "note", "null", None),
]

REFUSED = [
    # entity, field, JSON text, code
    *(
        ("products", "price", value, "invalid_value")
        for value in (
            '"NaN"',
            '"Infinity"',
            '"-inf"',
            '"1_000"',
            '"0x10"',
            '""',
            '"abc"',
            '"1,5"',
            "1e15",
            "1e99999",
            "1e-16384",
            "1e-400000000",
            f"0.{'0' * 17_000}1",
            "999999999999999.99995",
            "true",
            "{}",
            "[]",
            "[1]",
            '"\\u0001"',
        )
    ),
    *(("products", "active", value, "invalid_value") for value in ('"maybe"', "7", '""', "{}", "1.0")),
    *(("products", "name", value, "invalid_value") for value in ("{}", "[]", "true", r'"a\u0000b"', r'"\u0000"')),
    *(
        ("orders", "orderDate", value, "invalid_value")
        for value in (
            '"today"',
            '"infinity"',
            '"epoch"',
            '"2024-02-30"',
            '"2024-13-01"',
            '"20240101"',
            '"1 BC"',
            '""',
            "20240101",
            "true",
        )
    ),
    ("orders", "currency", '"eur"', "invalid_value"),
    ("orders", "currency", '"EURO"', "invalid_value"),
    ("products", "name", "null", "required"),
    ("orders", "orderDate", "null", "required"),
    ("products", "nothing", "1", "unknown_field"),
    ("products", "company_id", '"other"', "unknown_field"),
    ("products", "companyId", '"other"', "unknown_field"),
    ("products", "category_id", "1", "unknown_field"),
    ("products", "nothing", "null", "unknown_field"),
    ("products", "category", '"red"', "invalid_value"),
    ("products", "category", '"colour:red"', "invalid_value"),
    ("products", "category", '""', "invalid_value"),
    ("products", "category", '{"code": "C"}', "invalid_value"),
    ("products", "category", "true", "invalid_value"),
    ("products", "category", "1.5", "invalid_value"),
    ("products", "category", "-1", "lookup_not_found"),
    ("products", "category", '"code:none"', "lookup_not_found"),
    ("products", "category", "999999999", "lookup_not_found"),
    ("products", "categoryId", "999999999", "lookup_not_found"),
    ("products", "category", "99999999999999999999999999", "lookup_not_found"),
    ("products", "category", '"id:x"', "lookup_not_found"),
    ("products", "@operation", '"remove"', "invalid_directive"),
    ("products", "@where", '"x"', "invalid_directive"),
    ("products", "@operation", "7", "invalid_directive"),
    ("products", "@nothing", "true", "invalid_directive"),
    ("products", "name@removeAll", "true", "invalid_directive"),
    ("products", "variants@removeAll", "true", "invalid_directive"),
    ("products", "variants", '"A"', "invalid_value"),
    ("products", "variants", "7", "invalid_value"),
]

LEAST = {
    "products": '"code": "X%s", "name": "Name", "description": "before", "price": 1, "active": true',
    "orders": '"code": "X%s", "orderDate": "2024-01-01", "currency": "CHF", "status": "before", "note": "before"',
}


def document(cases: Sequence[tuple[Any, ...]]) -> bytes:
    """A record for each case, with the code X and its number."""
    collections = {
        entity: ", ".join(f'{{{LEAST[entity] % n}, "{case[1]}": {case[2]}}}' for n, case in enumerate(cases) if case[0] == entity)
        for entity in LEAST
    }
    members = ", ".join(f'"{name}": [{records}]' for name, records in collections.items())
    return f'{{"@atomic": false, {members}}}'.encode()


def test_accepted_values_are_stored(feed: Feed) -> None:
    feed.good(document([(entity, "updatedAt", "null") for entity, *_ in ACCEPTED]))
    feed.good(document(ACCEPTED))
    for n, (entity, field, text, stored) in enumerate(ACCEPTED):
        code = json.loads(text) if field == "code" else f"X{n}"
        ((value,),) = feed.ask(f'select "{field}" from api."{entity}" where code = %s', code)
        assert (value, type(value)) == (stored, type(stored)), (field, text)
    assert all(each.keys() == {"unchanged"} for each in feed.good(document(ACCEPTED)).values())


def test_other_values_are_refused(feed: Feed) -> None:
    report = feed.send(document(REFUSED))
    assert report["state"] == "failed"
    assert not feed.log()
    found = {(e["record"], e["path"].partition(".")[2], e["code"]) for e in report["errors"]}
    wanted = {(f"code:X{n}", PATHS.get(field, field), code) for n, (_, field, _, code) in enumerate(REFUSED)}
    assert found == wanted
    assert len(report["errors"]) == len(REFUSED) and all(e["message"] for e in report["errors"])


PATHS = {"categoryId": "category", "variants": "variants[0]"}  # the path of an error, if it is not the field


def test_absent_members_are_kept_and_null_clears(feed: Feed) -> None:
    feed.good(
        categories=[{"code": "C", "name": "Cats"}],
        products=[
            {"code": "P", "name": "Name", "description": "d", "barcode": "b", "price": 2, "active": False, "category": "code:C"}
        ],
    )
    assert feed.good(products=[{"code": "P"}]) == {"products": {"unchanged": 1}}
    assert feed.good(
        products=[{"code": "P", "description": None, "barcode": None, "price": None, "active": None, "category": None}]
    ) == {"products": {"updated": 1}}
    assert feed.rows("products", "name", "description", "barcode", "price", "active", "categoryId") == [
        ("Name", None, None, None, True, None)
    ]


def test_a_reference_may_be_given_by_its_id_field(feed: Feed) -> None:
    feed.good(categories=[{"code": "C", "name": "Cats"}, {"code": "D", "name": "Dogs"}])
    (c,), (d,) = feed.rows("categories", "id")
    feed.good(
        products=[
            {"code": "1", "name": "a", "categoryId": c},
            {"code": "2", "name": "b", "categoryId": str(c)},
            {"code": "3", "name": "c", "categoryId": "code:C"},
            {"code": "4", "name": "d", "category": c},
            {"code": "5", "name": "e", "category": f"id:{c}"},
            {"code": "6", "name": "f", "category": f"id:{d}", "categoryId": c},
        ]
    )
    assert feed.rows("products", "categoryId") == [(c,)] * 6
    feed.good(products=[{"code": "1", "categoryId": None}])
    assert feed.rows("products", "categoryId", order="code")[0] == (None,)


def test_updated_at_is_accepted_and_has_no_effect(feed: Feed) -> None:
    cases = [("products", "updatedAt", value) for value in ('"2001-01-01T00:00:00Z"', "null", "7", "{}", '"nonsense"')]
    feed.good(document(cases))
    before = feed.stored()
    assert feed.good(document(cases)) == {"products": {"unchanged": 5}}
    assert feed.stored() == before


def test_every_error_of_a_record_is_reported(feed: Feed) -> None:
    report = feed.send(
        b'{"products": [{"code": "P", "price": "x", "active": "maybe", "nothing": 1, "category": "code:Z", "name": "n"}]}'
    )
    assert sorted(errors(report)) == [
        ("products[0].active", "invalid_value"),
        ("products[0].category", "lookup_not_found"),
        ("products[0].nothing", "unknown_field"),
        ("products[0].price", "invalid_value"),
    ]
    assert report["entities"]["products"]["failed"] == 1


def test_a_new_row_needs_its_required_fields(feed: Feed) -> None:
    report = feed.send(b'{"@atomic": false, "products": [{"name": "n"}, {"code": "P"}, {"code": null, "name": null}, {}]}')
    assert sorted(errors(report)) == sorted(
        [
            ("products[0].code", "required"),
            ("products[1].name", "required"),
            ("products[2].code", "required"),
            ("products[2].name", "required"),
            ("products[3].code", "required"),
            ("products[3].name", "required"),
        ]
    )
    assert {e["path"]: e["record"] for e in report["errors"]}["products[2].code"] is None


def test_a_message_may_quote_anything(feed: Feed) -> None:
    report = feed.send(
        {"@atomic": False, "products": [{"code": "a\x02b", "name": "n", "price": "\x01\x03\\\n\t'%s", "\x03": 1, "\0\x02": 1}]}
    )
    assert {code for _, code in errors(report)} == {"invalid_value", "unknown_field"}
    assert len(report["errors"]) == 3
    assert {e["record"] for e in report["errors"]} == {"code:a\x02b"}


UNREADABLE = [
    r'"name": "a\ud800b"', r'"name": "\udc00"', r'"name": "x\ud800\n"', r'"id": "code:\ud800"', r'"a\udfff": 1', f'"price": {"9" * 5_000}',
    f'"price": -1{"0" * 200_000}.5', '"price": 1e999999', f'"price": 1e{"9" * 30}', f'"name": {"7" * 5_000}', r'"name": "\u0000"',
]  # fmt: skip


@pytest.mark.parametrize("atomic", ["false", "true"])
def test_half_of_a_surrogate_pair_and_a_giant_number_fail_their_record_alone(feed: Feed, atomic: str) -> None:
    """Also behind a good pair, and where a record holds its array of children in two parts, for which it is decoded once more."""
    bad = [f'{{"code": "B{n}", "name": "n", {text}}}' for n, text in enumerate(UNREADABLE)]  # the last value of a member counts
    good = r'{"code": "G", "name": "\ud83d\ude00 \\ud800", "variants": [{"code": "1"}], "variants": [{"code": "2"}]}'
    report = feed.send(f'{{"@atomic": {atomic}, "products": [{good}, {", ".join(bad)}]}}'.encode())
    messages = {each["path"]: each["message"] for each in report["errors"]}
    assert {path.partition(".")[0] for path in messages} == {f"products[{n}]" for n in range(1, 1 + len(UNREADABLE))}
    assert messages["products[6].price"] == "expected a number of at most 4,300 digits, or a longer one in quotes"
    assert messages["products[1].name"] == "text cannot hold the character U+0000, or half of a surrogate pair"
    written = [("G", "\U0001f600 \\ud800")] if atomic == "false" else []
    assert feed.rows("products", "code", "name") == written and len(feed.rows("productVariants", "code")) == 2 * len(written)
    found = report["entities"]["products"]
    assert (found["created"], found["failed"]) == (len(written), len(UNREADABLE))


def test_an_error_does_not_repeat_a_long_document(feed: Feed) -> None:
    long = "x" * 100_000
    report = feed.send({"@atomic": False, "units": [{"code": long}, {"code": "A", "name": "a", long: 1}]})
    assert [e["code"] for e in report["errors"]] == ["required", "unknown_field"]
    assert {len(e["record"]) for e in report["errors"]} == {1000, len("code:A")}
    assert max(len(e[member]) for e in report["errors"] for member in ("path", "message")) == 1000
