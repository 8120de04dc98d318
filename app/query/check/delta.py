"""Delta links: what their token holds.

A token is not signed: one that a client has made up reads a range of versions of rows that the client may read anyway.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import astuple, dataclass, replace

from app.database.catalog import Entity
from app.errors import QueryError
from app.types.literals import INT8

MAX_PAGE = 1_000  # rows
OPTIONS = frozenset(("$select", "$filter"))  # that a tracked collection takes


@dataclass(frozen=True, slots=True)
class Delta:
    """The state of a collection that a client has, and the page of later changes that it asks for.

    generation, began: of the company; registration: of the entity.  A link holds only while none of them changes.
    since: the version of its first page; read: that of its last page, which is a later one if pages were read one by one.
    until: the end of the changes, fixed by their first page; after: the last change of the page before; size: of the pages.
    """

    generation: str
    began: str
    registration: str
    since: int
    read: int
    until: int | None = None
    after: int | None = None
    size: int | None = None

    @property
    def token(self) -> str:
        return base64.urlsafe_b64encode(json.dumps(astuple(self), separators=(",", ":")).encode()).decode().rstrip("=")

    def next(self, until: int, after: int, size: int | None) -> Delta:
        """The next page of the same changes."""
        return replace(self, until=until, after=after, size=size)

    def then(self, until: int) -> Delta:
        """What changes after these changes."""
        return replace(self, since=until, read=until, until=None, after=None, size=None)


def read_delta(token: str, target: str = "$deltatoken") -> Delta:
    """Raises QueryError unless the service may have made the token."""
    try:
        values = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
        delta = Delta(*values)
        *texts, since, read, until, after, size = values
        numbers = (since, read, 0 if until is None else until, 0 if after is None else after, 1 if size is None else size)
        if not (
            all(type(each) is str for each in texts)
            and all(type(each) is int and each in INT8 and each >= 0 for each in numbers)
            and since <= read
            and 0 < numbers[-1] <= MAX_PAGE
        ):
            raise ValueError
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise QueryError(f"expected the {target} of a link of this service", target=target, position=1) from None
    return delta


def read_mark(position: bytes, entity: Entity) -> Delta:
    """The state that a statement has read, from the position of a tracked query (app/query/sql/delta.py)."""
    generation, began, registration, version = position.decode().split(" ")
    return Delta(generation, began, f"{registration}.{_columns(entity)}", int(version), int(version))


def _columns(entity: Entity) -> str:
    """A hash of the columns that the service knows, which may be others than those that the database has already."""
    columns = [(field.name, field.type, field.ordinal) for field in entity.fields.values()]
    return hashlib.sha256(repr(columns).encode()).hexdigest()[:8]
