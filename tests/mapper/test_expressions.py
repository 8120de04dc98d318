"""The values of expressions for rows with full, empty and missing cells, and numbers and dates by language."""

from __future__ import annotations

import contextlib
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from babel.dates import format_date
from babel.localedata import locale_identifiers

from app.mapper.language import functions
from app.mapper.language.locales import Locale
from app.mapper.language.problems import InvalidValue
from tests.mapper.conftest import Run

ABSENT = "(absent)"
WRONG = "(wrong)"

# expression for products.name, cells of the row, the value
TEXTS: list[tuple[str, dict[str, str], Any]] = [
    ("'a'", {"a": "x"}, "x"),
    ("'a'", {"a": ""}, None),
    ("'a'", {"b": "x"}, ABSENT),
    ("\"it's\"", {"b": "x"}, "it's"),
    ("null", {"a": "x"}, None),
    ("12.50", {"a": "x"}, "12.50"),
    ("concat('a', \" \", 'b')", {"a": "x", "b": "y"}, "x y"),
    ("concat('a', \" \", 'b')", {"a": "x", "b": ""}, "x "),
    ("concat('a', \" \", 'b')", {"a": "", "b": ""}, None),
    ("concat('a', \" \", 'b')", {"c": ""}, ABSENT),
    ("concat(\"A-\", 'a')", {"a": ""}, None),
    ("concat(\"A\", 1, true)", {"a": ""}, "A1true"),
    ("upper('a')", {"a": "straße"}, "STRASSE"),
    ("lower('a')", {"a": "ÄB"}, "äb"),
    ("upper('b')", {"a": "x"}, ABSENT),
    ("trim('a')", {"a": " x "}, "x"),
    ("trim('a')", {"a": "  "}, None),
    ("replace('a', \"-\", \"\")", {"a": "1-2-3"}, "123"),
    ("replace('a', 'b', 'c')", {"a": "xyx", "b": "x", "c": "z"}, "zyz"),
    ("default('a', \"none\")", {"a": ""}, "none"),
    ("default('b', 'a')", {"a": "x"}, "x"),
    ("default('a', \"none\")", {"a": "x"}, "x"),
    ("if('a' = \"x\", \"yes\", \"no\")", {"a": "x"}, "yes"),
    ("if('a' = \"x\", \"yes\", \"no\")", {"a": ""}, "no"),
    ("if('a' = \"x\", \"yes\")", {"a": "y"}, ABSENT),
    ("if('a' == \"x\", \"yes\")", {"a": "x"}, "yes"),
    ("if('a' <> \"x\", \"yes\")", {"a": "x"}, ABSENT),
    ("if('a' = null, \"none\", 'a')", {"b": ""}, "none"),
    ("if('a' != null, \"some\", \"none\")", {"a": "x"}, "some"),
    ("if('a' > 9, \"many\", \"few\")", {"a": "10"}, "many"),
    ("if('a' > \"9\", \"after\", \"before\")", {"a": "10"}, "before"),
    ("if('a' > 9, \"many\", \"few\")", {"a": ""}, "few"),
    ("if('a' > 9, \"many\", \"few\")", {"a": "ten"}, WRONG),
    ("if('a' < 9 or 'a' > 11, \"out\", \"in\")", {"a": "10"}, "in"),
    ("if(not ('a' = 1 and 'b' = 2), \"one\", \"both\")", {"a": "1", "b": "2.0"}, "both"),
    ("if('a', \"yes\", \"no\")", {"a": "True"}, "yes"),
    ("if('a', \"yes\", \"no\")", {"a": "maybe"}, WRONG),
    ("if(date('a', \"%d.%m.%Y\") < date('b'), \"before\", \"after\")", {"a": "19.11.2026", "b": "2026-11-20"}, "before"),
    ("'a' * 2", {"a": "1.10"}, "2.20"),
    ("concat('a' + 1, \"!\")", {"a": "1"}, "2!"),
    ("date('a', \"%d.%m.%Y\")", {"a": "20.11.2026"}, "2026-11-20"),
]  # fmt: skip

