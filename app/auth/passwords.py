"""Passwords: Argon2id with the second recommended option of RFC 9106 (64 MiB, three passes)."""

from __future__ import annotations

import asyncio
import secrets
import unicodedata
from collections.abc import Callable
from typing import TypeVar

import argon2

from app.errors import ServiceError

SHORTEST, LONGEST = 8, 1_000  # characters
CONCURRENT_HASHES = 2  # in one process: each takes 64 MiB
QUEUE_TIMEOUT = 10.0  # seconds that a password waits to be hashed

T = TypeVar("T")
HASHER = argon2.PasswordHasher()


def hash_password(password: str) -> str:
    """Return the hash of a password.  Raises ServiceError(malformed_request) if the password is too short or too long."""
    if not SHORTEST <= len(password) <= LONGEST:
        message = f"the password has {len(password):,} characters, expected {SHORTEST} to {LONGEST:,}"
        raise ServiceError("malformed_request", message)
    return HASHER.hash(_normalize(password))


def make_password() -> str:
    """Return a new password of 120 random bits, to be shown once."""
    return secrets.token_urlsafe(15)


class Passwords:
    """Hashes and verifies passwords in threads, a few at a time: a login must not delay other requests or use up memory."""

    def __init__(self) -> None:
        self._semaphore = asyncio.Semaphore(CONCURRENT_HASHES)
        self._dummy_hash = ""  # verified where there is no user, so that the answer takes as long

    async def verify(self, password: str, password_hash: str | None) -> bool:
        """Whether the password has this hash; without a hash false, after the same time.  Raises TimeoutError."""
        return await self._in_thread(self._compare, password, password_hash)

    async def hash(self, password: str) -> str:
        """Return the hash, like `hash_password`.  Raises TimeoutError too."""
        return await self._in_thread(hash_password, password)

    async def _in_thread(self, work: Callable[..., T], *arguments: str | None) -> T:
        async with asyncio.timeout(QUEUE_TIMEOUT):
            await self._semaphore.acquire()
        try:
            return await asyncio.to_thread(work, *arguments)
        finally:
            self._semaphore.release()

    def _compare(self, password: str, password_hash: str | None) -> bool:
        if password_hash is None and not self._dummy_hash:
            self._dummy_hash = HASHER.hash(secrets.token_urlsafe())
        normal = _normalize(password[: LONGEST + 1])
        try:
            return HASHER.verify(password_hash or self._dummy_hash, normal) and password_hash is not None
        except argon2.exceptions.VerificationError:
            return False


def rehash_if_weak(password: str, password_hash: str) -> str | None:
    """Return a new hash of the password if the given one uses weaker parameters than today's, else None."""
    return HASHER.hash(_normalize(password)) if HASHER.check_needs_rehash(password_hash) else None


def _normalize(password: str) -> bytes:
    """Return the same bytes for composed and decomposed characters (RFC 8265)."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
