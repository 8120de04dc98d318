"""Who is behind a reverse proxy: what it says of its client counts if the operator trusts it, and nobody else's word does."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

from aiohttp import web

from app.networks import Network


def seen_through(request: web.Request, trusted: Sequence[Network]) -> web.Request:
    """The request with the client's address and scheme as trusted proxies tell them (X-Forwarded-For, X-Forwarded-Proto)."""
    peer = plain(request.remote)
    if peer is None:
        return request
    if not _is_trusted(peer, trusted):
        return request if peer == request.remote else request.clone(remote=peer)
    address = client_address(peer, ",".join(request.headers.getall("X-Forwarded-For", [])), trusted)
    scheme = request.headers.get("X-Forwarded-Proto", "").rpartition(",")[2].strip().lower()
    return request.clone(remote=address, scheme=scheme if scheme in ("http", "https") else request.scheme)


def client_address(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """The nearest address in the chain that is no trusted proxy; where the chain is garbled, the last one before that."""
    address = peer
    for hop in reversed(forwarded_for.split(",")):
        if not _is_trusted(address, trusted):
            break
        nearer = plain(hop.strip())
        if nearer is None:
            break
        address = nearer
    return address


@lru_cache(1_000)
def plain(address: str | None) -> str | None:
    """An address without port and scope, an IPv4 one inside IPv6 as itself; None if it is none."""
    text = (address or "").partition("%")[0]
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if parsed.version == 6 else None
    return str(mapped or parsed)


def _is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    if not trusted:
        return False
    parsed = ipaddress.ip_address(address)
    return any(parsed.version == network.version and parsed in network for network in trusted)
