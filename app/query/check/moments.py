"""Versions and times of the past in requests."""

from __future__ import annotations

from collections.abc import Mapping

from app.database.past import Moment
from app.errors import QueryError, about
from app.types.literals import timestamp

EXPECTED = "expected a version such as 17, or a time in UTC such as 2026-01-01 or 2026-01-01T14:30:00Z"


def read_moment(text: str) -> Moment:
    """The moment after the @ of a path.  Raises QueryError."""
    if _is_version(text):
        return _version(text)
    try:
        return Moment(time=timestamp(text))
    except ValueError:
        raise QueryError(f"{EXPECTED}, got {text!r}", target="@") from None


def moment_of(parameters: Mapping[str, str]) -> Moment | None:
    """The moment of the parameters `version` or `at`; None if neither is given.  Raises QueryError."""
    version, at = parameters.get("version"), parameters.get("at")
    if version is not None and at is not None:
        raise QueryError("expected version or at, got both", target="at")
    if version is not None:
        with about("version"):
            if not _is_version(version):
                raise QueryError("expected a whole number from 0", position=1)
            return _version(version, "version")
    if at is None:
        return None
    try:
        return Moment(time=timestamp(at), target="at")
    except ValueError as error:
        raise QueryError(f"at: {error}", target="at") from None


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 100


def _version(text: str, target: str | None = None) -> Moment:
    return Moment(version=int(text), target=target)
