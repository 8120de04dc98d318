"""The target of a request, read from its path in one place for the routes, the log and the metrics."""

from __future__ import annotations

from typing import NamedTuple

from app.errors import ServiceError
from app.wire.urls import decode

ODATA = "/api/odata"
OPERATION = ("healthz", "readyz", "metrics")


class Target(NamedTuple):
    """The part of the service that a path leads to, and the company that it names."""

    area: str  # odata, import, mappers, export, hooks, changes, auth, operation or pages
    company: str | None  # need not exist; None if the path names none, or one that is not UTF-8

    @property
    def is_odata(self) -> bool:
        return self.area == "odata"


def read_target(path: str, raw_path: str) -> Target:
    """Read a path, decoded and as it was sent: an encoded slash is part of a company's segment."""
    _, first, second, third, *_ = (path + "///").split("/", 4)
    segments = raw_path.split("/", 4)
    if first == "api":
        if second == "odata":
            return Target("odata", _decoded(segments, 3))
        return Target({"import": "import", "imports": "import", "mappers": "mappers"}.get(third, "export"), _decoded(segments, 2))
    if first == "c":
        return Target("hooks" if third == "hooks" else "changes", _decoded(segments, 2))
    if first == "auth":
        return Target("auth", None)
    return Target("operation" if first in OPERATION else "pages", None)


def _decoded(segments: list[str], number: int) -> str | None:
    try:
        return decode(segments[number], "the path") or None if len(segments) > number else None
    except ServiceError:
        return None
