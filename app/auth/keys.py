"""API keys: 256 random bits behind a prefix that secret scanners can recognise; the database knows their SHA-256 alone.

A lookup by hash needs no comparison in constant time: whoever measures it learns about hashes, not about keys.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping

PREFIX = "bds_"
KEY = re.compile(r"bds_[A-Za-z0-9_-]{43}")


def make_key() -> str:
    """A new API key, to be shown once."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> bytes:
    """What is stored of a key: 32 bytes."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def is_basic(headers: Mapping[str, str]) -> bool:
    """Whether the credentials are Basic, right or wrong."""
    return headers.get("Authorization", "").partition(" ")[0].lower() == "basic"


def basic_key(headers: Mapping[str, str]) -> str | None:
    """The API key of Basic credentials whose user is `api`."""
    if not is_basic(headers):
        return None
    try:
        credentials = headers["Authorization"].partition(" ")[2]
        user, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except ValueError:
        return None
    return password if user == "api" else None


def any_key(headers: Mapping[str, str]) -> str | None:
    """The API key or token in whichever way it was sent: Bearer, Basic, or X-API-Key where there is no Authorization."""
    authorization = headers.get("Authorization")
    if authorization is None:
        return headers.get("X-API-Key")
    scheme, _, credentials = authorization.partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else basic_key(headers)
