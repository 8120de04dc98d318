"""Signing in and out over HTTP; and that a browser's request was meant by the person whose cookie it brings."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

from aiohttp import web

from app.auth.gate import Gate, Identity, unauthorized
from app.auth.passwords import Passwords, renewed
from app.auth.tokens import COOKIE, LASTS, same
from app.db import Database
from app.errors import ServiceError

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
FORMS = ("application/x-www-form-urlencoded",)


async def identify(gate: Gate, request: web.Request, *, basic_only: bool = False) -> Identity:
    """Who sends a request.  Raises unauthorized, too_many_requests; csrf_failed if a cookie alone asks for a change."""
    identity = await gate.identify(request.headers, request.remote, basic_only=basic_only)
    if identity.csrf is not None and request.method not in SAFE and not same(await _csrf_of(request), identity.csrf):
        raise ServiceError("csrf_failed", "expected the header X-CSRF-Token, or the form field csrf, as the login has given it")
    return identity


async def _csrf_of(request: web.Request) -> str:
    header = request.headers.get("X-CSRF-Token")
    if header is None and request.content_type in FORMS:
        header = str((await request.post()).get("csrf", ""))
    return header or ""


class Login:
    """Turns an email address and a password into a session."""

    def __init__(self, database: Database, gate: Gate) -> None:
        self._database, self._gate, self._passwords = database, gate, Passwords()

    async def login(self, request: web.Request, body: bytes) -> web.Response:
        """The answer to a login: token, its expiry, CSRF token, and the cookie.

        Raises malformed_request, unauthorized, too_many_requests.
        An attempt is counted as wrong before it is looked at, and taken back if it is right: attempts at the same time are as many
        as those one after another.
        """
        email, password = read_login(body)
        await self._gate.throttle.count(request.remote)
        try:
            session, user = await self._begin(email, password)
        except TimeoutError:
            await self._gate.throttle.uncount(request.remote)
            raise
        await self._gate.throttle.uncount(request.remote)
        signer = await self._gate.signer()
        token, expires = signer.sign("token", session, user)
        cookie, _ = signer.sign("cookie", session, user)
        answer = {"token": token, "expiresAt": _time(expires), "csrf": signer.csrf(session)}
        response = web.json_response(answer, headers={"Cache-Control": "no-store"})
        response.set_cookie(
            COOKIE, cookie, max_age=int(LASTS["cookie"].total_seconds()), httponly=True, samesite="Lax", secure=request.secure
        )
        return response

    async def logout(self, identity: Identity, request: web.Request) -> web.Response:
        """End the session of whoever is asking.  Raises forbidden for a key, which has none."""
        if identity.session is None:
            raise ServiceError("forbidden", "a key has no session to end; it is revoked where keys are managed")
        async with self._database.service() as connection:
            await connection.execute("select bds.end_session(%s)", (identity.session,))
        response = web.Response(status=204, headers={"Cache-Control": "no-store"})
        response.del_cookie(COOKIE, httponly=True, samesite="Lax", secure=request.secure)
        return response

    async def _begin(self, email: str, password: str) -> tuple[str, str]:
        """A new session's id, and the user's.  Raises unauthorized, TimeoutError."""
        async with self._database.service() as connection:
            query = "select user_id::text, password_hash from bds.password_of(%s)"
            row = await (await connection.execute(query, (email,))).fetchone()
        user, password_hash = row or ("", None)
        if not await self._passwords.fits(password, password_hash) or password_hash is None:
            raise wrong_login()
        stronger = await asyncio.to_thread(renewed, password, password_hash)
        async with self._database.service() as connection:
            query = "select bds.begin_session(%s, %s, %s, %s)::text"
            begun = await (await connection.execute(query, (user, password_hash, LASTS["cookie"], stronger))).fetchone()
        if begun is None or begun[0] is None:
            raise wrong_login()
        return begun[0], user


def read_login(body: bytes) -> tuple[str, str]:
    """Email address and password of a login's body.  Raises malformed_request."""
    try:
        read: Any = json.loads(body)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict):
        raise ServiceError("malformed_request", 'expected {"email": ..., "password": ...} as JSON')
    for name in ("email", "password"):
        if not isinstance(read.get(name), str):
            raise ServiceError("malformed_request", f"{name}: expected a text", target=name)
    # no address has such characters, and no database takes them
    email = read["email"].strip().encode("utf-8", "replace").decode().replace("\0", "?")
    return email, read["password"]


def wrong_login() -> ServiceError:
    """The same refusal whatever is wrong, so that nobody learns who has an account."""
    return ServiceError("unauthorized", "the email address or the password is wrong", headers=unauthorized().headers)


def _time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
