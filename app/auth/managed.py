"""API keys as people manage them who have signed in: those that open their companies, and no others."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg.rows import class_row

from app.auth.gate import SCOPES, Identity
from app.auth.keys import hash_key, make_key
from app.database.database import Database
from app.errors import ServiceError

LONGEST_NAME = 100

State = Literal["valid", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class Key:
    """A stored key, as somebody sees it who has some of its companies."""

    id: uuid.UUID
    name: str
    companies: list[str]  # those that they may see
    others: int  # how many they may not
    tenant_id: str | None  # it opens every company of this tenant, later ones too
    scopes: list[str]
    actor: str  # who made it
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    is_theirs: bool  # it opens no other company, so that they may revoke it
    state: State


KEYS = """
    select k.*,
        case when k.revoked_at is not null then 'revoked' when k.expires_at <= now() then 'expired' else 'valid' end as state
    from bds.keys_of(%s) k
    order by (k.revoked_at is not null or coalesce(k.expires_at <= now(), false)), k.created_at desc
    limit %s offset %s
"""
CREATE = "select bds.create_key(%s, %s, %s, %s, %s, %s)"
REVOKE = "select bds.revoke_key(k.id) from bds.keys_of(%s) k where k.id = %s and k.is_theirs"


async def listed(database: Database, identity: Identity, page: tuple[int, int]) -> tuple[list[Key], bool]:
    """A page (limit, offset) of the keys that open any of a person's companies, valid ones first; whether there are more."""
    limit, offset = page
    async with database.service() as connection, connection.cursor(row_factory=class_row(Key)) as cursor:
        await cursor.execute(KEYS, (sorted(identity.companies), limit + 1, offset))
        keys = await cursor.fetchall()
    return keys[:limit], len(keys) > limit


async def tenants(database: Database, identity: Identity) -> list[str]:
    """The tenants all of whose companies are a person's."""
    async with database.service() as connection:
        cursor = await connection.execute("select bds.whole_tenants(%s)", (sorted(identity.companies),))
        return [tenant for (tenant,) in await cursor.fetchall()]


async def create(
    database: Database,
    identity: Identity,
    name: str,
    companies: Sequence[str],
    scopes: Sequence[str],
    *,
    tenant: str | None = None,
    expires_at: datetime | None = None,
) -> str:
    """Make a key for some of a person's companies, or for all of a tenant's that are theirs; it is known here and now alone.

    Raises malformed_request about name, companies or scopes, forbidden.
    """
    _check(identity, name, companies, scopes, tenant)
    if tenant is not None and tenant not in await tenants(database, identity):
        raise ServiceError("forbidden", "you have no access to every company of that tenant")
    key = make_key()
    given: tuple[Any, ...] = (hash_key(key), name, None if tenant else list(companies), tenant, list(scopes), expires_at)
    async with database.service() as connection, connection.transaction():
        await connection.execute("select set_config('bds.actor', %s, true)", (identity.actor,))
        await connection.execute(CREATE, given)
    return key


async def revoke(database: Database, identity: Identity, key_id: str) -> bool:
    """End a key that opens a person's companies alone; false if it has ended already.  Raises not_found."""
    try:
        named = uuid.UUID(key_id)
    except ValueError:
        raise ServiceError("not_found", f"there is no key {key_id}") from None
    async with database.service() as connection:
        row = await (await connection.execute(REVOKE, (sorted(identity.companies), named))).fetchone()
    if row is None:
        raise ServiceError("not_found", f"there is no key {key_id} that opens your companies alone")
    return bool(row[0])


def check_name(name: str) -> None:
    """Raises malformed_request unless a key may be called so."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise ServiceError("malformed_request", f"expected a name of 1 to {LONGEST_NAME} printable characters", target="name")


def _check(identity: Identity, name: str, companies: Sequence[str], scopes: Sequence[str], tenant: str | None) -> None:
    check_name(name)
    if not scopes or not SCOPES.issuperset(scopes):
        raise ServiceError("malformed_request", "expected one or more of read, import, hooks", target="scopes")
    if tenant is None and not companies:
        raise ServiceError("malformed_request", "expected one company or more", target="companies")
    if not identity.companies.issuperset(companies):
        raise ServiceError("forbidden", "you have no access to one of those companies")
