"""Which addresses a webhook may be sent to: those that anybody on the internet could reach.

A receiver's url is written by a customer, so it must not lead into the operator's own network: not by a literal address, not by a
name that resolves to one, not by a second answer of the name server after the first was checked.  Therefore the addresses are
checked when a connection is made, and the connection goes to the address that was checked.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor

from aiohttp.abc import AbstractResolver, ResolveResult

THREADS = 64  # names that are looked up at once: one that hangs must not keep others waiting

GLOBAL_IPV6 = ipaddress.ip_network("2000::/3")  # all that is assigned; mapped, translated (NAT64) and local addresses lie outside
REFUSED = tuple(
    ipaddress.ip_network(each)
    for each in (
        "192.0.0.0/24",  # special purposes
        "192.88.99.0/24",  # relays of 6to4
        "168.63.129.16/32",  # a cloud's own services
        "2001::/23",  # special purposes, tunnels (Teredo) among them
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",  # documentation
    )
)


class AddressRefused(OSError):
    """The host is, or has, an address to which nothing is sent."""


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
    """Whether a url's host is an address and no name."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class Resolver(AbstractResolver):
    """Looks names up, in threads of its own; unless it allows private addresses, refuses a name of which any is not public."""

    def __init__(self, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="resolve")

    async def resolve(self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC) -> list[ResolveResult]:
        """The addresses of a name.  Raises AddressRefused, OSError if it has none."""
        found = await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port, family)
        for each in found:
            self.check(each["host"], host)
        return found

    def check(self, address: str, host: str) -> None:
        """Raises AddressRefused unless the address may be connected to."""
        if not self._allow_private and not is_public(address):
            raise AddressRefused(
                f"{address} is no public address" if address == host else f"{host} has {address}, which is no public address"
            )

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    infos = socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [
        ResolveResult(hostname=host, host=str(address[0]), port=port, family=each, proto=proto, flags=socket.AI_NUMERICHOST)
        for each, _, proto, _, address in infos
    ]
