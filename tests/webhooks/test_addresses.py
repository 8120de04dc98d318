"""Nothing is sent to an address that is not public, however the url spells it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from app.webhooks import addresses
from app.webhooks.addresses import AddressRefused, Resolver, is_public

PUBLIC = ["8.8.8.8", "93.184.215.14", "1.1.1.1", "100.63.255.255", "172.32.0.1", "2606:4700:4700::1111", "2a00:1450:4001:800::200e"]
REFUSED = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200"),
    *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("192.88.99.1", "168.63.129.16"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "3fff::1", "100::1"),
    *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::8.8.8.8", "::ffff:0:8.8.8.8"),
    *("64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "2002:7f00:1::", "2002:808:808::", "2001::1", "5f00::1", "4000::1"),
    *("", "localhost", "127.1", "2130706433", "0x7f000001", "8.8.8.8.8"),
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_accepted(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", REFUSED)
def test_any_other_address_is_refused(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "name", ["localhost", "LOCALHOST", "localhost.", "127.1", "127.0.0.1.", "2130706433", "0x7f.0.0.1", "017700000001"]
)
def test_a_name_of_a_private_address_is_refused(name: str) -> None:
    async def look_up(allow_private: bool) -> list[str]:
        resolver = Resolver(allow_private)
        try:
            return [found["host"] for found in await resolver.resolve(name, 80)]
        finally:
            await resolver.close()

    assert set(asyncio.run(look_up(True))) <= {"127.0.0.1", "::1"}
    with pytest.raises(AddressRefused):
        asyncio.run(look_up(False))


def test_a_name_with_one_private_address_among_public_ones_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(*addresses: str) -> object:
        return lambda *_, **__: [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)) for address in addresses]

    async def look_up() -> list[str]:
        resolver = Resolver(False)
        try:
            return [found["host"] for found in await resolver.resolve("example.com", 80)]
        finally:
            await resolver.close()

    monkeypatch.setattr(addresses.socket, "getaddrinfo", answers("8.8.8.8", "1.1.1.1"))
    assert asyncio.run(look_up()) == ["8.8.8.8", "1.1.1.1"]
    monkeypatch.setattr(addresses.socket, "getaddrinfo", answers("8.8.8.8", "10.0.0.1"))
    with pytest.raises(AddressRefused, match=r"10\.0\.0\.1"):
        asyncio.run(look_up())


def test_names_below_localhost_are_refused_whatever_a_name_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(name: str) -> None:
        resolver = Resolver(False)
        try:
            await resolver.resolve(name, 80)
        finally:
            await resolver.close()

    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", 80))]
    monkeypatch.setattr(addresses.socket, "getaddrinfo", lambda *_, **__: answer)
    asyncio.run(look_up("localhost.example.com."))
    for name in ("localhost", "localhost.", "x.localhost", "X.LOCALHOST."):
        with pytest.raises(AddressRefused, match="BDS_WEBHOOK_ALLOW_PRIVATE"):
            asyncio.run(look_up(name))
