"""Names of versions: list, give, move and take them."""

from __future__ import annotations

from typing import Any, LiteralString

import msgspec

from app.database.database import Database
from app.database.listing import listing
from app.database.past import Moment, name_version
from app.database.pool.session import Session
from app.database.servers.reads import require_generation
from app.errors import QueryError, ServiceError
from app.query.check.moments import moment_of

ITEM: LiteralString = """
    select json_object('name': v.name, 'version': v.version, 'at': bds_service.api_time(v.at),
        'createdAt': bds_service.api_time(v.created_at), 'actor': v.actor)
    from bds.versions v where v.company_id = %s
"""


async def listed(database: Database, company: str, limit: int, offset: int) -> dict[str, Any]:
    """A page of the names that the company's versions have, newest first."""
    async with database.session(company) as connection:
        query: LiteralString = f"{ITEM} order by v.created_at desc, v.name limit %s offset %s"
        return await listing(connection, query, (company,), limit, offset)


async def show(database: Database, company: str, name: str) -> dict[str, Any]:
    """The version of a name.  Raises not_found."""
    async with database.session(company) as connection:
        return await _find(connection, company, name)


async def put(database: Database, company: str, name: str, body: bytes, actor: str) -> tuple[dict[str, Any], bool]:
    """Give a version a name, or move the name to it; return its item, and whether the name is new.

    Raises malformed_request, not_found for a version that there is not, gone for one that is no longer kept.
    """
    moment = read_body(body)
    await database.meet(company)
    async with database.registration(company) as connection:
        version = (await name_version(connection, company, moment)).version if moment else None
        row = await (
            await connection.execute("select bds.name_version(%s, %s, %s, %s)", (company, name, version, actor))
        ).fetchone()
    assert row is not None
    return await show(database, company, name), row[0]


async def delete(database: Database, company: str, name: str) -> None:
    """Take a name from its version.  Raises not_found."""
    async with database.registration(company) as connection:
        row = await (await connection.execute("select bds.forget_version(%s, %s)", (company, name))).fetchone()
    if row is None or not row[0]:
        raise _missing(name)


def read_body(body: bytes) -> Moment | None:
    """The moment that a body names, `{"version"}` or `{"at"}`, maybe with `"generation"`; None for the last version.

    Raises malformed_request, not_found for another generation.
    """
    try:
        given = msgspec.json.decode(body) if body.strip() else {}
    except msgspec.DecodeError as error:
        raise ServiceError("malformed_request", f"expected a JSON object: {error}") from None
    if not isinstance(given, dict):
        raise ServiceError("malformed_request", "expected a JSON object with version, at or generation")
    texts = {}
    for key, value in given.items():
        if key not in ("version", "at", "generation"):
            raise ServiceError("malformed_request", f"expected version, at or generation, got {key}", target=key)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ServiceError("malformed_request", f"{key}: expected text or a number", target=key)
        texts[key] = str(value)
    try:
        moment = moment_of(texts)
    except QueryError as error:
        raise ServiceError("malformed_request", error.message, target=error.target) from None
    require_generation(texts.get("generation"))
    return moment


async def _find(connection: Session, company: str, name: str) -> dict[str, Any]:
    row = await (await connection.execute(f"{ITEM} and v.name = %s", (company, name))).fetchone()
    if row is None:
        raise _missing(name)
    found: dict[str, Any] = row[0]
    return found


def _missing(name: str) -> ServiceError:
    return ServiceError("not_found", f"no version is called {name!r}")
