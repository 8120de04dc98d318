"""Who is asking, and for which company.

An API key is 256 random bits behind a prefix that secret scanners can recognise; the database knows its SHA-256 alone.  A lookup by
hash needs no comparison in constant time: whoever measures it learns about hashes, not about keys.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from app.db import Database
from app.errors import ServiceError

PREFIX = "bds_"
KEY = re.compile(r"bds_[A-Za-z0-9_-]{43}")
REALM = "Business Data Service"
CACHE_SECONDS = 2.0  # how long a key may outlive its expiry; its revocation is noticed at once
CACHE_SIZE = 10_000


def make_key() -> str:
    """A new API key, to be shown once."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> bytes:
    """What is stored of a key: 32 bytes."""
    return hashlib.sha256(key.encode()).digest()


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is asking: the key, its tenant if it has one, and what it may do where."""

    key_id: str
    tenant: str | None
    companies: frozenset[str]
    scopes: frozenset[str]

    def may(self, scope: str, company: str) -> bool:
        """Whether `scope` (read, import, hooks) is open to it in `company`, existing or not."""
        return scope in self.scopes and company in self.companies

    def require(self, scope: str, company: str) -> None:
        """Raises forbidden unless it may."""
        if not self.may(scope, company):
            raise ServiceError("forbidden", f"this key has no {scope} access to that company")


class Gate:
    """Turns credentials into identities.

    Positive answers are kept for CACHE_SECONDS, and only while notifications of revoked keys arrive; each of them empties the
    cache, and an answer that was under way meanwhile is not kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[bytes, tuple[float, Identity]] = {}
        self._revocations = 0
        database.on_notify("bds_keys", self._forget)

    def _forget(self, _payload: str) -> None:
        self._revocations += 1
        self._known.clear()

    async def identify(self, headers: Mapping[str, str], *, basic_only: bool = False) -> Identity:
        """The identity behind a request's headers.  Raises unauthorized, with a challenge."""
        key = basic_key(headers) if basic_only else any_key(headers)
        identity = await self._look_up(hash_key(key)) if key and KEY.fullmatch(key) else None
        if identity is None:
            scheme = 'Basic realm="{}", charset="UTF-8"' if basic_only else 'Bearer realm="{}"'
            message = "expected Basic credentials with the user api and an API key" if basic_only else "expected an API key"
            raise ServiceError("unauthorized", message, headers={"WWW-Authenticate": scheme.format(REALM)})
        return identity

    async def _look_up(self, key_hash: bytes) -> Identity | None:
        known = self._known.get(key_hash)
        if known and self._database.listening and time.monotonic() - known[0] < CACHE_SECONDS:
            return known[1]
        asked, revocations = time.monotonic(), self._revocations
        async with self._database.service() as connection:
            cursor = await connection.execute(
                "select key_id::text, tenant_id, companies, scopes from bds.authenticate(%s)", (key_hash,)
            )
            row = await cursor.fetchone()
        if row is None:
            return None
        identity = Identity(row[0], row[1], frozenset(row[2]), frozenset(row[3]))
        if revocations == self._revocations:
            if len(self._known) >= CACHE_SIZE:
                self._known.clear()
            self._known[key_hash] = (asked, identity)
        return identity


def basic_key(headers: Mapping[str, str]) -> str | None:
    """The API key of Basic credentials whose user is `api`."""
    scheme, _, credentials = headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except ValueError:
        return None
    return password if user == "api" else None


def any_key(headers: Mapping[str, str]) -> str | None:
    """The API key in whichever way it was sent: Bearer, Basic, or X-API-Key where there is no Authorization."""
    authorization = headers.get("Authorization")
    if authorization is None:
        return headers.get("X-API-Key")
    scheme, _, credentials = authorization.partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else basic_key(headers)