# expression for products.price
NUMBERS: list[tuple[str, dict[str, str], Any]] = [
    ("'a'", {"a": "1.50"}, "1.50"),
    ("number('a')", {"a": " 1.50 "}, "1.50"),
    ("number('a')", {"a": "1,50"}, WRONG),
    ("number('a')", {"a": "1.234,50"}, WRONG),
    ("number('a', \"de\")", {"a": "1.234,50"}, "1234.50"),
    ("number('a') / 1.2", {"a": "120"}, "100"),
    ("'a' + 'b' * 2 - 1", {"a": "1", "b": "2"}, "4"),
    ("('a' + 'b') * 2", {"a": "1", "b": "2"}, "6"),
    ("-'a'", {"a": "2"}, "-2"),
    ("- 'a' - -1", {"a": "2"}, "-1"),
    ("'a' / 'b'", {"a": "1", "b": "0"}, WRONG),
    ("'a' / 'b'", {"a": "", "b": "0"}, None),
    ("'a' / 'c'", {"a": "1"}, ABSENT),
    ('number("7")', {"a": ""}, "7"),
    ("'a' * 1", {"a": "1e5"}, "100000"),
    ("'a' * 1", {"a": "nan"}, WRONG),
    ("'a' * 'a'", {"a": "1e300"}, "1" + "0" * 600),
    ("'a' * 'a'", {"a": "1e900"}, WRONG),
    ("'a' * 1", {"a": "1e9999"}, WRONG),
    ("'a' * 1", {"a": "1e-9999"}, WRONG),
    ("if('a' = \"x\", 1, 2)", {"a": "x"}, "1"),
]


# expression for orders.orderDate, or a text
MOMENTS: list[tuple[str, str, dict[str, str], Any]] = [
    ("orderDate", 'date(\'a\', "%Y-%m-%d %H:%M%z")', {"a": "2026-11-20 00:30+0200"}, "2026-11-20"),
    ("orderDate", 'date(\'a\', "%d.%m.%Y %z")', {"a": "20.11.2026 Z"}, "2026-11-20"),
    ("orderDate", 'date(\'a\', "%d.%m.%Y %z")', {"a": "20.11.2026"}, WRONG),
    ("orderDate", 'date(\'a\', "%d.%m.%Y %z")', {"a": "31.12.9999 -0200"}, "9999-12-31"),
    ("orderDate", 'date(\'a\', "%d.%m.%Y %H %z")', {"a": "31.12.9999 23 -0200"}, "9999-12-31"),
    ("note", 'date(\'a\', "%d.%m.%Y %H:%M %z")', {"a": "31.12.9999 23:59 -0200"}, WRONG),
    ("note", 'date(\'a\', "%d.%m.%Y %z")', {"a": "01.01.0001 +0200"}, WRONG),
    ("note", 'date(\'a\', "%Y-%m-%d %H:%M%z")', {"a": "2026-11-20 00:30+02:00"}, "2026-11-19T22:30:00+00:00"),
    ("note", 'date(\'a\', "%Y-%m-%d %H:%M %Z")', {"a": "2026-11-20 00:30 UTC"}, "2026-11-20T00:30:00+00:00"),
    ("note", 'if(date(\'a\', "%H:%M%z %Y") = date(\'b\', "%H:%M%z %Y"), "same", "other")', {"a": "10:00+0200 2026", "b": "08:00Z 2026"}, "same"),
    ("note", 'if(date(\'a\', "%H:%M%z %Y") < date(\'b\', "%H:%M %Y"), "less", "not")', {"a": "10:00+0200 2026", "b": "09:00 2026"}, "less"),
]  # fmt: skip


