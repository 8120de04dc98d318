"""Authentication of every request.

OData accepts only Basic credentials: the user `api` and an API key as the password.  Everything else accepts the first of these
that is sent: Authorization (Bearer with a key or a token, Basic with a key), X-API-Key, the session cookie.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import psycopg

from app import metrics
from app.auth.keys import KEY, basic_key, hash_key, is_basic, key_or_token
from app.auth.throttle import Throttle
from app.auth.tokens import ExpiredToken, Signer, Use, WrongCredentials, session_cookie
from app.database.database import Database
from app.errors import ServiceError

log = logging.getLogger("bds.auth")

REALM = "Business Data Service"
CACHE_SECONDS = 2.0  # for which a key's identity is cached; a revocation empties the cache at once
CACHE_SIZE = 10_000  # entries
SESSION = "select email, companies, is_administrator from bds_service.session(%s, %s)"
SCOPES = ("read", "propose", "import", "hooks")
INCLUDED = {"propose": "import"}  # scope -> the one that includes it


@dataclass(frozen=True, slots=True)
class Identity:
    """The sender of a request, an API key or a user with a session, and what it may do in which companies."""

    key_id: str | None
    tenant: str | None
    companies: frozenset[str]
    scopes: frozenset[str]
    email: str | None = None
    session: str | None = None
    is_administrator: bool = False  # with a session; may create and delete companies and users
    csrf: str | None = None  # the CSRF token that a change needs; None unless a cookie was sent

    @property
    def actor(self) -> str:
        """The actor in the change log."""
        return f"user {self.email}" if self.email else f"key {self.key_id}"

    def may(self, scope: str, company: str) -> bool:
        """Whether it has the scope (one of SCOPES) in the company; false if the company does not exist."""
        return company in self.companies and (scope in self.scopes or INCLUDED.get(scope) in self.scopes)

    def require(self, scope: str, company: str) -> None:
        """Raises ServiceError(forbidden) unless it has the scope in the company."""
        if not self.may(scope, company):
            who = "your account" if self.email else "this key"
            raise ServiceError("forbidden", f"{who} has no {scope} access to that company")

    def require_administrator(self) -> None:
        """Raises ServiceError(forbidden) unless it is an administrator's session or token."""
        if not self.is_administrator:
            raise ServiceError("forbidden", "this is for administrators, with a session or a token")


