"""The audit of administration: the records of a company where it lives and those of home that are about it, the latest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, LiteralString

from app.auth.gate import Identity
from app.changes.parameters import by_name, read_limit
from app.changes.rows import Answer
from app.database.database import Database
from app.errors import QueryError, ServiceError
from app.types import exact_json
from app.wire.target import SLUG

DEFAULT_LIMIT = 100

ITEMS: LiteralString = """
    select json_object('companyId': a.company_id, 'id': a.id, 'at': bds_service.api_time(a.at), 'actor': a.actor, 'user': a.db_user,
        'action': a.action, 'object': a.object, 'detail': a.detail returning json)
    from bds_service.audit(%s, %s, %s) a
"""
SESSION: LiteralString = "select set_config('bds.session', %s, true)"


async def list_audit(database: Database, identity: Identity, company: str, params: Sequence[tuple[str, str]]) -> Answer:
    """Read `{"data": [records], "hasMore": bool}` by `limit` and `before`.  Raises QueryError, ServiceError(not_found).

    company: also one that was deleted: home has records of it.
    """
    limit, before = read_parameters(params)
    if not SLUG.fullmatch(company):
        raise ServiceError("not_found", f"no such company: {company!r}")
    records, more = await read_page(database, identity, company, before, limit)
    body = exact_json.dumps({"data": records, "hasMore": more}, ensure_ascii=False, separators=(",", ":")).encode()
    return Answer(body, repr(body), len(records))


async def read_page(
    database: Database, identity: Identity, company: str, before: datetime | None, limit: int
) -> tuple[list[dict[str, Any]], bool]:
    """The latest records before a time (None: now), and whether there are more; an administrator asks.

    company: "" for all records of home.
    """
    values = (company, before, wanted(limit))
    async with database.service() as connection, connection.transaction():
        await connection.execute(SESSION, (identity.session,))
        parts = [await (await connection.execute(ITEMS, values)).fetchall()]
    if company and not database.place(company).is_home:
        async with database.registration(company) as connection:
            parts.append(await (await connection.execute(ITEMS, values)).fetchall())
    return merge([[item for (item,) in part] for part in parts], limit)


def without_hashes(detail: dict[str, Any]) -> dict[str, Any]:
    """A record's detail for a person: of sealed ranges their number."""
    seals = detail.get("seals")
    return detail | {"seals": len(seals)} if isinstance(seals, list) else detail


def wanted(limit: int) -> int:
    """How many records of each database `merge` needs."""
    return limit + 2


def merge(parts: Sequence[Sequence[dict[str, Any]]], limit: int) -> tuple[list[dict[str, Any]], bool]:
    """A page of records of several databases, and whether there are more.

    Two that share a time stay together, so that the next page begins before it: such a page may be longer.
    """
    found = sorted((item for part in parts for item in part), key=lambda item: item["at"], reverse=True)
    end = limit
    while end < len(found) and found[end]["at"] == found[end - 1]["at"]:
        end += 1
    return found[:end], end < len(found)


def read_parameters(params: Sequence[tuple[str, str]]) -> tuple[int, datetime | None]:
    """Return limit and before.  Raises QueryError."""
    given = by_name(params, ("limit", "before"))
    return read_limit(given.get("limit"), DEFAULT_LIMIT), read_before(given["before"]) if "before" in given else None


def read_before(text: str) -> datetime:
    """The `at` of a record.  Raises QueryError."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise QueryError(f"before: expected the at of a record, got {text!r}", target="before") from None
