"""Login, logout and change of password over HTTP; and the CSRF check of requests that carry a session cookie."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aiohttp import web

from app import metrics
from app.auth.gate import Gate, Identity, unauthorized
from app.auth.passwords import Passwords, rehash_if_weak
from app.auth.tokens import COOKIE, LIFETIME, secrets_equal
from app.database.caller import name_actor, tell
from app.database.database import Database
from app.errors import ServiceError
from app.wire.bodies import FORM_TYPES, body_deadline

ACTOR = web.RequestKey("actor", str)  # of a request, for the log
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


async def identify(gate: Gate, request: web.Request, *, basic_only: bool = False) -> Identity:
    """Return the identity behind a request.

    Raises ServiceError: unauthorized, too_many_requests; csrf_failed if a session cookie asks for a change without its CSRF token.
    """
    identity = await gate.identify(request.headers, request.remote, basic_only=basic_only)
    request[ACTOR] = identity.actor
    name_actor(identity.actor)
    if identity.csrf is None or request.method in SAFE_METHODS:
        return identity
    if not secrets_equal(await _sent_csrf_token(request), identity.csrf):
        message = "expected the CSRF token of the login in the header X-CSRF-Token or the form field csrf"
        raise ServiceError("csrf_failed", message)
    return identity


async def _sent_csrf_token(request: web.Request) -> str:
    token = request.headers.get("X-CSRF-Token")
    if token is None and request.content_type in FORM_TYPES:
        # a body that is not a form, or has an unknown charset, has no token
        with contextlib.suppress(ValueError, LookupError):
            async with body_deadline():
                token = str((await request.post()).get("csrf", ""))
    return token or ""


PASSWORD_OF = "select user_id::text, password_hash from bds_service.password_of(%s)"
BEGIN = "select bds_service.begin_session(%s, %s, %s, %s, %s::inet)::text"
REPLACE = "select bds_service.replace_password(%s, %s, %s)"


@dataclass(frozen=True, slots=True)
class VerifiedUser:
    """A user whose password was verified against this hash."""

    id: str
    password_hash: str


@dataclass(frozen=True, slots=True)
class SessionCredentials:
    """What a new session is used with: a token until `expires`, or a cookie and, for changes, the CSRF token."""

    token: str
    expires: datetime
    csrf: str
    cookie: str


class Login:
    """Begins and ends the sessions of users, and changes their passwords."""

    def __init__(self, database: Database, gate: Gate) -> None:
        self._database, self._gate, self._passwords = database, gate, Passwords()

    async def login(self, request: web.Request, body: bytes) -> web.Response:
        """Answer a login with its token, the token's expiry and the CSRF token, and set the cookie.

        Raises ServiceError: malformed_request, unauthorized, too_many_requests.
        """
        email, password = read_texts(body, "email", "password")
        session = await self.begin_session(request.remote, email, password)
        answer = {"token": session.token, "expiresAt": _time(session.expires), "csrf": session.csrf}
        response = web.json_response(answer, headers={"Cache-Control": "no-store"})
        set_cookie(response, request, session)
        return response

    async def begin_session(self, address: str | None, email: str, password: str) -> SessionCredentials:
        """Begin a session.  Raises ServiceError: unauthorized, too_many_requests."""
        named = _stored(email)
        user = await self._verify(address, named, password)
        session = await self._store_session(named, user, password, address)
        signer = await self._gate.signer()
        token, expires = signer.sign("token", session, user.id)
        cookie, _ = signer.sign("cookie", session, user.id)
        return SessionCredentials(token, expires, signer.csrf(session), cookie)

    async def logout(self, identity: Identity, request: web.Request) -> web.Response:
        """End the session and drop its cookie.  Raises ServiceError(forbidden) for an API key."""
        await self.end_session(identity)
        return self._signed_out(request)

    async def end_session(self, identity: Identity) -> None:
        """End the session.  Raises ServiceError(forbidden) for an API key, which has none."""
        if identity.session is None:
            raise ServiceError("forbidden", "an API key has no session to end; revoke the key instead")
        async with self._database.service() as connection:
            await connection.execute("select bds_service.end_session(%s)", (identity.session,))

    async def change_password(self, identity: Identity, request: web.Request, body: bytes) -> web.Response:
        """Replace the user's password and drop the cookie; raises ServiceError like `replace_password`, and forbidden for a key."""
        if identity.email is None:
            raise ServiceError("forbidden", "an API key has no password")
        await self.replace_password(request.remote, identity.email, *read_texts(body, "password", "newPassword"))
        return self._signed_out(request)

    async def replace_password(self, address: str | None, email: str, old: str, new: str) -> None:
        """Replace a user's password, which ends all of the user's sessions and tokens.

        Raises ServiceError: unauthorized if the old password is wrong, or was replaced since it was verified, too_many_requests,
        malformed_request about the new one.
        """
        named = _stored(email)
        user: VerifiedUser | None = await self._verify(address, named, old)
        if new == old:
            raise ServiceError("malformed_request", "newPassword: expected another one than the old password", target="newPassword")
        new_hash = await self._passwords.hash(new)
        while user is not None:
            async with self._database.service() as connection, connection.transaction():
                await tell(connection)
                cursor = await connection.execute(REPLACE, (user.id, user.password_hash, new_hash))
                if await cursor.fetchone() == (True,):
                    return
            user = await self._find(named, old)  # a login may have replaced a weak hash of the same password
        raise wrong_login()

    async def _verify(self, address: str | None, named: str, password: str) -> VerifiedUser:
        """Return the user with this email address and password.

        Raises ServiceError: unauthorized, too_many_requests, busy; TimeoutError if the password is not hashed in time.
        """
        user = await self._gate.throttle.attempt(address, named, lambda: self._find(named, password))
        if user is None:
            metrics.refused_credentials.inc()
            raise wrong_login()
        return user

    async def _find(self, named: str, password: str) -> VerifiedUser | None:
        """The user with this email address; None if there is none, or the password is another."""
        async with self._database.service() as connection:
            row = await (await connection.execute(PASSWORD_OF, (named,))).fetchone()
        user = VerifiedUser(*row) if row else None
        return user if await self._passwords.verify(password, user.password_hash if user else None) else None

    async def _store_session(self, named: str, user: VerifiedUser | None, password: str, address: str | None) -> str:
        """Return the id of a new session.  Raises ServiceError(unauthorized) if the password was replaced since it was verified."""
        while user is not None:
            stronger = await asyncio.to_thread(rehash_if_weak, password, user.password_hash)
            async with contextlib.AsyncExitStack() as stack:
                connection = await stack.enter_async_context(self._database.service())
                if stronger:  # the audit has the new hash
                    name_actor(f"user {named}")
                    await stack.enter_async_context(connection.transaction())
                    await tell(connection)
                cursor = await connection.execute(BEGIN, (user.id, user.password_hash, LIFETIME["cookie"], stronger, address))
                row = await cursor.fetchone()
            if row is not None and row[0] is not None:
                return str(row[0])
            user = await self._find(named, password)  # another login may have replaced a weak hash of the same password
        raise wrong_login()

    def _signed_out(self, request: web.Request) -> web.Response:
        response = web.Response(status=204, headers={"Cache-Control": "no-store"})
        delete_cookie(response, request)
        return response


