"""Versions and times of the past in requests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from app.database.past import Moment
from app.errors import QueryError
from app.types.literals import timestamp

EXPECTED = "expected a version such as 17, its name, or a time in UTC such as 2026-01-01 or 2026-01-01T14:30:00Z"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}", re.ASCII)


def read_moment(text: str, target: str | None = None) -> Moment:
    """The moment that digits, a name or a time mean.  target: the parameter; None: the text after the @ of a path.

    Raises QueryError.
    """
    if _is_version(text):
        return Moment(version=int(text), target=target)
    if NAME.fullmatch(text):
        return Moment(name=text, target=target)
    try:
        return Moment(time=timestamp(text), target=target)
    except ValueError:
        raise QueryError(f"{f'{target}: ' if target else ''}{EXPECTED}, got {text!r}", target=target or "@") from None


def moment_of(parameters: Mapping[str, str]) -> Moment | None:
    """The moment of the parameters `version` or `at`; None if neither is given.  Raises QueryError."""
    version, at = parameters.get("version"), parameters.get("at")
    refuse_both(version, at)
    if version is not None:
        return read_moment(version, "version")
    if at is None:
        return None
    try:
        return Moment(time=timestamp(at), target="at")
    except ValueError as error:
        raise QueryError(f"at: {error}", target="at") from None


def refuse_both(version: str | None, at: str | None) -> None:
    """Raises QueryError if a request has both parameters."""
    if version is not None and at is not None:
        raise QueryError("expected version or at, got both", target="at")


NOW = "now"
RELATIVE = re.compile(r"-(\d{1,5})([dh])", re.ASCII)


def absolute(text: str) -> str:
    """A moment as people write it, `today`, `yesterday`, `-7d` or `-12h`, as the interfaces take it; others as they are.

    `now` stays: it is the last version, whatever a clock says.  Who takes it leaves the moment out, or names the last version.
    """
    now = datetime.now(UTC)
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if match := RELATIVE.fullmatch(text):
        ago = timedelta(days=int(match[1])) if match[2] == "d" else timedelta(hours=int(match[1]))
        moment = (now - ago).replace(microsecond=0)  # so that the addresses of one page agree
    elif text in ("today", "yesterday"):
        moment = today if text == "today" else today - timedelta(days=1)
    else:
        return text
    return _written(moment)


def start(text: str) -> str:
    """As `absolute`, for the earlier end of a range on a page, where `now` is a time."""
    return _written(datetime.now(UTC)) if text == NOW else absolute(text)


def _written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _is_version(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 100
