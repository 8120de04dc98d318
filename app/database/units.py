"""Reads `sql/`: migrations, and the units of functions and views, with their checksums."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app import deprecations, resources

SQL = resources.folder("sql")
INTERNALS = "05_impl"  # with what app/deprecations.py adds
SHARDS = "02_shards"  # divides tables
LAST = "99_grants.sql"  # applied after every other change; recorded when the entities are done, too


@dataclass(frozen=True, slots=True)
class Unit:
    """A migration, a folder of functions, or a file beside the folders: what is applied whole."""

    name: str  # migrations/0002_tenancy.sql, 20_registry, 99_grants.sql
    files: Sequence[tuple[str, str]]  # name and text of each, in the order in which they are applied

    @property
    def is_migration(self) -> bool:
        return self.name.startswith("migrations/")

    @property
    def checksum(self) -> str:
        return hashlib.sha256(repr(self.files).encode()).hexdigest()


def read_units() -> Iterator[Unit]:
    """Everything in `sql/`, in the order in which it is applied."""
    for path in (*sorted((SQL / "migrations").glob("*.sql")), *sorted(SQL.glob("[0-9]*"))):
        files = sorted(path.glob("*.sql")) if path.is_dir() else [path]
        texts = [(file.relative_to(SQL).as_posix(), file.read_text(encoding="utf-8")) for file in files]
        if path.name == INTERNALS:
            texts.append((f"{INTERNALS}/deprecated", deprecations.statement()))
        yield Unit(path.relative_to(SQL).as_posix(), texts)


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """A file in pieces: each statement of a view with the view's name, and what is between them; each on its lines of the file."""
    end = 0
    for found in re.finditer(r"^create or replace view ([\w.]+).*?;$", text, re.MULTILINE | re.DOTALL):
        for view, begin, until in (("", end, found.start()), (found[1], found.start(), found.end())):
            yield view, "\n" * text.count("\n", 0, begin) + text[begin:until]
        end = found.end()
    yield "", "\n" * text.count("\n", 0, end) + text[end:]


def made_anew(text: str) -> list[str]:
    """The schemas that a file drops and makes again."""
    lists = re.findall(r"^drop schema if exists ([\w, ]+) cascade;", text, re.MULTILINE)
    return [schema for each in lists for schema in each.split(", ")]
