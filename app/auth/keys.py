"""API keys: 256 random bits behind a prefix that secret scanners recognise.  The database stores only their SHA-256.

The lookup by hash need not take constant time: measuring it reveals hashes, not keys.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from collections.abc import Mapping

from app.errors import ServiceError

PREFIX = "bds_"
LONGEST_NAME = 100  # characters of a key's name
KEY = re.compile(r"bds_[A-Za-z0-9_-]{43}")


def make_key() -> str:
    """Return a new API key, to be shown once."""
    return PREFIX + secrets.token_urlsafe(32)


def check_key_name(name: str) -> None:
    """Raises ServiceError(malformed_request) unless the name is valid."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise ServiceError("malformed_request", f"expected a name of 1 to {LONGEST_NAME} printable characters", target="name")


def hash_key(key: str) -> bytes:
    """Return the SHA-256 of a key: 32 bytes."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def is_basic(headers: Mapping[str, str]) -> bool:
    """Whether the Authorization header has the scheme Basic, with valid credentials or not."""
    return headers.get("Authorization", "").partition(" ")[0].lower() == "basic"


def basic_key(headers: Mapping[str, str]) -> str | None:
    """Return the password of Basic credentials with the user `api`, or None."""
    if not is_basic(headers):
        return None
    try:
        credentials = headers["Authorization"].partition(" ")[2]
        user, _, password = base64.b64decode(credentials.strip(), validate=True).decode().partition(":")
    except ValueError:
        return None
    return password if user == "api" else None


def key_or_token(headers: Mapping[str, str]) -> str | None:
    """Return the API key or token in Authorization (Bearer or Basic), or in X-API-Key if there is no Authorization."""
    authorization = headers.get("Authorization")
    if authorization is None:
        return headers.get("X-API-Key")
    scheme, _, credentials = authorization.partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else basic_key(headers)
