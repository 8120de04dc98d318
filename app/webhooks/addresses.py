"""Which addresses webhooks may be sent to: public ones, which anybody on the internet can reach.

A customer writes the url, so it must not lead into the operator's own network: not by a literal address, not by a name that
resolves to one, and not by a name server that gives another answer after the first was checked.  So the address is checked when a
connection is made, and the connection goes to the address that was checked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands start without the web packages
    from aiohttp.abc import ResolveResult

THREADS = 64  # names resolved at once; a slow name server must not delay the others

LOCALHOST = "localhost"  # and all names below it are this machine's (RFC 6761)
GLOBAL_IPV6 = ipaddress.ip_network("2000::/3")  # all assigned addresses; mapped, translated (NAT64) and local ones are outside
REFUSED = tuple(
    ipaddress.ip_network(each)
    for each in (
        "192.0.0.0/24",  # special purposes
        "192.88.99.0/24",  # relays of 6to4
        "168.63.129.16/32",  # internal services of a cloud (Azure)
        "2001::/23",  # special purposes, tunnels (Teredo) among them
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",  # documentation
    )
)


MEND = "the operator may allow it: BDS_WEBHOOK_ALLOW_PRIVATE=true"


class AddressRefused(OSError):
    """The host is, or resolves to, an address that is not public."""


def plain_name(host: str) -> str:
    """A host in lower case and without the dot after an absolute name, which leads to the same address."""
    return host.lower().removesuffix(".")


def is_public(address: str) -> bool:
    """Whether a literal address is global unicast."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if not ip.is_global or ip.is_multicast or ip.is_reserved or (ip.version == 6 and ip not in GLOBAL_IPV6):
        return False
    return not any(ip in network for network in REFUSED if network.version == ip.version)


def is_literal(host: str) -> bool:
    """Whether a url's host is an address, not a name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class Resolver:
    """A resolver as aiohttp takes it: resolves names, in threads of its own.

    Unless private addresses are allowed, all addresses of a name must be public.
    """

    def __init__(self, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="resolve")

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """The addresses of a name.  Raises AddressRefused, or OSError if there are none."""
        host = plain_name(host)
        if not self._allow_private and (host == LOCALHOST or host.endswith(f".{LOCALHOST}")):  # whatever a name server answers
            raise AddressRefused(f"{host} is not a public address ({MEND})")
        found = await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port, family)
        for each in found:
            self.check(each["host"], host)
        return found

    def check(self, address: str, host: str) -> None:
        """Raises AddressRefused unless the address may be connected to."""
        if not self._allow_private and not is_public(address):
            name = address if address == host else f"{host} resolves to {address}, which"
            raise AddressRefused(f"{name} is not a public address ({MEND})")

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [
        {"hostname": host, "host": str(address[0]), "port": port, "family": each, "proto": proto, "flags": socket.AI_NUMERICHOST}
        for each, _, proto, _, address in infos
    ]
