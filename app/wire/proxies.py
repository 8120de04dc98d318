"""Who is behind a reverse proxy: what it says of its client counts if the operator trusts it, and nobody else's word does."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache

from aiohttp import web

from app.config import Network

PAIR = re.compile(r'\s*([A-Za-z]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;,"]*)\s*')


def seen_through(request: web.Request, trusted: Sequence[Network]) -> web.Request:
    """The request with the client's address, scheme and host as trusted proxies tell them.

    They do so by X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host, or where none of these is there by Forwarded (RFC 7239).
    """
    peer = plain(request.remote)
    if peer is None:
        return request
    if not _is_trusted(peer, trusted):
        return request if peer == request.remote else request.clone(remote=peer)
    chain, scheme, host = _told(request)
    return request.clone(
        remote=client_address(peer, chain, trusted),
        scheme=scheme if scheme in ("http", "https") else request.scheme,
        host=host or request.host,
    )


def _told(request: web.Request) -> tuple[str, str, str]:
    """What proxies say: addresses with commas between them, the nearest last; the nearest one's scheme and host."""
    names = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host")
    if any(name in request.headers for name in names):
        chain, schemes, hosts = (",".join(request.headers.getall(name, [])) for name in names)
        return chain, schemes.rpartition(",")[2].strip().lower(), hosts.rpartition(",")[2].strip()
    hops = [_pairs(each) for each in _split(",".join(request.headers.getall("Forwarded", [])), ",")]
    nearest = hops[-1] if hops else {}
    return ",".join(hop.get("for", "") for hop in hops), nearest.get("proto", "").lower(), nearest.get("host", "")


def _pairs(element: str) -> dict[str, str]:
    """The parameters of one element of Forwarded."""
    found = (PAIR.fullmatch(each) for each in _split(element, ";"))
    return {pair[1].lower(): re.sub(r"\\(.)", r"\1", pair[2].strip('"')) for pair in found if pair}


def _split(text: str, mark: str) -> list[str]:
    """Pieces between marks that stand outside of quotation marks."""
    pieces = re.findall(rf'(?:[^"{mark}]|"(?:[^"\\]|\\.)*"?)+', text)
    return [str(piece) for piece in pieces]


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
