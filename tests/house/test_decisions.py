"""The decisions stay few and short enough to be read."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "decisions").glob("*.md"))
ENTRIES, WORDS = 90, 150  # entries in all, words of one

ENTRY = re.compile(r"^### (.+?)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
FOUND = [(f"{page.name}: {title}", text) for page in PAGES for title, text in ENTRY.findall(page.read_text(encoding="utf-8"))]


def test_there_are_at_most_90_entries() -> None:
    assert 0 < len(FOUND) <= ENTRIES


def test_an_entry_says_what_why_and_what_it_costs_in_few_words() -> None:
    parts = {title: re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) for title, text in FOUND}
    assert not {title: found for title, found in parts.items() if found != ["What", "Why", "Cost"]}
    words = {title: len(text.split()) for title, text in FOUND}
    assert not {title: count for title, count in words.items() if count > WORDS}