def _stored(email: str) -> str:
    """The address as it could be stored: none has lone surrogates or U+0000, and PostgreSQL rejects them in a parameter."""
    return email.strip().encode("utf-8", "replace").decode().replace("\0", "?")


def set_cookie(response: web.Response, request: web.Request, session: SessionCredentials) -> None:
    """Set the session cookie."""
    lifetime = int(LIFETIME["cookie"].total_seconds())
    response.set_cookie(COOKIE, session.cookie, max_age=lifetime, httponly=True, samesite="Lax", secure=request.secure)


def delete_cookie(response: web.Response, request: web.Request) -> None:
    """Delete the session cookie."""
    response.del_cookie(COOKIE, httponly=True, samesite="Lax", secure=request.secure)


def read_texts(body: bytes, *names: str) -> list[str]:
    """Return these members of a JSON body.  Raises ServiceError(malformed_request) unless each is a text."""
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        expected = ", ".join(f'"{name}": "..."' for name in names)
        raise ServiceError("malformed_request", f"expected a JSON object {{{expected}}}")
    for name in names:
        if not isinstance(document.get(name), str):
            raise ServiceError("malformed_request", f"{name}: expected a text", target=name)
    return [document[name] for name in names]


def wrong_login() -> ServiceError:
    """Return the error for a wrong login: the same in every case, so that it does not reveal which accounts exist."""
    return ServiceError("unauthorized", "the email address or the password is wrong", headers=unauthorized().headers)


def _time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
