"""Where an import comes from, for its report."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_NAME = 255  # characters of a file's name that are kept


@dataclass(frozen=True, slots=True)
class Origin:
    """Who sends the document, the name of its file, and the mapper that reads it; None: not known, none."""

    actor: str | None = None
    file: str | None = None
    mapper: str | None = None


UNKNOWN = Origin()


def file_name(given: str | None) -> str | None:
    """The last part of a file's path, of printable characters only; None if nothing is left."""
    name = (given or "").replace("\\", "/").rpartition("/")[2]
    return "".join(each for each in name if each.isprintable())[:LONGEST_NAME].strip() or None
