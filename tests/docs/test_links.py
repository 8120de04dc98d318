"""Links, anchors and paths in the documents lead to something, and their lines are of a width to be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.docs.documents import ROOT, TITLE, documents, lines_of

WIDTH = 120  # characters of a line of text; tables and examples are as wide as they have to be
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`]*`")
PATH = re.compile(r"(?<![\w/.$*])(?:app|bench|deploy|docs|grammars|sql|tests)/[\w./-]*\w")  # of a file or folder of the project


def text_of(document: str) -> Iterator[str]:
    """The lines of a document outside of its examples."""
    return (line for _, kind, line in lines_of(document) if not kind)


def anchors(document: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    titles = [found[2] for line in text_of(document) if (found := TITLE.fullmatch(line))]
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", documents())
def test_links_lead_somewhere(document: str) -> None:
    wrong = []
    for link in (link for line in text_of(document) for link in LINK.findall(CODE.sub("", line))):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (ROOT / document).parent / path if path else ROOT / document
        if not target.exists() or (anchor and anchor not in anchors(target.resolve().relative_to(ROOT).as_posix())):
            wrong.append(link)
    assert not wrong


@pytest.mark.parametrize("document", documents())
def test_a_path_that_is_named_exists(document: str) -> None:
    folder = PurePosixPath(document).parent
    named = {path for line in text_of(document) for path in PATH.findall(LINK.sub("", line))}
    assert not {path for path in named if not (ROOT / path).exists() and not (ROOT / folder / path).exists()}


@pytest.mark.parametrize("document", documents())
def test_lines_are_not_too_wide(document: str) -> None:
    assert not [
        line for line in text_of(document) if len(line) > WIDTH and not line.startswith("|") and " " in line.strip()[:WIDTH]
    ]


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached, new = set(), ["README.md"]
    while new:
        document = new.pop()
        reached.add(document)
        for link in (link for line in text_of(document) for link in LINK.findall(line)):
            path = ((ROOT / document).parent / link.partition("#")[0]).resolve()
            if path.suffix == ".md" and path.is_file() and path.relative_to(ROOT).as_posix() not in reached:
                new.append(path.relative_to(ROOT).as_posix())
    assert reached == set(documents())
