"""Signed references to a session: the token of a login, the cookie of a browser, and the CSRF token of our own forms.

All three are void as soon as the session has ended in the database, even if the signature is valid.
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
LIFETIME: dict[Use, timedelta] = {"token": timedelta(hours=1), "cookie": timedelta(hours=12)}
ALGORITHM = "HS256"
CLAIMS = ["sub", "sid", "aud", "iat", "exp"]  # of every token


class WrongCredentials(Exception):
    """An unknown key, or a token that this service has not signed for this use: counted as a guess."""


class ExpiredToken(Exception):
    """A token with a valid signature that has expired."""


class Signer:
    """Signs and verifies tokens with one secret."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def sign(self, use: Use, session: str, user: str) -> tuple[str, datetime]:
        """Return a JSON Web Token for a session, and its expiry."""
        now = datetime.now(UTC).replace(microsecond=0)
        claims = {"sub": user, "sid": session, "aud": use, "iat": now, "exp": now + LIFETIME[use]}
        return jwt.encode(claims, self._secret, ALGORITHM), now + LIFETIME[use]

    def read(self, use: Use, text: str) -> tuple[str, str]:
        """Return the session of a token for this use, and its user.  Raises WrongCredentials or ExpiredToken.

        Other claims have no effect: companies and rights are those that the user has in the database.
        """
        try:
            claims = jwt.decode(text, self._secret, [ALGORITHM], audience=use, options={"require": CLAIMS})
            if int(claims["exp"]) - int(claims["iat"]) > LIFETIME[use].total_seconds():
                raise WrongCredentials
            return str(uuid.UUID(str(claims["sid"]))), str(uuid.UUID(str(claims["sub"])))
        except jwt.ExpiredSignatureError as error:
            raise ExpiredToken from error
        except (jwt.InvalidTokenError, ValueError) as error:
            raise WrongCredentials from error

    def csrf(self, session: str) -> str:
        """Return the CSRF token that a change needs beside the session cookie; another site cannot compute it."""
        return hmac.new(self._secret.encode(), b"csrf " + session.encode(), hashlib.sha256).hexdigest()


def secrets_equal(one: str, other: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(one.encode("utf-8", "surrogateescape"), other.encode("utf-8", "surrogateescape"))


def session_cookie(headers: Mapping[str, str]) -> str | None:
    """Return the value of the session cookie, or None."""
    for pair in headers.get("Cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return value
    return None
