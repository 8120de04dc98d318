"""Request bodies: time limits for all, and reading of small ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

from aiohttp import web

from app.errors import ServiceError

BODY_TIMEOUT = 30.0  # seconds for a small body to arrive
FORM_TYPES = ("application/x-www-form-urlencoded",)


@contextlib.asynccontextmanager
async def body_deadline(timeout: float | None = None, part: str = "the whole body") -> AsyncIterator[None]:
    """Limit the seconds in which a body, or a part of it, is read inside the block.  Raises request_timeout."""
    timeout = BODY_TIMEOUT if timeout is None else timeout
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError:
        message = f"expected {part} within {timeout:.0f} seconds"
        raise ServiceError("request_timeout", message, headers={"Connection": "close"}) from None


def require_utf8(request: web.Request, what: str) -> None:
    """Raises unsupported_media_type if the body is declared to be in another encoding.  what: it is, for the error."""
    charset = request.charset or "utf-8"
    if charset.lower() not in ("utf-8", "utf8", "us-ascii", "ascii"):
        raise ServiceError("unsupported_media_type", f"expected {what} in UTF-8, got {charset}", target="Content-Type")


async def refuse_body(request: web.Request, beside: str = "") -> None:
    """Raises malformed_request if there is a body that could ask for something.  beside: the end of the message."""
    if request.content_type in FORM_TYPES:  # the check of its CSRF token may have read it
        async with body_deadline():
            asks = not asks_nothing(await request.read()) and any(name != "csrf" for name in await request.post())
    else:
        asks = request.can_read_body and not asks_nothing(await bare_body(request))
    if asks:
        raise ServiceError("malformed_request", f"expected no body{beside}")


def asks_nothing(body: bytes) -> bool:
    """Whether it is nothing, or JSON that asks for nothing: clients send null or {} where they have no arguments."""
    try:
        return not body.strip() or json.loads(body) in (None, {})
    except ValueError:
        return False


async def small_body(request: web.Request, longest: int = 64 << 10) -> bytes:
    """Return a small JSON body, not decoded.  Raises unsupported_media_type, too_large, request_timeout."""
    if request.content_type not in ("application/json", "application/merge-patch+json"):
        raise ServiceError("unsupported_media_type", f"expected application/json, got {request.content_type}")
    require_utf8(request, "JSON")
    return await bare_body(request, longest)


async def bare_body(request: web.Request, longest: int = 64 << 10) -> bytes:
    """Return a small body of any media type, not decoded.  Raises as small_body."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ServiceError("unsupported_media_type", "expected a body without Content-Encoding", target="Content-Encoding")
    body = bytearray()
    async with body_deadline():
        while data := await request.content.readany():
            body += data
            if len(body) > longest:
                raise ServiceError("too_large", f"expected at most {longest:,} bytes")
    return bytes(body)
