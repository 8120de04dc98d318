"""Request bodies: small ones read whole, all of them within a time limit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from app.errors import ServiceError

BODY_PATIENCE = 30.0  # seconds that a small body may take


@contextlib.asynccontextmanager
async def body_in_time(patience: float | None = None, part: str = "the whole body") -> AsyncIterator[None]:
    """Within this a body, or a part of one, is read: who sends no more of it holds no handler.  Raises request_timeout."""
    patience = BODY_PATIENCE if patience is None else patience
    try:
        async with asyncio.timeout(patience):
            yield
    except TimeoutError:
        message = f"expected {part} within {patience:.0f} seconds"
        raise ServiceError("request_timeout", message, headers={"Connection": "close"}) from None


async def small_body(request: web.Request, longest: int = 64 << 10) -> bytes:
    """A JSON body of a few bytes.  Raises unsupported_media_type, too_large, request_timeout."""
    if request.content_type not in ("application/json", "application/merge-patch+json"):
        raise ServiceError("unsupported_media_type", f"expected application/json, got {request.content_type}")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ServiceError("unsupported_media_type", "expected a body without Content-Encoding", target="Content-Encoding")
    body = bytearray()
    async with body_in_time():
        while data := await request.content.readany():
            body += data
            if len(body) > longest:
                raise ServiceError("too_large", f"expected at most {longest:,} bytes")
    return bytes(body)
