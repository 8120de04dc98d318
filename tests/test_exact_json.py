"""JSON with all digits of its numbers."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from pathlib import Path

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


def test_what_a_database_gave_is_written_with_all_digits() -> None:
    others = [
        str(file)
        for package in WRITERS
        for file in sorted((ROOT / "app" / package).rglob("*.py"))
        if re.search(r"(?<![\w.])json\.dumps", file.read_text())
    ]
    assert others == []
