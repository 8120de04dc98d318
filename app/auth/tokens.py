"""Signed names of sessions: the token of a login, the cookie of a browser, and the proof that a page of ours sent a form.

All three are void as soon as the session has ended in the database, however well they are signed.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

import jwt

Use = Literal["token", "cookie"]

COOKIE = "session"
LASTS: dict[Use, timedelta] = {"token": timedelta(hours=1), "cookie": timedelta(hours=12)}
ALGORITHM = "HS256"


class Forged(Exception):
    """Not signed by us, or not for this use."""


class Expired(Exception):
    """Ours, but its time is over."""


class Signer:
    """Signs with one secret."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def sign(self, use: Use, session: str, user: str) -> tuple[str, datetime]:
        """A JSON Web Token that names a session, and when it expires."""
        now = datetime.now(UTC).replace(microsecond=0)
        claims = {"sub": user, "sid": session, "aud": use, "iat": now, "exp": now + LASTS[use]}
        return jwt.encode(claims, self._secret, ALGORITHM), now + LASTS[use]

    def read(self, use: Use, text: str) -> str:
        """The session that a token for this use names.  Raises Forged or Expired."""
        try:
            claims = jwt.decode(text, self._secret, [ALGORITHM], audience=use, options={"require": ["exp", "aud", "sid"]})
            return str(uuid.UUID(str(claims["sid"])))
        except jwt.ExpiredSignatureError as error:
            raise Expired from error
        except (jwt.InvalidTokenError, ValueError) as error:
            raise Forged from error

    def csrf(self, session: str) -> str:
        """What a request that changes something must bring beside the session's cookie, and no other site can know."""
        return hmac.new(self._secret.encode(), b"csrf " + session.encode(), hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    """Whether two secrets are the same, in a time that does not tell how much of them is."""
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode("utf-8", "surrogateescape"))


def cookie_of(headers: Mapping[str, str]) -> str | None:
    """The session's cookie, if one was sent; whatever else is among the cookies."""
    for pair in headers.get("Cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return value
    return None
