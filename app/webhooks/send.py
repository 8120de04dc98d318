"""One attempt of a delivery: a signed POST to a public address; returns an Outcome, never raises.

Redirects are not followed, and proxies of the environment are not used.  The status decides; only the first REPLY bytes of the
reply are read, for at most REPLY_SECONDS.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, cast
from uuid import UUID

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.client_exceptions import ClientConnectorDNSError
from yarl import URL

from app.webhooks.addresses import AddressRefused, Resolver, is_literal

REPLY = 1024  # bytes of a reply that are kept
REPLY_SECONDS = 2.0  # to read them, after the status
KEEP_ALIVE = 15.0  # seconds that an idle connection stays open for the hook's next delivery
AT_ONCE = 1.0  # seconds within which a request fails on a reused connection that the receiver had closed
USER_AGENT = "business-data-service (webhooks)"


@dataclass(frozen=True, slots=True)
class Delivery:
    """A claimed batch: everything that its POST needs."""

    company: str
    hook: UUID
    id: UUID
    lease: UUID
    url: str
    secrets: tuple[str, ...]  # newest first; each signs
    body: bytes

    def key(self) -> dict[str, str]:
        """The delivery and its lease, as the queue identifies them."""
        return {"company": self.company, "hook": str(self.hook), "delivery": str(self.id), "lease": str(self.lease)}


@dataclass(slots=True)
class RequestTrace:
    """Facts about one request."""

    reused: bool = False  # it went over a connection that was open already


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt: a status and the first bytes of the reply, or an error."""

    duration: float  # seconds
    status: int | None = None
    error: str | None = None
    reply: str | None = None

    def members(self) -> dict[str, Any]:
        """As the queue records it."""
        return {"status": self.status, "durationMs": round(self.duration * 1000), "error": self.error, "reply": self.reply}


def sign(secrets: Sequence[str], id: str, timestamp: int, body: bytes) -> str:
    """The signatures of Standard Webhooks, one for each secret: v1, HMAC-SHA256 over id, timestamp and body."""
    return " ".join(_signature(secret, id, timestamp, body) for secret in secrets)


def _signature(secret: str, id: str, timestamp: int, body: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


class Sender:
    """Sends deliveries, over a pool of connections."""

    def __init__(self, session: aiohttp.ClientSession, resolver: Resolver) -> None:
        self._session = session
        self._resolver = resolver

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, timeout: float, allow_private: bool) -> AsyncIterator[Sender]:
        """A sender, for the block.  timeout: seconds that a receiver has to answer."""
        resolver = Resolver(allow_private)

        def guarded(info: tuple[Any, ...]) -> socket.socket:
            family, type, proto, _, address = info
            resolver.check(address[0], address[0])  # the address that is connected to, however it was found
            return socket.socket(family, type, proto)

        async def reused(_session: Any, context: Any, _: Any) -> None:
            context.trace_request_ctx.reused = True

        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(reused)
        connector = aiohttp.TCPConnector(
            resolver=cast(AbstractResolver, resolver),
            use_dns_cache=False,
            limit=0,
            keepalive_timeout=KEEP_ALIVE,
            socket_factory=guarded,
        )
        async with aiohttp.ClientSession(
            connector=connector,
            trace_configs=[trace],
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=timeout),
            trust_env=False,
            auto_decompress=False,
            read_bufsize=4 * REPLY,
            headers={"User-Agent": USER_AGENT, "Content-Type": "application/json", "Accept": "*/*", "Accept-Encoding": "identity"},
        ) as session:
            yield cls(session, resolver)

    async def send(self, delivery: Delivery) -> Outcome:
        """Attempt a delivery once."""
        started = time.perf_counter()
        status, error, reply = None, None, None
        try:
            status, reply = await self._request(delivery)
        except Exception as failure:
            error = describe(failure)
        return Outcome(time.perf_counter() - started, status, error, reply)

    async def _request(self, delivery: Delivery) -> tuple[int, str]:
        """Post it; again over another connection if a reused one had been closed by the receiver, which is not a failure."""
        while True:
            trace, started = RequestTrace(), time.perf_counter()
            try:
                return await self._post(delivery, trace)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not trace.reused or time.perf_counter() - started > AT_ONCE:
                    raise

    async def _post(self, delivery: Delivery, trace: RequestTrace) -> tuple[int, str]:
        url, timestamp = URL(delivery.url, encoded=True), int(time.time())  # encoded: sent as registered
        if is_literal(url.host or ""):
            self._resolver.check(url.host or "", url.host or "")
        headers = {
            "webhook-id": str(delivery.id),
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(delivery.secrets, str(delivery.id), timestamp, delivery.body),
        }
        async with self._session.post(
            url, data=delivery.body, headers=headers, allow_redirects=False, trace_request_ctx=trace
        ) as response:
            return response.status, await _reply(response)


async def _reply(response: aiohttp.ClientResponse) -> str:
    """The first bytes of the reply that arrive in time.  The connection is reused only if they are all of it."""
    read = bytearray()
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
        async with asyncio.timeout(REPLY_SECONDS):
            while len(read) <= REPLY and (data := await response.content.read(REPLY + 1 - len(read))):
                read += data
    if not response.content.at_eof():
        response.close()
    return bytes(read[:REPLY]).decode("utf-8", "replace").replace("\0", "\ufffd")


def describe(failure: Exception) -> str:
    """A code and the details of an error: `timeout: ...`, `address_refused: ...`, `connection_failed: ...`."""
    cause: BaseException | None = failure
    while cause is not None:
        if isinstance(cause, AddressRefused):
            return f"address_refused: {cause}"
        cause = cause.__cause__ or cause.__context__
    match failure:
        case TimeoutError():
            return "timeout: no answer in time"
        case aiohttp.ClientSSLError() | ssl.SSLError():
            code = "tls_failed"
        case ClientConnectorDNSError() | socket.gaierror():
            code = "name_not_resolved"
        case aiohttp.ClientConnectionError() | OSError():
            code = "connection_failed"
        case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError():
            code = "bad_answer"
        case _:
            code = "failed"
    text = f"{code}: {_reason(failure)}"[:300].replace("\0", "\ufffd")
    return text.encode("utf-8", "replace").decode()  # PostgreSQL does not store half of a surrogate pair


def _reason(failure: Exception) -> str:
    """What failed: the system's words about a connection that was not made."""
    if isinstance(failure, aiohttp.ClientConnectorError) and not isinstance(failure, ssl.SSLError):
        error = failure.os_error
        is_known = bool(error.errno and error.errno > 0) and not isinstance(failure, ClientConnectorDNSError)
        words = os.strerror(error.errno or 0) if is_known else error.strerror
        return f"{failure.host} port {failure.port}: {words or error}"
    return str(failure) or type(failure).__name__
