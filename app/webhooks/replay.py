"""Replays: the changes between two versions that match a hook, sent to it in new deliveries."""

from __future__ import annotations

import json
from typing import Any, LiteralString
from uuid import UUID

from app.database.database import Database
from app.database.past import Moment, versions_of
from app.database.servers.reads import require_generation
from app.errors import QueryError, ServiceError
from app.query.check.moments import read_moment
from app.webhooks.hook import distinct, fit, invalid
from app.wire.urls import read_id

MEMBERS = ("since", "until", "generation")
MOST = 100_000  # changes of one replay
UNCOMPILED: LiteralString = """
    select h.updated_at, h.entity, h.filter from bds.hooks h
    where h.company_id = %s and h.id = %s and h.filter is not null and not h.disabled and h.deleted_at is null
        and h.catalog_version is null
"""


async def replay(database: Database, company: str, hook_id: str, body: bytes) -> dict[str, Any]:
    """Queue the changes of a range that match a hook; returns how many, and in how many deliveries.

    Raises ServiceError: malformed_request; not_found for an unknown hook, a name that nobody has given, or a version to come; gone
    for one that is not kept; conflict for a disabled hook; too_many_changes.
    """
    since, until = read_range(body)
    await database.meet(company)
    named = (company, read_id(hook_id, "hook"))
    await _compile(database, *named)
    async with database.registration(company) as connection:
        await connection.execute("select bds_service.lock_hook(%s, %s)", named)
        first, last = await versions_of(connection, company, (since, until))
        if first > last:
            raise invalid("since", f"version {first} comes after version {last}: expected the earlier one as since")
        query = "select * from bds_service.replay_hook(%s, %s, %s, %s, %s)"
        row = await (await connection.execute(query, (*named, first, last, MOST))).fetchone()
    assert row is not None
    changes, deliveries, fits = row
    if fits is not None:
        message = f"more than {MOST:,} changes after version {first} match, those up to version {fits} fit: expected until {fits}"
        raise ServiceError("too_many_changes", message, target="until", version=fits)
    return {"changes": changes, "deliveries": deliveries}


def read_range(body: bytes) -> tuple[Moment, Moment]:
    """The ends of the range that a body names; the last version if it has no `until`.  Raises ServiceError."""
    try:
        given = json.loads(body, object_pairs_hook=distinct)
    except (ValueError, RecursionError):
        raise ServiceError("malformed_request", "the body is not well-formed JSON") from None
    if not isinstance(given, dict):
        raise ServiceError("malformed_request", "expected a JSON object with since")
    for name, value in given.items():
        if name not in MEMBERS:
            raise invalid(name, f"expected {', '.join(MEMBERS)}, got {name}")
        if not isinstance(value, str) and type(value) is not int:
            raise invalid(name, f"{name}: expected a number or text")
    if "since" not in given:
        raise invalid("since", "since is missing; expected a version, its name or a time")
    try:
        ends = [read_moment(str(given[name]), name) if name in given else Moment(target=name) for name in MEMBERS[:2]]
    except QueryError as error:
        raise invalid(error.target or "since", error.message) from None
    require_generation(str(given["generation"]) if "generation" in given else None)
    return ends[0], ends[1]


async def _compile(database: Database, company: str, hook: str) -> None:
    """Compile the hook's filter if no worker has done so yet."""
    place = database.place(company)
    async with place.worker() as connection:
        row = await (await connection.execute(UNCOMPILED, (company, UUID(hook)))).fetchone()
        if row is None:
            return
        catalog, (as_of, entity, filter) = database.catalog, row
        compiled, problem = fit(catalog, entity, filter)
        if problem is None:
            filters = json.dumps([each.members() for each in compiled])
            stored = (company, hook, as_of, filters, catalog.version)
            await connection.execute("select bds_service.refit_hook(%s, %s, %s, %s, %s)", stored)
