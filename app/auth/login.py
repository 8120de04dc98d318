"""Signing in and out over HTTP; and that a browser's request was meant by the person whose cookie it brings."""

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
from app.auth.passwords import Passwords, renewed
from app.auth.tokens import COOKIE, LASTS, same
from app.database.database import Database
from app.errors import ServiceError
from app.wire.bodies import body_deadline

ACTOR = web.RequestKey("actor", str)  # who sends a request, as the change log names them; for the log
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
FORMS = ("application/x-www-form-urlencoded",)


async def identify(gate: Gate, request: web.Request, *, basic_only: bool = False) -> Identity:
    """Who sends a request.  Raises unauthorized, too_many_requests; csrf_failed if a cookie alone asks for a change."""
    identity = await gate.identify(request.headers, request.remote, basic_only=basic_only)
    request[ACTOR] = identity.actor
    if identity.csrf is not None and request.method not in SAFE and not same(await _csrf_of(request), identity.csrf):
        raise ServiceError("csrf_failed", "expected the header X-CSRF-Token, or the form field csrf, as the login has given it")
    return identity


async def _csrf_of(request: web.Request) -> str:
    header = request.headers.get("X-CSRF-Token")
    if header is None and request.content_type in FORMS:
        with contextlib.suppress(
            ValueError, LookupError
        ):  # a body that is no form, or in a coding that nobody knows, proves nothing
            async with body_deadline():
                header = str((await request.post()).get("csrf", ""))
    return header or ""


PASSWORD_OF = "select user_id::text, password_hash from bds.password_of(%s)"
BEGIN = "select bds.begin_session(%s, %s, %s, %s)::text"


@dataclass(frozen=True, slots=True)
class Known:
    """A user, and the hash that their password fitted."""

    user: str
    password_hash: str


@dataclass(frozen=True, slots=True)
class SignedIn:
    """What a session is named by: the token and when it expires, the cookie, and what a change must bring beside the cookie."""

    token: str
    expires: datetime
    csrf: str
    cookie: str


class Login:
    """Turns an email address and a password into a session."""

    def __init__(self, database: Database, gate: Gate) -> None:
        self._database, self._gate, self._passwords = database, gate, Passwords()

    async def login(self, request: web.Request, body: bytes) -> web.Response:
        """The answer to a login: token, its expiry, CSRF token, and the cookie.

        Raises malformed_request, unauthorized, too_many_requests.
        """
        email, password = read_texts(body, "email", "password")
        signed_in = await self.sign_in(request.remote, email, password)
        answer = {"token": signed_in.token, "expiresAt": _time(signed_in.expires), "csrf": signed_in.csrf}
        response = web.json_response(answer, headers={"Cache-Control": "no-store"})
        set_cookie(response, request, signed_in)
        return response

    async def sign_in(self, address: str | None, email: str, password: str) -> SignedIn:
        """Begin a session.  Raises unauthorized, too_many_requests."""
        session, user = await self._begin(await self._check(address, email, password), password)
        signer = await self._gate.signer()
        token, expires = signer.sign("token", session, user)
        cookie, _ = signer.sign("cookie", session, user)
        return SignedIn(token, expires, signer.csrf(session), cookie)

    async def logout(self, identity: Identity, request: web.Request) -> web.Response:
        """End the session of whoever is asking.  Raises forbidden for a key, which has none."""
        await self.end(identity)
        return self._signed_out(request)

    async def end(self, identity: Identity) -> None:
        """End a session.  Raises forbidden for a key, which has none."""
        if identity.session is None:
            raise ServiceError("forbidden", "a key has no session to end; it is revoked where keys are managed")
        async with self._database.service() as connection:
            await connection.execute("select bds.end_session(%s)", (identity.session,))

    async def change_password(self, identity: Identity, request: web.Request, body: bytes) -> web.Response:
        """Give a user who knows the old password a new one, and end every session and token of theirs."""
        if identity.email is None:
            raise ServiceError("forbidden", "a key has no password")
        await self.replace_password(request.remote, identity.email, *read_texts(body, "password", "newPassword"))
        return self._signed_out(request)

    async def replace_password(self, address: str | None, email: str, old: str, new: str) -> None:
        """The same without an answer.  Raises unauthorized, too_many_requests; malformed_request about the new one."""
        await self._check(address, email, old)
        new_hash = await self._passwords.hash(new)
        async with self._database.service() as connection:
            await connection.execute("select bds.set_password(%s, %s)", (email, new_hash))

    async def _check(self, address: str | None, email: str, password: str) -> Known:
        """Whose address and password these are.  Raises unauthorized, too_many_requests, TimeoutError."""

        async def check() -> Known | None:
            async with self._database.service() as connection:
                # no address has such characters, and no database takes them
                asked = email.strip().encode("utf-8", "replace").decode().replace("\0", "?")
                row = await (await connection.execute(PASSWORD_OF, (asked,))).fetchone()
            known = Known(*row) if row else None
            return known if await self._passwords.fits(password, known.password_hash if known else None) else None

        known = await self._gate.throttle.attempt(address, check)
        if known is None:
            metrics.refused_credentials.inc()
            raise wrong_login()
        return known

    async def _begin(self, known: Known, password: str) -> tuple[str, str]:
        """A new session's id, and the user's.  Raises unauthorized if the password has become another one."""
        stronger = await asyncio.to_thread(renewed, password, known.password_hash)
        async with self._database.service() as connection:
            cursor = await connection.execute(BEGIN, (known.user, known.password_hash, LASTS["cookie"], stronger))
            row = await cursor.fetchone()
        if row is None or row[0] is None:
            raise wrong_login()
        return row[0], known.user

    def _signed_out(self, request: web.Request) -> web.Response:
        response = web.Response(status=204, headers={"Cache-Control": "no-store"})
        delete_cookie(response, request)
        return response


def set_cookie(response: web.Response, request: web.Request, signed_in: SignedIn) -> None:
    """Let the browser keep the session."""
    lasts = int(LASTS["cookie"].total_seconds())
    response.set_cookie(COOKIE, signed_in.cookie, max_age=lasts, httponly=True, samesite="Lax", secure=request.secure)


def delete_cookie(response: web.Response, request: web.Request) -> None:
    """Let the browser forget the session."""
    response.del_cookie(COOKIE, httponly=True, samesite="Lax", secure=request.secure)


def read_texts(body: bytes, *names: str) -> list[str]:
    """These members of a JSON body, which are texts.  Raises malformed_request."""
    try:
        read: Any = json.loads(body)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        expected = ", ".join(f'"{name}": ...' for name in names)
        raise ServiceError("malformed_request", f"expected {{{expected}}} as JSON")
    for name in names:
        if not isinstance(read.get(name), str):
            raise ServiceError("malformed_request", f"{name}: expected a text", target=name)
    return [read[name] for name in names]


def wrong_login() -> ServiceError:
    """The same refusal whatever is wrong, so that nobody learns who has an account."""
    return ServiceError("unauthorized", "the email address or the password is wrong", headers=unauthorized().headers)


def _time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
