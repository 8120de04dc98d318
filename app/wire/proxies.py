"""Reverse proxies: the client's address, scheme and host from the headers of proxies that the operator trusts."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache

from aiohttp import web

from app.config import Network

PAIR = re.compile(r'\s*([A-Za-z]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;,"]*)\s*')


def apply_forwarded(request: web.Request, trusted: Sequence[Network]) -> web.Request:
    """Return the request with the client's address, scheme and host, if it comes from a trusted proxy.

    Reads X-Forwarded-For, X-Forwarded-Proto and X-Forwarded-Host, or Forwarded (RFC 7239) if there is none of these.
    """
    peer = normalized(request.remote)
    if peer is None:
        return request
    if not _is_trusted(peer, trusted):
        return request if peer == request.remote else request.clone(remote=peer)
    addresses, scheme, host = _forwarded(request)
    return request.clone(
        remote=client_address(peer, addresses, trusted),
        scheme=scheme if scheme in ("http", "https") else request.scheme,
        host=host or request.host,
    )


def _forwarded(request: web.Request) -> tuple[str, str, str]:
    """Return the forwarded addresses, separated by commas and the nearest last, and the nearest proxy's scheme and host."""
    names = ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host")
    if any(name in request.headers for name in names):
        addresses, schemes, hosts = (",".join(request.headers.getall(name, [])) for name in names)
        return addresses, schemes.rpartition(",")[2].strip().lower(), hosts.rpartition(",")[2].strip()
    hops = [_parameters(each) for each in _split_unquoted(",".join(request.headers.getall("Forwarded", [])), ",")]
    nearest = hops[-1] if hops else {}
    return ",".join(hop.get("for", "") for hop in hops), nearest.get("proto", "").lower(), nearest.get("host", "")


def _parameters(element: str) -> dict[str, str]:
    """Return the parameters of one element of Forwarded."""
    found = (PAIR.fullmatch(each) for each in _split_unquoted(element, ";"))
    return {pair[1].lower(): re.sub(r"\\(.)", r"\1", pair[2].strip('"')) for pair in found if pair}


def _split_unquoted(text: str, separator: str) -> list[str]:
    """Split a text at a separator, except inside quotation marks."""
    pieces = re.findall(rf'(?:[^"{separator}]|"(?:[^"\\]|\\.)*"?)+', text)
    return [str(piece) for piece in pieces]


def client_address(peer: str, forwarded_for: str, trusted: Sequence[Network]) -> str:
    """Return the nearest address that is not a trusted proxy, or the last one before a malformed address."""
    address = peer
    for hop in reversed(forwarded_for.split(",")):
        if not _is_trusted(address, trusted):
            break
        further = normalized(hop.strip())
        if further is None:
            break
        address = further
    return address


@lru_cache(1_000)
def normalized(address: str | None) -> str | None:
    """Return an IP address without port and scope, an IPv4-mapped one as IPv4; None if the text is not an address."""
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
