"""Credentials become identities, at every request.

What may be presented: under OData Basic with user `api` and a key; elsewhere one of these, the first that is there: Authorization
(Bearer with a key or a token, Basic with a key), X-API-Key, the session's cookie.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from app import metrics
from app.auth.keys import KEY, any_key, basic_key, hash_key, is_basic
from app.auth.throttle import Throttle
from app.auth.tokens import Expired, Forged, Signer, Use, cookie_of
from app.database.database import Database
from app.errors import ServiceError

log = logging.getLogger("bds.auth")

REALM = "Business Data Service"
CACHE_SECONDS = 2.0  # how long what is known of a key may be used again; its revocation is noticed at once
CACHE_SIZE = 10_000
SCOPES = frozenset({"read", "import", "hooks"})
SAFE_LENGTH = 32  # bytes of a secret: as long as what it makes


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is asking: a key, or a user in a session; its tenant if it has one, and what it may do where."""

    key_id: str | None
    tenant: str | None
    companies: frozenset[str]
    scopes: frozenset[str]
    email: str | None = None
    session: str | None = None
    csrf: str | None = None  # what a change must bring, if it is a cookie that says who is asking

    @property
    def actor(self) -> str:
        """Who it is in the change log."""
        return f"user {self.email}" if self.email else f"key {self.key_id}"

    def may(self, scope: str, company: str) -> bool:
        """Whether `scope` (read, import, hooks) is open to it in `company`, existing or not."""
        return scope in self.scopes and company in self.companies

    def require(self, scope: str, company: str) -> None:
        """Raises forbidden unless it may."""
        if not self.may(scope, company):
            raise ServiceError("forbidden", f"this {'user' if self.email else 'key'} has no {scope} access to that company")


