"""Administration of API keys by signed-in users: they see the keys for their companies, and no others."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg.rows import class_row

from app.auth.gate import SCOPES, Identity
from app.auth.keys import check_key_name, hash_key, make_key
from app.database.caller import tell
from app.database.database import Database
from app.errors import ServiceError
from app.wire.urls import read_id

State = Literal["valid", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A stored key as a user with access to some of its companies sees it."""

    id: uuid.UUID
    name: str
    companies: list[str]  # those of the user
    others: int  # number of further companies
    tenant_id: str | None  # if the key is for every company of this tenant, including later ones
    scopes: list[str]
    actor: str  # that created it
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    is_theirs: bool  # it has no further companies, so that the user may revoke it
    state: State


KEYS = """
    select k.*,
        case when k.revoked_at is not null then 'revoked' when k.expires_at <= now() then 'expired' else 'valid' end as state
    from bds_service.keys_of(%s) k
    order by (k.revoked_at is not null or coalesce(k.expires_at <= now(), false)), k.created_at desc
    limit %s offset %s
"""
CREATE = "select bds.create_key(%s, %s, %s, %s, %s, %s)"
STRAYS = "select c.id from bds.companies c where c.id = any (%s) and c.tenant_id is distinct from %s order by c.id"
REVOKE = "select bds.revoke_key(k.id) from bds_service.keys_of(%s) k where k.id = %s and k.is_theirs"


async def list_keys(database: Database, identity: Identity, page: tuple[int, int]) -> tuple[list[ApiKey], bool]:
    """Return a page (limit, offset) of the keys for any of a user's companies, valid ones first, and whether there are more."""
    limit, offset = page
    async with database.service() as connection, connection.cursor(row_factory=class_row(ApiKey)) as cursor:
        await cursor.execute(KEYS, (sorted(identity.companies), limit + 1, offset))
        keys = await cursor.fetchall()
    return keys[:limit], len(keys) > limit


async def whole_tenants(database: Database, identity: Identity) -> list[str]:
    """Return the tenants of which the user has every company."""
    async with database.service() as connection:
        cursor = await connection.execute("select bds_service.whole_tenants(%s)", (sorted(identity.companies),))
        return [tenant for (tenant,) in await cursor.fetchall()]


async def create_key(
    database: Database,
    identity: Identity,
    name: str,
    companies: Sequence[str],
    scopes: Sequence[str],
    *,
    tenant: str | None = None,
    expires_at: datetime | None = None,
) -> str:
    """Create a key for some of a user's companies, or for a whole tenant of theirs; return it, which is never possible again.

    tenant: companies beside it are of it.  Raises ServiceError: malformed_request about name, companies or scopes; forbidden.
    """
    _check(identity, name, companies, scopes, tenant)
    if tenant is not None:
        await _check_tenant(database, identity, tenant, companies)
    key = make_key()
    named = None if tenant else list(dict.fromkeys(companies))
    values: tuple[Any, ...] = (hash_key(key), name, named, tenant, list(dict.fromkeys(scopes)), expires_at)
    async with database.service() as connection, connection.transaction():
        await tell(connection)
        await connection.execute(CREATE, values)
    return key


async def revoke_key(database: Database, identity: Identity, key_id: str) -> bool:
    """End a key that is only for companies of the user; false if it had ended before.  Raises ServiceError(not_found)."""
    id = read_id(key_id, "key")
    async with database.service() as connection, connection.transaction():
        await tell(connection)
        row = await (await connection.execute(REVOKE, (sorted(identity.companies), id))).fetchone()
    if row is None:
        raise ServiceError("not_found", f"no such key that you may revoke: {key_id}")
    return bool(row[0])


def _check(identity: Identity, name: str, companies: Sequence[str], scopes: Sequence[str], tenant: str | None) -> None:
    check_key_name(name)
    if not scopes or not set(scopes).issubset(SCOPES):
        raise ServiceError("malformed_request", f"choose one or more of {', '.join(SCOPES)}", target="scopes")
    if tenant is None and not companies:
        raise ServiceError("malformed_request", "choose one company or more", target="companies")
    if not identity.companies.issuperset(companies):
        raise ServiceError("forbidden", "you have no access to one of those companies")


async def _check_tenant(database: Database, identity: Identity, tenant: str, companies: Sequence[str]) -> None:
    if tenant not in await whole_tenants(database, identity):
        raise ServiceError("forbidden", "you have no access to every company of that tenant")
    async with database.service() as connection:
        strays = [company for (company,) in await (await connection.execute(STRAYS, (list(companies), tenant))).fetchall()]
    if strays:
        message = f"tenant {tenant} does not have {' and '.join(strays)}: choose the tenant alone, or companies one by one"
        raise ServiceError("malformed_request", message, target="companies")
