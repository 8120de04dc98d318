"""JSON with all digits of its numbers."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from app.types import exact_json

ROOT = Path(__file__).resolve().parents[1]
# What these write may have come from a database, whose numbers json.dumps refuses.
WRITERS = ("changes", "cli", "places", "service", "web")

NUMBERS = ("0", "-7", "12345678901234567890.123456789", "-0.10", "1e400", "9" * 5_000, "-" + "9" * 5_000)


def test_numbers_are_written_as_they_were_read() -> None:
    text = '{"a": [' + ", ".join(NUMBERS) + '], "9.50": "9.50", "b": null}'
    value = exact_json.loads(text)
    assert exact_json.dumps(value) == text
    assert (value["a"][0], value["a"][2]) == (0, Decimal(NUMBERS[2]))
    assert exact_json.dumps(exact_json.loads("2.50"), indent=2) == "2.50"


def test_other_values_are_written_as_json_dumps_writes_them() -> None:
    assert exact_json.dumps({"n": Decimal("1.5"), "d": date(2026, 1, 2)}, default=str) == '{"n": "1.5", "d": "2026-01-02"}'
    with pytest.raises(TypeError):
        exact_json.dumps(Decimal("1.5"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("12345678901234567890.1200"), "12345678901234567890.1200"),
        (Decimal("1E+3"), "1000"),
        ([Decimal("NaN"), float("-inf"), 0.5], '["NaN", "-Infinity", 0.5]'),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))), '"2026-01-02T01:04:05.000000Z"'),
        (datetime(800, 1, 2), '"0800-01-02T00:00:00"'),
        (date(2026, 1, 2), '"2026-01-02"'),
        (b"\xff\x00", '"/wA="'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ({"a": [exact_json.Number("1.50")]}, '{"a": [1.50]}'),
    ],
)
def test_values_of_a_database_are_those_of_every_interface(value: Any, text: str) -> None:
    assert exact_json.dumps(exact_json.plain(value)) == text


def test_what_a_database_gave_is_written_with_all_digits() -> None:
    others = [
        str(file)
        for package in WRITERS
        for file in sorted((ROOT / "app" / package).rglob("*.py"))
        if re.search(r"(?<![\w.])json\.dumps", file.read_text())
    ]
    assert others == []
