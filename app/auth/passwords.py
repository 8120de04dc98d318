"""Passwords: Argon2id, as RFC 9106 recommends it where memory is shared (64 MiB and three passes for each)."""

from __future__ import annotations

import asyncio
import secrets
import unicodedata
from collections.abc import Callable
from typing import TypeVar

import argon2

from app.errors import ServiceError

SHORTEST, LONGEST = 8, 1_000  # characters
AT_ONCE = 2  # hashes that one process makes at the same time: each takes 64 MiB
PATIENCE = 10.0  # seconds that a login waits for its turn

T = TypeVar("T")
_hasher = argon2.PasswordHasher()


def hash_password(password: str) -> str:
    """What is stored of a password.  Raises malformed_request if it is too short or too long."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise ServiceError(
            "malformed_request", f"a password has {SHORTEST} to {LONGEST:,} characters, this one has {len(password)}"
        )
    return _hasher.hash(_normal(password))


def make_password() -> str:
    """A new password, to be shown once: 120 random bits."""
    return secrets.token_urlsafe(15)


class Passwords:
    """Compares passwords, a few at a time, in threads: a login must not hold up other requests, nor take all of the memory."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._nobody = ""  # the hash that is compared where there is no user, so that it takes as long

    async def fits(self, password: str, password_hash: str | None) -> bool:
        """Whether the password is the one that was hashed; never, but after as long, without a hash.  Raises TimeoutError."""
        return await self._in_turn(self._compare, password, password_hash)

    async def hash(self, password: str) -> str:
        """As `hash_password`.  Raises TimeoutError, too."""
        return await self._in_turn(hash_password, password)

    async def _in_turn(self, work: Callable[..., T], *given: str | None) -> T:
        async with asyncio.timeout(PATIENCE):
            await self._turns.acquire()
        try:
            return await asyncio.to_thread(work, *given)
        finally:
            self._turns.release()

    def _compare(self, password: str, password_hash: str | None) -> bool:
        if password_hash is None and not self._nobody:
            self._nobody = _hasher.hash(secrets.token_urlsafe())
        try:
            return _hasher.verify(password_hash or self._nobody, _normal(password[: LONGEST + 1])) and password_hash is not None
        except argon2.exceptions.VerificationError:
            return False


def renewed(password: str, password_hash: str) -> str | None:
    """A new hash of a password that fits, if the old one is weaker than today's."""
    return _hasher.hash(_normal(password)) if _hasher.check_needs_rehash(password_hash) else None


def _normal(password: str) -> bytes:
    """The same bytes however a keyboard has composed the characters (RFC 8265)."""
    return unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