@pytest.mark.parametrize(("field", "expression", "cells", "expected"), MOMENTS)
def test_a_date_may_have_a_zone(run: Run, field: str, expression: str, cells: dict[str, str], expected: Any) -> None:
    text = f"type csv\norders = 'row' {{ code = 'k' {field} = {expression} }}"
    (record,) = run(text, f"k,{','.join(cells)}\n1,{','.join(cells.values())}\n")["orders"]
    assert (WRONG if isinstance(record[field], dict) else record[field]) == expected


@pytest.mark.parametrize(
    ("field", "expression", "cells", "expected"), [("name", *each) for each in TEXTS] + [("price", *each) for each in NUMBERS]
)
def test_the_value_of_an_expression(run: Run, field: str, expression: str, cells: dict[str, str], expected: Any) -> None:
    text = f"type csv\nproducts = 'row' {{ code = 'k' {field} = {expression} }}"
    quoted = ['"' + value.replace('"', '""') + '"' for value in cells.values()]
    (record,) = run(text, f"k,{','.join(cells)}\n1,{','.join(quoted)}\n")["products"]
    value = record.get(field, ABSENT)
    assert (WRONG if isinstance(value, dict) else value) == expected, value


# language, field, text in the source, value; None: an error
BY_LANGUAGE = [
    ("de", "total", "1.234,56", "1234.56"),
    ("de", "total", "-1.234.567,5", "-1234567.5"),
    ("de", "total", "1234,5", "1234.5"),
    ("de", "total", "1.234", "1234"),
    ("de", "total", "1.5", None),
    ("de", "total", "1.23.456", None),
    ("de", "total", "", ""),
    ("en", "total", "1,234.56", "1234.56"),
    ("en", "total", "12,34", None),
    ("en-IN", "total", "12,34,567.5", "1234567.5"),
    ("fr", "total", "1\N{NARROW NO-BREAK SPACE}234,5", "1234.5"),
    ("fr", "total", "1 234,5", "1234.5"),
    ("fr", "total", "1\N{NO-BREAK SPACE}234,5", "1234.5"),
    ("de-CH", "total", "1'234.50", "1234.50"),
    ("de-CH", "total", "1’234.50", "1234.50"),
    ("sv", "total", "\N{MINUS SIGN}1 234,5", "-1234.5"),
    ("ar-EG", "total", "١٬٢٣٤٫٥", "1234.5"),
    ("bn", "total", "12,34,567.5", "1234567.5"),
    ("mr", "total", "१,२३४.५", "1234.5"),
    ("ne", "total", "1,234.5", "1234.5"),
    ("my", "total", "1,234.5", "1234.5"),
    ("dz", "total", "1,234.5", "1234.5"),
    ("de", "total", "abc", None),
    ("de", "orderDate", "20.11.2026", "2026-11-20"),
    ("de", "orderDate", "1.2.26", "2026-02-01"),
    ("de", "orderDate", "20. November 2026", "2026-11-20"),
    ("de", "orderDate", "3. März 1999", "1999-03-03"),
    ("de", "orderDate", "2026-11-20", "2026-11-20"),
    ("de", "orderDate", "31.02.2026", None),
    ("en-US", "orderDate", "11/20/2026", "2026-11-20"),
    ("en-US", "orderDate", "Nov 20, 2026", "2026-11-20"),
    ("en-GB", "orderDate", "20/11/2026", "2026-11-20"),
    ("en-GB", "orderDate", "1/2/70", "1970-02-01"),
    ("ja", "orderDate", "2026/11/20", "2026-11-20"),
    ("hu", "orderDate", "2026. 11. 20.", "2026-11-20"),
    ("fr", "orderDate", "20 novembre 2026", "2026-11-20"),
    ("fr", "orderDate", "tomorrow", None),
    *(
        (tag, "orderDate", text, "1999-12-31")
        for tag, text in (
            ("gu", "31 ડિસેમ્બર, 1999"),
            ("hi", "31 दिसंबर 1999"),
            ("ta", "31 டிசம்பர், 1999"),
            ("te", "31 డిసెంబర్, 1999"),
            ("ja", "1999年12月31日"),
            ("zh", "1999年12月31日"),
            ("zh-Hant", "1999 年 12 月 31 日"),
            ("ko", "1999년 12월 31일"),
            ("ja", "1999年12月31日(金)"),
            ("vi", "31 tháng 12, 1999"),
            ("de", "31. Dezember 99"),
            ("sv", "31 dec. 99"),
            ("lt", "1999 m. gruodžio 31 d."),
            ("hu", "1999. dec. 31."),
        )
    ),
    *(
        (tag, "orderDate", text, None)
        for tag, text in (
            ("ja", "2026年11月"),
            ("ja", "11月20日"),
            ("zh", "2026年11月"),
            ("zh", "11月20日"),
            ("ko", "2026년 11월"),
            ("ko", "5월 7일"),
            ("ja", "平成30年5月1日"),
            ("ja", "30年5月1日"),
            ("vi", "thg 11, 2026"),
            ("vi", "tháng 11 năm 2026"),
            ("vi", "tháng 2026 11"),
            ("zh", "2026年13月1日"),
        )
    ),
    ("en-CA", "orderDate", "Nov 20, 26", "2026-11-20"),
    ("en-CA", "orderDate", "20 Nov 26", "2026-11-20"),
    ("fr-CA", "orderDate", "20 nov. 26", "2026-11-20"),
    ("sv", "orderDate", "20 nov 26", "2026-11-20"),
    ("hu", "orderDate", "26. nov. 20.", "2026-11-20"),
]


