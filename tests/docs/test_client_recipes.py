"""The lines with which docs/odata.md connects a client are those of the clients that the tests run."""

from __future__ import annotations

from functools import cache

import pytest

from tests.docs.documents import ROOT, Example, examples

TITLE = "OData clients"
RECIPES = [each for each in examples("docs/odata.md") if each.title == TITLE]


def plain(text: str) -> str:
    return " ".join(text.split())


@cache
def programs() -> str:
    """Everything that runs in tests/clients."""
    found = (path for path in (ROOT / "tests" / "clients").rglob("*.*") if path.suffix in (".js", ".ts", ".py"))
    return "\n".join(plain(path.read_text(encoding="utf-8")) for path in found)


@pytest.mark.parametrize("recipe", RECIPES, ids=range(len(RECIPES)))
def test_a_recipe_is_what_a_test_runs(recipe: Example) -> None:
    assert plain(recipe.text) in programs()


def test_each_client_has_a_recipe() -> None:
    assert {each.kind for each in RECIPES} == {"js", "ts", "python"}
    assert len(RECIPES) == 8