class Gate:
    """Turns credentials into identities.

    What is known of a key is kept for CACHE_SECONDS, not beyond its expiry, and only while notifications of revoked keys arrive;
    each of them empties the cache, and an answer that was under way meanwhile is not kept.  Sessions are people's, who do not ask
    a thousand times a second: they are looked up at each request, so that their end cannot be missed.
    """

    def __init__(self, database: Database) -> None:
        self.throttle = Throttle(database)
        self._database = database
        self._known: dict[bytes, tuple[float, Identity]] = {}
        self._revocations = 0
        self._signer: Signer | None = None
        database.on_notify("bds_keys", self._forget)

    def forget(self) -> None:
        """Look every key up again: one was revoked by this process, whose notification is on its way."""
        self._forget("")

    def _forget(self, _payload: str) -> None:
        self._revocations += 1
        self._known.clear()

    async def identify(self, headers: Mapping[str, str], address: str | None = None, *, basic_only: bool = False) -> Identity:
        """The identity behind a request's headers.  Raises unauthorized, with a challenge, or too_many_requests.

        address: the client's, for which wrong credentials are counted.  What was right once and has ended is not counted: it is
        nobody's guess, and a page left open must not keep its user from signing in again.
        """
        written = hash_key(f"Authorization: {headers.get('Authorization', '')}")
        known = self._recall(written)
        if known is not None:
            return known
        presented = present(headers, basic_only=basic_only)
        if presented is None:
            raise unauthorized(basic_only)
        kind, text = presented
        try:
            identity = await self._of_key(text) if kind == "key" else await self._of_session(kind, text)
        except Forged:
            await self.throttle.count(address)
            metrics.refused_credentials.inc()
            raise unauthorized(basic_only) from None
        if identity is None:
            raise unauthorized(basic_only)
        if is_basic(headers) and (kept := self._known.get(hash_key(text))):
            self._known[written] = kept  # as it was written, too, for which such credentials need not be taken apart again
        return identity

    async def signer(self) -> Signer:
        """What signs tokens: with BDS_SECRET, or with a secret made at random once and kept in the database."""
        if self._signer is None:
            secret = self._database.config.secret
            if secret is None:
                async with self._database.service() as connection:
                    row = await self._one(connection, "select bds.keep_secret('tokens', %s)", (secrets.token_hex(32),))
                secret = str(row[0])
            elif len(secret.encode()) < SAFE_LENGTH:
                log.warning("BDS_SECRET is short enough to be guessed: expected %d bytes or more", SAFE_LENGTH)
            self._signer = Signer(secret)
        return self._signer

    async def _of_key(self, key: str) -> Identity:
        if not KEY.fullmatch(key):
            raise Forged
        identity = await self._look_up(hash_key(key))
        if identity is None:
            raise Forged
        return identity

    async def _of_session(self, use: Use, text: str) -> Identity | None:
        signer = await self.signer()
        try:
            session = signer.read(use, text)
        except Expired:
            return None
        async with self._database.service() as connection:
            row = await self._one(connection, "select email, companies from bds.session(%s)", (session,))
        if row is None:
            return None
        csrf = signer.csrf(session) if use == "cookie" else None
        return Identity(None, None, frozenset(row[1]), SCOPES, row[0], session, csrf)

    def _recall(self, digest: bytes) -> Identity | None:
        """Whose the key with this hash is, or the Basic credentials (which count everywhere), as far as that is kept."""
        known = self._known.get(digest)
        return known[1] if known and self._database.listening and time.monotonic() < known[0] else None

    async def _look_up(self, key_hash: bytes) -> Identity | None:
        """Whose the key with this hash is; None if nobody's."""
        known = self._recall(key_hash)
        if known is not None:
            return known
        asked, revocations = time.monotonic(), self._revocations
        async with self._database.service() as connection:
            found = await self._ask(connection, key_hash)
        if found is None:
            return None
        identity, seconds_left = found
        if revocations == self._revocations:
            if len(self._known) >= CACHE_SIZE:
                self._known.clear()
            self._known[key_hash] = (asked + min(CACHE_SECONDS, seconds_left or CACHE_SECONDS), identity)
        return identity

    async def _ask(self, connection: psycopg.AsyncConnection[Any], key_hash: bytes) -> tuple[Identity, float | None] | None:
        row = await self._one(
            connection,
            "select key_id::text, tenant_id, companies, scopes, seconds_left, use_is_noted from bds.authenticate(%s)",
            (key_hash,),
        )
        if row is None:
            return None
        if not row[5]:
            try:
                await connection.execute("select bds.note_use(%s)", (row[0],))
            except psycopg.Error as error:  # a database that takes no writes still answers who may read
                log.warning("the use of key %s was not recorded: %s", row[0], type(error).__name__)
        return Identity(row[0], row[1], frozenset(row[2]), frozenset(row[3])), row[4]

    async def _one(self, connection: psycopg.AsyncConnection[Any], query: Any, parameters: tuple[Any, ...]) -> Any:
        return await (await connection.execute(query, parameters)).fetchone()


def present(headers: Mapping[str, str], *, basic_only: bool = False) -> tuple[Literal["key", "token", "cookie"], str] | None:
    """What is presented as credentials, and as which kind; None if nothing is that could count here."""
    if is_basic(headers):
        return "key", basic_key(headers) or ""
    if basic_only:
        return None
    scheme = headers["Authorization"].partition(" ")[0].lower() if "Authorization" in headers else None
    sent = any_key(headers)
    if sent is not None:
        return ("token" if scheme == "bearer" and sent.count(".") == 2 else "key"), sent
    cookie = cookie_of(headers) if scheme is None else None
    return ("cookie", cookie) if cookie else None


def unauthorized(basic_only: bool = False) -> ServiceError:
    """The refusal of missing or wrong credentials, with the challenge that belongs to it."""
    if basic_only:
        challenge, message = (
            f'Basic realm="{REALM}", charset="UTF-8"',
            "expected Basic credentials with the user api and an API key",
        )
    else:
        challenge, message = f'Bearer realm="{REALM}"', "expected an API key, a token or a session"
    return ServiceError("unauthorized", message, headers={"WWW-Authenticate": challenge})