class Gate:
    """Authenticates requests.

    The identity of a key is cached for CACHE_SECONDS, never beyond the key's expiry, and only while notifications of revoked keys
    arrive.  Each notification empties the cache; a lookup that was running meanwhile is not cached.  Requests that come while their
    key is looked up share the lookup: otherwise a thousand at once would wait for connections, and be overtaken by those that come
    when the first lookup has ended.  Sessions are looked up at each request: people send few, and the end of a session must take
    effect at once.
    """

    def __init__(self, database: Database) -> None:
        self.throttle = Throttle(database)
        self._database = database
        self._cache: dict[bytes, tuple[float, Identity]] = {}  # hash -> (until when, on the monotonic clock; identity)
        self._lookups: dict[tuple[bytes, int], asyncio.Task[Identity | None]] = {}  # that run; by hash and number of revocations
        self._revocations = 0
        self._signer: Signer | None = None
        database.on_notify("bds_keys", self._on_revocation)

    def clear_cache(self) -> None:
        """Forget cached keys: this process has revoked one, and its notification has not arrived yet."""
        self._on_revocation("")

    def _on_revocation(self, _payload: str) -> None:
        self._revocations += 1
        self._cache.clear()

    async def identify(self, headers: Mapping[str, str], address: str | None = None, *, basic_only: bool = False) -> Identity:
        """Return the identity behind a request's headers.

        address: the client's; wrong credentials are counted for it.  A session that has ended is not counted, because it is not
        a guess: a page left open must not keep its user from logging in again.
        Raises ServiceError(unauthorized) with a challenge, or too_many_requests.
        """
        header_hash = hash_key(f"Authorization: {headers.get('Authorization', '')}")
        cached = self._cached(header_hash)
        if cached is not None:
            return cached
        credentials = read_credentials(headers, basic_only=basic_only)
        if credentials is None:
            raise unauthorized(basic_only)
        try:
            identity = await self._find(*credentials)
        except WrongCredentials:
            await self.throttle.count_failure(address)
            metrics.refused_credentials.inc()
            raise unauthorized(basic_only) from None
        if identity is None:
            raise unauthorized(basic_only)
        if is_basic(headers) and (entry := self._cache.get(hash_key(credentials[1]))):
            self._cache[header_hash] = entry  # so that the next request's header is not decoded again
        return identity

    async def still_may(self, headers: Mapping[str, str], scope: str, company: str) -> bool:
        """Whether the credentials of a request that is being answered still have the scope in the company; counts no failure."""
        credentials = read_credentials(headers)
        try:
            identity = await self._find(*credentials) if credentials else None
        except WrongCredentials:
            return False
        return identity is not None and identity.may(scope, company)

    async def signer(self) -> Signer:
        """Return the signer of tokens: with BDS_SECRET, or with a random secret made once and kept in the database."""
        if self._signer is None:
            secret: str | None = self._database.config.secret
            if secret is None:
                async with self._database.service() as connection:
                    query = "select bds_service.keep_secret('tokens', %s)"
                    row = await self._fetch_row(connection, query, (secrets.token_hex(32),))
                secret = str(row[0])
            self._signer = Signer(secret)
        return self._signer

    async def _find(self, kind: Literal["key", "token", "cookie"], text: str) -> Identity | None:
        """The identity behind credentials; None if its session has ended.  Raises WrongCredentials."""
        return await self._identify_key(text) if kind == "key" else await self._identify_session(kind, text)

    async def _identify_key(self, key: str) -> Identity:
        if not KEY.fullmatch(key):
            raise WrongCredentials
        identity = await self._find_key(hash_key(key))
        if identity is None:
            raise WrongCredentials
        return identity

    async def _identify_session(self, use: Use, text: str) -> Identity | None:
        """The identity behind a token or cookie; None if its session has ended, or is another user's.  Raises WrongCredentials."""
        signer = await self.signer()
        try:
            session, user = signer.read(use, text)
        except ExpiredToken:
            return None
        async with self._database.service() as connection:
            row = await self._fetch_row(connection, SESSION, (session, user))
        if row is None:
            return None
        csrf = signer.csrf(session) if use == "cookie" else None
        return Identity(None, None, frozenset(row[1]), frozenset(SCOPES), row[0], session, row[2], csrf)

    def _cached(self, digest: bytes) -> Identity | None:
        """The cached identity of a key or of an Authorization header with Basic credentials, by its hash."""
        entry = self._cache.get(digest)
        return entry[1] if entry and self._database.listening and time.monotonic() < entry[0] else None

    async def _find_key(self, key_hash: bytes) -> Identity | None:
        """The identity of a key, from the cache or the database; None if the key is unknown, revoked or expired."""
        cached = self._cached(key_hash)
        if cached is not None:
            return cached
        wanted = (key_hash, self._revocations)
        if not self._database.listening:
            return await self._look_up(*wanted)
        if (lookup := self._lookups.get(wanted)) is None:
            lookup = self._lookups[wanted] = asyncio.create_task(self._look_up(*wanted))
            lookup.add_done_callback(partial(self._end_lookup, wanted))
        return await asyncio.shield(lookup)

    def _end_lookup(self, wanted: tuple[bytes, int], lookup: asyncio.Task[Identity | None]) -> None:
        del self._lookups[wanted]
        if not lookup.cancelled():
            lookup.exception()  # seen, even if all requests have left

    async def _look_up(self, key_hash: bytes, revocations: int) -> Identity | None:
        """The identity of a key, from the database; cached unless a key is revoked meanwhile."""
        started = time.monotonic()
        async with self._database.service() as connection:
            found = await self._query_key(connection, key_hash)
        if found is None:
            return None
        identity, seconds_left = found
        if revocations == self._revocations:
            if len(self._cache) >= CACHE_SIZE:
                self._cache.clear()
            self._cache[key_hash] = (started + min(CACHE_SECONDS, seconds_left or CACHE_SECONDS), identity)
        return identity

    async def _query_key(self, connection: psycopg.AsyncConnection[Any], key_hash: bytes) -> tuple[Identity, float | None] | None:
        """The identity of a key and the seconds until it expires, if it does; records that the key was used."""
        row = await self._fetch_row(
            connection,
            "select key_id::text, tenant_id, companies, scopes, seconds_left, use_is_noted from bds_service.authenticate(%s)",
            (key_hash,),
        )
        if row is None:
            return None
        if not row[5]:
            try:
                await connection.execute("select bds_service.note_use(%s)", (row[0],))
            except psycopg.Error as error:  # a read-only database still authenticates
                log.warning("the use of key %s was not recorded: %s", row[0], type(error).__name__)
        return Identity(row[0], row[1], frozenset(row[2]), frozenset(row[3])), row[4]

    async def _fetch_row(self, connection: psycopg.AsyncConnection[Any], query: Any, parameters: tuple[Any, ...]) -> Any:
        return await (await connection.execute(query, parameters)).fetchone()


def read_credentials(
    headers: Mapping[str, str], *, basic_only: bool = False
) -> tuple[Literal["key", "token", "cookie"], str] | None:
    """Return the kind and the text of the credentials in the headers, or None if there are none of an accepted kind."""
    if is_basic(headers):
        return "key", basic_key(headers) or ""
    if basic_only:
        return None
    scheme = headers["Authorization"].partition(" ")[0].lower() if "Authorization" in headers else None
    sent = key_or_token(headers)
    if sent is not None:
        return ("token" if scheme == "bearer" and sent.count(".") == 2 else "key"), sent
    cookie = session_cookie(headers) if scheme is None else None
    return ("cookie", cookie) if cookie else None


def unauthorized(basic_only: bool = False) -> ServiceError:
    """Return the error for missing or wrong credentials, with its WWW-Authenticate challenge."""
    if basic_only:
        challenge = f'Basic realm="{REALM}", charset="UTF-8"'
        message = "expected Basic credentials: the user api, an API key as the password"
    else:
        challenge, message = f'Bearer realm="{REALM}"', "expected an API key, a token or a session"
    return ServiceError("unauthorized", message, headers={"WWW-Authenticate": challenge})
