"""Which changes an undo undoes, as a request asks for it: {"changeSet"}, {"to"} or {"from", "to"}, and entities, rows, an actor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import msgspec

from app.database.database import Database
from app.database.past import versions_of
from app.database.servers.reads import require_generation
from app.errors import QueryError, ServiceError
from app.query.check.moments import read_moment
from app.wire.urls import read_id

VERSIONS = ("from", "to")
TEXTS, LISTS, SWITCHES = ("changeSet", *VERSIONS, "actor"), ("entities", "rows"), ("dryRun", "force")


@dataclass(frozen=True, slots=True)
class Selection:
    """What is undone.  changes: as bds.import_begin takes it; its versions are texts until they are resolved."""

    changes: dict[str, Any] = field(default_factory=dict)
    dry_run: bool = False
    force: bool = False

    async def resolve(self, database: Database, company: str) -> dict[str, Any]:
        """The changes with ids of versions.

        Raises ServiceError: not_found for what there is not, gone for what is not kept, malformed_request for ends in the wrong
        order.
        """
        given = [name for name in VERSIONS if name in self.changes]
        if not given:
            await database.meet(company)
            return self.changes
        moments = [read_moment(self.changes[name], name) for name in given]
        async with database.session(company) as connection:
            ids = await versions_of(connection, company, moments)
        if ids != sorted(ids):
            message = f"version {ids[0]} comes after version {ids[1]}: expected the earlier one as from"
            raise ServiceError("malformed_request", message, target="from")
        return {**self.changes, **dict(zip(given, ids, strict=True))}


def of_change_set(id: str, *, dry_run: bool = False, force: bool = False) -> Selection:
    """The changes of a change set.  Raises ServiceError(not_found) for what is no id of one."""
    return Selection({"changeSet": read_id(id, "change set")}, dry_run=dry_run, force=force)


def read_body(body: bytes) -> Selection:
    """The selection of a body.  Raises ServiceError(malformed_request)."""
    try:
        given = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise _malformed(f"expected a JSON object: {error}") from None
    if not isinstance(given, dict):
        raise _malformed("expected a JSON object with changeSet, to or from")
    return of_members(given)


def of_members(given: dict[str, Any]) -> Selection:
    """The selection of the members of a body, or of the fields of a form.  Raises ServiceError(malformed_request)."""
    known = (*TEXTS, *LISTS, *SWITCHES, "generation")
    for name, value in given.items():
        if name not in known:
            raise _malformed(f"expected {', '.join(known)}, got {name}", name)
        if name in TEXTS or name == "generation":
            is_right = isinstance(value, str) or (name in (*VERSIONS, "generation") and type(value) is int)
        else:
            is_right = isinstance(value, bool) if name in SWITCHES else _is_list_of_texts(value)
        if not is_right:
            raise _malformed(f"{name}: expected {_expected(name)}", name)
    given = {name: str(value) if name in (*VERSIONS, "generation") else value for name, value in given.items()}
    _check(given)
    changes = {name: given[name] for name in (*TEXTS, *LISTS) if name in given}
    return Selection(changes, dry_run=given.get("dryRun", False), force=given.get("force", False))


def _check(given: dict[str, Any]) -> None:
    """Raises ServiceError unless the members go together, and for a malformed version; writes the change set as PostgreSQL does."""
    ends = [name for name in VERSIONS if name in given]
    if ("changeSet" in given) == bool(ends):
        raise _malformed("expected changeSet, or to, or from with or without to", "changeSet" if ends else None)
    if "actor" in given and ends == ["to"]:
        raise _malformed("expected no actor with to alone: rows become as they were, whoever changed them", "actor")
    if "changeSet" in given:
        try:
            given["changeSet"] = str(UUID(given["changeSet"]))
        except ValueError:
            raise _malformed(f"changeSet: expected a UUID, got {given['changeSet']!r}", "changeSet") from None
    for name in ends:
        try:
            read_moment(given[name], name)
        except QueryError as error:
            raise _malformed(error.message, name) from None
    require_generation(given.get("generation"))


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _expected(name: str) -> str:
    if name in SWITCHES:
        return "true or false"
    return "a list of texts" if name in LISTS else "a version, its name or a time" if name in VERSIONS else "text"


def _malformed(message: str, target: str | None = None) -> ServiceError:
    return ServiceError("malformed_request", message, target=target)