@pytest.mark.parametrize(("language", "field", "source", "expected"), BY_LANGUAGE)
def test_numbers_and_dates_by_language(run: Run, language: str, field: str, source: str, expected: str | None) -> None:
    text = f"type csv @delimiter = 'tab' @language = '{language}'\norders = 'row' {{ code = 'k' {field} = 'v' note = 'v' }}"
    (record,) = run(text, f"k\tv\n1\t{source}\n")["orders"]
    assert record["note"] == (source or None), "text is not converted"
    if expected is None:
        assert language in record[field]["@invalid"] and repr(source) in record[field]["@invalid"]
    else:
        assert record[field] == (expected or None)


def test_every_locale_of_cldr_reads_the_numbers_and_dates_that_it_writes() -> None:
    for name in locale_identifiers():
        try:
            locale = Locale(name.replace("_", "-"))
        except ValueError:
            continue  # Babel does not read the names of all its locales
        for number in (Decimal("1234.5"), Decimal("-0.25"), Decimal(1000)):
            assert locale.number(locale.write_number(number)) == number, name
        for day in (date(2026, 11, 20), date(1999, 1, 2)):
            assert locale.date(locale.write_date(day)) == day, name
            for width in ("short", "medium", "long"):
                with contextlib.suppress(InvalidValue):  # what is read is the date; some notations are not read
                    assert locale.date(format_date(day, width, locale=name)) == day, name


