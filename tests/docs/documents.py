"""The documents, and the examples printed in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

TITLE = re.compile(r"(#{1,6}) (.+)")
FENCE = re.compile(r" *```(\w*)")
PROMPT = re.compile(r"bds[=-]# ")  # psql's


@cache
def documents() -> tuple[str, ...]:
    """The documents of the project, by their path."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    return tuple(sorted(path.relative_to(ROOT).as_posix() for path in found))


@cache
def read(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Example:
    """A fenced block of a document.

    kind: the word behind its fence; title: the heading it stands under; text: its lines, with what the shell or psql prints.
    """

    document: str
    title: str
    kind: str
    text: str

    @property
    def is_shell(self) -> bool:
        return self.kind == "console" and not PROMPT.search(self.text)

    @property
    def is_psql(self) -> bool:
        return self.kind == "console" and not self.is_shell

    def files(self) -> dict[str, str]:
        """The files that the block writes by `cat > NAME <<'END'`."""
        return dict(re.findall(r"\$ cat > (\S+) <<'END'\n(.*?)END\n", self.text, re.DOTALL))


def lines_of(document: str) -> Iterator[tuple[str, str, str]]:
    """Each line of a document with the heading it stands under and the kind of its block; "" outside of blocks."""
    title, kind, inside = "", "", False
    for line in read(document).splitlines():
        fence = FENCE.match(line)
        if fence:
            kind, inside = ("", False) if inside else (fence[1] or "text", True)
            yield title, "```", line
            continue
        heading = None if inside else TITLE.fullmatch(line)
        title = heading[2] if heading else title
        yield title, kind, line


@cache
def examples(document: str) -> tuple[Example, ...]:
    """The fenced blocks of a document."""
    found: list[tuple[str, str, list[str]]] = []
    begins = True
    for title, kind, line in lines_of(document):
        if kind == "```":
            begins = True
        elif kind:
            if begins:
                found.append((title, kind, []))
            found[-1][2].append(line)
            begins = False
    return tuple(Example(document, title, kind, "".join(f"{line}\n" for line in lines)) for title, kind, lines in found)


def chapter(document: str, title: str) -> set[str]:
    """A heading, with those of its sections."""
    found, level = set(), 0
    for name, kind, line in lines_of(document):
        if not kind and (heading := TITLE.fullmatch(line)):
            level = len(heading[1]) if name == title else 0 if len(heading[1]) <= level else level
            found |= {name} if level else set()
    return found


def session(text: str) -> list[tuple[str, str]]:
    """The commands of a shell block, each with what is printed under it."""
    typed: list[tuple[list[str], list[str]]] = []
    goes_on, end = False, None
    for line in text.splitlines():
        if end is not None:  # inside a document that is typed in
            typed[-1][0].append(line)
            end = None if line == end else end
        elif line.startswith("$ ") or goes_on:
            if not goes_on:
                typed.append(([], []))
            typed[-1][0].append(line.removeprefix("$ "))
            here = re.search(r"<<'(\w+)'$", line)
            end = here[1] if here else None
            # a quotation may go over several lines as well
            goes_on = line.endswith("\\") or "\n".join(typed[-1][0]).count("'") % 2 == 1
        else:
            typed[-1][1].append(line)
    return [("\n".join(command), "\n".join(printed)) for command, printed in typed]
