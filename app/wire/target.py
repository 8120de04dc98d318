"""The target of a request, read from its path in one place for the routes, the log and the metrics."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import unquote

from app.wire import urls

ODATA = "/api/odata"
SLUG = re.compile(r"[a-z0-9_-]{1,63}")  # the form of the name of a company or place
IMPORTS = frozenset({"import", "imports", "revert", "versions"})
OPERATION = frozenset({"healthz", "readyz", "metrics", "openapi.json"})


class Target(NamedTuple):
    """The part of the service that a path leads to, and the company that it names; neither need exist."""

    area: str  # odata, changes, stream, hooks, import, mappers, export, auth, operation or pages
    segment: str  # percent-encoded name of the company; "" if the path has none

    @property
    def is_odata(self) -> bool:
        return self.area == "odata"

    @property
    def has_versions(self) -> bool:
        """Whether its answers depend on the versions of a company: all of /c and exports."""
        return self.area in ("changes", "stream", "hooks", "export") and bool(self.segment)

    @property
    def company(self) -> str:
        """The company's name.  Raises malformed_request if the segment cannot be decoded."""
        name = urls.decode(self.segment, "the path")
        return name.partition("@")[0] if self.is_odata else name  # acme@17 is acme as of a version

    @property
    def shown_company(self) -> str | None:
        """The company's name for the log; None if the path has none, or holds something else in its place."""
        name = unquote(self.segment)
        name = name.partition("@")[0] if self.is_odata else name
        return name if SLUG.fullmatch(name) else None


def read_target(path: str) -> Target:
    """Read a path as it was sent, without the query.  Never raises: the log needs a target of malformed paths, too."""
    segments = raw = path.split("/", 5)
    if "%" in path:
        segments = unquote(path).split("/", 5)
    first = segments[1] if len(segments) > 1 else ""
    if first == "api":
        if segments[2:3] == ["odata"]:
            return Target("odata", raw[3] if len(raw) > 3 else "")
        if len(segments) < 4:
            return Target("export", "")  # /api/{entity}
        word = segments[3]
        return Target("import" if word in IMPORTS else "mappers" if word == "mappers" else "export", raw[2])
    if first == "c":
        area = "hooks" if segments[3:4] == ["hooks"] else "stream" if segments[3:] == ["changes", "stream"] else "changes"
        return Target(area, raw[2] if len(raw) > 2 else "")
    if first == "auth":
        return Target("auth", "")
    return Target("operation" if first in OPERATION else "pages", "")