@pytest.mark.parametrize(("text", "expected"), [
    ("11/20/2026 12:30 AM", "00:30"), ("11/20/2026 12:30 PM", "12:30"), ("11/20/2026 0:30 AM", "00:30"), ("11/20/2026 1:05 pm", "13:05"),
    ("11/20/2026 13:30", "13:30"), ("11/20/2026 25:10 PM", None), ("11/20/2026 14:30 AM", None), ("11/20/2026 99:00 am", None),
    ("11/20/2026 13:00 PM", None), ("11/20/2026 24:10", None),
])  # fmt: skip
def test_the_hours_of_halves_of_a_day_are_at_most_12(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(InvalidValue, match="expected a date and time"):
            Locale("en").timestamp(text)
    else:
        assert Locale("en").timestamp(text).isoformat() == f"2026-11-20T{expected}:00"


def test_number_and_date_override_the_language(run: Run) -> None:
    text = """type csv @delimiter = ';' @language = 'de'
    orders = 'row' { code = 'k' total = number('a', "en") orderDate = date('d', "%m/%d/%y") note = concat(number('b'), "|", number('c')) }"""
    (record,) = run(text, "k;a;b;c;d\n1;1,234.5;1.234,5;1234.5;12/1/10\n")["orders"]
    assert record == {"code": "1", "total": "1234.5", "orderDate": "2010-12-01", "note": "1234.5|1234.5"}


def test_the_text_of_a_function_is_read_by_the_language_or_with_a_decimal_point(run: Run) -> None:
    text = """type csv @delimiter = ';' @language = 'de'
    orders = 'row' { code = 'k' total = trim('a') items = '.' { price = replace('b', "p", ".") } }"""
    (record,) = run(text, "k;a;b\n1; 1.001,50 ;5p25\n")["orders"]
    assert (record["total"], record["items"]) == ("1001.50", [{"price": "5.25"}])


@pytest.mark.parametrize(("value", "text", "expected"), [
    ("replace('a', \",\", \".\")", "1,50", "1.50"), ("replace('a', \",\", \".\")", "1,500", "1.500"), ("replace('a', \",\", \".\")", "12,125", "12.125"),
    ("number(replace('a', \",\", \".\"))", "1,500", "1.500"), ("trim(replace('a', \"p\", \".\"))", "1p500 ", "1.500"),
    ("replace(replace('a', \".\", \"\"), \",\", \".\")", "1.234,500", "1234.500"), ("concat('a', \".\", \"500\")", "1", "1.500"),
    ("concat('a' * 1.001)", "1", "1.001"), ("trim(concat('a' / 8))", "1", "0.125"),
    ("trim('a')", " 1.500 ", "1500"), ("concat('a')", "1.500", "1500"), ("replace('a', \" EUR\", \"\")", "1.500 EUR", "1500"),
    ("replace('a', \".\", \",\")", "1.500", "1.500"), ("default(trim('a'), \"1.5\")", "", "1.5"), ("number('a')", "1.500", "1500"),
    ("default(trim('a'), \"1.5\")", "1.500", "1500"), ("default(replace('a', \",\", \".\"), \"0\")", "1,500", "1.500"),
    ("if('a' > 1, replace('a', \",\", \".\"))", "1,500", "1.500"), ("if('a' > 2, trim('a'), \"0\")", "1.500", "1500"), ("concat(\"1.\", replace('a', \",\", \"\"))", "500", "1.500"),
])  # fmt: skip
def test_a_point_that_a_function_writes_is_a_decimal_point(run: Run, value: str, text: str, expected: str) -> None:
    mapper = f"type csv @delimiter = ';' @language = 'de' orders = 'row' {{ code = 'k' total = {value} }}"
    assert run(mapper, f"k;a\n1;{text}\n")["orders"][0]["total"] == expected


def test_arithmetic_and_comparisons_read_paths_by_the_language(run: Run) -> None:
    text = (
        "type csv @delimiter = ';' @language = 'de'\norders = 'row' { code = 'k' total = 'a' / 2 note = if('a' > 1000, \"large\") }"
    )
    assert run(text, "k;a\n1;1.001,50\n")["orders"] == [{"code": "1", "total": "500.75", "note": "large"}]


def test_an_entry_in_the_table_is_a_new_function(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    takes = (functions.TEXTS, functions.NUMBERS)
    left = functions.Signature(takes, 2, 2, "text", lambda text, size: text[: int(size)])
    monkeypatch.setitem(functions.FUNCTIONS, "left", left)  # type: ignore[arg-type]
    text = "type csv units = 'row' { code = 'c' name = left('a', 'n') }"
    assert run(text, "c,a,n\n1,abc,2\n2,,2\n3,abc,x\n")["units"] == [
        {"code": "1", "name": "ab"},
        {"code": "2", "name": None},
        {"code": "3", "name": {"@invalid": "expected a number, got 'x'"}},
    ]
