"""What is wrong with a mapper, or with a value that it was given."""

from __future__ import annotations

from typing import Any

from app.errors import ServiceError


class Wrong(Exception):
    """A value of the source cannot be read as the mapper asks for: the message says what was expected."""


def place(text: str, at: int) -> tuple[int, int]:
    """Line and column, from 1, of a text's character `at` (from 1)."""
    before = text[: at - 1]
    return before.count("\n") + 1, at - 1 - before.rfind("\n")


def wrong(text: str, at: int, reason: str) -> ServiceError:
    """An error of the configuration at a character."""
    line, column = place(text, at)
    return ServiceError("invalid_mapper", f"line {line}, column {column}: {reason}", line=line, column=column)


def source_error(reason: str, *, line: int | None = None, code: str = "malformed_document", **more: int) -> ServiceError:
    """The source as a whole cannot be read."""
    where: dict[str, Any] = {"line": line, **more} if line is not None else {**more}
    says = ", ".join(f"{name} {number}" for name, number in where.items())
    return ServiceError(code, f"{says}: {reason}" if says else reason, **where)
