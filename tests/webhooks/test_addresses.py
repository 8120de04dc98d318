"""Nothing is sent to an address that is not public, however the url spells it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from uuid import uuid4

import pytest

from app.webhooks import addresses
from app.webhooks.addresses import AddressRefused, Resolver, is_public
from app.webhooks.send import Delivery, Outcome, Sender

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


# A name server that gives another answer after the first was checked ----------------------------------------------------------------

CHECKED = "127.0.0.2"  # this machine too, but it stands for a public address
PRIVATE = ["127.0.0.1", "::1", "::ffff:127.0.0.1", "::ffff:127.0.0.2", "169.254.169.254", "10.0.0.1", "0.0.0.0", "::"]


class Names:
    """Name servers whose answer is another one each time; the last one stays."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    def getaddrinfo(self, host: str, port: int, *_: object, **__: object) -> list[tuple[object, ...]]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in answer
        ]


async def attempt(names: Names, attempts: int, keeps: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Outcome], list[str]]:
    """Send to a name, over real connections; returns the outcomes, and the addresses at which requests arrived."""
    arrived: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            await reader.readexactly(2)
            arrived.append(writer.get_extra_info("sockname")[0])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + (b"" if keeps else b"Connection: close\r\n") + b"\r\n")
            if not keeps:
                return writer.close()

    async def listen(address: str, port: int) -> asyncio.Server:
        def forget(*_: object) -> None:
            pass

        asyncio.get_running_loop().set_exception_handler(forget)  # of connections that are closed at the end
        return await asyncio.start_server(answer, address, port)

    private = None
    while private is None:  # another process may have the port at the other address
        public = await listen(CHECKED, 0)
        port = public.sockets[0].getsockname()[1]
        with suppress(OSError):
            private = await listen("127.0.0.1", port)
    monkeypatch.setattr(addresses.socket, "getaddrinfo", names.getaddrinfo)
    monkeypatch.setattr(addresses, "is_public", lambda address: address == CHECKED or is_public(address))
    async with public, private, Sender.open(5.0, allow_private=False) as sender:
        outcomes = [
            await sender.send(Delivery("acme", uuid4(), uuid4(), uuid4(), f"http://example.com:{port}/", ("whsec_MTIz",), b"{}"))
            for _ in range(attempts)
        ]
    return outcomes, arrived


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name is resolved once for each connection, so a second answer, for the same connection, is never asked for."""
    names = Names([CHECKED], ["127.0.0.1"])
    outcomes, arrived = asyncio.run(attempt(names, 2, False, monkeypatch))
    assert (arrived, names.asked) == ([CHECKED], 2)
    assert [outcome.status for outcome in outcomes] == [200, None]
    assert str(outcomes[1].error).startswith("address_refused: example.com resolves to 127.0.0.1, which is not a public address")


def test_a_connection_that_stays_open_leads_to_the_address_that_was_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names([CHECKED], ["127.0.0.1"])
    outcomes, arrived = asyncio.run(attempt(names, 3, True, monkeypatch))
    assert (arrived, names.asked, {outcome.status for outcome in outcomes}) == ([CHECKED] * 3, 1, {200})


@pytest.mark.parametrize("address", PRIVATE)
@pytest.mark.parametrize("place", ["alone", "first", "last"])
def test_a_name_that_leads_inside_after_it_was_registered_is_a_temporary_failure(
    monkeypatch: pytest.MonkeyPatch, address: str, place: str
) -> None:
    answers = {"alone": [address], "first": [address, CHECKED], "last": [CHECKED, address]}
    [outcome], arrived = asyncio.run(attempt(Names(answers[place]), 1, False, monkeypatch))
    assert (arrived, outcome.status) == ([], None)
    assert str(outcome.error).startswith("address_refused: ")
