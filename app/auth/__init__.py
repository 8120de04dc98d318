"""Who is asking, and for which company: API keys, passwords, tokens and sessions, and what is done against guessing."""

from app.auth.gate import CACHE_SECONDS, Gate, Identity
from app.auth.keys import KEY, any_key, basic_key, hash_key, make_key

__all__ = ["CACHE_SECONDS", "KEY", "Gate", "Identity", "any_key", "basic_key", "hash_key", "make_key"]
