"""Errors in a mapper's text, in a source, and in single values."""

from __future__ import annotations

from typing import Any

from app.errors import ServiceError


class InvalidValue(Exception):
    """A value cannot be read or calculated.  The message becomes the error of its record."""


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Line and column (from 1) of the character `at` (from 1)."""
    before = text[: at - 1]
    return before.count("\n") + 1, at - 1 - before.rfind("\n")


def mapper_error(text: str, at: int, reason: str) -> ServiceError:
    """Return the error `invalid_mapper` at a character of a mapper's text."""
    line, column = line_and_column(text, at)
    return ServiceError("invalid_mapper", f"line {line}, column {column}: {reason}", line=line, column=column)


def source_error(reason: str, *, line: int | None = None, code: str = "malformed_document", **more: int) -> ServiceError:
    """Return an error of a whole source; its position (line, column or offset) begins the message."""
    position: dict[str, Any] = {"line": line, **more} if line is not None else {**more}
    prefix = ", ".join(f"{name} {number}" for name, number in position.items())
    return ServiceError(code, f"{prefix}: {reason}" if prefix else reason, **position)
